// Creates, replaces, locks and deletes the workers of a project (13 §10).

import type { ToolList } from '#protocol/api/server-bodies.ts';
import type { WorkerDetail, WorkerInfo } from '#protocol/api/worker-bodies.ts';
import { isoTime } from '#protocol/clock.ts';
import { AppError, type Issue, validationError } from '#protocol/errors.ts';
import { draft } from '#protocol/event.ts';
import type { SessionId } from '#protocol/ids.ts';
import { compareText } from '#protocol/text/compare-text.ts';
import type { FoundWorker, SessionWorker, WorkerDefinition } from '#protocol/worker-definition.ts';
import { appendLine, checkDefinition, readDefinition } from '../policy/workers/read-definition.ts';
import { formatDefinition, type Made, toWorkerDetail, toWorkerInfo } from '../policy/workers/write-definition.ts';
import {
  checkWorker,
  createCheckContext,
  findProjectWorker,
  listAllowedWorkers,
  listProjectWorkers,
  resolveSessionWorker,
} from './definitions/find-workers.ts';
import { storeTrust } from './definitions/trusted-files.ts';
import { resolveWorkspace } from './session/session-records.ts';
import type { DefinitionsEngine, Engine, ModelCatalog, Storage, Toolbox } from './state/engine.ts';

/** Exactly one of the two is set. */
interface GivenDefinition {
  readonly definition: Readonly<Record<string, unknown>> | null;
  readonly yaml: string | null;
}

/** Throws `not_found` (workspace), `workspace_not_allowed`, `validation_error` or `worker_exists`. */
export async function createWorkerDefinition(
  engine: Engine,
  workspace: string,
  given: GivenDefinition,
): Promise<WorkerDetail> {
  const root = await resolveWorkspace(engine, workspace);
  const worker = await engine.library.change(root, () => saveNewWorker(engine, root, given));
  await engine.journal.commit({
    emit: [
      draft({
        type: 'worker.created',
        session_id: 'system',
        turn_id: null,
        parent: null,
        actor: 'user',
        payload: {
          name: worker.name,
          origin: 'project',
          digest: worker.digest ?? '',
          path: worker.path,
          tool_use_id: null,
          edited_by_user: true,
          replaces_digest: null,
        },
      }),
    ],
  });
  return toWorkerDetail(worker, null);
}

async function saveNewWorker(engine: DefinitionsEngine, root: string, given: GivenDefinition): Promise<FoundWorker> {
  const definition = await requireValidDefinition(engine, root, given, null);
  const known = (await engine.library.names(root)).find((name) => name.toLowerCase() === definition.name.toLowerCase());
  if (known !== undefined) throw new AppError('worker_exists', `there is a worker "${known}"; PUT replaces it`);
  return saveDefinition(engine, root, definition);
}

/** Throws as `createWorkerDefinition` without `worker_exists`, and `not_found` (worker), `worker_read_only`, `worker_locked`. */
export async function replaceWorkerDefinition(
  engine: Engine,
  workspace: string,
  name: string,
  given: GivenDefinition & { readonly force: boolean },
): Promise<WorkerDetail> {
  const root = await resolveWorkspace(engine, workspace);
  return engine.library.change(root, async () => {
    await requireChangeable(engine, root, name, given.force);
    const definition = await requireValidDefinition(engine, root, given, name);
    return toWorkerDetail(await saveDefinition(engine, root, definition), null);
  });
}

/** Throws `not_found` (workspace, worker), `workspace_not_allowed`, `worker_read_only`, `worker_locked`. */
export async function deleteWorkerDefinition(
  engine: Engine,
  workspace: string,
  name: string,
  force: boolean,
): Promise<void> {
  const root = await resolveWorkspace(engine, workspace);
  await engine.library.change(root, async () => {
    await requireChangeable(engine, root, name, force);
    await engine.library.remove(root, name);
  });
}

async function requireChangeable(engine: DefinitionsEngine, root: string, name: string, force: boolean): Promise<void> {
  const worker = await findProjectWorker(engine, root, name);
  if (worker === null) throw new AppError('not_found', `no worker named ${name}`, { resource: 'worker' });
  if (worker.read_only) throw new AppError('worker_read_only', `${worker.path} is only read; change the file itself`);
  if (force) return;
  // An invalid file may be locked.
  if (worker.definition === null)
    throw new AppError(
      'worker_locked',
      `${worker.path} does not load, so it may be locked; force: true changes it all the same`,
    );
  if (worker.definition.locked)
    throw new AppError('worker_locked', `the worker ${name} is locked; force: true changes it all the same`);
}

/** Every check comes before the first write. */
async function requireValidDefinition(
  engine: ModelCatalog & Toolbox,
  root: string,
  { definition: value, yaml }: GivenDefinition,
  name: string | null,
): Promise<WorkerDefinition> {
  const read = yaml !== null ? parseDefinitionText(yaml, name) : parseDefinitionValue(value, name);
  if (read.definition === null) throw validationError(read.issues);
  const names = [read.definition.name];
  const found = checkWorker(
    engine,
    await engine.library.complete(root, read.definition),
    createCheckContext(engine.tools.knownTools(root), names),
  );
  if (found.errors.length > 0)
    throw validationError(found.errors.map(({ path, message }) => ({ path: `definition.${path}`, message })));
  return read.definition;
}

