// The routing policy as an operator sees it: what is in force, and what a file would be worth (05 §3.5).

import { isoTime } from '#protocol/clock.ts';
import type { Tier } from '#protocol/scalars.ts';
import {
  type PatternConfig,
  type PolicyKind,
  parsePolicy,
  policyKind,
  readPolicy,
  tierModel,
} from '../policy/routing/policy-file.ts';
import { layerErrors, located } from '../policy/routing/policy-layers.ts';
import { policyWarnings } from '../policy/routing/policy-warnings.ts';
import { currentPolicies } from './routing/route-environment.ts';
import { openWorkspace } from './session/new-session.ts';
import type { Engine } from './state/engine.ts';

export interface PolicyView {
  /** Null where there is no file. */
  readonly version: string | null;
  /** False while a file on disk is rejected. */
  readonly valid: boolean;
  /** When the newest of the parses in force was made; null where there is no file. */
  readonly loaded_at: string | null;
  readonly global_default: string | null;
  readonly workspace_default: string | null;
  /** What each tier resolves to, by file or registry. */
  readonly tiers: Readonly<Record<Tier, string | null>>;
  readonly rules: readonly { readonly name: string; readonly when: unknown; readonly use: string }[];
  readonly pattern: PatternConfig;
  /** Only when not valid. */
  readonly errors?: readonly string[];
  readonly using_last_known_good?: boolean;
}

/**
 * What a turn that starts now would be routed by. Throws `not_found` (workspace) or `workspace_not_allowed`.
 * @param workspace null = what holds for every workspace
 */
export async function policyInForce(engine: Engine, workspace: string | null): Promise<PolicyView> {
  const root = workspace === null ? null : await openWorkspace(engine, workspace);
  const { policies, version, layers } = await currentPolicies(engine, root);
  const files = [layers.workspace, layers.global];
  const loaded = Math.max(...files.map(({ good }) => good?.loaded_at ?? 0));
  const errors = layerErrors(layers);
  const model = (tier: Tier) => tierModel(policies, engine.registry, tier);
  return {
    version,
    valid: errors.length === 0,
    loaded_at: loaded === 0 ? null : isoTime(loaded),
    global_default: policies.global_default,
    workspace_default: policies.workspace_default,
    tiers: { fast: model('fast'), balanced: model('balanced'), deep: model('deep') },
    rules: policies.rules.map(({ name, when, use }) => ({ name, when, use })),
    pattern: policies.pattern ?? engine.config.pattern,
    ...(errors.length === 0
      ? {}
      : { errors, using_last_known_good: files.some(({ good, fault }) => fault !== null && good !== null) }),
  };
}

export interface PolicyCheck {
  readonly valid: boolean;
  readonly errors: readonly string[];
  /** Of valid files. */
  readonly warnings: readonly string[];
}

/**
 * Checks a text, or without one the files on disk; nothing is loaded. Throws `not_found` (workspace) or
 * `workspace_not_allowed`.
 * @param workspace with a text: it is this workspace's file; null = by its keys, or the global file alone
 */
export async function checkPolicy(engine: Engine, text: string | null, workspace: string | null): Promise<PolicyCheck> {
  const root = workspace === null ? null : await openWorkspace(engine, workspace);
  const errors: string[] = [];
  const warnings: string[] = [];
  for (const [given, content] of await contents(engine, text, root)) {
    const yaml = readPolicy(content);
    const kind = given ?? policyKind(yaml);
    const parsed = parsePolicy(yaml, kind, engine.registry);
    // A text that was sent is the one file there is.
    const named = (lines: readonly string[]) => (text === null ? located(kind, lines) : lines);
    if (parsed.ok) warnings.push(...named(policyWarnings(parsed.value, kind, engine.registry)));
    else errors.push(...named(parsed.error));
  }
  return { valid: errors.length === 0, errors, warnings };
}

async function contents(
  { workspaces }: Engine,
  text: string | null,
  root: string | null,
): Promise<readonly (readonly [PolicyKind | null, string])[]> {
  if (text !== null) return [[root === null ? null : 'workspace', text]];
  const files =
    root === null
      ? { workspace: null, global: await workspaces.globalRoutingFile() }
      : await workspaces.routingFiles(root);
  return (['workspace', 'global'] as const).flatMap((kind) => {
    const bytes = files[kind]?.bytes ?? null;
    return bytes === null ? [] : [[kind, new TextDecoder().decode(bytes)] as const];
  });
}
