// Routing policy files: parsing one, laying the workspace's over the global one, and their common version (03 §6).

import { createHash } from 'node:crypto';
import { ConfigSchema, defaultConfig } from '#protocol/config.ts';
import type { PatternConfig } from '#protocol/learned-pattern.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import { type Tier, TierSchema } from '#protocol/scalars.ts';
import { joinLines } from '#protocol/text/plain-text.ts';
import { issueLines } from '../parsing/plain-issue.ts';
import { OUTSIDE } from '../parsing/text-limits.ts';
import { isMapping, readYaml } from '../parsing/yaml.ts';
import { describeUnknownModel } from '../registry/find-model.ts';
import type { ModelRegistry } from '../registry/model-registry.ts';
import { compileRules, type Rule } from './rules.ts';

export type PolicyKind = 'workspace' | 'global';
type Tiers = Readonly<Record<Tier, string>>;

/** One valid file. Model references are canonical (22 §1); null = the file does not define the section. */
export interface PolicyFile {
  /** `default` of a workspace file, `global_default` of the global one. */
  readonly default_model: string | null;
  readonly tiers: Tiers | null;
  readonly pattern: PatternConfig | null;
  readonly rules: readonly Rule[];
}

/** The layers in force for one workspace. */
export interface RoutingPolicies {
  readonly workspace_default: string | null;
  readonly global_default: string | null;
  readonly tiers: Tiers | null;
  /** Null = the configuration's `pattern.*`. */
  readonly pattern: PatternConfig | null;
  /** The workspace's first. */
  readonly rules: readonly Rule[];
  readonly faults: PolicyFaults;
}

/** The fault of a file on disk, as one line that the chain shows; null = none. */
interface PolicyFaults {
  readonly workspace: string | null;
  readonly global: string | null;
}

const NO_FAULTS: PolicyFaults = { workspace: null, global: null };
const EMPTY: PolicyFile = { default_model: null, tiers: null, pattern: null, rules: [] };
const DEFAULT_KEY = { workspace: 'default', global: 'global_default' } as const;
const SECTIONS = new Set(['schema_version', 'default', 'global_default', 'tiers', 'pattern', 'rules']);
const TIERS = TierSchema.options;
/** Maximum faults that are reported, since they become an event. */
const MAX_ERRORS = 100;
const MAX_ERROR_LENGTH = 500;
/** Without a configured default: the first configured model of these. */
const FALLBACK_TIERS = ['balanced', 'deep', 'fast'] as const;

/** Parses and checks one file. Errors: every fault found, at most 100 and counted beyond, each `<path in the file>: <problem>`, or the problem alone for the whole file. */
export function parsePolicyFile(text: string, kind: PolicyKind, registry: ModelRegistry): Result<PolicyFile, string[]> {
  return parsePolicy(readPolicy(text), kind, registry);
}

/** The first half of `parsePolicyFile`: the value of the file, or the fault of its syntax. */
export function readPolicy(text: string): Result<unknown, string> {
  return readYaml(text, OUTSIDE);
}

/** The second half of `parsePolicyFile`. */
export function parsePolicy(
  yaml: Result<unknown, string>,
  kind: PolicyKind,
  registry: ModelRegistry,
): Result<PolicyFile, string[]> {
  if (!yaml.ok) return err([yaml.error]);
  const root = yaml.value;
  if (root === null) return ok(EMPTY);
  if (!isMapping(root)) return err(['must be a mapping']);

  const errors: string[] = [];
  const modelRef = (value: unknown, at: string): string | null => {
    if (typeof value !== 'string') {
      errors.push(`${at}: must be a model id or alias as a string`);
      return null;
    }
    const id = registry.resolveAlias(value);
    if (id === null) errors.push(`${at}: ${describeUnknownModel(registry, value)}`);
    return id;
  };
  const unknown = Object.keys(root).filter((key) => !SECTIONS.has(key));
  if (unknown.length > 0) errors.push(`unknown key(s) [${unknown.join(', ')}]`);
  const version = root.schema_version ?? 1;
  if (version !== 1) {
    errors.push(`schema_version: unsupported version ${JSON.stringify(version)}; only 1 is supported`);
  }
  const otherKind = kind === 'workspace' ? 'global' : 'workspace';
  const foreign = DEFAULT_KEY[otherKind];
  if (root[foreign] != null) errors.push(`${foreign}: belongs in the ${otherKind} file`);
  const key = DEFAULT_KEY[kind];
  const file: PolicyFile = {
    default_model: root[key] == null ? null : modelRef(root[key], key),
    tiers: root.tiers == null ? null : readTiers(root.tiers, errors, modelRef),
    pattern: root.pattern == null ? null : readPattern(root.pattern, errors),
    rules: compileRules(root.rules ?? [], 'rules', errors, modelRef),
  };
  if (errors.length > 0) return err(limitErrors(errors));
  return ok(file);
}

/** One line each, though an error quotes names from the file. */
function limitErrors(errors: readonly string[]): string[] {
  const lines = errors.slice(0, MAX_ERRORS).map((line) => {
    const plain = joinLines(line);
    if (plain.length <= MAX_ERROR_LENGTH) return plain;
    return `${plain.slice(0, MAX_ERROR_LENGTH)}...`;
  });
  if (errors.length > MAX_ERRORS) lines.push(`and ${errors.length - MAX_ERRORS} more`);
  return lines;
}

