// What is recorded and judged of finished turns, behind them, and what becomes of it (12 §12.3, §12.5).
import { describe, expect, it, vi } from 'vitest';
import { purgeSession } from '#core/engine/fork-session.ts';
import { endSession } from '#core/engine/manage-session.ts';
import { draft, type PayloadOf } from '#protocol/event.ts';
import type { TurnId } from '#protocol/ids.ts';
import { type EngineOptions, startEngine, type TestEngine } from '../support/engine.ts';
import { delegate, planner, scenario, worker } from '../support/scenario.ts';

const answers = { version: 1, strict: false, rules: [], fallback: { text: 'done', usage: { input_tokens: 1000 } } };
const start = (over: Partial<EngineOptions> = {}) => startEngine({ scenario: answers, learning: {}, ...over });

interface Row {
  readonly intents: string;
  readonly model: string;
  readonly n: number;
  readonly mean: number;
  readonly scored: number;
  readonly cost: number;
}
const rows = (t: TestEngine) =>
  t.db.db
    .prepare<[], Row>(
      `SELECT f.structural_json ->> '$.intent_tags' AS intents, o.primary_model AS model, o.sample_size AS n,
        o.success_score_mean AS mean, o.success_score_count AS scored, o.sum_cost_pusd AS cost
      FROM pattern_outcomes o JOIN pattern_fingerprints f ON f.id = o.fingerprint_id ORDER BY f.id, o.primary_model`,
    )
    .all();
const count = (t: TestEngine, table: string) =>
  t.db.db.prepare<[], number>(`SELECT count(*) FROM ${table}`).pluck().get();
/** The last event of what a turn teaches. */
const learned = (t: TestEngine, turnId: string) =>
  t.event('eval.completed', (e) => e.turn_id === turnId && e.payload.subject_kind === 'turn');
async function turn(t: TestEngine, text: string, model = 'haiku') {
  const session = await t.session({ initial_active_model: model });
  const { id } = await t.run(session, text);
  return { session, id };
}
async function learnedTurn(t: TestEngine, text: string, model?: string) {
  const made = await turn(t, text, model);
  await learned(t, made.id);
  return made;
}
const judge = (
  t: TestEngine,
  of: { readonly session: { readonly id: string }; readonly id: string },
  over: object = {},
) =>
  t.engine.journal.commit({
    emit: [
      draft({
        type: 'eval.completed',
        session_id: of.session.id,
        turn_id: of.id as TurnId,
        parent: null,
        payload: {
          eval_id: t.engine.ids.next(),
          subject_kind: 'turn',
          subject_id: of.id,
          score: 0.5,
          confidence: 1,
          rubric_id: 'later',
          rubric_version: '1',
          signals: {},
          ...over,
        },
      }),
    ],
  });

