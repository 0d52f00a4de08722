// Changes of turns, their inputs, messages and tool calls (01 §6, §8).

import { turnRefusal } from '#core/policy/journal/conditions.ts';
import { type AnsweredCall, resultViolation } from '#core/policy/journal/message-rules.ts';
import { InvalidMessageError, JournalConflict } from '#core/ports/journal-writer.ts';
import type { StoredMessage } from '#protocol/message.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { MAX_TURN_INPUTS, type TurnStatus } from '#protocol/turn.ts';
import { bit, json } from '#store/schema/values.ts';
import * as sql from '#store/write/turns.ts';
import type { Answer } from '../connection/client.ts';
import type { Tx } from '../connection/pool.ts';
import { insertRow } from './insert.ts';
import type { Appliers } from './writes.ts';

type Kinds = Extract<
  keyof Appliers,
  `turn.${string}` | `turn_input.${string}` | `message.${string}` | `tool_call.${string}`
>;

const insertTurn = insertRow('turns', sql.TURN_COLUMNS);
const insertInput = insertRow('turn_inputs', sql.INPUT_COLUMNS);
const insertMessage = insertRow('messages', sql.MESSAGE_COLUMNS);
const insertCall = insertRow('tool_calls', sql.CALL_COLUMNS);

function changeTurn(tx: Tx, statement: string, turn_id: string, values: object): void {
  tx.run(statement, { ...values, turn_id }, async ({ changes }) => {
    if (changes === 1) return;
    const { rows } = await tx.send<{ status: TurnStatus }>(sql.TURN_STATUS, [turn_id]);
    const status = rows[0]?.status;
    if (status === undefined) throw new JournalConflict('turn_gone', `no turn ${turn_id}`);
    throw turnRefusal(turn_id, status);
  });
}

const answeredCall = ({ rows }: Answer) => (rows[0] as AnsweredCall | undefined) ?? null;
const waiting = ({ rows }: Answer) => Number(rows[0]?.n ?? 0);

function linkResult(tx: Tx, message: StoredMessage, toolUseId: string): void {
  tx.run(sql.CALL_ANSWERED, [toolUseId], (answer) => {
    const violation = resultViolation(message, toolUseId, answeredCall(answer));
    if (violation !== null) throw new InvalidMessageError([violation]);
  });
  tx.run(sql.ANSWER_CALL, { id: toolUseId, result_message_id: message.id });
}

export const turnWrites: Appliers<Kinds> = {
  'turn.insert': ({ turn, fingerprint = null }, { tx, effects }) => {
    tx.run(sql.TOUCH_SESSION, turn, ({ changes }) => {
      if (changes === 1) return;
      throw new JournalConflict('session_ended', `session ${turn.session_id} has ended or does not exist`);
    });
    effects.sessions.push({ id: turn.session_id, values: { updated_at: turn.started_at } });
    insertTurn(tx, sql.turnRow(turn, fingerprint));
  },
  'turn.end': ({ turn_id, session_id, outcome, unread_inputs }, { tx, effects }) => {
    tx.run(sql.INPUTS_WAITING, [turn_id], (answer) => {
      if (waiting(answer) === unread_inputs) return;
      throw new JournalConflict('inputs_waiting', `turn ${turn_id} has got an input`);
    });
    const { retryable, ...values } = outcome;
    changeTurn(tx, sql.END_TURN, turn_id, { ...values, session_id, retryable: bit(retryable) });
    const completed = bit(outcome.status === 'completed');
    tx.run(sql.LAND_TURN, { session_id, completed, ended_at: outcome.ended_at }, ({ rows }) => {
      const landed = rows[0] as Pick<SessionRecord, 'turn_count' | 'updated_at' | 'active_model'> | undefined;
      effects.sessions.push({ id: session_id, values: landed ? { ...landed, pending_active_model: null } : null });
    });
  },
  'turn.interrupt': (write, { tx }) => changeTurn(tx, sql.INTERRUPT_TURN, write.turn_id, write),
  'turn.resume': ({ turn_id, count_attempt }, { tx }) =>
    changeTurn(tx, sql.RESUME_TURN, turn_id, { attempt: bit(count_attempt) }),
  'turn.score': ({ turn_id, user_score }, { tx }) =>
    changeTurn(tx, sql.SCORE_TURN, turn_id, { user_score_json: json(user_score) }),
  'turn_input.insert': ({ input: { content, ...input } }, { tx }) => {
    tx.run(sql.INPUTS_WAITING, [input.turn_id], (answer) => {
      if (waiting(answer) < MAX_TURN_INPUTS) return;
      throw new JournalConflict('inputs_full', `${MAX_TURN_INPUTS} inputs wait for turn ${input.turn_id}`);
    });
    insertInput(tx, { ...input, content_json: json(content) });
  },
  'turn_input.read': ({ id }, { tx }) =>
    tx.run(sql.READ_INPUT, [id], ({ changes }) => {
      if (changes === 0) throw new Error(`no input ${id}`);
    }),
  'message.insert': ({ message }, { tx, effects, log }) => {
    const { row, stored, bytes } = sql.messageRow(message, log);
    insertMessage(tx, row);
    const toolUseId = message.role === 'tool' ? message.metadata.parent_tool_use_id : null;
    if (toolUseId !== null) linkResult(tx, message, toolUseId);
    effects.messages.push({ message: stored, bytes });
  },
  'tool_call.insert': ({ call }, { tx }) => insertCall(tx, call),
  'tool_call.settle': (write, { tx }) => {
    const values = { ...write, result_json: json(write.result), changed_json: json(write.changed ?? null) };
    tx.run(sql.SETTLE_CALL, values, ({ changes }) => {
      if (changes === 0) throw new JournalConflict('turn_closed', `tool call ${write.id} is not pending`);
    });
  },
  // Storing the tool message has linked it already; this only confirms the pair.
  'tool_call.answer': ({ id, result_message_id }, { tx }) =>
    tx.run(sql.CALL_ANSWERED, [id], (answer) => {
      if (answeredCall(answer)?.result_message_id === result_message_id) return;
      throw new InvalidMessageError([`tool call ${id} is not answered by message ${result_message_id}`]);
    }),
};
