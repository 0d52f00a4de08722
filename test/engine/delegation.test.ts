// Delegation end to end on a real database: order of events, isolation, failure modes, money (04, 02 §10).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import type { PayloadOf } from '#protocol/event.ts';
import { SLOTS } from '#protocol/route.ts';
import { startEngine, type TestEngine } from '../support/engine.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { resultsOf, textOf } from '../support/stored.ts';

const usage = (input_tokens: number, output_tokens: number) => ({ input_tokens, output_tokens });

const workersOf = async (t: TestEngine, sessionId: string) =>
  (await t.engine.store.delegations.list(sessionId, { recursive: false, after: null, limit: 100 })).rows;

describe('one delegation', () => {
  const one = scenario(
    planner(
      { tool_calls: [delegate('count the files')], usage: usage(1000, 50) },
      { text: 'three', usage: usage(1200, 10) },
    ),
    worker('count the files', { text: 'there are three', usage: usage(400, 20) }),
  );

  // Promise 04.1: A delegation runs in the normative order and its result is exactly the worker's text.
  it('runs the worker between the call and its result, in the normative order', async () => {
    const t = await startEngine({ scenario: one });
    const session = await t.session();
    const turn = await t.run(session, 'how many files?');
    expect(turn.status).toBe('completed');
    expect(turn.output).toBe('three');
    const w = t.events.find((e) => e.type === 'session.created' && e.session_id !== session.id)!.session_id;
    expect(t.events.map((e) => `${e.session_id === w ? 'W' : 'P'} ${e.type}`)).toEqual([
      'P session.created',
      'P turn.started',
      'P route.decided',
      'P llm.call_started',
      'P llm.call_completed',
      'P tool.called',
      'W session.created',
      'P delegate.started',
      'W turn.started',
      'W route.decided',
      'W llm.call_started',
      'W llm.call_completed',
      'W turn.completed',
      'W session.ended',
      'P delegate.completed',
      'P tool.completed',
      'P llm.call_started',
      'P llm.call_completed',
      'P turn.completed',
    ]);
    expect(textOf((await resultsOf(t, session.id))[0]!)).toBe('there are three');
  });

  it("gives the planner the worker's text and nothing about its cost", async () => {
    const t = await startEngine({ scenario: one });
    const session = await t.session();
    await t.run(session, 'how many files?');
    const block = (await resultsOf(t, session.id))[0]!;
    expect(block).toEqual({
      type: 'tool_result',
      tool_use_id: block.tool_use_id,
      content: [
        { type: 'text', text: 'there are three' },
        { type: 'text', text: expect.stringMatching(/^\[worker sess_\w+; continuing costs about [^\n]*\]$/) },
      ],
      is_error: false,
    });
  });

  // Promise 04.2: A worker is stored as a child of its call and hidden from the plain list.
  it('records the worker as a child of the call, on its own model', async () => {
    const t = await startEngine({ scenario: one });
    const session = await t.session();
    await t.run(session, 'how many files?');
    const [delegation] = await workersOf(t, session.id);
    const child = (await t.engine.store.sessions.view(delegation!.worker_session_id!))!;
    expect(child).toMatchObject({
      is_worker: true,
      parent_session_id: session.id,
      parent_tool_use_id: delegation!.tool_use_id,
      workspace_path: session.workspace_path,
      active_model: null,
      delegation_depth: 1,
      root_session_id: session.id,
      status: 'ended',
      disposition: 'completed',
    });
    const list = {
      workspace_path: null,
      status: null,
      parent_session_id: null,
      worker_name: null,
      door: null,
      search: null,
      failed: false,
      owner: null,
      reader: null,
      running_without_turn: [],
      before: null,
      limit: 10,
    };
    const top = await t.engine.store.sessions.list({ ...list, include_workers: false });
    const all = await t.engine.store.sessions.list({ ...list, include_workers: true });
    expect(top.rows.map((s) => s.id)).toEqual([session.id]);
    expect(all.rows.map((s) => s.id).sort()).toEqual([session.id, child.id].sort());
    expect(delegation!.usage_summary).toMatchObject({
      model: 'anthropic:claude-haiku-4-5',
      turn_count: 1,
      input_tokens: 400,
      output_tokens: 20,
      cost_usd: '0.0005',
    });
  });

  it('enters the chain at slot 5 with slot 4 deferred', async () => {
    const t = await startEngine({ scenario: one });
    const session = await t.session();
    await t.run(session, 'how many files?');
    const decided = t.events.filter((e) => e.type === 'route.decided').find((e) => e.session_id !== session.id)!;
    const chain = (decided.payload as { chain: { policy: string; verdict: string; reason: string }[] }).chain;
    expect(chain.map((c) => c.verdict)).toEqual([
      'not_applicable',
      'not_applicable',
      'not_applicable',
      'deferred',
      'chose',
      'not_evaluated',
      'not_evaluated',
    ]);
    expect(chain[3]!.reason).toBe('delegate_request_in_flight');
  });

  // Promise 04.17: A planner's figures never include its workers'.
  it("keeps the planner's figures free of the worker's cost", async () => {
    const t = await startEngine({ scenario: one });
    const session = await t.session();
    const turn = await t.run(session, 'how many files?');
    // opus at fixture A: 2200 in at 15, 60 out at 75 per million.
    expect(turn.total_cost_usd).toBe('0.0375');
    const view = (await t.engine.store.sessions.view(session.id))!;
    expect(view.cost_so_far_usd).toBe('0.0375');
    expect(view.workers_cost_usd).toBe('0.0005');
    const completed = t.events.find((e) => e.type === 'delegate.completed')!;
    expect(completed.payload).toMatchObject({ worker_total_cost_usd: '0.0005', turn_count: 1, llm_call_count: 1 });
  });

  // Promise 02.5: Worker events have actor worker, delegate events lie on the planner with actor system.
  // Promise 02.6: From a worker's model call the parents lead to the planner's turn through delegate.started.
  it("every worker event has actor worker and leads back to the planner's turn", async () => {
    const t = await startEngine({ scenario: one });
    const session = await t.session();
    await t.run(session, 'how many files?');
    for (const e of t.events) {
      if (e.session_id !== session.id) expect(e.actor, e.type).toBe('worker');
      if (e.type.startsWith('delegate.')) expect([e.session_id, e.actor]).toEqual([session.id, 'system']);
    }
    const byId = new Map(t.events.map((e) => [e.id, e]));
    let at = t.events.find((e) => e.type === 'llm.call_completed' && e.session_id !== session.id);
    const path: string[] = [];
    while (at) {
      path.push(at.type);
      at = at.parent_event_id ? byId.get(at.parent_event_id) : undefined;
    }
    expect(path).toEqual([
      'llm.call_completed',
      'llm.call_started',
      'turn.started',
      'delegate.started',
      'llm.call_completed',
      'llm.call_started',
      'turn.started',
    ]);
  });
});

