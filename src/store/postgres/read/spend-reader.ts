// Money as the ledger and its rollups have it, exact (01 §11.2).

import { DAY_MS, HOUR_MS } from '#core/policy/analytics/rollup.ts';
import type { Spent } from '#core/policy/session/session-view.ts';
import type { SpendReader, TurnTotals } from '#core/ports/store.ts';
import type { Pusd } from '#protocol/money.ts';
import * as sql from '#store/read/spend.ts';
import type { Reads } from '../connection/reads.ts';

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
  lastCall(sessionId: string): Promise<sql.LastCall | null>;
}

export function createSpend({ get, getExact }: Reads): Spend {
  const spent = (text: string) => async (id: string) => sql.spent((await getExact<sql.SpentRow>(text, id))!);
  const totals = (text: string) => async (id: string) => sql.turnTotals((await getExact<sql.SumsRow>(text, id))!);
  return {
    ofSession: spent(sql.OF_SESSION),
    ofTree: spent(sql.OF_TREE),
    ofDescendants: spent(sql.OF_DESCENDANTS),
    ofTurn: totals(sql.OF_TURN),
    calls: totals(sql.CALLS),
    lastCall: async (id) => (await get<sql.LastCall>(sql.LAST_CALL, id)) ?? null,
  };
}

export function createSpendReader({ getExact }: Reads, spend: Spend): SpendReader {
  const sum = async (text: string, ...values: number[]) => (await getExact<{ pusd: bigint }>(text, ...values))!.pusd;
  return {
    ofSession: async (sessionId) => (await spend.ofSession(sessionId)).cost_pusd,
    ofSubtree: async (sessionId) => {
      const [own, below] = await Promise.all([spend.ofSession(sessionId), spend.ofDescendants(sessionId)]);
      return (own.cost_pusd + below.cost_pusd) as Pusd;
    },
    ofTree: async (rootSessionId) => (await spend.ofTree(rootSessionId)).cost_pusd,
    ofCaller: async (caller, from) => (await getExact<{ pusd: Pusd }>(sql.OF_CALLER, from / HOUR_MS, caller))!.pusd,
    // Whole days from the rollup; only the first day, when it is entered in its middle, from the facts.
    since: async (from) => {
      const day = Math.ceil(from / DAY_MS);
      const whole = await sum(sql.WHOLE_DAYS, day);
      const edge = from === day * DAY_MS ? 0n : await sum(sql.EDGE, from, day * DAY_MS);
      return (whole + edge) as Pusd;
    },
  };
}
