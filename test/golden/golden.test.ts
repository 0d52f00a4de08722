// Byte-exact event logs of the normative sequences (02 §10). Clock, ids and delays are injected; nothing here is timed.
// A log is written again with UPDATE_GOLDEN=1; read the difference before committing it.
import fs from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { cancelTurn } from '#core/engine/control-turn.ts';
import { sha256Hex } from '#protocol/text/canonical-json.ts';
import { type ConfigOver, startEngine, type TestEngine } from '../support/engine.ts';
import { type ManualClock, manualClock } from '../support/manual-clock.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { until } from '../support/until.ts';

interface Golden {
  readonly name: string;
  readonly scenario: unknown;
  readonly files?: Readonly<Record<string, string>>;
  readonly config?: ConfigOver;
  /** Moves the clock and acts until the turn has ended. */
  drive?(t: TestEngine, clock: ManualClock, session: string, turnId: string): Promise<void>;
}

const usage = { input_tokens: 1000, output_tokens: 100 };
/** Scripted delays are shorter than this, deadlines longer. */
const SOON = 10_000;

/** Lets real work (files, transactions) go on until this many delays are waiting. */
async function delays(clock: ManualClock, count: number): Promise<void> {
  await until(() => clock.pending(SOON) >= count);
}
const endOfWorker = (t: TestEngine, n: number) => {
  let seen = 0;
  return t.event('tool.completed', (e) => e.actor !== 'worker' && ++seen === n);
};

const GOLDEN: Golden[] = [
  { name: 'plain-turn', scenario: scenario(planner({ text: 'hello there', usage })) },
  {
    name: 'tool-cycle',
    files: { 'a.txt': 'one\ntwo\n' },
    scenario: scenario(
      planner(
        { text: 'looking', tool_calls: [call('read_file', { path: 'a.txt' })], usage },
        { text: 'two lines', usage },
      ),
    ),
  },
  {
    name: 'one-delegation',
    scenario: scenario(
      planner({ tool_calls: [delegate('say hi', { max_tokens: 500 })], usage }, { text: 'it said hi', usage }),
      worker('say hi', { text: 'hi', usage }),
    ),
  },
  {
    name: 'fan-out-of-four',
    scenario: scenario(
      planner(
        { tool_calls: ['a', 'b', 'c', 'd'].map((x) => delegate(`job-${x}`)), usage },
        { text: 'all four', usage },
      ),
      worker('job-a', { text: 'A', usage, delay_ms: 400 }),
      worker('job-b', { text: 'B', usage, delay_ms: 300 }),
      worker('job-c', { text: 'C', usage, delay_ms: 200 }),
      worker('job-d', { text: 'D', usage, delay_ms: 100 }),
    ),
    async drive(t, clock) {
      await delays(clock, 4);
      for (const n of [1, 2, 3, 4]) {
        clock.next(SOON);
        await endOfWorker(t, n);
      }
    },
  },
  {
    name: 'cancel-cascade',
    scenario: scenario(
      planner({ tool_calls: [delegate('job-a'), delegate('job-b')], usage }),
      worker('job-a', { hang: true }),
      worker('job-b', { text: 'part of an answer', chunk_chars: 7, chunk_delay_ms: 5000, usage }),
    ),
    async drive(t, clock, session, turnId) {
      await delays(clock, 1);
      let started = 0;
      await t.event('llm.call_started', (e) => e.actor === 'worker' && ++started === 2);
      await until(() => t.deltas.some((d) => d.delta.type === 'text.delta'));
      await cancelTurn(t.engine, session, turnId, 'enough');
    },
  },
  {
    name: 'worker-only-cancel',
    scenario: scenario(
      planner({ tool_calls: [delegate('stuck')], usage }, { text: 'without it', usage }),
      worker('stuck', { hang: true }),
    ),
    async drive(t) {
      const begun = await t.event('llm.call_started', (e) => e.actor === 'worker');
      await cancelTurn(t.engine, begun.session_id, begun.turn_id!, null);
    },
  },
  {
    name: 'worker-timeout',
    scenario: scenario(
      planner({ tool_calls: [delegate('slow', { timeout_seconds: 2 })], usage }, { text: 'too slow', usage }),
      worker('slow', { text: 'one look', tool_calls: [call('list_files', {})], usage }, { hang: true }),
    ),
    async drive(t, clock) {
      await t.event(
        'llm.call_started',
        (e) => e.actor === 'worker' && (e.payload as { call_index: number }).call_index === 2,
      );
      clock.advance(2000);
    },
  },
  {
    name: 'schema-repair',
    scenario: scenario(
      planner(
        {
          tool_calls: [
            delegate('count', {
              output_schema: { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] },
            }),
          ],
          usage,
        },
        { text: 'one', usage },
      ),
      [
        { match: { role: 'worker', turn: 1 }, respond: { text: 'hello', usage } },
        { match: { role: 'worker', turn: 2 }, respond: { text: '{"n": 1}', usage } },
      ],
    ),
  },
  {
    name: 'insufficient-context',
    scenario: scenario(
      planner({ tool_calls: [delegate('migrate')], usage }, { text: 'I need the schema first', usage }),
      worker('migrate', {
        tool_calls: [
          call('list_files', {}),
          call('_request_context', {
            summary: 'the schema is missing',
            missing: [{ type: 'file', ref: 'schema.sql', hint: 'names of the columns' }],
          }),
        ],
        usage,
      }),
    ),
  },
  {
    name: 'recursion-depth-two',
    config: { delegation: { delegate_depth: 2 } },
    scenario: scenario(
      planner({ tool_calls: [delegate('outer', { tier: 'balanced' })], usage }, { text: 'all done', usage }),
      [
        {
          match: { role: 'worker', model: '*sonnet*', call: 1 },
          respond: { tool_calls: [delegate('inner')], usage },
        },
        { match: { role: 'worker', model: '*sonnet*', call: 2 }, respond: { text: 'outer done', usage } },
      ],
      worker('inner', { text: 'inner done', usage }),
    ),
  },
];

// Promise 02.12: Scripted runs give the normative sequences byte for byte.
// Promise 02.12: repair, insufficient context and a worker's worker leave exactly the recorded events.
// Promise 02.17: Each session is created once and ended once at most, each turn ends once.
it.each(GOLDEN)('the event log of $name is byte for byte the recorded one', async (golden) => {
  const clock = manualClock();
  const t = await startEngine({
    scenario: golden.scenario,
    clock,
    still: true,
    ...(golden.files ? { files: golden.files } : {}),
    ...(golden.config ? { config: golden.config } : {}),
  });
  const session = await t.session();
  clock.advance(10);
  const turnId = await t.submit(session, `the job of ${golden.name}`);
  await golden.drive?.(t, clock, session.id, turnId);
  await t.ended(turnId);

  const stored = await t.engine.store.events.list({
    session_id: session.id,
    include_workers: true,
    types: null,
    after: null,
    until: null,
    limit: 10_000,
  });
  expect(stored.rows).toEqual(t.events);
  const log = stored.rows
    .map((event) => JSON.stringify(event))
    .join('\n')
    .replaceAll(t.workspace, '/workspace')
    .replaceAll(sha256Hex(t.workspace), sha256Hex('/workspace'));
  const file = path.join(import.meta.dirname, `${golden.name}.events.jsonl`);
  if (process.env.UPDATE_GOLDEN) fs.writeFileSync(file, `${log}\n`);
  expect(`${log}\n`).toBe(fs.readFileSync(file, 'utf8'));
});
