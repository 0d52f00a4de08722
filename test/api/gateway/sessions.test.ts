// A client's own sessions and sub-agents as one tree, and which model each of their calls goes to (19 §2.3, §2.4).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { gatewayRoot } from '#core/engine/gateway-call.ts';
import type { AnyEvent } from '#protocol/event.ts';
import type { RealServer } from '../../support/real-server.ts';
import { claudeCode, type GatewayWorld, jsonOf, startGateway } from './world.ts';

const OPUS = 'claude-opus-4-7';

function ask(world: GatewayWorld, headers: Readonly<Record<string, string>>, model = OPUS): Promise<Response> {
  return world.post('/v1/messages', { model, max_tokens: 50, messages: [{ role: 'user', content: 'hi' }] }, headers);
}

async function tree(server: RealServer) {
  const { sessions } = await server.client.listSessions({ include_workers: true, limit: 100 });
  return sessions.toReversed();
}

const routes = (events: readonly AnyEvent[]) => events.filter(({ type }) => type === 'route.decided');

describe('a main agent with two sub-agents, one of them with one of its own', () => {
  const claude = (agent?: string, parent?: string, type?: string) => claudeCode('s1', agent, parent, type);
  const codex = (thread: string, parent?: string) => ({
    'session-id': 's1',
    'thread-id': thread,
    'user-agent': 'codex_cli_rs/0.100.0 (Linux)',
    ...(parent === undefined ? {} : { 'x-codex-parent-thread-id': parent }),
  });
  const metis = (agent?: string, parent?: string) => ({
    'x-metis-session': 's1',
    ...(agent === undefined ? {} : { 'x-metis-agent': agent }),
    ...(parent === undefined ? {} : { 'x-metis-parent-agent': parent }),
  });
  // Each with its session's name and the one above, as both of its releases send them.
  const opencode = (session: string, above?: string) => ({
    'x-session-affinity': session,
    'user-agent': 'opencode/1.2.0 ai-sdk/provider-utils/3.0.20 runtime/bun/1.3.5',
    ...(session === 'b' ? {} : { 'x-session-id': session, 'session-id': session }),
    ...(above === undefined ? {} : { 'x-parent-session-id': above }),
  });
  // Promise 19.4: main agent, two sub-agents, one nested: four sessions, parents, depths, sums; a restart continues them; Codex likewise.
  // Promise 19.29: opencode's tree, also after a restart.
  test.each([
    ['Claude Code', 'claude-cli', [claude(), claude('a', undefined, 'Explore'), claude('b'), claude('c', 'a')]],
    ['Codex', 'codex_cli_rs', [codex('s1'), codex('a', 's1'), codex('b', 's1'), codex('c', 'a')]],
    ['opencode', 'opencode', [opencode('s1'), opencode('a', 's1'), opencode('b', 's1'), opencode('c', 'a')]],
    ['any client', 'node', [metis(), metis('a'), metis('b'), metis('c', 'a')]],
  ])(
    '%s: four sessions, right parents, sums of each tree, and the same after a restart',
    async (name, client, agents) => {
      const world = await startGateway();
      for (const headers of agents) expect((await ask(world, headers)).status).toBe(200);
      const [root, a, b, c] = await tree(world.server);
      expect([root, a, b, c].map((one) => [one!.client_ref, one!.delegation_depth, one!.client])).toEqual([
        ['s1', 0, client],
        ['a', 1, client],
        ['b', 1, client],
        ['c', 2, client],
      ]);
      expect([a, b, c].map((one) => one!.parent_session_id)).toEqual([root!.id, root!.id, a!.id]);
      expect([a, b, c].every((one) => one!.root_session_id === root!.id && one!.parent_tool_use_id === null)).toBe(
        true,
      );
      if (name === 'Claude Code') expect(a!.worker_name).toBe('Explore');
      const costs = await world.server.client.getCost({ group_by: 'parent_session', from: 'all' });
      const rows = costs.data as { parent_session_id?: string; call_count: number; worker_call_count?: number }[];
      expect(rows.find((row) => row.parent_session_id === root!.id)).toMatchObject({
        call_count: 3,
        worker_call_count: 2,
      });
      expect(rows.find((row) => row.parent_session_id === a!.id)).toMatchObject({
        call_count: 1,
        worker_call_count: 1,
      });
      const whole = await world.server.client.getCost({ group_by: 'root_session', from: 'all' });
      expect(whole.data).toEqual([expect.objectContaining({ root_session_id: root!.id, call_count: 4 })]);

      await world.server.close();
      const again = await startGateway(undefined, { folder: world.folder });
      for (const headers of agents) expect((await ask(again, headers)).status).toBe(200);
      expect((await tree(again.server)).map(({ id }) => id)).toEqual([root!.id, a!.id, b!.id, c!.id]);
      const started = again.server.events.flatMap((e) => (e.type === 'llm.call_started' ? [e.payload.call_index] : []));
      expect(started).toEqual([2, 2, 2, 2]);
    },
  );
});

