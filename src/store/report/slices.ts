// Long scans in short steps: a window cut by row count, the event loop free between two steps (07 §9.4).

import { setImmediate } from 'node:timers/promises';
import type { TimeWindow } from '#protocol/analytics.ts';
import { type ReportedType, typeIs } from '../schema/words.ts';

/** How a report reads: `?` for values, integers as bigint. */
export type Read = <Row>(sql: string, ...values: readonly unknown[]) => Promise<readonly Row[]>;

/**
 * Consecutive windows that cover `window`, each up to the time `boundary` finds for the row that begins the next slice.
 * Lets other work run between two of them.
 */
export async function* timeSlices(
  window: TimeWindow,
  boundary: (window: TimeWindow) => Promise<number | null>,
): AsyncGenerator<TimeWindow> {
  let { from } = window;
  while (from < window.to) {
    const next = (await boundary({ from, to: window.to })) ?? window.to;
    // More rows in one millisecond than a slice holds: that millisecond is a slice of its own.
    const to = Math.max(next, from + 1);
    yield { from, to };
    from = to;
    await setImmediate();
  }
}

/** When the first and the last call of the ledger happened, Unix ms; null when it is empty. */
export async function recordedTimes(read: Read): Promise<{ first: number; last: number } | null> {
  const [found] = await read<{ first: bigint | null; last: bigint | null }>(
    'SELECT (SELECT MIN(ts_ms) FROM ledger_calls) AS first, (SELECT MAX(ts_ms) FROM ledger_calls) AS last',
  );
  const { first = null, last = null } = found ?? {};
  return first === null || last === null ? null : { first: Number(first), last: Number(last) };
}

const LEDGER_SLICE_ROWS = 20_000;

/** Slices of the ledger up to the greatest row there is now (`through`); rows added later are in none. */
export async function* ledgerSlices(
  read: Read,
  window: TimeWindow,
): AsyncGenerator<TimeWindow & { readonly through: bigint }> {
  const [newest] = await read<{ through: bigint | null }>('SELECT MAX(seq) AS through FROM ledger_calls');
  const through = newest?.through ?? null;
  if (through === null) return;
  const boundary = async ({ from, to }: TimeWindow) =>
    toTime(
      await read(
        `SELECT ts_ms AS time FROM ledger_calls WHERE ts_ms >= ? AND ts_ms < ?
         ORDER BY ts_ms LIMIT 1 OFFSET ${LEDGER_SLICE_ROWS}`,
        from,
        to,
      ),
    );
  for await (const slice of timeSlices(window, boundary)) yield { ...slice, through };
}

function toTime([row]: readonly { readonly time: bigint }[]): number | null {
  return row === undefined ? null : Number(row.time);
}

/** Slices of the stored events of one type, named in the statement itself: a parameter would not find their index. */
export function eventSlices(
  read: Read,
  type: ReportedType,
  window: TimeWindow,
  rows: number,
): AsyncGenerator<TimeWindow> {
  const next = `SELECT timestamp_ms AS time FROM event_rows WHERE ${typeIs(type)} AND timestamp_ms >= ? AND timestamp_ms < ?
    ORDER BY timestamp_ms LIMIT 1 OFFSET ?`;
  return timeSlices(window, async ({ from, to }) => toTime(await read(next, from, to, rows)));
}