describe('the closing figures', () => {
  // Promise 02.14: The closing event of a delegation counts the worker's own turns, calls and cost.
  it("are the worker's own: calls, turns and cost", async () => {
    const look = { tool_calls: [call('list_files', {})], usage: usage(1000, 100) };
    const t = await startEngine({
      scenario: scenario(
        planner({ tool_calls: [delegate('look twice')] }, { text: 'ok' }),
        worker('look twice', look, look, { text: 'seen', usage: usage(1000, 100) }),
      ),
    });
    const session = await t.session();
    await t.run(session, 'go');
    expect(t.events.find((e) => e.type === 'delegate.completed')!.payload).toMatchObject({
      turn_count: 1,
      llm_call_count: 3,
      tool_call_count: 2,
      input_tokens: 3000,
      output_tokens: 300,
      wall_time_seconds: expect.any(Number),
      worker_total_cost_usd: '0.0045',
      model: 'anthropic:claude-haiku-4-5',
    });
  });

  // Promise 04.27: The event of a failed delegation has model, tokens, calls and time, and the failed turn counts.
  it('are on the event of a worker that failed too, whose failed turn counts', async () => {
    const t = await startEngine({
      scenario: scenario(
        planner({ tool_calls: [delegate('break')] }, { text: 'ok' }),
        worker(
          'break',
          { tool_calls: [call('list_files', {})], usage: usage(1000, 100) },
          { error: { error_class: 'invalid_request', status: 400 } },
        ),
      ),
    });
    const session = await t.session();
    await t.run(session, 'go');
    const { payload } = t.events.find((e) => e.type === 'delegate.failed')!;
    expect(payload).toMatchObject({
      turn_count: 1,
      llm_call_count: 1,
      tool_call_count: 1,
      input_tokens: 1000,
      output_tokens: 100,
      wall_time_seconds: expect.any(Number),
      model: 'anthropic:claude-haiku-4-5',
    });
    const [delegation] = await workersOf(t, session.id);
    const { model, turn_count, input_tokens, output_tokens, tool_call_count } = delegation!.usage_summary;
    expect(payload).toMatchObject({ model, turn_count, input_tokens, output_tokens, tool_call_count });
    const ended = t.events.find((e) => e.type === 'session.ended')!;
    expect(ended.payload).toMatchObject({ turn_count: 0, disposition: 'failed' });
  });

  // Promise 02.19: Every decision lists seven slots in order, those after the winner as not evaluated.
  it('every decision has seven entries in the order of the slots, undecided ones after the winner', async () => {
    const t = await startEngine({
      scenario: scenario(planner({ tool_calls: [delegate('x')] }, { text: 'ok' }), worker('x', { text: 'y' })),
    });
    await t.run(await t.session(), 'go');
    await t.run(await t.session({ initial_active_model: null }), '@haiku go').catch(() => {});
    const decisions = t.events
      .filter((e) => e.type === 'route.decided')
      .map((e) => e.payload as PayloadOf<'route.decided'>);
    expect(decisions.length).toBeGreaterThanOrEqual(3);
    for (const { chain, winner_index } of decisions) {
      expect(chain.map((c) => c.policy)).toEqual(SLOTS);
      expect(chain[winner_index]!.verdict).toBe('chose');
      for (const { policy, verdict } of chain.slice(winner_index + 1))
        expect(verdict).toBe(policy === 'delegate_request' ? 'not_applicable' : 'not_evaluated');
    }
  });
});

