// The floor of the id generator after a restart: the greatest id that was ever stored (01 §2).
import type Database from 'better-sqlite3';
import type { Ulid } from '#protocol/ids.ts';
import { PRUNED_THROUGH } from '#store/schema/words.ts';

/** A bare ULID, or null in an empty database. Cost facts and the prune mark outlive the events they came from. */
export function newestId(db: Database.Database): Ulid | null {
  return (
    db
      .prepare<[string], Ulid | null>(`
        SELECT max(id) FROM (
          SELECT max(id) AS id FROM event_rows
          UNION ALL SELECT max(id) FROM messages
          UNION ALL SELECT max(id) FROM turns
          UNION ALL SELECT substr(max(id), 6) FROM sessions
          UNION ALL SELECT substr(max(id), 4) FROM tool_calls
          UNION ALL SELECT max(id) FROM confirmations
          UNION ALL SELECT max(id) FROM turn_inputs
          UNION ALL SELECT max(id) FROM deliveries
          UNION ALL SELECT max(event_id) FROM ledger_calls
          UNION ALL SELECT value FROM meta WHERE key = ?)`)
      .pluck()
      .get(PRUNED_THROUGH) ?? null
  );
}
