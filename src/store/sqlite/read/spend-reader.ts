// Money as the ledger and its rollups have it, exact (01 §11.2).
import type Database from 'better-sqlite3';
import { DAY_MS, HOUR_MS } from '#core/policy/analytics/rollup.ts';
import type { Spent } from '#core/policy/session/session-view.ts';
import type { SpendReader, TurnTotals } from '#core/ports/store.ts';
import type { Pusd } from '#protocol/money.ts';
import * as sql from '#store/read/spend.ts';

/** Sums for the other readers, by index. */
export interface Spend {
  ofSession(sessionId: string): Spent;
  /** All of a tree, its root included. */
  ofTree(rootSessionId: string): Spent;
  /** Descendants of a session that need not be a root. */
  ofDescendants(sessionId: string): Spent;
  ofTurn(turnId: string): TurnTotals;
  /** Calls of one session as the ledger has them. */
  calls(sessionId: string): Omit<TurnTotals, 'cached_input_tokens' | 'cache_creation_input_tokens'>;
  lastCall(sessionId: string): sql.LastCall | null;
}

export function createSpend(db: Database.Database): Spend {
  const exact = <Row>(text: string) => db.prepare<[string], Row>(text).safeIntegers();
  const ofSession = exact<sql.SpentRow>(sql.OF_SESSION);
  const ofTree = exact<sql.SpentRow>(sql.OF_TREE);
  const ofDescendants = exact<sql.SpentRow>(sql.OF_DESCENDANTS);
  const ofTurn = exact<sql.SumsRow>(sql.OF_TURN);
  const calls = exact<sql.SumsRow>(sql.CALLS);
  const lastCall = db.prepare<[string], sql.LastCall>(sql.LAST_CALL);

  const spent = (statement: Database.Statement<[string], sql.SpentRow>, id: string) =>
    sql.spent(statement.get(id) as sql.SpentRow);
  const totals = (statement: Database.Statement<[string], sql.SumsRow>, id: string) =>
    sql.turnTotals(statement.get(id) as sql.SumsRow);
  return {
    ofSession: (id) => spent(ofSession, id),
    ofTree: (id) => spent(ofTree, id),
    ofDescendants: (id) => spent(ofDescendants, id),
    ofTurn: (id) => totals(ofTurn, id),
    calls: (id) => totals(calls, id),
    lastCall: (id) => lastCall.get(id) ?? null,
  };
}

export function createSpendReader(db: Database.Database, spend: Spend): SpendReader {
  const sum = (text: string) => db.prepare<number[], Pusd>(text).safeIntegers().pluck();
  const days = sum(sql.WHOLE_DAYS);
  const edge = sum(sql.EDGE);
  const ofCaller = db.prepare<[number, string], Pusd>(sql.OF_CALLER).safeIntegers().pluck();
  return {
    ofSession: async (sessionId) => spend.ofSession(sessionId).cost_pusd,
    ofSubtree: async (sessionId) =>
      (spend.ofSession(sessionId).cost_pusd + spend.ofDescendants(sessionId).cost_pusd) as Pusd,
    ofTree: async (rootSessionId) => spend.ofTree(rootSessionId).cost_pusd,
    ofCaller: async (caller, from) => ofCaller.get(from / HOUR_MS, caller) as Pusd,
    // Whole days from the rollup; only the first day, when it is entered in its middle, from the facts.
    since: async (from) => {
      const day = Math.ceil(from / DAY_MS);
      const whole = days.get(day) as Pusd;
      return from === day * DAY_MS ? whole : ((whole + (edge.get(from, day * DAY_MS) as Pusd)) as Pusd);
    },
  };
}
