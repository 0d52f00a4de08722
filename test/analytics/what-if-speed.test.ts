// 100,000 calls priced again on the reports' thread, while this one goes on (21.4). A short form in `npm test`; needs the built package.
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import type { WhatIfQuery } from '#core/ports/report-reader.ts';
import { REPORTED_TYPES } from '#store/schema/words.ts';
import { createThreadedAnalytics } from '#store/sqlite/report/threaded-analytics.ts';
import { recordingLogger } from '../store/suite/world.ts';
import { priceTableA } from '../support/prices.ts';
import { engineRegistry } from './registry.ts';
import { HAIKU, NOW, OPUS, openWorld, SONNET, type SqliteWorld } from './world.ts';

const PROGRAM = path.resolve(import.meta.dirname, '../../dist/store/sqlite/report/analytics-thread.cjs');
const CALLS = process.env.METIS_BENCH === undefined ? 10_000 : 100_000;
/** Of a turn, as an agent's usually has. */
const CALLS_OF_TURN = 3;
/** Turns of this thread's event loop while the report is made; one that waited for it would have a few. */
const LEAST_TURNS = 100;
const SPAN_MS = 30 * 86_400_000;

/** Turns of many sizes, each with a decision by a rule on the size and a pattern, as the engine stores it. */
function fill({ db: { db } }: SqliteWorld): number {
  const turns = Math.floor(CALLS / CALLS_OF_TURN);
  const payload = `'{"winner_index":2,"elapsed_ms":0.1,"chain":[{"verdict":"not_applicable","reason":"no @model in message"},'
    || '{"verdict":"not_applicable","reason":"no sticky model set"},{"verdict":"chose","candidate_model":"${OPUS}","rule_name":"large",'
    || '"reason":"matched rule ''large''","tried_rules":[]}],"facts":{"estimated_input_tokens":' || (100 + i * 7 % 9000) || ',"unmatched":["0123abcd"]}}'`;
  const turn = `WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ${turns - 1})`;
  db.pragma('synchronous = OFF');
  db.exec(`${turn} INSERT INTO ledger_sessions (session_key, session_id, root_session_id, parent_key, is_worker, workspace_hash,
      delegation_tier, worker_name, delegated_by_model, door, caller)
    SELECT i + 1, printf('sess_%026d', i), printf('sess_%026d', i), printf('sess_%026d', i), 0, printf('w%d', i % 20), '', '', '', 'api', ''
    FROM n WHERE i < 1000`);
  db.exec(`${turn} INSERT INTO event_sessions SELECT i + 1, printf('sess_%026d', i) FROM n WHERE i < 1000`);
  db.exec(`${turn} INSERT INTO event_rows (id, timestamp_ms, session_key, turn_id, type, actor, sensitivity, payload_json)
    SELECT printf('%026d', i), ${NOW - SPAN_MS} + i * ${Math.floor(SPAN_MS / turns)}, i % 1000 + 1, printf('%026d', i),
      ${REPORTED_TYPES['route.decided']}, 2, 1, ${payload} FROM n`);
  db.exec(`${turn}, c(j) AS (SELECT 0 UNION ALL SELECT j + 1 FROM c WHERE j < ${CALLS_OF_TURN - 1})
    INSERT INTO ledger_calls (event_id, ts_ms, session_key, turn_id, model, provider, pricing_version, purpose,
      input_tokens, cached_input_tokens, cache_creation_input_tokens, cache_creation_1h_input_tokens, output_tokens,
      reasoning_tokens, usage_estimated, priced, cancelled, latency_ms, cost_pusd)
    SELECT printf('%026d', i * ${CALLS_OF_TURN} + j), ${NOW - SPAN_MS} + i * ${Math.floor(SPAN_MS / turns)} + j, i % 1000 + 1, printf('%026d', i),
      '${OPUS}', 'anthropic', 'A', 'turn', 1000 + i % 9000, i * 7 % 200000, i % 3000, i % 700, 100 + i % 900, 0, 0, 1, 0, 100, 1000000
    FROM n, c`);
  return turns * CALLS_OF_TURN;
}

/** Turns of the event loop while `work` is under way, and the longest of them in milliseconds. */
async function watchLoop(work: Promise<unknown>): Promise<{ readonly turns: number; readonly longest: number }> {
  let running = true;
  const done = work.finally(() => {
    running = false;
  });
  let turns = 0;
  let longest = 0;
  while (running) {
    const start = performance.now();
    await new Promise((resolve) => setImmediate(resolve));
    longest = Math.max(longest, performance.now() - start);
    turns += 1;
  }
  await done;
  return { turns, longest };
}

// Promise 21.4 (npm test -- reports): 100,000 calls are priced again on a thread of their own, and the one that streams goes on; the benchmark has the time.
it(`prices ${CALLS} calls again, and nothing here waits for it`, async () => {
  const world = openWorld();
  const calls = fill(world);
  const registry = engineRegistry();
  const reports = createThreadedAnalytics(PROGRAM, { path: world.db.path, freeProviders: [] }, recordingLogger([]));
  onTestFinished(() => reports.close());
  const routing = `
global_default: opus
rules:
  - { name: small, when: { estimated_input_tokens_lt: 4000 }, use: haiku }
  - { name: large, when: { estimated_input_tokens_gt: 6000 }, use: sonnet }
`;
  const query: WhatIfQuery = {
    window: { from: 0, to: NOW },
    workspace_hash: null,
    group_by: 'day',
    routing: { kind: 'global', text: routing },
    tiers: null,
    models: [],
    catalog: {
      models: registry.models,
      adapters: registry.adapters,
      usable: new Set(['scripted']),
      gateway: new Set(),
      default_model: null,
      allow_costlier_fallback: true,
    },
  };
  const prices = priceTableA();
  // Starts the thread.
  await reports.whatIf({ ...query, window: { from: 0, to: 1 } }, prices);
  const start = performance.now();
  const answer = await reports.whatIf(query, prices);
  const took = performance.now() - start;
  const { turns, longest } = await watchLoop(reports.whatIf(query, prices));
  const figures = [took, longest].map((ms) => `${ms.toFixed(0)} ms`);
  console.log(`${calls} calls of ${calls / CALLS_OF_TURN} turns: ${figures.join(', ')} (time, longest pause)`);
  const { same, changed, undecided } = answer.decisions;
  expect([same + changed, undecided]).toEqual([calls / CALLS_OF_TURN, 0]);
  expect(answer.changed.map(({ to_model }) => to_model).sort()).toEqual([HAIKU, SONNET]);
  expect(turns).toBeGreaterThan(LEAST_TURNS);
}, 120_000);
