// To which tree a batch belongs: most say a session, some only a turn or a call of it (16 §3.1).

import type { PreparedBatch } from '#core/policy/journal/prepare.ts';
import type { Write } from '#core/ports/journal-writer.ts';
import { SYSTEM_SESSION } from '#protocol/event.ts';

/** What names the tree of a batch. */
export type Place =
  | { readonly by: 'root' | keyof typeof ROOT_OF; readonly id: string }
  /** Of no tree. */
  | null;

const VIA_SESSION = 'JOIN sessions s ON s.id =';
/** The root of what has this id. */
export const ROOT_OF = {
  session: 'SELECT root_session_id AS root FROM sessions WHERE id = ?',
  turn: `SELECT s.root_session_id AS root FROM turns t ${VIA_SESSION} t.session_id WHERE t.id = ?`,
  input: `SELECT s.root_session_id AS root FROM turn_inputs i ${VIA_SESSION} i.session_id WHERE i.id = ?`,
  call: `SELECT s.root_session_id AS root FROM tool_calls c ${VIA_SESSION} c.session_id WHERE c.id = ?`,
  delegation: `SELECT s.root_session_id AS root FROM delegations d ${VIA_SESSION} d.parent_session_id WHERE d.tool_use_id = ?`,
  confirmation: 'SELECT root_session_id AS root FROM confirmations WHERE id = ?',
} as const;

export function findPlace({ writes, emit }: PreparedBatch): Place {
  for (const write of writes)
    if (write.kind === 'session.insert') return { by: 'root', id: write.session.root_session_id };
  for (const item of emit) {
    if (item.kind === 'event' && item.draft.session_id !== SYSTEM_SESSION) {
      return { by: 'session', id: item.draft.session_id };
    }
  }
  for (const write of writes) {
    const place = findPlaceInWrite(write);
    if (place !== null) return place;
  }
  return null;
}

function findPlaceInWrite(write: Write): Place {
  switch (write.kind) {
    case 'session.insert':
      return { by: 'root', id: write.session.root_session_id };
    case 'worker.insert':
    case 'worker.replace':
      return { by: 'root', id: write.worker.root_session_id };
    case 'turn.insert':
      return { by: 'session', id: write.turn.session_id };
    case 'message.insert':
      return { by: 'session', id: write.message.session_id };
    case 'checkpoint.insert':
      return { by: 'session', id: write.checkpoint.session_id };
    case 'tool_call.insert':
      return { by: 'session', id: write.call.session_id };
    case 'turn_input.insert':
      return { by: 'session', id: write.input.session_id };
    case 'delegation.insert':
      return { by: 'session', id: write.delegation.parent_session_id };
    case 'confirmation.insert':
      return { by: 'root', id: write.confirmation.root_session_id };
    case 'turn.interrupt':
    case 'turn.resume':
    case 'turn.score':
      return { by: 'turn', id: write.turn_id };
    case 'turn_input.read':
      return { by: 'input', id: write.id };
    case 'tool_call.settle':
    case 'tool_call.answer':
      return { by: 'call', id: write.id };
    case 'delegation.interrupt':
    case 'delegation.resume':
    case 'delegation.end':
      return { by: 'delegation', id: write.tool_use_id };
    case 'confirmation.resolve':
      return { by: 'confirmation', id: write.id };
    case 'meta.set':
    case 'trusted_file.put':
    case 'trusted_file.remove':
    case 'idempotency.insert':
    case 'pattern.record':
    case 'pattern.score':
    case 'pattern.forget':
      return null;
    default:
      return { by: 'session', id: write.session_id };
  }
}
