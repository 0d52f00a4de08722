// A worker's file that widens what runs without a question counts only when a person has trusted its bytes (20 §11).

import { listWidenings } from '#core/policy/workers/widening.ts';
import type { ToolSet } from '#core/ports/tool.ts';
import type { FileDigest } from '#protocol/trusted-file.ts';
import type { FoundWorker, WorkerProblem } from '#protocol/worker/definition.ts';
import type { Engine } from '../state/engine.ts';

/** The worker with an error for each thing that a file asks for which nobody has trusted. Only files need trust. */
export async function checkTrust(
  engine: Engine,
  root: string,
  worker: FoundWorker,
  toolset: ToolSet,
): Promise<FoundWorker> {
  const widenings = listWorkerWidenings(engine, worker, toolset);
  if (widenings.length === 0) return worker;
  const untrusted = await findUntrusted(engine, root, worker.sources);
  if (untrusted === null) return worker;
  const problem = ({ path, widens }: (typeof widenings)[number]): WorkerProblem => ({
    path,
    message: `${widens}: ${untrusted.path} ${untrusted.state}. Read it, then run: metis trust ${untrusted.path}`,
    file: worker.path,
    line: null,
  });
  return { ...worker, errors: [...worker.errors, ...widenings.map(problem)] };
}

/** What the worker's file asks for beyond what its server would let it do; a worker of no file widens nothing. */
export function listWorkerWidenings(
  engine: Engine,
  { definition, sources }: FoundWorker,
  toolset: ToolSet,
): ReturnType<typeof listWidenings> {
  if (definition === null || sources.length === 0) return [];
  const { tool_confirmation: confirmation, workers } = engine.config;
  return listWidenings(definition, { confirmation, dynamic: workers.dynamic, tools: toolset.definitions() });
}

/** The first of the files whose bytes nobody has trusted; null when all are. */
async function findUntrusted(engine: Engine, root: string, sources: readonly FileDigest[]): Promise<Untrusted | null> {
  for (const { path, sha256 } of sources) {
    const trusted = await engine.store.trustedFiles.digest(root, path);
    if (trusted === null) return { path, state: 'is not trusted' };
    if (trusted !== sha256) return { path, state: 'has changed since it was trusted' };
  }
  return null;
}

interface Untrusted {
  readonly path: string;
  readonly state: string;
}
