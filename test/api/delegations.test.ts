// A delegation asked for over HTTP, without a planner's turn: what a planner's call would get (19 §3.1).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { cancelTurn } from '#core/engine/control-turn.ts';
import { drain } from '#core/engine/lifecycle.ts';
import { makeDelegationResult } from '#protocol/api/worker-bodies.ts';
import { toolText } from '#protocol/tool.ts';
import { type Parsed, startServer } from '../support/http.ts';
import { gate, restart } from '../support/moments.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { tool } from '../support/tools.ts';
import { until } from '../support/until.ts';

const usage = { input_tokens: 1000, output_tokens: 100 };
const WAIT = { prefer: 'wait=60' };
const says = (task: string, text: string) => worker(task, { text, usage });

/** A tool that holds its caller until the gate opens, and counts who is in it. */
function held(wait: Promise<void>) {
  const seen = { inside: 0, most: 0, runs: 0 };
  const hold = tool('hold', {
    side_effects: 'execute',
    execute: async () => {
      seen.inside += 1;
      seen.runs += 1;
      seen.most = Math.max(seen.most, seen.inside);
      await wait;
      seen.inside -= 1;
      return toolText('held');
    },
  });
  return { hold, seen, config: { tool_confirmation: { per_tool: { hold: 'auto' } } } as const };
}
const holds = (task: string, text: string) => worker(task, { tool_calls: [call('hold', {})], usage }, { text, usage });

