// However a worker ends, its planner reads a result, finishes its turn, and takes the next one (04 §5.3, §7).
import { expect, it } from 'vitest';
import { cancelTurn } from '#core/engine/control-turn.ts';
import type { ToolResultBlock } from '#protocol/message.ts';
import { type EngineOptions, startEngine, type TestEngine } from '../support/engine.ts';
import { type ManualClock, manualClock } from '../support/manual-clock.ts';
import { call, delegate, scenario } from '../support/scenario.ts';
import { textOf } from '../support/stored.ts';

interface Misbehaviour {
  readonly ends: string;
  /** What its model answers, call by call and turn by turn. */
  readonly worker: readonly unknown[];
  readonly input?: Readonly<Record<string, unknown>>;
  readonly config?: EngineOptions['config'];
  readonly files?: Readonly<Record<string, string>>;
  /** What happens to it while it runs. */
  meddle?(t: TestEngine, clock: ManualClock): Promise<void>;
  /** Null = the delegation succeeds. */
  readonly mode: string | null;
  /** What the planner's model reads. */
  readonly reads: RegExp;
}

const SCHEMA = { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] };
const always = (respond: object) => [{ match: { role: 'worker' }, times: 'inf', respond }];
const first = (respond: object) => [{ match: { role: 'worker', call: 1 }, respond }];
/** The worker's model call that hangs has begun. */
const hanging = (t: TestEngine) => t.event('llm.call_started', (e) => e.actor === 'worker');

const WAYS: readonly Misbehaviour[] = [
  { ends: 'with an empty answer', worker: always({ text: '' }), mode: null, reads: /^$/ },
  {
    ends: 'at its own output limit',
    worker: always({ text: 'cut', stop_reason: 'max_tokens' }),
    mode: 'max_tokens_exceeded',
    reads: /"output":"cut"/,
  },
  {
    ends: 'with its tokens used up before it is done',
    input: { max_tokens: 10 },
    worker: always({
      text: 'so far',
      tool_calls: [call('list_files', {})],
      usage: { input_tokens: 5, output_tokens: 10 },
    }),
    mode: 'max_tokens_exceeded',
    reads: /"output":"so far"/,
  },
  {
    ends: 'by asking for more context',
    worker: always({
      tool_calls: [call('_request_context', { summary: 'more', missing: [{ type: 'other', ref: 'a', hint: 'b' }] })],
    }),
    mode: 'insufficient_context',
    reads: /"summary":"more"/,
  },
  {
    ends: 'at a stop sequence',
    worker: always({ text: 'half', stop_reason: 'stop_sequence' }),
    mode: 'worker_error',
    reads: /^\{"error":"worker_error: /,
  },
  {
    ends: 'in a loop of tool calls',
    worker: always({ tool_calls: [call('list_files', {})] }),
    mode: 'worker_error',
    reads: /stopped after 25 LLM calls/,
  },
  {
    ends: 'on calls of tools that it was not given',
    worker: [
      ...first({
        tool_calls: [call('delegate', { tier: 'deep', task: 'x' }), call('write_file', { path: 'a', content: 'b' })],
      }),
      ...always({ text: 'could not' }),
    ],
    input: { allowed_tools: ['read_file'] },
    mode: null,
    reads: /^could not$/,
  },
  {
    ends: 'with a refused provider call',
    worker: always({ error: { error_class: 'invalid_request', status: 400 } }),
    mode: 'worker_error',
    reads: /^\{"error":"worker_error: /,
  },
  {
    ends: 'with an answer that breaks off',
    worker: always({ text: 'half an answer', chunk_chars: 4, error: { error_class: 'other', after_chunks: 2 } }),
    mode: 'worker_error',
    reads: /"output":"half an ?"/,
  },
  {
    ends: 'where no model may serve it',
    files: { 'a.gif': 'GIF89a\u0001\0\u0001\0\0\0\0;', '.metis/routing.yaml': 'default: gpt' },
    config: { routing: { global_default_model: 'haiku' } },
    input: { context: { mode: 'explicit', include: [{ type: 'file', path: 'a.gif' }] } },
    worker: always({ text: 'never asked' }),
    mode: 'worker_error',
    reads: /worker routing failed: .*no_vision_support/,
  },
  {
    ends: 'without the JSON it was asked for',
    input: { output_schema: SCHEMA },
    config: { delegation: { schema_repair_attempts: 1 } },
    worker: always({ text: 'no JSON' }),
    mode: 'output_schema_validation_failed',
    reads: /"output":"no JSON"/,
  },
  {
    ends: 'at its money limit',
    input: { max_cost_usd: '0.000001' },
    worker: always({ text: 'dear' }),
    mode: 'budget_exceeded',
    reads: /^\{"error":"budget_exceeded: delegation limit, /,
  },
  {
    ends: 'cancelled by a person',
    worker: always({ text: 'I was about to', hang: true }),
    async meddle(t) {
      const begun = await hanging(t);
      await cancelTurn(t.engine, begun.session_id, begun.turn_id!, null);
    },
    mode: 'cancelled_by_user',
    reads: /^\{"error":"cancelled_by_user/,
  },
  {
    ends: 'at its deadline',
    input: { timeout_seconds: 3 },
    worker: always({ hang: true }),
    async meddle(t, clock) {
      await hanging(t);
      clock.advance(3000);
    },
    mode: 'timeout',
    reads: /^\{"error":"timeout: worker exceeded 3s"/,
  },
];

// Promise 04.10: however a worker ends, its planner reads it, finishes, and takes the next turn.
it.each(WAYS)('a worker that ends $ends leaves its planner in order', async (way) => {
  const clock = manualClock();
  const t = await startEngine({
    clock,
    ...(way.config ? { config: way.config } : {}),
    ...(way.files ? { files: way.files } : {}),
    scenario: scenario(
      [
        {
          match: { role: 'planner', turn: 1, call: 1 },
          respond: { tool_calls: [delegate('the job', way.input ?? {}), call('list_files', {})] },
        },
        { match: { role: 'planner', turn: 1, call: 2 }, respond: { text: 'then without it' } },
        { match: { role: 'planner', turn: 2 }, respond: { text: 'as ever' } },
      ],
      way.worker,
    ),
  });
  const session = await t.session();
  const turnId = await t.submit(session, 'go');
  await way.meddle?.(t, clock);
  expect(await t.ended(turnId)).toMatchObject({ status: 'completed', output: 'then without it' });

  const [delegation] = (await t.engine.store.delegations.list(session.id, { recursive: true, after: null, limit: 5 }))
    .rows;
  expect(delegation).toMatchObject({ status: way.mode === null ? 'completed' : 'failed', failure_mode: way.mode });
  expect(await t.engine.store.sessions.view(delegation!.worker_session_id!)).toMatchObject({ status: 'ended' });
  const answers = (await t.engine.store.messages.history(session.id)).filter((m) => m.role === 'tool');
  expect(answers).toHaveLength(2);
  const answer = answers[0]!.content[0] as ToolResultBlock;
  expect(answer.is_error).toBe(way.mode !== null);
  expect(textOf(answer)).toMatch(way.reads);

  expect(await t.run(session, 'and now?')).toMatchObject({ status: 'completed', output: 'as ever' });
  const sent = t.adapter.requests.at(-1)!.messages.map((m) => m.role);
  expect(sent).toEqual(['user', 'assistant', 'tool', 'tool', 'assistant', 'user']);
});
