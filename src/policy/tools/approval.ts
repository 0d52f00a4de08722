// May this call run, and what a person is told about it: the one decision list and the texts of the question (09 §5, §6.1).
import type { Config, ToolMode } from '../../domain/config.ts';
import type { ApprovalMode } from '../../domain/scalars.ts';
import type { ToolDefinition } from '../../domain/tool.ts';
import { canonicalJson } from '../../kernel/canonical-json.ts';
import { type ScrubOptions, scrub } from '../../kernel/scrub.ts';

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

/** Kinds of calls that one rule or one config key may cover (13 §7.1). */
export type ToolGroup = 'sandbox.read' | 'sandbox.write' | 'worker.call' | 'worker.create';

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
  // With a broken trust file a deny entry may be hidden in it, and nobody is there to be asked.
  if (q.approvalMode === 'approve_all') return q.trust.malformed ? 'deny_policy' : 'approve_all';
  return q.granted ? 'allow' : 'ask';
}

/** An entry is a tool's name, or a prefix with one final `*`; a bare `*` matches nothing. */
export function trustMatches(entries: readonly string[], name: string): boolean {
  return entries.some((entry) =>
    entry.endsWith('*') ? entry.length > 1 && name.startsWith(entry.slice(0, -1)) : entry === name,
  );
}

const GROUPS: ReadonlyMap<string, ToolGroup> = new Map([
  ['write_file', 'sandbox.write'],
  ['edit_file', 'sandbox.write'],
  ['worker_call', 'worker.call'],
  ['worker_create', 'worker.create'],
]);

/** The group of a tool; null for most. */
export function toolGroup(name: string): ToolGroup | null {
  return GROUPS.get(name) ?? null;
}

/** A tool's own entry beats its group's, which beats the default of its class. */
export function toolMode(
  config: Pick<Config['tool_confirmation'], 'default' | 'per_tool'>,
  tool: Pick<ToolDefinition, 'name' | 'side_effects'>,
  group: ToolGroup | null,
): ToolMode {
  const own = entryOf(config.per_tool, tool.name);
  if (own !== null) return own;
  const grouped = group === null ? null : entryOf(config.per_tool, group);
  if (grouped !== null) return grouped;
  // What a worker does is confirmed by itself, so calling one is not.
  if (group === 'worker.call' || group === 'sandbox.read') return 'auto';
  return config.default[tool.side_effects];
}

function entryOf(perTool: Readonly<Record<string, ToolMode>>, key: string): ToolMode | null {
  return Object.hasOwn(perTool, key) ? (perTool[key] ?? null) : null;
}

const MAX_SUMMARY = 200;
const MAX_COMMAND = 500;
/** More than the summary shows; the rest of a long input need not be searched for secrets. */
const SUMMARY_SOURCE = 8192;

/** Sorted-key JSON of the input without secrets, at most 200 characters; a cut one ends in `...`. */
export function inputSummary(input: Readonly<Record<string, unknown>>, options: ScrubOptions = {}): string {
  const json = canonicalJson(input);
  const shown = scrub(json.slice(0, SUMMARY_SOURCE), options);
  if (shown.length <= MAX_SUMMARY && json.length <= SUMMARY_SOURCE) return shown;
  return cut(`${shown}...`, MAX_SUMMARY);
}

/** The paths a `write` tool is about to change, as the model gave them; null for other tools. */
export function projectedModifications(
  tool: Pick<ToolDefinition, 'name' | 'side_effects' | 'path_fields'>,
  input: Readonly<Record<string, unknown>>,
): string[] | null {
  if (tool.side_effects !== 'write') return null;
  if (tool.name.startsWith('memory_')) return typeof input.file === 'string' ? [`.metis/${input.file}`] : [];
  return givenPaths(tool.path_fields, input);
}

/** Every path in the input's path fields: strings, and strings in arrays. */
export function givenPaths(fields: readonly string[], input: Readonly<Record<string, unknown>>): string[] {
  return fields
    .flatMap((field) => (Object.hasOwn(input, field) ? input[field] : []))
    .filter((value): value is string => typeof value === 'string');
}

/** The command `shell` would run, at most 500 characters; null for other tools. */
export function commandSummary(
  tool: Pick<ToolDefinition, 'name'>,
  input: Readonly<Record<string, unknown>>,
): string | null {
  if (tool.name !== 'shell' || typeof input.command !== 'string') return null;
  return input.command.length <= MAX_COMMAND ? input.command : cut(`${input.command}...`, MAX_COMMAND);
}

/** Shortens a text that ends in `...`, keeping that end and no half character before it. */
function cut(text: string, limit: number): string {
  if (text.length <= limit) return text;
  return `${text.slice(0, limit - 3).replace(/[\uD800-\uDBFF]$/, '')}...`;
}
