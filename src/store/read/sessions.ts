// Sessions: what every database is asked for (01 §7.1).

import type { SessionStamp } from '#core/policy/journal/envelope.ts';
import type { Spent } from '#core/policy/session/session-view.ts';
import { firstLine } from '#core/policy/session/title.ts';
import type { SessionQuery } from '#core/ports/store.ts';
import type { Pusd, Usd } from '#protocol/money.ts';
import type { SessionRecord, SessionStatus } from '#protocol/session.ts';
import { LIMIT_AS_TEXT, type SessionRow, usdOrNull } from '../schema/rows.ts';
import { TURN_IS_OPEN, WITH_TREE } from '../schema/words.ts';
import { answerText } from './turns.ts';

const SELECT = `SELECT s.*, ${LIMIT_AS_TEXT} FROM sessions s`;
/** A client's session is active while a call of it is open, which only the engine knows. */
const WORKERS = "count(*) AS count, count(*) FILTER (WHERE s.ended_at IS NULL AND s.door <> 'gateway') AS active";
const IS_OPEN_TURN = `SELECT 1 FROM turns t WHERE t.session_id = s.id AND ${TURN_IS_OPEN}`;
const STATUS_IS: Readonly<Record<SessionStatus, string>> = {
  ended: 's.ended_at IS NOT NULL',
  idle: `s.ended_at IS NULL AND NOT EXISTS (${IS_OPEN_TURN})`,
  running: `s.ended_at IS NULL AND EXISTS (${IS_OPEN_TURN} AND t.status <> 'interrupted')`,
  interrupted: `s.ended_at IS NULL AND EXISTS (${IS_OPEN_TURN} AND t.status = 'interrupted')`,
};

/** Of sessions with an open turn, so that there is no walk past all the others. */
const OPEN_IS: Readonly<Partial<Record<SessionStatus, string>>> = {
  running: "<> 'interrupted'",
  interrupted: "= 'interrupted'",
};

function statusIs(statuses: readonly SessionStatus[]): string {
  const open = statuses.flatMap((status) => OPEN_IS[status] ?? []);
  if (statuses.length === 0 || open.length < statuses.length)
    return `(${statuses.map((status) => `(${STATUS_IS[status]})`).join(' OR ') || 'FALSE'})`;
  const which = open.map((is) => `t.status ${is}`).join(' OR ');
  return `s.ended_at IS NULL AND s.id IN (SELECT t.session_id FROM turns t WHERE t.${TURN_IS_OPEN} AND (${which}))`;
}

export const BY_ID = `${SELECT} WHERE s.id = ?`;
/** With the limit whose share was warned about last. */
export const KNOWN = `SELECT *, ${LIMIT_AS_TEXT}, CAST(budget_warned_pusd AS TEXT) AS warned_text FROM sessions WHERE id = ?`;
export type KnownRow = SessionRow & { readonly warned_text: string | null };
/** A session as the engine works with it. */
export interface KnownSession {
  readonly record: SessionRecord;
  /** The limit whose share was warned about last. */
  readonly warned_usd: Usd | null;
}
export const OPEN_TURN = `SELECT id, status FROM turns WHERE session_id = ? AND ${TURN_IS_OPEN}`;
export const DELEGATION = `SELECT ${LIMIT_AS_TEXT}, request_json FROM delegations WHERE worker_session_id = ?`;
export const DESCENDANTS = `${WITH_TREE} SELECT id FROM tree WHERE depth > 0 ORDER BY depth DESC, id`;
export const LINEAGE = `
  WITH RECURSIVE up(id, parent, distance) AS (
    SELECT id, parent_session_id, 0 FROM sessions WHERE id = ?
    UNION ALL SELECT s.id, s.parent_session_id, distance + 1 FROM sessions s JOIN up ON s.id = up.parent)
  SELECT id FROM up ORDER BY distance`;
export const ACTIVE_SESSIONS =
  "SELECT count(*) AS n FROM sessions WHERE ended_at IS NULL AND is_worker = ? AND door <> 'gateway'";
