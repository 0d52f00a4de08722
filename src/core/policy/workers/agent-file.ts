// Reads `.claude/agents/**/*.md` as a definition: the head lists its tools, the body is its prompt (13 §3.1, 18 §2).

import { err, ok, type Result } from '#protocol/result.ts';
import { type WorkerDefinition, WorkerDefinitionSchema, type WorkerProblem } from '#protocol/worker-definition.ts';
import { describeIssues } from '../parsing/plain-issue.ts';
import { OUTSIDE } from '../parsing/text-limits.ts';
import { isMapping, lineFinder, readYaml } from '../parsing/yaml.ts';
import { namesTool } from '../tools/tool-names.ts';
import { type Fault, locateProblem, sortProblems } from './read-definition.ts';

// Maps the tools of an agent's file to a definition. A restriction that a definition cannot express narrows the tools (13 §3.1).

const READING: readonly string[] = ['Read', 'Grep', 'Glob'];
const WRITING: readonly string[] = ['Write', 'Edit'];
/** Tools of an agent whose file lists none. */
const DEFAULT = [...READING, ...WRITING, 'Bash'];
/** `Bash(git diff:*)`. */
const SCOPED = /^([A-Za-z]+)\((.*)\)$/s;
const MCP_SERVER = /^mcp__(?:(?!__).)+$/s;
const MAX_SHOWN = 64;

interface AgentLists {
  /** Null = not written. */
  readonly tools: readonly string[] | null;
  readonly disallowed: readonly string[];
  readonly hasSkills: boolean;
  /** `permissionMode: plan`. */
  readonly isPlanning: boolean;
}

interface AgentTools {
  /** Null = it reads no files. */
  readonly files: 'ro' | 'rw' | null;
  readonly tools: readonly string[];
  /** Tools that a prefix in `tools` covers and that it must not have. */
  readonly denied: readonly string[];
  readonly errors: readonly string[];
  readonly warnings: readonly string[];
}

function readAgentTools({ tools, disallowed, hasSkills, isPlanning }: AgentLists): AgentTools {
  const errors: string[] = [];
  const warnings: string[] = [];
  const own = new Set<string>();
  const granted = new Set<string>();
  // `*` means all tools.
  for (const entry of tools?.flatMap((tool) => (tool === '*' ? DEFAULT : tool)) ?? DEFAULT) {
    const scope = SCOPED.exec(entry);
    if (entry === 'Skill' || scope?.[1] === 'Skill') granted.add('skill_load');
    else if (entry.startsWith('mcp__')) granted.add(toServerPrefix(entry));
    else if (DEFAULT.includes(entry)) own.add(entry);
    else if (scope?.[1] === 'Bash')
      errors.push(
        `${quoteEntry(entry)} cannot be kept: the shell is not narrowed to commands; write Bash, or leave it out`,
      );
    else warnings.push(`${quoteEntry(entry)} is not known here and is left out`);
  }
  if (hasSkills) granted.add('skill_load');
  const denied = new Set<string>();
  for (const entry of disallowed) {
    const tool = SCOPED.exec(entry)?.[1] ?? entry;
    if (tool !== entry && (own.has(tool) || (tool === 'Skill' && granted.has('skill_load'))))
      warnings.push(`${quoteEntry(entry)} takes all of ${tool} away: a part of it cannot be`);
    own.delete(tool);
    if (tool === 'Skill') granted.delete('skill_load');
    if (tool.startsWith('mcp__')) withhold(toServerPrefix(tool), granted, denied, warnings);
  }
  if (isPlanning) {
    for (const tool of [...WRITING, 'Bash']) own.delete(tool);
    const lost = [...granted].filter((tool) => tool.startsWith('mcp__'));
    for (const tool of lost) granted.delete(tool);
    if (lost.length > 0)
      warnings.push(`${quoteEntry(lost.join(', '))}: an agent that plans has no tools of MCP servers`);
  }
  const writes = WRITING.some((tool) => own.has(tool));
  const reads = READING.some((tool) => own.has(tool));
  let files: 'rw' | 'ro' | null = null;
  if (writes) files = 'rw';
  else if (reads) files = 'ro';
  if (own.has('Bash')) granted.add('shell');
  return { files, tools: [...granted].sort(), denied: [...denied], errors, warnings };
}

