// SQL fragments and column values that statements and tables share, and the numbers of event types.
import { type Actor, EVENT_TYPES, type EventType, type Sensitivity } from '#protocol/event.ts';
import { OPEN_TURN_STATUSES } from '#protocol/turn.ts';

/** The numbers that represent words of an event. Never changed. */
export const ACTOR_NUMBERS: Readonly<Record<Actor, number>> = { user: 0, agent: 1, system: 2, tool: 3, worker: 4 };
export const SENSITIVITY_NUMBERS: Readonly<Record<Sensitivity, number>> = { private: 0, pseudonymous: 1 };

/**
 * The event types that reports read by time, for which alone there is an index. Their numbers are in that index, so they
 * are fixed; all other types have the number that the database gave them (`event-types.ts`).
 */
export const REPORTED_TYPES = { 'route.decided': 9, 'llm.call_completed': 14, 'llm.call_failed': 15 } as const;
export type ReportedType = keyof typeof REPORTED_TYPES;
/** Condition on `event_rows`, written exactly as in that index. */
export function typeIs(type: ReportedType): string {
  return `type = ${REPORTED_TYPES[type]}`;
}

/**
 * True where a column has one of the values, which are written as SQL. In place of `IN`, for which SQLite builds a table
 * in memory whenever such a statement runs: an insert of a turn, with seven of them, took three times as long.
 */
export function isOneOf(column: string, values: readonly (string | number)[]): string {
  return `(${values.map((value) => `${column} = ${value}`).join(' OR ')})`;
}

/** Words as SQL. */
export function quoteWords(words: readonly string[]): readonly string[] {
  return words.map((word) => `'${word}'`);
}

/**
 * Of a session found by its id. Not in the words of the index of active sessions: PostgreSQL would read that whole index
 * for one session where it has no statistics yet.
 */
export const SESSION_IS_OPEN = 'coalesce(ended_at, 0) = 0';

/** Written exactly as in the unique index of open turns, so that SQLite uses it. */
export const TURN_IS_OPEN = isOneOf('status', quoteWords(OPEN_TURN_STATUSES));
/** The same of the table or alias `t`. */
export const TURN_T_IS_OPEN = isOneOf('t.status', quoteWords(OPEN_TURN_STATUSES));

/**
 * Turns `t` and their events `e`, which have greater ids than the turn. There is no index of events by turn: it took a
 * fifteenth of a database, and queries mostly concern the last turns of their sessions.
 */
export const EVENTS_OF_TURN =
  'turns t {join_in_order} events e ON e.session_id = t.session_id AND e.id > t.id AND e.turn_id = t.id';

/** A recursive table `tree(id, depth)`: the session bound to the first parameter and its descendants. */
export const WITH_TREE = `WITH RECURSIVE tree(id, depth) AS (
  SELECT {first_id}, 0 UNION ALL
  SELECT s.id, tree.depth + 1 FROM sessions s JOIN tree ON s.parent_session_id = tree.id)`;

/** PostgreSQL's sum of integers is a decimal; as an integer again it raises beyond 64 bits, as SQLite's does (01 §11.2). */
export function sumIntegers(expression: string): string {
  return `CAST(sum(${expression}) AS bigint)`;
}

export const READ_META = 'SELECT value FROM meta WHERE key = ?';
export const SET_META =
  'INSERT INTO meta (key, value) VALUES (@key, @value) ON CONFLICT (key) DO UPDATE SET value = excluded.value';

/** Key in `meta`: the greatest id that pruning has deleted. */
export const PRUNED_THROUGH = 'pruned_through_id';
/** Key in `meta`: the session that was purged last. */
export const LAST_PURGE = 'last_purge';

/** Sorts behind every id. */
export const BEHIND_ALL = '~';

/** SQLite has no booleans: 0 and 1 represent them. */
export function bit(value: boolean): 0 | 1;
export function bit(value: boolean | null): 0 | 1 | null;
export function bit(value: boolean | null): 0 | 1 | null {
  if (value === null) return null;
  if (value) return 1;
  return 0;
}

/** Column value of a delegation without a time limit: limits are above 0, and the column is never null. */
export const NO_TIMEOUT = 0;

/** JSON text of a value, NULL of null. */
export function json(value: unknown): string | null {
  if (value === null || value === undefined) return null;
  return JSON.stringify(value);
}

// The numbers that event types are stored as. The database hands them out, so that a new type needs no migration.

export type TypeNumbers = ReadonlyMap<string, number>;

export interface TypeRow {
  readonly type: string;
  readonly number: number;
}

export const LIST_EVENT_TYPES = 'SELECT type, number FROM event_types';
/** Adds nothing where another process added the type, or took the number, at this moment. */
export const ADD_EVENT_TYPE = `INSERT INTO event_types (number, type)
  SELECT max(number) + 1, CAST(? AS text) FROM event_types WHERE TRUE ON CONFLICT DO NOTHING`;

/** The types of the catalogue that have no number yet. */
export function findMissingTypes(numbers: TypeNumbers): readonly EventType[] {
  return EVENT_TYPES.filter((type) => !numbers.has(type));
}

export function toTypeNumbers(rows: readonly TypeRow[]): TypeNumbers {
  return new Map(rows.map(({ type, number }) => [type, number]));
}
