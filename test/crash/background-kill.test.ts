// SIGKILL at random moments of turns with background workers: each result is read once, and no turn ends before its workers (20 §9).
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { verifySqliteRollups } from '#store/sqlite/write/sqlite-maintenance.ts';
import type { FakeMessage } from '../support/fake-provider.ts';
import { INPUT_TOKENS, killAtRandom, type Outcome } from './schedule.ts';

const KILLS = Number(process.env.BACKGROUND_KILLS ?? 3);
const SEED = Number(process.env.CRASH_SEED ?? 20_261);

/** Every planner: a command beside three workers, then a command or a wait, then answers. Every worker: a command, its answer. */
function answerTo(key: string): FakeMessage {
  const [turn, who, answers] = key.split(' ') as [string, string, string];
  const command = { name: 'shell', input: { command: `echo "${key}" >> log.txt; sleep 0.1` } };
  const job = (name: string) => ({
    name: 'delegate',
    input: { tier: 'fast', task: `job ${turn} ${name}`, background: true },
  });
  if (who === 'planner' && answers === '0') return { tool_calls: [command, job('one'), job('two'), job('three')] };
  if (who === 'planner' && answers === '1' && Number(turn.split('.')[1]) % 2 === 0)
    return { tool_calls: [{ name: 'workers', input: { action: 'wait', for: 'any' } }, command] };
  if ((who === 'planner' && answers === '1') || answers === '0') return { tool_calls: [command] };
  return { text: `${who} is done with ${turn}` };
}

describe(`${KILLS} kills beside background workers (CRASH_SEED=${SEED})`, () => {
  let run: Outcome;
  beforeAll(
    async () => {
      run = await killAtRandom(SEED, KILLS, answerTo);
    },
    60_000 + KILLS * 10_000,
  );
  afterAll(() => run?.close());

  const ids = (sql: string) => run.rows<{ id: string }>(sql).map(({ id }) => id);

  // Promise 20.20: kills at random moments of such turns: each result in the history exactly once, no turn ended before its workers, nothing paid twice.
  it('each result is in the history exactly once', () => {
    const workers = run.rows<{ worker: string; turn: string; status: string; unread: number }>(`
      SELECT d.worker_session_id AS worker, t.id AS turn, t.status FROM delegations d JOIN turns t ON t.id = d.parent_turn_id
      WHERE json_extract(d.request_json, '$.background') = 1 AND d.worker_session_id IS NOT NULL`);
    expect(workers.length).toBeGreaterThan(0);
    const texts = run.rows<{ turn: string; content: string }>(
      "SELECT turn_id AS turn, content_json AS content FROM messages WHERE role IN ('user', 'tool')",
    );
    const countIn = (worker: string, turn: string) => {
      const all = texts.filter((text) => text.turn === turn).map(({ content }) => content);
      return all.join().split(new RegExp(`\\[worker ${worker} (?:completed|failed)`)).length - 1;
    };
    const delivered = ids(
      "SELECT json_extract(payload_json, '$.worker_session_id') AS id FROM events WHERE type = 'delegate.delivered'",
    );
    expect(new Set(delivered).size).toBe(delivered.length);
    for (const { worker, turn, status } of workers) {
      const read = countIn(worker, turn);
      expect(read, worker).toBe(delivered.includes(worker) ? 1 : 0);
      if (status === 'completed') expect(read, worker).toBe(1);
    }
    expect(workers.filter(({ status }) => status === 'completed').length).toBeGreaterThan(0);
  });

  it('no turn ended before its workers, and none is open', () => {
    expect(ids('SELECT id FROM turns WHERE ended_at IS NULL')).toEqual([]);
    expect(ids("SELECT tool_use_id AS id FROM delegations WHERE status IN ('running', 'interrupted')")).toEqual([]);
    const early = run.rows(`
      SELECT e.id FROM events e JOIN events d ON d.turn_id = e.turn_id AND d.id > e.id
      WHERE e.type IN ('turn.completed', 'turn.failed', 'turn.cancelled') AND d.type LIKE 'delegate.%'`);
    expect(early).toEqual([]);
    const workers = ids('SELECT parent_tool_use_id AS id FROM sessions WHERE is_worker = 1');
    expect(new Set(workers).size).toBe(workers.length);
  });

  it('nothing is paid twice, and only what a kill cut off is asked for again', () => {
    const last = new Map<string, Outcome['asks'][number]>();
    const repeated = run.asks.filter((ask) => {
      const before = last.get(ask.key);
      last.set(ask.key, ask);
      return before !== undefined && before.start === ask.start;
    });
    expect(repeated).toEqual([]);
    const paid = run.rows<{ n: number }>('SELECT input_tokens AS n FROM llm_calls').map((row) => row.n);
    expect(new Set(paid).size).toBe(paid.length);
    const superseded = run.asks.filter((ask) => last.get(ask.key) !== ask);
    expect(superseded.filter((ask) => paid.includes(INPUT_TOKENS + ask.number))).toEqual([]);
    expect(run.read(verifySqliteRollups)).toEqual([]);
    expect([...run.lines].sort()).toEqual([...new Set(run.lines)].sort());
  });
});
