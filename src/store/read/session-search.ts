// Which sessions a list shows: by status, by what failed, by a text, in steps that leave time for other work (05 §3.1).
import { setImmediate } from 'node:timers/promises';
import type { SessionQuery } from '#core/ports/store-reader.ts';
import type { SessionId } from '#protocol/ids.ts';
import type { SessionStatus } from '#protocol/session.ts';
import { LIMIT_AS_TEXT, type SessionRow, selectPersonName } from '../schema/rows.ts';
import { TURN_IS_OPEN, TURN_T_IS_OPEN } from '../schema/words.ts';
import { whereSeen } from './people.ts';
import type { Reads } from './read-database.ts';

export const SELECT_SESSIONS = `SELECT s.*, ${LIMIT_AS_TEXT}, ${selectPersonName('s.owner')} FROM sessions s`;
const IS_OPEN_TURN = `SELECT 1 FROM turns t WHERE t.session_id = s.id AND ${TURN_IS_OPEN}`;
const STATUS_IS: Readonly<Record<SessionStatus, string>> = {
  ended: 's.ended_at IS NOT NULL',
  idle: `s.ended_at IS NULL AND NOT EXISTS (${IS_OPEN_TURN})`,
  running: `s.ended_at IS NULL AND EXISTS (${IS_OPEN_TURN} AND t.status <> 'interrupted')`,
  interrupted: `s.ended_at IS NULL AND EXISTS (${IS_OPEN_TURN} AND t.status = 'interrupted')`,
};

/** Begins at sessions with an open turn, so that closed sessions are never read. */
const OPEN_IS: Readonly<Partial<Record<SessionStatus, string>>> = {
  running: "<> 'interrupted'",
  interrupted: "= 'interrupted'",
};

function statusIs(statuses: readonly SessionStatus[]): string {
  const open = statuses.flatMap((status) => OPEN_IS[status] ?? []);
  if (statuses.length === 0 || open.length < statuses.length)
    return `(${statuses.map((status) => `(${STATUS_IS[status]})`).join(' OR ') || 'FALSE'})`;
  const which = open.map((is) => `t.status ${is}`).join(' OR ');
  return `s.ended_at IS NULL AND s.id IN (SELECT t.session_id FROM turns t WHERE ${TURN_T_IS_OPEN} AND (${which}))`;
}

/** Begins at the turns that failed, which are few, as their index is written. */
const HAS_FAILED =
  "s.ended_at IS NULL AND s.id IN (SELECT f.session_id FROM turns f WHERE f.status = 'failed')" +
  " AND (SELECT t.status FROM turns t WHERE t.session_id = s.id ORDER BY t.id DESC LIMIT 1) = 'failed'";

/** A title is the first line of one of the last two, and no longer than this. */
const SEARCHED_CHARACTERS = 400;
const SEARCHED = [
  's.id',
  's.workspace_path',
  's.worker_name',
  's.client',
  's.client_ref',
  `(SELECT substr({text_at(m.content_json, 0, text)}, 1, ${SEARCHED_CHARACTERS}) FROM messages m
    WHERE m.session_id = s.id AND m.role = 'user' ORDER BY m.id LIMIT 1)`,
  `(SELECT substr({text_at(d.request_json, task)}, 1, ${SEARCHED_CHARACTERS}) FROM delegations d
    WHERE d.worker_session_id = s.id)`,
];
const IS_FOUND = SEARCHED.map((text) => `lower(${text}) LIKE ? ESCAPE '!'`).join(' OR ');

function likePattern(search: string): string {
  return `%${search.replace(/[A-Z]/g, (letter) => letter.toLowerCase()).replace(/[%_!]/g, '!$&')}%`;
}
/** Sessions that one statement searches, since it parses the first message of each: then other work runs. */
const SEARCHED_AT_ONCE = 250;
const SLICE_END = `SELECT s.id FROM sessions s WHERE s.id < ? ORDER BY s.id DESC LIMIT 1 OFFSET ${SEARCHED_AT_ONCE - 1}`;
/** Greater than every id. */
const NO_ID = '~';

/** Rows of the query, one more than its page holds. */
export async function findSessions({ all, get }: Reads, query: SessionQuery): Promise<readonly SessionRow[]> {
  const read = ({ sql, values }: ReturnType<typeof listQuery>) => all<SessionRow>(sql, ...values);
  if (query.search === null) return read(listQuery(query, null));
  const rows: SessionRow[] = [];
  for (let { before } = query; ; await setImmediate()) {
    const end = await get<{ id: SessionId }>(SLICE_END, before ?? NO_ID);
    rows.push(...(await read(listQuery({ ...query, before }, end?.id ?? null))));
    if (end === undefined || rows.length > query.limit) return rows.slice(0, query.limit + 1);
    before = end.id;
  }
}

/**
 * Reads one row more than the page holds.
 * @param first the least id; null = no bound
 */
function listQuery(
  query: SessionQuery,
  first: SessionId | null,
): { readonly sql: string; readonly values: readonly unknown[] } {
  const terms: string[] = [];
  const values: unknown[] = [];
  const add = (term: string, ...bound: unknown[]) => {
    terms.push(term);
    values.push(...bound);
  };
  if (query.parent_session_id !== null) add('s.parent_session_id = ?', query.parent_session_id);
  else if (!query.include_workers) add('s.is_worker = 0');
  if (query.worker_name !== null) add('s.worker_name = ?', query.worker_name);
  if (query.workspace_path !== null) add('s.workspace_path = ?', query.workspace_path);
  if (query.door !== null) add('s.door = ?', query.door);
  if (query.owner !== null) add('s.owner = ?', query.owner);
  const seen = whereSeen(query.reader, 's');
  if (seen !== null) add(seen.sql, ...seen.values);
  if (query.before !== null) add('s.id < ?', query.before);
  if (first !== null) add('s.id >= ?', first);
  if (query.failed) add(HAS_FAILED);
  if (query.search !== null) add(`(${IS_FOUND})`, ...SEARCHED.map(() => likePattern(query.search ?? '')));
  if (query.status !== null) {
    const by = statusIs(query.status);
    // A session with an open gateway call is not idle, although no turn runs.
    const hasListedId = 's.id {in_list}';
    const ids = JSON.stringify(query.running_without_turn);
    if (query.running_without_turn.length === 0) add(by);
    else if (query.status.includes('running')) add(`((${by}) OR ${hasListedId})`, ids);
    else add(`(${by}) AND NOT ${hasListedId}`, ids);
  }
  const where = terms.length === 0 ? '' : `WHERE ${terms.join(' AND ')}`;
  return { sql: `${SELECT_SESSIONS} ${where} ORDER BY s.id DESC LIMIT ?`, values: [...values, query.limit + 1] };
}
