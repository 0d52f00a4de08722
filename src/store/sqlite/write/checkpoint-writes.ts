// Checkpoints of compaction: inserted once, changed never (01 §11.3).
import type Database from 'better-sqlite3';
import { COLUMNS, checkpointRow } from '#store/write/checkpoints.ts';
import { insertInto } from '../connection/named.ts';
import type { Appliers } from './writes.ts';

export function checkpointWrites(db: Database.Database): Appliers<'checkpoint.insert'> {
  const insert = insertInto(db, 'compaction_checkpoints', COLUMNS);
  return { 'checkpoint.insert': ({ checkpoint }) => void insert(checkpointRow(checkpoint)) };
}
