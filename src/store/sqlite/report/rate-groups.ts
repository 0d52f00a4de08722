// Calls of the ledger, slice by slice, summed as far as one rate set prices them (07 §9.4, 08 §7).
import type { TimeWindow } from '../../../domain/analytics.ts';
import { costOfSums, type TokenSums } from '../../../policy/pricing/cost.ts';
import { promptAbove, promptSteps } from '../../../policy/pricing/repricing.ts';
import type { CallPricer } from '../../../ports/analytics.ts';
import { CALL_MEASURES, MEASURES } from '../schema/rollups.ts';
import type { Where } from './cost-sql.ts';
import { ledgerSlices, type Prepare } from './slices.ts';

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
  /** Expressions over `llm_calls`. */
  readonly columns: readonly string[];
  readonly where: Where;
  readonly pricer: CallPricer;
}

export async function* rateGroups(
  prepare: Prepare,
  { window, columns, where, pricer }: RateQuery,
): AsyncGenerator<RateGroup> {
  const steps = promptSteps(pricer.models);
  const statement = prepare(sliceSql(columns, steps.length, where)).safeIntegers();
  for await (const { from, to, through } of ledgerSlices(prepare, window)) {
    for (const row of statement.all(...steps, from, to, through, ...where.values) as Row[]) {
      const prompt = promptAbove(steps, Number(row.step));
      yield {
        values: columns.map((_, i) => row[`k${i}`]!),
        sums: row,
        cost(model) {
          const rates = pricer.ratesFor(model, prompt);
          return rates && costOfSums(rates, row);
        },
      };
    }
  }
}

function sliceSql(columns: readonly string[], steps: number, where: Where): string {
  const prompt = '(input_tokens + cached_input_tokens + cache_creation_input_tokens)';
  const passed = Array.from({ length: steps }, () => `(${prompt} > ?)`).join(' + ');
  const select = [
    ...columns.map((column, i) => `${column} AS k${i}`),
    `${passed || '0'} AS step`,
    ...MEASURES.map((name) => `SUM(${CALL_MEASURES[name]}) AS ${name}`),
    'SUM(min(cache_creation_1h_input_tokens, cache_creation_input_tokens)) AS billed_1h_tokens',
  ];
  return `SELECT ${select.join(', ')} FROM llm_calls
    WHERE ts_ms >= ? AND ts_ms < ? AND rowid <= ?${where.sql}
    GROUP BY ${[...columns.map((_, i) => `k${i}`), 'step'].join(', ')}`;
}
