// Decides whether a tool call may run, and writes the texts of an approval request (09 §5, §6.1).
import type { Config, ToolMode } from '#protocol/config.ts';
import type { ApprovalMode } from '#protocol/scalars.ts';
import { canonicalJson } from '#protocol/text/canonical-json.ts';
import { scrubExcerpt } from '#protocol/text/scrub.ts';
import type { ToolDefinition } from '#protocol/tool.ts';
import type { ToolRule } from '#protocol/worker-definition.ts';
import { keyOfTool, namesTool } from './tool-names.ts';

/** The entries of `trust.yaml`; `malformed` means that none could be read. */
export interface TrustEntries {
  readonly always_allow: readonly string[];
  readonly always_deny: readonly string[];
  readonly malformed: boolean;
}

/** A session's rule for a tool or its group (13 §7.1). */
export interface ApprovalRule {
  readonly allowed: boolean;
  /** Null = as if there were no rule. */
  readonly approval_required: boolean | null;
}

export type ApprovalDecision =
  | 'not_found'
  /** "Denied by policy.", no confirmation events. */
  | 'deny_policy'
  | 'allow'
  /** The three that write confirmation events. */
  | 'deny_strict'
  | 'approve_all'
  | 'ask';

export interface ApprovalQuestion {
  readonly inEffectiveSet: boolean;
  readonly rule: ApprovalRule | null;
  readonly mode: ToolMode;
  readonly trust: TrustEntries;
  readonly toolName: string;
  readonly approvalMode: ApprovalMode;
  /** An `identical` answer of this session tree covers the call. */
  readonly granted: boolean;
}

/** The rule of a session for a tool: under its own name, else under its group's (13 §7.1). */
export function findToolRule(
  rules: Readonly<Record<string, ToolRule>>,
  tool: Pick<ToolDefinition, 'name' | 'group'>,
): ToolRule | null {
  return getEntry(rules, keyOfTool(rules, tool.name)) ?? getEntry(rules, tool.group) ?? null;
}

/** An own entry of the map. */
function getEntry<T>(map: Readonly<Record<string, T>>, key: string | null | undefined): T | undefined {
  if (key == null || !Object.hasOwn(map, key)) return undefined;
  return map[key];
}

/** The first line of 09 §5.2 that matches. */
export function decideApproval(q: ApprovalQuestion): ApprovalDecision {
  if (!q.inEffectiveSet) return 'not_found';
  if (q.rule?.allowed === false || q.mode === 'deny') return 'deny_policy';
  if (trustMatches(q.trust.always_deny, q.toolName)) return 'deny_policy';
  const required = q.rule?.approval_required ?? null;
  if (required === false) return 'allow';
  if (required === null) {
    if (q.mode === 'auto') return 'allow';
    if (!q.trust.malformed && trustMatches(q.trust.always_allow, q.toolName)) return 'allow';
  }
  if (q.approvalMode === 'strict') return 'deny_strict';
  // A broken trust file may hide a deny entry, and this mode has no approval request.
  if (q.approvalMode === 'approve_all') {
    if (q.trust.malformed) return 'deny_policy';
    return 'approve_all';
  }
  if (q.granted) return 'allow';
  return 'ask';
}

/** An entry is a tool's name, or a prefix with one final `*`; a bare `*` matches nothing. */
export function trustMatches(entries: readonly string[], name: string): boolean {
  return entries.some((entry) => entry !== '*' && namesTool(entry, name));
}

/** A tool's own entry beats its group's, which beats the default of its class. */
export function resolveToolMode(
  config: Pick<Config['tool_confirmation'], 'default' | 'per_tool'>,
  tool: Pick<ToolDefinition, 'name' | 'side_effects' | 'group'>,
): ToolMode {
  const { per_tool } = config;
  const { group } = tool;
  const mode = getEntry(per_tool, keyOfTool(per_tool, tool.name)) ?? getEntry(per_tool, group);
  if (mode !== undefined) return mode;
  // A worker's own calls are approved one by one, so calling the worker needs no approval.
  if (group === 'worker.call' || group === 'sandbox.read') return 'auto';
  return config.default[tool.side_effects];
}

const MAX_SUMMARY = 200;
const MAX_COMMAND = 500;

/**
 * Sorted-key JSON of the input without credentials, at most 200 characters; a cut one ends in `...`. Paths and addresses
 * stay: they are what the user approves.
 */
export function inputSummary(input: Readonly<Record<string, unknown>>, secrets: readonly string[] = []): string {
  // JSON holds a secret as it is, or with its quotes and line ends escaped.
  const written = secrets.flatMap((secret) => [secret, JSON.stringify(secret).slice(1, -1)]);
  return scrubExcerpt(canonicalJson(input), MAX_SUMMARY, written);
}

/** The paths a `write` tool is about to change, as the model gave them; null for other tools. */
export function projectedModifications(
  tool: Pick<ToolDefinition, 'side_effects' | 'path_fields' | 'memory_field'>,
  input: Readonly<Record<string, unknown>>,
): string[] | null {
  if (tool.side_effects !== 'write') return null;
  if (tool.memory_field === undefined) return givenPaths(tool.path_fields, input);
  return givenPaths([tool.memory_field], input).map((file) => `.metis/${file}`);
}

/** Every path in the input's path fields: strings, and strings in arrays. */
export function givenPaths(fields: readonly string[], input: Readonly<Record<string, unknown>>): string[] {
  return fields
    .filter((field) => Object.hasOwn(input, field))
    .flatMap((field) => input[field])
    .filter((value): value is string => typeof value === 'string');
}

/** The command that would run without credentials, at most 500 characters; null for a tool that runs none. */
export function commandSummary(
  tool: Pick<ToolDefinition, 'command_field'>,
  input: Readonly<Record<string, unknown>>,
  secrets: readonly string[],
): string | null {
  if (tool.command_field === undefined) return null;
  const command = input[tool.command_field];
  if (typeof command !== 'string') return null;
  return scrubExcerpt(command, MAX_COMMAND, secrets);
}

const MAX_PAYLOAD = 65_536;
const MAX_EXCERPT = 4096;

/** The excerpt in the approval request of a call that a rule or a group covers (13 §7.1); null = the input is enough. */
export function approvalPayload(
  tool: Pick<ToolDefinition, 'name' | 'group' | 'spawns' | 'path_fields'>,
  input: Readonly<Record<string, unknown>>,
  secrets: readonly string[],
): Record<string, unknown> | null {
  const shortenValue = (value: unknown, most: number) => {
    if (typeof value === 'string') return scrubExcerpt(value, most, secrets);
    return null;
  };
  if (tool.group === 'sandbox.write') {
    const content = input.content ?? input.new;
    const bytes = typeof content === 'string' ? Buffer.byteLength(content) : 0;
    return { path: givenPaths(tool.path_fields, input)[0] ?? null, bytes, excerpt: shortenValue(content, MAX_EXCERPT) };
  }
  if (tool.group === 'worker.call')
    return {
      worker: tool.spawns === 'worker_call' ? input.worker : tool.name,
      input: shortenValue(input.input, MAX_PAYLOAD),
    };
  return null;
}
