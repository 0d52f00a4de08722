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
import type { Reads } from '../connection/reads.ts';
import type { Spend } from './spend-reader.ts';

export function createTurnReader({ all, get }: Reads, spend: Spend): TurnReader {
  const count = async (text: string, id: string) => (await get<{ n: number }>(text, id))?.n ?? 0;
  const inputsOf = (id: string) => all<TurnInputRow>(sql.INPUTS, id);

  async function outputOf(turn: TurnRow): Promise<Turn['output']> {
    const handed = await get<{ output_json: string | null }>(sql.HANDED_BACK, turn.session_id, turn.id);
    const object = sql.handedBack(handed?.output_json);
    if (object !== null) return object;
    // One at a time: the newest answer has words nearly always.
    for (let newest = 0; ; newest += 1) {
      const answer = await get<{ content_json: string }>(`${sql.ANSWERS} LIMIT 1 OFFSET ?`, turn.id, newest);
      if (answer === undefined) return null;
      const text = sql.answerText(answer.content_json);
      if (text !== '') return text;
    }
  }

  async function costOf(workers: readonly SessionId[]): Promise<bigint> {
    const sums = await Promise.all(workers.flatMap((id) => [spend.ofSession(id), spend.ofDescendants(id)]));
    return sums.reduce((sum, { cost_pusd }) => sum + cost_pusd, 0n);
  }

  async function view(row: TurnRow): Promise<Turn> {
    const open = sql.isOpen(row);
    const [totals, inputs, opened, settled_calls, output] = await Promise.all([
      spend.ofTurn(row.id),
      inputsOf(row.id),
      all<{ id: SessionId }>(sql.WORKERS, row.session_id, row.id),
      open ? count(sql.SETTLED_CALLS, row.id) : 0,
      open ? null : outputOf(row),
    ]);
    const workers = opened.map(({ id }) => id);
    return sql.turnView(row, { totals, inputs, workers, workers_cost: await costOf(workers), settled_calls, output });
  }
  const recordOrNull = (row: TurnRow | undefined) => (row === undefined ? null : turnRecord(row));

  return {
    record: async (sessionId, turnId) => recordOrNull(await get<TurnRow>(sql.BY_ID, sessionId, turnId)),
    open: async (sessionId) => recordOrNull(await get<TurnRow>(sql.OPEN, sessionId)),
    newest: async (sessionId) => recordOrNull(await get<TurnRow>(sql.PAGE, sessionId, BEHIND_ALL, 1)),
    view: async (sessionId, turnId) => {
      const row = await get<TurnRow>(sql.BY_ID, sessionId, turnId);
      return row === undefined ? null : view(row);
    },
    list: async (sessionId, before, limit) => {
      const rows = await all<TurnRow>(sql.PAGE, sessionId, before ?? BEHIND_ALL, limit + 1);
      const page = pageOf(rows, limit, (row) => row.id, view);
      return { rows: await Promise.all(page.rows), next: page.next };
    },
    count: (sessionId) => count(sql.COUNT, sessionId),
    allOpen: async (root) =>
      (root === undefined ? await all<TurnRow>(sql.ALL_OPEN) : await all<TurnRow>(sql.OPEN_OF_TREE, root)).map(
        turnRecord,
      ),
    inputs: async (turnId) => (await inputsOf(turnId)).map(turnInput),
    toolCalls: async (turnId) => (await all<ToolCallRowStored>(sql.CALLS, turnId)).map(toolCallState),
    toolCall: async (id) => {
      const row = await get<ToolCallRowStored>(sql.CALL, id);
      return row === undefined ? null : toolCallState(row);
    },
    totals: (turnId) => spend.ofTurn(turnId),
  };
}
