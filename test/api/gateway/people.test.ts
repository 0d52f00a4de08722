// Who may call through the gateway, and whose sessions its calls are (23 §1).
import { expect, test } from 'vitest';
import { hash, TOKENS } from '../people/world.ts';
import { jsonOf, startGateway } from './world.ts';

const BODY = { model: 'claude-opus-4-7', max_tokens: 50, messages: [{ role: 'user', content: 'hello' }] };
const bearer = (token: string) => ({ authorization: `Bearer ${token}`, 'user-agent': 'claude-cli/2.1.0' });

// Promise 23.1: /v1 takes tokens of members and admins and keys of the gateway, a viewer's token is refused.
// Promise 23.6: two tokens with one User-Agent at /v1 have two sessions.
test('members have a session each at /v1, a key its own, and a viewer none', async () => {
  const keys = { ci: { token_sha256: hash('ci-secret'), daily_usd: null } };
  const { post, server } = await startGateway(undefined, { config: { server: { tokens: TOKENS }, gateway: { keys } } });
  const refused = await post('/v1/messages', BODY, bearer('eve-secret'));
  expect([refused.status, (await jsonOf(refused)).error.type]).toEqual([403, 'permission_error']);
  for (const name of ['ann', 'bob', 'ci', 'ann'])
    expect((await post('/v1/messages', BODY, bearer(`${name}-secret`))).status).toBe(200);
  const list = await fetch(`${server.url}/sessions`, { headers: bearer('root-secret') });
  const { sessions } = await jsonOf(list);
  const seen = sessions.map(({ caller, owner, client_ref }: Record<string, unknown>) => ({
    caller,
    owner,
    client_ref,
  }));
  const [ref] = seen.map(({ client_ref }: { client_ref: string }) => client_ref);
  expect(seen).toEqual([
    { caller: 'ci', owner: { id: 'key:ci', name: 'ci' }, client_ref: ref },
    { caller: 'bob', owner: { id: 'file:bob', name: 'bob' }, client_ref: ref },
    { caller: 'ann', owner: { id: 'file:ann', name: 'ann' }, client_ref: ref },
  ]);
  // A key opens /v1 and nothing else.
  expect((await fetch(`${server.url}/sessions`, { headers: bearer('ci-secret') })).status).toBe(401);
});
