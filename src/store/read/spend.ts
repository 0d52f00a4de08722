// Money as the ledger and its rollups hold it, exact (01 §11.2).

import { DAY_MS, HOUR_MS } from '#core/policy/analytics/rollup.ts';
import type { Spent } from '#core/policy/session/session-view.ts';
import type { SpendReader, TurnTotals } from '#core/ports/store-reader.ts';
import { type Pusd, sumPusd } from '#protocol/money.ts';
import { SIMULATED_PROVIDER } from '#protocol/text/simulated.ts';
import { TOKEN_COUNTS } from '../schema/rollups.ts';
import { sumIntegers, WITH_TREE } from '../schema/words.ts';
import type { Reads } from './read-database.ts';

/** Integers are read as bigint, here and below. */
export interface SpentRow {
  readonly cost_pusd: Pusd;
  readonly unpriced: bigint;
  readonly simulated: bigint | number;
}
export type SumsRow = Readonly<Record<'calls' | (typeof TOKEN_COUNTS)[number], bigint>> & { readonly cost_pusd: Pusd };

export interface LastCall {
  readonly model: string;
  /** '' = none. */
  readonly effort: string;
  readonly pricing_version: string;
  readonly ts_ms: number;
}

/** Calls that a script answered (08 §5). */
export const SIMULATED = `provider = '${SIMULATED_PROVIDER}'`;
const SPENT = `coalesce(${sumIntegers('cost_pusd')}, 0) AS cost_pusd, coalesce(${sumIntegers('unpriced_calls')}, 0) AS unpriced,
  coalesce(max(CASE WHEN ${SIMULATED} THEN 1 ELSE 0 END), 0) AS simulated`;
const PUSD = `coalesce(${sumIntegers('cost_pusd')}, 0) AS pusd`;
export const SUMS = `count(*) AS calls, coalesce(${sumIntegers('cost_pusd')}, 0) AS cost_pusd,
  ${TOKEN_COUNTS.map((count) => `coalesce(${sumIntegers(count)}, 0) AS ${count}`).join(', ')}`;

export const OF_SESSION = `SELECT ${SPENT} FROM session_hours WHERE session_id = ?`;
export const OF_TREE = `SELECT ${SPENT} FROM session_hours WHERE root_session_id = ?`;
/** Of every tree of an experiment, purged ones too; a script's calls count, as in the limit of a session. Takes the id twice. */
export const OF_EXPERIMENT = `SELECT ${PUSD} FROM (SELECT id FROM sessions WHERE experiment_id = ? AND is_worker = 0
    UNION ALL SELECT session_id FROM purged_runs WHERE experiment_id = ?) AS run
  {join_in_order} session_hours r ON r.root_session_id = run.id`;
/** Walks the tree, then looks up each session. */
export const OF_DESCENDANTS = `${WITH_TREE}
  SELECT ${SPENT} FROM tree {join_in_order} session_hours r ON r.session_id = tree.id WHERE tree.depth > 0`;
export const OF_TURN = `SELECT ${SUMS} FROM llm_calls WHERE turn_id = ?`;
export const CALLS = `SELECT ${SUMS} FROM llm_calls WHERE session_id = ?`;
/** Ids order events independently of the wall clock; `no_index` keeps the search inside the session's own rows. */
export const LAST_CALL =
  'SELECT model, effort, pricing_version, ts_ms FROM llm_calls WHERE session_id = ? ORDER BY {no_index}event_id DESC LIMIT 1';
/** Real money alone, as below: a day's limit is not for examples. */
export const WHOLE_DAYS = `SELECT ${PUSD} FROM rollup_day WHERE day >= ? AND NOT ${SIMULATED}`;
/** Calls of the first day, when the window begins within it. */
export const EDGE = `SELECT ${PUSD} FROM ledger_calls WHERE ts_ms >= ? AND ts_ms < ? AND NOT ${SIMULATED}`;

