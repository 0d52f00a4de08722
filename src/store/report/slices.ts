// Long scans in short steps: a window cut by row count, the event loop free between two steps (07 §9.4).
import { setImmediate } from 'node:timers/promises';
import { BILLED_APART, DAY_MS, PROMPT_CLASSES, splitWholeDays } from '#core/policy/analytics/rollup.ts';
import { priceTokenSums, type TokenSums } from '#core/policy/pricing/price-file.ts';
import { promptAbove, promptSteps } from '#core/policy/pricing/price-table.ts';
import type { CallPricer } from '#core/ports/report-reader.ts';
import type { TimeWindow } from '#protocol/analytics.ts';
import type { Awaitable } from '#protocol/async/awaitable.ts';
import { type BILL_MEASURES, CALL_MEASURES, IS_BILLED_APART, MEASURES } from '../schema/rollups.ts';
import { type ReportedType, sumIntegers, typeIs } from '../schema/words.ts';
import type { Column, Where } from './cost-sql.ts';

/** Runs a statement of a report: `?` for values, integers as bigint. */
export type Read = <Row>(sql: string, ...values: readonly unknown[]) => Awaitable<readonly Row[]>;

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
  if (first === null || last === null) return null;
  return { first: Number(first), last: Number(last) };
}

const LEDGER_SLICE_ROWS = 20_000;

