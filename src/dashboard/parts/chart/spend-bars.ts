// The bars of a spend chart: what planners and workers spent, a bar for each hour or day.
import type { CostRow } from '#client/client.ts';
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
  const step = bucket === 'hour' ? HOUR_MS : DAY_MS;
  // A window without a beginning begins with the first call.
  const start = Date.parse(window.start) > 0 ? Date.parse(window.start) : parseBucketTime(first);
  const end = Math.max(Date.parse(window.end), parseBucketTime(last) + 1);
  const monthly = bucket === 'day' && end - start > MOST_DAYS * DAY_MS;
  const getBucketName = (at: number) => new Date(at).toISOString().slice(0, monthly ? 7 : bucket === 'hour' ? 13 : 10);
  const sums = new Map<string, { planner: bigint; workers: bigint }>();
  for (let at = Math.floor(start / step) * step; at < end; at += step)
    sums.set(getBucketName(at), { planner: 0n, workers: 0n });
  for (const row of rows) {
    const sum = sums.get((row.bucket ?? '').slice(0, monthly ? 7 : undefined));
    if (sum !== undefined) sum[row.is_worker === 'worker' ? 'workers' : 'planner'] += toPusd(row.cost_usd);
  }
  return [...sums].map(([name, { planner, workers }]) => ({
    bucket: name,
    label: formatBucket(name),
    planner: fromPusd(planner),
    workers: fromPusd(workers),
  }));
}

/** What planners and workers spent in all. */
export function sumSides(rows: readonly CostRow[]): { readonly planner: string; readonly workers: string } {
  const sumCosts = (side: CostRow['is_worker']) =>
    fromPusd(rows.reduce((total, row) => (row.is_worker === side ? total + toPusd(row.cost_usd) : total), 0n));
  return { planner: sumCosts('planner'), workers: sumCosts('worker') };
}

export function parseBucketTime(bucket: string): number {
  return Date.parse(bucket.length > 10 ? `${bucket}:00:00Z` : bucket);
}

export function formatBucket(bucket: string): string {
  if (bucket.length > 10) return `${bucket.slice(11)}:00`;
  const parts = { month: 'short', timeZone: 'UTC' } as const;
  return new Date(bucket).toLocaleDateString(
    undefined,
    bucket.length > 7 ? { ...parts, day: 'numeric' } : { ...parts, year: 'numeric' },
  );
}