describe('what a worker is given', () => {
  // Promise 04.7: Task and context stand in the worker's last system segment, files as references.
  it('has its task and context in the last system segment and one fixed sentence as its message', async () => {
    const t = await startEngine({
      files: { 'src/a.ts': 'export const secretBody = 1;' },
      scenario: scenario(
        planner({ tool_calls: [call('read_file', { path: 'src/a.ts' })] }, { text: 'placeholder' }),
        [
          {
            match: { role: 'planner', turn: 2, call: 1 },
            respond: {
              tool_calls: [
                delegate('rename the constant', {
                  context: {
                    mode: 'explicit',
                    include: [
                      { type: 'file', path: 'src/a.ts' },
                      { type: 'tool_result', tool_use_id: '{{last_user_text}}' },
                      'keep the style',
                    ],
                  },
                }),
              ],
            },
          },
          { match: { role: 'planner', turn: 2, call: 2 }, respond: { text: 'ok' } },
        ],
        worker('rename the constant', { text: 'done' }),
      ),
    });
    const session = await t.session();
    await t.run(session, 'read it');
    const read = (await t.engine.store.messages.history(session.id)).find((m) => m.role === 'tool')!;
    await t.run(session, read.metadata.parent_tool_use_id!);
    const request = t.adapter.requests.find((r) => r.caller.is_worker)!;
    const volatile = request.system_prompt_volatile!;
    expect(volatile.split('rename the constant')).toHaveLength(2);
    expect(volatile).toContain('file src/a.ts');
    expect(volatile).toContain('secretBody');
    expect(volatile).toContain('keep the style');
    expect(request.messages).toHaveLength(1);
    expect(request.messages[0]!.content).toEqual([
      { type: 'text', text: 'Carry out the task given at the end of your instructions.' },
    ]);
    const started = t.events.find((e) => e.type === 'delegate.started')!;
    expect(started.payload).toMatchObject({ context_reference_count: 3, context_mode: 'explicit' });
  });

  it('never has more tools than its planner, and never delegate', async () => {
    const t = await startEngine({
      scenario: scenario(
        planner(
          { tool_calls: [delegate('look around', { allowed_tools: ['read_file', 'delegate', 'nope'] })] },
          { text: 'ok' },
        ),
        worker('look around', { text: 'seen' }),
      ),
    });
    const session = await t.session();
    await t.run(session, 'go');
    const request = t.adapter.requests.find((r) => r.caller.is_worker)!;
    expect(request.tools.map((tool) => tool.name)).toEqual(['_request_context', 'read_file']);
    expect(t.events.find((e) => e.type === 'delegate.started')!.payload).toMatchObject({
      allowed_tool_count: 3,
      dropped_tools: ['delegate', 'nope'],
    });
  });

  // Promise 04.23: A worker reads memory in its prompt and has no tool that writes it.
  it('reads memory in its prompt and has no tool that writes it', async () => {
    const t = await startEngine({
      files: { '.metis/MEMORY.md': 'The build is called tundra.' },
      scenario: scenario(planner({ tool_calls: [delegate('look')] }, { text: 'ok' }), worker('look', { text: 'seen' })),
    });
    const session = await t.session();
    await t.run(session, 'go');
    const request = t.adapter.requests.find((r) => r.caller.is_worker)!;
    expect(request.system_prompt).toContain('The build is called tundra.');
    expect(request.tools.map((tool) => tool.name).filter((name) => name.startsWith('memory_'))).toEqual([]);
  });

  it('does not read an @alias in its task', async () => {
    const t = await startEngine({
      scenario: scenario(
        planner({ tool_calls: [delegate('@opus do it')] }, { text: 'ok' }),
        worker('@opus do it', { text: 'done' }),
      ),
    });
    const session = await t.session();
    await t.run(session, 'go');
    const request = t.adapter.requests.find((r) => r.caller.is_worker)!;
    expect(request.model.id).toBe('anthropic:claude-haiku-4-5');
    expect(request.system_prompt_volatile).toContain('@opus do it');
  });
});

