// Workers of sessions: inserted once, changed never (01 §11.3).
import type Database from 'better-sqlite3';
import { COLUMNS } from '../../sql/session-workers.ts';
import { bit } from '../../sql/values.ts';
import { insertInto } from '../connection/named.ts';
import type { Appliers } from './writes.ts';

export function workerWrites(db: Database.Database): Appliers<'worker.insert'> {
  const insert = insertInto(db, 'worker_definitions', COLUMNS);
  return {
    'worker.insert': ({ worker }) => void insert({ ...worker, edited_by_user: bit(worker.edited_by_user) }),
  };
}
