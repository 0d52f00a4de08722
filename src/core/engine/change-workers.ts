// A person keeps, replaces and removes workers of a project (13 §10).
import type { WorkerDetail } from '#protocol/api/workers.ts';
import { AppError, type Issue, validationError } from '#protocol/errors.ts';
import { draft } from '#protocol/event.ts';
import type { FoundWorker, WorkerDefinition } from '#protocol/worker/definition.ts';
import { checkDefinition, readDefinition } from '../policy/workers/read-definition.ts';
import { workerDetail } from '../policy/workers/worker-info.ts';
import { definitionYaml } from '../policy/workers/write-definition.ts';
import { checkWorker, projectWorker, surroundings } from './definitions/session-workers.ts';
import { openWorkspace } from './session/new-session.ts';
import type { Engine } from './state/engine.ts';

/** One of the two. */
export interface GivenDefinition {
  readonly definition: Readonly<Record<string, unknown>> | null;
  readonly yaml: string | null;
}

/** Throws `not_found` (workspace), `workspace_not_allowed`, `validation_error` or `worker_exists`. */
export async function createWorker(engine: Engine, workspace: string, given: GivenDefinition): Promise<WorkerDetail> {
  const root = await openWorkspace(engine, workspace);
  const worker = await engine.library.change(root, () => created(engine, root, given));
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
  return workerDetail(worker, null);
}

async function created(engine: Engine, root: string, given: GivenDefinition): Promise<FoundWorker> {
  const definition = await valid(engine, root, given, null);
  const known = (await engine.library.names(root)).find((name) => name.toLowerCase() === definition.name.toLowerCase());
  if (known !== undefined) throw new AppError('worker_exists', `there is a worker "${known}"; PUT replaces it`);
  return saved(engine, root, definition);
}

/** Throws what `createWorker` throws but `worker_exists`, and `not_found` (worker), `worker_read_only`, `worker_locked`. */
export async function replaceWorker(
  engine: Engine,
  workspace: string,
  name: string,
  given: GivenDefinition & { readonly force: boolean },
): Promise<WorkerDetail> {
  const root = await openWorkspace(engine, workspace);
  return engine.library.change(root, async () => {
    await changeable(engine, root, name, given.force);
    const definition = await valid(engine, root, given, name);
    return workerDetail(await saved(engine, root, definition), null);
  });
}

/** Throws `not_found` (workspace, worker), `workspace_not_allowed`, `worker_read_only`, `worker_locked`. */
export async function deleteWorker(engine: Engine, workspace: string, name: string, force: boolean): Promise<void> {
  const root = await openWorkspace(engine, workspace);
  await engine.library.change(root, async () => {
    await changeable(engine, root, name, force);
    await engine.library.remove(root, name);
  });
}

async function changeable(engine: Engine, root: string, name: string, force: boolean): Promise<void> {
  const worker = await projectWorker(engine, root, name);
  if (worker === null) throw new AppError('not_found', `no worker named ${name}`, { resource: 'worker' });
  if (worker.read_only) throw new AppError('worker_read_only', `${worker.path} is only read; change the file itself`);
  if (force) return;
  // What does not load may be locked.
  if (worker.definition === null)
    throw new AppError(
      'worker_locked',
      `${worker.path} does not load, so it may be locked; force: true changes it all the same`,
    );
  if (worker.definition.locked)
    throw new AppError('worker_locked', `the worker ${name} is locked; force: true changes it all the same`);
}

/** Everything is checked before anything is written. */
async function valid(
  engine: Engine,
  root: string,
  { definition: value, yaml }: GivenDefinition,
  name: string | null,
): Promise<WorkerDefinition> {
  const read = yaml !== null ? fromText(yaml, name) : fromValue(value, name);
  if (read.definition === null) throw validationError(read.issues);
  const names = [read.definition.name];
  const found = checkWorker(
    engine,
    await engine.library.complete(root, read.definition),
    surroundings(engine.tools.knownTools(root), names),
  );
  if (found.errors.length > 0)
    throw validationError(found.errors.map(({ path, message }) => ({ path: `definition.${path}`, message })));
  return read.definition;
}

function fromText(
  yaml: string,
  name: string | null,
): { definition: WorkerDefinition | null; issues: readonly Issue[] } {
  const { definition, errors } = readDefinition(yaml, { name, file: null, format: 'yaml' });
  const issues = errors.map(({ path, message, line }) => ({
    path: `yaml${path === '' ? '' : `.${path}`}`,
    message: line === null ? message : `${message} (line ${line})`,
  }));
  return { definition, issues };
}

function fromValue(
  value: unknown,
  name: string | null,
): { definition: WorkerDefinition | null; issues: readonly Issue[] } {
  const { definition, faults } = checkDefinition(value, name);
  const issues = faults.map(({ path, message }) => ({ path: ['definition', ...path].map(String).join('.'), message }));
  return { definition, issues };
}

async function saved(engine: Engine, root: string, definition: WorkerDefinition): Promise<FoundWorker> {
  // The library that keeps comments has 72 files: loaded when somebody writes a worker.
  const { revisedYaml } = await import('../policy/workers/revise-definition.ts');
  await engine.library.save(root, definition.name, (before) =>
    before === null ? definitionYaml(definition) : revisedYaml(before, definition),
  );
  // Who saves a definition has decided on its very bytes; its prompt file is another file.
  const [file] = (await engine.library.find(root, definition.name))?.sources ?? [];
  if (file !== undefined) {
    const trusted = { workspace_path: root, ...file, trusted_by: 'user', trusted_at: engine.clock.now() };
    await engine.journal.commit({ writes: [{ kind: 'trusted_file.put', file: trusted }], emit: [] });
  }
  const worker = await projectWorker(engine, root, definition.name);
  if (worker === null) throw new AppError('internal_error', 'the saved worker is not there any more');
  return worker;
}
