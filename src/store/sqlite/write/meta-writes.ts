// The key-value rows of `meta` and the idempotency keys (01 §11.3).
import type Database from 'better-sqlite3';
import type { Clock } from '#protocol/clock.ts';
import { KEY_COLUMNS, SET_META } from '#store/write/others.ts';
import { insertInto, named } from '../connection/named.ts';
import type { Appliers } from './writes.ts';

export function metaWrites(db: Database.Database, clock: Clock): Appliers<'meta.set' | 'idempotency.insert'> {
  const set = named(db, SET_META);
  const dropExpiredKeys = db.prepare('DELETE FROM idempotency_keys WHERE expires_at <= ?');
  const insertKey = insertInto(db, 'idempotency_keys', KEY_COLUMNS);
  return {
    'meta.set': ({ key, value }) => {
      set.run({ key, value });
    },
    'idempotency.insert': ({ row }) => {
      dropExpiredKeys.run(clock.now());
      insertKey(row);
    },
  };
}
