// registry.yaml: what it means, what it refuses, and the look-ups on it (03 §2, 11.10).
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { usableAdapters } from '#core/policy/registry/adapter-config.ts';
import { findModel, modelInput } from '#core/policy/registry/find-model.ts';
import { createModelRegistry, parseRegistry } from '#core/policy/registry/model-registry.ts';
import { GPT, HAIKU, LOCAL, OPUS, registryOf, SONNET } from './world.ts';

const CAPS = 'capabilities: { max_context_tokens: 10, max_output_tokens: 5 }';

function errorsOf(text: string): string[] {
  const parsed = parseRegistry(text, '/etc/registry.yaml');
  return parsed.ok ? [] : parsed.error;
}

describe('a registry file', () => {
  it.each([
    [`adapters: { scripted: { type: openai } }\nmodels: { 'scripted:x': { ${CAPS} } }`, 'adapters.scripted.type'],
    [`models: { 'scripted:x': { adapter: openai, ${CAPS} } }`, 'models.scripted:x'],
    [
      `adapters: { own: { type: anthropic } }\nmodels: { 'scripted:x': { adapter: own, ${CAPS} } }`,
      'models.scripted:x',
    ],
  ])('cannot have a real model counted as simulated', (text, place) => {
    expect(errorsOf(text)).toContainEqual(expect.stringContaining(`${place}: `));
  });

  it('fills in every default and keeps the order of the file', () => {
    const registry = registryOf();
    expect(registry.models.map((model) => model.id)).toEqual([OPUS, SONNET, HAIKU, GPT, LOCAL]);
    expect(registry.get(LOCAL)).toEqual({
      id: LOCAL,
      tier: null,
      can_delegate: false,
      aliases: ['llama'],
      adapter: 'local',
      wire_name: 'llama-x',
      pricing_id: LOCAL,
      thinking: null,
      tokenizer: null,
      extra_body: null,
      efforts: null,
      default_effort: null,
      superseded_by: null,
      capabilities: {
        max_context_tokens: 5000,
        max_output_tokens: 100,
        max_image_tokens: 16_384,
        supports_tools: false,
        supports_system_prompt: false,
        supports_images: false,
        supports_structured_output: false,
        supports_thinking: false,
        supports_prompt_caching: false,
        accepted_image_media_types: [],
        accepted_document_media_types: [],
      },
    });
    expect(registry.adapters.get('local')).toEqual({
      type: 'openai',
      base_url: null,
      api_key_env: null,
      key_optional: true,
      timeout_seconds: 600,
      connect_timeout_seconds: 30,
      idle_timeout_seconds: 120,
      wire: 'chat',
      api_version: null,
      max_retries: 2,
      overhead_tokens: null,
      extra_headers: {},
      options: {},
      scenario: null,
    });
  });

  it('lets balanced and deep models delegate unless the file says otherwise', () => {
    const parsed = parseRegistry(
      `adapters: { a: { type: openai } }
models:
  a:deep: { tier: deep, ${CAPS} }
  a:balanced: { tier: balanced, ${CAPS} }
  a:fast: { tier: fast, ${CAPS} }
  a:plain: { ${CAPS} }
  a:mute: { tier: deep, can_delegate: false, ${CAPS} }
  a:bold: { tier: fast, can_delegate: true, ${CAPS} }
  a:ref/er:x: { wire_name: other, pricing_id: b:x, ${CAPS} }`,
      'r.yaml',
    );
    const models = parsed.ok ? parsed.value.models : [];
    expect(models.map((model) => model.can_delegate)).toEqual([true, true, false, false, false, true, false]);
    expect(models[0]).toMatchObject({ wire_name: 'deep', pricing_id: 'a:deep', adapter: 'a' });
    expect(models[6]).toMatchObject({ wire_name: 'other', pricing_id: 'b:x', adapter: 'a' });
  });

  // Promise 03.19: an alias used twice is refused with both models named.
  it('refuses an alias used twice and names both models', () => {
    const errors = errorsOf(`adapters: { a: { type: openai } }
models:
  a:one: { aliases: [x], ${CAPS} }
  a:two: { aliases: [x], ${CAPS} }`);
    expect(errors).toEqual(['/etc/registry.yaml: models.a:two.aliases: x is already an alias of a:one']);
  });

  // Promise 11.19: an unknown adapter key, a doubled alias or a key in the file is refused with its path.
  it('reports every fault at once, each with its key path', () => {
    const errors = errorsOf(`adapters:
  a: { type: openai, api_key: sk-secret, retries: 3 }
  b: { type: gemini }
  c: { type: anthropic, scenario: x.yaml }
  d: { type: openai, base_url: "ftp://x", connect_timeout_seconds: 301 }
models:
  nocolon: { ${CAPS} }
  a:one: { tier: smart, colour: red, ${CAPS} }
  a:two: { aliases: ["with space"], capabilities: { max_context_tokens: 0, max_output_tokens: 5, vision: true } }
  a:three: {}
  z:four: { ${CAPS} }
  a:five: { adapter: nowhere, ${CAPS} }
extra: 1`);
    const expected = [
      'extra: unknown key',
      'adapters.a.api_key: a key does not belong in a file',
      'adapters.a.retries: unknown key',
      'adapters.b.type: ',
      'adapters.c.scenario: only an adapter of type scripted',
      'adapters.d.base_url: must be an http or https URL',
      'adapters.d.connect_timeout_seconds: ',
      'models.nocolon: a model id is <provider>:<name>',
      'models.a:one.tier: ',
      'models.a:one.colour: unknown key',
      'models.a:two.aliases[0]: may hold letters',
      'models.a:two.capabilities.max_context_tokens: ',
      'models.a:two.capabilities.vision: unknown key',
      'models.a:three.capabilities: is required',
      'models.z:four.adapter: unknown adapter "z"',
      'models.a:five.adapter: unknown adapter "nowhere"',
    ];
    for (const start of expected) {
      expect(errors.filter((line) => line.startsWith(`/etc/registry.yaml: ${start}`))).toHaveLength(1);
    }
    expect(errors).toHaveLength(expected.length);
    expect(errors.join()).not.toContain('sk-secret');
  });

  it.each([
    ['an empty file', ''],
    ['a list', '- a'],
    ['broken YAML', 'models: [}'],
    ['a model written twice', `adapters: {}\nmodels:\n  a:x: {}\n  a:x: {}`],
    ['no models', 'adapters: {}'],
    ['adapters that are no mapping', 'adapters: 3\nmodels: {}'],
    ['aliases without end', `a: &a [x,x,x,x,x,x,x,x,x,x]\n${chain('a', 'b')}${chain('b', 'c')}${chain('c', 'models')}`],
  ])('refuses %s in one clear line', (_, text) => {
    const errors = errorsOf(text);
    expect(errors.length).toBeGreaterThan(0);
    for (const line of errors) expect(line).toMatch(/^\/etc\/registry\.yaml: [^\n]+$/);
  });

  // Promise 03.26: a registry of models alone has the providers' adapters and the shipped capabilities.
  it('may leave out adapters of known providers, and capabilities of models that the shipped registry has', () => {
    const written = `models:
  anthropic:claude-opus-4-7:
    tier: deep
    can_delegate: true
  anthropic:claude-sonnet-4-6:
    tier: balanced
    can_delegate: true
  anthropic:claude-haiku-4-5:
    tier: fast
    can_delegate: false
  openai:gpt-6-luna:
`;
    const file = new URL('../../../config/registry.yaml', import.meta.url);
    const shipped = parseRegistry(readFileSync(file, 'utf8'), file.pathname);
    if (!shipped.ok) throw new Error(shipped.error.join('\n'));
    const known = new Map(shipped.value.models.map((model) => [model.id, model]));
    const parsed = parseRegistry(written, '/etc/registry.yaml', () => known);
    if (!parsed.ok) throw new Error(parsed.error.join('\n'));
    const { models, adapters } = parsed.value;
    expect(models.map(({ tier, can_delegate }) => [tier, can_delegate])).toEqual([
      ['deep', true],
      ['balanced', true],
      ['fast', false],
      [null, false],
    ]);
    for (const { id, capabilities, extra_body, wire_name } of models)
      expect({ capabilities, extra_body, wire_name }).toEqual({
        capabilities: known.get(id)!.capabilities,
        extra_body: known.get(id)!.extra_body,
        wire_name: known.get(id)!.wire_name,
      });
    expect([...adapters].map(([id, { type }]) => [id, type])).toEqual([
      ['anthropic', 'anthropic'],
      ['openai', 'openai'],
    ]);
    expect(errorsOf('models:\n  anthropic:claude-x:\n')).toEqual([
      '/etc/registry.yaml: models.anthropic:claude-x.capabilities: is required, as the shipped registry has no model of this id',
    ]);
    expect(errorsOf(`models: { local:x: { ${CAPS} } }`)).toEqual([
      '/etc/registry.yaml: models.local:x.adapter: unknown adapter "local"; declare it under adapters',
    ]);
  });

  it('finds a scenario beside the file that names it', () => {
    const parsed = parseRegistry(
      'adapters: { s: { type: scripted, scenario: ./play/demo.yaml } }\nmodels: {}',
      '/etc/r.yaml',
    );
    expect(parsed.ok && parsed.value.adapters.get('s')?.scenario).toBe('/etc/play/demo.yaml');
  });
});

