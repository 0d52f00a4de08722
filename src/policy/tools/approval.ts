// May this call run, and what a person is told about it: the one decision list and the texts of the question (09 §5, §6.1).
import type { Config, ToolMode } from '../../domain/config.ts';
import type { ApprovalMode } from '../../domain/scalars.ts';
import type { ToolDefinition } from '../../domain/tool.ts';
import type { ToolRule } from '../../domain/worker/definition.ts';
import { canonicalJson } from '../../kernel/canonical-json.ts';
import { scrubSecrets } from '../../kernel/scrub.ts';

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
export function ruleFor(
  rules: Readonly<Record<string, ToolRule>>,
  tool: Pick<ToolDefinition, 'name' | 'group'>,
): ToolRule | null {
  const key = [tool.name, tool.group].find((name) => name !== undefined && Object.hasOwn(rules, name));
  return key === undefined ? null : (rules[key] ?? null);
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

/** A tool's own entry beats its group's, which beats the default of its class. */
export function toolMode(
  config: Pick<Config['tool_confirmation'], 'default' | 'per_tool'>,
  tool: Pick<ToolDefinition, 'name' | 'side_effects' | 'group'>,
): ToolMode {
  const group = tool.group ?? null;
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

/**
 * Sorted-key JSON of the input without credentials, at most 200 characters; a cut one ends in `...`. Paths and addresses
 * stay: they are what a person says yes to.
 */
export function inputSummary(input: Readonly<Record<string, unknown>>, secrets: readonly string[] = []): string {
  const json = canonicalJson(input);
  const shown = scrubSecrets(json.slice(0, SUMMARY_SOURCE), secrets);
  if (shown.length <= MAX_SUMMARY && json.length <= SUMMARY_SOURCE) return shown;
  return cut(`${shown}...`, MAX_SUMMARY);
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
    .flatMap((field) => (Object.hasOwn(input, field) ? input[field] : []))
    .filter((value): value is string => typeof value === 'string');
}

/** The command that would run, at most 500 characters; null for a tool that runs none. */
export function commandSummary(
  tool: Pick<ToolDefinition, 'command_field'>,
  input: Readonly<Record<string, unknown>>,
): string | null {
  const command = tool.command_field === undefined ? null : input[tool.command_field];
  if (typeof command !== 'string') return null;
  return command.length <= MAX_COMMAND ? command : cut(`${command}...`, MAX_COMMAND);
}

/** Shortens a text that ends in `...`, keeping that end and no half character before it. */
function cut(text: string, limit: number): string {
  if (text.length <= limit) return text;
  return `${text.slice(0, limit - 3).replace(/[\uD800-\uDBFF]$/, '')}...`;
}

const MAX_PAYLOAD = 65_536;
const MAX_EXCERPT = 4096;

/** What a person is shown of a call that a rule or a group covers (13 §7.1); null = its input says it all. */
export function approvalPayload(
  tool: Pick<ToolDefinition, 'name' | 'group' | 'spawns' | 'path_fields'>,
  input: Readonly<Record<string, unknown>>,
  secrets: readonly string[],
): Record<string, unknown> | null {
  const shown = (value: unknown, most: number) =>
    typeof value === 'string'
      ? scrubSecrets(cut(`${value.slice(0, most)}${value.length > most ? '...' : ''}`, most), secrets)
      : null;
  if (tool.group === 'sandbox.write') {
    const content = input.content ?? input.new;
    const bytes = typeof content === 'string' ? Buffer.byteLength(content) : 0;
    return { path: givenPaths(tool.path_fields, input)[0] ?? null, bytes, excerpt: shown(content, MAX_EXCERPT) };
  }
  if (tool.group === 'worker.call')
    return { worker: tool.spawns === 'worker_call' ? input.worker : tool.name, input: shown(input.input, MAX_PAYLOAD) };
  return null;
}
