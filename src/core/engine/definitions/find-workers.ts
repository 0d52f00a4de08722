// Finds the workers of a workspace: reads them and checks them against the configuration around them (13 §3).
import { describeUnknownModel } from '#core/policy/registry/find-model.ts';
import { namesTool } from '#core/policy/tools/tool-names.ts';
import { readDefinition } from '#core/policy/workers/read-definition.ts';
import { listWidenings, reservedName } from '#core/policy/workers/worker-restrictions.ts';
import { createWorkerTool } from '#core/policy/workers/worker-tools.ts';
import type { ToolSet } from '#core/ports/tool-port.ts';
import { type Awaitable, continueWith } from '#protocol/async/awaitable.ts';
import type { SessionId } from '#protocol/ids.ts';
import type { SessionRecord } from '#protocol/session.ts';
import {
  type FileDigest,
  type FoundWorker,
  type SessionWorker,
  WORKER_NAME_PATTERN,
  type WorkerDefinition,
  type WorkerProblem,
} from '#protocol/worker-definition.ts';
import type { DefinitionsEngine, ModelCatalog, Runtime, Storage, Toolbox } from '../state/engine.ts';
import { findTrustFault } from './trusted-files.ts';

// A worker file that removes an approval is valid only while its bytes are trusted (20 §11).

/** The worker with an error for each untrusted permission that its file requests. Only files need trust. */
async function checkTrust(
  engine: Runtime & Storage,
  root: string,
  worker: FoundWorker,
  toolset: ToolSet,
): Promise<FoundWorker> {
  const widenings = listWorkerWidenings(engine, worker, toolset);
  if (widenings.length === 0) return worker;
  const distrust = await findFirstFault(engine, root, worker.sources);
  if (distrust === null) return worker;
  const describeWidening = ({ path, widens }: (typeof widenings)[number]): WorkerProblem => ({
    path,
    message: `${widens}: ${distrust}`,
    file: worker.path,
    line: null,
  });
  return { ...worker, errors: [...worker.errors, ...widenings.map(describeWidening)] };
}

/** Permissions that the worker's file requests beyond the server's own. A worker without a file requests none. */
export function listWorkerWidenings(
  engine: Pick<Runtime, 'config'>,
  { definition, sources }: FoundWorker,
  toolset: ToolSet,
): ReturnType<typeof listWidenings> {
  if (definition === null || sources.length === 0) return [];
  const { tool_confirmation: confirmation, workers } = engine.config;
  return listWidenings(definition, { confirmation, dynamic: workers.dynamic, tools: toolset.definitions() });
}

/** Of the first file whose bytes are not trusted; null when all are. */
async function findFirstFault(
  engine: Pick<Storage, 'store'>,
  root: string,
  sources: readonly FileDigest[],
): Promise<string | null> {
  for (const source of sources) {
    const fault = await findTrustFault(engine, root, source);
    if (fault !== null) return fault;
  }
  return null;
}

// Checks a definition against its environment: names, models, schemas and other workers of this server (13 §3.2).

/** Compiled schemas by definition: compiling is slow, and an unchanged definition is the same object. */
const schemaFaults = new WeakMap<FoundWorker, readonly string[]>();

/** The environment that the workers of a list are checked against, built once per list. */
interface CheckContext {
  readonly tools: readonly string[];
  readonly known: ReadonlySet<string>;
  /** The worker that holds each name, by the name in lower case. */
  readonly first: ReadonlyMap<string, string>;
}

/** @param names of all workers of the workspace; of names that differ in case alone the first one counts */
export function createCheckContext(toolset: ToolSet, names: readonly string[]): CheckContext {
  const first = new Map<string, string>();
  for (const name of names) if (!first.has(name.toLowerCase())) first.set(name.toLowerCase(), name);
  return { tools: toolset.definitions().map((tool) => tool.name), known: new Set(names), first };
}

