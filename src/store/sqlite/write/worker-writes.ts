// Workers of sessions, inserted and replaced by the session that made them, and trusted files (01 §11.3).
import type Database from 'better-sqlite3';
import { COLUMNS, REPLACE } from '#store/read/session-workers.ts';
import * as trusted from '#store/read/trusted-files.ts';
import { bit } from '#store/read/values.ts';
import { insertInto, named } from '../connection/named.ts';
import type { Appliers } from './writes.ts';

export function workerWrites(
  db: Database.Database,
): Appliers<`worker.${'insert' | 'replace'}` | `trusted_file.${'put' | 'remove'}`> {
  const putTrust = named(db, trusted.PUT);
  const removeTrust = named(db, trusted.REMOVE);
  const insert = insertInto(db, 'worker_definitions', COLUMNS);
  const replace = named(db, REPLACE);
  return {
    'worker.insert': ({ worker }) => void insert({ ...worker, edited_by_user: bit(worker.edited_by_user) }),
    'trusted_file.put': ({ file }) => void putTrust.run(file),
    'trusted_file.remove': (write) => void removeTrust.run(write),
    'worker.replace': ({ worker }) => void replace.run({ ...worker, edited_by_user: bit(worker.edited_by_user) }),
  };
}
