// The workers of a workspace as the server would use them: read, and checked against everything around them (13 §3).
import type { FoundWorker } from '#protocol/worker/definition.ts';
import { WORKER_NAME_PATTERN } from '#protocol/worker/definition.ts';
import type { Engine } from '../state/engine.ts';
import { checkTrust } from './check-trust.ts';
import { checkWorker, surroundings } from './check-worker.ts';

/** All of the workspace by name, invalid ones included. */
export async function projectWorkers(engine: Engine, root: string): Promise<readonly FoundWorker[]> {
  const found = await engine.library.list(root);
  const toolset = engine.tools.knownTools(root);
  const around = surroundings(toolset, await engine.library.names(root));
  return Promise.all(found.map((worker) => checkTrust(engine, root, checkWorker(engine, worker, around), toolset)));
}

/** Null when the workspace has none of the name. A name is never a path. */
export async function projectWorker(engine: Engine, root: string, name: string): Promise<FoundWorker | null> {
  if (!WORKER_NAME_PATTERN.test(name)) return null;
  const worker = await engine.library.find(root, name);
  if (worker === null) return null;
  const names = await engine.library.names(root);
  const toolset = engine.tools.knownTools(root);
  return checkTrust(engine, root, checkWorker(engine, worker, surroundings(toolset, names)), toolset);
}
