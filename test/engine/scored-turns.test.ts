// A person's score of a turn: it counts in place of the server's own verdict, once, and can be changed (12 §12.8).
import { describe, expect, it } from 'vitest';
import { cancelTurn, scoreTurn } from '#core/engine/control-turn.ts';
import { purgeSession } from '#core/engine/fork-session.ts';
import { endSession } from '#core/engine/manage-session.ts';
import type { PayloadOf } from '#protocol/event.ts';
import { type EngineOptions, startEngine, type TestEngine } from '../support/engine.ts';
import { delegate, planner, scenario, worker } from '../support/scenario.ts';

const answers = { version: 1, strict: false, rules: [], fallback: { text: 'done' } };
const start = (over: Partial<EngineOptions> = {}) => startEngine({ scenario: answers, learning: {}, ...over });

interface Outcome {
  readonly n: number;
  readonly mean: number;
  readonly scored: number;
}
const outcomes = (t: TestEngine) =>
  t.db.db
    .prepare<[], Outcome>(
      `SELECT sample_size AS n, success_score_mean AS mean, success_score_count AS scored
      FROM pattern_outcomes ORDER BY fingerprint_id, primary_model`,
    )
    .all();
const verdicts = (t: TestEngine) =>
  t.events
    .filter((e) => e.type === 'eval.completed')
    .map((e) => ({ ...(e.payload as PayloadOf<'eval.completed'>), actor: e.actor, parent: e.parent_event_id }));
async function learnedTurn(t: TestEngine, text = 'fix the bug') {
  const session = await t.session({ initial_active_model: 'haiku' });
  const turn = await t.run(session, text);
  await t.event('eval.completed', (e) => e.turn_id === turn.id);
  return { session, id: turn.id };
}
type Made = Awaited<ReturnType<typeof learnedTurn>>;
const score = (t: TestEngine, { session, id }: Made, value: number, comment: string | null = null) =>
  scoreTurn(t.engine, session.id, id, { score: value, comment });
/** Scores, and waits until it is learned. */
async function taught(t: TestEngine, made: Made, value: number): Promise<void> {
  await score(t, made, value);
  await t.event('pattern.recorded', (e) => e.turn_id === made.id && e.payload.success_score === value);
}

