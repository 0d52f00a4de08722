// Reads a definition: the text of a file or a value from a caller, with everything that is wrong with it (13 §2, §3.2).
import { type WorkerDefinition, WorkerDefinitionSchema, type WorkerProblem } from '#protocol/worker/definition.ts';
import { readJson } from '../parsing/json.ts';
import { type Limits, OUTSIDE } from '../parsing/limits.ts';
import { plainIssues } from '../parsing/plain-issue.ts';
import { isMapping, lineOfError, readYaml } from '../parsing/yaml.ts';
import { lineFinder } from '../parsing/yaml-lines.ts';
import type { Fault } from './fault.ts';
import { normalised } from './normalise.ts';
import { sandboxFaults } from './sandbox-rules.ts';

/** UTF-8 bytes of a definition or a prompt file. */
export const MAX_WORKER_BYTES = OUTSIDE.bytes;
const LIMITS: Limits = OUTSIDE;

export interface ReadDefinition {
  /** Null when it is not one. */
  readonly definition: WorkerDefinition | null;
  readonly errors: readonly WorkerProblem[];
}

/**
 * @param about `name`: the stem of the file, which the definition must bear; null where it has to say its name itself
 * @param about `file`: what problems are told to stand in
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
  const lineOf = faults.length === 0 ? () => null : lineFinder(text, LIMITS);
  return { definition, errors: inOrder(faults.map((fault) => located(fault, file, lineOf(fault.path)))) };
}

/** A definition that came as a value, such as the body of a request. */
export function checkDefinition(
  value: unknown,
  name: string | null,
): { readonly definition: WorkerDefinition | null; readonly faults: readonly Fault[] } {
  if (!isMapping(value)) return { definition: null, faults: [{ path: [], message: 'must be a mapping' }] };
  const faults: Fault[] = [];
  const given = normalised(value, faults);
  const named = given.name === undefined && name !== null ? { ...given, name } : given;
  const parsed = WorkerDefinitionSchema.safeParse(named);
  if (!parsed.success) {
    const issues = plainIssues(parsed.error, WorkerDefinitionSchema);
    return { definition: null, faults: [...faults, ...issues, ...faultsOfRest(named, issues, name)] };
  }
  const definition = parsed.data;
  faults.push(...ruleFaults(definition, name));
  return { definition: faults.length === 0 ? definition : null, faults };
}

/** What is wrong with the keys that hold by themselves, so that a person sees everything at once. */
function faultsOfRest(
  given: Readonly<Record<string, unknown>>,
  issues: readonly Fault[],
  name: string | null,
): readonly Fault[] {
  const wrong = new Set(issues.map(({ path }) => path[0]));
  const sound = Object.fromEntries(Object.entries(given).filter(([key]) => !wrong.has(key)));
  const rest = WorkerDefinitionSchema.safeParse({ ...sound, name: sound.name ?? name ?? 'unnamed' });
  return rest.success ? ruleFaults(rest.data, sound.name === undefined ? null : name) : [];
}

/** What its form alone does not say. */
function ruleFaults(definition: WorkerDefinition, name: string | null): readonly Fault[] {
  const faults: Fault[] = [];
  if (name !== null && definition.name !== name)
    faults.push({ path: ['name'], message: `must equal the name of its file, "${name}"` });
  if (definition.model !== null && definition.tier !== null)
    faults.push({ path: ['tier'], message: 'stands beside model; write one of the two' });
  if (definition.instructions?.trim() === '') faults.push({ path: ['instructions'], message: 'must not be blank' });
  return [...faults, ...sandboxFaults(definition.sandboxes)];
}

/** As the file is read, from its top; what has no line comes first. */
export function inOrder(problems: readonly WorkerProblem[]): readonly WorkerProblem[] {
  return problems.toSorted((a, b) => (a.line ?? 0) - (b.line ?? 0));
}

export function located(fault: Fault, file: string | null, line: number | null): WorkerProblem {
  return { path: fault.path.map(String).join('.'), message: fault.message, file, line };
}
