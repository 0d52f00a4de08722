// Prices as a running server uses them: the tables of its configuration, what they refuse, and what is stamped (08).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { createSession } from '#core/engine/manage-session.ts';
import { StartupError } from '#protocol/errors.ts';
import type { AnyEvent } from '#protocol/event.ts';
import { tempFolder } from '../support/engine.ts';
import type { FakeUsage } from '../support/fake-provider.ts';
import { priceFileA, priceFileB } from '../support/prices.ts';
import { type RealOptions, type RealServer, startReal, startStrictFake } from '../support/real-server.ts';
import { registryAt } from '../support/registry-at.ts';

const NOPE = `  openai:nope: { aliases: [nope], capabilities: { max_context_tokens: 200000, max_output_tokens: 8192 } }\n`;
const OVERLAY = JSON.stringify({
  pricing_version: 'o1',
  models: { 'openai:gpt-5': { input_per_mtok_usd: '100', output_per_mtok_usd: '200' } },
});
const NO_PROVIDER = { anthropicUrl: 'http://127.0.0.1:9', openaiUrl: 'http://127.0.0.1:9/v1' };

async function world(usage: FakeUsage = { input: 1000, output: 100 }) {
  const folder = tempFolder();
  const workspace = path.join(folder, 'workspace');
  fs.mkdirSync(workspace);
  const fake = await startStrictFake(() => ({ text: 'ok', usage }));
  const start = (rest: Partial<RealOptions> = {}) =>
    startReal({ folder: path.join(folder, 'data'), registry: registryAt(fake, NOPE), ...rest });
  return { workspace, fake, start };
}
const calls = (server: RealServer) =>
  server.events.flatMap((e: AnyEvent) => (e.type === 'llm.call_completed' ? [e.payload] : []));

describe('an overlay in the configuration', () => {
  // Promise 08.15: a configured overlay has a joined version, replaces whole entries, and leaves the base as it was.
  // Promise 08.21: GET /pricing names the version that every new call carries; an unknown one is 404.
  test('replaces whole entries under a joined version, which every new call carries and GET /pricing names', async () => {
    const { workspace, start } = await world({ input: 1000, cached: 1000, output: 100 });
    const before = await start();
    await before.turn(await before.session(workspace, 'gpt'), 'hi');
    expect(calls(before).map((c) => [c.pricing_version, c.cost_usd])).toEqual([['A', '0.00375']]);
    await before.close();

    const server = await start({ prices: [priceFileA(), OVERLAY] });
    await server.turn(await server.session(workspace, 'gpt'), 'hi');
    await server.turn(await server.session(workspace, 'mini'), 'hi');
    // The overlay gives no cached rate: such tokens cost the input rate. The other model keeps what A says.
    expect(calls(server).map((c) => [c.pricing_version, c.cost_usd])).toEqual([
      ['A+o1', '0.22'],
      ['A+o1', '0.00075'],
    ]);
    const { body } = await server.call('GET', '/pricing');
    expect(body).toMatchObject({ active_version: 'A+o1', currency: 'USD', table: { pricing_version: 'A+o1' } });
    expect(body.table.models['openai:gpt-5'].input_per_mtok_usd).toBe('100');
    const a = (await server.call('GET', '/pricing?version=A')).body.table;
    expect(a.models['openai:gpt-5'].input_per_mtok_usd).toBe('2.5');
    expect(a.models['openai:gpt-5-mini']).toEqual(body.table.models['openai:gpt-5-mini']);
    const unknown = await server.call('GET', '/pricing?version=zzz');
    expect([unknown.status, unknown.body.error.code]).toEqual([404, 'not_found']);
  });
});

