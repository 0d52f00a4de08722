// `/analytics/verified`: what workers cost whose check decided, by the result that it confirmed (20 §10.5).
import { setImmediate } from 'node:timers/promises';
import type { CallPricer, VerifiedResults } from '#core/ports/report-reader.ts';
import type { SimulatedPart, VerifiedGroup, VerifiedQuery } from '#protocol/analytics.ts';
import type { WorkerChanges } from '#protocol/file-change.ts';
import { fromPusd, fromPusdOrNull, type Pusd } from '#protocol/money.ts';
import { compareText } from '#protocol/text/compare-text.ts';
import { isSimulated } from '#protocol/text/simulated.ts';
import { rateGroups } from './billed-calls.ts';
import { everywhere, isSeen, NO_FILTER, PRIVATE, whereFilter } from './cost-sql.ts';
import { type Read, sumParts } from './slices.ts';

const PAGE = 200;
/** Delegations that named a check and have ended in the window. */
const CHECKED = `SELECT tool_use_id, worker_session_id, tier, worker_name, resolved_model, changes_json, created_at, ended_at
  FROM delegations
  WHERE tool_use_id > ? AND ended_at >= ? AND ended_at < ? AND worker_session_id IS NOT NULL
    AND changes_json LIKE '%"check":"%'
  ORDER BY tool_use_id LIMIT ${PAGE}`;
const LAST_MODEL = 'SELECT model FROM llm_calls WHERE session_id = ? ORDER BY ts_ms DESC, event_id DESC LIMIT 1';
/** Calls of a worker lie between its creation and its end, by whichever clock they were stamped. */
const MARGIN_MS = 86_400_000;

interface CheckedRow {
  readonly tool_use_id: string;
  readonly worker_session_id: string;
  readonly tier: string | null;
  readonly worker_name: string | null;
  readonly resolved_model: string | null;
  readonly changes_json: string;
  readonly created_at: bigint;
  readonly ended_at: bigint;
}

interface Sums {
  delegations: number;
  checked: number;
  passed_first: number;
  passed: number;
  failed: number;
  calls: bigint;
  cost: bigint;
  /** Null once a call has no price on its planner's model. */
  planner: bigint | null;
}

/** One row a group, by name. Results of scripts are the report only where there are no others (07 §4.6). */
export async function listVerified(
  read: Read,
  { window, group_by, reader }: VerifiedQuery,
  pricer: CallPricer,
): Promise<VerifiedResults> {
  const real = new Map<string, Sums>();
  const scripted = new Map<string, Sums>();
  const seen = reader === undefined || group_by !== 'worker_name' ? null : await readSeenWorkers(read, reader);
  for (let after: string | null = ''; after !== null; ) {
    const rows: readonly CheckedRow[] = await read<CheckedRow>(CHECKED, after, window.from, window.to);
    for (const row of rows) {
      const { check, attempts, verified } = JSON.parse(row.changes_json) as WorkerChanges;
      if (check === null) continue;
      const [last] = await read<{ model: string }>(LAST_MODEL, row.worker_session_id);
      const model = last?.model ?? row.resolved_model;
      const groups = model !== null && isSimulated(model) ? scripted : real;
      const names = { model, tier: row.tier, worker_name: row.worker_name, check };
      const named = names[group_by] ?? '';
      const key = seen === null || named === '' || seen.has(named) ? named : PRIVATE;
      const sums = groups.get(key) ?? createSums();
      groups.set(key, sums);
      await addDelegation(read, sums, { row, attempts, verified, pricer });
    }
    after = rows.length < PAGE ? null : rows.at(-1)!.tool_use_id;
    await setImmediate();
  }
  const groups = real.size === 0 ? scripted : real;
  return {
    groups: [...groups].sort(([a], [b]) => compareText(a, b)).map(([key, sums]) => describeGroup(key, sums)),
    simulated: addSimulated([...scripted.values()], real.size === 0),
  };
}

function addSimulated(sums: readonly Sums[], isAll: boolean): SimulatedPart {
  const call_count = Number(sums.reduce((sum, { calls }) => sum + calls, 0n));
  const cost = sums.reduce((sum, part) => sum + part.cost, 0n) as Pusd;
  return { call_count, cost_usd: fromPusd(cost), included: isAll && call_count > 0 };
}

/** Names of workers in sessions that the reader sees; those of private sessions alone are one group. */
async function readSeenWorkers(read: Read, reader: NonNullable<VerifiedQuery['reader']>): Promise<ReadonlySet<string>> {
  const rows = await read<{ worker_name: string }>(
    `SELECT DISTINCT worker_name FROM ledger_sessions WHERE ${isSeen('worker_name', reader)}`,
  );
  return new Set(rows.map(({ worker_name }) => worker_name));
}

function createSums(): Sums {
  return { delegations: 0, checked: 0, passed_first: 0, passed: 0, failed: 0, calls: 0n, cost: 0n, planner: 0n };
}

async function addDelegation(
  read: Read,
  sums: Sums,
  {
    row,
    attempts,
    verified,
    pricer,
  }: Pick<WorkerChanges, 'attempts' | 'verified'> & { readonly row: CheckedRow; readonly pricer: CallPricer },
): Promise<void> {
  sums.delegations += 1;
  // A skipped check does not count.
  if (verified === null) return;
  sums.checked += 1;
  if (verified) sums.passed += 1;
  else sums.failed += 1;
  if (verified && attempts === 1) sums.passed_first += 1;
  const asked = {
    window: { from: Number(row.created_at) - MARGIN_MS, to: Number(row.ended_at) + MARGIN_MS },
    columns: [everywhere('delegated_by_model')],
    where: whereFilter({ ...NO_FILTER, session: row.worker_session_id }),
    pricer,
    byDay: false,
  };
  for await (const calls of rateGroups(read, asked)) {
    sums.calls += calls.sums.calls;
    sums.cost += calls.sums.cost_pusd;
    const onPlanner = calls.cost(String(calls.values[0]));
    sums.planner = onPlanner === null || sums.planner === null ? null : sums.planner + sumParts(onPlanner);
  }
}

function describeGroup(key: string, { calls: _, cost, planner, ...counts }: Sums): VerifiedGroup {
  const perVerified = counts.passed === 0 ? null : ((cost / BigInt(counts.passed)) as Pusd);
  return {
    key,
    ...counts,
    cost_usd: fromPusd(cost),
    cost_per_verified_usd: fromPusdOrNull(perVerified),
    planner_cost_usd: fromPusdOrNull(planner as Pusd | null),
  };
}