describe('a finished turn', () => {
  // Promise 12.1: two such turns are one outcome of two.
  it('is recorded, judged and scored, once, with its own cost: two of a shape are one outcome', async () => {
    const t = await start();
    const { id, session } = await learnedTurn(t, 'fix the bug');
    await learnedTurn(t, 'the bug again');
    const stored = t.db.db.prepare('SELECT fingerprint_json FROM turns').pluck().all();
    expect(stored).toEqual(Array(2).fill('{"estimated_input_tokens_bucket":1,"intent_tags":["debug"]}'));
    const cost = 2 * (1000 * 1_000_000 + 5_000_000);
    expect(rows(t)).toEqual([
      { intents: '["debug"]', model: 'anthropic:claude-haiku-4-5', n: 2, mean: 1, scored: 2, cost },
    ]);
    const events = t.events.filter((e) => e.turn_id === id);
    expect(events.slice(-3).map(({ type }) => type)).toEqual(['turn.completed', 'eval.completed', 'pattern.recorded']);
    const [end, verdict, recorded] = events.slice(-3);
    expect([verdict, recorded].map((e) => e?.parent_event_id)).toEqual([end!.id, end!.id]);
    expect(recorded).toMatchObject({ session_id: session.id, actor: 'system' });
    expect(recorded!.payload).toMatchObject({
      sample_size_before: 0,
      sample_size_after: 1,
      was_new_fingerprint: true,
      success_score: 1,
      cost_usd_at_record: '0.001005',
      pricing_version: 'A',
    });
    expect(verdict!.payload).toMatchObject({ subject_kind: 'turn', subject_id: id, score: 1, confidence: 0.9 });
  });

  // Promise 12.1: another workspace is apart.
  it('of another workspace is apart', async () => {
    const t = await start();
    await learnedTurn(t, 'fix the bug');
    const other = await start();
    await learnedTurn(other, 'fix the bug');
    const sig = (of: TestEngine) => of.db.db.prepare('SELECT structural_sig FROM pattern_fingerprints').pluck().get();
    expect(sig(t)).not.toBe(sig(other));
  });

  // Promise 12.6: worker and planner have rows of their own, with their own cost.
  // Promise 12.10: an end by max_tokens counts in the mean, a failed delegation does not.
  it('of a worker has a row and a verdict of its own, with its own cost; a failed delegation leaves the planner at 1.0', async () => {
    const t = await start({
      config: { tool_confirmation: { per_tool: { delegate: 'auto' } } },
      scenario: scenario(
        planner(
          { tool_calls: [delegate('debug it')], usage: { input_tokens: 100 } },
          { text: 'ok', usage: { input_tokens: 100 } },
        ),
        worker('debug it', {
          stop_reason: 'max_tokens',
          text: 'half',
          usage: { input_tokens: 100, output_tokens: 10 },
        }),
      ),
    });
    const session = await t.session();
    const { id, total_cost_usd, workers_cost_usd } = await t.run(session, 'plan');
    const verdict = await learned(t, id);
    expect(verdict.payload).toMatchObject({ score: 1, confidence: 0.9 });
    const pusd = (usd: string) => Math.round(Number(usd) * 1e12);
    expect(rows(t)).toMatchObject([
      { intents: '["debug"]', model: 'anthropic:claude-haiku-4-5', n: 1, mean: 11 / 15, cost: pusd(workers_cost_usd) },
      { intents: '[]', model: 'anthropic:claude-opus-4-7', n: 1, mean: 1, cost: pusd(total_cost_usd) },
    ]);
    await endSession(t.engine, session.id);
    const whole = await t.event('eval.completed', (e) => e.payload.subject_id === session.id);
    expect(whole.payload.signals).toMatchObject({ delegations_total: 1, delegations_failed: 1, turn_count: 1 });
    expect(whole.payload.score).toBeCloseTo(0.6, 12);
    const workers = t.events.filter((e) => e.type === 'eval.completed' && e.actor === 'worker');
    expect(workers.map((e) => (e.payload as PayloadOf<'eval.completed'>).subject_kind)).toEqual(['turn', 'session']);
  });

  // Promise 12.12: one verdict a turn, the session's after them.
  // Promise 12.15: no text of a message in events.
  it('has exactly one verdict, the session its own after them, and none holds any text', async () => {
    const t = await start();
    const session = await t.session();
    const turns = [await t.run(session, 'my secret plan'), await t.run(session, 'another secret')];
    await endSession(t.engine, session.id);
    await t.event('eval.completed', (e) => e.payload.subject_kind === 'session');
    const verdicts = t.events
      .filter((e) => e.type === 'eval.completed')
      .map((e) => e.payload as PayloadOf<'eval.completed'>);
    expect(verdicts.map((v) => v.subject_id)).toEqual([...turns.map(({ id }) => id), session.id]);
    const told = t.events.filter(({ type }) => /^(eval|pattern)\./.test(type));
    expect(JSON.stringify(told)).not.toMatch(/secret|done/);
  });

  // Promise 12.12: evaluation off: no verdict at all.
  it('is not judged where evaluation is off, and leaves nothing where patterns are off', async () => {
    const unjudged = await start({ config: { eval: { disabled: true } } });
    const { session, id } = await turn(unjudged, 'fix the bug');
    await unjudged.event('pattern.recorded', (e) => e.turn_id === id);
    await endSession(unjudged.engine, session.id);
    await unjudged.close();
    expect(unjudged.events.filter(({ type }) => type.startsWith('eval.'))).toEqual([]);

    const unrecorded = await start({ config: { pattern: { mode: 'off' } } });
    await learnedTurn(unrecorded, 'fix the bug');
    expect(count(unrecorded, 'pattern_turns')).toBe(0);
    expect(unrecorded.db.db.prepare('SELECT fingerprint_json FROM turns').pluck().get()).toBeNull();
  });
});