/** The worker with these issues added to its own. */
export function checkWorker(
  engine: ModelCatalog & Toolbox,
  worker: FoundWorker,
  { tools, known, first }: CheckContext,
): FoundWorker {
  const { definition, path: file } = worker;
  const errors: WorkerProblem[] = [...worker.errors];
  const warnings: WorkerProblem[] = [...worker.warnings];
  const collectInto = (list: WorkerProblem[]) => (path: string, message: string) =>
    void list.push({ path, message, file, line: null });
  const error = collectInto(errors);
  const warn = collectInto(warnings);
  const reserved = reservedName(worker.name, tools);
  if (reserved !== null) error('name', reserved);
  const other = first.get(worker.name.toLowerCase());
  if (other !== undefined && other !== worker.name)
    error('name', `differs from the worker "${other}" only in case; rename this one`);
  if (definition === null) return { ...worker, errors, warnings };
  for (const fault of findModelFaults(engine, definition)) error(fault.path, fault.message);
  if (worker.output_schema !== null)
    for (const fault of findSchemaFaults(engine, worker)) error('output_schema_ref', fault);
  for (const name of definition.allow_workers)
    if (name !== '*' && !known.has(name)) warn('allow_workers', `there is no worker "${name}"`);
  const offered = [...tools, 'worker_create', 'worker_call'];
  for (const entry of definition.tools)
    if (!offered.some((tool) => namesTool(entry, tool))) warn('tools', describeUnknownTool(entry));
  return { ...worker, errors, warnings };
}

function findModelFaults(
  { registry }: ModelCatalog,
  { model, tier, effort = null }: WorkerDefinition,
): readonly { readonly path: string; readonly message: string }[] {
  if (effort !== null && model === null && tier === null)
    return [{ path: 'effort', message: 'needs a model or a tier that it belongs to' }];
  if (model === null) return [];
  const known = registry.findReference(model);
  if (known === null) return [{ path: 'model', message: describeUnknownModel(registry, model) }];
  if (effort === null) return [];
  if (known.effort !== null) return [{ path: 'effort', message: 'is named by model already; write one of the two' }];
  const wanted = `${known.id}:${effort}`;
  if (registry.resolveAlias(wanted) !== null) return [];
  return [{ path: 'effort', message: describeUnknownModel(registry, wanted) }];
}

/** Tools of an MCP server become known when a session of the workspace starts it. */
function describeUnknownTool(entry: string): string {
  if (!entry.startsWith('mcp__')) return `there is no tool "${entry}"`;
  return `no MCP server has offered "${entry}" so far; servers start with the first turn in the workspace`;
}

function findSchemaFaults(engine: Pick<Toolbox, 'schemas'>, worker: FoundWorker): readonly string[] {
  let faults = schemaFaults.get(worker);
  if (faults === undefined) {
    const compiled = engine.schemas.compile(worker.output_schema);
    faults = [];
    if (!compiled.ok) faults = compiled.problems.map(({ path, message }) => `${path}: ${message}`);
    schemaFaults.set(worker, faults);
  }
  return faults;
}

/** All workers of the workspace by name, invalid ones included. */
export async function listProjectWorkers(engine: DefinitionsEngine, root: string): Promise<readonly FoundWorker[]> {
  const found = await engine.library.list(root);
  const toolset = engine.tools.knownTools(root);
  const around = createCheckContext(toolset, await engine.library.names(root));
  return Promise.all(found.map((worker) => checkTrust(engine, root, checkWorker(engine, worker, around), toolset)));
}

/** Null when the workspace has no worker of this name. A name is never a path. */
export async function findProjectWorker(
  engine: DefinitionsEngine,
  root: string,
  name: string,
): Promise<FoundWorker | null> {
  if (!WORKER_NAME_PATTERN.test(name)) return null;
  const worker = await engine.library.find(root, name);
  if (worker === null) return null;
  const names = await engine.library.names(root);
  const toolset = engine.tools.knownTools(root);
  return checkTrust(engine, root, checkWorker(engine, worker, createCheckContext(toolset, names)), toolset);
}

// Workers that a session tree made for itself, as its sessions call them (13 §3.4, §6.3).

interface Tree {
  readonly workspace_path: string;
  readonly root_session_id: SessionId;
}

