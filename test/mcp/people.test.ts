// Who may call at `/mcp`, and whose sessions its delegations are (23 §1).
import { expect, test } from 'vitest';
import { createMetisClient } from '#client/client.ts';
import { hash } from '../api/people/world.ts';
import { doorHome, mcpOverHttp, PROTOCOLS, serveIn, usage } from '../support/doors.ts';

const ANSWERS = [{ match: { role: 'worker' }, times: 'inf', respond: { text: 'done', usage } }];
const DELEGATE = { name: 'delegate', arguments: { tier: 'fast', task: 'look' } };
const token = (name: string, role: string) => ({ token_sha256: hash(`${name}-secret`), role });
const TOKENS = {
  ann: token('ann', 'member'),
  bob: token('bob', 'member'),
  eve: token('eve', 'viewer'),
  root: token('root', 'admin'),
};

// Promise 23.1: at /mcp members and admins delegate, a viewer does not.
// Promise 23.6: two tokens have a session each at /mcp, stateless as well.
test.each(PROTOCOLS)('at /mcp of %s each token has its own session, and a viewer none', async (protocol) => {
  const home = doorHome(ANSWERS, { server: { tokens: TOKENS } });
  const { url } = await serveIn(home);
  const delegateAs = async (name: string) => {
    const { client } = await mcpOverHttp(url, home, { protocol, token: `${name}-secret` });
    return client.callTool(DELEGATE);
  };
  for (const name of ['ann', 'bob', 'root'])
    expect((await delegateAs(name)).structuredContent).toMatchObject({ success: true });
  const refused = await delegateAs('eve').catch((error: unknown) => ({ isError: true, content: String(error) }));
  expect([refused.isError, JSON.stringify(refused.content)]).toEqual([true, expect.stringContaining('viewer')]);
  const { sessions } = await createMetisClient({ baseUrl: url, token: 'root-secret' }).listSessions();
  expect(sessions.map(({ caller, owner }) => [caller, owner?.id]).sort()).toEqual([
    ['ann', 'file:ann'],
    ['bob', 'file:bob'],
    ['root', 'file:root'],
  ]);
});