describe('when a worker does not succeed', () => {
  const modes: [string, Record<string, unknown>, Record<string, unknown>[], object][] = [
    [
      'its provider fails',
      {},
      [{ error: { error_class: 'invalid_request', status: 400 } }],
      { failure_mode: 'worker_error' },
    ],
    [
      'its answer is cut at the token cap',
      { max_tokens: 100 },
      [
        { tool_calls: [call('list_files', {})], usage: usage(10, 60) },
        { text: 'as far as I', stop_reason: 'max_tokens', usage: usage(10, 40) },
      ],
      { failure_mode: 'max_tokens_exceeded' },
    ],
    [
      'its token cap is used up before the next call',
      { max_tokens: 50 },
      [{ text: 'so far', tool_calls: [call('list_files', {})], usage: usage(10, 50) }],
      { failure_mode: 'max_tokens_exceeded' },
    ],
    [
      'it stops at a stop sequence',
      {},
      [{ text: 'half', stop_reason: 'stop_sequence' }],
      { failure_mode: 'worker_error' },
    ],
  ];
  // Promise 04.10: A worker whose provider fails is an error the planner reads.
  it.each(modes)('%s: the planner reads an error and goes on', async (_name, args, answers, expected) => {
    const t = await startEngine({
      scenario: scenario(
        planner({ tool_calls: [delegate('the job', args)] }, { text: 'I will do it myself' }),
        worker('the job', ...answers),
      ),
    });
    const session = await t.session();
    const turn = await t.run(session, 'go');
    expect(turn.status).toBe('completed');
    expect(turn.output).toBe('I will do it myself');
    const block = (await resultsOf(t, session.id))[0]!;
    expect(block.is_error).toBe(true);
    const [delegation] = await workersOf(t, session.id);
    expect(delegation).toMatchObject({ status: 'failed', ...expected });
    expect(JSON.parse(textOf(block))).toEqual({
      error: expect.stringContaining((expected as { failure_mode: string }).failure_mode),
      output: delegation!.output,
      worker_session_id: delegation!.worker_session_id,
    });
    const failed = t.events.find((e) => e.type === 'delegate.failed')!;
    expect(failed.payload).toMatchObject(expected);
    expect(t.events.find((e) => e.type === 'session.ended')!.payload).toMatchObject({ disposition: 'failed' });
  });

  // Promise 04.8: A worker cut at its token cap fails with the text so far and its real cost.
  it('counts what a worker spent before it was cut at its cap', async () => {
    const t = await startEngine({
      scenario: scenario(
        planner({ tool_calls: [delegate('the job', { max_tokens: 100 })] }, { text: 'ok' }),
        worker(
          'the job',
          { tool_calls: [call('list_files', {})], usage: usage(10, 60) },
          { text: 'as far as I', stop_reason: 'max_tokens', usage: usage(10, 40) },
        ),
      ),
    });
    const session = await t.session();
    await t.run(session, 'go');
    expect(t.adapter.requests.filter((r) => r.caller.is_worker).map((r) => r.max_output_tokens)).toEqual([100, 40]);
    const [delegation] = await workersOf(t, session.id);
    expect(delegation!.output).toBe('as far as I');
    expect(delegation!.usage_summary).toMatchObject({ output_tokens: 100, cost_usd: '0.00052' });
  });

  // Promise 04.4: A tier without a model fails without a session, and the planner goes on.
  it('refuses a tier that no model serves, without a session', async () => {
    const registry = fs
      .readFileSync(path.join(import.meta.dirname, '../support/registry.yaml'), 'utf8')
      .replace('tier: deep', 'tier: null');
    const t = await startEngine({
      registry: registry.replace('aliases: [opus]', 'aliases: [opus]\n    can_delegate: true'),
      scenario: scenario(planner({ tool_calls: [delegate('hard', { tier: 'deep' })] }, { text: 'ok' })),
    });
    const session = await t.session();
    const turn = await t.run(session, 'go');
    expect(turn.status).toBe('completed');
    expect(t.rows().sessions).toBe(1);
    expect(t.events.find((e) => e.type === 'delegate.failed')!.payload).toMatchObject({
      failure_mode: 'no_model_available_for_tier',
      worker_session_id: null,
      worker_total_cost_usd: '0',
    });
    expect(t.typesOf(session.id).slice(5, 8)).toEqual(['tool.called', 'delegate.failed', 'tool.completed']);
  });

  // Promise 04.9: A valid request for context ends the worker before its siblings run; an invalid one does not.
  it('passes a request for more context to the planner and runs nothing beside it', async () => {
    const missing = {
      summary: 'need the schema',
      missing: [{ type: 'file', ref: 'schema.sql', hint: 'column names' }],
    };
    const t = await startEngine({
      scenario: scenario(
        planner({ tool_calls: [delegate('the job')] }, { text: 'I see' }),
        worker('the job', {
          tool_calls: [call('list_files', {}), call('_request_context', missing), call('list_files', { path: 'x' })],
        }),
      ),
    });
    const session = await t.session();
    const turn = await t.run(session, 'go');
    expect(turn.status).toBe('completed');
    expect(JSON.parse(textOf((await resultsOf(t, session.id))[0]!))).toMatchObject({
      error: 'insufficient_context',
      output: missing,
    });
    const failed = t.events.find((e) => e.type === 'delegate.failed')!;
    expect(failed.payload).toMatchObject({ insufficient_context_request: missing });
    const w = t.events.find((e) => e.type === 'session.created' && e.session_id !== session.id)!.session_id;
    expect(t.typesOf(w).filter((type) => type.startsWith('tool.'))).toEqual([
      'tool.called',
      'tool.completed',
      'tool.failed',
      'tool.failed',
    ]);
    const stored = (await t.engine.store.messages.history(w as never)).filter((m) => m.role === 'tool');
    expect(stored).toHaveLength(3);
  });

  // Promise 04.9: A worker goes on after an invalid request for context.
  it('lets a worker go on after an invalid request for context', async () => {
    const t = await startEngine({
      scenario: scenario(
        planner({ tool_calls: [delegate('the job')] }, { text: 'ok' }),
        worker('the job', { tool_calls: [call('_request_context', { summary: '' })] }, { text: 'managed anyway' }),
      ),
    });
    const session = await t.session();
    await t.run(session, 'go');
    expect(textOf((await resultsOf(t, session.id))[0]!)).toBe('managed anyway');
  });

  // Promise 04.18: A worker that loops ends after 25 calls.
  it('ends a worker that never stops calling tools after 25 calls', async () => {
    const t = await startEngine({
      scenario: scenario(planner({ tool_calls: [delegate('loop')] }, { text: 'enough' }), [
        { match: { role: 'worker' }, times: 'inf', respond: { tool_calls: [call('list_files', {})] } },
      ]),
    });
    const session = await t.session();
    const turn = await t.run(session, 'go');
    expect(turn.status).toBe('completed');
    expect(t.adapter.requests.filter((r) => r.caller.is_worker)).toHaveLength(25);
    expect(t.events.find((e) => e.type === 'delegate.failed')!.payload).toMatchObject({
      failure_mode: 'worker_error',
      error_message: 'worker_error: stopped after 25 LLM calls',
    });
  });
});