describe('the loop', () => {
  // Promise 12.8: a kill between two events neither skips nor repeats.
  it('that is killed between two events neither skips nor repeats one', async () => {
    const first = await start();
    await learnedTurn(first, 'fix the bug');
    await first.loop!.close();
    for (let n = 0; n < 40; n += 1) await turn(first, 'fix the bug');
    first.abandon();

    const killed = await start({ folder: first.folder });
    await killed.event('eval.completed');
    killed.abandon();
    const last = await start({ folder: first.folder });
    await learnedTurn(last, 'fix the bug');
    expect(rows(last)).toMatchObject([{ n: 42, scored: 42 }]);
    expect(count(last, 'pattern_turns')).toBe(42);
    await last.close();
    const verdicts = [killed, last].map((t) => t.events.filter((e) => e.type === 'eval.completed').length);
    expect(verdicts[0]).toBeGreaterThan(0);
    expect(verdicts[1]).toBe(41 - verdicts[0]!);
    expect(verdicts[1]).toBeGreaterThan(1);
  });

  it('reads a turn once: its own verdict on it has nothing more to teach', async () => {
    const t = await start();
    const asked = vi.spyOn(t.engine.store.patterns, 'turns');
    const first = await learnedTurn(t, 'fix the bug');
    // Behind the first verdict in the journal.
    const second = await learnedTurn(t, 'fix the bug');
    expect(asked.mock.calls).toEqual([[[first.id]], [[second.id]]]);
    expect(rows(t)).toMatchObject([{ n: 2, scored: 2, mean: 1 }]);
  });

  // Promise 12.8: reading the journal again changes nothing.
  it('that reads the journal again from the start changes nothing, and from empty tables makes the same sums', async () => {
    const t = await start();
    await learnedTurn(t, 'fix the bug');
    await learnedTurn(t, 'write docs', 'sonnet');
    await t.close();
    const again = async (sql: string) => {
      const before = await startEngine({ scenario: answers, folder: t.folder });
      before.db.db.exec(`${sql} UPDATE meta SET value = '' WHERE key = 'learning_cursor';`);
      before.abandon();
      const after = await start({ folder: t.folder });
      await learnedTurn(after, 'commit', 'opus');
      return after;
    };
    const replayed = await again('');
    const whole = rows(replayed);
    expect(whole.map(({ n, scored }) => [n, scored])).toEqual([
      [1, 1],
      [1, 1],
      [1, 1],
    ]);
    expect(replayed.events.filter((e) => e.type === 'eval.completed')).toHaveLength(1);
    await replayed.close();

    const rebuilt = await again(
      'DELETE FROM pattern_turns; DELETE FROM pattern_outcomes; DELETE FROM pattern_fingerprints;',
    );
    expect(rows(rebuilt).slice(0, 2)).toEqual(whole.slice(0, 2));
    expect(rows(rebuilt)[2]).toMatchObject({ n: 2, scored: 2, cost: 2 * whole[2]!.cost });
  });

  // Promise 12.17: turns from before it and purged ones are passed over.
  it('passes over turns from before it, and those that were purged before it came to them', async () => {
    const before = await startEngine({ scenario: answers });
    await turn(before, 'from before the feature');
    await before.close();
    const t = await start({ folder: before.folder });
    await learnedTurn(t, 'write docs');
    await t.loop!.close();
    const { session } = await turn(t, 'fix the bug');
    await purgeSession(t.engine, session.id);
    t.abandon();
    const after = await start({ folder: before.folder });
    await learnedTurn(after, 'write docs');
    expect(rows(after)).toMatchObject([{ intents: '["doc"]', n: 2 }]);
  });

  // Promise 12.7: a late verdict counts once; unsure and unknown ones do not.
  it('takes a verdict that comes after a restart, once, and none that is unsure or of an unknown turn', async () => {
    const config = { eval: { disabled: true } };
    const first = await start({ config });
    const early = await turn(first, 'fix the bug');
    await first.event('pattern.recorded', (e) => e.turn_id === early.id);
    await first.close();
    const t = await start({ folder: first.folder, config });
    await judge(t, early, { confidence: 0.4 });
    await judge(t, { session: early.session, id: t.engine.ids.turn() });
    await judge(t, early, { score: 0.8 });
    await judge(t, early, { score: 0.1 });
    const scored = await t.event('pattern.recorded', (e) => e.turn_id === early.id);
    expect(scored.payload).toMatchObject({
      sample_size_before: 1,
      sample_size_after: 1,
      success_score: 0.8,
      cost_usd_at_record: '0.001005',
    });
    const late = await turn(t, 'fix the bug');
    await t.event('pattern.recorded', (e) => e.turn_id === late.id);
    expect(rows(t)).toMatchObject([{ n: 2, scored: 1, mean: 0.8 }]);
  });

  // Promise 12.9: the oldest outcome goes with its shape.
  it('keeps no more outcomes than the limit: the oldest goes with its shape, and a late verdict on it is passed over', async () => {
    const t = await start({ learning: { maxOutcomes: 3 }, config: { eval: { disabled: true } } });
    const recorded = async (text: string) => {
      const made = await turn(t, text);
      await t.event('pattern.recorded', (e) => e.turn_id === made.id);
      return made;
    };
    const oldest = await recorded('fix the bug');
    for (const text of ['write docs', 'commit', 'rename']) await recorded(text);
    expect(rows(t).map(({ intents }) => intents)).toEqual(['["doc"]', '["commit"]', '["refactor"]']);
    expect([count(t, 'pattern_fingerprints'), count(t, 'pattern_turns')]).toEqual([3, 3]);
    await judge(t, oldest);
    await recorded('fix the bug');
    expect(rows(t).map(({ intents, scored }) => [intents, scored])).toEqual([
      ['["commit"]', 0],
      ['["refactor"]', 0],
      ['["debug"]', 0],
    ]);
  });
});