describe('a table that cannot be used stops the start', () => {
  const refusal = (prices: readonly string[]): Promise<unknown> =>
    startReal({ folder: tempFolder(), registry: registryAt(NO_PROVIDER), prices }).then(
      () => null,
      (error: unknown) => error,
    );
  const table = (rates: string, rest = '') =>
    `{"pricing_version": "x", ${rest} "models": {"openai:gpt-5": {"input_per_mtok_usd": "1", "output_per_mtok_usd": "1", ${rates}}}}`;
  const steps = '{"above_prompt_tokens": 200}, {"above_prompt_tokens": 100}';

  // Promise 08.16: each fault of a table stops the start, naming file, model and field.
  test.each([
    ['seven decimals', table('"cached_read_per_mtok_usd": "0.0000001"'), 'openai:gpt-5: cached_read_per_mtok_usd'],
    ['below zero', table('"cache_write_per_mtok_usd": "-1"'), 'openai:gpt-5: cache_write_per_mtok_usd'],
    [
      'no number',
      table('"output_per_mtok_usd": "abc"').replace('"output_per_mtok_usd": "1", ', ''),
      'openai:gpt-5: output_per_mtok_usd',
    ],
    ['an exponent', table('"cached_read_per_mtok_usd": 1e-7'), 'openai:gpt-5: cached_read_per_mtok_usd'],
    ['not a number', table('"cached_read_per_mtok_usd": .nan'), 'openai:gpt-5: cached_read_per_mtok_usd'],
    ['an unknown field', table('"input": "1"'), 'openai:gpt-5: input: unknown key'],
    ['another currency', table('"cached_read_per_mtok_usd": "1"', '"currency": "EUR",'), 'currency'],
    ['steps that descend', table(`"long_context": [${steps}]`), 'openai:gpt-5: long_context'],
  ])('%s, with file, model and field', async (_, text, place) => {
    for (const prices of [[text], [priceFileA(), text]]) {
      const error = await refusal(prices);
      expect(error).toBeInstanceOf(StartupError);
      const { code, problems } = error as StartupError;
      expect(code).toBe('pricing_invalid');
      expect(problems).toEqual([expect.stringMatching(/^pricing_invalid: \S+prices-\d\.json: /)]);
      expect(problems[0]).toContain(place);
    }
  });

  // Promise 08.17: One version with other rates than before is a conflict, the same rates are not.
  test('the same version with one changed rate is a conflict; unchanged, or under a new version, it starts', async () => {
    const folder = tempFolder();
    const start = (prices: string) => startReal({ folder, registry: registryAt(NO_PROVIDER), prices: [prices] });
    await (await start(priceFileA())).close();
    const changed = priceFileA().replace('"75"', '"76"');
    await expect(start(changed)).rejects.toMatchObject({
      code: 'pricing_version_conflict',
      problems: [expect.stringMatching(/^pricing_version_conflict: price table version A /)],
    });
    await (await start(priceFileA())).close();
    const renamed = await start(changed.replace('"A"', '"A2"'));
    const { body } = await renamed.call('GET', '/pricing');
    expect(body.versions.map((v: { version: string; active: boolean }) => [v.version, v.active])).toEqual([
      ['A2', true],
      ['A', false],
    ]);
  });
});