describe('bad input to delegate', () => {
  const bad: [string, unknown][] = [
    ['an unknown tier', { tier: 'huge', task: 'x' }],
    ['a blank task', { tier: 'fast', task: '  ' }],
    ['context in mode minimal', { tier: 'fast', task: 'x', context: { mode: 'minimal', include: ['y'] } }],
    ['an unknown key', { tier: 'fast', task: 'x', speed: 1 }],
    [
      'a path outside the workspace',
      { tier: 'fast', task: 'x', context: { mode: 'explicit', include: [{ type: 'file', path: '../x' }] } },
    ],
    [
      'a message of another session',
      {
        tier: 'fast',
        task: 'x',
        context: { mode: 'explicit', include: [{ type: 'message', message_id: '01JZZZZZZZZZZZZZZZZZZZZZZZ' }] },
      },
    ],
    ['a schema that is no object', { tier: 'fast', task: 'x', output_schema: { type: 'array' } }],
  ];
  // Promise 04.6: Bad input to delegate is answered to the model; no worker and no delegate event exists.
  it.each(bad)('%s is answered to the model, and no worker exists', async (_name, input) => {
    const t = await startEngine({
      scenario: scenario(planner({ tool_calls: [call('delegate', input)] }, { text: 'sorry' })),
    });
    const session = await t.session();
    const turn = await t.run(session, 'go');
    expect(turn.status).toBe('completed');
    expect(t.typesOf(session.id)).toContain('tool.input_invalid');
    expect(t.events.filter((e) => e.type.startsWith('delegate.'))).toEqual([]);
    expect(t.rows()).toMatchObject({ sessions: 1, delegations: 0 });
    const block = (await resultsOf(t, session.id))[0]!;
    expect(block.is_error).toBe(true);
    expect(textOf(block)).toMatch(/^\S+: \S/);
  });
});

