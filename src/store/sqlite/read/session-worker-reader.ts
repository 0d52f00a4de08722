// The workers that a session tree made for itself (13 §3.4).
import type { SessionWorkerReader } from '#core/ports/store.ts';
import * as sql from '#store/read/session-workers.ts';
import type { SqliteStoreHandle } from '../connection/open.ts';

export function createSessionWorkerReader({ db }: SqliteStoreHandle): SessionWorkerReader {
  const byName = db.prepare<[string, string], sql.WorkerRow>(sql.BY_NAME);
  const ofTree = db.prepare<[string], sql.WorkerRow>(sql.OF_TREE);
  return {
    get: async (root, name) => {
      const row = byName.get(root, name);
      return row === undefined ? null : sql.sessionWorker(row);
    },
    list: async (root) => ofTree.all(root).map(sql.sessionWorker),
  };
}