function parseDefinitionText(
  yaml: string,
  name: string | null,
): { definition: WorkerDefinition | null; issues: readonly Issue[] } {
  const { definition, errors } = readDefinition(yaml, { name, file: null, format: 'yaml' });
  const issues = errors.map(({ path, message, line }) => ({
    path: ['yaml', path].filter((name) => name !== '').join('.'),
    message: appendLine(message, line),
  }));
  return { definition, issues };
}

function parseDefinitionValue(
  value: unknown,
  name: string | null,
): { definition: WorkerDefinition | null; issues: readonly Issue[] } {
  const { definition, faults } = checkDefinition(value, name);
  const issues = faults.map(({ path, message }) => ({ path: ['definition', ...path].map(String).join('.'), message }));
  return { definition, issues };
}

async function saveDefinition(
  engine: DefinitionsEngine,
  root: string,
  definition: WorkerDefinition,
): Promise<FoundWorker> {
  // The YAML library that keeps comments has 72 files: it is loaded when a worker is first written.
  const { reviseYaml } = await import('../policy/workers/revise-definition.ts');
  await engine.library.save(root, definition.name, (before) =>
    before === null ? formatDefinition(definition) : reviseYaml(before, definition),
  );
  // Saving a definition trusts its bytes; its prompt file is a separate file.
  const [file] = (await engine.library.find(root, definition.name))?.sources ?? [];
  const saved = file === undefined ? null : await engine.library.readText(root, file.path);
  if (saved?.ok && saved.value.sha256 === file?.sha256)
    await storeTrust(engine, root, { path: file.path, ...saved.value });
  const worker = await findProjectWorker(engine, root, definition.name);
  if (worker === null) throw new AppError('internal_error', 'the saved worker is not there any more');
  return worker;
}

// Lists the named workers of a workspace, and those that a session made for itself (13 §10).

/**
 * Sorted by name. Throws `not_found` (workspace, session) or `workspace_not_allowed`.
 * @param session includes the workers that this session's tree made
 * @param callable only the project's workers that this session, or a new one, may call
 */
export async function listWorkerDefinitions(
  engine: Engine,
  workspace: string,
  session: SessionId | null,
  callable = false,
): Promise<readonly WorkerInfo[]> {
  if (callable) return listCallableWorkers(engine, await resolveWorkspace(engine, workspace), session);
  const root = await resolveWorkspace(engine, workspace);
  const project = (await listProjectWorkers(engine, root)).map((worker) => toWorkerInfo(worker, null));
  const rows = session === null ? [] : await engine.store.workers.list(await findRootSession(engine, session));
  const own = await Promise.all(
    rows.map(async (row) =>
      toWorkerInfo(await resolveSessionWorker(engine, { ...row, workspace_path: root }, row), describeOrigin(row)),
    ),
  );
  return [...project, ...own].sort((a, b) => compareText(a.name, b.name));
}

/** A worker of the project, or else of the session's tree. Throws as `listWorkerDefinitions`, and `not_found` (worker). */
export async function getWorkerDefinition(
  engine: Engine,
  workspace: string,
  { name, session }: { readonly name: string; readonly session: SessionId | null },
): Promise<WorkerDetail> {
  const root = await resolveWorkspace(engine, workspace);
  const worker = await findProjectWorker(engine, root, name);
  if (worker !== null) return toWorkerDetail(worker, null);
  const row = session === null ? null : await engine.store.workers.get(await findRootSession(engine, session), name);
  if (row === null) throw new AppError('not_found', `no worker named ${name}`, { resource: 'worker' });
  return toWorkerDetail(await resolveSessionWorker(engine, { ...row, workspace_path: root }, row), describeOrigin(row));
}

/** The workers that a planner is offered (13 §6.1). */
async function listCallableWorkers(
  engine: DefinitionsEngine,
  root: string,
  id: SessionId | null,
): Promise<readonly WorkerInfo[]> {
  const session = id === null ? null : await engine.store.sessions.record(id);
  if (id !== null && session === null) throw unknownSessionError(id);
  const allowed = session === null ? engine.config.workers.planner_allow_workers : listAllowedWorkers(engine, session);
  const found = (await listProjectWorkers(engine, root)).filter(
    ({ name, errors }) => errors.length === 0 && (allowed.includes('*') || allowed.includes(name)),
  );
  return found.map((worker) => toWorkerInfo(worker, null)).sort((a, b) => compareText(a.name, b.name));
}

function unknownSessionError(id: SessionId): AppError {
  return new AppError('not_found', `no session with id ${id}`, { resource: 'session' });
}

async function findRootSession(engine: Pick<Storage, 'store'>, id: SessionId): Promise<SessionId> {
  const session = await engine.store.sessions.record(id);
  if (session === null) throw unknownSessionError(id);
  return session.root_session_id;
}

function describeOrigin({ created_at, ...row }: SessionWorker): Made {
  return { ...row, created_at: isoTime(created_at) };
}

// Lists the tools of a workspace that this server knows so far (09 §11.3).

/** Starts no MCP server. Throws `not_found` (workspace) or `workspace_not_allowed`. */
export async function listTools(engine: Engine, workspace: string): Promise<ToolList> {
  const root = await resolveWorkspace(engine, workspace);
  const tools = engine.tools.knownTools(root).definitions();
  return {
    tools: tools.map(({ name, description, side_effects, planners_only }) => ({
      name,
      description,
      side_effects,
      planners_only: planners_only === true,
    })),
    problems: [...engine.tools.problems(root)],
  };
}
