// Reads a definition from a file's text or a caller's value, with all of its faults (13 §2, §3.2).

import { err, ok, type Result } from '#protocol/result.ts';
import { canonicalJson, sha256Hex } from '#protocol/text/canonical-json.ts';
import {
  type Sandbox,
  type WorkerDefinition,
  WorkerDefinitionSchema,
  type WorkerProblem,
} from '#protocol/worker-definition.ts';
import { readJson } from '../parsing/json.ts';
import { describeIssues } from '../parsing/plain-issue.ts';
import { type Limits, OUTSIDE } from '../parsing/text-limits.ts';
import { isMapping, lineFinder, lineOfError, readYaml, toMapping } from '../parsing/yaml.ts';

// Converts alternative spellings of a definition to the canonical one (13 §2).

/** Tools of the old toolset that are no workers. */
const DELEGATION_TOOLS: readonly string[] = ['worker_create', 'worker_call'];
/** The tool that loads skills, as definitions of Claude Code name it. */
const SKILL_TOOL = 'Skill';

type Mapping = Readonly<Record<string, unknown>>;

/** The mapping with `tool_rules` as a map, `toolsets` spread over two lists, `Skill` as `skill_load`, sandboxes in today's words; what is wrong goes into `faults`. */
function normaliseDefinition(given: Mapping, faults: Fault[]): Mapping {
  const { toolsets, ...rest } = given;
  let value: Record<string, unknown> = { ...rest };
  if (toolsets !== undefined) value = spreadToolsets(value, toolsets, faults);
  if (Array.isArray(value.tools)) value.tools = value.tools.map((tool) => (tool === SKILL_TOOL ? 'skill_load' : tool));
  if (Array.isArray(value.tool_rules)) value.tool_rules = indexRules(value.tool_rules, faults);
  else if (isMapping(value.tool_rules)) value.tool_rules = nameEntries(value.tool_rules, 'tool_rules', faults);
  if (isMapping(value.sandboxes)) {
    const sandboxes = nameEntries(value.sandboxes, 'sandboxes', faults);
    value.sandboxes = mapEntries(sandboxes, (entry, name) => {
      if (!isMapping(entry)) return entry;
      return normaliseSandbox(entry, name, faults);
    });
  }
  return value;
}

/** Each entry with its key as `name`; one that names itself otherwise is a fault. */
function nameEntries(map: Mapping, field: string, faults: Fault[]): Mapping {
  return mapEntries(map, (entry, key) => {
    // The keys of an object do not include it.
    if (key === '__proto__') faults.push({ path: [field, key], message: 'is not a name' });
    if (!isMapping(entry)) return entry ?? { name: key };
    if (entry.name !== undefined && entry.name !== key)
      faults.push({ path: [field, key, 'name'], message: `must equal its key "${key}"` });
    return { ...entry, name: key };
  });
}

function normaliseSandbox(entry: Mapping, name: string, faults: Fault[]): Mapping {
  const { suffixes, ...rest } = entry;
  const value: Record<string, unknown> = { ...rest };
  if (suffixes !== undefined) {
    if (value.allowed_suffixes === undefined) value.allowed_suffixes = suffixes;
    else faults.push({ path: ['sandboxes', name, 'suffixes'], message: 'is the same as allowed_suffixes; keep one' });
  }
  if (typeof value.mode === 'string') value.mode = value.mode.toLowerCase();
  return value;
}

function indexRules(list: readonly unknown[], faults: Fault[]): Mapping {
  const rules = new Map<string, unknown>();
  for (const [index, rule] of list.entries()) {
    const { name } = toMapping(rule);
    if (typeof name !== 'string') faults.push({ path: ['tool_rules', index, 'name'], message: 'is required' });
    else if (rules.has(name)) faults.push({ path: ['tool_rules', index, 'name'], message: `"${name}" stands twice` });
    else rules.set(name, rule);
  }
  return Object.fromEntries(rules);
}

function spreadToolsets(value: Record<string, unknown>, toolsets: unknown, faults: Fault[]): Record<string, unknown> {
  if (!isMapping(toolsets)) {
    faults.push({ path: ['toolsets'], message: 'must be a mapping' });
    return value;
  }
  for (const name of Object.keys(toolsets))
    if (name !== 'delegation') faults.push({ path: ['toolsets', name], message: `unknown toolset "${name}"` });
  const { delegation } = toolsets;
  if (delegation === undefined) return value;
  if (!isMapping(delegation)) {
    faults.push({ path: ['toolsets', 'delegation'], message: 'must be a mapping of workers' });
    return value;
  }
  const names = Object.keys(delegation);
  const isTool = (name: string) => DELEGATION_TOOLS.includes(name);
  return {
    ...value,
    allow_workers: joinLists(
      value.allow_workers,
      names.filter((name) => !isTool(name)),
    ),
    tools: joinLists(value.tools, names.filter(isTool)),
  };
}

