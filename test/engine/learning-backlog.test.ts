// Turns that wait to be learned: together, once, whatever becomes of them before it is their turn (12 §12.3).
import { expect, it, vi } from 'vitest';
import { scoreTurn } from '#core/engine/control-turn.ts';
import { purgeSession } from '#core/engine/fork-session.ts';
import { endSession } from '#core/engine/manage-session.ts';
import { GATHER_MS } from '#core/learning/learning-loop.ts';
import type { Logger } from '#core/ports/logger.ts';
import { type Clock, systemClock } from '#protocol/clock.ts';
import type { PayloadOf } from '#protocol/event.ts';
import { type EngineOptions, startEngine, type TestEngine } from '../support/engine.ts';
import { until } from '../support/until.ts';

const answers = { version: 1, strict: false, rules: [], fallback: { text: 'done' } };

/** Learns only when it is let. */
async function start(over: Partial<EngineOptions> = {}) {
  let held = true;
  const waiting: (() => void)[] = [];
  const clock: Clock = {
    ...systemClock,
    after(ms, fn) {
      if (ms !== GATHER_MS || !held) return systemClock.after(ms, fn);
      waiting.push(fn);
      return { cancel: () => {} };
    },
  };
  const told: { readonly level: string; readonly about: unknown; readonly text: string }[] = [];
  const at = (level: string) => (about: unknown, text: string) => void told.push({ level, about, text });
  const log = { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') } as unknown as Logger;
  const t = await startEngine({ scenario: answers, learning: {}, clock, random: Math.random, log, ...over });
  return {
    ...t,
    /** Warnings and errors. */
    troubles: () => told.filter(({ level }) => level === 'warn' || level === 'error'),
    letLearn() {
      held = false;
      for (const fn of waiting.splice(0)) fn();
    },
  };
}

const outcomes = (t: TestEngine) =>
  t.db.db
    .prepare<[], object>(
      `SELECT sample_size AS n, success_score_count AS scored, success_score_mean AS mean FROM pattern_outcomes
      ORDER BY fingerprint_id, primary_model`,
    )
    .all();
const count = (t: TestEngine, table: string) =>
  t.db.db.prepare<[], number>(`SELECT count(*) FROM ${table}`).pluck().get();
async function turn(t: TestEngine, text = 'fix the bug') {
  const session = await t.session();
  return { session, id: (await t.run(session, text)).id };
}
const recorded = (t: TestEngine, id: string) => t.event('pattern.recorded', (e) => e.turn_id === id);

it('turns that end together are learned together, by what was seen of them', async () => {
  const t = await start();
  const { store, journal } = t.engine;
  const asked = vi.spyOn(store.patterns, 'turns');
  const others = [
    vi.spyOn(store.events, 'listOfTurn'),
    vi.spyOn(store.events, 'list'),
    vi.spyOn(store.messages, 'get'),
  ];
  const made = [await turn(t), await turn(t), await turn(t, 'write docs')];
  for (const one of others) one.mockClear();
  const committed = vi.spyOn(journal, 'commit');
  t.letLearn();
  await recorded(t, made[2]!.id);
  expect(asked.mock.calls).toEqual([[made.map(({ id }) => id)]]);
  expect(others.map((one) => one.mock.calls.length)).toEqual([0, 0, 0]);
  // One of each turn, which may fail alone, and the loop's place.
  expect(committed).toHaveBeenCalledTimes(4);
  expect(outcomes(t)).toEqual([
    { n: 2, scored: 2, mean: 1 },
    { n: 1, scored: 1, mean: 1 },
  ]);
});

it('a refusal counts the same, seen or read back', async () => {
  const scenario = { ...answers, fallback: { text: 'I’m unable to do that.' } };
  const live = await start({ scenario });
  const { id } = await turn(live);
  live.abandon();
  const t = await start({ scenario, folder: live.folder });
  const same = await turn(t);
  t.letLearn();
  await recorded(t, same.id);
  const verdicts = t.events.filter((e) => e.type === 'eval.completed');
  expect(verdicts.map(({ turn_id }) => turn_id)).toEqual([id, same.id]);
  for (const { payload } of verdicts)
    expect(payload).toMatchObject({ score: 0.5, signals: { flags_negative: ['assistant_refusal_detected'] } });
});

// Promise 12.8: turns that wait at a kill are learned by the next process, once.
it('those that wait when the process dies are learned by the next one, once', async () => {
  const killed = await start();
  const made = [await turn(killed), await turn(killed)];
  expect(count(killed, 'pattern_turns')).toBe(0);
  killed.abandon();
  const t = await start({ folder: killed.folder });
  await recorded(t, made[1]!.id);
  t.abandon();
  const last = await start({ folder: killed.folder });
  const again = await turn(last);
  last.letLearn();
  await recorded(last, again.id);
  expect(outcomes(last)).toEqual([{ n: 3, scored: 3, mean: 1 }]);
  expect([t, last].map(({ events }) => events.filter((e) => e.type === 'eval.completed').length)).toEqual([2, 1]);
});

// Promise 12.8: turns that wait at a stop are learned before it has ended.
it('those that wait when the server stops are learned before it has stopped', async () => {
  const t = await start();
  const made = [await turn(t), await turn(t)];
  await endSession(t.engine, made[0]!.session.id);
  await t.loop!.close();
  expect(outcomes(t)).toEqual([{ n: 2, scored: 2, mean: 1 }]);
  const verdicts = t.events
    .filter((e) => e.type === 'eval.completed')
    .map((e) => (e.payload as PayloadOf<'eval.completed'>).subject_id);
  expect(verdicts).toEqual([made[0]!.id, made[1]!.id, made[0]!.session.id]);
});

// Promise 12.17: one deleted while it waits leaves nothing, the others are learned.
it('one that is deleted while it waits leaves nothing, and the others are learned', async () => {
  const t = await start();
  const [gone, kept, later] = [await turn(t), await turn(t), await turn(t)];
  await purgeSession(t.engine, gone.session.id);
  // Deleted between the look at it and the writing: its lesson fails, by itself.
  const { turns } = t.engine.store.patterns;
  let purged: Promise<unknown> | null = null;
  vi.spyOn(t.engine.store.patterns, 'turns').mockImplementation(async (ids) => {
    const found = await turns(ids);
    purged ??= purgeSession(t.engine, later.session.id);
    await purged;
    return found;
  });
  t.letLearn();
  await recorded(t, kept.id);
  await t.loop!.close();
  expect(outcomes(t)).toEqual([{ n: 1, scored: 1, mean: 1 }]);
  expect([count(t, 'pattern_turns'), count(t, 'pattern_fingerprints')]).toEqual([1, 1]);
  expect(t.events.filter((e) => e.type === 'eval.completed').map((e) => e.turn_id)).toEqual([kept.id]);
  expect(t.troubles()).toEqual([]);
});

it('one that cannot be learned is passed over alone, and said', async () => {
  const t = await start();
  const [before, broken, after] = [await turn(t), await turn(t), await turn(t)];
  t.db.db.prepare("UPDATE turns SET fingerprint_json = '{' WHERE id = ?").run(broken.id);
  t.letLearn();
  await recorded(t, after.id);
  await t.loop!.close();
  expect(outcomes(t)).toEqual([{ n: 2, scored: 2, mean: 1 }]);
  expect(t.events.filter((e) => e.type === 'pattern.recorded').map((e) => e.turn_id)).toEqual([before.id, after.id]);
  expect(t.troubles()).toMatchObject([
    { level: 'warn', text: 'nothing was learned of an event', about: { turn_id: broken.id } },
  ]);
});

it('events that are pruned while a turn waits take nothing of what is learned', async () => {
  const t = await start();
  const made = await turn(t);
  await endSession(t.engine, made.session.id);
  const { rows_deleted } = await t.engine.journal.prune(Date.now() + 60_000, false);
  expect(rows_deleted).toBeGreaterThan(0);
  t.letLearn();
  await recorded(t, made.id);
  expect(outcomes(t)).toEqual([{ n: 1, scored: 1, mean: 1 }]);
});

// Promise 12.21: a score while the turn waits among others.
it('a person’s score that comes while the turn waits counts in place of the server’s own, once', async () => {
  const t = await start();
  const made = await turn(t);
  await scoreTurn(t.engine, made.session.id, made.id, { score: 0.25, comment: null });
  expect(count(t, 'pattern_turns')).toBe(0);
  t.letLearn();
  await t.event('pattern.recorded', (e) => e.payload.success_score === 0.25);
  expect(outcomes(t)).toEqual([{ n: 1, scored: 1, mean: 0.25 }]);
});

// Promise 12.25: a node whose backlog overflowed goes on learning.
it('a node of a cluster whose backlog overflowed goes on learning, and reports it once', async () => {
  const t = await start({ learning: { alone: false } });
  const before = await turn(t);
  const crowd = Array.from({ length: 3000 }, (_, i) => ({
    kind: 'event' as const,
    event: { ...t.events.at(-1)!, id: `evt_${i}`, type: 'session.ended', session_id: 'ses_gone', turn_id: null },
    payload_json: '{}',
  }));
  t.engine.bus.publish(crowd as never);
  t.letLearn();
  await recorded(t, before.id);
  await until(() => t.troubles().length > 0);
  const after = await turn(t);
  await recorded(t, after.id);
  await t.loop!.close();
  expect(outcomes(t)).toEqual([{ n: 2, scored: 2, mean: 1 }]);
  expect(t.troubles()).toMatchObject([
    { level: 'warn', text: expect.stringContaining('some of them are not learned') },
  ]);
});
