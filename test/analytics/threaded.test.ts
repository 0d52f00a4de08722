// Reports on their thread: the same answers as on this one, while this one goes on (07 §9.4). Needs the built package.
import fs from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { parseCostQuery } from '#core/policy/analytics/query.ts';
import { createThreadedAnalytics } from '#store/sqlite/report/threaded-analytics.ts';
import { type LogLine, recordingLogger } from '../store/suite/world.ts';
import { priceTableA } from '../support/prices.ts';
import { HAIKU, NOW, openWorld, SONNET } from './world.ts';

const PROGRAM = path.resolve(import.meta.dirname, '../../dist/store/sqlite/report/analytics-thread.cjs');
const A = priceTableA();
const TRACE = { window: { from: 0, to: NOW }, filter: { session: null, model: null, provider: null } };
const EVERYTHING = { session: null, parent_session: null, model: null, provider: null, workspace_hash: null };
const SAVINGS = {
  window: TRACE.window,
  filter: {
    ...EVERYTHING,
    delegation_tier: null,
    worker_name: null,
    door: null,
    caller: null,
    owner: null,
    include_workers: null,
  },
  baseline: SONNET,
};

function costQuery(text: string) {
  const parsed = parseCostQuery({ from: 'all', ...Object.fromEntries(new URLSearchParams(text)) }, NOW);
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.error));
  return parsed.value.query;
}

function onThread(file: string) {
  const logged: LogLine[] = [];
  const reports = createThreadedAnalytics(PROGRAM, { path: file, freeProviders: [] }, recordingLogger(logged));
  onTestFinished(() => reports.close());
  return { reports, logged };
}

async function filled(sessions: number) {
  const world = openWorld();
  for (let i = 0; i < sessions; i++) {
    const session = await world.planner();
    const tokens = { input_tokens: 1000 + i, output_tokens: 10 };
    const model = i % 2 === 0 ? HAIKU : SONNET;
    await world.record([{ session, at: NOW - 3_600_000, model, prices: A, tokens, latency_ms: 5 }]);
  }
  return world;
}

test('answers every report as it is answered here, amounts and all', async () => {
  const world = await filled(20);
  const { reports } = onThread(world.db.path);
  const query = costQuery('group_by=model');
  expect(await reports.cost(query, null)).toEqual(await world.analytics.cost(query, null));
  expect(await reports.cost(query, A)).toEqual(await world.analytics.cost(query, A));
  expect(await reports.savings(SAVINGS, A)).toEqual(await world.analytics.savings(SAVINGS, A));
  expect(await reports.routing(TRACE)).toEqual(await world.analytics.routing(TRACE));
  expect(await reports.reliability(TRACE)).toEqual(await world.analytics.reliability(TRACE));
});

// Promise 07.17: Reports on a thread of their own have the same answers, and the asking thread goes on.
test('what was committed before the question is in the answer, and the asking thread goes on meanwhile', async () => {
  const world = await filled(300);
  const { reports } = onThread(world.db.path);
  const query = costQuery('group_by=session');
  await reports.cost(query, null);
  const session = await world.planner('b'.repeat(64));
  await world.record([{ session, at: NOW - 1000, model: HAIKU, prices: A, tokens: { input_tokens: 7 } }]);
  let turnsOfTheLoop = 0;
  let pending = true;
  const spin = () => {
    turnsOfTheLoop += 1;
    if (pending) setImmediate(spin);
  };
  setImmediate(spin);
  const { totals } = await reports.cost(query, null);
  pending = false;
  expect(totals.call_count).toBe(301);
  expect(turnsOfTheLoop).toBeGreaterThan(10);
});

// Promise 07.17: The thread of the reports gives way to those of the streams (Linux).
test.skipIf(process.platform !== 'linux')(
  'its thread gives way to the others, which keep their own priority',
  async () => {
    const world = await filled(1);
    const { reports } = onThread(world.db.path);
    const before = niceOfThreads();
    await reports.reliability(TRACE);
    const added = [...niceOfThreads()].filter(([thread]) => !before.has(thread));
    expect(added.filter(([, nice]) => nice === 10)).toHaveLength(1);
    for (const [thread, nice] of niceOfThreads()) if (before.has(thread)) expect(nice).toBe(before.get(thread));
  },
);

function niceOfThreads(): Map<string, number> {
  const NICE = 16;
  const threads = fs.readdirSync('/proc/self/task').map((thread): [string, number] => {
    const stat = fs.readFileSync(`/proc/self/task/${thread}/stat`, 'utf8');
    return [thread, Number(stat.slice(stat.lastIndexOf(') ') + 2).split(' ')[NICE])];
  });
  return new Map(threads);
}

test('a report that fails rejects with its reason, the next one is answered', async () => {
  const world = await filled(1);
  const { reports } = onThread(world.db.path);
  for (const table of ['rollup_session_hour', 'rollup_parent_day', 'rollup_day', 'ledger_calls'])
    world.db.db.exec(`UPDATE ${table} SET cost_pusd = 9223372036854775807`);
  const session = await world.planner('b'.repeat(64));
  await world.record([{ session, at: NOW - 1000, model: HAIKU, prices: A, tokens: { input_tokens: 7 } }]);
  const all = costQuery('group_by=none');
  await expect(world.analytics.cost(all, null)).rejects.toThrow('integer overflow');
  await expect(reports.cost(all, null)).rejects.toThrow('integer overflow');
  expect(await reports.reliability(TRACE)).toHaveLength(1);
});

test('a thread that cannot start rejects what was asked and says so; closing is final for what still waits', async () => {
  const world = await filled(1);
  const { reports, logged } = onThread(path.join(world.folder, 'missing.db'));
  await expect(reports.routing(TRACE)).rejects.toThrow('thread of the reports');
  expect(logged.map(({ level, message }) => [level, message])).toEqual([['error', 'the thread of the reports failed']]);
  const { reports: good } = onThread(world.db.path);
  const waiting = expect(good.routing(TRACE)).rejects.toThrow('has ended');
  await good.close();
  await waiting;
});
