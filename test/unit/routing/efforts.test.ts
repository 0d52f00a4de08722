// Efforts of models: the registry that lists them, references that name them, and the slots that propose them (22 §1).
import { describe, expect, it } from 'vitest';
import { modelInput } from '#core/policy/registry/find-model.ts';
import {
  findOwnWire,
  fitEffort,
  listEfforts,
  omitDefaultEffort,
  resolveDefaultEffort,
} from '#core/policy/registry/model-efforts.ts';
import { parseRegistry } from '#core/policy/registry/model-registry.ts';
import { decideRoute, routeError } from '#core/policy/routing/chain.ts';
import { parseOverride } from '#core/policy/routing/override.ts';
import { policyWarnings, tierModel } from '#core/policy/routing/policy-file.ts';
import { defaultConfig } from '#protocol/config.ts';
import { shippedFile } from '../../support/registry-at.ts';
import { decide, envOf, policy, registryOf, turn, type World } from './world.ts';

const PASSED = { count: 100, mean: 1 };
const CAPS = 'capabilities: { max_context_tokens: 10000, max_output_tokens: 100 }';
const TEXT = `
adapters:
  anthropic: { type: anthropic }
  openai: { type: openai }
  ollama: { type: openai, key_optional: true }
  answers: { type: openai, wire: responses, key_optional: true }
models:
  anthropic:claude:
    { tier: fast, aliases: [haiku], efforts: [low, medium, high], default_effort: medium, ${CAPS} }
  anthropic:plain: { tier: balanced, aliases: [plain], ${CAPS} }
  openai:sol:
    {
      tier: deep,
      aliases: [sol],
      efforts: { chat: [none], responses: [low, high] },
      default_effort: high,
      ${CAPS},
    }
  answers:sol: { efforts: { chat: [none], responses: [low, high] }, default_effort: high, ${CAPS} }
  ollama:qwen3: { aliases: [qwen], efforts: [low, high], ${CAPS} }
  ollama:qwen3:8b: { ${CAPS} }
  ollama:qwen3:high: { ${CAPS} }
`;
const CLAUDE = 'anthropic:claude';
const registry = registryOf(['anthropic', 'openai', 'ollama', 'answers'], TEXT);
const world: World = { registry };
const errorsOf = (models: string) => {
  const parsed = parseRegistry(`models:\n${models}`, 'r.yaml');
  return parsed.ok ? [] : parsed.error;
};

describe('a model reference', () => {
  it.each([
    ['haiku:low', 'anthropic:claude:low', CLAUDE, 'low'],
    ['anthropic:claude:high', 'anthropic:claude:high', CLAUDE, 'high'],
    ['haiku', CLAUDE, CLAUDE, null],
    ['sol:none', 'openai:sol:none', 'openai:sol', 'none'],
    ['ollama:qwen3:low', 'ollama:qwen3:low', 'ollama:qwen3', 'low'],
  ])('%s names a model, and its effort where the last segment is one of its own', (name, canonical, id, effort) => {
    expect(registry.resolveAlias(name)).toBe(canonical);
    expect(registry.findReference(canonical)).toMatchObject({ id, effort });
  });

  it('of very many segments is looked up once', () => {
    const name = `haiku${':low'.repeat(100_000)}`;
    expect(modelInput(registry, name)).toMatchObject({ ok: false, error: { code: 'model_not_configured' } });
    expect(parseOverride({ content: [{ type: 'text', text: `@${name} hi` }], field: null, registry }).ok).toBe(false);
    expect(modelInput(registry, 'haiku:low:low').ok).toBe(false);
  });

  // Promise 22.1: an id with a second colon keeps its meaning.
  it.each(['ollama:qwen3:8b', 'ollama:qwen3:high'])('the id %s keeps its meaning', (id) => {
    expect(registry.findReference(id)).toMatchObject({ id, effort: null });
    expect(registry.get(id)?.id).toBe(id);
  });

  // Promise 22.1: an effort that the model lacks is an error that lists those it has.
  it('of an effort that its model lacks is an error that lists those it has', () => {
    const said = (name: string) => {
      const found = modelInput(registry, name);
      return found.ok ? '' : found.error.message;
    };
    expect(said('haiku:xhigh')).toBe('"haiku:xhigh": anthropic:claude has no effort "xhigh"; it has low, medium, high');
    expect(said('haiku:much')).toContain('it has low, medium, high');
    expect(said('plain:low')).toBe('"plain:low": anthropic:plain has no effort "low"; it has none at all');
    expect(said('sol:max')).toContain('openai:sol has no effort "max"; it has none, low, high');
    for (const name of ['plain:8b', 'nobody:low', 'haiku:low:low', 'haiku:'])
      expect(said(name)).toContain('is neither a model id nor an alias');
  });

  it('is taken by an @ prefix and by its field, and refused alike', () => {
    const read = (text: string, field: string | null = null) =>
      parseOverride({ content: [{ type: 'text', text }], field, registry });
    expect(read('@haiku:low hi')).toEqual({
      ok: true,
      value: { override: 'anthropic:claude:low', content: [{ type: 'text', text: 'hi' }] },
    });
    expect(read('hi', 'haiku:high')).toMatchObject({ ok: true, value: { override: 'anthropic:claude:high' } });
    expect(read('@haiku:max hi')).toMatchObject({
      error: { code: 'unknown_alias', message: expect.stringContaining('it has low, medium, high') },
    });
    expect(read('hi', 'haiku:max')).toMatchObject({ error: { message: expect.stringContaining('low, medium, high') } });
  });

  it('is taken in every place of a policy file', () => {
    const file = policy(
      'default: haiku:low\ntiers: { fast: haiku:high, balanced: plain, deep: sol }\nrules: [{ when: { has_images: true }, use: haiku:medium }]',
      'workspace',
      registry,
    );
    expect(file.default_model).toBe('anthropic:claude:low');
    expect(file.rules[0]!.use).toBe('anthropic:claude:medium');
    const { policies } = envOf({ registry, workspace: 'tiers: { fast: haiku:high, balanced: plain, deep: sol }' });
    expect(tierModel(policies, registry, 'fast')).toBe('anthropic:claude:high');
    expect(policyWarnings(file, 'workspace', registry)).toEqual([]);
    expect(() => policy('default: haiku:max', 'workspace', registry)).toThrow('default: "haiku:max": anthropic:claude');
  });
});

