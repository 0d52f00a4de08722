// The routing policy over HTTP: what is in force, what a file is worth, what would be decided.
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { tempFolder } from '../support/engine.ts';
import { type Parsed, startServer, type TestServer } from '../support/http.ts';
import { manualClock, START } from '../support/manual-clock.ts';
import { scenario } from '../support/scenario.ts';

const OPUS = 'anthropic:claude-opus-4-7';
const SONNET = 'anthropic:claude-sonnet-4-6';
const HAIKU = 'anthropic:claude-haiku-4-5';
const RULES = [
  'default: opus',
  'rules:',
  '  - { name: short, when: { estimated_input_tokens_lt: 5 }, use: haiku }',
  '  - { name: images, when: { has_images: true }, use: gpt }',
].join('\n');
const BROKEN =
  'tiers: { fast: haiku }\nrules: [{ use: opus, when: { message_matches: "(" } }, { use: opus, when: { foo: 1 } }]';

const plain = scenario([{ match: {}, times: 'inf', respond: { text: 'ok' } }]);
const write = (server: TestServer, text: string) => {
  fs.mkdirSync(path.join(server.workspace, '.metis'), { recursive: true });
  fs.writeFileSync(path.join(server.workspace, '.metis/routing.yaml'), text);
};
const policy = (server: TestServer) => server.call('GET', `/routing/policy?workspace_path=${server.workspace}`);

describe('GET /routing/policy', () => {
  test('without a file shows what the registry gives', async () => {
    const server = await startServer();
    const { status, body } = await server.call('GET', '/routing/policy');
    expect(status).toBe(200);
    expect(body).toMatchObject({
      version: null,
      valid: true,
      loaded_at: null,
      global_default: SONNET,
      workspace_default: null,
      tiers: { fast: HAIKU, balanced: SONNET, deep: OPUS },
      rules: [],
      pattern: server.config.pattern,
    });
    expect(body).not.toHaveProperty('errors');
  });

  test('shows both files as one, rules of the workspace first, conditions as written', async () => {
    const clock = manualClock();
    const server = await startServer({ clock });
    write(server, RULES);
    fs.writeFileSync(
      server.config.routing.global_path,
      'global_default: haiku\ntiers: { fast: gpt, balanced: sonnet, deep: opus }\nrules: [{ when: { not: { has_images: true } }, use: gpt }]',
    );
    const { body } = await policy(server);
    expect(body).toMatchObject({
      valid: true,
      loaded_at: new Date(START).toISOString(),
      global_default: HAIKU,
      workspace_default: OPUS,
      tiers: { fast: 'openai:gpt-5', balanced: SONNET, deep: OPUS },
      rules: [
        { name: 'short', when: { estimated_input_tokens_lt: 5 }, use: HAIKU },
        { name: 'images', when: { has_images: true }, use: 'openai:gpt-5' },
        { name: 'rule_0', when: { not: { has_images: true } }, use: 'openai:gpt-5' },
      ],
    });
    expect(body.version).toMatch(/^[0-9a-f]{64}$/);
  });

  test('names every fault of a broken file and what holds in its place', async () => {
    const clock = manualClock();
    const server = await startServer({ clock });
    write(server, RULES);
    const good = (await policy(server)).body;
    clock.advance(60_000);
    write(server, BROKEN);
    const { body } = await policy(server);
    expect(body).toEqual({ ...good, valid: false, errors: expect.any(Array), using_last_known_good: true });
    expect(body.errors).toHaveLength(3);
    expect(body.errors).toContain('workspace file: tiers: must define all three slots');
  });

  test('refuses a folder that is not there', async () => {
    const server = await startServer();
    const { status, body } = await server.call('GET', '/routing/policy?workspace_path=/nowhere/at/all');
    expect([status, body.error.details]).toEqual([404, { resource: 'workspace' }]);
  });
});

describe('POST /routing/check', () => {
  test('collects every fault of a text and loads nothing', async () => {
    const server = await startServer();
    const { status, body } = await server.call('POST', '/routing/check', { policy_yaml: BROKEN });
    expect(status).toBe(200);
    expect(body).toMatchObject({ valid: false, warnings: [] });
    expect(body.errors).toEqual([
      'tiers: must define all three slots',
      expect.stringMatching(/^rules\[0\]\.when\.message_matches: /),
      'rules[1].when: unknown predicate key(s) [foo]',
    ]);
    expect((await server.call('GET', '/routing/policy')).body).toMatchObject({ valid: true, version: null });
  });

  test('takes a text as the file that its keys or the folder make it', async () => {
    const server = await startServer();
    const check = async (body: Parsed) => (await server.call('POST', '/routing/check', body)).body;
    expect(await check({ policy_yaml: 'default: opus' })).toEqual({ valid: true, errors: [], warnings: [] });
    expect(await check({ policy_yaml: 'global_default: opus' })).toMatchObject({ valid: true });
    expect(await check({ policy_yaml: 'global_default: opus', workspace_path: server.workspace })).toMatchObject({
      valid: false,
      errors: ['global_default: belongs in the global file'],
    });
  });

  test('without a text checks the files on disk', async () => {
    const server = await startServer();
    write(server, BROKEN);
    fs.writeFileSync(server.config.routing.global_path, 'default: opus');
    const { body } = await server.call('POST', '/routing/check', { workspace_path: server.workspace });
    expect(body.errors).toHaveLength(4);
    expect(body.errors.at(-1)).toBe('global file: default: belongs in the workspace file');
    expect((await server.call('POST', '/routing/check', {})).body.errors).toHaveLength(1);
  });

  test('warns of models that this server has no key for', async () => {
    const server = await startServer({ registry: withoutKey() });
    const { body } = await server.call('POST', '/routing/check', {
      policy_yaml:
        'global_default: gpt\nrules: [{ when: { has_images: true }, use: opus }, { when: { has_images: false }, use: gpt }]',
    });
    expect(body).toMatchObject({ valid: true, errors: [] });
    expect(body.warnings.map((line: string) => line.split(':')[0])).toEqual(['global_default', 'rules[1].use']);
  });
});