describe('a delegation from outside', () => {
  // Promise 19.16: a delegation from outside has the worker, the events and the result of a planner's call.
  test("has the worker, the events and the result of a planner's call", async () => {
    const server = await startServer({
      scenario: scenario(
        planner({ tool_calls: [delegate('count')], usage }, { text: 'end', usage }),
        says('count', 'three files'),
      ),
    });
    const { id } = await server.session();
    const result = await server.call('POST', `/sessions/${id}/delegations`, { tier: 'fast', task: 'count' }, WAIT);
    expect(result).toMatchObject({
      status: 200,
      body: { success: true, output: 'three files', error: null, usage_summary: { turn_count: 1, output_tokens: 100 } },
    });
    const outside = server.events.filter((e) => e.type.startsWith('delegate.'));
    expect(outside.map((e) => [e.type, e.session_id, e.turn_id])).toEqual([
      ['delegate.started', id, null],
      ['delegate.completed', id, null],
    ]);
    expect(outside[0]!.parent_event_id).toBeNull();
    expect(outside[1]!.parent_event_id).toBe(outside[0]!.id);
    const order = server.events.map((e) => e.type);

    const other = await server.session();
    await server.run(other, 'go');
    const inside = server.events.slice(order.length).filter((e) => e.type === 'delegate.started');
    const shape = ({ payload }: Parsed) => ({ ...payload, tool_use_id: '', worker_session_id: '' });
    expect(shape(outside[0])).toEqual(shape(inside[0]));
    const workerOrder = order.slice(order.indexOf('session.created', 1));
    expect(workerOrder).toEqual([
      'session.created',
      'delegate.started',
      'turn.started',
      'route.decided',
      'llm.call_started',
      'llm.call_completed',
      'turn.completed',
      'session.ended',
      'delegate.completed',
    ]);
    const { workers } = (await server.call('GET', `/sessions/${id}/workers`)).body;
    expect(workers).toMatchObject([
      { parent_turn_id: null, status: 'completed', entry: 'delegate', output: 'three files' },
    ]);
    const cost = await server.call('GET', '/analytics/cost?group_by=root_session&from=all');
    expect(cost.body.data.find((row: Parsed) => row.root_session_id === id)).toMatchObject({
      call_count: 1,
      worker_call_count: 1,
    });
  });

  test('answers 202 with the worker while it runs, and the worker is cancelled like any', async () => {
    const wait = gate();
    const { hold, config } = held(wait.opened);
    const server = await startServer({ tools: [hold], config, scenario: scenario(holds('slow', 'never')) });
    const { id } = await server.session();
    const { status, body } = await server.call('POST', `/sessions/${id}/delegations`, { tier: 'fast', task: 'slow' });
    expect(status).toBe(202);
    expect(body).toMatchObject({ session_id: id, tool_use_id: expect.stringMatching(/^tu_/) });
    await server.event('tool.called');
    expect((await server.call('GET', `/sessions/${id}`)).body.status).toBe('running');
    expect((await server.call('GET', '/sessions?status=running')).body.sessions).toMatchObject([{ id }]);
    const { current_turn_id } = (await server.call('GET', `/sessions/${body.worker_session_id}`)).body;
    const cancelled = cancelTurn(server.engine, body.worker_session_id, current_turn_id, null);
    await cancelled;
    wait.open();
    const failed = await server.event('delegate.failed');
    expect(failed.payload).toMatchObject({ failure_mode: 'cancelled_by_user', cancel_scope: 'worker' });
    await until(async () => (await server.call('GET', `/sessions/${id}`)).body.status === 'idle');
    const [record] = (await server.call('GET', `/sessions/${id}/workers`)).body.workers;
    expect(makeDelegationResult(record).error).toMatch(/^cancelled_by_user: worker cancelled directly by the user/);
  });

  test.each([
    [{ tier: 'huge', task: 'x' }, 'tier'],
    [{ tier: 'fast' }, 'task'],
    [{ tier: 'fast', task: '  ' }, 'task'],
    [{ task: 'x' }, 'tier'],
    [{ tier: 'fast', task: 'x', worker: 'a', input: 'y' }, 'tier'],
    [{ worker: 'a' }, 'input'],
    [{ tier: 'fast', task: 'x', attachments: ['a'] }, 'attachments'],
    [{ tier: 'fast', task: 'x', context: { mode: 'minimal', include: ['note'] } }, 'context.include'],
    [
      { tier: 'fast', task: 'x', context: { mode: 'explicit', include: [{ type: 'file', path: '../x' }] } },
      'context.include[0]',
    ],
    [{ tier: 'fast', task: 'x', output_schema: { type: 'array' } }, 'output_schema'],
    [{ tier: 'fast', task: 'x', max_cost_usd: 1 }, 'max_cost_usd'],
    [{ tier: 'fast', task: 'x', modle: 'x' }, 'modle'],
  ])('%j is refused at %s, and nothing is stored', async (body, path) => {
    const server = await startServer();
    const { id } = await server.session();
    const before = server.rows();
    const answer = await server.call('POST', `/sessions/${id}/delegations`, body);
    expect(answer.body.error).toMatchObject({ code: 'validation_error' });
    expect(JSON.stringify(answer.body.error.details.issues)).toContain(path);
    expect(server.rows()).toEqual(before);
  });

  test('is refused where the session is unknown, a worker, ended or without money', async () => {
    const server = await startServer({ scenario: scenario(says('x', 'y')) });
    const ask = async (id: string) =>
      (await server.call('POST', `/sessions/${id}/delegations`, { tier: 'fast', task: 'x' }, WAIT)).body;
    const code = async (id: string) => (await ask(id)).error?.code;
    expect(await code('sess_00000000000000000000000000')).toBe('not_found');
    const { id } = await server.session();
    expect(await code((await ask(id)).worker_session_id)).toBe('session_is_worker');
    const poor = await server.session({ max_cost_usd: '0.001', on_reached: 'stop' });
    expect(await ask(poor.id)).toMatchObject({ success: false, error: expect.stringMatching(/^budget_exceeded/) });
    await server.call('DELETE', `/sessions/${id}`);
    expect(await code(id)).toBe('session_already_ended');
  });

  // Promise 19.16: what policy denies is refused from outside too.
  test.each([
    ['the configuration', { config: { tool_confirmation: { per_tool: { delegate: 'deny' } } } }, ''],
    ['the workspace', {}, 'always_deny: [delegate]\n'],
  ] as const)('what %s denies is not called from outside either', async (_, options, trust) => {
    const server = await startServer({ scenario: scenario(says('x', 'y')), ...options });
    const { id, workspace_path } = await server.session();
    fs.mkdirSync(path.join(workspace_path, '.metis'), { recursive: true });
    if (trust !== '') fs.writeFileSync(path.join(workspace_path, '.metis/trust.yaml'), trust);
    const { status, body } = await server.call(
      'POST',
      `/sessions/${id}/delegations`,
      { tier: 'fast', task: 'x' },
      WAIT,
    );
    expect([status, body.error?.details.issues]).toEqual([
      400,
      [{ path: '', message: expect.stringMatching(/^delegate is denied by policy: tool_confirmation .*trust.yaml/) }],
    ]);
    expect(server.events.filter(({ type }) => type.startsWith('delegate.'))).toEqual([]);
  });

  test('a tier that nobody serves is a result, not an error', async () => {
    const server = await startServer({ registry: ONLY_FAST });
    const { id } = await server.session({ initial_active_model: null });
    const { status, body } = await server.call(
      'POST',
      `/sessions/${id}/delegations`,
      { tier: 'deep', task: 'x' },
      WAIT,
    );
    expect([status, body.success, body.error, body.worker_session_id]).toEqual([
      200,
      false,
      'no_model_available_for_tier',
      null,
    ]);
  });

  test('calls a named worker of the allowlist, and no other', async () => {
    const server = await startServer({
      files: {
        '.metis/workers/judge.yaml': 'instructions: You judge.\nmodel: haiku\n',
        '.metis/workers/mute.yaml': 'instructions: x\n',
      },
      scenario: scenario([{ match: { role: 'worker' }, times: 'inf', respond: { text: 'good', usage } }]),
    });
    const { id } = await server.session({ allow_workers: ['judge'] });
    const ask = (body: object) => server.call('POST', `/sessions/${id}/delegations`, body, WAIT);
    expect((await ask({ worker: 'judge', input: 'this deck' })).body).toMatchObject({ success: true, output: 'good' });
    expect((await ask({ worker: 'mute', input: 'x' })).body.error).toMatchObject({
      code: 'not_found',
      details: { resource: 'worker' },
    });
    for (const attachments of [['nope.txt'], ['../x'], ['.']])
      expect((await ask({ worker: 'judge', input: 'x', attachments })).body.error).toMatchObject({
        code: 'validation_error',
        details: { issues: [{ path: 'attachments' }] },
      });
    expect(server.events.find((e) => e.type === 'delegate.started')!.payload).toMatchObject({
      entry: 'worker_tool',
      worker_name: 'judge',
    });
  });

  test('the same key asks once, and hears the same worker again', async () => {
    const server = await startServer({ scenario: scenario(says('x', 'y')) });
    const { id } = await server.session();
    const ask = (body: object, headers: object = {}) =>
      server.call('POST', `/sessions/${id}/delegations`, body, { 'idempotency-key': 'k', ...headers });
    const first = await ask({ tier: 'fast', task: 'x' });
    const second = await ask({ tier: 'fast', task: 'x' }, WAIT);
    expect(second.headers.get('idempotency-replayed')).toBe('true');
    expect(second.body).toMatchObject({ output: 'y', worker_session_id: first.body.worker_session_id });
    expect((await ask({ tier: 'deep', task: 'x' })).status).toBe(422);
    expect(server.rows().delegations).toBe(1);
  });
});

