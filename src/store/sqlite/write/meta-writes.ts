// The key-value rows of `meta` and the idempotency keys (01 §11.3).
import type Database from 'better-sqlite3';
import type { Clock } from '../../../kernel/clock.ts';
import { insertInto, named } from '../connection/named.ts';
import type { Appliers } from './writes.ts';

const KEY_COLUMNS = [
  'method',
  'path',
  'token_hash',
  'key',
  'session_id',
  'body_hash',
  'status',
  'response_json',
  'expires_at',
] as const;

export function metaWrites(db: Database.Database, clock: Clock): Appliers<'meta.set' | 'idempotency.insert'> {
  const set = named(
    db,
    'INSERT INTO meta (key, value) VALUES (@key, @value) ON CONFLICT (key) DO UPDATE SET value = excluded.value',
  );
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
