// The calls that scripts answered: apart from all others, and the report itself only where there are no others (07 §4.6).
import { findGrain, splitWindow } from '#core/policy/analytics/rollup.ts';
import type { CallFilter, SimulatedPart, TimeWindow } from '#protocol/analytics.ts';
import { fromPusd } from '#protocol/money.ts';
import { SIMULATED } from '../read/spend.ts';
import { everywhere, groupsSql, whereFilter } from './cost-sql.ts';
import { type Read, recordedTimes } from './slices.ts';

const ANY = `SELECT 1 AS one FROM rollup_day WHERE ${SIMULATED} LIMIT 1`;
const NONE: SimulatedPart = { call_count: 0, cost_usd: '0', included: false };
const KIND = everywhere(`CASE WHEN ${SIMULATED} THEN 1 ELSE 0 END`);

interface Row {
  readonly k0: bigint | number;
  readonly calls: bigint;
  readonly cost_pusd: bigint;
}

/** The query without its simulated calls, where it has others too, and what those came to. */
export async function separateSimulated<Q extends { readonly window: TimeWindow; readonly filter: CallFilter }>(
  read: Read,
  query: Q,
): Promise<{ readonly query: Q; readonly simulated: SimulatedPart }> {
  if ((await read(ANY)).length === 0) return { query, simulated: NONE };
  const { window, filter } = query;
  const segments = splitWindow(window, await recordedTimes(read), findGrain({ group_by: [], filter }));
  if (segments.length === 0) return { query, simulated: NONE };
  const groups = groupsSql({ segments, billed: [] }, [KIND], whereFilter(filter), ['calls', 'cost_pusd']);
  const rows = await read<Row>(groups.sql, ...groups.values);
  const simulated = rows.find(({ k0 }) => Number(k0) === 1);
  if (simulated === undefined) return { query, simulated: NONE };
  const others = rows.some(({ k0 }) => Number(k0) === 0);
  const part = { call_count: Number(simulated.calls), cost_usd: fromPusd(simulated.cost_pusd), included: !others };
  if (!others) return { query, simulated: part };
  return { query: { ...query, filter: { ...filter, without_simulated: true } }, simulated: part };
}
