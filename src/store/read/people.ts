// People: tokens made at run time, the audit, and which sessions a person sees (23).
import type { Page, PeopleReader } from '#core/ports/store-reader.ts';
import { isoTime } from '#protocol/clock.ts';
import { type AuditEntry, type Reader, type TokenRecord, toPersonRef } from '#protocol/people/person.ts';
import type { audit, tokens } from '../schema/people.ts';
import { selectPersonName } from '../schema/rows.ts';
import { type Reads, toPage } from './read-database.ts';

type TokenRow = typeof tokens.$inferSelect;
type AuditRow = typeof audit.$inferSelect & { readonly person_name: string | null };

const TOKENS = 'SELECT * FROM tokens ORDER BY name';
const SHOWN = `SELECT audit.*, ${selectPersonName('audit.actor')} FROM audit`;
const AUDIT = `${SHOWN} WHERE id < ? ORDER BY id DESC LIMIT ?`;
const AUDIT_SINCE = `${SHOWN} WHERE id > ? ORDER BY id LIMIT ?`;
const OPEN_SESSIONS =
  'SELECT owner, count(*) AS n FROM sessions WHERE ended_at IS NULL AND is_worker = 0 AND owner IS NOT NULL GROUP BY owner';
/** Greater than every id. */
const NO_ID = '~';

/**
 * The condition that a session exists for a reader; null where it always does.
 * @param table the name of `sessions` in the statement
 */
export function whereSeen(reader: Reader, table: string): { readonly sql: string; readonly values: string[] } | null {
  if (reader === null) return null;
  if (reader.id === null) return { sql: `${table}.share <> 'private'`, values: [] };
  return { sql: `(${table}.share <> 'private' OR ${table}.owner = ?)`, values: [reader.id] };
}

export function createPeopleReader({ all }: Reads): PeopleReader {
  return {
    tokens: async () => (await all<TokenRow>(TOKENS)).map(tokenRecord),
    audit: async ({ before, limit }): Promise<Page<AuditEntry>> => {
      const rows = await all<AuditRow>(AUDIT, before ?? NO_ID, limit + 1);
      return toPage(rows, limit, (row) => row.id, auditEntry);
    },
    auditSince: async (after, limit) => (await all<AuditRow>(AUDIT_SINCE, after, limit)).map(auditEntry),
    openSessions: async () => {
      const rows = await all<{ owner: string; n: number }>(OPEN_SESSIONS);
      return new Map(rows.map(({ owner, n }) => [owner, Number(n)]));
    },
  };
}

export function tokenRecord({ workspaces_json, ...row }: TokenRow): TokenRecord {
  return { ...row, workspaces: workspaces_json === null ? null : JSON.parse(workspaces_json) } as TokenRecord;
}

function auditEntry({ id, at, actor, action, subject, details_json, person_name }: AuditRow): AuditEntry {
  const person = actor === null ? null : toPersonRef(actor, person_name);
  return { id, at: isoTime(at), actor: person, action, subject, details: JSON.parse(details_json) };
}
