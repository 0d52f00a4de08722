// Effort in the gateway: the client's own is stored and passed on, and changed only for another model (22 §1).
import fs from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { expect, test } from 'vitest';
import { claudeCode, type GatewayWorld, startGateway } from './world.ts';

const CAPS =
  '{ max_context_tokens: 200000, max_output_tokens: 8192, supports_structured_output: true, supports_prompt_caching: true }';
const MODELS = `
  anthropic:claude-big: { tier: balanced, aliases: [big], pricing_id: anthropic:claude-opus-4-7, efforts: [low, medium, high, max], default_effort: high, capabilities: ${CAPS} }
  anthropic:claude-small: { aliases: [small], pricing_id: anthropic:claude-haiku-4-5, efforts: [low, medium], default_effort: medium, capabilities: ${CAPS} }
  openai:sol: { aliases: [sol], pricing_id: openai:gpt-5, efforts: { chat: [none], responses: [low, high] }, default_effort: high, capabilities: ${CAPS} }
`;
const start = (rules: string, config: object = { rules_apply_to: 'all' }) =>
  startGateway(undefined, { models: MODELS, config: { gateway: config } }).then((world) => {
    if (rules !== '') fs.writeFileSync(path.join(world.folder, 'routing.yaml'), rules);
    return world;
  });
const messages = (model: string, rest = '') =>
  `{"max_tokens":50, "model" : "${model}",${rest}"messages":[{"role":"user","content":"hi"}],"x":1.0}`;
const bodies = (world: GatewayWorld) => world.provider.received.map(({ bytes }) => bytes.toString());
const ask = async (world: GatewayWorld, body: string, wire = '/v1/messages', session = 's1') => {
  const before = world.server.events.filter(({ type }) => type === 'llm.call_completed').length;
  const answer = await world.post(wire, body, claudeCode(session));
  expect([answer.status, answer.ok ? '' : await answer.text()]).toEqual([200, '']);
  let seen = 0;
  await world.server.event('llm.call_completed', () => ++seen > before);
};
const decided = (world: GatewayWorld) =>
  world.server.events.filter(({ type }) => type === 'route.decided').map(({ payload }) => payload);
async function ledger(world: GatewayWorld): Promise<unknown[]> {
  const db = new Database(path.join(world.folder, 'metis.db'), { readonly: true });
  const rows = db.prepare('SELECT model, effort FROM llm_calls ORDER BY seq').raw().all();
  db.close();
  return rows;
}

// Promise 22.1: in the gateway the client's own effort passes unchanged, and is stored and reported.
test('the effort of a client passes as it came and is stored, also one that this server does not know', async () => {
  const world = await start('', {});
  const own = [
    messages('big', ''),
    messages('claude-big', '"output_config":{"effort":"low"},'),
    messages('claude-haiku-4-5', '"output_config" : { "effort" : "max" },'),
    messages('claude-big', '"output_config":{"effort":"extreme"},'),
  ];
  for (const body of own) await ask(world, body);
  expect(bodies(world)).toEqual([messages('claude-big', ''), ...own.slice(1)]);
  expect(await ledger(world)).toEqual([
    ['anthropic:claude-big', 'high'],
    ['anthropic:claude-big', 'low'],
    ['anthropic:claude-haiku-4-5', 'max'],
    ['anthropic:claude-big', ''],
  ]);
  expect(decided(world).map(({ chosen_effort }) => chosen_effort)).toEqual(['high', 'low', 'max']);
  const { id } = (await world.server.client.listSessions({})).sessions[0]!;
  expect(await world.server.client.getSession(id)).toMatchObject({ last_model: 'anthropic:claude-big' });
});

// Promise 22.1: where another model won, the client's effort becomes the nearest lower one that it has.
test('for another model the effort becomes its nearest lower one, or none, by splice, and nothing else changes', async () => {
  const rules = 'rules:\n  - { name: r, when: { requested_model: "*" }, use: small }\n';
  const world = await start(rules);
  const given = '"output_config" : {"format":{"a":1.0}, "effort" : "max"},';
  await ask(world, messages('claude-big', given));
  await ask(world, messages('claude-big', given.replace('"max"', '"low"')));
  expect(bodies(world)).toEqual([
    messages('claude-small', given.replace('"max"', '"medium"')),
    messages('claude-small', given.replace('"max"', '"low"')),
  ]);
  fs.writeFileSync(path.join(world.folder, 'routing.yaml'), rules.replace('small', 'haiku'));
  await ask(world, messages('claude-opus-4-7', given), '/v1/messages', 's2');
  expect(bodies(world)[2]).toBe(messages('claude-haiku-4-5', given.replace('"max"', 'null')));
  expect(await ledger(world)).toEqual([
    ['anthropic:claude-small', 'medium'],
    ['anthropic:claude-small', 'low'],
    ['anthropic:claude-haiku-4-5', ''],
  ]);
});

// Promise 22.1: for auto the effort of the decision is spliced in where the client names none.
test('for auto, a rule and a name with an effort it is spliced in where the client names none', async () => {
  const world = await start('global_default: small:low\n');
  await ask(world, messages('auto'));
  await ask(world, messages('auto', '"output_config":{"effort":"medium"},'));
  await ask(world, messages('auto', '"output_config":{"format":{}},'));
  await ask(world, messages('big:max'));
  expect(bodies(world)).toEqual([
    messages('claude-small').replace('{', '{"output_config":{"effort":"low"},'),
    messages('claude-small', '"output_config":{"effort":"medium"},'),
    messages('claude-small', '"output_config":{"effort":"low","format":{}},'),
    messages('claude-big').replace('{', '{"output_config":{"effort":"max"},'),
  ]);
  expect(await ledger(world)).toEqual([
    ['anthropic:claude-small', 'low'],
    ['anthropic:claude-small', 'medium'],
    ['anthropic:claude-small', 'low'],
    ['anthropic:claude-big', 'max'],
  ]);
});

test('on each of the OpenAI wires it is the field of that wire, and of the efforts that the wire has', async () => {
  const world = await start('global_default: sol\n');
  await ask(world, '{"model":"auto","messages":[{"role":"user","content":"hi"}]}', '/v1/chat/completions');
  await ask(world, '{"model":"auto","input":"hi"}', '/v1/responses', 's2');
  fs.writeFileSync(path.join(world.folder, 'routing.yaml'), 'global_default: sol:low\n');
  await ask(world, '{"model":"auto","reasoning":{},"input":"hi"}', '/v1/responses', 's3');
  expect(bodies(world)).toEqual([
    '{"reasoning_effort":"none","model":"sol","messages":[{"role":"user","content":"hi"}]}',
    '{"model":"sol","input":"hi"}',
    '{"model":"sol","reasoning":{"effort":"low"},"input":"hi"}',
  ]);
  expect(await ledger(world)).toEqual([
    ['openai:sol', 'none'],
    ['openai:sol', 'high'],
    ['openai:sol', 'low'],
  ]);
});