describe('a JSON answer on demand', () => {
  const schema = {
    type: 'object',
    properties: { n: { type: 'integer' } },
    required: ['n'],
    additionalProperties: false,
  };
  const asked = planner({ tool_calls: [delegate('count', { output_schema: schema })] }, { text: 'ok' });
  const answers = [
    { match: { role: 'worker', turn: 1 }, respond: { text: 'hello' } },
    { match: { role: 'worker', turn: 2 }, respond: { text: '{"n":"x"}' } },
    { match: { role: 'worker', turn: 3 }, respond: { text: '```json\n{"n":1}\n```' } },
  ];

  // Promise 04.15: A demanded JSON object is repaired in further turns until it is valid.
  it('is asked for again until it is valid', async () => {
    const t = await startEngine({ scenario: scenario(asked, answers) });
    const session = await t.session();
    await t.run(session, 'go');
    expect(textOf((await resultsOf(t, session.id))[0]!)).toBe('{"n":1}');
    const [delegation] = await workersOf(t, session.id);
    expect(delegation).toMatchObject({ status: 'completed', output: { n: 1 } });
    expect(delegation!.usage_summary.turn_count).toBe(3);
  });

  // Promise 04.15: Without repairs left the raw text comes back as a failure.
  it('fails with the raw text when no repair is left', async () => {
    const t = await startEngine({
      scenario: scenario(asked, answers),
      config: { delegation: { schema_repair_attempts: 0 } },
    });
    const session = await t.session();
    await t.run(session, 'go');
    const [delegation] = await workersOf(t, session.id);
    expect(delegation).toMatchObject({ failure_mode: 'output_schema_validation_failed', output: 'hello' });
  });
});

