// Money as the ledger and its rollups have it, exact (01 §11.2).

import type { Spent } from '#core/policy/session/session-view.ts';
import type { TurnTotals } from '#core/ports/store.ts';
import type { Pusd } from '#protocol/money.ts';
import { TOKEN_COUNTS } from '../schema/rollups.ts';
import { WITH_TREE } from '../schema/words.ts';

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

const SPENT = 'coalesce(sum(cost_pusd), 0) AS cost_pusd, coalesce(sum(unpriced_calls), 0) AS unpriced';
const SUMS = `count(*) AS calls, coalesce(sum(cost_pusd), 0) AS cost_pusd,
  ${TOKEN_COUNTS.map((count) => `coalesce(sum(${count}), 0) AS ${count}`).join(', ')}`;

export const OF_SESSION = `SELECT ${SPENT} FROM session_hours WHERE session_id = ?`;
export const OF_TREE = `SELECT ${SPENT} FROM session_hours WHERE root_session_id = ?`;
/** CROSS JOIN keeps the order: walk the tree, then look each session up. */
export const OF_DESCENDANTS = `${WITH_TREE}
  SELECT ${SPENT} FROM tree CROSS JOIN session_hours r ON r.session_id = tree.id WHERE tree.depth > 0`;
export const OF_TURN = `SELECT ${SUMS} FROM llm_calls WHERE turn_id = ?`;
export const CALLS = `SELECT ${SUMS} FROM llm_calls WHERE session_id = ?`;
/** Ids tell what came last, whatever the wall clock said; the plus keeps the search inside the session's own rows. */
export const LAST_CALL =
  'SELECT model, pricing_version, ts_ms FROM llm_calls WHERE session_id = ? ORDER BY +event_id DESC LIMIT 1';
export const WHOLE_DAYS = 'SELECT coalesce(sum(cost_pusd), 0) AS pusd FROM rollup_day WHERE day >= ?';
/** The first day, when it is entered in its middle. */
export const EDGE = 'SELECT coalesce(sum(cost_pusd), 0) AS pusd FROM ledger_calls WHERE ts_ms >= ? AND ts_ms < ?';

/** Whole hours: days do not tell callers apart. */
export const OF_CALLER = 'SELECT coalesce(sum(cost_pusd), 0) AS pusd FROM session_hours WHERE hour >= ? AND caller = ?';

export function spent(row: SpentRow): Spent {
  return { cost_pusd: row.cost_pusd, unpriced: row.unpriced > 0n };
}

export function turnTotals(row: SumsRow): TurnTotals {
  return {
    calls: Number(row.calls),
    input_tokens: Number(row.input_tokens),
    output_tokens: Number(row.output_tokens),
    cached_input_tokens: Number(row.cached_input_tokens),
    cache_creation_input_tokens: Number(row.cache_creation_input_tokens),
    cost_pusd: row.cost_pusd,
  };
}
