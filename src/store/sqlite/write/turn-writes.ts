// Changes of turns, messages and tool calls (01 §6, §8).
import type Database from 'better-sqlite3';
import { turnRefusal } from '#core/policy/journal/conditions.ts';
import { type AnsweredCall, resultViolation } from '#core/policy/journal/message-rules.ts';
import { InvalidMessageError, JournalConflict } from '#core/ports/journal-writer.ts';
import type { Logger } from '#core/ports/logger.ts';
import type { StoredMessage } from '#protocol/message.ts';
import type { SessionRecord } from '#protocol/session.ts';
import type { TurnStatus } from '#protocol/turn.ts';
import { bit, json } from '#store/schema/values.ts';
import * as sql from '#store/write/turns.ts';
import { insertInto, type Named, named } from '../connection/named.ts';
import type { Appliers } from './writes.ts';

type Kinds = Extract<keyof Appliers, `turn.${string}` | `message.${string}` | `tool_call.${string}`>;

export function turnWrites(db: Database.Database, log: Logger): Appliers<Kinds> {
  const insertTurn = insertInto(db, 'turns', sql.TURN_COLUMNS);
  const touchSession = named(db, sql.TOUCH_SESSION);
  const endTurn = named(db, sql.END_TURN);
  const landTurn = named<Pick<SessionRecord, 'turn_count' | 'updated_at' | 'active_model'>>(db, sql.LAND_TURN);
  const interruptTurn = named(db, sql.INTERRUPT_TURN);
  const resumeTurn = named(db, sql.RESUME_TURN);
  const scoreTurn = named(db, sql.SCORE_TURN);
  const inputsOf = db.prepare<[string], number>(sql.INPUTS_WAITING).pluck();
  const turnStatus = db.prepare<[string], { status: TurnStatus }>(sql.TURN_STATUS);

  const insertMessage = insertInto(db, 'messages', sql.MESSAGE_COLUMNS);
  const insertCall = insertInto(db, 'tool_calls', sql.CALL_COLUMNS);
  const settleCall = named(db, sql.SETTLE_CALL);
  const answerCall = named(db, sql.ANSWER_CALL);
  const callAnswered = db.prepare<[string], AnsweredCall>(sql.CALL_ANSWERED);

  function changeTurn(statement: Named<unknown>, turn_id: string, values: object): void {
    if (statement.run({ ...values, turn_id }).changes === 1) return;
    const status = turnStatus.get(turn_id)?.status;
    if (status === undefined) throw new JournalConflict('turn_gone', `no turn ${turn_id}`);
    throw turnRefusal(turn_id, status);
  }

  function linkResult(message: StoredMessage, toolUseId: string): void {
    const violation = resultViolation(message, toolUseId, callAnswered.get(toolUseId) ?? null);
    if (violation !== null) throw new InvalidMessageError([violation]);
    answerCall.run({ id: toolUseId, result_message_id: message.id });
  }

  return {
    'turn.insert': ({ turn, fingerprint = null }, effects) => {
      if (touchSession.run(turn).changes === 0) {
        throw new JournalConflict('session_ended', `session ${turn.session_id} has ended or does not exist`);
      }
      effects.sessions.push({ id: turn.session_id, values: { updated_at: turn.started_at } });
      insertTurn(sql.turnRow(turn, fingerprint));
    },
    'turn.end': ({ turn_id, session_id, outcome, unread_inputs }, effects) => {
      if (inputsOf.get(turn_id) !== unread_inputs)
        throw new JournalConflict('inputs_waiting', `turn ${turn_id} has got an input`);
      const { retryable, ...values } = outcome;
      changeTurn(endTurn, turn_id, { ...values, session_id, retryable: bit(retryable) });
      const completed = bit(outcome.status === 'completed');
      const landed = landTurn.get({ session_id, completed, ended_at: outcome.ended_at });
      effects.sessions.push({ id: session_id, values: landed ? { ...landed, pending_active_model: null } : null });
    },
    'turn.interrupt': (write) => changeTurn(interruptTurn, write.turn_id, write),
    'turn.resume': ({ turn_id, count_attempt }) => changeTurn(resumeTurn, turn_id, { attempt: bit(count_attempt) }),
    'turn.score': ({ turn_id, user_score }) => changeTurn(scoreTurn, turn_id, { user_score_json: json(user_score) }),
    'message.insert': ({ message }, effects) => {
      const { row, stored, bytes } = sql.messageRow(message, log);
      insertMessage(row);
      const toolUseId = message.role === 'tool' ? message.metadata.parent_tool_use_id : null;
      if (toolUseId !== null) linkResult(message, toolUseId);
      effects.messages.push({ message: stored, bytes });
    },
    'tool_call.insert': ({ call }) => {
      insertCall(call);
    },
    'tool_call.settle': (write) => {
      const settled = settleCall.run({
        ...write,
        result_json: json(write.result),
        changed_json: json(write.changed ?? null),
      });
      if (settled.changes === 0) throw new JournalConflict('turn_closed', `tool call ${write.id} is not pending`);
    },
    // Storing the tool message has linked it already; this only confirms the pair.
    'tool_call.answer': ({ id, result_message_id }) => {
      if (callAnswered.get(id)?.result_message_id !== result_message_id) {
        throw new InvalidMessageError([`tool call ${id} is not answered by message ${result_message_id}`]);
      }
    },
  };
}
