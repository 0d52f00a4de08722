// The bars of a spend chart: what planners and workers spent, a bar for each hour or day.
import type { CostRow } from '#client/client.ts';
import { addUsd } from '#dashboard/format/format.ts';
import { fromPusd, toPusd } from '#protocol/money.ts';

export interface Bar {
  /** `2026-05-08`, `2026-05-08T14` or `2026-05`, UTC. */
  readonly bucket: string;
  readonly label: string;
  readonly planner: string;
  readonly workers: string;
}

export const HOUR_MS = 3_600_000;

export const DAY_MS = 24 * HOUR_MS;

const STEPS = { hour: HOUR_MS, day: DAY_MS };
const SIDES = { planner: 'planner', worker: 'workers' } as const;

/** More days than these become months. */
export const MOST_DAYS = 124;

/** `rows` by bucket and `is_worker`; what lies between the first and the last bucket is filled with zeros. */
export function buildBars(
  rows: readonly CostRow[],
  bucket: 'day' | 'hour',
  window: { readonly start: string; readonly end: string },
): readonly Bar[] {
  const found = rows.map((row) => row.bucket ?? '').sort();
  const first = found[0];
  const last = found.at(-1);
  if (first === undefined || last === undefined) return [];
  const step = STEPS[bucket];
  // A window without a beginning begins with the first call.
  const start = Date.parse(window.start) || parseBucketTime(first);
  const end = Math.max(Date.parse(window.end), parseBucketTime(last) + 1);
  const monthly = bucket === 'day' && end - start > MOST_DAYS * DAY_MS;
  const digits = countDigits(bucket, monthly);
  const getBucketName = (at: number) => new Date(at).toISOString().slice(0, digits);
  const sums = new Map<string, { planner: bigint; workers: bigint }>();
  for (let at = Math.floor(start / step) * step; at < end; at += step)
    sums.set(getBucketName(at), { planner: 0n, workers: 0n });
  for (const row of rows) {
    const sum = sums.get((row.bucket ?? '').slice(0, digits));
    if (sum !== undefined) sum[SIDES[row.is_worker ?? 'planner']] += toPusd(row.cost_usd);
  }
  return [...sums].map(([name, { planner, workers }]) => ({
    bucket: name,
    label: formatBucket(name),
    planner: fromPusd(planner),
    workers: fromPusd(workers),
  }));
}

/** Of the names of its buckets: `2026-05`, `2026-05-08T14`, `2026-05-08`. */
function countDigits(bucket: 'day' | 'hour', monthly: boolean): number {
  if (monthly) return 7;
  if (bucket === 'hour') return 13;
  return 10;
}

/** What planners and workers spent in all. */
export function sumSides(rows: readonly CostRow[]): { readonly planner: string; readonly workers: string } {
  const sumCosts = (side: CostRow['is_worker']) =>
    fromPusd(addUsd(...rows.filter((row) => row.is_worker === side).map((row) => row.cost_usd)));
  return { planner: sumCosts('planner'), workers: sumCosts('worker') };
}

export function parseBucketTime(bucket: string): number {
  if (bucket.length > 10) return Date.parse(`${bucket}:00:00Z`);
  return Date.parse(bucket);
}

export function formatBucket(bucket: string): string {
  if (bucket.length > 10) return `${bucket.slice(11)}:00`;
  const parts = { month: 'short', timeZone: 'UTC' } as const;
  const date = new Date(bucket);
  if (bucket.length > 7) return date.toLocaleDateString(undefined, { ...parts, day: 'numeric' });
  return date.toLocaleDateString(undefined, { ...parts, year: 'numeric' });
}