/** Which of the two files must be meant: only a workspace's has a `default`. */
export function policyKind(yaml: Result<unknown, string>): PolicyKind {
  if (yaml.ok && isMapping(yaml.value) && 'default' in yaml.value) return 'workspace';
  return 'global';
}

/**
 * The nearest file that defines a section supplies the whole section; rules are concatenated, the workspace's first.
 * @param configDefault `routing.global_default_model`, id or alias
 */
export function mergePolicies(
  layers: {
    readonly workspace: PolicyFile | null;
    readonly global: PolicyFile | null;
    readonly configDefault: string | null;
    readonly faults?: PolicyFaults;
  },
  registry: ModelRegistry,
): RoutingPolicies {
  const { workspace, global, configDefault, faults = NO_FAULTS } = layers;
  return {
    workspace_default: workspace?.default_model ?? null,
    global_default: global?.default_model ?? fallbackDefault(configDefault, registry),
    tiers: workspace?.tiers ?? global?.tiers ?? null,
    pattern: workspace?.pattern ?? global?.pattern ?? null,
    rules: [...(workspace?.rules ?? []), ...(global?.rules ?? [])],
    faults,
  };
}

/** The model of a tier: the policy's `tiers`, else the registry's first configured one; null = none. */
export function tierModel(policies: RoutingPolicies, registry: ModelRegistry, tier: Tier): string | null {
  return policies.tiers?.[tier] ?? registry.modelForTier(tier);
}

/** Lower-case hex SHA-256 over both files' bytes with one zero byte between them; null when neither exists. */
export function policyVersion(globalBytes: Uint8Array | null, workspaceBytes: Uint8Array | null): string | null {
  if (globalBytes === null && workspaceBytes === null) return null;
  const hash = createHash('sha256');
  if (globalBytes) hash.update(globalBytes);
  hash.update(new Uint8Array(1));
  if (workspaceBytes) hash.update(workspaceBytes);
  return hash.digest('hex');
}

// An unregistered configured default is kept: the chain then reports `not_configured` instead of passing it over.
function fallbackDefault(configured: string | null, registry: ModelRegistry): string | null {
  if (configured !== null) return registry.resolveAlias(configured) ?? configured;
  for (const tier of FALLBACK_TIERS) {
    const model = registry.modelForTier(tier);
    if (model !== null) return model;
  }
  return null;
}

function readTiers(
  value: unknown,
  errors: string[],
  modelRef: (value: unknown, at: string) => string | null,
): Tiers | null {
  if (!isMapping(value)) {
    errors.push('tiers: must be a mapping');
    return null;
  }
  const extra = Object.keys(value).filter((key) => !TIERS.some((tier) => tier === key));
  if (extra.length > 0) errors.push(`tiers: unknown key(s) [${extra.join(', ')}]`);
  if (TIERS.some((tier) => value[tier] == null)) errors.push('tiers: must define all three slots');
  const readTier = (tier: Tier) => {
    if (value[tier] == null) return null;
    return modelRef(value[tier], `tiers.${tier}`);
  };
  const [fast, balanced, deep] = TIERS.map(readTier);
  if (fast == null || balanced == null || deep == null) return null;
  return { fast, balanced, deep };
}

// A block is complete by itself: a missing key has the built-in default, not the configured value.
function readPattern(value: unknown, errors: string[]): PatternConfig | null {
  const block = isMapping(value) ? { ...defaultConfig('').pattern, ...renameEnabled(value) } : value;
  const parsed = ConfigSchema.shape.pattern.safeParse(block);
  if (parsed.success) return parsed.data;
  errors.push(...issueLines(parsed.error, 'pattern'));
  return null;
}

/** `enabled` is an earlier name: false was `mode: off`, true what is the default now. */
function renameEnabled({ enabled, ...block }: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  if (enabled === false) return { mode: 'off', ...block };
  if (enabled === true || enabled === undefined) return block;
  return { enabled, ...block };
}

// Models that a valid policy file names but this server cannot call, or that have a successor.

/** One line for each reference to a model without a usable adapter, or with a newer one, `<path>: <remark>`. */
export function policyWarnings(file: PolicyFile, kind: PolicyKind, registry: ModelRegistry): readonly string[] {
  const references: (readonly [string, string | null])[] = [
    [DEFAULT_KEY[kind], file.default_model],
    ...Object.entries(file.tiers ?? {}).map(([tier, model]) => [`tiers.${tier}`, model] as const),
    ...file.rules.map(({ use }, i) => [`rules[${i}].use`, use] as const),
  ];
  return references.flatMap(([path, model]) => {
    if (model === null) return [];
    const id = registry.findReference(model)?.id ?? model;
    const newer = registry.get(id)?.superseded_by ?? null;
    return [
      ...(registry.isConfigured(id)
        ? []
        : [`${path}: ${model} is registered but its adapter has no credentials here; routing will pass it over`]),
      ...(newer === null ? [] : [`${path}: ${model} goes on working; ${newer} is its successor`]),
    ];
  });
}
