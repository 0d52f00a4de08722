// The lanes of a turn: when each worker ran, and to which step of its planner its result was delivered (20 §9).
import type { Bar, TimelineEvent } from './spans.ts';

export interface Lane {
  readonly worker_session_id: string;
  /** As its bars are labelled. */
  readonly label: string;
  /** Unix milliseconds. */
  readonly start: number;
  end: number | null;
  failed: boolean;
  /** Null until its planner has read the result as a message; `step` is the model call that reads it, from 1. */
  delivered: { readonly at: number; readonly step: number } | null;
}

/** @param bars of the same events, which name the sessions */
export function buildLanes(events: readonly TimelineEvent[], bars: readonly Bar[]): Lane[] {
  const labels = new Map(bars.map(({ session_id, session }) => [session_id, session]));
  const lanes = new Map<string, Lane>();
  /** Model calls of each session so far. */
  const steps = new Map<string, number>();
  for (const event of events) {
    const at = Date.parse(event.timestamp);
    switch (event.type) {
      case 'llm.call_started':
        if (event.payload.purpose === 'turn') steps.set(event.session_id, (steps.get(event.session_id) ?? 0) + 1);
        break;
      case 'delegate.started': {
        const { worker_session_id: id } = event.payload;
        const label = labels.get(id) ?? 'worker';
        lanes.set(id, { worker_session_id: id, label, start: at, end: null, failed: false, delivered: null });
        break;
      }
      case 'delegate.completed':
      case 'delegate.failed': {
        const lane = lanes.get(event.payload.worker_session_id ?? '');
        if (lane === undefined) break;
        lane.end = at;
        lane.failed = event.type === 'delegate.failed';
        break;
      }
      case 'delegate.delivered': {
        const lane = lanes.get(event.payload.worker_session_id);
        if (lane !== undefined) lane.delivered = { at, step: (steps.get(event.session_id) ?? 0) + 1 };
        break;
      }
      default:
    }
  }
  return [...lanes.values()];
}