describe('offering delegate', () => {
  const plain = scenario([{ match: {}, times: 'inf', respond: { text: 'hi' } }]);
  const names = (t: TestEngine) => t.adapter.requests.at(-1)!.tools.map((tool) => tool.name);

  // Promise 04.3: delegate is offered by the turn's model, whoever chose it.
  it('follows the model of the turn, whoever chose it', async () => {
    const t = await startEngine({ scenario: plain });
    const session = await t.session({ initial_active_model: 'gpt' });
    await t.run(session, 'one');
    expect(names(t)).not.toContain('delegate');
    await t.run(session, '@opus two');
    expect(names(t)).toContain('delegate');
    const other = await t.session({ initial_active_model: null });
    await t.run(other, 'three');
    expect(t.adapter.requests.at(-1)!.model.id).toBe('anthropic:claude-sonnet-4-6');
    expect(names(t)).toContain('delegate');
  });

  // Promise 09.2: A disabled tool is not offered.
  it('can be switched off', async () => {
    const t = await startEngine({ scenario: plain, config: { tools: { disabled: ['delegate'] } } });
    await t.run(await t.session(), 'one');
    expect(names(t)).not.toContain('delegate');
  });
});

describe('fan-out', () => {
  const three = (delay: number[]) =>
    scenario(
      planner({ tool_calls: [delegate('job-a'), delegate('job-b'), delegate('job-c')] }, { text: 'all done' }),
      worker('job-a', { text: 'A', delay_ms: delay[0] }),
      worker('job-b', { text: 'B', delay_ms: delay[1] }),
      worker('job-c', { text: 'C', delay_ms: delay[2] }),
    );

  // Promise 04.11: Parallel workers run side by side and answer in block order; a full slot makes the next wait without a session.
  it('runs workers side by side and answers in block order', async () => {
    const t = await startEngine({ scenario: three([60, 40, 20]) });
    const session = await t.session();
    await t.run(session, 'go');
    const answers = [0, 1, 2].map(async (n) => textOf((await resultsOf(t, session.id))[n]!));
    expect(await Promise.all(answers)).toEqual(['A', 'B', 'C']);
    const order = t.events
      .filter((e) => ['delegate.started', 'delegate.completed'].includes(e.type))
      .map((e) => e.type);
    expect(order.slice(0, 3)).toEqual(['delegate.started', 'delegate.started', 'delegate.started']);
    expect(t.rows().sessions).toBe(4);
  });

  // Promise 04.11: A delegation waits for a slot without events and without a session.
  it('waits for a slot without events and without a session', async () => {
    const t = await startEngine({
      scenario: scenario(
        planner({ tool_calls: ['a', 'b', 'c', 'd'].map((x) => delegate(`job-${x}`)) }, { text: 'all done' }),
        ...['a', 'b', 'c', 'd'].map((x) => worker(`job-${x}`, { text: x, delay_ms: 20 })),
      ),
      config: { tools: { max_concurrent_per_session: 2 } },
    });
    const session = await t.session();
    await t.run(session, 'go');
    let open = 0;
    let most = 0;
    for (const e of t.events) {
      if (e.type === 'session.created' && e.session_id !== session.id) open += 1;
      if (e.type === 'delegate.completed') open -= 1;
      most = Math.max(most, open);
    }
    expect(most).toBe(2);
    expect(t.rows().sessions).toBe(5);
  });

  // Promise 04.16: The cap on delegations of a turn refuses without a session.
  it('refuses more delegations in a turn than the cap, with no session for them', async () => {
    const t = await startEngine({
      scenario: three([0, 0, 0]),
      config: { delegation: { max_workers_per_turn: 2 } },
    });
    const session = await t.session();
    const turn = await t.run(session, 'go');
    expect(turn.status).toBe('completed');
    expect(t.rows().sessions).toBe(3);
    const failed = t.events.find((e) => e.type === 'delegate.failed')!;
    expect(failed.payload).toMatchObject({
      worker_session_id: null,
      error_message: 'worker_error: too many delegations in this turn',
    });
  });
});