test('a tree that waits for money goes on once it has it', async () => {
  const server = await startServer({ scenario: scenario(says('x', 'y')) });
  const { id } = await server.session({ max_cost_usd: '0.001', on_reached: 'pause' });
  const asked = await server.call('POST', `/sessions/${id}/delegations`, { tier: 'fast', task: 'x' }, WAIT);
  expect(asked.status).toBe(202);
  expect((await server.call('GET', `/sessions/${id}/workers`)).body.workers).toMatchObject([{ status: 'interrupted' }]);
  await server.call('PATCH', `/sessions/${id}`, { max_cost_usd: '1' });
  expect((await server.event('delegate.completed')).payload).toMatchObject({
    worker_session_id: asked.body.worker_session_id,
  });
});

describe('many at once', () => {
  // Promise 19.16: eight at once keep the places of the session.
  test('keep the places of the session', async () => {
    const wait = gate();
    const { hold, seen, config } = held(wait.opened);
    const server = await startServer({
      tools: [hold],
      config: { ...config, tools: { max_concurrent_per_session: 3 } },
      scenario: scenario(...Array.from({ length: 8 }, (_, i) => holds(`job ${i}.`, `done ${i}`))),
    });
    const { id } = await server.session({ max_cost_usd: '5' });
    const asked = Array.from({ length: 8 }, (_, i) =>
      server.call('POST', `/sessions/${id}/delegations`, { tier: 'fast', task: `job ${i}.` }, WAIT),
    );
    await until(() => seen.inside === 3);
    expect(server.rows().delegations).toBe(3);
    wait.open();
    const outputs = (await Promise.all(asked)).map(({ body }) => body.output);
    expect(outputs).toEqual(Array.from({ length: 8 }, (_, i) => `done ${i}`));
    expect(seen.most).toBe(3);
  });

  // Promise 19.16: eight at once never pass a cap that some of them fit under.
  test('together never pass a cap that some of them fit under, though each costs all that it may', async () => {
    const expensive = { input_tokens: 10, output_tokens: 4000 };
    const server = await startServer({
      config: { turn: { max_output_tokens: 4000 } },
      scenario: scenario(
        ...Array.from({ length: 8 }, (_, i) => worker(`job ${i}.`, { text: `done ${i}`, usage: expensive })),
      ),
    });
    const { id } = await server.session({ max_cost_usd: '0.07', on_reached: 'stop' });
    const answers = await Promise.all(
      Array.from({ length: 8 }, (_, i) =>
        server.call('POST', `/sessions/${id}/delegations`, { tier: 'fast', task: `job ${i}.` }, WAIT),
      ),
    );
    const { budget } = (await server.call('GET', `/sessions/${id}`)).body;
    const done = answers.filter(({ body }) => body.success).length;
    expect(answers.filter(({ body }) => /^budget_exceeded/.test(body.error ?? ''))).toHaveLength(8 - done);
    expect(Number(budget.spent_usd)).toBeGreaterThan(0);
    expect(Number(budget.spent_usd)).toBeLessThanOrEqual(0.07);
  });

  test('the end of the session ends them all, those that wait too', async () => {
    const wait = gate();
    const { hold, seen, config } = held(wait.opened);
    const server = await startServer({
      tools: [hold],
      config: { ...config, tools: { max_concurrent_per_session: 1 } },
      scenario: scenario(holds('a.', '1'), holds('b.', '2')),
    });
    const { id } = await server.session();
    const asked = ['a.', 'b.'].map((task) =>
      server.call('POST', `/sessions/${id}/delegations`, { tier: 'fast', task }, WAIT),
    );
    await until(() => seen.inside === 1);
    const ended = server.call('DELETE', `/sessions/${id}`);
    await until(() => server.engine.ending.has(id));
    wait.open();
    const failed = await server.event('delegate.failed');
    expect(failed.payload).toMatchObject({ failure_mode: 'cancelled_by_user', cancel_scope: 'planner' });
    expect((await ended).status).toBe(200);
    const answers = await Promise.all(asked);
    expect(answers.map(({ body }) => body.error?.code ?? body.error).sort()).toEqual([
      'cancelled_by_user',
      'session_already_ended',
    ]);
    expect(server.events.at(-1)).toMatchObject({ type: 'session.ended', session_id: id });
  });
});

