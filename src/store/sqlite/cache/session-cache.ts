// Decoded rows of sessions in use, so that a turn does not read and parse its session before every step.
import type Database from 'better-sqlite3';
import type { SessionRecord } from '#protocol/session.ts';
import * as sql from '#store/read/sessions.ts';
import { sessionRecord, usdOrNull } from '#store/schema/rows.ts';

/** Least recently used out first. A record once handed out never changes. */
export interface SessionCache {
  /** Null when there is no such session. */
  get(id: string): sql.KnownSession | null;
  /** For a session that is kept; does nothing for one that is not. */
  change(id: string, values: Partial<SessionRecord>): void;
  drop(id: string): void;
}

/** A record holds its system prompt, so some MiB at most. */
const MAX_CACHED = 256;

export function createSessionCache(db: Database.Database): SessionCache {
  const entries = new Map<string, sql.KnownSession>();
  const select = db.prepare<[string], sql.KnownRow>(sql.KNOWN);

  function keep(id: string, entry: sql.KnownSession): sql.KnownSession {
    entries.delete(id);
    entries.set(id, entry);
    if (entries.size > MAX_CACHED) entries.delete(entries.keys().next().value ?? '');
    return entry;
  }
  function read(id: string): sql.KnownSession | null {
    const row = select.get(id);
    if (row === undefined) return null;
    const { warned_text, ...rest } = row;
    return keep(id, { record: sessionRecord(rest), warned_usd: usdOrNull(warned_text) });
  }
  return {
    get(id) {
      const known = entries.get(id);
      return known === undefined ? read(id) : keep(id, known);
    },
    change(id, values) {
      const known = entries.get(id);
      if (known !== undefined) entries.set(id, { ...known, record: { ...known.record, ...values } });
    },
    drop: (id) => {
      entries.delete(id);
    },
  };
}
