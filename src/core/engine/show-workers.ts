// The named workers of a workspace, and those that a session made for itself, for people (13 §10).
import type { WorkerDetail, WorkerInfo } from '#protocol/api/workers.ts';
import { isoTime } from '#protocol/clock.ts';
import { AppError } from '#protocol/errors.ts';
import type { SessionId } from '#protocol/ids.ts';
import type { SessionWorker } from '#protocol/worker/session-worker.ts';
import { type Made, workerDetail, workerInfo } from '../policy/workers/worker-info.ts';
import { allowedBy, asFound, projectWorker, projectWorkers } from './definitions/session-workers.ts';
import { openWorkspace } from './session/new-session.ts';
import type { Engine } from './state/engine.ts';

/**
 * By name. Throws `not_found` (workspace, session) or `workspace_not_allowed`.
 * @param session whose tree's own workers come too
 * @param callable only those of the project that this session may call, or a new one
 */
export async function listWorkers(
  engine: Engine,
  workspace: string,
  session: SessionId | null,
  callable = false,
): Promise<readonly WorkerInfo[]> {
  if (callable) return callableWorkers(engine, await openWorkspace(engine, workspace), session);
  const root = await openWorkspace(engine, workspace);
  const project = (await projectWorkers(engine, root)).map((worker) => workerInfo(worker, null));
  const rows = session === null ? [] : await engine.store.workers.list(await rootOf(engine, session));
  const own = await Promise.all(
    rows.map(async (row) => workerInfo(await asFound(engine, { ...row, workspace_path: root }, row), madeOf(row))),
  );
  return [...project, ...own].sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** The project's, or else the one that the session's tree made. Throws as `listWorkers`, and `not_found` (worker). */
export async function showWorker(
  engine: Engine,
  workspace: string,
  { name, session }: { readonly name: string; readonly session: SessionId | null },
): Promise<WorkerDetail> {
  const root = await openWorkspace(engine, workspace);
  const worker = await projectWorker(engine, root, name);
  if (worker !== null) return workerDetail(worker, null);
  const row = session === null ? null : await engine.store.workers.get(await rootOf(engine, session), name);
  if (row === null) throw new AppError('not_found', `no worker named ${name}`, { resource: 'worker' });
  return workerDetail(await asFound(engine, { ...row, workspace_path: root }, row), madeOf(row));
}

/** As a planner is offered them (13 §6.1). */
async function callableWorkers(engine: Engine, root: string, id: SessionId | null): Promise<readonly WorkerInfo[]> {
  const session = id === null ? null : await engine.store.sessions.record(id);
  if (id !== null && session === null) throw unknownSession(id);
  const allowed = session === null ? engine.config.workers.planner_allow_workers : allowedBy(engine, session);
  const found = (await projectWorkers(engine, root)).filter(
    ({ name, errors }) => errors.length === 0 && (allowed.includes('*') || allowed.includes(name)),
  );
  return found.map((worker) => workerInfo(worker, null)).sort((a, b) => (a.name < b.name ? -1 : 1));
}

function unknownSession(id: SessionId): AppError {
  return new AppError('not_found', `no session with id ${id}`, { resource: 'session' });
}

async function rootOf(engine: Engine, id: SessionId): Promise<SessionId> {
  const session = await engine.store.sessions.record(id);
  if (session === null) throw unknownSession(id);
  return session.root_session_id;
}

function madeOf({ created_at, ...row }: SessionWorker): Made {
  return { ...row, created_at: isoTime(created_at) };
}