describe('the slots', () => {
  const places: readonly [name: string, over: Parameters<typeof decide>[0], world: World][] = [
    ['per_message_override', { per_message_override: 'anthropic:claude:low' }, {}],
    ['manual_sticky', { session_active_model: 'anthropic:claude:low' }, {}],
    ['rule', {}, { global: 'rules: [{ when: { is_worker: false }, use: haiku:low }]' }],
    [
      'pattern',
      {
        recommendation: {
          chosen_model: 'anthropic:claude:low',
          confidence: 1,
          sample_size: 9,
          k_cluster_size: 1,
          alternatives: [],
          config: { ...defaultConfig('').pattern, mode: 'apply' },
          evidence: new Map([['anthropic:claude:low', { turns: 100, scored: PASSED, verified: PASSED }]]),
        },
      },
      {},
    ],
    ['delegate_request', { is_worker: true, worker_tier_model: 'anthropic:claude:low' }, {}],
    ['workspace_default', {}, { workspace: 'default: haiku:low' }],
    ['global_default', {}, { configDefault: 'haiku:low' }],
  ];

  // Promise 22.2: each of the seven slots names model and effort.
  it.each(places)('%s names model and effort', (policyName, over, more) => {
    const decision = decide(over, { ...world, ...more });
    expect(decision).toMatchObject({ chosen_model: CLAUDE, chosen_effort: 'low', refused: null });
    const entry = decision.chain[decision.winner_index]!;
    expect(entry).toMatchObject({ policy: policyName, candidate_model: CLAUDE, candidate_effort: 'low' });
  });

  it('give what the provider assumes where the reference names none, and null where the model has none', () => {
    expect(decide({ session_active_model: CLAUDE }, world).chosen_effort).toBe('medium');
    expect(decide({ session_active_model: 'anthropic:plain' }, world).chosen_effort).toBeNull();
    expect(decide({ session_active_model: 'ollama:qwen3' }, world).chosen_effort).toBeNull();
  });

  // Promise 22.1: efforts that differ by wire.
  it('take of efforts by wire those of the wire of the turn, and refuse the others with a list', () => {
    expect(decide({ session_active_model: 'openai:sol' }, world).chosen_effort).toBe('none');
    expect(decide({ session_active_model: 'answers:sol' }, world).chosen_effort).toBe('high');
    expect(decide({ session_active_model: 'answers:sol:low' }, world).chosen_effort).toBe('low');
    const ctx = turn({ session_active_model: 'openai:sol:high' });
    const env = envOf({ ...world, configDefault: 'haiku' });
    const decision = decideRoute(ctx, env);
    expect(decision).toMatchObject({ chosen_effort: null, refused: 'explicit_model_rejected' });
    expect(decision.chain[1]).toMatchObject({ candidate_effort: 'high', validation_failure: 'no_such_effort' });
    expect(routeError(decision, ctx, env)?.message).toContain('no_such_effort: here it takes none;');
    const rule = { global: 'global_default: haiku\nrules: [{ name: r, when: { is_worker: false }, use: sol:high }]' };
    expect(decide({}, { ...world, ...rule }).chain[2]!.tried_rules).toEqual([
      {
        rule_name: 'r',
        candidate_model: 'openai:sol',
        candidate_effort: 'high',
        validation_failure: 'no_such_effort',
      },
    ]);
  });
});