/** A server's name alone means all its tools. */
function toServerPrefix(entry: string): string {
  if (MCP_SERVER.test(entry) && !entry.endsWith('*')) return `${entry}__*`;
  return entry;
}

function withhold(entry: string, granted: Set<string>, denied: Set<string>, warnings: string[]): void {
  for (const grant of [...granted]) {
    if (namesTool(entry, grant)) granted.delete(grant);
    else if (!grant.endsWith('*')) continue;
    else if (!entry.endsWith('*') && namesTool(grant, entry)) denied.add(entry);
    else if (entry.endsWith('*') && namesTool(grant, entry.slice(0, -1))) {
      granted.delete(grant);
      warnings.push(`${quoteEntry(grant)} is left out: ${quoteEntry(entry)} cannot be taken away from it`);
    }
  }
}

function quoteEntry(entry: string): string {
  return JSON.stringify(entry.slice(0, MAX_SHOWN));
}

// The head of an agent's file as other programs read it: YAML, or lines of `key: text` where it is none (13 §3.1).

const HEAD = /^---[ \t]*\n(?:([\s\S]*?)\n)?---[ \t]*(?:\n|$)/;
/** Keys that begin a line of a head; every other line goes on with the text above it. */
const KEY =
  /^(name|description|tools|disallowedTools|model|maxTurns|skills|color|permissionMode|mcpServers|hooks|memory|background|isolation|effort|initialPrompt):(?:[ \t]|$)/;

interface AgentText {
  /** Without its first and last line. */
  readonly head: string;
  readonly keys: Readonly<Record<string, unknown>>;
  readonly body: string;
}

/** The error is one line. */
function readAgentText(text: string): Result<AgentText, string> {
  const plain = text.replace(/^\uFEFF/, '').replaceAll('\r\n', '\n');
  const found = HEAD.exec(plain);
  if (found === null && plain.startsWith('---\n')) return err('a line of exactly "---" must end the head');
  const head = found?.[1] ?? '';
  const keys = readKeys(head);
  if (!keys.ok) return keys;
  return ok({ head, keys: keys.value, body: plain.slice(found?.[0].length ?? 0).trim() });
}

function readKeys(head: string): Result<AgentText['keys'], string> {
  const yaml = readYaml(head, OUTSIDE);
  if (yaml.ok) {
    const keys = yaml.value ?? {};
    if (!isMapping(keys)) return err('the head must be a mapping');
    return ok(keys);
  }
  const keys = readKeysByLine(head);
  if (keys === null) return err(`the head ${yaml.error}`);
  return ok(keys);
}

/** Null where the text is too long, or no line begins with a key. */
function readKeysByLine(head: string): Readonly<Record<string, unknown>> | null {
  if (Buffer.byteLength(head) > OUTSIDE.bytes) return null;
  const entries: { readonly key: string; readonly lines: string[] }[] = [];
  for (const line of head.split('\n')) {
    const key = KEY.exec(line)?.[1];
    if (key !== undefined) entries.push({ key, lines: [line] });
    else entries.at(-1)?.lines.push(line);
  }
  if (entries.length === 0) return null;
  // The first of two counts, and a key of the prototype is a key like any other.
  return Object.fromEntries(entries.reverse().map(({ key, lines }) => [key, readKeyValue(key, lines.join('\n'))]));
}

function readKeyValue(key: string, text: string): unknown {
  const yaml = readYaml(text, OUTSIDE);
  if (yaml.ok && isMapping(yaml.value) && Object.keys(yaml.value).length === 1) return yaml.value[key];
  return text.slice(key.length + 1).trim();
}