/** A value that is not a list is returned unchanged; the schema reports it. */
function joinLists(list: unknown, more: readonly string[]): unknown {
  if (list !== undefined && !Array.isArray(list)) return list;
  return [...new Set([...(list ?? []), ...more])];
}

function mapEntries(map: Mapping, fn: (entry: unknown, key: string) => unknown): Mapping {
  return Object.fromEntries(Object.entries(map).map(([key, entry]) => [key, fn(entry, key)]));
}

// Rules for sandboxes, and which files belong to one (13 §4).

/** The path below the workspace in one spelling, `.` for the workspace itself; null when it leads out of it. */
export function normaliseSandboxPath(path: string): string | null {
  const plain = path.replaceAll('\\', '/');
  if (plain === '' || plain.startsWith('/') || plain.startsWith('~') || plain.includes('\0')) return null;
  if (/^[A-Za-z]:/.test(plain)) return null;
  const parts: string[] = [];
  for (const part of plain.split('/')) {
    if (part === '' || part === '.') continue;
    if (part !== '..') parts.push(part);
    else if (parts.pop() === undefined) return null;
  }
  if (parts.length === 0) return '.';
  return parts.join('/');
}

/** A writable sandbox must not contain a read-only one: the writable one would bypass the protection. */
function findSandboxFaults(sandboxes: Readonly<Record<string, Sandbox>>): readonly Fault[] {
  const faults: Fault[] = [];
  const roots = new Map<string, string>();
  for (const [name, { path }] of Object.entries(sandboxes)) {
    const root = normaliseSandboxPath(path);
    if (root === null)
      faults.push({ path: ['sandboxes', name, 'path'], message: 'must be a folder below the workspace' });
    else roots.set(name, root);
  }
  for (const [name, root] of roots) {
    if (sandboxes[name]?.mode !== 'rw') continue;
    for (const [other, inner] of roots)
      if (sandboxes[other]?.mode === 'ro' && (root === '.' || inner === root || inner.startsWith(`${root}/`)))
        faults.push({
          path: ['sandboxes', name, 'path'],
          message: `sandbox_overlap: "${name}" may be written to and holds "${other}", which may not`,
        });
  }
  return faults;
}

/** Whether a file of this name is one of these; no suffixes = every file is. `""` is a name without a dot after its first character. */
export function hasSuffix(fileName: string, suffixes: readonly string[]): boolean {
  const name = fileName.toLowerCase();
  return suffixes.some((suffix) => {
    if (suffix === '') return name.indexOf('.', 1) < 0;
    return name.length > suffix.length && name.endsWith(suffix);
  });
}

// A fault of a definition by its key path; its line is added later.

export interface Fault {
  readonly path: readonly PropertyKey[];
  readonly message: string;
}

/** UTF-8 bytes of a definition or a prompt file. */
export const MAX_WORKER_BYTES = OUTSIDE.bytes;
const LIMITS: Limits = OUTSIDE;

interface ReadDefinition {
  /** Null when it is not one. */
  readonly definition: WorkerDefinition | null;
  readonly errors: readonly WorkerProblem[];
}

/**
 * @param about `name`: the stem of the file, which the definition must have as its name; null where it needs a `name` itself
 * @param about `file`: the path that problems name
 */
export function readDefinition(
  text: string,
  about: { readonly name: string | null; readonly file: string | null; readonly format: 'yaml' | 'json' },
): ReadDefinition {
  const parsed = about.format === 'json' ? readJson(text, LIMITS) : readYaml(text, LIMITS);
  const { file } = about;
  if (!parsed.ok) {
    const line = about.format === 'json' ? null : lineOfError(parsed.error);
    return { definition: null, errors: [{ path: '', message: parsed.error, file, line }] };
  }
  const { definition, faults } = checkDefinition(parsed.value, about.name);
  if (faults.length === 0) return { definition, errors: [] };
  const findLine = lineFinder(text, LIMITS);
  const errors = faults.map((fault) => locateProblem(fault, file, findLine(fault.path)));
  return { definition, errors: sortProblems(errors) };
}

/** A definition that came as a value, such as the body of a request. */
export function checkDefinition(
  value: unknown,
  name: string | null,
): { readonly definition: WorkerDefinition | null; readonly faults: readonly Fault[] } {
  if (!isMapping(value)) return { definition: null, faults: [{ path: [], message: 'must be a mapping' }] };
  const faults: Fault[] = [];
  const given = normaliseDefinition(value, faults);
  const named = given.name === undefined && name !== null ? { ...given, name } : given;
  const parsed = WorkerDefinitionSchema.safeParse(named);
  if (!parsed.success) {
    const issues = describeIssues(parsed.error, WorkerDefinitionSchema);
    return { definition: null, faults: [...faults, ...issues, ...findOtherFaults(named, issues, name)] };
  }
  const definition = parsed.data;
  faults.push(...findRuleFaults(definition, name));
  if (faults.length > 0) return { definition: null, faults };
  return { definition, faults };
}

