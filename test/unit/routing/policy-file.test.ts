// Policy files: schema, layers, tiers, version (03 §6).
import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import {
  mergePolicies,
  parsePolicyFile,
  policyVersion,
  policyWarnings,
  tierModel,
} from '#core/policy/routing/policy-file.ts';
import { GPT, HAIKU, OPUS, policy, registryOf, SONNET } from './world.ts';

const registry = registryOf();

function errorsOf(text: string, kind: 'workspace' | 'global' = 'global'): string[] {
  const parsed = parsePolicyFile(text, kind, registry);
  return parsed.ok ? [] : parsed.error;
}
function merged(workspace: string | null, global: string | null, configDefault: string | null = null, of = registry) {
  return mergePolicies(
    {
      workspace: workspace === null ? null : policy(workspace, 'workspace', of),
      global: global === null ? null : policy(global, 'global', of),
      configDefault,
    },
    of,
  );
}

describe('a policy file', () => {
  it('holds canonical ids, named rules and a whole pattern block', () => {
    const file = policy(
      `schema_version: 1
global_default: opus
tiers: { fast: haiku, balanced: gpt, deep: ${OPUS} }
pattern: { cost_weight: 0.5 }
rules:
  - { when: { has_images: true }, use: sonnet }
  - { name: big, when: { estimated_input_tokens_gt: 9 }, use: opus }
  - { when: { has_images: false }, use: gpt }`,
      'global',
    );
    expect(file).toMatchObject({
      default_model: OPUS,
      tiers: { fast: HAIKU, balanced: GPT, deep: OPUS },
      pattern: { mode: 'suggest', evidence: 'verified', cost_weight: 0.5, min_confidence: 0.05, min_sample_size: 5 },
    });
    expect(file.rules.map(({ name, when, use }) => ({ name, when, use }))).toEqual([
      { name: 'rule_0', when: { has_images: true }, use: SONNET },
      { name: 'big', when: { estimated_input_tokens_gt: 9 }, use: OPUS },
      { name: 'rule_2', when: { has_images: false }, use: GPT },
    ]);
  });

  it.each(['', '# nothing\n', 'rules:\n', '{}'])('may be as empty as %j', (text) => {
    expect(policy(text, 'workspace')).toEqual({ default_model: null, tiers: null, pattern: null, rules: [] });
  });

  // Promise 03.12: a workspace file with one tier of three is rejected when it is loaded.
  it.each<[string, string, 'workspace' | 'global', string]>([
    ['malformed YAML', 'rules: [', 'global', 'malformed YAML'],
    ['a root that is no mapping', '- a', 'workspace', 'must be a mapping'],
    ['another schema_version', 'schema_version: 2', 'global', 'schema_version: unsupported version 2'],
    ['a boolean for an integer', 'schema_version: true', 'global', 'schema_version: unsupported version true'],
    ['lists in lists without end', '- '.repeat(10_000), 'workspace', 'is nested deeper than 100 levels'],
    [
      'regular expressions that take too long together',
      `rules:\n${`  - { use: opus, when: { message_matches: 'a.{300}b' } }\n`.repeat(7)}`,
      'workspace',
      'rules[6].when.message_matches: the regular expressions of the file are too large together',
    ],
    [
      'words that take too long together',
      `rules:\n${`  - { use: opus, when: { message_contains_any: [${'x'.repeat(2000)}] } }\n`.repeat(6)}`,
      'workspace',
      'rules[5].when.message_contains_any: the words of the file have more than 10000 characters together',
    ],
    ['an unknown key', 'rulez: []', 'global', 'unknown key(s) [rulez]'],
    ['an unregistered default', 'global_default: gpt-5', 'global', 'global_default: "gpt-5" is neither'],
    ['a default that is no string', 'default: 5', 'workspace', 'default: must be a model id'],
    ['the other file’s default', 'default: opus', 'global', 'default: belongs in the workspace file'],
    ['the other file’s default too', 'global_default: opus', 'workspace', 'global_default: belongs in the global file'],
    ['partial tiers', 'tiers: { fast: haiku }', 'workspace', 'tiers: must define all three slots'],
    [
      'tiers with one more',
      'tiers: { fast: haiku, balanced: gpt, deep: opus, huge: opus }',
      'global',
      'tiers: unknown key(s) [huge]',
    ],
    ['an unregistered tier', 'tiers: { fast: x, balanced: gpt, deep: opus }', 'global', 'tiers.fast: "x" is neither'],
    ['a rule without use', 'rules: [{ when: { has_images: true } }]', 'global', 'rules[0].use: is required'],
    ['a rule without when', 'rules: [{ use: opus }]', 'workspace', 'rules[0].when: is required'],
    [
      'an unknown rule key',
      'rules: [{ use: opus, when: { has_images: true }, then: 1 }]',
      'global',
      'rules[0]: unknown key(s) [then]',
    ],
    [
      'a rule name given twice',
      'rules: [{ name: a, use: opus, when: { has_images: true } }, { name: a, use: gpt, when: { has_images: true } }]',
      'global',
      'rules[1].name: duplicate name',
    ],
    [
      'a generated name given to another',
      'rules: [{ name: rule_1, use: opus, when: { has_images: true } }, { use: gpt, when: { has_images: true } }]',
      'global',
      'rules[1].name: duplicate name',
    ],
    [
      'an unknown predicate',
      'rules: [{ use: opus, when: { foo: 1 } }]',
      'global',
      'rules[0].when: unknown predicate key(s) [foo]',
    ],
    ['rules that are no list', 'rules: { a: 1 }', 'global', 'rules: must be a list'],
    ['a pattern number out of range', 'pattern: { cost_weight: 1.5 }', 'global', 'pattern.cost_weight: '],
    ['an unknown pattern key', 'pattern: { weight: 1 }', 'global', 'pattern.weight: unknown key'],
    ['a fractional sample size', 'pattern: { min_sample_size: 1.5 }', 'global', 'pattern.min_sample_size: '],
  ])('is refused for %s', (_, text, kind, start) => {
    const errors = errorsOf(text, kind);
    expect(errors).toHaveLength(1);
    expect(errors[0]!.startsWith(start)).toBe(true);
  });

  it('is refused with all of its faults at once', () => {
    const errors = errorsOf(
      'tiers: { fast: haiku }\nrules: [{ use: opus, when: { message_matches: "(" } }, { use: opus, when: { foo: 1 } }]',
      'workspace',
    );
    expect(errors).toEqual([
      'tiers: must define all three slots',
      expect.stringContaining('rules[0].when.message_matches: Invalid regular expression'),
      'rules[1].when: unknown predicate key(s) [foo]',
    ]);
  });
});

