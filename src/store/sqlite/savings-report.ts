// `/analytics/savings`: what the same tokens would have cost on another model (07 §5).
import type { Savings, SavingsQuery } from '../../domain/analytics.ts';
import { fromPusd } from '../../kernel/money.ts';
import { ratio } from '../../policy/cost-row.ts';
import type { CallPricer } from '../../ports/analytics.ts';
import { whereFilter } from './cost-sql.ts';
import { type LedgerUsage, tokenUsage } from './ledger-usage.ts';
import { ledgerSlices, type Prepare } from './slices.ts';

interface CallRow extends LedgerUsage {
  /** '' = none. */
  readonly delegated_by_model: string;
}

/** Both sides at the pricer's rates; a call that either side cannot price is in neither sum. */
export async function savings(prepare: Prepare, query: SavingsQuery, pricer: CallPricer): Promise<Savings> {
  const byPlanner = query.baseline === 'planner';
  const where = whereFilter(query.filter);
  const statement = prepare(
    `SELECT model, delegated_by_model, input_tokens, cached_input_tokens, cache_creation_input_tokens,
      cache_creation_1h_input_tokens, output_tokens, reasoning_tokens, cost_pusd FROM llm_calls
    WHERE ts_ms >= ? AND ts_ms < ? AND rowid <= ?${byPlanner ? ' AND is_worker = 1' : ''}${where.sql}`,
  ).safeIntegers();
  let [actual, baseline, stamped] = [0n, 0n, 0n];
  let [rows, missing] = [0, 0];
  for await (const { from, to, through } of ledgerSlices(prepare, query.window)) {
    for (const call of statement.all(from, to, through, ...where.values) as CallRow[]) {
      rows += 1;
      stamped += call.cost_pusd;
      const usage = tokenUsage(call);
      const own = pricer.cost(call.model, usage);
      const other = pricer.cost(byPlanner ? call.delegated_by_model : query.baseline, usage);
      if (own.priced && other.priced) {
        actual += own.cost_pusd;
        baseline += other.cost_pusd;
      } else {
        missing += 1;
      }
    }
  }
  return {
    baseline_model: query.baseline,
    actual_repriced_usd: fromPusd(actual),
    baseline_repriced_usd: fromPusd(baseline),
    savings_usd: fromPusd(baseline - actual),
    savings_pct: ratio(baseline - actual, baseline) ?? 0,
    actual_stamped_usd: fromPusd(stamped),
    rows_total: rows,
    rows_missing_from_price_table: missing,
  };
}
