// Workers that a session tree made for itself, as its sessions call them (13 §3.4, §6.3).

import { readDefinition } from '#core/policy/workers/read-definition.ts';
import type { SessionId } from '#protocol/ids.ts';
import type { FoundWorker } from '#protocol/worker/definition.ts';
import type { SessionWorker } from '#protocol/worker/session-worker.ts';
import type { Engine } from '../state/engine.ts';
import { checkWorker, surroundings } from './check-worker.ts';

export interface Tree {
  readonly workspace_path: string;
  readonly root_session_id: SessionId;
}

/** Null when this tree made none of the name. */
export async function sessionWorker(engine: Engine, tree: Tree, name: string): Promise<FoundWorker | null> {
  const row = await engine.store.workers.get(tree.root_session_id, name);
  return row === null ? null : asFound(engine, tree, row);
}

export async function asFound(
  engine: Engine,
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
  return checkWorker(engine, found, surroundings(engine.tools.knownTools(root), names));
}
