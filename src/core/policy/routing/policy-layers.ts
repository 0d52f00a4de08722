// The policy files of a workspace between turns: re-parsed where they changed, the last good parse kept (03 §6.4).

import type { z } from 'zod';
import type { RoutingPolicyInvalidSchema } from '#protocol/event/turn-events.ts';
import type { SessionId } from '#protocol/ids.ts';
import { sha256Hex } from '#protocol/text/canonical-json.ts';
import type { ModelRegistry } from '../registry/model-registry.ts';
import {
  mergePolicies,
  type PolicyFile,
  type PolicyKind,
  parsePolicyFile,
  policyVersion,
  type RoutingPolicies,
} from './policy-file.ts';

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
  readonly good: {
    readonly bytes: Uint8Array;
    readonly file: PolicyFile;
    /** Unix milliseconds. */
    readonly loaded_at: number;
  } | null;
  /** Set while the file on disk is rejected. `reported_to`: roots of the session trees with an event about it. */
  readonly fault: {
    readonly digest: string;
    readonly report: PolicyFault;
    readonly reported_to: ReadonlySet<SessionId>;
  } | null;
}
export interface PolicyLayers {
  readonly workspace: PolicyLayer;
  readonly global: PolicyLayer;
}
/** Payload of `routing.policy_invalid`. */
export type PolicyFault = z.infer<typeof RoutingPolicyInvalidSchema>;

export const UNREAD: PolicyLayer = { stamp: null, good: null, fault: null };

/** Beyond it the first tree is forgotten and gets a second event. */
const MAX_REPORTED_TREES = 1000;
/** Maximum characters of a fault in a decision. */
const MAX_FAULT_LENGTH = 200;

/** Takes one file as found at `now`. Rejected content leaves the last good parse in force, and keeps the trees with an event about it. */
export function nextLayer(
  layer: PolicyLayer,
  { stamp, bytes, path }: PolicyFileRead,
  { kind, registry, now }: { readonly kind: PolicyKind; readonly registry: ModelRegistry; readonly now: number },
): PolicyLayer {
  if (stamp === layer.stamp) return layer;
  if (bytes === null) return { stamp, good: null, fault: null };
  const parsed = parsePolicyFile(new TextDecoder().decode(bytes), kind, registry);
  if (parsed.ok) return { stamp, good: { bytes, file: parsed.value, loaded_at: now }, fault: null };

  const digest = sha256Hex(bytes);
  const report = { policy_path: path, errors: parsed.error, using_last_known_good: layer.good !== null };
  const reported_to = digest === layer.fault?.digest ? layer.fault.reported_to : new Set<SessionId>();
  return { stamp, good: layer.good, fault: { digest, report, reported_to } };
}

/** The report of a rejected file that no event of this tree carries yet. */
export function findUnreported({ fault }: PolicyLayer, root: SessionId): PolicyFault | null {
  if (fault === null || fault.reported_to.has(root)) return null;
  return fault.report;
}

export function markReported(layer: PolicyLayer, root: SessionId): PolicyLayer {
  if (layer.fault === null || layer.fault.reported_to.has(root)) return layer;
  const reported_to = new Set([...layer.fault.reported_to, root].slice(-MAX_REPORTED_TREES));
  return { ...layer, fault: { ...layer.fault, reported_to } };
}

/** The line about a rejected file that the slots show. */
function describeFault({ fault, good }: PolicyLayer, name: PolicyKind): string | null {
  if (fault === null) return null;
  const errors = shortenErrors(fault.report.errors);
  if (good === null) return `${name} file invalid: ${errors}`;
  return `${name} file invalid, its last valid content is in force: ${errors}`;
}

function shortenErrors([first = '', ...more]: readonly string[]): string {
  let shown = first;
  if (first.length > MAX_FAULT_LENGTH) shown = `${first.slice(0, MAX_FAULT_LENGTH)}...`;
  if (more.length === 0) return shown;
  return `${shown} (and ${more.length} more)`;
}

/** The combined policies of the layers. `version` describes the parses in force, never rejected content. */
export function policiesInForce(
  { workspace, global }: PolicyLayers,
  known: { readonly registry: ModelRegistry; readonly configDefault: string | null },
): { readonly policies: RoutingPolicies; readonly version: string | null } {
  const files = {
    workspace: workspace.good?.file ?? null,
    global: global.good?.file ?? null,
    configDefault: known.configDefault,
    faults: { workspace: describeFault(workspace, 'workspace'), global: describeFault(global, 'global') },
  };
  return {
    policies: mergePolicies(files, known.registry),
    version: policyVersion(global.good?.bytes ?? null, workspace.good?.bytes ?? null),
  };
}

/** Lines about one of the two files, prefixed with its name. */
export function addLocations(kind: PolicyKind, lines: readonly string[]): string[] {
  return lines.map((line) => `${kind} file: ${line}`);
}

/** All faults of the files on disk, the workspace's first; empty = both files are in force. */
export function layerErrors(layers: PolicyLayers): string[] {
  const kinds = ['workspace', 'global'] as const;
  return kinds.flatMap((kind) => addLocations(kind, layers[kind].fault?.report.errors ?? []));
}