describe('the layers', () => {
  it('let the nearest file supply a section whole and string the rules together', () => {
    const policies = merged(
      'default: haiku\npattern: { enabled: false }\nrules: [{ name: near, use: opus, when: { has_images: true } }]',
      `global_default: gpt
tiers: { fast: gpt, balanced: gpt, deep: gpt }
pattern: { cost_weight: 1 }
rules: [{ name: far, use: opus, when: { has_images: true } }]`,
    );
    expect(policies).toMatchObject({
      workspace_default: HAIKU,
      global_default: GPT,
      tiers: { fast: GPT },
      pattern: { mode: 'off', cost_weight: 0.05 },
    });
    expect(policies.rules.map((rule) => rule.name)).toEqual(['near', 'far']);
  });

  // Promise 03.13: a tier means what the nearest file says, else the first configured model of the registry.
  it('take a tier from the workspace, then the global file, then the first configured model of the registry', () => {
    const workspace = 'tiers: { fast: gpt, balanced: gpt, deep: gpt }';
    const global = 'tiers: { fast: sonnet, balanced: sonnet, deep: sonnet }';
    expect(tierModel(merged(workspace, global), registry, 'fast')).toBe(GPT);
    expect(tierModel(merged('default: opus', global), registry, 'fast')).toBe(SONNET);
    expect(tierModel(merged(null, null), registry, 'fast')).toBe(HAIKU);
    const openai = registryOf(['openai']);
    expect(tierModel(merged(null, null, null, openai), openai, 'balanced')).toBe(GPT);
    expect(tierModel(merged(null, null, null, openai), openai, 'fast')).toBeNull();
  });

  it('take the global default from the file, the configuration, then balanced, deep, fast', () => {
    expect(merged(null, 'global_default: opus', 'gpt').global_default).toBe(OPUS);
    expect(merged(null, null, 'gpt').global_default).toBe(GPT);
    expect(merged(null, null, 'nobody').global_default).toBe('nobody');
    expect(merged(null, null).global_default).toBe(SONNET);
    const tiered = (tiers: string[]) =>
      registryOf(
        ['a'],
        `adapters: { a: { type: openai }, b: { type: openai } }
models:
  b:balanced: { tier: balanced, capabilities: { max_context_tokens: 1, max_output_tokens: 1 } }
${tiers.map((t) => `  a:${t}: { tier: ${t}, capabilities: { max_context_tokens: 1, max_output_tokens: 1 } }`).join('\n')}`,
      );
    const fallback = (tiers: string[]) => merged(null, null, null, tiered(tiers)).global_default;
    expect(fallback(['fast', 'deep'])).toBe('a:deep');
    expect(fallback(['fast'])).toBe('a:fast');
    expect(fallback([])).toBeNull();
  });
});

describe('the policy version', () => {
  const sha = (text: string) => createHash('sha256').update(text).digest('hex');
  const bytes = (text: string) => new TextEncoder().encode(text);

  it('is the SHA-256 of both files around a zero byte, null without files', () => {
    expect(policyVersion(null, null)).toBeNull();
    expect(policyVersion(bytes('g'), null)).toBe(sha('g\0'));
    expect(policyVersion(null, bytes('w'))).toBe(sha('\0w'));
    expect(policyVersion(bytes('g'), bytes('w'))).toBe(sha('g\0w'));
    expect(policyVersion(bytes(''), null)).toBe(sha('\0'));
  });
});

it('a file that names a model with a successor goes on working, and each place is remarked', () => {
  const registry = registryOf(
    ['scripted'],
    `adapters: { scripted: { type: scripted } }
models:
  scripted:old: { aliases: [old], superseded_by: 'scripted:new', capabilities: { max_context_tokens: 9, max_output_tokens: 9 } }
  scripted:new: { capabilities: { max_context_tokens: 9, max_output_tokens: 9 } }
`,
  );
  const file = policy(
    'default: scripted:new\ntiers: { fast: old, balanced: scripted:new, deep: scripted:new }\n',
    'workspace',
    registry,
  );
  expect(file.tiers?.fast).toBe('scripted:old');
  expect(policyWarnings(file, 'workspace', registry)).toEqual([
    'tiers.fast: scripted:old goes on working; scripted:new is its successor',
  ]);
});