/** Null when this tree made no worker of this name. */
export async function findSessionWorker(
  engine: Storage & ModelCatalog & Toolbox,
  tree: Tree,
  name: string,
): Promise<FoundWorker | null> {
  const row = await engine.store.workers.get(tree.root_session_id, name);
  if (row === null) return null;
  return resolveSessionWorker(engine, tree, row);
}

export async function resolveSessionWorker(
  engine: ModelCatalog & Toolbox,
  { workspace_path: root }: Tree,
  row: SessionWorker,
): Promise<FoundWorker> {
  const { definition, errors } = readDefinition(row.yaml, { name: row.name, file: null, format: 'yaml' });
  const bare = { name: row.name, origin: 'session', path: row.path, read_only: true } as const;
  if (definition === null) {
    const nothing = {
      definition,
      instructions: null,
      instructions_source: null,
      output_schema: null,
      digest: null,
      sources: [],
    };
    return { ...bare, ...nothing, errors, warnings: [] };
  }
  const found = { ...(await engine.library.complete(root, definition)), ...bare };
  const names = [...(await engine.library.names(root)), row.name];
  return checkWorker(engine, found, createCheckContext(engine.tools.knownTools(root), names));
}

// The tools of one session: those of its workspace, and the workers it may call (09 §1, 13 §6.1).

type Caller = Pick<SessionRecord, 'workspace_path' | 'is_worker' | 'allow_workers' | 'worker_definition'>;

/** The tools for a turn that starts now; waits until the workspace's servers have started. */
export function loadToolset(engine: DefinitionsEngine, session: Caller): Awaitable<ToolSet> {
  return continueWith(engine.tools.resolveTools(session.workspace_path), (toolset) =>
    addWorkerTools(engine, toolset, session, listAllowedWorkers(engine, session)),
  );
}

/** The tools known so far: starts no server and waits for none. */
export function loadKnownToolset(engine: DefinitionsEngine, session: Caller): Awaitable<ToolSet> {
  const known = engine.tools.knownTools(session.workspace_path);
  return addWorkerTools(engine, known, session, listAllowedWorkers(engine, session));
}

/** The tools of a session that may call these workers. */
export async function loadWorkerToolset(
  engine: DefinitionsEngine,
  workspace: string,
  allowed: readonly string[],
): Promise<ToolSet> {
  return addWorkerTools(engine, await engine.tools.resolveTools(workspace), { workspace_path: workspace }, allowed);
}

/** Names of the workers that a session may call; `*` is every worker of the project. A worker of `delegate` may call none. */
export function listAllowedWorkers(engine: Pick<Runtime, 'config'>, session: Caller): readonly string[] {
  if (session.worker_definition !== null) return session.worker_definition.definition.allow_workers;
  if (session.is_worker) return [];
  return session.allow_workers ?? engine.config.workers.planner_allow_workers;
}

function addWorkerTools(
  engine: DefinitionsEngine,
  toolset: ToolSet,
  { workspace_path: root }: Pick<Caller, 'workspace_path'>,
  allowed: readonly string[],
): Awaitable<ToolSet> {
  if (allowed.length === 0) return toolset;
  return addAllowedWorkers(engine, toolset, root, allowed);
}

async function addAllowedWorkers(
  engine: DefinitionsEngine,
  toolset: ToolSet,
  root: string,
  allowed: readonly string[],
): Promise<ToolSet> {
  const found = await findAllowedWorkers(engine, root, allowed);
  const tools = found.flatMap((worker) => {
    if (worker === null || worker.errors.length > 0 || worker.definition === null) return [];
    return [createWorkerTool({ ...worker, definition: worker.definition })];
  });
  if (tools.length === 0) return toolset;
  return engine.tools.withWorkers(toolset, tools);
}

async function findAllowedWorkers(engine: DefinitionsEngine, root: string, allowed: readonly string[]) {
  if (allowed.includes('*')) return listProjectWorkers(engine, root);
  return Promise.all([...new Set(allowed)].map((name) => findProjectWorker(engine, root, name)));
}