const KEYS: ReadonlySet<string> = new Set([
  'name',
  'description',
  'tools',
  'disallowedTools',
  'model',
  'maxTurns',
  'skills',
  'permissionMode',
  'isolation',
  // The colour in another program's display.
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
const AGENT_SANDBOX = 'workspace';

interface Faults {
  readonly errors: Fault[];
  readonly warnings: Fault[];
}

/** The name in its head counts, not the file's; characters that no name has become `-`. */
export function parseAgentName(text: string, stem: string): string {
  const read = readAgentText(text);
  const given = read.ok ? read.value.keys.name : undefined;
  return (typeof given === 'string' && toPlainName(given)) || toPlainName(stem) || stem;
}

function toPlainName(given: string): string {
  return given
    .slice(0, 4 * MAX_NAME)
    .replaceAll(/[^A-Za-z0-9_-]+/g, '-')
    .replaceAll(/^-+|-+$/g, '')
    .slice(0, MAX_NAME);
}

/** @param name by `parseAgentName` */
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
  const parsed = WorkerDefinitionSchema.safeParse({ name, ...readFields(keys, name, faults), instructions: body });
  if (!parsed.success) faults.errors.push(...describeIssues(parsed.error));
  // The head begins on the second line.
  const find = lineFinder(head, OUTSIDE);
  const locateFault = (fault: Fault) => {
    const line = find(fault.path);
    return locateProblem(fault, file, line === null ? null : line + 1);
  };
  return {
    definition: parsed.success && faults.errors.length === 0 ? parsed.data : null,
    errors: sortProblems(faults.errors.map(locateFault)),
    warnings: sortProblems(faults.warnings.map(locateFault)),
  };
}

function readFields(keys: Readonly<Record<string, unknown>>, name: string, faults: Faults): Record<string, unknown> {
  const warn = (key: string, message: string) => faults.warnings.push({ path: [key], message });
  for (const key of Object.keys(keys)) if (!KEYS.has(key)) warn(key, 'is not known here and is ignored');
  if (typeof keys.name === 'string' && keys.name !== name) warn('name', `is called "${name}" here`);
  if (keys.maxTurns !== undefined) warn('maxTurns', 'is ignored: turn.max_llm_calls is the limit');
  const mode = keys.permissionMode;
  if (mode !== undefined && mode !== 'plan' && mode !== 'default')
    warn('permissionMode', 'is ignored: approvals are those of the session');
  const { isolation } = keys;
  if (isolation !== undefined && isolation !== 'worktree') warn('isolation', 'is ignored: it is no "worktree"');
  const lists = {
    tools: readList(keys.tools, 'tools', faults),
    disallowed: readList(keys.disallowedTools, 'disallowedTools', faults) ?? [],
    hasSkills: (readList(keys.skills, 'skills', faults) ?? []).length > 0,
    isPlanning: mode === 'plan',
  };
  const { files, tools, denied, errors, warnings } = readAgentTools(lists);
  for (const message of errors) faults.errors.push({ path: ['tools'], message });
  for (const message of warnings) warn('tools', message);
  return {
    description: readDescription(keys.description),
    ...readModel(keys.model),
    isolation: isolation === 'worktree' ? isolation : null,
    sandboxes: files === null ? {} : { [AGENT_SANDBOX]: { name: AGENT_SANDBOX, path: '.', mode: files } },
    tools,
    tool_rules: Object.fromEntries(denied.map((tool) => [tool, { name: tool, allowed: false }])),
  };
}

/** Some programs write line ends as `\n` in one long line. */
function readDescription(given: unknown): string | null {
  if (typeof given !== 'string') return null;
  return given.trim().replaceAll('\\n', '\n').slice(0, MAX_DESCRIPTION);
}

function readModel(model: unknown): { readonly model?: unknown; readonly tier?: string } {
  if (model === undefined || model === null || model === 'inherit') return {};
  if (typeof model === 'string' && Object.hasOwn(TIERS, model)) return { tier: TIERS[model]! };
  return { model };
}

/** A list, or names with commas between them that are in no parentheses; null when nothing is written. */
function readList(value: unknown, key: string, faults: Faults): readonly string[] | null {
  if (value === undefined || value === null) return null;
  let items = value;
  if (typeof value === 'string') items = value.split(/,(?![^()]*\))/);
  if (Array.isArray(items) && items.length <= MAX_TOOLS && items.every((item) => typeof item === 'string'))
    return items.map((item) => item.trim()).filter((item) => item !== '');
  faults.errors.push({
    path: [key],
    message: `must be a list of at most ${MAX_TOOLS} names, or names with commas between`,
  });
  return [];
}
