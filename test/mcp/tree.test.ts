// A client of the gateway that also delegates over MCP: one tree, one cap (19 §3.2).
import { expect, test } from 'vitest';
import { claudeCode, startGateway } from '../api/gateway/world.ts';
import { doorHome, mcpOverStdio } from '../support/doors.ts';

const MESSAGE = { model: 'claude-opus-4-7', max_tokens: 100, messages: [{ role: 'user', content: 'hi' }] };

// Promise 19.20: a client's calls through the gateway and its workers over MCP are one tree under one cap.
test('a session of Claude Code has its calls and its workers in one tree, under one cap', async () => {
  const { server, post } = await startGateway(() => ({ text: 'done', usage: { input: 100, output: 10 } }));
  const home = doorHome([]);
  const say = () => post('/v1/messages', MESSAGE, claudeCode('abc'));
  expect((await say()).status).toBe(200);
  const [root] = (await server.client.listSessions()).sessions;
  expect(root).toMatchObject({ door: 'gateway', client_ref: 'abc' });

  const { client } = await mcpOverStdio(home, {
    args: ['--server', server.url],
    env: { CLAUDE_CODE_SESSION_ID: 'abc' },
  });
  const delegate = () => client.callTool({ name: 'delegate', arguments: { tier: 'fast', task: 'x' } });
  expect((await delegate()).structuredContent).toMatchObject({ success: true, output: 'done' });
  expect((await say()).status).toBe(200);

  const { sessions } = await server.client.listSessions({ include_workers: true });
  expect(sessions).toHaveLength(2);
  expect(sessions.map(({ root_session_id }) => root_session_id)).toEqual([root!.id, root!.id]);
  expect(sessions.map(({ workspace_path }) => workspace_path)).toEqual([home.workspace, home.workspace]);
  const { data } = await server.client.getCost({ group_by: 'root_session', from: 'all' });
  expect(data).toMatchObject([{ root_session_id: root!.id, call_count: 3, worker_call_count: 1 }]);

  await server.client.updateSession(root!.id, { max_cost_usd: '0.000001' });
  expect((await say()).status).toBe(402);
  const refused = await delegate();
  expect(refused).toMatchObject({ isError: true, content: [{ text: expect.stringMatching(/^budget_exceeded: /) }] });
});
