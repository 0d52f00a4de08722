// Turns: what every database is asked for, and the wire object made of the answers (01 §8).

import type { TurnTotals } from '#core/ports/store.ts';
import { isoTime } from '#protocol/clock.ts';
import type { DelegationRecord } from '#protocol/delegate.ts';
import type { SessionId } from '#protocol/ids.ts';
import { type ContentBlock, textOf } from '#protocol/message.ts';
import { fromPusd, type Pusd } from '#protocol/money.ts';
import { OPEN_TURN_STATUSES, type Turn } from '#protocol/turn.ts';
import { isoOrNull, type TurnInputRow, type TurnRow, turnInput, turnRecord, userScore } from '../schema/rows.ts';
import { TURN_IS_OPEN } from '../schema/words.ts';

const OPEN_WITH_SESSION = `SELECT t.* FROM turns t JOIN sessions s ON s.id = t.session_id WHERE t.${TURN_IS_OPEN}`;
const DEEPEST_FIRST = 'ORDER BY s.delegation_depth DESC, t.id';

export const BY_ID = 'SELECT * FROM turns WHERE session_id = ? AND id = ?';
export const OPEN = `SELECT * FROM turns WHERE session_id = ? AND ${TURN_IS_OPEN}`;
export const PAGE = 'SELECT * FROM turns WHERE session_id = ? AND id < ? ORDER BY id DESC LIMIT ?';
export const COUNT = 'SELECT count(*) AS n FROM turns WHERE session_id = ?';
export const ALL_OPEN = `${OPEN_WITH_SESSION} ${DEEPEST_FIRST}`;
export const OPEN_OF_TREE = `${OPEN_WITH_SESSION} AND s.root_session_id = ? ${DEEPEST_FIRST}`;
export const CALLS = 'SELECT * FROM tool_calls WHERE turn_id = ? ORDER BY message_id, id';
export const CALL = 'SELECT * FROM tool_calls WHERE id = ?';
export const SETTLED_CALLS = 'SELECT count(*) AS n FROM tool_calls WHERE turn_id = ? AND result_json IS NOT NULL';
export const INPUTS = 'SELECT * FROM turn_inputs WHERE turn_id = ? ORDER BY id';
export const ANSWERS = "SELECT content_json FROM messages WHERE turn_id = ? AND role = 'assistant' ORDER BY id DESC";
export const WORKERS = `SELECT worker_session_id AS id FROM delegations
  WHERE parent_session_id = ? AND parent_turn_id = ? AND worker_session_id IS NOT NULL ORDER BY worker_session_id`;
/** What a worker handed back belongs to its last turn. */
export const HANDED_BACK = `SELECT output_json FROM delegations WHERE worker_session_id = ? AND status = 'completed'
  AND ? = (SELECT max(id) FROM turns WHERE session_id = worker_session_id)`;

export function isOpen(row: TurnRow): boolean {
  return (OPEN_TURN_STATUSES as readonly string[]).includes(row.status);
}

/** The object that a worker handed back, if it is one. */
export function handedBack(output_json: string | null | undefined): Turn['output'] {
  if (output_json === null || output_json === undefined) return null;
  const object = JSON.parse(output_json) as DelegationRecord['output'];
  return typeof object === 'object' ? object : null;
}

/** What an answer says in words. */
export function answerText(content_json: string): string {
  return textOf(JSON.parse(content_json) as ContentBlock[]);
}

export interface TurnFacts {
  readonly totals: TurnTotals;
  readonly inputs: readonly TurnInputRow[];
  readonly workers: readonly SessionId[];
  readonly workers_cost: bigint;
  /** Of an open turn. */
  readonly settled_calls: number;
  /** Of an ended turn. */
  readonly output: Turn['output'];
}

export function turnView(
  row: TurnRow,
  { totals, workers, workers_cost, settled_calls, output, ...facts }: TurnFacts,
): Turn {
  const { tools, resume_attempts, ...turn } = turnRecord(row);
  const open = isOpen(row);
  const inputs = facts.inputs.map(turnInput);
  return {
    ...turn,
    // The counts of a running turn are written at its end; until then the facts have them.
    llm_call_count: open ? Math.max(turn.llm_call_count, totals.calls) : turn.llm_call_count,
    tool_call_count: open ? settled_calls : turn.tool_call_count,
    total_input_tokens: totals.input_tokens,
    total_cached_input_tokens: totals.cached_input_tokens,
    total_cache_creation_input_tokens: totals.cache_creation_input_tokens,
    total_output_tokens: totals.output_tokens,
    total_cost_usd: fromPusd(totals.cost_pusd),
    workers_cost_usd: fromPusd(workers_cost as Pusd),
    started_at: isoTime(turn.started_at),
    ended_at: isoOrNull(turn.ended_at),
    output: open ? null : output,
    worker_session_ids: [...workers],
    unread_inputs: inputs.length,
    inputs: inputs.map(({ id, content, submitted_at }) => ({
      id,
      text: textOf(content),
      submitted_at: isoTime(submitted_at),
    })),
    user_score: userScore(row),
  };
}
