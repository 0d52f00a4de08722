// Turns and their tool calls; tokens and money of a turn come from the ledger (01 §8).
import type { DelegationRecord } from '../../../domain/delegate.ts';
import { type ContentBlock, textOf } from '../../../domain/message.ts';
import { OPEN_TURN_STATUSES, type Turn, type TurnRecord } from '../../../domain/turn.ts';
import { isoTime } from '../../../kernel/clock.ts';
import type { SessionId } from '../../../kernel/ids.ts';
import { fromPusd } from '../../../kernel/money.ts';
import type { TurnReader } from '../../../ports/store.ts';
import type { SqliteStoreHandle } from '../connection/open.ts';
import { isoOrNull, type ToolCallRowStored, type TurnRow, toolCallState, turnRecord } from '../schema/rows.ts';
import { TURN_IS_OPEN } from '../schema/words.ts';
import { pageOf } from './page.ts';
import type { Spend } from './spend-reader.ts';

/** Sorts behind every id. */
const BEHIND_ALL = '~';

export function createTurnReader({ db }: SqliteStoreHandle, spend: Spend): TurnReader {
  const byId = db.prepare<[string, string], TurnRow>('SELECT * FROM turns WHERE session_id = ? AND id = ?');
  const open = db.prepare<[string], TurnRow>(`SELECT * FROM turns WHERE session_id = ? AND ${TURN_IS_OPEN}`);
  const page = db.prepare<[string, string, number], TurnRow>(
    'SELECT * FROM turns WHERE session_id = ? AND id < ? ORDER BY id DESC LIMIT ?',
  );
  const count = db.prepare<[string], number>('SELECT count(*) FROM turns WHERE session_id = ?').pluck();
  const OPEN_WITH_SESSION = `SELECT t.* FROM turns t JOIN sessions s ON s.id = t.session_id WHERE t.${TURN_IS_OPEN}`;
  const DEEPEST_FIRST = 'ORDER BY s.delegation_depth DESC, t.id';
  const allOpen = db.prepare<[], TurnRow>(`${OPEN_WITH_SESSION} ${DEEPEST_FIRST}`);
  const openOfTree = db.prepare<[string], TurnRow>(`${OPEN_WITH_SESSION} AND s.root_session_id = ? ${DEEPEST_FIRST}`);
  const calls = db.prepare<[string], ToolCallRowStored>(`
    SELECT * FROM tool_calls WHERE turn_id = ? ORDER BY message_id, id`);
  const call = db.prepare<[string], ToolCallRowStored>('SELECT * FROM tool_calls WHERE id = ?');
  const settledCalls = db
    .prepare<[string], number>('SELECT count(*) FROM tool_calls WHERE turn_id = ? AND result_json IS NOT NULL')
    .pluck();
  const answers = db
    .prepare<[string], string>(
      "SELECT content_json FROM messages WHERE turn_id = ? AND role = 'assistant' ORDER BY id DESC",
    )
    .pluck();
  const workers = db
    .prepare<[string, string], SessionId>(`
      SELECT worker_session_id FROM delegations
      WHERE parent_session_id = ? AND parent_turn_id = ? AND worker_session_id IS NOT NULL ORDER BY worker_session_id`)
    .pluck();
  // What a worker handed back belongs to its last turn.
  const handedBack = db
    .prepare<[string, string], string>(`
      SELECT output_json FROM delegations WHERE worker_session_id = ? AND status = 'completed'
        AND ? = (SELECT max(id) FROM turns WHERE session_id = worker_session_id)`)
    .pluck();

  function outputOf(turn: TurnRecord): Turn['output'] {
    const handed = handedBack.get(turn.session_id, turn.id);
    const object = handed === undefined ? null : (JSON.parse(handed) as DelegationRecord['output']);
    if (typeof object === 'object' && object !== null) return object;
    for (const content of answers.iterate(turn.id)) {
      const text = textOf(JSON.parse(content) as ContentBlock[]);
      if (text !== '') return text;
    }
    return null;
  }

  function view(row: TurnRow): Turn {
    const { tools, resume_attempts, ...turn } = turnRecord(row);
    const totals = spend.ofTurn(row.id);
    const isOpen = (OPEN_TURN_STATUSES as readonly string[]).includes(turn.status);
    return {
      ...turn,
      // The counts of a running turn are written at its end; until then the facts have them.
      llm_call_count: isOpen ? Math.max(turn.llm_call_count, totals.calls) : turn.llm_call_count,
      tool_call_count: isOpen ? (settledCalls.get(row.id) ?? 0) : turn.tool_call_count,
      total_input_tokens: totals.input_tokens,
      total_cached_input_tokens: totals.cached_input_tokens,
      total_cache_creation_input_tokens: totals.cache_creation_input_tokens,
      total_output_tokens: totals.output_tokens,
      total_cost_usd: fromPusd(totals.cost_pusd),
      started_at: isoTime(turn.started_at),
      ended_at: isoOrNull(turn.ended_at),
      output: isOpen ? null : outputOf(turnRecord(row)),
      worker_session_ids: workers.all(turn.session_id, turn.id),
    };
  }
  const recordOrNull = (row: TurnRow | undefined) => (row === undefined ? null : turnRecord(row));

  return {
    record: async (sessionId, turnId) => recordOrNull(byId.get(sessionId, turnId)),
    open: async (sessionId) => recordOrNull(open.get(sessionId)),
    newest: async (sessionId) => recordOrNull(page.get(sessionId, BEHIND_ALL, 1)),
    view: async (sessionId, turnId) => {
      const row = byId.get(sessionId, turnId);
      return row === undefined ? null : view(row);
    },
    list: async (sessionId, before, limit) =>
      pageOf(page.all(sessionId, before ?? BEHIND_ALL, limit + 1), limit, (row) => row.id, view),
    count: async (sessionId) => count.get(sessionId) ?? 0,
    allOpen: async (root) => (root === undefined ? allOpen.all() : openOfTree.all(root)).map(turnRecord),
    toolCalls: async (turnId) => calls.all(turnId).map(toolCallState),
    toolCall: async (id) => {
      const row = call.get(id);
      return row === undefined ? null : toolCallState(row);
    },
    totals: async (turnId) => spend.ofTurn(turnId),
  };
}
