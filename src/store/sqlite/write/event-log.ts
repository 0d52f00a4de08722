// Inserts events: id, time, parent and actor are settled here, inside the transaction (02 §2).
import type Database from 'better-sqlite3';
import { CATALOG, type Event, type EventDraft, type PayloadOf, SYSTEM_SESSION } from '../../../domain/event.ts';
import { type Clock, isoTime } from '../../../kernel/clock.ts';
import type { IdGenerator } from '../../../kernel/ids.ts';
import type { Published } from '../../../ports/live-bus.ts';
import { insertInto } from '../connection/sql.ts';
import { createLedger } from './ledger.ts';
import type { PreparedBatch } from './prepare.ts';
import { createSessionStamps, type SessionStamp } from './stamp.ts';

const COLUMNS = [
  'id',
  'timestamp_ms',
  'session_id',
  'turn_id',
  'parent_event_id',
  'type',
  'actor',
  'sensitivity',
  'payload_json',
] as const;

export interface EventLog {
  /** Returns what goes to the bus, events and transients in order. A finished call also goes to the ledger. */
  append(emit: PreparedBatch['emit']): readonly Published[];
  /** For a session that was purged, or whose insertion was rolled back. */
  forget(sessionId: string): void;
}

export function createEventLog(db: Database.Database, ids: IdGenerator, clock: Clock): EventLog {
  const insert = insertInto(db, 'events', COLUMNS);
  const stamps = createSessionStamps(db);
  const ledger = createLedger(db);

  function stampOf(sessionId: string): SessionStamp | null {
    if (sessionId === SYSTEM_SESSION) return null;
    const stamp = stamps.of(sessionId);
    if (stamp === null) throw new Error(`no session ${sessionId}`);
    return stamp;
  }

  function appendOne(draft: EventDraft, payload_json: string, parent: Event['parent_event_id']): Event {
    const at = clock.now();
    const stamp = stampOf(draft.session_id);
    const kind = CATALOG[draft.type];
    const event: Event = {
      id: ids.event(),
      timestamp: isoTime(at),
      session_id: draft.session_id,
      turn_id: draft.turn_id,
      parent_event_id: parent,
      type: draft.type,
      actor: stamp?.is_worker ? 'worker' : (draft.actor ?? kind.actor),
      payload: draft.payload,
      sensitivity: kind.sensitivity,
    };
    insert({
      id: event.id,
      timestamp_ms: at,
      session_id: event.session_id,
      turn_id: event.turn_id,
      parent_event_id: parent,
      type: event.type,
      actor: event.actor,
      sensitivity: event.sensitivity,
      payload_json,
    });
    if (draft.type === 'llm.call_completed' && stamp !== null) {
      const payload = draft.payload as PayloadOf<'llm.call_completed'>;
      ledger.project({ id: event.id, at, session_id: event.session_id, turn_id: event.turn_id, payload }, stamp);
    }
    return event;
  }

  return {
    append(emit) {
      const published: Published[] = [];
      for (const item of emit) {
        if (item.kind === 'transient') {
          published.push(item);
          continue;
        }
        const { draft, payload_json } = item;
        const parent = typeof draft.parent === 'number' ? idAt(published, draft.parent) : draft.parent;
        published.push({ kind: 'event', event: appendOne(draft, payload_json, parent), payload_json });
      }
      return published;
    },
    forget: stamps.forget,
  };
}

function idAt(published: readonly Published[], index: number): Event['parent_event_id'] {
  const item = published[index];
  return item?.kind === 'event' ? item.event.id : null;
}
