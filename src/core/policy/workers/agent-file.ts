// Reads `.claude/agents/**/*.md` as a definition: the head says what it may use, the body is its prompt (13 §3.1, 18 §2).
import { type WorkerDefinition, WorkerDefinitionSchema, type WorkerProblem } from '#protocol/worker/definition.ts';
import { OUTSIDE } from '../parsing/limits.ts';
import { plainIssues } from '../parsing/plain-issue.ts';
import { lineFinder } from '../parsing/yaml-lines.ts';
import { readAgentText } from './agent-head.ts';
import { agentTools } from './agent-tools.ts';
import type { Fault } from './fault.ts';
import { inOrder, located } from './read-definition.ts';

const KEYS: ReadonlySet<string> = new Set([
  'name',
  'description',
  'tools',
  'disallowedTools',
  'model',
  'maxTurns',
  'skills',
  'permissionMode',
  // How another program shows it.
  'color',
]);
const TIERS: Readonly<Record<string, 'fast' | 'balanced' | 'deep'>> = {
  haiku: 'fast',
  sonnet: 'balanced',
  opus: 'deep',
  fable: 'deep',
};
const MAX_TOOLS = 256;
const MAX_NAME = 64;
const MAX_DESCRIPTION = 1024;
/** The sandbox of an agent, whose name its paths may leave out. */
export const AGENT_SANDBOX = 'workspace';

interface Faults {
  readonly errors: Fault[];
  readonly warnings: Fault[];
}

/** The name in its head counts, not the file's; characters that no name has become `-`. */
export function agentName(text: string, stem: string): string {
  const read = readAgentText(text);
  const given = read.ok ? read.value.keys.name : undefined;
  return (typeof given === 'string' && plainName(given)) || plainName(stem) || stem;
}

function plainName(given: string): string {
  return given
    .slice(0, 4 * MAX_NAME)
    .replaceAll(/[^A-Za-z0-9_-]+/g, '-')
    .replaceAll(/^-+|-+$/g, '')
    .slice(0, MAX_NAME);
}

/** @param name by `agentName` */
export function readAgent(
  text: string,
  { name, file }: { readonly name: string; readonly file: string },
): {
  readonly definition: WorkerDefinition | null;
  readonly errors: readonly WorkerProblem[];
  readonly warnings: readonly WorkerProblem[];
} {
  const read = readAgentText(text);
  if (!read.ok)
    return { definition: null, errors: [{ path: '', message: read.error, file, line: null }], warnings: [] };
  const { head, keys, body } = read.value;
  const faults: Faults = { errors: [], warnings: [] };
  if (body === '') faults.errors.push({ path: [], message: 'has no instructions below its head' });
  const parsed = WorkerDefinitionSchema.safeParse({ name, ...fieldsOf(keys, name, faults), instructions: body });
  if (!parsed.success) faults.errors.push(...plainIssues(parsed.error));
  // The head begins on the second line.
  const find = lineFinder(head, OUTSIDE);
  const placed = (fault: Fault) => {
    const line = find(fault.path);
    return located(fault, file, line === null ? null : line + 1);
  };
  return {
    definition: parsed.success && faults.errors.length === 0 ? parsed.data : null,
    errors: inOrder(faults.errors.map(placed)),
    warnings: inOrder(faults.warnings.map(placed)),
  };
}

function fieldsOf(keys: Readonly<Record<string, unknown>>, name: string, faults: Faults): Record<string, unknown> {
  const warn = (key: string, message: string) => faults.warnings.push({ path: [key], message });
  for (const key of Object.keys(keys)) if (!KEYS.has(key)) warn(key, 'is not known here and is ignored');
  if (typeof keys.name === 'string' && keys.name !== name) warn('name', `is called "${name}" here`);
  if (keys.maxTurns !== undefined) warn('maxTurns', 'is ignored: turn.max_llm_calls is the limit');
  const mode = keys.permissionMode;
  if (mode !== undefined && mode !== 'plan' && mode !== 'default')
    warn('permissionMode', 'is ignored: approvals are those of the session');
  const lists = {
    tools: listOf(keys.tools, 'tools', faults),
    disallowed: listOf(keys.disallowedTools, 'disallowedTools', faults) ?? [],
    hasSkills: (listOf(keys.skills, 'skills', faults) ?? []).length > 0,
    isPlanning: mode === 'plan',
  };
  const { files, tools, denied, errors, warnings } = agentTools(lists);
  for (const message of errors) faults.errors.push({ path: ['tools'], message });
  for (const message of warnings) warn('tools', message);
  return {
    description: descriptionOf(keys.description),
    ...modelOf(keys.model),
    sandboxes: files === null ? {} : { [AGENT_SANDBOX]: { name: AGENT_SANDBOX, path: '.', mode: files } },
    tools,
    tool_rules: Object.fromEntries(denied.map((tool) => [tool, { name: tool, allowed: false }])),
  };
}

/** Others write the ends of its lines as `\n` in one long line. */
function descriptionOf(given: unknown): string | null {
  return typeof given === 'string' ? given.trim().replaceAll('\\n', '\n').slice(0, MAX_DESCRIPTION) : null;
}

function modelOf(model: unknown): { readonly model?: unknown; readonly tier?: string } {
  if (model === undefined || model === null || model === 'inherit') return {};
  const tier = typeof model === 'string' && Object.hasOwn(TIERS, model) ? TIERS[model] : undefined;
  return tier === undefined ? { model } : { tier };
}

/** A list, or names with commas between them that are in no parentheses; null when nothing is written. */
function listOf(value: unknown, key: string, faults: Faults): readonly string[] | null {
  if (value === undefined || value === null) return null;
  const items = typeof value === 'string' ? value.split(/,(?![^()]*\))/) : value;
  if (Array.isArray(items) && items.length <= MAX_TOOLS && items.every((item) => typeof item === 'string'))
    return items.map((item) => item.trim()).filter((item) => item !== '');
  faults.errors.push({
    path: [key],
    message: `must be a list of at most ${MAX_TOOLS} names, or names with commas between`,
  });
  return [];
}
