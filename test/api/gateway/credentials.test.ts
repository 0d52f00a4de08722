// Where a client's own key may go: to the address that it is meant for (19 §2.7).
import fs from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { registryAt } from '../../support/registry-at.ts';
import { startByteProvider } from './provider.ts';
import { jsonOf, startGateway } from './world.ts';

const OPUS = 'claude-opus-4-7';
const ask = (model: string) => ({ model, max_tokens: 50, messages: [{ role: 'user', content: 'hi' }] });

async function startWithTwo(credentials: 'client' | 'server') {
  const [vendor, other] = [await startByteProvider(), await startByteProvider()];
  onTestFinished(() => vendor.close());
  onTestFinished(() => other.close());
  const models = `  other:cheap: { wire_name: cheap, capabilities: { max_context_tokens: 200000, max_output_tokens: 8192, supports_tools: true } }
`;
  const registry = registryAt(vendor, models).replace(
    'models:',
    `  other: { type: anthropic, base_url: ${other.anthropicUrl}, key_optional: true }
  beside: { type: anthropic, base_url: ${vendor.anthropicUrl}/below }
models:
  beside:haiku-too: { aliases: [near], capabilities: { max_context_tokens: 200000, max_output_tokens: 8192 } }`,
  );
  const world = await startGateway(undefined, {
    registry,
    config: { gateway: { credentials, rules_apply_to: 'all' } },
  });
  const rule = (use: string) =>
    fs.writeFileSync(
      path.join(world.folder, 'routing.yaml'),
      `rules:\n  - { name: move, when: { requested_model: "*" }, use: "${use}" }\n`,
    );
  return { world, vendor, other, rule };
}

// Promise 19.35: a client's own key goes to the origin that it is meant for alone.
test.each([OPUS, 'auto'])(
  "a client's own key with %s goes to the origin that it is meant for, whatever a rule says",
  async (model) => {
    const { world, vendor, other, rule } = await startWithTwo('client');
    const headers = { 'x-api-key': 'of-the-client', authorization: 'Bearer of-the-client-too' };
    rule('other:cheap');
    await (await world.post('/v1/messages', ask(model), headers)).text();
    await (await world.post('/v1/messages/count_tokens', ask(model), headers)).text();
    expect(other.received).toEqual([]);
    const { payload } = await world.server.event('route.decided');
    const { chain } = payload as { chain: { tried_rules: { validation_failure: string }[] | null }[] };
    expect(JSON.stringify(chain[2])).toContain('wrong_credentials');
    // Another adapter of the same origin gets it.
    rule('near');
    const near = await world.post('/v1/messages', ask(model), { ...headers, 'x-metis-session': 'new' });
    expect([near.status, near.headers.get('x-metis-model')]).toEqual([200, 'beside:haiku-too']);
    expect(vendor.received.at(-1)).toMatchObject({
      path: '/below/v1/messages',
      headers: { 'x-api-key': 'of-the-client', authorization: 'Bearer of-the-client-too' },
    });
  },
);

test('where nothing else is left the call is refused, in words', async () => {
  const { world, other, vendor, rule } = await startWithTwo('client');
  rule('other:cheap');
  const first = await world.post('/v1/messages', ask('auto'), { 'x-api-key': 'of-the-client' });
  const { sessions } = await world.server.client.listSessions({});
  expect(first.status).toBeLessThan(500);
  await world.server.call('PATCH', `/sessions/${sessions[0]!.id}`, { active_model: 'other:cheap' });
  const answer = await world.post('/v1/messages', ask(OPUS), { 'x-api-key': 'of-the-client' });
  expect(answer.status).toBe(400);
  expect((await jsonOf(answer)).error.message).toContain("the client's own key is for another address");
  expect(other.received).toEqual([]);
  expect(vendor.received.every(({ headers }) => headers['x-api-key'] === 'of-the-client')).toBe(true);
});

test("with the server's keys a rule moves the call, and the client's key stays here", async () => {
  const { world, other, rule } = await startWithTwo('server');
  rule('other:cheap');
  expect((await world.post('/v1/messages', ask(OPUS), { 'x-api-key': 'of-the-client' })).status).toBe(200);
  expect(other.received).toHaveLength(1);
  expect(JSON.stringify(other.received[0]!.headers)).not.toContain('of-the-client');
});
