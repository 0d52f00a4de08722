// Decoded rows of sessions in use, so that a turn does not read and parse its session before every step.
import type Database from 'better-sqlite3';
import type { SessionRecord } from '../../../domain/session.ts';
import type { Usd } from '../../../kernel/money.ts';
import { LIMIT_AS_TEXT, type SessionRow, sessionRecord, usdOrNull } from '../schema/rows.ts';

export interface KnownSession {
  readonly record: SessionRecord;
  /** The limit whose share was warned about last. */
  readonly warned_usd: Usd | null;
}

/** Least recently used out first. A record once handed out never changes. */
export interface SessionCache {
  /** Null when there is no such session. */
  get(id: string): KnownSession | null;
  /** For a session that is kept; does nothing for one that is not. */
  change(id: string, values: Partial<SessionRecord>): void;
  drop(id: string): void;
}

/** A record holds its system prompt, so some MiB at most. */
const MAX_CACHED = 256;

type Row = SessionRow & { readonly warned_text: string | null };

export function createSessionCache(db: Database.Database): SessionCache {
  const entries = new Map<string, KnownSession>();
  const select = db.prepare<[string], Row>(
    `SELECT *, ${LIMIT_AS_TEXT}, CAST(budget_warned_pusd AS TEXT) AS warned_text FROM sessions WHERE id = ?`,
  );

  function keep(id: string, entry: KnownSession): KnownSession {
    entries.delete(id);
    entries.set(id, entry);
    if (entries.size > MAX_CACHED) entries.delete(entries.keys().next().value ?? '');
    return entry;
  }
  function read(id: string): KnownSession | null {
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
