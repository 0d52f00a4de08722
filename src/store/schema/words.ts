// Words of SQL that several statements and the tables share.
import type { Actor, Sensitivity } from '#protocol/event.ts';
import { OPEN_TURN_STATUSES } from '#protocol/turn.ts';

/** What the words of an event are stored as. Never changed. */
export const ACTOR_NUMBERS: Readonly<Record<Actor, number>> = { user: 0, agent: 1, system: 2, tool: 3, worker: 4 };
export const SENSITIVITY_NUMBERS: Readonly<Record<Sensitivity, number>> = { private: 0, pseudonymous: 1 };

/**
 * The event types that reports read by time, for which alone there is an index. Their numbers stand in that index, so they
 * are fixed; all other types have the number that the database gave them (`event-types.ts`).
 */
export const REPORTED_TYPES = { 'route.decided': 9, 'llm.call_completed': 14, 'llm.call_failed': 15 } as const;
export type ReportedType = keyof typeof REPORTED_TYPES;
/** Rows of `event_rows`, spelled as in that index. */
export function typeIs(type: ReportedType): string {
  return `type = ${REPORTED_TYPES[type]}`;
}

/** Spelled as in the unique index of open turns, so that SQLite may use it. */
export const TURN_IS_OPEN = `status IN (${OPEN_TURN_STATUSES.map((s) => `'${s}'`).join(',')})`;

/**
 * Turns `t` and their events `e`, which have greater ids than the turn. There is no index of events by turn: it was a
 * fifteenth of a database, and turns that are asked about are the last of their sessions.
 */
export const EVENTS_OF_TURN =
  'turns t CROSS JOIN events e ON e.session_id = t.session_id AND e.id > t.id AND e.turn_id = t.id';

/** A recursive table `tree(id, depth)`: the session bound to the first parameter and its descendants. */
export const WITH_TREE = `WITH RECURSIVE tree(id, depth) AS (
  SELECT ?, 0 UNION ALL
  SELECT s.id, tree.depth + 1 FROM sessions s JOIN tree ON s.parent_session_id = tree.id)`;

/** PostgreSQL's sum of integers is a decimal; as an integer again it raises beyond 64 bits, as SQLite's does (01 §11.2). */
export function sumIntegers(expression: string): string {
  return `CAST(sum(${expression}) AS bigint)`;
}

/** Key in `meta`: the greatest id that pruning has deleted. */
export const PRUNED_THROUGH = 'pruned_through_id';

/** Sorts behind every id. */
export const BEHIND_ALL = '~';