describe('a session that is deleted', () => {
  it('takes its turns out of every outcome, and an outcome of it alone goes', async () => {
    const t = await start();
    const kept = await learnedTurn(t, 'fix the bug');
    const session = await t.session({ initial_active_model: 'haiku' });
    for (const text of ['fix the bug', 'commit']) await learned(t, (await t.run(session, text)).id);
    await judge(t, kept);
    expect(rows(t)).toHaveLength(2);
    const before = rows(t)[0]!;
    await purgeSession(t.engine, session.id);
    expect(rows(t)).toEqual([{ ...before, n: 1, scored: 1, mean: 1, cost: before.cost / 2 }]);
    expect([count(t, 'pattern_turns'), count(t, 'pattern_fingerprints')]).toEqual([1, 1]);
    await learnedTurn(t, 'fix the bug');
    expect(rows(t)).toMatchObject([{ n: 2, scored: 2, mean: 1 }]);
  });
});

describe('the pattern tables', () => {
  // Promise 12.13: unreadable tables leave turns alone.
  it('made unreadable leave turns alone: slot 4 says so, and nothing is learned', async () => {
    const t = await start();
    t.db.db.exec('DROP TABLE pattern_turns; DROP TABLE pattern_outcomes; DROP TABLE pattern_fingerprints;');
    const session = await t.session({ initial_active_model: null });
    expect(await t.run(session, 'fix the bug')).toMatchObject({ status: 'completed' });
    const decided = await t.event('route.decided');
    expect((decided.payload as PayloadOf<'route.decided'>).chain[3]).toMatchObject({
      verdict: 'not_applicable',
      reason: 'pattern store unavailable',
    });
  });
});