export const ACTIVE_TURNS = `SELECT count(*) AS n FROM turns WHERE ${TURN_IS_OPEN} AND status <> 'interrupted'`;
export const LAST_MODEL = 'SELECT chosen_model FROM turns WHERE session_id = ? ORDER BY id DESC LIMIT 1';
export const WORKERS_OF_TREE = `SELECT ${WORKERS} FROM sessions s WHERE s.root_session_id = ? AND s.is_worker = 1`;
/** CROSS JOIN keeps the order: walk the tree, then look each session up. */
export const WORKERS_BELOW = `${WITH_TREE} SELECT ${WORKERS} FROM tree CROSS JOIN sessions s ON s.id = tree.id WHERE tree.depth > 0`;
/** Spelled as in their indexes. */
export const OF_CLIENT =
  'SELECT id FROM sessions WHERE caller = ? AND client_ref = ? AND is_worker = 0 AND client_ref IS NOT NULL';
export const WORKER_OF_CLIENT =
  'SELECT id FROM sessions WHERE root_session_id = ? AND client_ref = ? AND is_worker = 1 AND client_ref IS NOT NULL';
/** CROSS JOIN keeps the order: the caller's roots, then a lookup in each of their trees. */
export const WORKER_OF_CALLER = `
  SELECT s.id FROM sessions r CROSS JOIN sessions s
  WHERE r.caller = ? AND r.is_worker = 0 AND r.client_ref IS NOT NULL
    AND s.root_session_id = r.id AND s.client_ref = ? AND s.is_worker = 1 AND s.client_ref IS NOT NULL
  ORDER BY s.id DESC LIMIT 1`;
export const FIRST_MESSAGE =
  "SELECT content_json FROM messages WHERE session_id = ? AND role = 'user' ORDER BY id LIMIT 1";
/** What goes from a session onto its events and cost facts, and whether it has ended. */
export const STAMP = `
  SELECT s.parent_session_id, s.root_session_id, s.is_worker, s.workspace_hash,
    coalesce(s.worker_name, '') AS worker_name, coalesce(s.delegated_by_model, '') AS delegated_by_model,
    coalesce(d.tier, '') AS delegation_tier, s.door, s.caller, s.ended_at IS NOT NULL AS ended
  FROM sessions s LEFT JOIN delegations d ON d.worker_session_id = s.id
  WHERE s.id = ?`;
export type StampRow = Omit<SessionStamp, 'is_worker'> & { readonly is_worker: 0 | 1; readonly ended: 0 | 1 };

export interface DelegationRow {
  readonly max_cost_text: string | null;
  readonly request_json: string;
}

export function delegationFacts({ max_cost_text, request_json }: DelegationRow): {
  readonly task: string;
  readonly max_cost_usd: Usd | null;
} {
  const { task } = JSON.parse(request_json) as { readonly task: string };
  return { task, max_cost_usd: usdOrNull(max_cost_text) };
}

export function titleOf(firstMessage: string): string | null {
  return firstLine(answerText(firstMessage));
}

/** What is left of a tree without its root; an unpriced call of the root's own is among its own anyway. */
export function lessOwn(tree: Spent, own: Spent): Spent {
  return { cost_pusd: (tree.cost_pusd - own.cost_pusd) as Pusd, unpriced: tree.unpriced };
}

/** One row more than the page holds. */
export function pageOf(query: SessionQuery): { readonly sql: string; readonly values: readonly unknown[] } {
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
  if (query.before !== null) add('s.id < ?', query.before);
  if (query.status !== null) {
    const by = statusIs(query.status);
    // What runs by its calls is not idle, whatever its turns say.
    const calling = 's.id IN (SELECT value FROM json_each(?))';
    const ids = JSON.stringify(query.calling);
    if (query.calling.length === 0) add(by);
    else if (query.status.includes('running')) add(`((${by}) OR ${calling})`, ids);
    else add(`(${by}) AND NOT ${calling}`, ids);
  }
  const where = terms.length === 0 ? '' : `WHERE ${terms.join(' AND ')}`;
  return { sql: `${SELECT} ${where} ORDER BY s.id DESC LIMIT ?`, values: [...values, query.limit + 1] };
}
