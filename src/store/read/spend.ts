// Money as the ledger and its rollups hold it, exact (01 §11.2).

import { DAY_MS, HOUR_MS } from '#core/policy/analytics/rollup.ts';
import type { Spent } from '#core/policy/session/session-view.ts';
import type { SpendReader, TurnTotals } from '#core/ports/store-reader.ts';
import type { Pusd } from '#protocol/money.ts';
import { TOKEN_COUNTS } from '../schema/rollups.ts';
import { sumIntegers, WITH_TREE } from '../schema/words.ts';
import type { Reads } from './read-database.ts';

/** Read with integers as bigint, likewise below. */
export interface SpentRow {
  readonly cost_pusd: Pusd;
  readonly unpriced: bigint;
}
export type SumsRow = Readonly<Record<'calls' | (typeof TOKEN_COUNTS)[number], bigint>> & { readonly cost_pusd: Pusd };

export interface LastCall {
  readonly model: string;
  readonly pricing_version: string;
  readonly ts_ms: number;
}

const SPENT = `coalesce(${sumIntegers('cost_pusd')}, 0) AS cost_pusd, coalesce(${sumIntegers('unpriced_calls')}, 0) AS unpriced`;
const PUSD = `coalesce(${sumIntegers('cost_pusd')}, 0) AS pusd`;
const SUMS = `count(*) AS calls, coalesce(${sumIntegers('cost_pusd')}, 0) AS cost_pusd,
  ${TOKEN_COUNTS.map((count) => `coalesce(${sumIntegers(count)}, 0) AS ${count}`).join(', ')}`;

export const OF_SESSION = `SELECT ${SPENT} FROM session_hours WHERE session_id = ?`;
export const OF_TREE = `SELECT ${SPENT} FROM session_hours WHERE root_session_id = ?`;
/** CROSS JOIN keeps the order: walk the tree, then look each session up. */
export const OF_DESCENDANTS = `${WITH_TREE}
  SELECT ${SPENT} FROM tree CROSS JOIN session_hours r ON r.session_id = tree.id WHERE tree.depth > 0`;
export const OF_TURN = `SELECT ${SUMS} FROM llm_calls WHERE turn_id = ?`;
export const CALLS = `SELECT ${SUMS} FROM llm_calls WHERE session_id = ?`;
/** Ids order events independently of the wall clock; the plus keeps the search inside the session's own rows. */
export const LAST_CALL =
  'SELECT model, pricing_version, ts_ms FROM llm_calls WHERE session_id = ? ORDER BY +event_id DESC LIMIT 1';
export const WHOLE_DAYS = `SELECT ${PUSD} FROM rollup_day WHERE day >= ?`;
/** The first day, when it is entered in its middle. */
export const EDGE = `SELECT ${PUSD} FROM ledger_calls WHERE ts_ms >= ? AND ts_ms < ?`;

/** Whole hours: the daily rollup has no callers. */
export const OF_CALLER = `SELECT ${PUSD} FROM session_hours WHERE hour >= ? AND caller = ?`;

export function toSpent(row: SpentRow): Spent {
  return { cost_pusd: row.cost_pusd, unpriced: row.unpriced > 0n };
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

/** Sums for the other readers, by index. */
export interface Spend {
  ofSession(sessionId: string): Promise<Spent>;
  /** All of a tree, its root included. */
  ofTree(rootSessionId: string): Promise<Spent>;
  /** Descendants of a session that need not be a root. */
  ofDescendants(sessionId: string): Promise<Spent>;
  ofTurn(turnId: string): Promise<TurnTotals>;
  /** Calls of one session as the ledger has them. */
  calls(sessionId: string): Promise<TurnTotals>;
  lastCall(sessionId: string): Promise<LastCall | null>;
}

export function createSpend({ get, getExact }: Reads): Spend {
  const spent = (text: string) => async (id: string) => toSpent((await getExact<SpentRow>(text, id))!);
  const totals = (text: string) => async (id: string) => toTurnTotals((await getExact<SumsRow>(text, id))!);
  return {
    ofSession: spent(OF_SESSION),
    ofTree: spent(OF_TREE),
    ofDescendants: spent(OF_DESCENDANTS),
    ofTurn: totals(OF_TURN),
    calls: totals(CALLS),
    lastCall: async (id) => (await get<LastCall>(LAST_CALL, id)) ?? null,
  };
}

export function createSpendReader({ getExact }: Reads, spend: Spend): SpendReader {
  const sumMoney = async (text: string, ...values: number[]) =>
    (await getExact<{ pusd: bigint }>(text, ...values))!.pusd;
  return {
    ofSession: async (sessionId) => (await spend.ofSession(sessionId)).cost_pusd,
    ofSubtree: async (sessionId) => {
      const [own, below] = await Promise.all([spend.ofSession(sessionId), spend.ofDescendants(sessionId)]);
      return (own.cost_pusd + below.cost_pusd) as Pusd;
    },
    ofTree: async (rootSessionId) => (await spend.ofTree(rootSessionId)).cost_pusd,
    ofCaller: async (caller, from) => (await getExact<{ pusd: Pusd }>(OF_CALLER, from / HOUR_MS, caller))!.pusd,
    // Whole days from the rollup; only the first day, when it is entered in its middle, from the facts.
    since: async (from) => {
      const day = Math.ceil(from / DAY_MS);
      const whole = await sumMoney(WHOLE_DAYS, day);
      const edge = from === day * DAY_MS ? 0n : await sumMoney(EDGE, from, day * DAY_MS);
      return (whole + edge) as Pusd;
    },
  };
}
