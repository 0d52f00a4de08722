// `/analytics/routing`: reads the stored routing decisions of a window (07 §7.1).
import type { RoutingStats, TraceQuery } from '../../../domain/analytics.ts';
import type { PayloadOf } from '../../../domain/event.ts';
import { createRouteCounter } from '../../../policy/analytics/route-stats.ts';
import { eventSlices, type Prepare } from './slices.ts';

/** Each of these is a chain of seven entries to parse, so a slice is short. */
const SLICE_ROWS = 2000;

export async function routing(prepare: Prepare, { window, filter }: TraceQuery): Promise<RoutingStats> {
  const statement = prepare(
    `SELECT payload_json FROM events WHERE type = 'route.decided' AND timestamp_ms >= @from AND timestamp_ms < @to
     AND session_id = coalesce(@session, session_id)`,
  ).pluck();
  const counter = createRouteCounter(filter);
  for await (const { from, to } of eventSlices(prepare, 'route.decided', window, SLICE_ROWS)) {
    for (const payload of statement.all({ from, to, session: filter.session }) as string[]) {
      counter.add(JSON.parse(payload) as PayloadOf<'route.decided'>);
    }
  }
  return counter.result();
}
