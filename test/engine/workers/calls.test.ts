// A named worker called: one more delegation, configured by its definition (13 §1, §6, §8).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import type { ToolResultBlock } from '#protocol/message.ts';
import { type Parsed, startServer, type TestServer } from '../../support/http.ts';
import { call, planner, scenario, worker } from '../../support/scenario.ts';
import { textOf } from '../../support/stored.ts';

const usage = { input_tokens: 1000, output_tokens: 100 };
const allow = (...names: string[]) => ({ workers: { planner_allow_workers: names } as never });
const answer = (text: string) => ({ text, usage });
const DEFINITION = 'description: Judges a deck.\ninstructions: You judge.\nmodel: sonnet\n';

async function result(server: TestServer, id: string): Promise<ToolResultBlock> {
  const { messages } = (await server.call('GET', `/sessions/${id}/messages`)).body;
  return messages.findLast((m: Parsed) => m.role === 'tool').content[0];
}
const of = (server: TestServer, type: string) =>
  server.events.filter((e) => e.type === type).map((e) => e.payload as Parsed);

describe('calling a worker by name', () => {
  // Promise 13.10: a call is a session of its definition whose answer is all the planner reads.
  it('runs a session of its definition, and the planner reads its answer alone', async () => {
    const t = await startServer({
      config: allow('evaluator'),
      files: { 'workers/evaluator.yaml': `${DEFINITION}max_tokens: 500\ntimeout_seconds: 12.5\n` },
      scenario: scenario(
        planner({ tool_calls: [call('evaluator', { input: 'deck one @haiku' })], usage }, answer('done')),
        worker('deck one', answer('four stars')),
      ),
    });
    const session = await t.session();
    expect((await t.run(session, 'go')).status).toBe('completed');
    const block = await result(t, session.id);
    expect(block).toMatchObject({ is_error: false });
    expect(textOf(block)).toBe('four stars');

    const [planning, working] = t.adapter.requests;
    expect(planning!.tools.find(({ name }) => name === 'evaluator')).toMatchObject({
      description: 'Judges a deck.',
      input_schema: { properties: { input: { type: 'string' }, attachments: { type: 'array' } }, required: ['input'] },
    });
    expect(working!.model.id).toBe('anthropic:claude-sonnet-4-6');
    expect(working!.system_prompt).toMatch(/^You judge\.\n\n## Worker mode/);
    expect(working!.system_prompt_volatile).toBeNull();
    expect(working!.messages.map((m) => m.content)).toEqual([[{ type: 'text', text: 'deck one @haiku' }]]);
    expect(working!.tools.map(({ name }) => name)).toEqual(['_request_context']);
    expect(working!.max_output_tokens).toBe(500);

    const child = (await t.call('GET', `/sessions?parent_session_id=${session.id}`)).body.sessions[0];
    expect(child).toMatchObject({
      parent_session_id: session.id,
      is_worker: true,
      delegation_depth: 1,
      worker_name: 'evaluator',
      worker_origin: 'project',
      title: 'deck one @haiku',
      task: 'deck one @haiku',
      active_model: null,
    });
    const [started] = of(t, 'delegate.started');
    expect(started).toMatchObject({
      entry: 'worker_tool',
      worker_name: 'evaluator',
      worker_digest: child.worker_digest,
      resolved_model: 'anthropic:claude-sonnet-4-6',
      tier: null,
      context_mode: 'minimal',
      attachment_count: 0,
      delegation_depth: 1,
    });
    const [completed] = of(t, 'delegate.completed');
    expect(completed.worker_total_cost_usd).toBe(child.cost_so_far_usd);
    const route = t.events.findLast((e) => e.type === 'route.decided' && e.session_id === child.id)!.payload as Parsed;
    expect(route.chain[4]).toMatchObject({ verdict: 'chose', reason: 'worker definition model' });
    const [delegation] = (await t.call('GET', `/sessions/${session.id}/workers`)).body.workers;
    expect(delegation).toMatchObject({
      entry: 'worker_tool',
      worker_name: 'evaluator',
      max_tokens: 500,
      timeout_seconds: 12.5,
    });
    const cost = (await t.call('GET', '/analytics/cost?group_by=worker_name')).body.data;
    expect(cost).toContainEqual(expect.objectContaining({ worker_name: 'evaluator', cost_usd: child.cost_so_far_usd }));
  });

  // Promise 13.9: a worker is a tool of its name, with attachments only where it takes some.
  it('takes input_data and objects for input, and refuses what the schema does not have', async () => {
    const t = await startServer({
      config: allow('evaluator'),
      files: { 'workers/evaluator.yaml': 'instructions: x\nattachment_policy: { max_attachments: 0 }' },
      scenario: scenario(
        planner(
          { tool_calls: [call('evaluator', { input_data: { b: 1, a: ['x'] } })] },
          { tool_calls: [call('evaluator', { input: 'y', attachments: ['a.txt'] })] },
          answer('end'),
        ),
        worker('"a"', answer('ok')),
      ),
    });
    const session = await t.session();
    await t.run(session, 'go');
    const worked = t.adapter.requests.find((r) => r.caller.is_worker)!;
    expect(worked.messages[0]!.content).toEqual([{ type: 'text', text: '{\n  "a": [\n    "x"\n  ],\n  "b": 1\n}' }]);
    expect(
      t.adapter.requests[0]!.tools.find(({ name }) => name === 'evaluator')!.input_schema.properties,
    ).not.toHaveProperty('attachments');
    expect(of(t, 'tool.input_invalid')).toMatchObject([
      { validation_errors: ['attachments: is not a known property'] },
    ]);
    // The call as the model wrote it stays as it was.
    const { messages } = (await t.call('GET', `/sessions/${session.id}/messages`)).body;
    expect(messages[1].content.at(-1).input).toEqual({ input_data: { b: 1, a: ['x'] } });
  });

  // Promise 13.15: without a list or without a model that may delegate there are no worker tools.
  it('needs the name in its list: without it there is no tool, and the name is not found', async () => {
    const t = await startServer({
      files: { 'workers/evaluator.yaml': DEFINITION },
      scenario: scenario(planner({ tool_calls: [call('evaluator', { input: 'x' })] }, answer('end'))),
    });
    await t.run(await t.session(), 'go');
    expect(t.adapter.requests[0]!.tools.map(({ name }) => name)).not.toContain('evaluator');
    expect(of(t, 'tool.failed')).toMatchObject([{ error_class: 'not_found' }]);
    expect(t.rows().sessions).toBe(1);
  });

  // Promise 13.15: without a model that may delegate there are no worker tools.
  it('needs a model that may delegate', async () => {
    const t = await startServer({
      config: allow('*'),
      files: { 'workers/evaluator.yaml': DEFINITION },
      scenario: scenario([{ match: {}, times: 'inf', respond: answer('ok') }]),
    });
    await t.run(await t.session({ initial_active_model: 'gpt' }), 'go');
    await t.run(await t.session({ initial_active_model: 'opus' }), 'go');
    const offered = t.adapter.requests.map((r) => r.tools.some(({ name }) => name === 'evaluator'));
    expect(offered).toEqual([false, true]);
  });

  // Promise 13.39: a call uses the file as it is then; an invalid one is an error without a session.
  it('uses the file as it is at the call; one that has become invalid or is gone is an error and makes no session', async () => {
    const t = await startServer({
      config: allow('a', 'b', 'c'),
      files: {
        'workers/a.yaml': 'instructions: old',
        'workers/b.yaml': 'instructions: x',
        'workers/c.yaml': 'instructions: x',
      },
      scenario: scenario(
        planner(
          {
            tool_calls: [
              call('shell', {
                command: 'echo "instructions: new" > workers/a.yaml; echo "x: 1" > workers/b.yaml; rm workers/c.yaml',
              }),
            ],
          },
          { tool_calls: [call('a', { input: 'one' }), call('b', { input: 'two' }), call('c', { input: 'three' })] },
          answer('end'),
        ),
        worker('one', answer('ok')),
      ),
    });
    fs.mkdirSync(path.join(t.workspace, '.metis'), { recursive: true });
    fs.writeFileSync(path.join(t.workspace, '.metis/trust.yaml'), 'schema_version: 1\nalways_allow: [shell]\n');
    const session = await t.session();
    await t.run(session, 'go');
    expect(t.adapter.requests.find((r) => r.caller.is_worker)!.system_prompt).toMatch(/^new/);
    expect(
      of(t, 'tool.failed')
        .map((p) => [p.error_class, p.error_message.split('\n').at(-1)])
        .sort(),
    ).toEqual([
      ['execution_error', "the worker 'c' does not exist any more"],
      ['execution_error', 'x: unknown key'],
    ]);
    expect(t.rows().sessions).toBe(2);
  });
});

describe('the model of a named worker', () => {
  // Promise 13.16: a definition without a model does not run on its caller's.
  it('is never its caller: without a model the defaults decide, and slot 5 says why it did not', async () => {
    const t = await startServer({
      config: { ...allow('evaluator'), routing: { global_default_model: 'haiku' } as never },
      files: { 'workers/evaluator.yaml': 'instructions: x' },
      scenario: scenario(
        planner({ tool_calls: [call('evaluator', { input: 'deck' })] }, answer('end')),
        worker('deck', answer('ok')),
      ),
    });
    const session = await t.session({ initial_active_model: 'opus' });
    await t.run(session, 'go');
    const worked = t.adapter.requests.find((r) => r.caller.is_worker)!;
    expect(worked.model.id).toBe('anthropic:claude-haiku-4-5');
    const [, second] = of(t, 'route.decided');
    expect(second.chain[4]).toMatchObject({ verdict: 'not_applicable', reason: 'worker has no model' });
  });

  it('by tier is the model of the tier; a tier that has none makes no session', async () => {
    const t = await startServer({
      config: allow('cheap', 'none'),
      registry: `adapters:\n  scripted: { type: scripted }\nmodels:\n  x:planner: { adapter: scripted, tier: deep, capabilities: { max_context_tokens: 100000, max_output_tokens: 1000 } }\n  x:fast: { adapter: scripted, tier: fast, capabilities: { max_context_tokens: 100000, max_output_tokens: 1000 } }\n`,
      files: {
        'workers/cheap.yaml': 'instructions: x\ntier: fast',
        'workers/none.yaml': 'instructions: x\ntier: balanced',
      },
      scenario: scenario(
        planner({ tool_calls: [call('cheap', { input: 'one' }), call('none', { input: 'two' })] }, answer('end')),
        worker('one', answer('ok')),
      ),
    });
    await t.run(await t.session({ initial_active_model: 'x:planner' }), 'go');
    expect(of(t, 'delegate.started')).toMatchObject([{ tier: 'fast', resolved_model: 'x:fast' }]);
    expect(of(t, 'delegate.failed')).toMatchObject([
      { failure_mode: 'no_model_available_for_tier', worker_session_id: null, worker_name: 'none', tier: 'balanced' },
    ]);
  });
});

describe('workers that call workers', () => {
  // Promise 13.11: three levels are one row by root and three by worker name.
  it('each see whom their own file allows, and never delegate; the root pays for all', async () => {
    const t = await startServer({
      config: allow('orchestrator'),
      files: {
        'workers/orchestrator.yaml':
          'instructions: You lead.\nallow_workers: [evaluator]\ntools: [delegate, memory_add, skill_load]',
        'workers/evaluator.yaml': 'instructions: You judge.\ntools: [shell, "write_*"]',
      },
      scenario: scenario(
        planner({ tool_calls: [call('orchestrator', { input: 'all decks' })], usage }, answer('end')),
        worker('all decks', { tool_calls: [call('evaluator', { input: 'one deck' })], usage }, answer('summary')),
        worker('one deck', answer('fine')),
      ),
    });
    const session = await t.session();
    expect((await t.run(session, 'go')).status).toBe('completed');
    const tools = t.adapter.requests.map((r) => r.tools.map(({ name }) => name));
    expect(tools[1]).toEqual(['_request_context', 'evaluator', 'skill_load']);
    expect(tools[2]).toEqual(['_request_context', 'shell']);
    expect(of(t, 'delegate.started').map((p) => [p.worker_name, p.dropped_tools])).toEqual([
      ['orchestrator', ['delegate', 'memory_add']],
      ['evaluator', ['write_file']],
    ]);
    const one = (await t.call('GET', '/analytics/cost?group_by=root_session')).body.data;
    expect(one).toMatchObject([{ root_session_id: session.id, call_count: 5 }]);
    const rows = (await t.call('GET', '/analytics/cost?group_by=worker_name&order=key&dir=asc')).body.data;
    expect(rows.map((r: Parsed) => [r.worker_name, r.call_count])).toEqual([
      ['evaluator', 1],
      ['orchestrator', 2],
      [null, 2],
    ]);
  });

  // Promise 13.18: a worker that calls itself ends at the depth limit, and the chain completes.
  it('end at the depth limit with an error, and the chain still completes', async () => {
    const t = await startServer({
      config: allow('self'),
      files: { 'workers/self.yaml': 'instructions: Again.\nallow_workers: [self]' },
      scenario: scenario(planner({ tool_calls: [call('self', { input: 'down' })] }, answer('end')), [
        {
          match: { role: 'worker', call: 1 },
          times: 'inf',
          respond: { tool_calls: [call('self', { input: 'down' })] },
        },
        { match: { role: 'worker' }, times: 'inf', respond: answer('up') },
      ]),
    });
    const session = await t.session();
    expect((await t.run(session, 'go')).status).toBe('completed');
    const { sessions } = (await t.call('GET', '/sessions?include_workers=true')).body;
    expect(sessions.map((s: Parsed) => s.delegation_depth).sort()).toEqual([0, 1, 2, 3, 4, 5]);
    const failed = of(t, 'tool.failed');
    expect(failed).toMatchObject([{ error_class: 'permission_denied' }]);
    expect(failed[0].error_message).toMatch(/^worker_depth_exceeded: .* 5 deep, .* depth 5; 'self'/);
  });

  // Promise 13.19: a cancelled planner ends grandchild, child and itself, in that order.
  it('end from below when the planner is cancelled: grandchild, child, planner last', async () => {
    const t = await startServer({
      config: allow('parent'),
      files: {
        'workers/parent.yaml': 'instructions: x\nallow_workers: [child]',
        'workers/child.yaml': 'instructions: y',
      },
      scenario: scenario(
        planner({ tool_calls: [call('parent', { input: 'parent task' })] }, { text: 'never' }),
        worker('parent task', { tool_calls: [call('child', { input: 'child task' })] }, { text: 'never' }),
        worker('child task', { hang: true }),
      ),
    });
    const session = await t.session();
    const turn = await t.submit(session, 'go');
    await t.event(
      'llm.call_started',
      (e) => t.events.filter((s) => s.type === 'delegate.started').length === 2 && e.session_id !== session.id,
    );
    expect((await t.call('POST', `/sessions/${session.id}/turns/${turn}/cancel`, {})).status).toBe(202);
    await t.ended(turn);
    const depths = new Map(
      (await t.call('GET', '/sessions?include_workers=true')).body.sessions.map((s: Parsed) => [
        s.id,
        s.delegation_depth,
      ]),
    );
    const cancelled = t.events.filter((e) => e.type === 'turn.cancelled').map((e) => depths.get(e.session_id));
    expect(cancelled).toEqual([2, 1, 0]);
    expect(t.events.at(-1)!.type).toBe('turn.cancelled');
  });

  // Promise 13.19: four parents with a child each finish in four slots.
  it('run side by side without waiting for each other: four parents with a child each, four slots', async () => {
    const t = await startServer({
      config: { ...allow('parent'), tools: { max_concurrent_per_session: 4 } as never },
      files: {
        'workers/parent.yaml': 'instructions: x\nallow_workers: [child]',
        'workers/child.yaml': 'instructions: y',
      },
      scenario: scenario(
        planner(
          { tool_calls: ['a', 'b', 'c', 'd'].map((x) => call('parent', { input: `parent ${x}` })) },
          answer('end'),
        ),
        ...['a', 'b', 'c', 'd'].map((x) =>
          worker(`parent ${x}`, { tool_calls: [call('child', { input: `child ${x}` })] }, answer('up')),
        ),
        ...['a', 'b', 'c', 'd'].map((x) => worker(`child ${x}`, answer('leaf'))),
      ),
    });
    expect((await t.run(await t.session(), 'go')).status).toBe('completed');
    expect(of(t, 'delegate.completed')).toHaveLength(8);
  });
});

describe('a worker of delegate', () => {
  it('has no named workers of its planner', async () => {
    const t = await startServer({
      config: allow('evaluator'),
      files: { 'workers/evaluator.yaml': DEFINITION },
      scenario: scenario(
        planner(
          {
            tool_calls: [call('delegate', { tier: 'fast', task: 'plain', allowed_tools: ['evaluator', 'read_file'] })],
          },
          answer('end'),
        ),
        worker('plain', answer('ok')),
      ),
    });
    await t.run(await t.session(), 'go');
    const worked = t.adapter.requests.find((r) => r.caller.is_worker)!;
    expect(worked.tools.map(({ name }) => name)).toEqual(['_request_context', 'read_file']);
    expect(of(t, 'delegate.started')).toMatchObject([
      { entry: 'delegate', worker_name: null, dropped_tools: ['evaluator'] },
    ]);
  });
});

describe('a structured answer', () => {
  // Promise 13.31: a structured answer is repaired, given back as JSON, or fails with its raw text.
  it('is asked for by the schema of the definition, repaired, and given back as JSON', async () => {
    const t = await startServer({
      config: { ...allow('evaluator'), delegation: { schema_repair_attempts: 1 } as never },
      files: {
        'workers/evaluator.yaml': 'instructions: x\noutput_schema_ref: score',
        'schemas/score.json': '{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}}',
      },
      scenario: scenario(
        planner(
          { tool_calls: [call('evaluator', { input: 'good' })] },
          { tool_calls: [call('evaluator', { input: 'bad' })] },
          answer('end'),
        ),
        worker('good', answer('{"n": 4}')),
        worker('bad', answer('four')),
        [{ match: { role: 'worker', turn: 2 }, respond: answer('still four') }],
      ),
    });
    const session = await t.session();
    await t.run(session, 'go');
    const { messages } = (await t.call('GET', `/sessions/${session.id}/messages`)).body;
    const results = messages.filter((m: Parsed) => m.role === 'tool').map((m: Parsed) => m.content[0].content[0].text);
    expect(results[0]).toBe('{"n":4}');
    expect(JSON.parse(results[1])).toMatchObject({ error: 'output_schema_validation_failed', output: 'still four' });
    expect(t.adapter.requests.find((r) => r.caller.is_worker)!.output_schema).toMatchObject({ required: ['n'] });
  });
});
