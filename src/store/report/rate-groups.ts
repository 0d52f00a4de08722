// Calls summed as far as one rate set prices them: whole days from their rollup, the rest from the ledger, slice by
// slice (07 §9.4, 08 §7).

import { PROMPT_CLASSES, wholeDays } from '#core/policy/analytics/rollup.ts';
import { priceTokenSums, type TokenSums } from '#core/policy/pricing/price-file.ts';
import { promptAbove, promptSteps } from '#core/policy/pricing/price-table.ts';
import type { CallPricer } from '#core/ports/report-reader.ts';
import type { TimeWindow } from '#protocol/analytics.ts';
import { CALL_MEASURES, MEASURES } from '../schema/rollups.ts';
import { sumIntegers } from '../schema/words.ts';
import type { Column, Where } from './cost-sql.ts';
import { ledgerSlices, type Read, recordedTimes } from './slices.ts';

type Sums = Readonly<Record<(typeof MEASURES)[number], bigint>>;

/** Calls of one slice that agree in the asked columns and in the step of their prompt. */
export interface RateGroup {
  /** `columns` as they were asked for. */
  readonly values: readonly (bigint | string)[];
  readonly sums: Sums;
  /** What a model's rates make of these calls; null when the pricer does not know it. */
  cost(model: string): bigint | null;
}

type Row = Sums & TokenSums & { readonly step: bigint } & Readonly<Record<`k${number}`, bigint | string>>;

export interface RateQuery {
  readonly window: TimeWindow;
  readonly columns: readonly Pick<Column, 'calls' | 'days'>[];
  readonly where: Where;
  readonly pricer: CallPricer;
  /** Whether `columns` and `where` stand in the rollup of days. */
  readonly byDay: boolean;
}

export async function* rateGroups(read: Read, query: RateQuery): AsyncGenerator<RateGroup> {
  const { columns, where, pricer } = query;
  const steps = promptSteps(pricer.models);
  const group = (row: Row, sizes: readonly number[]): RateGroup => ({
    values: columns.map((_, i) => row[`k${i}`]!),
    sums: row,
    cost(model) {
      const rates = pricer.ratesFor(model, promptAbove(sizes, Number(row.step)));
      return rates && priceTokenSums(rates, row);
    },
  });
  const inDays = query.byDay && steps.every((step) => PROMPT_CLASSES.includes(step));
  const { days, rest } = wholeDays(query.window, inDays ? await recordedTimes(read) : null);
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

function daysSql(columns: RateQuery['columns'], where: Where): string {
  const sums = [...MEASURES, 'billed_1h_tokens'].map((name) => `${sumIntegers(name)} AS ${name}`);
  const keys = columns.map((_, i) => `k${i}`);
  return `SELECT ${[...columns.map(({ days }, i) => `${days} AS k${i}`), 'prompt_class AS step', ...sums].join(', ')}
    FROM rollup_day WHERE day >= ? AND day < ?${where.sql} GROUP BY ${[...keys, 'step'].join(', ')}`;
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
    WHERE ts_ms >= ? AND ts_ms < ? AND seq <= ?${where.sql}
    GROUP BY ${[...columns.map((_, i) => `k${i}`), 'step'].join(', ')}`;
}
