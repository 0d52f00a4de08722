// What a provider's refusal closes for others: a model, a key's models, or nothing (03 §11, 19 §2.6).
import { describe, expect, test } from 'vitest';
import { jsonOf, startGateway } from './world.ts';

const OPUS = 'claude-opus-4-7';
const HAIKU = 'claude-haiku-4-5';
const ask = (model: string, rest: object = {}) => ({
  model,
  max_tokens: 50,
  messages: [{ role: 'user', content: 'hi' }],
  ...rest,
});
const refusal = (status: number, type: string, message: string) => ({
  status,
  raw: JSON.stringify({ type: 'error', error: { type, message } }),
});

describe('a provider that refuses', () => {
  // Promise 03.24: a 403 for one model leaves the others, and the refusal says how long.
  test('one model with a 403 closes that model, in a sentence that clients show at once, and no other', async () => {
    const denied = refusal(403, 'permission_error', `Your account does not have access to ${OPUS}`);
    const world = await startGateway(({ body }) => (body.model === OPUS ? denied : {}));
    expect((await world.post('/v1/messages', ask(OPUS))).status).toBe(403);
    expect((await world.post('/v1/messages', ask(HAIKU))).status).toBe(200);
    const again = await world.post('/v1/messages', ask(OPUS));
    expect([again.status, again.headers.get('x-should-retry')]).toEqual([400, 'false']);
    const { error } = await jsonOf(again);
    expect(error.type).toBe('invalid_request_error');
    expect(error.message).toMatch(
      /denied the account of this server access to claude-opus-4-7 \d+ s ago\. Metis calls it again in (300|29\d) s; .*ANTHROPIC_API_KEY.*registry file/,
    );
    expect(world.provider.received).toHaveLength(2);
    const { models } = (await world.server.call('GET', '/models')).body;
    const states = models.map(({ id, availability }: { id: string; availability: string }) => [id, availability]);
    expect(states).toContainEqual([`anthropic:${OPUS}`, 'model_unavailable']);
    expect(states).toContainEqual([`anthropic:${HAIKU}`, 'healthy']);
  });

  test('the key with a 401 closes its models, naming the variable and how long', async () => {
    const world = await startGateway(() => refusal(401, 'authentication_error', 'invalid x-api-key'));
    expect((await world.post('/v1/messages', ask(OPUS))).status).toBe(401);
    const again = await world.post('/v1/messages', ask(HAIKU));
    expect(again.status).toBe(400);
    expect((await jsonOf(again)).error.message).toMatch(
      /rejected the key .* again in (300|29\d) s; check ANTHROPIC_API_KEY \(environment, or \.env .*doctor --online/,
    );
    expect(world.provider.received).toHaveLength(1);
  });

  // Promise 03.24: a client's own bad request closes nothing for others.
  test.each([
    [
      'a name that the client made up for a listed model',
      refusal(404, 'not_found_error', 'model: x'),
      `${OPUS}-20991231`,
    ],
    ['a name that no registry lists', refusal(404, 'not_found_error', 'model: x'), 'claude-made-up'],
    ['a file that is not there', refusal(404, 'not_found_error', 'File not found: model.pdf'), OPUS],
    ['what the request says', refusal(403, 'moderation', 'Your input was flagged for the model'), OPUS],
    ['an answer too long for the credit', refusal(402, 'x', 'can only afford 3 tokens'), OPUS],
  ])('%s closes nothing for others', async (_, answer, name) => {
    const world = await startGateway(({ body }) => (body.max_tokens === 7 ? answer : {}));
    for (let i = 0; i < 6; i++)
      expect((await world.post('/v1/messages', ask(name, { max_tokens: 7 }))).status).toBe(answer.status);
    for (const model of [OPUS, HAIKU]) expect((await world.post('/v1/messages', ask(model))).status).toBe(200);
  });

  test("the limits of a client's own key closes nothing for others", async () => {
    const config = { gateway: { credentials: 'client' as const } };
    for (const answer of [
      refusal(429, 'rate_limit_error', 'slow down'),
      refusal(403, 'permission_error', `no access to the model ${OPUS}`),
      refusal(404, 'not_found_error', `model: ${OPUS}`),
    ]) {
      const world = await startGateway(({ headers }) => (headers['x-api-key'] === 'poor' ? answer : {}), { config });
      for (let i = 0; i < 6; i++)
        expect((await world.post('/v1/messages', ask(OPUS), { 'x-api-key': 'poor' })).status).toBe(answer.status);
      expect((await world.post('/v1/messages', ask(OPUS), { 'x-api-key': 'rich' })).status).toBe(200);
    }
  });
});

test("with the server's key a client cannot choose the account that it acts for", async () => {
  const world = await startGateway();
  const headers = { 'openai-organization': 'org-other', 'openai-project': 'proj-other', 'x-other': 'kept' };
  expect((await world.post('/v1/chat/completions', { model: 'gpt-5', messages: [] }, headers)).status).toBe(200);
  const [{ headers: sent }] = world.provider.received as [(typeof world.provider.received)[number]];
  expect(sent).toMatchObject({ 'x-other': 'kept' });
  expect(sent['openai-organization'] ?? sent['openai-project']).toBeUndefined();
});