describe('a restart', () => {
  const start = () => {
    const wait = gate();
    const { hold, seen, config } = held(wait.opened);
    const read = tool('hold', { ...{ side_effects: 'read' }, execute: async () => toolText(String(++seen.runs)) });
    const options = { config, scenario: scenario(holds('job', 'done')) };
    return { wait, seen, first: { ...options, tools: [hold] }, second: { ...options, tools: [read] } };
  };

  // Promise 19.16: a restart finishes it once.
  test('finishes it once, its spent calls are not paid again', async () => {
    const { first, second } = start();
    const server = await startServer(first);
    const { id } = await server.session();
    const { body } = await server.call('POST', `/sessions/${id}/delegations`, { tier: 'fast', task: 'job' });
    await server.event('tool.called');
    const next = await restart(server, second);
    const done = await next.event('delegate.completed');
    expect(done).toMatchObject({
      session_id: id,
      turn_id: null,
      payload: { worker_session_id: body.worker_session_id },
    });
    expect(next.rows()).toMatchObject({ delegations: 1, llm_calls: 2 });
    // The one call that was left to make goes on behind the stored one.
    expect(next.adapter.requests.map(({ messages }) => messages.map(({ role }) => role))).toEqual([
      ['user', 'assistant', 'tool'],
    ]);
    const again = await restart(next, second);
    expect(again.events).toEqual([]);
  });

  test('in mode cancel ends it', async () => {
    const { first, second } = start();
    const server = await startServer(first);
    const { id } = await server.session();
    await server.call('POST', `/sessions/${id}/delegations`, { tier: 'fast', task: 'job' });
    await server.event('tool.called');
    const next = await restart(server, { ...second, config: { ...second.config, recovery: { on_start: 'cancel' } } });
    expect(next.events.map((e) => e.type)).toEqual([
      'tool.failed',
      'turn.cancelled',
      'session.ended',
      'delegate.failed',
    ]);
  });

  test('in mode hold it waits for somebody to resume its worker', async () => {
    const { first, second } = start();
    const server = await startServer(first);
    const { id } = await server.session();
    const { body } = await server.call('POST', `/sessions/${id}/delegations`, { tier: 'fast', task: 'job' });
    await server.event('tool.called');
    server.abandon();
    const held = await startServer({
      ...second,
      folder: server.folder,
      config: { ...second.config, recovery: { on_start: 'hold' } },
    });
    const { recover, resumeAll } = await import('#core/engine/lifecycle.ts');
    await recover(held.engine);
    await resumeAll(held.engine);
    const child = `/sessions/${body.worker_session_id}`;
    const { current_turn_id, status } = (await held.call('GET', child)).body;
    expect(status).toBe('interrupted');
    expect((await held.call('POST', `${child}/turns/${current_turn_id}/resume`, {})).status).toBe(202);
    expect((await held.event('delegate.completed')).payload).toMatchObject({
      worker_session_id: body.worker_session_id,
    });
  });

  test('an orderly stop waits for what runs, and the next process goes on', async () => {
    const { wait, first, second } = start();
    const server = await startServer({ ...first, config: { ...first.config, shutdown: { drain_seconds: 3600 } } });
    const { id } = await server.session();
    await server.call('POST', `/sessions/${id}/delegations`, { tier: 'fast', task: 'job' });
    await server.event('tool.called');
    const drained = drain(server.engine);
    expect(
      (await server.call('POST', `/sessions/${id}/delegations`, { tier: 'fast', task: 'job' })).body.error.code,
    ).toBe('service_shutting_down');
    wait.open();
    await drained;
    expect((await server.call('GET', `/sessions/${id}/workers`)).body.workers).toMatchObject([
      { status: 'interrupted' },
    ]);
    const next = await restart(server, second);
    await next.event('delegate.completed');
  });
});

const ONLY_FAST = `
adapters: { scripted: { type: scripted } }
models:
  anthropic:claude-haiku-4-5:
    { adapter: scripted, tier: fast, aliases: [haiku], capabilities: { max_context_tokens: 100000, max_output_tokens: 4096 } }
`;
