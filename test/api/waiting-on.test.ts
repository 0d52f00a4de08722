// What a tree waits for, read off its rows at any moment: by the session and by a snapshot (20 §6).
import { expect, test } from 'vitest';
import { toolText } from '#protocol/tool.ts';
import { type Parsed, startServer, type TestServer } from '../support/http.ts';
import { gate } from '../support/moments.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { tool } from '../support/tools.ts';
import { until } from '../support/until.ts';

const waitingOn = async (server: TestServer, id: string): Promise<Parsed[]> =>
  (await server.call('GET', `/sessions/${id}`)).body.waiting_on;

// Promise 20.11: the root lists what its worker asks, with its ids, until it is answered; in a snapshot too.
test('the root lists what its worker asks a person, with its ids, until that is answered', async () => {
  const write = call('write_file', { path: 'a.txt', content: 'new' });
  const server = await startServer({
    scenario: scenario(
      planner({ tool_calls: [delegate('write it')] }, { text: 'done' }),
      worker('write it', { tool_calls: [write] }, { text: 'written' }),
    ),
  });
  const session = await server.session();
  expect(await waitingOn(server, session.id)).toEqual([]);
  const turnId = await server.submit(session, 'go');
  const asked = await server.event('tool.confirmation_requested');
  const opened = await server.event('delegate.started');
  const worker_id = asked.session_id;
  const id = asked.payload.confirmation_request_id as string;
  const own = { kind: 'approval', session_id: worker_id, id, since: expect.stringMatching(/^20.*Z$/) };
  const its = { kind: 'worker', session_id: session.id, id: worker_id, since: opened.timestamp };
  expect(await waitingOn(server, session.id)).toEqual([{ ...its, since: expect.anything() }, own]);
  expect(await waitingOn(server, worker_id)).toEqual([own]);
  const watcher = server.connect(`/sessions/${session.id}/stream?snapshot=true`);
  const shot = await watcher.frame((f) => f.type === 'snapshot');
  expect(shot.session.waiting_on).toEqual(await waitingOn(server, session.id));

  await server.call('POST', `/confirmations/${id}`, { decision: 'approve' });
  await server.ended(turnId);
  expect(await waitingOn(server, session.id)).toEqual([]);
});

// Promise 20.11: delegations that one request is about wait for its answer alone.
test('while a person is asked about all delegations of a message, none waits for a place', async () => {
  const server = await startServer({
    config: { delegation: { confirm_above_workers: 1 } },
    scenario: scenario(
      planner({ tool_calls: [delegate('one'), delegate('two')] }, { text: 'done' }),
      worker('one', { text: 'first' }),
      worker('two', { text: 'second' }),
    ),
  });
  const session = await server.session();
  const turnId = await server.submit(session, 'go');
  const asked = await server.event('tool.confirmation_requested');
  const { confirmation_request_id: id, tool_use_ids } = asked.payload as Parsed;
  expect(tool_use_ids).toHaveLength(2);
  expect(await waitingOn(server, session.id)).toMatchObject([{ kind: 'approval', session_id: session.id, id }]);
  await server.call('POST', `/confirmations/${id}`, { decision: 'approve' });
  await server.ended(turnId);
});

// Promise 20.11: paused by budget, waiting for a place, streaming: the right kind.
test('a running tool, a call without a place and a streaming model are told apart', async () => {
  const door = gate();
  const slow = tool('slow', { execute: () => door.opened.then(() => toolText('ok')) });
  const server = await startServer({
    tools: [slow],
    config: { tools: { max_concurrent_per_session: 1 } },
    scenario: scenario(
      planner({ tool_calls: [call('slow', { n: 1 }), call('slow', { n: 2 })] }, { text: 'so', hang: true }),
    ),
  });
  const session = await server.session();
  const turnId = await server.submit(session, 'go');
  const { payload } = await server.event('tool.called');
  const listed = await waitingOn(server, session.id);
  expect(listed.map(({ kind }) => kind).sort()).toEqual(['slot', 'tool']);
  expect(listed.find(({ kind }) => kind === 'tool').id).toBe(payload.tool_use_id);
  expect(listed.find(({ kind }) => kind === 'slot').id).not.toBe(payload.tool_use_id);

  door.open();
  const started = await server.event('llm.call_started', (e) => e.payload.call_index === 2);
  const { request_id } = started.payload;
  const model = { kind: 'model', session_id: session.id, id: request_id, since: started.timestamp };
  expect(await waitingOn(server, session.id)).toEqual([model]);
  await server.call('POST', `/sessions/${session.id}/turns/${turnId}/cancel`, {});
  await server.ended(turnId);
  expect(await waitingOn(server, session.id)).toEqual([]);
});

// Promise 20.11: paused by budget.
test('a turn that a limit paused waits for money since then', async () => {
  const usage = { input_tokens: 1500, output_tokens: 100 };
  const server = await startServer({
    config: { turn: { max_llm_calls: 50, max_output_tokens: 100, timeout_seconds: null } },
    scenario: scenario([{ match: {}, times: 'inf', respond: { tool_calls: [call('list_files', {})], usage } }]),
  });
  const session = await server.session({ initial_active_model: 'haiku', max_cost_usd: '0.009' });
  const turnId = await server.submit(session, 'go');
  const { timestamp } = await server.event('budget.exceeded');
  await until(() => server.engine.locks.activeTurns().length === 0);
  const money = { kind: 'budget', session_id: session.id, id: turnId, since: timestamp };
  expect(await waitingOn(server, session.id)).toEqual([money]);
});
