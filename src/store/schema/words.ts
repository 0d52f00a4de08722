// Words of SQL that several statements and the tables share.
import type { Actor, EventType, Sensitivity } from '#protocol/event.ts';
import { OPEN_TURN_STATUSES } from '#protocol/turn.ts';

/** What the words of an event are stored as. Never changed: a new type takes the next number, with a migration that says it. */
export const TYPE_NUMBERS: Readonly<Record<EventType, number>> = {
  'session.created': 1,
  'session.ended': 2,
  'turn.started': 3,
  'turn.completed': 4,
  'turn.cancelled': 5,
  'turn.failed': 6,
  'turn.resumed': 7,
  'turn.steered': 8,
  'route.decided': 9,
  'routing.policy_invalid': 10,
  'routing.provider_unavailable': 11,
  'routing.provider_recovered': 12,
  'llm.call_started': 13,
  'llm.call_completed': 14,
  'llm.call_failed': 15,
  'tool.called': 16,
  'tool.completed': 17,
  'tool.failed': 18,
  'tool.input_invalid': 19,
  'tool.confirmation_requested': 20,
  'tool.confirmation_resolved': 21,
  'delegate.started': 22,
  'delegate.completed': 23,
  'delegate.failed': 24,
  'memory.updated': 25,
  'skill.loaded': 26,
  'context.compacted': 27,
  'pattern.recorded': 28,
  'eval.completed': 29,
  'worker.created': 30,
  'budget.warning': 31,
  'budget.exceeded': 32,
};
export const ACTOR_NUMBERS: Readonly<Record<Actor, number>> = { user: 0, agent: 1, system: 2, tool: 3, worker: 4 };
export const SENSITIVITY_NUMBERS: Readonly<Record<Sensitivity, number>> = { private: 0, pseudonymous: 1 };

/** The event types that reports read by time, for which alone there is an index. */
export const REPORTED_TYPES = ['route.decided', 'llm.call_completed', 'llm.call_failed'] as const;
/** Rows of `event_rows`, spelled as in that index. */
export function typeIs(type: (typeof REPORTED_TYPES)[number]): string {
  return `type = ${TYPE_NUMBERS[type]}`;
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

/** Key in `meta`: the greatest id that pruning has deleted. */
export const PRUNED_THROUGH = 'pruned_through_id';

/** Sorts behind every id. */
export const BEHIND_ALL = '~';