// Promise 19.29: sessions of pi, goose and older Codex.
test.each([
  ['pi', { session_id: 's1', 'x-client-request-id': 's1', 'user-agent': 'pi/0.60.0' }],
  ['pi behind an aggregator', { 'x-session-id': 's1', 'user-agent': 'pi/0.60.0' }],
  ['Codex before it named threads', { session_id: 's1', conversation_id: 's1', 'user-agent': 'codex_cli_rs/0.50.0' }],
  ['goose', { 'agent-session-id': 's1', 'user-agent': 'goose/1.20' }],
])('%s: the sessions of a day are apart, each with its own cap and stop', async (_, headers) => {
  const world = await startGateway();
  const second = Object.fromEntries(Object.entries(headers).map(([name, v]) => [name, v === 's1' ? 's2' : v]));
  for (const one of [headers, second, headers]) expect((await ask(world, one)).status).toBe(200);
  const sessions = await tree(world.server);
  expect(sessions.map(({ client_ref, is_worker }) => [client_ref, is_worker])).toEqual([
    ['s1', false],
    ['s2', false],
  ]);
  await world.server.call('DELETE', `/sessions/${sessions[0]!.id}`);
  expect((await ask(world, headers)).status).toBe(400);
  expect((await ask(world, second)).status).toBe(200);
});

// Promise 19.29: a session above that has not called yet.
test('a session below one that has not called yet, and one below itself', async () => {
  const world = await startGateway();
  await ask(world, { 'x-session-id': 'a', 'x-parent-session-id': 's1' });
  await ask(world, { 'x-session-id': 's1' });
  await ask(world, { 'x-session-id': 's2', 'x-parent-session-id': 's2' });
  const [root, a, other] = await tree(world.server);
  expect([root, a, other].map((one) => [one!.client_ref, one!.parent_session_id])).toEqual([
    ['s1', null],
    ['a', root!.id],
    ['s2', null],
  ]);
});

// Promise 19.29: the stop of a main session.
test('the stop of a main session refuses the calls of a sub-agent that names only the session above it', async () => {
  const world = await startGateway();
  const nested = { 'x-session-id': 'b', 'x-parent-session-id': 'a' };
  for (const headers of [{ 'x-session-id': 's1' }, { 'x-session-id': 'a', 'x-parent-session-id': 's1' }, nested])
    await ask(world, headers);
  const [root] = await tree(world.server);
  const { engine } = world.server;
  const named = {
    caller: '',
    owner: null,
    product: 'opencode',
    root: 'b',
    worker: null,
    parent: null,
    above_root: 'a',
  };
  const client = { ...named, worker_type: null, workspace: null, budget_usd: null };
  expect(await gatewayRoot(engine, client)).toBe(root!.id);
  await world.server.call('DELETE', `/sessions/${root!.id}`);
  expect((await ask(world, nested)).status).toBe(400);
  const size = { model: OPUS, messages: [{ role: 'user', content: 'hi' }] };
  expect((await world.post('/v1/messages/count_tokens', size, nested)).status).toBe(400);
});