function withoutKey(): string {
  const registry = fs.readFileSync(path.join(import.meta.dirname, '../support/registry.yaml'), 'utf8');
  return registry
    .replace('  scripted: { type: scripted }\n', '  scripted: { type: scripted }\n  openai: { type: openai }\n')
    .replace('openai:gpt-5:\n    adapter: scripted', 'openai:gpt-5:');
}

describe('POST /routing/explain', () => {
  const explain = async (server: TestServer, text: string, rest: Parsed = {}) =>
    server.call('POST', '/routing/explain', { text, workspace_path: server.workspace, ...rest });

  // Promise 03.23: explaining stores nothing.
  // Promise 05.25: explaining an override decides at slot 1 with seven entries and leaves nothing behind.
  test('decides for @haiku hi without a session, event, message or call of a model', async () => {
    const server = await startServer({ scenario: plain });
    const before = server.rows();
    const { status, body } = await explain(server, '@haiku hi');
    expect(status).toBe(200);
    expect(body).toMatchObject({ chosen_model: HAIKU, winner_index: 0, refused: null, routing_policy_version: null });
    expect(body.chain).toHaveLength(7);
    expect(server.rows()).toEqual(before);
    expect(server.events).toEqual([]);
    expect(server.adapter.requests).toEqual([]);
  });

  // Promise 03.23: what explain says is the chain of the first turn with that text.
  test.each([
    ['a text on a rule', 'hi', null, 'rule'],
    ['a sticky model', 'a longer question about the code', 'sonnet', 'manual_sticky'],
    ['an override', '@gpt what is this?', 'sonnet', 'per_message_override'],
    ['nothing but the default', 'a longer question about the code', null, 'workspace_default'],
  ])('gives for %s the chain that a first turn with it then has', async (_name, text, model, policyName) => {
    const server = await startServer({
      scenario: plain,
      files: { '.metis/routing.yaml': RULES.replace('estimated_input_tokens_lt: 5', 'message_matches: "^hi$"') },
    });
    const told = (await explain(server, text, { model })).body;
    expect(told.chain[told.winner_index].policy).toBe(policyName);
    const session = await server.session({ initial_active_model: model });
    await server.run(session, text);
    const decided = server.events.find((e) => e.type === 'route.decided')!.payload as Parsed;
    const started = server.events.find((e) => e.type === 'turn.started')!.payload as Parsed;
    expect(told).toEqual({
      chosen_model: decided.chosen_model,
      chosen_effort: decided.chosen_effort,
      winner_index: decided.winner_index,
      refused: null,
      chain: decided.chain,
      estimated_input_tokens: started.estimated_input_tokens,
      routing_policy_version: session.routing_policy_version,
    });
  });

  test('answers a refusal as a decision', async () => {
    const server = await startServer({ registry: withoutKey() });
    const { status, body } = await explain(server, 'hi', { model: 'gpt' });
    expect(status).toBe(200);
    expect(body).toMatchObject({ chosen_model: '', winner_index: 6, refused: 'explicit_model_rejected' });
    expect(body.chain[1]).toMatchObject({ verdict: 'rejected', validation_failure: 'not_configured' });
  });

  test('does not use up the report of a broken file', async () => {
    const server = await startServer({ scenario: plain });
    const session = await server.session();
    write(server, BROKEN);
    expect((await explain(server, 'hi')).body.chosen_model).toBe(SONNET);
    await policy(server);
    await server.run(session, 'hi');
    expect(server.typesOf(session.id).filter((type) => type === 'routing.policy_invalid')).toHaveLength(1);
  });

  test('tells an unpriced model from a priced one where new sessions have a limit', async () => {
    const unpriced = fs
      .readFileSync(path.join(import.meta.dirname, '../support/registry.yaml'), 'utf8')
      .replace('tier: balanced', 'tier: balanced\n    pricing_id: nobody:knows');
    const budgets = { session_default_usd: '1' };
    const server = await startServer({ registry: unpriced, config: { budgets } });
    expect((await explain(server, 'hi')).body.chain.at(-1)).toMatchObject({ validation_failure: 'not_priced' });
    const without = await startServer({ registry: unpriced });
    expect((await explain(without, 'hi')).body.chosen_model).toBe(SONNET);
  });

  test.each([
    [{ text: '  ' }, 400, 'validation_error'],
    [{ text: '@haiku' }, 400, 'override_missing_body'],
    [{ text: '@nope hi' }, 400, 'unknown_alias'],
    [{ text: 'hi', model: 'nope' }, 400, 'model_not_configured'],
    [{ text: 'hi', workspace_path: '/nowhere/at/all' }, 404, 'not_found'],
    [{ text: 'hi', workspace_path: '/' }, 403, 'workspace_not_allowed'],
    [{ text: 'hi', more: 1 }, 400, 'validation_error'],
  ])('refuses %j with %i %s', async (body, status, code) => {
    const folder = tempFolder();
    const server = await startServer({ folder, config: { server: { workspace_roots: [folder] } } });
    const answer = await explain(server, 'hi', body);
    expect([answer.status, answer.body.error.code]).toEqual([status, code]);
  });
});
