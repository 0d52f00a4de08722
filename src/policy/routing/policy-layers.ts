// The policy files of a workspace between turns: re-parsed where they changed, the last good parse kept (03 §6.4).

import type { z } from 'zod';
import type { RoutingPolicyInvalidSchema } from '../../domain/event/routing.ts';
import { sha256Hex } from '../../kernel/canonical-json.ts';
import {
  mergePolicies,
  type PolicyFile,
  type PolicyKind,
  parsePolicyFile,
  policyVersion,
  type RoutingPolicies,
} from './policy-file.ts';
import type { ModelRegistry } from './registry.ts';

/** One file as found at a turn's start. */
export interface PolicyFileRead {
  readonly path: string;
  /** Null when there is no file. */
  readonly bytes: Uint8Array | null;
  /** Equal stamps mean equal content. */
  readonly stamp: string;
}

/** One file as last seen. */
export interface PolicyLayer {
  /** Null before the first read. */
  readonly stamp: string | null;
  /** The parse in force with the bytes it came from; null = an absent layer. */
  readonly good: { readonly bytes: Uint8Array; readonly file: PolicyFile } | null;
  /** Set while the file on disk is rejected. */
  readonly fault: { readonly digest: string; readonly errors: readonly string[] } | null;
}
export interface PolicyLayers {
  readonly workspace: PolicyLayer;
  readonly global: PolicyLayer;
}
/** Payload of `routing.policy_invalid`. */
export type PolicyFault = z.infer<typeof RoutingPolicyInvalidSchema>;

const UNREAD: PolicyLayer = { stamp: null, good: null, fault: null };

export function emptyLayers(): PolicyLayers {
  return { workspace: UNREAD, global: UNREAD };
}

/**
 * Takes the two files as found now. `invalid` holds what to emit: each rejected content once, as long as it stays.
 * `version` describes the parse in force, never rejected content.
 */
export function nextLayers(
  state: PolicyLayers,
  files: { readonly workspace: PolicyFileRead; readonly global: PolicyFileRead },
  known: { readonly registry: ModelRegistry; readonly configDefault: string | null },
): { state: PolicyLayers; policies: RoutingPolicies; version: string | null; invalid: PolicyFault[] } {
  const invalid: PolicyFault[] = [];
  const next = {
    workspace: nextLayer(state.workspace, files.workspace, 'workspace', known.registry, invalid),
    global: nextLayer(state.global, files.global, 'global', known.registry, invalid),
  };
  const { workspace, global } = next;
  return {
    state: next,
    policies: mergePolicies(
      {
        workspace: workspace.good?.file ?? null,
        global: global.good?.file ?? null,
        configDefault: known.configDefault,
      },
      known.registry,
    ),
    version: policyVersion(global.good?.bytes ?? null, workspace.good?.bytes ?? null),
    invalid,
  };
}

/** Everything wrong with the files on disk, the workspace's first; empty = both are in force as they are. */
export function layerErrors(layers: PolicyLayers): string[] {
  return [...(layers.workspace.fault?.errors ?? []), ...(layers.global.fault?.errors ?? [])];
}

function nextLayer(
  layer: PolicyLayer,
  { stamp, bytes, path }: PolicyFileRead,
  kind: PolicyKind,
  registry: ModelRegistry,
  invalid: PolicyFault[],
): PolicyLayer {
  if (stamp === layer.stamp) return layer;
  if (bytes === null) return { stamp, good: null, fault: null };
  const parsed = parsePolicyFile(new TextDecoder().decode(bytes), kind, registry);
  if (parsed.ok) return { stamp, good: { bytes, file: parsed.value }, fault: null };

  const digest = sha256Hex(bytes);
  if (digest !== layer.fault?.digest) {
    invalid.push({ policy_path: path, errors: parsed.error, using_last_known_good: layer.good !== null });
  }
  return { stamp, good: layer.good, fault: { digest, errors: parsed.error } };
}
