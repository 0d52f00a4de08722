// Money as the ledger and its rollups have it, exact (01 §11.2).
import type Database from 'better-sqlite3';
import type { Pusd } from '../../../kernel/money.ts';
import { DAY_MS } from '../../../policy/analytics/rollup.ts';
import type { Spent } from '../../../policy/session/session-view.ts';
import type { SpendReader, TurnTotals } from '../../../ports/store.ts';
import { TOKEN_COUNTS } from '../schema/rollups.ts';
import { WITH_TREE } from '../schema/words.ts';

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
  lastCall(
    sessionId: string,
  ): { readonly model: string; readonly pricing_version: string; readonly ts_ms: number } | null;
}

interface SpentRow {
  readonly cost_pusd: Pusd;
  readonly unpriced: bigint;
}
type Sums = Readonly<Record<'calls' | (typeof TOKEN_COUNTS)[number], bigint>> & { readonly cost_pusd: Pusd };

const SPENT = 'coalesce(sum(cost_pusd), 0) AS cost_pusd, coalesce(sum(unpriced_calls), 0) AS unpriced';
const SUMS = `count(*) AS calls, coalesce(sum(cost_pusd), 0) AS cost_pusd,
  ${TOKEN_COUNTS.map((count) => `coalesce(sum(${count}), 0) AS ${count}`).join(', ')}`;

export function createSpend(db: Database.Database): Spend {
  const exact = <Row>(sql: string) => db.prepare<[string], Row>(sql).safeIntegers();
  const ofSession = exact<SpentRow>(`SELECT ${SPENT} FROM rollup_session_hour WHERE session_id = ?`);
  const ofTree = exact<SpentRow>(`SELECT ${SPENT} FROM rollup_session_hour WHERE root_session_id = ?`);
  // CROSS JOIN keeps the order: walk the tree, then look each session up.
  const ofDescendants = exact<SpentRow>(`${WITH_TREE}
    SELECT ${SPENT} FROM tree CROSS JOIN rollup_session_hour r ON r.session_id = tree.id WHERE tree.depth > 0`);
  const ofTurn = exact<Sums>(`SELECT ${SUMS} FROM llm_calls WHERE turn_id = ?`);
  const calls = exact<Sums>(`SELECT ${SUMS} FROM llm_calls WHERE session_id = ?`);
  // Ids tell what came last, whatever the wall clock said; the plus keeps the search inside the session's own rows.
  const lastCall = db.prepare<[string], { model: string; pricing_version: string; ts_ms: number }>(
    'SELECT model, pricing_version, ts_ms FROM llm_calls WHERE session_id = ? ORDER BY +event_id DESC LIMIT 1',
  );

  const spent = (statement: Database.Statement<[string], SpentRow>, id: string): Spent => {
    const row = statement.get(id) as SpentRow;
    return { cost_pusd: row.cost_pusd, unpriced: row.unpriced > 0n };
  };
  const totals = (statement: Database.Statement<[string], Sums>, id: string): TurnTotals => {
    const row = statement.get(id) as Sums;
    return {
      calls: Number(row.calls),
      input_tokens: Number(row.input_tokens),
      output_tokens: Number(row.output_tokens),
      cached_input_tokens: Number(row.cached_input_tokens),
      cache_creation_input_tokens: Number(row.cache_creation_input_tokens),
      cost_pusd: row.cost_pusd,
    };
  };
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
  const sum = (sql: string) => db.prepare<number[], Pusd>(sql).safeIntegers().pluck();
  const days = sum('SELECT coalesce(sum(cost_pusd), 0) FROM rollup_parent_day WHERE day >= ?');
  const edge = sum('SELECT coalesce(sum(cost_pusd), 0) FROM llm_calls WHERE ts_ms >= ? AND ts_ms < ?');
  return {
    ofSession: async (sessionId) => spend.ofSession(sessionId).cost_pusd,
    ofSubtree: async (sessionId) =>
      (spend.ofSession(sessionId).cost_pusd + spend.ofDescendants(sessionId).cost_pusd) as Pusd,
    ofTree: async (rootSessionId) => spend.ofTree(rootSessionId).cost_pusd,
    // Whole days from the rollup; only the first day, when it is entered in its middle, from the facts.
    since: async (from) => {
      const day = Math.ceil(from / DAY_MS);
      const whole = days.get(day) as Pusd;
      return from === day * DAY_MS ? whole : ((whole + (edge.get(from, day * DAY_MS) as Pusd)) as Pusd);
    },
  };
}
