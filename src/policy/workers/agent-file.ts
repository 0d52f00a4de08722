// Reads `.claude/agents/NAME.md` as a definition: the head says what it may use, the body is its prompt (13 §3.1, 18 §2).
import { type WorkerDefinition, WorkerDefinitionSchema, type WorkerProblem } from '../../domain/worker/definition.ts';
import { OUTSIDE } from '../parsing/limits.ts';
import { plainIssues } from '../parsing/plain-issue.ts';
import { isMapping, readYaml } from '../parsing/yaml.ts';
import { lineFinder } from '../parsing/yaml-lines.ts';
import type { Fault } from './fault.ts';
import { inOrder, located } from './read-definition.ts';

const HEAD = /^---\n(?:([\s\S]*?)\n)?---(?:\n|$)/;
const KEYS: ReadonlySet<string> = new Set(['name', 'description', 'tools', 'model', 'maxTurns', 'skills']);
const TIERS: Readonly<Record<string, 'fast' | 'balanced' | 'deep'>> = {
  haiku: 'fast',
  sonnet: 'balanced',
  opus: 'deep',
};
const READING: readonly string[] = ['Read', 'Grep', 'Glob'];
const WRITING: readonly string[] = ['Write', 'Edit'];
/** What an agent has that names none. */
const ALL = [...READING, ...WRITING, 'Bash'];
const MAX_TOOLS = 256;
/** The sandbox of an agent, whose name its paths may leave out. */
export const AGENT_SANDBOX = 'workspace';

interface Faults {
  readonly errors: Fault[];
  readonly warnings: Fault[];
}

/** @param name the stem of the file */
export function readAgent(
  text: string,
  { name, file }: { readonly name: string; readonly file: string },
): {
  readonly definition: WorkerDefinition | null;
  readonly errors: readonly WorkerProblem[];
  readonly warnings: readonly WorkerProblem[];
} {
  const plain = text.replace(/^\uFEFF/, '').replaceAll('\r\n', '\n');
  const refused = (message: string) => ({
    definition: null,
    errors: [{ path: '', message, file, line: null }],
    warnings: [],
  });
  const head = HEAD.exec(plain);
  if (head === null && plain.startsWith('---\n')) return refused('a line of exactly "---" must end the head');
  const yaml = readYaml(head?.[1] ?? '', OUTSIDE);
  if (!yaml.ok) return refused(`the head ${yaml.error}`);
  const keys = yaml.value ?? {};
  if (!isMapping(keys)) return refused('the head must be a mapping');
  const faults: Faults = { errors: [], warnings: [] };
  const body = plain.slice(head?.[0].length ?? 0).trim();
  if (body === '') faults.errors.push({ path: [], message: 'has no instructions below its head' });
  const parsed = WorkerDefinitionSchema.safeParse({ name, ...fieldsOf(keys, name, faults), instructions: body });
  if (!parsed.success) faults.errors.push(...plainIssues(parsed.error));
  // The head begins on the second line.
  const find = lineFinder(head?.[1] ?? '', OUTSIDE);
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
  if (keys.name !== undefined && keys.name !== name)
    warn('name', `is ignored: the worker is called "${name}", like its file`);
  if (keys.maxTurns !== undefined) warn('maxTurns', 'is ignored: turn.max_llm_calls is the limit');
  const tools = listOf(keys.tools, 'tools', faults) ?? ALL;
  const used = (names: readonly string[]) => tools.some((tool) => names.includes(tool));
  const granted = tools.filter((tool) => tool.startsWith('mcp__'));
  if (tools.includes('Bash')) granted.push('shell');
  if ((listOf(keys.skills, 'skills', faults) ?? []).length > 0) granted.push('skill_load');
  const unknown = tools.filter((tool) => !ALL.includes(tool) && !tool.startsWith('mcp__'));
  for (const tool of unknown) warn('tools', `${JSON.stringify(tool.slice(0, 64))} is not known here and is left out`);
  const reads = used(READING) || used(WRITING);
  return {
    description: typeof keys.description === 'string' ? keys.description.trim().slice(0, 1024) : null,
    ...modelOf(keys.model),
    sandboxes: reads ? { [AGENT_SANDBOX]: { name: AGENT_SANDBOX, path: '.', mode: used(WRITING) ? 'rw' : 'ro' } } : {},
    tools: [...new Set(granted)],
  };
}

function modelOf(model: unknown): { readonly model?: unknown; readonly tier?: string } {
  if (model === undefined || model === null || model === 'inherit') return {};
  const tier = typeof model === 'string' && Object.hasOwn(TIERS, model) ? TIERS[model] : undefined;
  return tier === undefined ? { model } : { tier };
}

/** A list, or names with commas between them; null when nothing is written. */
function listOf(value: unknown, key: string, faults: Faults): readonly string[] | null {
  if (value === undefined || value === null) return null;
  const items = typeof value === 'string' ? value.split(',') : value;
  if (Array.isArray(items) && items.length <= MAX_TOOLS && items.every((item) => typeof item === 'string'))
    return items.map((item) => item.trim()).filter((item) => item !== '');
  faults.errors.push({
    path: [key],
    message: `must be a list of at most ${MAX_TOOLS} names, or names with commas between`,
  });
  return [];
}
