// The time that a worker was at work, from its stored events: what is left after its process died (01 §9).
import type { AnyEvent } from '#protocol/event.ts';

/** Message of a call that was open when its process or its loop died. */
export const UNKNOWN_OUTCOME = 'cut off with its outcome unknown';

/**
 * Whether an event may be the first one of another process, long after the event before it and by another clock: the
 * start of a turn, its resumption, or the outcome that recovery gives an open call.
 */
function isAfterBreak({ type, payload }: AnyEvent): boolean {
  if (type === 'turn.started' || type === 'turn.resumed') return true;
  return type === 'llm.call_failed' && payload.error_message_redacted === UNKNOWN_OUTCOME;
}

/**
 * Seconds between the events of a worker's session, without the time in which no process ran it and without waits for
 * approval. It depends on the events alone, so that a recovery which is interrupted and begins again counts nothing twice.
 */
export function countActiveSeconds(events: readonly AnyEvent[]): number {
  let ms = 0;
  let isWaiting = false;
  let before: number | null = null;
  for (const event of events) {
    const at = Date.parse(event.timestamp);
    if (before !== null && !isWaiting && !isAfterBreak(event)) ms += Math.max(0, at - before);
    if (event.type === 'tool.confirmation_requested') isWaiting = true;
    else if (event.type === 'tool.confirmation_resolved') isWaiting = false;
    before = at;
  }
  return ms / 1000;
}