/** Slices of the ledger up to the greatest row there is now (`through`); rows added later are in none. */
export async function* ledgerSlices(
  read: Read,
  window: TimeWindow,
): AsyncGenerator<TimeWindow & { readonly through: bigint }> {
  const through = await findNewest(read);
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

export async function findNewest(read: Read): Promise<bigint | null> {
  const [newest] = await read<{ through: bigint | null }>('SELECT MAX(seq) AS through FROM ledger_calls');
  return newest?.through ?? null;
}

export function toTime([row]: readonly { readonly time: bigint }[]): number | null {
  if (row === undefined) return null;
  return Number(row.time);
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

// Calls in groups that one rate set prices: whole days from the rollup, the rest from the ledger in slices (07 §9.4, 08 §7).

/** Those of `BILL_MEASURES` of calls that are billed apart only. */
type Sums = Readonly<
  Record<(typeof MEASURES)[number], bigint> & Partial<Record<(typeof BILL_MEASURES)[number], bigint>>
>;

/** The parts of a cost, in picodollars. */
export interface CostParts {
  readonly tokens: bigint;
  readonly fees: bigint;
  readonly surcharge: bigint;
}
export function sumParts({ tokens, fees, surcharge }: CostParts): bigint {
  return tokens + fees + surcharge;
}

/** Calls of one slice that agree in the asked columns and in the step of their prompt. */
export interface RateGroup {
  /** `columns` as they were asked for. */
  readonly values: readonly (bigint | string)[];
  readonly sums: Sums;
  /**
   * The cost of these calls at a model's rates; null when the pricer does not know the model.
   * @param cache `missed`: what was read from a cache counts as uncached input
   */
  cost(model: string, cache?: 'missed'): CostParts | null;
}

/** The same prompt, of which nothing was read from a cache. */
export function missCache<Counts extends { readonly input_tokens: bigint; readonly cached_input_tokens: bigint }>(
  counts: Counts,
): Counts {
  return { ...counts, input_tokens: counts.input_tokens + counts.cached_input_tokens, cached_input_tokens: 0n };
}

type Row = Sums & TokenSums & { readonly step: bigint } & Readonly<Record<`k${number}`, bigint | string>>;

export interface RateQuery {
  readonly window: TimeWindow;
  readonly columns: readonly Pick<Column, 'calls' | 'days'>[];
  readonly where: Where;
  readonly pricer: CallPricer;
  /** Models at whose rates calls are priced beside their own and that of who delegated them. */
  readonly others?: readonly string[];
  /** Whether the daily rollup has all of `columns` and `where`. */
  readonly byDay: boolean;
}

/** Without calls that are billed apart. */
export async function* readPlainGroups(read: Read, query: RateQuery): AsyncGenerator<RateGroup> {
  const { columns, where, pricer } = query;
  const steps = promptSteps(pricer.models);
  const group = (row: Row, sizes: readonly number[]): RateGroup => ({
    values: columns.map((_, i) => row[`k${i}`]!),
    sums: row,
    cost(model, cache) {
      const rates = pricer.ratesFor(model, promptAbove(sizes, Number(row.step)));
      const counts = cache === 'missed' ? missCache(row) : row;
      return rates && { tokens: priceTokenSums(rates, counts), fees: 0n, surcharge: 0n };
    },
  });
  const inDays = query.byDay && (await haveDaysTheSteps(read, query));
  const { days, rest } = splitWholeDays(query.window, inDays ? await recordedTimes(read) : null);
  if (days) {
    const rows = await read<Row>(daysSql(columns, where), days.from, days.to, ...where.values);
    for (const row of rows) yield group(row, PROMPT_CLASSES);
  }
  const slice = sliceSql(columns, steps.length, where);
  for (const window of rest) {
    for await (const { from, to, through } of ledgerSlices(read, window)) {
      const rows = await read<Row>(slice, ...steps, from, to, through, ...where.values);
      for (const row of rows) yield group(row, steps);
    }
  }
}

/** Whether the daily rollup keeps apart what the rates of every model that is priced keep apart. */
async function haveDaysTheSteps(read: Read, { pricer, others = [], window }: RateQuery): Promise<boolean> {
  const apart = Object.entries(pricer.models).filter(([, { long_context }]) =>
    long_context.some((step) => !PROMPT_CLASSES.includes(step.above_prompt_tokens)),
  );
  if (apart.length === 0) return true;
  const models = apart.map(([model]) => model);
  if (others.some((model) => models.includes(model))) return false;
  const list = models.map(() => '?').join(', ');
  const found = await read(
    `SELECT 1 AS found FROM rollup_day WHERE day >= ? AND day <= ?
       AND (model IN (${list}) OR delegated_by_model IN (${list})) LIMIT 1`,
    Math.floor(window.from / DAY_MS),
    Math.floor(window.to / DAY_MS),
    ...models,
    ...models,
  );
  return found.length === 0;
}

function daysSql(columns: RateQuery['columns'], where: Where): string {
  const sums = [...MEASURES, 'billed_1h_tokens'].map((name) => `${sumIntegers(name)} AS ${name}`);
  const keys = columns.map((_, i) => `k${i}`);
  return `SELECT ${[...columns.map(({ days }, i) => `${days} AS k${i}`), 'prompt_class AS step', ...sums].join(', ')}
    FROM rollup_day WHERE prompt_class <> ${BILLED_APART} AND day >= ? AND day < ?${where.sql} GROUP BY ${[...keys, 'step'].join(', ')}`;
}

function sliceSql(columns: RateQuery['columns'], steps: number, where: Where): string {
  const prompt = '(input_tokens + cached_input_tokens + cache_creation_input_tokens)';
  const passed = Array.from({ length: steps }, () => `CASE WHEN ${prompt} > ? THEN 1 ELSE 0 END`).join(' + ');
  const select = [
    ...columns.map(({ calls }, i) => `${calls} AS k${i}`),
    `${passed || '0'} AS step`,
    ...[...MEASURES, 'billed_1h_tokens' as const].map((name) => `${sumIntegers(CALL_MEASURES[name])} AS ${name}`),
  ];
  return `SELECT ${select.join(', ')} FROM llm_calls
    WHERE NOT (${IS_BILLED_APART}) AND ts_ms >= ? AND ts_ms < ? AND seq <= ?${where.sql}
    GROUP BY ${[...columns.map((_, i) => `k${i}`), 'step'].join(', ')}`;
}
