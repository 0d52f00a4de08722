// `/analytics/routing`: reads the stored routing decisions of a window (07 §7.1).

import { createRouteCounter } from '#core/policy/analytics/route-stats.ts';
import { wholePayload } from '#core/policy/journal/stored-payload.ts';
import type { RoutingStats, TraceQuery } from '#protocol/analytics.ts';
import type { PayloadOf } from '#protocol/event.ts';
import type { EventRow } from '../schema/rows.ts';
import { typeIs } from '../schema/words.ts';
import { eventSlices, type Read } from './slices.ts';

/** Each of these is a chain of seven entries to parse, so a slice is short. */
const SLICE_ROWS = 2000;

type Row = Pick<EventRow, 'session_id' | 'turn_id' | 'payload_json'>;

export async function routing(read: Read, { window, filter }: TraceQuery): Promise<RoutingStats> {
  const slice = `SELECT s.session_id, e.turn_id, e.payload_json FROM event_rows e
      JOIN event_sessions s ON s.session_key = e.session_key
    WHERE e.${typeIs('route.decided')} AND e.timestamp_ms >= ? AND e.timestamp_ms < ?
      AND s.session_id = coalesce(?, s.session_id)`;
  const counter = createRouteCounter(filter);
  for await (const { from, to } of eventSlices(read, 'route.decided', window, SLICE_ROWS)) {
    for (const row of await read<Row>(slice, from, to, filter.session)) {
      const stored = JSON.parse(row.payload_json) as Partial<PayloadOf<'route.decided'>>;
      counter.add(wholePayload('route.decided', stored, row) as PayloadOf<'route.decided'>);
    }
  }
  return counter.result();
}