describe('deeper trees', () => {
  const nested = scenario(
    planner({ tool_calls: [delegate('outer', { tier: 'balanced' })] }, { text: 'end' }),
    [
      {
        match: { role: 'worker', model: '*sonnet*', call: 1 },
        respond: { tool_calls: [delegate('inner')], usage: usage(100, 10) },
      },
      { match: { role: 'worker', model: '*sonnet*', call: 2 }, respond: { text: 'outer done', usage: usage(100, 10) } },
    ],
    worker('inner', { text: 'inner done', usage: usage(100, 10) }),
  );

  // Promise 04.16: Workers delegate only down to the configured depth.
  it('a worker may delegate down to the configured depth and no further', async () => {
    const t = await startEngine({ scenario: nested, config: { delegation: { delegate_depth: 2 } } });
    const session = await t.session();
    const turn = await t.run(session, 'go');
    expect(turn.status).toBe('completed');
    const byDepth = (
      await Promise.all(
        t.events.filter((e) => e.type === 'session.created').map((e) => t.engine.store.sessions.view(e.session_id)),
      )
    ).map((s) => s!.delegation_depth);
    expect(byDepth).toEqual([0, 1, 2]);
    const inner = t.adapter.requests.find((r) => r.system_prompt_volatile?.includes('inner'))!;
    expect(inner.tools.map((tool) => tool.name)).not.toContain('delegate');
  });

  // Promise 04.16: By default a worker has no delegate.
  it('by default a worker that asks for delegate gets the answer that there is none', async () => {
    const t = await startEngine({ scenario: nested });
    const session = await t.session();
    await t.run(session, 'go');
    const w = t.events.find((e) => e.type === 'session.created' && e.session_id !== session.id)!.session_id;
    expect(textOf((await resultsOf(t, w))[0]!)).toBe("Tool 'delegate' is not available in this session.");
    expect(t.rows().sessions).toBe(2);
  });
});
