// An event as it is stored, from its draft and what the journal copies of its session (02 §1, §2).

import { isoTime } from '#protocol/clock.ts';
import { CATALOG, type Event, type EventDraft } from '#protocol/event.ts';

/** Goes from a session onto its events and cost facts; fixed at its creation (01 §7.1). */
export interface SessionStamp {
  readonly parent_session_id: string | null;
  readonly root_session_id: string;
  readonly is_worker: boolean;
  readonly workspace_hash: string;
  /** '' = none, as in the ledger; likewise below. */
  readonly worker_name: string;
  readonly delegated_by_model: string;
  readonly delegation_tier: string;
  readonly door: string;
  readonly caller: string;
}

/** What is settled inside the transaction. `at` is Unix milliseconds; `stamp` is null for `system`. */
export interface Settled {
  readonly id: Event['id'];
  readonly at: number;
  readonly parent: Event['parent_event_id'];
  readonly stamp: SessionStamp | null;
}

/** Every event of a worker session has the actor `worker`, whatever its draft says. */
export function stampedEvent(draft: EventDraft, { id, at, parent, stamp }: Settled): Event {
  const kind = CATALOG[draft.type];
  return {
    id,
    timestamp: isoTime(at),
    session_id: draft.session_id,
    turn_id: draft.turn_id,
    parent_event_id: parent,
    type: draft.type,
    actor: stamp?.is_worker ? 'worker' : (draft.actor ?? kind.actor),
    payload: draft.payload,
    sensitivity: kind.sensitivity,
  };
}