describe('a person’s score', () => {
  // Promise 12.19: a person's score replaces the server's own, and can be changed.
  it('replaces the server’s own in the outcome, whose sample and count stay, and can be changed', async () => {
    const t = await start();
    const made = await learnedTurn(t);
    await learnedTurn(t);
    await taught(t, made, 0);
    expect(outcomes(t)).toEqual([{ n: 2, mean: 0.5, scored: 2 }]);
    await taught(t, made, 0.5);
    expect(outcomes(t)).toEqual([{ n: 2, mean: 0.75, scored: 2 }]);
    const [own, , first, second] = verdicts(t);
    const end = t.events.find((e) => e.type === 'turn.completed' && e.turn_id === made.id)!;
    expect([own, first, second]).toMatchObject([
      { rubric_id: 'turn-heuristic-v1', score: 1, actor: 'system' },
      { rubric_id: 'user-score-v1', score: 0, confidence: 1, actor: 'user', parent: end.id, subject_id: made.id },
      { rubric_id: 'user-score-v1', score: 0.5, signals: { source: 'user' } },
    ]);
  });

  // Promise 12.20: said twice is stored once, and no event holds a comment.
  it('said twice is stored once; another comment is kept and no event holds it', async () => {
    const t = await start();
    const made = await learnedTurn(t);
    const first = await score(t, made, 0, 'secretly wrong');
    expect(first).toMatchObject({ changed: true, score: 0, comment: 'secretly wrong' });
    expect(await score(t, made, 0, 'secretly wrong')).toEqual({ ...first, changed: false });
    expect(await score(t, made, 0)).toMatchObject({ changed: true, comment: null });
    expect(await t.engine.store.turns.view(made.session.id, made.id)).toMatchObject({
      user_score: { score: 0, comment: null },
    });
    expect(JSON.stringify(t.events)).not.toContain('secretly');
    await t.event('pattern.recorded', (e) => e.turn_id === made.id && e.payload.success_score === 0);
    expect(outcomes(t)[0]).toEqual({ n: 1, mean: 0, scored: 1 });
  });

  // Promise 12.21: a score before the loop came to the turn.
  it('that comes before the loop has read the turn counts instead of the verdict that follows', async () => {
    const first = await start();
    await first.loop!.close();
    const session = await first.session({ initial_active_model: 'haiku' });
    const made = { session, id: (await first.run(session, 'fix the bug')).id };
    await first.engine.journal.commit({
      writes: [{ kind: 'meta.set', key: 'learning_cursor', value: '' }],
      emit: [],
    });
    await score(first, made, 0.25);
    first.abandon();
    const t = await start({ folder: first.folder });
    await t.event('pattern.recorded', (e) => e.payload.success_score === 0.25);
    expect(verdicts(t)).toMatchObject([{ rubric_id: 'turn-heuristic-v1', score: 1 }]);
    expect(outcomes(t)).toEqual([{ n: 1, mean: 0.25, scored: 1 }]);
  });

  // Promise 12.21: after a restart and the session's end.
  it('survives a restart, comes to an ended session, and changes what the next start recommends by', async () => {
    const first = await start();
    const made = await learnedTurn(first);
    await endSession(first.engine, made.session.id);
    await first.event('eval.completed', (e) => e.payload.subject_kind === 'session');
    await score(first, made, 0);
    await first.close();
    const t = await start({ folder: first.folder });
    await learnedTurn(t);
    expect(outcomes(t)).toEqual([{ n: 2, mean: 0.5, scored: 2 }]);
    expect(await t.engine.store.turns.view(made.session.id, made.id)).toMatchObject({ user_score: { score: 0 } });
    expect(verdicts(first).filter((v) => v.subject_kind === 'session')).toMatchObject([{ score: 1 }]);
  });

  // Promise 12.21: once in the session's verdict.
  it('enters the verdict on its session once, in place of the server’s own', async () => {
    const t = await start();
    const session = await t.session();
    const ids = [(await t.run(session, 'one')).id, (await t.run(session, 'two')).id];
    for (const value of [1, 0, 0.5]) await scoreTurn(t.engine, session.id, ids[0]!, { score: value, comment: null });
    await endSession(t.engine, session.id);
    const whole = await t.event('eval.completed', (e) => e.payload.subject_kind === 'session');
    expect(whole.payload.signals).toMatchObject({ turn_count: 2, mean_turn_score: 0.75, min_turn_score: 0.5 });
    expect(whole.payload.score).toBeCloseTo(0.5 * 0.75 + 0.3 * 0.5 + 0.2, 12);
  });

  // Promise 12.22: workers' and failed turns.
  it('of a worker’s turn counts for the worker alone, and of a turn that failed for no outcome', async () => {
    const t = await start({
      config: { tool_confirmation: { per_tool: { delegate: 'auto' } } },
      scenario: scenario(
        planner({ tool_calls: [delegate('debug it')] }, { text: 'ok' }),
        worker('debug it', { text: 'half' }),
      ),
    });
    const session = await t.session();
    const { id } = await t.run(session, 'plan');
    await t.event('eval.completed', (e) => e.turn_id === id);
    const worked = t.events.find((e) => e.type === 'turn.completed' && e.session_id !== session.id)!;
    await scoreTurn(t.engine, worked.session_id, worked.turn_id!, { score: 0, comment: null });
    await t.event('pattern.recorded', (e) => e.payload.success_score === 0);
    expect(outcomes(t).map(({ mean }) => mean)).toEqual([0, 1]);
    expect(verdicts(t).filter((v) => v.rubric_id === 'user-score-v1')).toMatchObject([
      { actor: 'worker', signals: { source: 'user' } },
    ]);

    const broken = await start({
      scenario: { ...answers, fallback: { error: { error_class: 'invalid_request' } } },
    });
    const other = await broken.session();
    const failed = await broken.run(other, 'fix the bug');
    expect(failed.status).toBe('failed');
    await scoreTurn(broken.engine, other.id, failed.id, { score: 0, comment: null });
    expect(outcomes(broken)).toEqual([]);
  });

  // Promise 12.22: where the server judges nothing.
  it('counts where the server itself judges nothing', async () => {
    const t = await start({ config: { eval: { disabled: true } } });
    const session = await t.session();
    const { id } = await t.run(session, 'fix the bug');
    await taught(t, { session, id }, 0.5);
    expect(outcomes(t)).toEqual([{ n: 1, mean: 0.5, scored: 1 }]);
    expect(verdicts(t)).toHaveLength(1);
  });

  // Promise 12.19: the mean is of what stands.
  it('changed hundreds of times leaves the mean of what stands', async () => {
    const t = await start();
    const made = [await learnedTurn(t), await learnedTurn(t), await learnedTurn(t)];
    const values = (n: number) => ((n * 37) % 1009) / 1009;
    for (let n = 0; n < 300; n += 1) await score(t, made[n % 3]!, values(n));
    await t.event('pattern.recorded', (e) => e.turn_id === made[2]!.id && e.payload.success_score === values(299));
    const [row] = outcomes(t);
    expect(row).toMatchObject({ n: 3, scored: 3 });
    expect(row!.mean).toBeCloseTo((values(297) + values(298) + values(299)) / 3, 12);
  });

  // Promise 12.23: open and unknown turns.
  it('is refused while the turn runs and where there is none; one that was cancelled takes it', async () => {
    const t = await start({ scenario: { ...answers, fallback: { text: 'slow', delay_ms: 60_000 } } });
    const session = await t.session();
    const id = await t.submit(session, 'fix the bug');
    await expect(scoreTurn(t.engine, session.id, id, { score: 1, comment: null })).rejects.toMatchObject({
      code: 'turn_in_flight',
    });
    expect(verdicts(t)).toEqual([]);
    const other = await t.session();
    for (const [where, what] of [
      [other.id, id],
      [session.id, t.engine.ids.turn()],
      ['sess_01JZZZZZZZZZZZZZZZZZZZZZZZ', id],
    ] as const)
      await expect(scoreTurn(t.engine, where, what, { score: 1, comment: null })).rejects.toMatchObject({
        code: 'not_found',
      });
    await cancelTurn(t.engine, session.id, id, null);
    await t.ended(id);
    expect(await scoreTurn(t.engine, session.id, id, { score: 1, comment: null })).toMatchObject({ changed: true });
  });

  // Promise 12.23: purged meanwhile.
  it('given while its session is purged is not found or gone with it, and the loop goes on', async () => {
    const t = await start();
    const kept = await learnedTurn(t);
    for (let n = 0; n < 20; n += 1) {
      const made = await learnedTurn(t);
      const [, given] = await Promise.allSettled([
        n % 2 === 0 ? purgeSession(t.engine, made.session.id) : endSession(t.engine, made.session.id),
        score(t, made, 0),
        n % 2 === 0
          ? null
          : purgeSession(t.engine, made.session.id).catch(() => purgeSession(t.engine, made.session.id)),
      ]);
      if (given!.status === 'rejected') expect(given!.reason).toMatchObject({ code: 'not_found' });
    }
    await learnedTurn(t);
    await taught(t, kept, 0.5);
    expect(outcomes(t)).toEqual([{ n: 2, mean: 0.75, scored: 2 }]);
  });
});
