// Long scans in short steps: a window cut by row count, the event loop free between two steps (07 §9.4).

import { setImmediate } from 'node:timers/promises';
import type Database from 'better-sqlite3';
import type { TimeWindow } from '../../../domain/analytics.ts';
import type { REPORTED_TYPES } from '../schema/words.ts';

/** A statement cache's way to a statement. */
export type Prepare = (sql: string) => Database.Statement;

/**
 * Consecutive windows that cover `window`, each up to the time `boundary` finds for the row that begins the next slice.
 * Lets other work run between two of them.
 */
export async function* timeSlices(
  window: TimeWindow,
  boundary: (window: TimeWindow) => number | null,
): AsyncGenerator<TimeWindow> {
  let { from } = window;
  while (from < window.to) {
    const next = boundary({ from, to: window.to }) ?? window.to;
    // More rows in one millisecond than a slice holds: that millisecond is a slice of its own.
    const to = Math.max(next, from + 1);
    yield { from, to };
    from = to;
    await setImmediate();
  }
}

const LEDGER_SLICE_ROWS = 20_000;

/** Slices of the ledger up to the greatest row there is now (`through`); rows added later are in none. */
export async function* ledgerSlices(
  prepare: Prepare,
  window: TimeWindow,
): AsyncGenerator<TimeWindow & { readonly through: number }> {
  const newest = prepare('SELECT MAX(rowid) AS through FROM llm_calls').get() as { through: number | null };
  if (newest.through === null) return;
  const next = prepare(
    `SELECT ts_ms FROM llm_calls WHERE ts_ms >= ? AND ts_ms < ? ORDER BY ts_ms LIMIT 1 OFFSET ${LEDGER_SLICE_ROWS}`,
  ).pluck();
  const boundary = ({ from, to }: TimeWindow) => (next.get(from, to) as number | undefined) ?? null;
  for await (const slice of timeSlices(window, boundary)) yield { ...slice, through: newest.through };
}

/** Slices of the stored events of one type, named in the statement itself: a parameter would not find their index. */
export function eventSlices(
  prepare: Prepare,
  type: (typeof REPORTED_TYPES)[number],
  window: TimeWindow,
  rows: number,
): AsyncGenerator<TimeWindow> {
  const next = prepare(
    `SELECT timestamp_ms FROM events WHERE type = '${type}' AND timestamp_ms >= ? AND timestamp_ms < ? ORDER BY timestamp_ms LIMIT 1 OFFSET ?`,
  ).pluck();
  return timeSlices(window, ({ from, to }) => (next.get(from, to, rows) as number | undefined) ?? null);
}