describe('an entry', () => {
  it('that sets its efforts in the extra body too is an error that names the key', () => {
    const entry = (body: string) => `  openai:x: { efforts: [low], extra_body: ${body}, ${CAPS} }`;
    expect(errorsOf(entry('{ reasoning_effort: low }'))).toEqual([
      expect.stringContaining('models.openai:x.extra_body.reasoning_effort: the entry has efforts'),
    ]);
    expect(errorsOf(entry('{ reasoning: { effort: low } }'))[0]).toContain('extra_body.reasoning.effort:');
    expect(errorsOf(entry('{ reasoning: { exclude: true } }'))).toEqual([]);
    expect(errorsOf(`  openai:x: { extra_body: { reasoning_effort: low }, ${CAPS} }`)).toEqual([]);
  });

  it.each([
    ['efforts: [high, low]', 'efforts: must be a list of none, minimal, low'],
    ['efforts: [low, low]', 'efforts: must be'],
    ['efforts: [huge]', 'efforts: must be'],
    ['efforts: { fax: [low] }', 'efforts.fax: unknown key'],
    ['efforts: [low], default_effort: high', 'default_effort: high is not among its efforts'],
    ['default_effort: high', 'default_effort: high is not among its efforts'],
  ])('with %s is refused', (keys, said) => {
    expect(errorsOf(`  openai:x: { ${keys}, ${CAPS} }`)).toEqual([expect.stringContaining(`models.openai:x.${said}`)]);
  });

  it('without capabilities takes the efforts of the shipped one, unless it sets one itself', () => {
    const shipped = registryOf(['anthropic', 'openai'], shippedFile('registry.yaml'));
    const known = () => new Map(shipped.models.map((model) => [model.id, model]));
    const read = (keys: string) => {
      const parsed = parseRegistry(`models:\n  openai:gpt-6-sol: ${keys}`, 'r.yaml', known);
      if (!parsed.ok) throw new Error(parsed.error.join());
      return parsed.value.models[0]!;
    };
    expect(read('{}')).toMatchObject({ efforts: { chat: ['none'] }, default_effort: 'medium' });
    expect(read('{ extra_body: { reasoning_effort: none } }')).toMatchObject({ efforts: null, default_effort: null });
    expect(read('{ efforts: [low] }')).toMatchObject({ efforts: { chat: ['low'] }, default_effort: null });
  });
});

it('the nearest lower effort stands in for one that is not listed, else the lowest', () => {
  expect(fitEffort('high', ['low', 'medium'])).toBe('medium');
  expect(fitEffort('none', ['low', 'medium'])).toBe('low');
  expect(fitEffort('low', ['low', 'medium'])).toBe('low');
  expect(fitEffort('low', [])).toBeNull();
});

it('the shipped models ask for nothing that their provider assumes, and for no reasoning beside tools where it refuses that', () => {
  const shipped = registryOf(['anthropic', 'openai', 'openrouter'], shippedFile('registry.yaml'));
  const asked = (id: string) => {
    const model = shipped.get(id)!;
    return omitDefaultEffort(model, resolveDefaultEffort(model, findOwnWire(shipped.adapters, model)));
  };
  for (const model of shipped.models) {
    const own = listEfforts(model, findOwnWire(shipped.adapters, model));
    expect(asked(model.id)).toBe(own.join() === 'none' ? 'none' : null);
  }
  const chat = shippedFile('registry.yaml').replace(', wire: responses', '');
  const overChat = registryOf(['openai'], chat);
  for (const id of ['openai:gpt-6-sol', 'openai:gpt-6-luna'])
    expect(resolveDefaultEffort(overChat.get(id)!, findOwnWire(overChat.adapters, overChat.get(id)!))).toBe('none');
});
