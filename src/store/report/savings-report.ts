// `/analytics/savings`: what the same tokens would have cost on another model (07 §5).
import { ratio } from '#core/policy/analytics/cost-row.ts';
import { findGrain } from '#core/policy/analytics/rollup.ts';
import type { CallPricer } from '#core/ports/report-reader.ts';
import type { Savings, SavingsQuery } from '#protocol/analytics.ts';
import { fromPusd } from '#protocol/money.ts';
import { rateGroups } from './billed-calls.ts';
import { everywhere, whereFilter } from './cost-sql.ts';
import { separateSimulated } from './simulated-part.ts';
import { type Read, sumParts } from './slices.ts';

/** Prices both sides at the pricer's rates. A call without a price on either side is in neither sum. */
export async function savings(read: Read, given: SavingsQuery, pricer: CallPricer): Promise<Savings> {
  const { query, simulated } = await separateSimulated(read, given);
  const byPlanner = query.baseline === 'planner';
  const filter = whereFilter(query.filter);
  const where = byPlanner ? { ...filter, sql: `${filter.sql} AND is_worker = 1` } : filter;
  let [actual, baseline, stamped, rows, missing] = [0n, 0n, 0n, 0n, 0n];
  const asked = {
    window: query.window,
    columns: [everywhere('model'), everywhere('delegated_by_model')],
    where,
    pricer,
    others: byPlanner ? [] : [query.baseline],
    byDay: findGrain({ group_by: [], filter: query.filter }) === 'day',
  };
  for await (const calls of rateGroups(read, asked)) {
    const [model, delegatedBy] = calls.values.map(String) as [string, string];
    const own = calls.cost(model);
    const other = calls.cost(byPlanner ? delegatedBy : query.baseline);
    rows += calls.sums.calls;
    stamped += calls.sums.cost_pusd;
    if (own !== null && other !== null) {
      actual += sumParts(own);
      baseline += sumParts(other);
    } else {
      missing += calls.sums.calls;
    }
  }
  return {
    baseline_model: query.baseline,
    actual_repriced_usd: fromPusd(actual),
    baseline_repriced_usd: fromPusd(baseline),
    savings_usd: fromPusd(baseline - actual),
    savings_pct: ratio(baseline - actual, baseline) ?? 0,
    actual_stamped_usd: fromPusd(stamped),
    rows_total: Number(rows),
    rows_missing_from_price_table: Number(missing),
    simulated,
  };
}