/** Whole hours: the daily rollup has no callers. */
export const OF_CALLER = `SELECT ${PUSD} FROM session_hours WHERE hour >= ? AND caller = ?`;

export const OF_OWNER = `SELECT ${PUSD} FROM owner_days WHERE owner = ? AND day >= ?`;

export function toSpent(row: SpentRow): Spent {
  return { cost_pusd: row.cost_pusd, unpriced: row.unpriced > 0n, simulated: row.simulated > 0 };
}

export function toTurnTotals(row: SumsRow): TurnTotals {
  return {
    calls: Number(row.calls),
    input_tokens: Number(row.input_tokens),
    output_tokens: Number(row.output_tokens),
    cached_input_tokens: Number(row.cached_input_tokens),
    cache_creation_input_tokens: Number(row.cache_creation_input_tokens),
    cost_pusd: row.cost_pusd,
  };
}

/** Sums for the other readers; each uses an index. */
export interface Spend {
  sumSession(sessionId: string): Promise<Spent>;
  /** All of a tree, its root included. */
  sumTree(rootSessionId: string): Promise<Spent>;
  /** Descendants of a session that need not be a root. */
  sumDescendants(sessionId: string): Promise<Spent>;
  /** Sessions with everything below them. */
  sumSubtrees(sessionIds: readonly string[]): Promise<Pusd>;
  sumTurn(turnId: string): Promise<TurnTotals>;
  /** Calls of one session as the ledger has them. */
  calls(sessionId: string): Promise<TurnTotals>;
  lastCall(sessionId: string): Promise<LastCall | null>;
}

export function createSpend({ get, getExact }: Reads): Spend {
  const spent = (text: string) => async (id: string) => toSpent((await getExact<SpentRow>(text, id))!);
  const totals = (text: string) => async (id: string) => toTurnTotals((await getExact<SumsRow>(text, id))!);
  const sumSession = spent(OF_SESSION);
  const sumDescendants = spent(OF_DESCENDANTS);
  return {
    sumSession,
    sumTree: spent(OF_TREE),
    sumDescendants,
    sumSubtrees: async (ids) => {
      const sums = await Promise.all(ids.flatMap((id) => [sumSession(id), sumDescendants(id)]));
      return sumPusd(sums.map(({ cost_pusd }) => cost_pusd));
    },
    sumTurn: totals(OF_TURN),
    calls: totals(CALLS),
    lastCall: async (id) => (await get<LastCall>(LAST_CALL, id)) ?? null,
  };
}

export function createSpendReader({ getExact }: Reads, spend: Spend): SpendReader {
  const sumMoney = async (text: string, ...values: number[]) =>
    (await getExact<{ pusd: bigint }>(text, ...values))!.pusd;
  return {
    sumSession: async (sessionId) => (await spend.sumSession(sessionId)).cost_pusd,
    sumSubtree: (sessionId) => spend.sumSubtrees([sessionId]),
    sumTree: async (rootSessionId) => (await spend.sumTree(rootSessionId)).cost_pusd,
    sumExperiment: async (id) => (await getExact<{ pusd: Pusd }>(OF_EXPERIMENT, id, id))!.pusd,
    sumCaller: async (caller, from) => (await getExact<{ pusd: Pusd }>(OF_CALLER, from / HOUR_MS, caller))!.pusd,
    sumOwner: async (owner, from) => (await getExact<{ pusd: Pusd }>(OF_OWNER, owner, from / DAY_MS))!.pusd,
    // Whole days come from the rollup; a window that begins within a day reads that day's calls from the ledger.
    since: async (from) => {
      const day = Math.ceil(from / DAY_MS);
      const whole = await sumMoney(WHOLE_DAYS, day);
      const edge = from === day * DAY_MS ? 0n : await sumMoney(EDGE, from, day * DAY_MS);
      return (whole + edge) as Pusd;
    },
  };
}