/** Faults of each key on its own, so that all faults are reported at once. */
function findOtherFaults(
  given: Readonly<Record<string, unknown>>,
  issues: readonly Fault[],
  name: string | null,
): readonly Fault[] {
  const wrong = new Set(issues.map(({ path }) => path[0]));
  const sound = Object.fromEntries(Object.entries(given).filter(([key]) => !wrong.has(key)));
  const rest = WorkerDefinitionSchema.safeParse({ ...sound, name: sound.name ?? name ?? 'unnamed' });
  if (rest.success) return findRuleFaults(rest.data, sound.name === undefined ? null : name);
  return [];
}

/** Checks that go beyond the schema. */
function findRuleFaults(definition: WorkerDefinition, name: string | null): readonly Fault[] {
  const faults: Fault[] = [];
  if (name !== null && definition.name !== name)
    faults.push({ path: ['name'], message: `must equal the name of its file, "${name}"` });
  if (definition.model !== null && definition.tier !== null)
    faults.push({ path: ['tier'], message: 'cannot be set together with model; write one of the two' });
  if (definition.check === null && definition.on_fail.length > 0)
    faults.push({ path: ['on_fail'], message: 'needs a check' });
  if (definition.instructions?.trim() === '') faults.push({ path: ['instructions'], message: 'must not be blank' });
  return [...faults, ...findSandboxFaults(definition.sandboxes)];
}

/** Orders problems by line; those without a line come first. */
export function sortProblems(problems: readonly WorkerProblem[]): readonly WorkerProblem[] {
  return problems.toSorted((a, b) => (a.line ?? 0) - (b.line ?? 0));
}

/** The message of a problem with the line it is on, where that is known. */
export function appendLine(message: string, line: number | null): string {
  if (line === null) return message;
  return `${message} (line ${line})`;
}

export function locateProblem(fault: Fault, file: string | null, line: number | null): WorkerProblem {
  return { path: fault.path.map(String).join('.'), message: fault.message, file, line };
}

// A worker's prompt in a separate file: raw text, or a template whose only function inserts another file (13 §3.3).

/** In this order; the first that exists counts. */
export const PROMPT_SUFFIXES = ['jinja2', 'j2', 'txt', 'md'] as const;

type PromptPart =
  | { readonly kind: 'text'; readonly text: string }
  /** Path below the folder of prompts. */
  | { readonly kind: 'file'; readonly path: string };

const TAG = /\{\{\s*file\(\s*(?:"([^"\n]*)"|'([^'\n]*)')\s*\)\s*\}\}/g;
const OTHER = /\{\{|\{%|\{#/;
const MAX_PARTS = 64;

/** Parts of a template. The inserted text of `file` is not expanded again. */
export function parseTemplate(text: string): Result<readonly PromptPart[], string> {
  const parts: PromptPart[] = [];
  let last = 0;
  for (const match of text.matchAll(TAG)) {
    if (match.index > last) parts.push({ kind: 'text', text: text.slice(last, match.index) });
    parts.push({ kind: 'file', path: match[1] ?? match[2] ?? '' });
    last = match.index + match[0].length;
  }
  if (last < text.length) parts.push({ kind: 'text', text: text.slice(last) });
  const odd = parts.find((part) => part.kind === 'text' && OTHER.test(part.text));
  if (odd?.kind === 'text')
    return err(
      `unsupported_template_syntax: only {{ file("...") }} is known, not ${JSON.stringify(quoteTag(odd.text))}`,
    );
  if (parts.length > 2 * MAX_PARTS) return err(`brings in more than ${MAX_PARTS} files`);
  return ok(parts);
}

function quoteTag(text: string): string {
  const at = text.search(OTHER);
  return text.slice(at, at + 40).split('\n', 1)[0] ?? '';
}

// The digest of a definition: everything that a worker runs with, independent of its author (13 §2).

/** @param instructions as they are used, from the definition or its prompt file */
export function hashDefinition(definition: WorkerDefinition, instructions: string): string {
  const { locked: _, effort, isolation, check, on_fail, ...rest } = definition;
  // Digests of before there were these fields stay what they are.
  const newer = {
    ...(effort !== null && { effort }),
    ...(isolation !== null && { isolation }),
    ...(check !== null && { check, on_fail }),
  };
  return sha256Hex(canonicalJson({ ...rest, ...newer, instructions }));
}
