// SIGKILL at random moments: whatever the server was doing, the next start pays for nothing twice and loses nothing (04 §13).
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { verifySqliteRollups } from '#store/sqlite/write/sqlite-maintenance.ts';
import { INPUT_TOKENS, killAtRandom, type Outcome } from './schedule.ts';
import type { Json } from './world.ts';

const KILLS = Number(process.env.CRASH_KILLS ?? 4);
const SEED = Number(process.env.CRASH_SEED ?? 20_260);
const RESTARTED = 'Tool call interrupted by a server restart; it may or may not have taken effect.';

describe(`${KILLS} kills (CRASH_SEED=${SEED})`, () => {
  let run: Outcome;
  beforeAll(
    async () => {
      run = await killAtRandom(SEED, KILLS);
    },
    60_000 + KILLS * 10_000,
  );
  afterAll(() => run?.close());

  const events = (where: string) => run.rows<Json>(`SELECT * FROM events WHERE ${where} ORDER BY id`);
  const payload = (event: Json): Json => JSON.parse(event.payload_json);
  const count = <T>(items: Iterable<T>) => {
    const counts = new Map<T, number>();
    for (const item of items) counts.set(item, (counts.get(item) ?? 0) + 1);
    return counts;
  };

  it('every turn ends exactly once, workers included, and none stays open', () => {
    const turns = run.rows<{ id: string; status: string }>('SELECT id, status FROM turns');
    const ends = count(events("type IN ('turn.completed','turn.failed','turn.cancelled')").map((e) => e.turn_id));
    expect(turns.filter(({ id }) => ends.get(id) !== 1)).toEqual([]);
    expect(turns.filter(({ status }) => !['completed', 'cancelled'].includes(status))).toEqual([]);
    expect(run.sessions.flatMap((s) => s.turns).filter((t) => t.status === 'completed').length).toBeGreaterThan(0);
  });

  it('a submission whose receipt was lost in a kill is one turn', () => {
    const texts = run.rows<{ content: string }>("SELECT content_json AS content FROM messages WHERE role = 'user'");
    const turns = texts.flatMap(({ content }) => /turn s\d+\.\d+/.exec(content)?.[0] ?? []);
    expect([...count(turns).values()].every((n) => n === 1)).toBe(true);
    expect(turns.length).toBe(run.sessions.reduce((sum, s) => sum + s.turns.length, 0));
  });

  it('a call is asked for again only when a kill came before its answer was stored', () => {
    const last = new Map<string, Outcome['asks'][number]>();
    const repeated = run.asks.filter((ask) => {
      const before = last.get(ask.key);
      last.set(ask.key, ask);
      return before !== undefined && before.start === ask.start;
    });
    expect(repeated).toEqual([]);
    const stored = count(events("type = 'llm.call_completed'").map((e) => `${e.turn_id} ${payload(e).request_id}`));
    expect([...stored.values()].every((n) => n === 1)).toBe(true);
    // What was cut is closed as failed at the next start: no call is without its outcome.
    const started = events("type = 'llm.call_started'").map((e) => e.id);
    const closed = count(events("type IN ('llm.call_completed','llm.call_failed')").map((e) => e.parent_event_id));
    expect(started.filter((id) => closed.get(id) !== 1)).toEqual([]);
  });

  it('the ledger holds one row a completed call: the newest answer the provider gave to it, and no other', () => {
    const answered = new Map(run.asks.map((ask) => [ask.key, ask]));
    const paid = new Set(run.rows<{ n: number }>('SELECT input_tokens AS n FROM llm_calls').map((row) => row.n));
    expect(run.rows('SELECT 1 FROM llm_calls')).toHaveLength(paid.size);
    const superseded = run.asks.filter((ask) => answered.get(ask.key) !== ask);
    expect(superseded.filter((ask) => paid.has(INPUT_TOKENS + ask.number))).toEqual([]);
    // A turn that was cut too often may end with its last call unanswered.
    const cancelled = run.sessions.flatMap((s) => s.turns).filter((t) => t.status === 'cancelled').length;
    const unpaid = [...answered.values()].filter((ask) => !paid.has(INPUT_TOKENS + ask.number));
    expect(unpaid.length).toBeLessThanOrEqual(3 * cancelled);
    expect(paid.size + unpaid.length).toBe(answered.size);
  });

  it('the costs agree with their events and rollups', () => {
    expect(run.read(verifySqliteRollups)).toEqual([]);
    const [{ calls, turns }] = run.rows(`SELECT
      (SELECT sum(cost_pusd) FROM llm_calls WHERE is_worker = 0) AS calls,
      (SELECT sum(json_extract(payload_json, '$.total_cost_usd') * 1e12) FROM events
        WHERE actor != 'worker' AND type IN ('turn.completed','turn.cancelled','turn.failed')) AS turns`) as [Json];
    expect(Math.round(turns)).toBe(calls);
  });

  it('no delegation has a second worker, and each begins and ends once', () => {
    const delegations = run.rows<{ id: string }>('SELECT tool_use_id AS id FROM delegations').map(({ id }) => id);
    const workers = run.rows('SELECT parent_tool_use_id AS id FROM sessions WHERE is_worker = 1');
    expect(workers).toHaveLength(delegations.length);
    for (const types of ["'delegate.started'", "'delegate.completed','delegate.failed'"]) {
      const reported = count(events(`type IN (${types})`).map((e) => payload(e).tool_use_id));
      expect(delegations.filter((id) => reported.get(id) !== 1)).toEqual([]);
      expect(reported.size).toBe(delegations.length);
    }
    const ended = count(events("type = 'session.ended'").map((e) => e.session_id));
    expect(ended.size).toBe(workers.length);
    expect([...ended.values()].every((n) => n === 1)).toBe(true);
  });

  it('a command that had begun is not run again, and its call says so', () => {
    const lines = count(run.lines);
    expect([...lines].filter(([, n]) => n > 1)).toEqual([]);
    const calls = run.rows("SELECT id, status, result_json AS result FROM tool_calls WHERE name = 'shell'");
    const called = count(events("type = 'tool.called'").map((e) => payload(e).tool_use_id));
    expect([...called.values()].every((n) => n === 1)).toBe(true);
    for (const { status, result } of calls) {
      const text: string = JSON.parse(result).content[0].text;
      if (status === 'succeeded') expect(lines.get(/echo "(.*?)"/.exec(text)![1]!)).toBe(1);
      else expect(text).toBe(RESTARTED);
    }
    expect(calls.filter((c) => c.status === 'succeeded').length).toBeGreaterThan(0);
  });

  it('subscribers that reconnect see every event once, in order, and none is missing', () => {
    for (const { id, since, seen } of run.sessions) {
      const stored = run.rows<{ id: string }>(
        'SELECT e.id FROM events e JOIN sessions s ON s.id = e.session_id WHERE s.root_session_id = ? AND e.id > ? ORDER BY e.id',
        id,
        since,
      );
      expect(seen).toEqual(stored.map((row) => row.id));
    }
  });

  // Promise 02.9: after kills the loop handles every event once, in order.
  // Promise 12.8: kill -9 at random moments: every completed turn is learned once.
  it('every completed turn is learned once, in the order of the journal', () => {
    const completed = events("type = 'turn.completed'").map((e) => e.turn_id);
    const judged = events("type = 'eval.completed'").filter((e) => (payload(e).subject_kind ?? 'turn') === 'turn');
    expect(judged.map((e) => e.turn_id)).toEqual(completed);
    expect(run.rows<Json>('SELECT turn_id, score FROM pattern_turns').filter(({ score }) => score === null)).toEqual(
      [],
    );
    const [sums] = run.rows<Json>(
      'SELECT sum(sample_size) AS turns, sum(success_score_count) AS scores FROM pattern_outcomes',
    );
    expect(sums).toEqual({ turns: completed.length, scores: completed.length });
  });

  it('every tool call is answered once', () => {
    const open = run.rows('SELECT id FROM tool_calls WHERE result_message_id IS NULL');
    expect(open).toEqual([]);
  });
});
