// Formats the sums of a group for the API: exact money, rounded ratios (07 §1.1, §4.2).
import type { CostRow, CostTotals, Dimension, WorkerShare } from '#protocol/analytics.ts';
import { fromPusd } from '#protocol/money.ts';
import { toPersonRef } from '#protocol/people/person.ts';
import { DAY_MS, HOUR_MS, type KeyName } from './rollup.ts';

/** Sums over the calls of one group. Money in picodollars, latency in milliseconds over calls that were not cut off. */
export interface Sums {
  calls: bigint;
  unpriced_calls: bigint;
  latency_sum: bigint;
  latency_n: bigint;
  input_tokens: bigint;
  cached_input_tokens: bigint;
  cache_creation_input_tokens: bigint;
  cache_creation_1h_input_tokens: bigint;
  output_tokens: bigint;
  reasoning_tokens: bigint;
  fees_unpriced_calls: bigint;
  surcharge_unknown_calls: bigint;
  rounds_unknown_calls: bigint;
  cost_pusd: bigint;
  worker_cost_pusd: bigint;
  worker_calls: bigint;
  /** Set by repricing only: `cost_pusd` is then the repriced cost. */
  stamped_pusd: bigint;
  missing_calls: bigint;
}

export function emptySums(): Sums {
  return {
    calls: 0n,
    unpriced_calls: 0n,
    latency_sum: 0n,
    latency_n: 0n,
    input_tokens: 0n,
    cached_input_tokens: 0n,
    cache_creation_input_tokens: 0n,
    cache_creation_1h_input_tokens: 0n,
    output_tokens: 0n,
    reasoning_tokens: 0n,
    fees_unpriced_calls: 0n,
    surcharge_unknown_calls: 0n,
    rounds_unknown_calls: 0n,
    cost_pusd: 0n,
    worker_cost_pusd: 0n,
    worker_calls: 0n,
    stamped_pusd: 0n,
    missing_calls: 0n,
  };
}

/** Tokens of all classes, output included: what `order=tokens` sorts by. */
export function allTokens(sums: Sums): bigint {
  return sums.input_tokens + sums.cached_input_tokens + sums.cache_creation_input_tokens + sums.output_tokens;
}

/** `n / d` rounded half-even to 6 places; null when `d` is 0. */
export function ratio(n: bigint, d: bigint): number | null {
  if (d === 0n) return null;
  return divide(n * 1_000_000n, d, 6, 'half_even');
}

/** `sum / count` milliseconds rounded half-up to 3 places; null without a sample. */
export function averageLatency(sum: bigint, count: bigint): number | null {
  if (count === 0n) return null;
  return divide(sum * 1000n, count, 3, 'half_up');
}

/**
 * Integer division keeps the exact remainder, so a tie is a tie; only the finished decimal becomes a JS number.
 * @param n already moved by `places`
 */
function divide(n: bigint, d: bigint, places: number, rounding: 'half_even' | 'half_up'): number {
  if (n < 0n) {
    const value = divide(-n, d, places, rounding);
    if (value === 0) return value;
    return -value;
  }
  const quotient = n / d;
  const twice = (n % d) * 2n;
  const isUp = twice > d || (twice === d && (rounding === 'half_up' || quotient % 2n === 1n));
  return Number(`${quotient + BigInt(isUp)}e-${places}`);
}

/** The columns of a row in addition to those of every row. */
export interface RowShape {
  readonly group_by: readonly Dimension[];
  readonly keys: readonly KeyName[];
  readonly repriced: boolean;
}

/** One row of `/analytics/cost`: key columns first. `values` are those of `shape.keys`, as stored. */
export function costRow(shape: RowShape, values: readonly (bigint | string)[], sums: Sums): CostRow {
  const row: CostRow = { ...keyColumns(shape.keys, values), ...buildCostColumns(sums, shape.repriced) };
  if (shape.group_by.includes('parent_session') || shape.group_by.includes('root_session')) {
    row.planner_cost_usd = fromPusd(sums.cost_pusd - sums.worker_cost_pusd);
    row.worker_cost_usd = fromPusd(sums.worker_cost_pusd);
    row.worker_call_count = Number(sums.worker_calls);
  }
  if (shape.group_by.includes('model')) Object.assign(row, computeCacheShares(sums));
  return row;
}

/** The numeric columns over all calls of the query; also the one object of `group_by=none`. */
export function buildCostTotals(sums: Sums, repriced: boolean): CostTotals {
  return { ...buildCostColumns(sums, repriced), ...computeCacheShares(sums) };
}

export function buildWorkerShare(sessionId: string, model: string, sums: Sums): WorkerShare {
  return {
    worker_session_id: sessionId,
    model,
    cost_usd: fromPusd(sums.cost_pusd),
    input_tokens: Number(sums.input_tokens),
    output_tokens: Number(sums.output_tokens),
    call_count: Number(sums.calls),
  };
}

function buildCostColumns(sums: Sums, repriced: boolean) {
  return {
    cost_usd: fromPusd(sums.cost_pusd),
    input_tokens: Number(sums.input_tokens),
    output_tokens: Number(sums.output_tokens),
    cached_input_tokens: Number(sums.cached_input_tokens),
    cache_creation_input_tokens: Number(sums.cache_creation_input_tokens),
    cache_creation_1h_input_tokens: Number(sums.cache_creation_1h_input_tokens),
    reasoning_tokens: Number(sums.reasoning_tokens),
    avg_latency_ms: averageLatency(sums.latency_sum, sums.latency_n),
    call_count: Number(sums.calls),
    unpriced_call_count: Number(sums.unpriced_calls),
    fees_unpriced_call_count: Number(sums.fees_unpriced_calls),
    surcharge_unknown_call_count: Number(sums.surcharge_unknown_calls),
    rounds_unknown_call_count: Number(sums.rounds_unknown_calls),
    ...(repriced && {
      stamped_cost_usd: fromPusd(sums.stamped_pusd),
      missing_call_count: Number(sums.missing_calls),
    }),
  };
}

/** Writes stay in the denominator: they are billed above the input rate. */
function computeCacheShares(sums: Sums) {
  const prompt = sums.input_tokens + sums.cached_input_tokens + sums.cache_creation_input_tokens;
  return {
    hit_rate: ratio(sums.cached_input_tokens, prompt),
    cache_write_share: ratio(sums.cache_creation_input_tokens, prompt),
  };
}

function keyColumns(keys: readonly KeyName[], values: readonly (bigint | string)[]): Partial<CostRow> {
  const row: Record<string, unknown> = {};
  for (const [i, key] of keys.entries()) {
    const value = values[i]!;
    if (key === 'day') row.bucket = isoAt(Number(value) * DAY_MS, 10);
    else if (key === 'hour') row.bucket = isoAt(Number(value) * HOUR_MS, 13);
    else if (key === 'owner') row.owner = value === '' ? null : toPersonRef(String(value), null);
    else row[key] = formatKey(key, value);
  }
  return row;
}

function formatKey(key: KeyName, value: bigint | string): string | null {
  if (key === 'is_worker') return value === 1n ? 'worker' : 'planner';
  if (value === '') return null;
  return String(value);
}

function isoAt(ms: number, length: number): string {
  return new Date(ms).toISOString().slice(0, length);
}
