// Workers of sessions, inserted and replaced by the session that made them, and trusted files (01 §11.3).
import type Database from 'better-sqlite3';
import { bit } from '#store/schema/values.ts';
import * as others from '#store/write/others.ts';
import { insertInto, named } from '../connection/named.ts';
import type { Appliers } from './writes.ts';

export function workerWrites(
  db: Database.Database,
): Appliers<`worker.${'insert' | 'replace'}` | `trusted_file.${'put' | 'remove'}`> {
  const putTrust = named(db, others.PUT_TRUSTED_FILE);
  const removeTrust = named(db, others.REMOVE_TRUSTED_FILE);
  const insert = insertInto(db, 'worker_definitions', others.WORKER_COLUMNS);
  const replace = named(db, others.REPLACE_WORKER);
  return {
    'worker.insert': ({ worker }) => void insert({ ...worker, edited_by_user: bit(worker.edited_by_user) }),
    'trusted_file.put': ({ file }) => void putTrust.run(file),
    'trusted_file.remove': (write) => void removeTrust.run(write),
    'worker.replace': ({ worker }) => void replace.run({ ...worker, edited_by_user: bit(worker.edited_by_user) }),
  };
}