describe('a model without a price', () => {
  // Promise 08.14: a model without price answers, is stamped unpriced, and is warned about once.
  test('answers, is stamped as unpriced, and is warned about once', async () => {
    const { workspace, start } = await world();
    const server = await start();
    const session = await server.session(workspace, 'nope');
    for (const content of ['one', 'two']) expect((await server.turn(session, content)).status).toBe('completed');
    expect(calls(server).map((c) => [c.priced, c.cost_usd, c.pricing_version])).toEqual([
      [false, '0', 'A'],
      [false, '0', 'A'],
    ]);
    const warned = server.log.filter((line) => line.msg === 'no price for this model');
    expect(warned.map(({ level, model, pricing_version }) => [level, model, pricing_version])).toEqual([
      ['warn', 'openai:nope', 'A'],
    ]);
    expect((await server.call('GET', `/sessions/${session}`)).body.has_unpriced_calls).toBe(true);
    const { totals } = await server.client.getCost({ from: 'all' });
    expect(totals).toMatchObject({ cost_usd: '0', unpriced_call_count: 2 });
  });

  // Promise 08.14: under a budget it is passed over with `not_priced` and nothing is sent.
  test('is passed over where a budget holds, before anything is sent', async () => {
    const { workspace, fake, start } = await world();
    const routing =
      'schema_version: 1\nrules: [{ name: any, when: { estimated_input_tokens_gt: 0 }, use: nope }]\ndefault: gpt\n';
    fs.mkdirSync(path.join(workspace, '.metis'));
    fs.writeFileSync(path.join(workspace, '.metis', 'routing.yaml'), routing);
    const server = await start();
    const session = await server.session(workspace, null, { max_cost_usd: '1' });
    expect((await server.turn(session, 'hi')).chosen_model).toBe('openai:gpt-5');
    const decided = (await server.event('route.decided')).payload as { chain: { tried_rules: object[] | null }[] };
    expect(decided.chain.flatMap((slot) => slot.tried_rules ?? [])).toEqual([
      { rule_name: 'any', candidate_model: 'openai:nope', candidate_effort: null, validation_failure: 'not_priced' },
    ]);
    expect(fake.calls.map((call) => call.model)).toEqual(['gpt-5']);
    // Nor may a person insist on it.
    const insisting = await server.call('POST', `/sessions/${session}/turns`, { content: '@nope hi' });
    expect(insisting.body.error).toMatchObject({
      code: 'explicit_model_rejected',
      details: { validation_failure: 'not_priced' },
    });
    expect(fake.calls).toHaveLength(1);
  });
});

describe('what a provider counts', () => {
  // Promise 01.10: cached tokens inside a prompt count are billed once, at their own rate.
  // Promise 08.9: a provider's prompt count with cached tokens in it is billed once.
  test('is billed once where it reports cached tokens inside the prompt', async () => {
    const { workspace, start } = await world({ input: 7000, cached: 1024, output: 333 });
    const server = await start({ prices: [priceFileB()] });
    const session = await server.session(workspace, 'mini');
    await server.turn(session, 'hi');
    const [call] = calls(server);
    expect(call).toMatchObject({ input_tokens: 7000, cached_input_tokens: 1024, cost_usd: '0.0024416' });
    expect((await server.call('GET', `/sessions/${session}`)).body.cost_so_far_usd).toBe('0.0024416');
  });

  test('beyond what a model can answer is estimated: the turn is booked by its text, and the server goes on', async () => {
    let usage: FakeUsage = { input: 0, output: Number.MAX_SAFE_INTEGER };
    const folder = tempFolder();
    const fake = await startStrictFake(() => ({ text: 'ok', usage }));
    const server = await startReal({ folder, registry: registryAt(fake) });
    const { id } = await createSession(server.engine, {
      workspace_path: folder,
      initial_active_model: 'opus',
      max_cost_usd: null,
      on_reached: null,
      approval_mode: null,
    });
    const turn = await server.turn(id, 'hi');
    expect(turn.status).toBe('completed');
    const booked = server.events.find((e) => e.type === 'llm.call_completed')!.payload;
    expect(booked).toMatchObject({ usage_estimated: true, cost_usd: turn.total_cost_usd });
    expect(Number(turn.total_cost_usd)).toBeGreaterThan(0);
    expect(Number(turn.total_cost_usd)).toBeLessThan(1);
    usage = { input: 1000, output: 100 };
    expect((await server.turn(id, 'again')).total_cost_usd).toBe('0.0225');
    const answered = server.events.filter((e) => e.type === 'llm.call_completed' || e.type === 'llm.call_failed');
    expect(answered).toHaveLength(server.events.filter((e) => e.type === 'llm.call_started').length);
  });
});