test('two first calls of a client at once open one session', async () => {
  const world = await startGateway();
  await Promise.all(Array.from({ length: 5 }, (_, i) => ask(world, claudeCode('s1', i < 2 ? undefined : 'a'))));
  expect((await tree(world.server)).map(({ client_ref }) => client_ref)).toEqual(['s1', 'a']);
  expect(world.server.events.filter(({ type }) => type === 'llm.call_completed')).toHaveLength(5);
});

test('a client without a name of its own has one session a day for each program; an unknown parent is the main agent', async () => {
  const world = await startGateway();
  await ask(world, { 'user-agent': 'aider/0.80' });
  await ask(world, { 'user-agent': 'aider/0.81' });
  await ask(world, { 'user-agent': 'zed/1 (x)', 'x-metis-session': 'no\u00fcmlaut' });
  await ask(world, claudeCode('s1', 'x', 'nobody'));
  const sessions = await tree(world.server);
  const today = new Date().toISOString().slice(0, 10);
  expect(sessions.slice(0, 3).map(({ client_ref }) => client_ref)).toEqual([`aider ${today}`, `zed ${today}`, 's1']);
  expect(sessions[3]!.parent_session_id).toBe(sessions[2]!.id);
});

test('a session of the gateway takes no turns, and runs while a call of it is open', async () => {
  let go = () => {};
  const held = new Promise<void>((resolve) => {
    go = resolve;
  });
  const world = await startGateway(() => ({ before: held }));
  const pending = ask(world, claudeCode('s1', 'a'));
  const { session_id } = await world.server.event('llm.call_started');
  const [root] = await tree(world.server);
  expect(root).toMatchObject({ status: 'idle', active_worker_count: 1 });
  expect(await world.server.client.getSession(session_id)).toMatchObject({ status: 'running' });
  const running = await world.server.client.listSessions({ include_workers: true, status: ['running'] });
  expect(running.sessions.map(({ id }) => id)).toEqual([session_id]);
  expect((await world.server.call('GET', '/healthz')).body).toMatchObject({ active_sessions: 0, active_workers: 1 });
  const turn = await world.server.call('POST', `/sessions/${root!.id}/turns`, { content: 'hi' });
  expect([turn.status, turn.body.error.code]).toEqual([409, 'session_is_gateway']);
  go();
  expect((await pending).status).toBe(200);
  await world.server.event('llm.call_completed');
  expect((await world.server.call('GET', '/healthz')).body).toMatchObject({ active_workers: 0 });
});

// Promise 19.16: a session of the gateway takes delegations only with a workspace.
test('a session of the gateway takes delegations where its client named a workspace, and there alone', async () => {
  const world = await startGateway();
  expect((await ask(world, claudeCode('s1'))).status).toBe(200);
  const named = { ...claudeCode('s2'), 'x-metis-workspace': world.folder };
  expect((await ask(world, named)).status).toBe(200);
  const [without, within] = await tree(world.server);
  const delegate = (id: string) =>
    world.server.call('POST', `/sessions/${id}/delegations`, { tier: 'fast', task: 'x' }, { prefer: 'wait=60' });
  const refused = await delegate(without!.id);
  expect([refused.status, refused.body.error]).toEqual([
    409,
    { code: 'session_is_gateway', message: expect.stringContaining('x-metis-workspace') },
  ]);
  expect(await delegate(within!.id)).toMatchObject({ status: 200, body: { success: true } });
});