function chain(from: string, to: string): string {
  return `${to}: &${to} [${Array.from({ length: 10 }, () => `*${from}`).join(', ')}]\n`;
}

describe('the model registry', () => {
  it('resolves ids and aliases case-sensitively, and nothing else', () => {
    const registry = registryOf();
    expect(registry.resolveAlias('opus')).toBe(OPUS);
    expect(registry.resolveAlias(OPUS)).toBe(OPUS);
    for (const name of ['Opus', 'opus-x', '', 'toString', '__proto__']) expect(registry.resolveAlias(name)).toBeNull();
    expect(registry.get('toString')).toBeNull();
  });

  // Promise 03.19: a name that is neither id nor alias is no model.
  it('answers a name that is no id and no alias with model_not_configured', () => {
    const refused = modelInput(registryOf(), 'gpt-5');
    expect(refused.ok).toBe(false);
    expect(!refused.ok && refused.error).toMatchObject({ code: 'model_not_configured', status: 400 });
    expect(modelInput(registryOf(), 'gpt')).toEqual({ ok: true, value: GPT });
  });

  it('takes a bare name in any case where one model bears it, usable ones first', () => {
    const found = (name: string, configured?: string[]) => findModel(registryOf(configured), name);
    expect(found('Opus')).toEqual({ ok: true, value: OPUS });
    expect(found('LLAMA-X')).toEqual({ ok: true, value: LOCAL });
    for (const name of ['', 'toString', '__proto__', 'x'.repeat(5000)]) expect(found(name).ok).toBe(false);
    const twice = parseRegistry(
      `adapters: { a: { type: openai }, b: { type: openai } }\nmodels: { 'a:big/M-1': { ${CAPS} }, 'b:m-1': { ${CAPS} } }`,
      'r.yaml',
    );
    if (!twice.ok) throw new Error(twice.error.join());
    const file = twice.value;
    expect(findModel(createModelRegistry(file, new Set(['a'])), 'm-1')).toEqual({ ok: true, value: 'b:m-1' });
    expect(findModel(createModelRegistry(file, new Set(['a'])), 'M-1')).toEqual({ ok: true, value: 'b:m-1' });
  });

  it('names both models where two bear a name, and the similar ones where none does', () => {
    const file = parseRegistry(
      `adapters: { a: { type: openai }, b: { type: openai } }\nmodels: { 'a:gpt-mini': { ${CAPS} }, 'b:gpt-mini': { ${CAPS} } }`,
      'r.yaml',
    );
    if (!file.ok) throw new Error(file.error.join());
    const both = createModelRegistry(file.value, new Set(['a', 'b']));
    expect(findModel(both, 'GPT-mini')).toEqual({
      ok: false,
      error: '"GPT-mini" is the name of several models: a:gpt-mini and b:gpt-mini; name one by its id',
    });
    expect(findModel(createModelRegistry(file.value, new Set(['b'])), 'GPT-mini')).toEqual({
      ok: true,
      value: 'b:gpt-mini',
    });
    expect(findModel(both, 'gpt-mimi')).toEqual({
      ok: false,
      error: expect.stringMatching(/; did you mean a:gpt-mini or b:gpt-mini\?$/),
    });
  });

  it('counts a model as configured only while its adapter can be used', () => {
    const registry = registryOf(['openai']);
    expect(registry.isConfigured(GPT)).toBe(true);
    expect(registry.isConfigured(OPUS)).toBe(false);
    expect(registry.isConfigured('openai:unknown')).toBe(false);
  });

  it('gives a tier to its first configured model in file order', () => {
    expect(registryOf().modelForTier('balanced')).toBe(SONNET);
    expect(registryOf(['openai']).modelForTier('balanced')).toBe(GPT);
    expect(registryOf(['openai']).modelForTier('fast')).toBeNull();
  });
});

describe('usable adapters', () => {
  const parsed = parseRegistry(
    `adapters:
  anthropic: { type: anthropic }
  play: { type: scripted }
  own: { type: scripted, scenario: x.yaml }
models: {}`,
    'r.yaml',
  );
  const adapters = parsed.ok ? parsed.value.adapters : new Map<string, never>();
  const without = new Map([...adapters].filter(([id]) => id !== 'own'));

  it('are the built-in scenario alone when nothing else is', () => {
    expect([...usableAdapters(without, () => false)]).toEqual(['play']);
    expect([...usableAdapters(without, () => true)]).toEqual(['anthropic']);
  });

  it('include a scripted adapter that has a scenario of its own', () => {
    expect([...usableAdapters(adapters, () => false)]).toEqual(['own']);
    expect([...usableAdapters(adapters, () => true)].sort()).toEqual(['anthropic', 'own']);
  });

  it('decide what is configured', () => {
    const registry = createModelRegistry(
      { models: registryOf().models, adapters },
      usableAdapters(adapters, () => true),
    );
    expect(registry.isConfigured(OPUS)).toBe(true);
    expect(registry.isConfigured(GPT)).toBe(false);
  });
});
