// What a definition has to agree with beyond its own file: names, models, schemas and other workers of this server (13 §3.2).

import { namesTool } from '#core/policy/tools/tool-names.ts';
import { reservedName } from '#core/policy/workers/names.ts';
import type { ToolSet } from '#core/ports/tool.ts';
import type { FoundWorker, WorkerProblem } from '#protocol/worker/definition.ts';
import type { Engine } from '../state/engine.ts';

/** Compiling is slow, and a definition that did not change is the same object. */
const schemaFaults = new WeakMap<FoundWorker, readonly string[]>();

/** What all workers of a list are checked against, made once for it. */
export interface Surroundings {
  readonly tools: readonly string[];
  readonly known: ReadonlySet<string>;
  /** Who has a name, by the name in lower case. */
  readonly first: ReadonlyMap<string, string>;
}

/** @param names of all workers of the workspace; of those that differ in case alone the first is one */
export function surroundings(toolset: ToolSet, names: readonly string[]): Surroundings {
  const first = new Map<string, string>();
  for (const name of names) if (!first.has(name.toLowerCase())) first.set(name.toLowerCase(), name);
  return { tools: toolset.definitions().map((tool) => tool.name), known: new Set(names), first };
}

/** The worker with these problems added to its own. */
export function checkWorker(engine: Engine, worker: FoundWorker, { tools, known, first }: Surroundings): FoundWorker {
  const { definition, path: file } = worker;
  const errors: WorkerProblem[] = [...worker.errors];
  const warnings: WorkerProblem[] = [...worker.warnings];
  const into = (list: WorkerProblem[]) => (path: string, message: string) =>
    void list.push({ path, message, file, line: null });
  const error = into(errors);
  const warn = into(warnings);
  const reserved = reservedName(worker.name, tools);
  if (reserved !== null) error('name', reserved);
  const other = first.get(worker.name.toLowerCase());
  if (other !== undefined && other !== worker.name)
    error('name', `differs from the worker "${other}" only in case; rename this one`);
  if (definition === null) return { ...worker, errors, warnings };
  if (definition.model !== null && engine.registry.resolveAlias(definition.model) === null)
    error('model', `${JSON.stringify(definition.model)} is neither a model id nor an alias of this server`);
  if (worker.output_schema !== null)
    for (const fault of faultsOfSchema(engine, worker)) error('output_schema_ref', fault);
  for (const name of definition.allow_workers)
    if (name !== '*' && !known.has(name)) warn('allow_workers', `there is no worker "${name}"`);
  const offered = [...tools, 'worker_create', 'worker_call'];
  for (const entry of definition.tools)
    if (!offered.some((tool) => namesTool(entry, tool))) warn('tools', describeUnknownTool(entry));
  return { ...worker, errors, warnings };
}

/** Tools of an MCP server are known once a session of the workspace has started it. */
function describeUnknownTool(entry: string): string {
  if (!entry.startsWith('mcp__')) return `there is no tool "${entry}"`;
  return `no MCP server has offered "${entry}" so far; servers start with the first turn in the workspace`;
}

function faultsOfSchema(engine: Engine, worker: FoundWorker): readonly string[] {
  let faults = schemaFaults.get(worker);
  if (faults === undefined) {
    const compiled = engine.schemas.compile(worker.output_schema);
    faults = compiled.ok ? [] : compiled.problems.map(({ path, message }) => `${path}: ${message}`);
    schemaFaults.set(worker, faults);
  }
  return faults;
}