describe('the model', () => {
  const RULE =
    'rules:\n  - name: cheap\n    when: { is_worker: true, requested_model: "claude-opus-*" }\n    use: haiku\n';
  const policy = (world: GatewayWorld, text: string) => fs.writeFileSync(path.join(world.folder, 'routing.yaml'), text);

  // Promise 19.5: a rule for workers under rules_apply_to none changes nothing.
  test('without rules_apply_to a rule changes nothing: the model asked for, by slot 1 of seven', async () => {
    const world = await startGateway();
    policy(world, RULE);
    await ask(world, claudeCode('s1', 'a'));
    const { payload } = await world.server.event('route.decided');
    expect(payload).toMatchObject({ chosen_model: `anthropic:${OPUS}`, winner_index: 0, requested_model: OPUS });
    expect(payload.chain).toHaveLength(7);
    expect(world.provider.received[0]!.body.model).toBe(OPUS);
  });

  // Promise 19.5: under workers only the name differs, slot 3 chose, savings show it, the main agent's does not differ.
  test('for workers a rule replaces the name and not another byte; savings show it, and the main agent keeps its model', async () => {
    const world = await startGateway(undefined, { config: { gateway: { rules_apply_to: 'workers' } } });
    policy(world, RULE);
    const body = `{"max_tokens":50, "model" : "${OPUS}","messages":[{"role":"user","content":"\\"model\\":\\"x\\""}],"x":1.0}`;
    await world.post('/v1/messages', body, claudeCode('s1'));
    const response = await world.post('/v1/messages', body, claudeCode('s1', 'a'));
    expect(response.headers.get('x-metis-model')).toBe('anthropic:claude-haiku-4-5');
    expect(world.provider.received.map(({ bytes }) => bytes.toString())).toEqual([
      body,
      body.replace(OPUS, 'claude-haiku-4-5'),
    ]);
    const [, decided] = routes(world.server.events);
    expect(decided!.payload).toMatchObject({ winner_index: 2 });
    expect((decided!.payload.chain as { verdict: string }[]).map(({ verdict }) => verdict)).toEqual([
      'not_applicable',
      'not_applicable',
      'chose',
      'not_evaluated',
      'not_evaluated',
      'not_evaluated',
      'not_evaluated',
    ]);
    const { data } = await world.server.client.getSavings({ baseline: 'planner', from: 'all' });
    expect(data.rows_total).toBe(1);
    expect(Number(data.savings_usd)).toBeGreaterThan(0);
  });

  // Promise 19.6: an edited rule: a running sub-agent keeps its model without a second decision, a new one follows.
  test('a decision stands for its session when the rule is edited; a new sub-agent and a changed session follow the edit', async () => {
    const world = await startGateway(undefined, { config: { gateway: { rules_apply_to: 'all' } } });
    policy(world, RULE);
    await ask(world, claudeCode('s1', 'a'));
    policy(world, 'rules: []\n');
    await ask(world, claudeCode('s1', 'a'));
    await ask(world, claudeCode('s1', 'b'));
    const models = () => world.provider.received.map(({ body }) => body.model);
    expect(models()).toEqual(['claude-haiku-4-5', 'claude-haiku-4-5', OPUS]);
    expect(routes(world.server.events)).toHaveLength(2);
    const [root] = await tree(world.server);
    await world.server.client.updateSession(root!.id, { max_cost_usd: '5' });
    await ask(world, claudeCode('s1', 'a'));
    expect(models().at(-1)).toBe(OPUS);
  });

  // Promise 19.7: dated, windowed and unlisted names pass.
  test('dated, windowed and unlisted names pass as they are; ids and aliases become names of the wire', async () => {
    const world = await startGateway();
    const names = ['claude-opus-4-7-20260101', 'claude-opus-4-7[1m]', 'claude-unheard-of', 'opus', `anthropic:${OPUS}`];
    for (const name of names) expect((await ask(world, claudeCode('s1'), name)).status).toBe(200);
    expect(world.provider.received.map(({ body }) => body.model)).toEqual([...names.slice(0, 3), OPUS, OPUS]);
    const rows = world.server.events.flatMap((e) => (e.type === 'llm.call_completed' ? [e.payload] : []));
    expect(rows.map(({ model, priced }) => [model, priced])).toEqual([
      [`anthropic:${OPUS}`, true],
      [`anthropic:${OPUS}`, true],
      ['anthropic:claude-unheard-of', false],
      [`anthropic:${OPUS}`, true],
      [`anthropic:${OPUS}`, true],
    ]);
  });

  // Promise 19.7: unlisted under a limit refused, another wire rejected with wrong_wire.
  test('an unlisted name under a limit, and a model of another wire, are refused and nothing is sent', async () => {
    const world = await startGateway();
    const limited = await ask(world, { ...claudeCode('s1'), 'x-metis-budget-usd': '1' }, 'claude-unheard-of');
    expect(limited.status).toBe(400);
    expect((await jsonOf(limited)).error).toMatchObject({ type: 'invalid_request_error', message: /not_priced/ });
    const foreign = await ask(world, claudeCode('s2'), 'gpt');
    expect(foreign.status).toBe(400);
    const { error } = await jsonOf(foreign);
    expect(error.message).toMatch(/openai:gpt-5 cannot be asked by messages; models that can: claude-opus-4-7/);
    expect(world.provider.received).toEqual([]);
    const [, decided] = routes(world.server.events);
    expect((decided!.payload.chain as { validation_failure: string }[])[0]!.validation_failure).toBe('wrong_wire');
  });

  // Promise 19.30: models named by a refusal.
  test('an unlisted name under a limit is told where it is served, or that it is not listed', async () => {
    const { post } = await startGateway();
    const limit = { 'x-metis-budget-usd': '1' };
    const refused = async (path: string, model: string) => {
      const body = { model, max_tokens: 50, messages: [{ role: 'user', content: 'hi' }] };
      const answer = await post(path, body, { ...limit, ...claudeCode(model) });
      expect(answer.status).toBe(400);
      return (await jsonOf(answer)).error.message;
    };
    const elsewhere = '"gpt-5-20260101" is served at /v1/chat/completions and /v1/responses';
    expect(await refused('/v1/messages', 'gpt-5-20260101')).toContain(`not_priced: ${elsewhere}`);
    expect(await refused('/v1/chat/completions', OPUS)).toContain(`not_priced: "${OPUS}" is served at /v1/messages`);
    expect(await refused('/v1/messages', 'claude-opsu')).toContain(
      'not_priced: the registry does not list "claude-opsu", and no limit can hold what has no price; a file of',
    );
    // The models of that wire alone.
    expect(await refused('/v1/messages', 'claude-opsu')).toMatch(
      /models of messages with a price: claude-opus-4-7, claude-haiku-4-5(?!,)/,
    );
    expect(await refused('/v1/chat/completions', 'gpt-6')).toMatch(
      /models of chat with a price: gpt-5, gpt-5-mini(?!,)/,
    );
  });

  test('auto asks for a decision, which falls to the default that speaks the wire', async () => {
    const world = await startGateway();
    policy(world, `rules: []\nglobal_default: haiku\n`);
    const response = await ask(world, claudeCode('s1'), 'claude-auto');
    expect(response.headers.get('x-metis-model')).toBe('anthropic:claude-haiku-4-5');
    const { payload } = await world.server.event('route.decided');
    expect(payload).toMatchObject({ winner_index: 6, requested_model: 'claude-auto' });
  });

  test('an auth failure takes the provider out, and the next call shows at once what to check', async () => {
    const raw = '{"type":"error","error":{"type":"authentication_error","message":"no"}}';
    const world = await startGateway(() => ({ status: 401, raw }));
    expect((await ask(world, claudeCode('s1'))).status).toBe(401);
    const second = await ask(world, claudeCode('s1'));
    expect([second.status, second.headers.get('x-should-retry')]).toEqual([400, 'false']);
    expect((await jsonOf(second)).error).toMatchObject({
      type: 'invalid_request_error',
      message: expect.stringContaining('check ANTHROPIC_API_KEY'),
    });
    expect(world.provider.received).toHaveLength(1);
  });
});
