// Turns and their tool calls; tokens and money of a turn come from the ledger (01 §8).

import type { TurnReader } from '#core/ports/store.ts';
import type { SessionId } from '#protocol/ids.ts';
import type { Turn } from '#protocol/turn.ts';
import { pageOf } from '#store/read/page.ts';
import * as sql from '#store/read/turns.ts';
import {
  type ToolCallRowStored,
  type TurnInputRow,
  type TurnRow,
  toolCallState,
  turnInput,
  turnRecord,
} from '#store/schema/rows.ts';
import { BEHIND_ALL } from '#store/schema/words.ts';
import type { SqliteStoreHandle } from '../connection/open.ts';
import type { Spend } from './spend-reader.ts';

export function createTurnReader({ db }: SqliteStoreHandle, spend: Spend): TurnReader {
  const byId = db.prepare<[string, string], TurnRow>(sql.BY_ID);
  const open = db.prepare<[string], TurnRow>(sql.OPEN);
  const page = db.prepare<[string, string, number], TurnRow>(sql.PAGE);
  const count = db.prepare<[string], number>(sql.COUNT).pluck();
  const allOpen = db.prepare<[], TurnRow>(sql.ALL_OPEN);
  const openOfTree = db.prepare<[string], TurnRow>(sql.OPEN_OF_TREE);
  const calls = db.prepare<[string], ToolCallRowStored>(sql.CALLS);
  const call = db.prepare<[string], ToolCallRowStored>(sql.CALL);
  const settledCalls = db.prepare<[string], number>(sql.SETTLED_CALLS).pluck();
  const inputsOf = db.prepare<[string], TurnInputRow>(sql.INPUTS);
  const answers = db.prepare<[string], string>(sql.ANSWERS).pluck();
  const workers = db.prepare<[string, string], SessionId>(sql.WORKERS).pluck();
  const handedBack = db.prepare<[string, string], string | null>(sql.HANDED_BACK).pluck();

  function outputOf(turn: TurnRow): Turn['output'] {
    const object = sql.handedBack(handedBack.get(turn.session_id, turn.id));
    if (object !== null) return object;
    for (const content of answers.iterate(turn.id)) {
      const text = sql.answerText(content);
      if (text !== '') return text;
    }
    return null;
  }

  function view(row: TurnRow): Turn {
    const opened = workers.all(row.session_id, row.id);
    let workers_cost = 0n;
    for (const id of opened) workers_cost += spend.ofSession(id).cost_pusd + spend.ofDescendants(id).cost_pusd;
    const isOpen = sql.isOpen(row);
    return sql.turnView(row, {
      totals: spend.ofTurn(row.id),
      inputs: inputsOf.all(row.id),
      workers: opened,
      workers_cost,
      settled_calls: isOpen ? (settledCalls.get(row.id) ?? 0) : 0,
      output: isOpen ? null : outputOf(row),
    });
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
    inputs: async (turnId) => inputsOf.all(turnId).map(turnInput),
    toolCalls: async (turnId) => calls.all(turnId).map(toolCallState),
    toolCall: async (id) => {
      const row = call.get(id);
      return row === undefined ? null : toolCallState(row);
    },
    totals: async (turnId) => spend.ofTurn(turnId),
  };
}
