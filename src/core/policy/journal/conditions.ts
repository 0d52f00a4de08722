// The turns and sessions that must be open for a batch: nothing is written to them after their end (02 §3.5).

import { type EventType, SYSTEM_SESSION, TERMINAL_TURN_EVENTS } from '#protocol/event.ts';
import { JournalConflict, type Write } from '#protocol/journal-batch.ts';
import type { SessionRecord } from '#protocol/session.ts';
import type { TurnStatus } from '#protocol/turn.ts';
import type { PreparedBatch } from './prepare.ts';

/** Ends of work that outlived its turn because of a fault; each is guarded by the conditional update of its own row. */
const LATE_ENDS: readonly EventType[] = ['delegate.failed', 'tool.confirmation_resolved'];

/** The above, and events about a turn or session that may follow its end. */
function mayComeLate(type: EventType): boolean {
  return (
    LATE_ENDS.includes(type) ||
    type.startsWith('eval.') ||
    type.startsWith('pattern.') ||
    type.startsWith('routing.provider_')
  );
}

/** Ids that must not have ended before the batch; the batch may create them. */
interface Conditions {
  readonly turns: ReadonlySet<string>;
  readonly sessions: ReadonlySet<string>;
}

/** Throws `JournalConflict('turn_closed' | 'session_ended')` for an event after an end in the same batch. */
export function listConditions({ writes, emit }: PreparedBatch): Conditions {
  const turns = new Set<string>();
  const sessions = new Set<string>();
  for (const write of writes) {
    const turn = findTurn(write);
    if (turn !== null) turns.add(turn);
  }
  // Within the batch a terminal event closes its turn or session for the events after it.
  const endedHere = new Set<string>();
  for (const item of emit) {
    if (item.kind === 'transient' || mayComeLate(item.draft.type)) continue;
    const { type, turn_id, session_id } = item.draft;
    if (turn_id !== null) turns.add(turn_id);
    if (session_id !== SYSTEM_SESSION) sessions.add(session_id);
    if (turn_id !== null && endedHere.has(turn_id)) {
      throw new JournalConflict('turn_closed', `${type} after the terminal event of turn ${turn_id}`);
    }
    if (endedHere.has(session_id)) {
      throw new JournalConflict('session_ended', `${type} after session.ended of ${session_id}`);
    }
    if (turn_id !== null && (TERMINAL_TURN_EVENTS as readonly string[]).includes(type)) endedHere.add(turn_id);
    if (type === 'session.ended') endedHere.add(session_id);
  }
  return { turns, sessions };
}

/** The existing turn that a write adds to. */
function findTurn(write: Write): string | null {
  switch (write.kind) {
    case 'message.insert':
      return write.message.turn_id;
    case 'turn_input.insert':
      return write.input.turn_id;
    case 'tool_call.insert':
      return write.call.turn_id;
    case 'delegation.insert':
      return write.delegation.parent_turn_id;
    case 'confirmation.insert':
      return write.confirmation.turn_id;
    default:
      return null;
  }
}

/** Why a turn of this status did not take a conditional change (01 §8). */
export function turnRefusal(turnId: string, status: TurnStatus): JournalConflict {
  const message = `turn ${turnId} is ${status}`;
  if (status === 'in_flight' || status === 'cancelling') return new JournalConflict('turn_in_flight', message);
  return new JournalConflict('turn_closed', message);
}

// Checks a new session against its parent: the links of a tree must be consistent (01 §7.1, §7.2).

export type ParentLinks = Pick<SessionRecord, 'ended_at' | 'workspace_path' | 'root_session_id' | 'delegation_depth'>;

/**
 * `parentOf` looks a parent up, null when there is none of that id.
 * Throws `JournalConflict('session_ended')` for an ended parent, a plain error for links that contradict each other.
 */
export function checkSessionLinks(session: SessionRecord, parentOf: (id: string) => ParentLinks | null): void {
  const { id, parent_session_id, parent_tool_use_id, is_worker, door } = session;
  // A worker of a gateway client was not opened by a tool call of this server.
  const needsCall = is_worker && door !== 'gateway';
  if (is_worker !== (parent_session_id !== null) || needsCall !== (parent_tool_use_id !== null)) {
    throw new Error(`session ${id}: is_worker, parent_session_id and parent_tool_use_id must be set together`);
  }
  if (parent_session_id === null) {
    if (session.root_session_id !== id || session.delegation_depth !== 0) {
      throw new Error(`session ${id}: a top-level session is its own root at depth 0`);
    }
    return;
  }
  const parent = parentOf(parent_session_id);
  if (parent === null) throw new Error(`session ${id}: its parent ${parent_session_id} does not exist`);
  if (parent.ended_at !== null) throw new JournalConflict('session_ended', `parent ${parent_session_id} has ended`);
  if (parent.workspace_path !== session.workspace_path) {
    throw new Error(`session ${id}: workspace_path differs from its parent's`);
  }
  if (session.root_session_id !== parent.root_session_id || session.delegation_depth !== parent.delegation_depth + 1) {
    throw new Error(`session ${id}: root_session_id or delegation_depth does not follow from its parent`);
  }
}
