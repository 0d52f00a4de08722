// Changes of turns, messages and tool calls (01 §6, §8).
import type Database from 'better-sqlite3';
import type { StoredMessage } from '../../../domain/message.ts';
import type { SessionRecord } from '../../../domain/session.ts';
import type { TurnStatus } from '../../../domain/turn.ts';
import { canonicalJson } from '../../../kernel/canonical-json.ts';
import { turnRefusal } from '../../../policy/journal/conditions.ts';
import { type AnsweredCall, resultViolation } from '../../../policy/journal/message-rules.ts';
import { InvalidMessageError, JournalConflict } from '../../../ports/journal.ts';
import type { Logger } from '../../../ports/log.ts';
import { bit, insertInto, json, type Named, named } from '../connection/named.ts';
import { TURN_IS_OPEN } from '../schema/words.ts';
import type { Appliers } from './writes.ts';

const TURN_COLUMNS = [
  'id',
  'session_id',
  'user_message_id',
  'status',
  'per_message_override',
  'chosen_model',
  'provider',
  'routing_mode',
  'stop_reason',
  'cancel_reason',
  'interrupted_reason',
  'error_code',
  'error_class',
  'error_message',
  'retryable',
  'llm_call_count',
  'tool_call_count',
  'started_at',
  'ended_at',
  'wall_time_seconds',
  'final_message_id',
  'tools_json',
  'resume_attempts',
] as const;
const MESSAGE_COLUMNS = [
  'id',
  'session_id',
  'turn_id',
  'role',
  'status',
  'created_at',
  'metadata_json',
  'content_json',
  'provider_raw_json',
] as const;
const CALL_COLUMNS = [
  'id',
  'session_id',
  'turn_id',
  'message_id',
  'name',
  'status',
  'provider',
  'provider_id',
  'created_at',
] as const;
const PROVIDER_RAW_LIMIT = 64 * 1024;

type Kinds = Extract<keyof Appliers, `turn.${string}` | `message.${string}` | `tool_call.${string}`>;

export function turnWrites(db: Database.Database, log: Logger): Appliers<Kinds> {
  const insertTurn = insertInto(db, 'turns', TURN_COLUMNS);
  const touchSession = named(
    db,
    'UPDATE sessions SET updated_at = @started_at WHERE id = @session_id AND ended_at IS NULL',
  );
  const endTurn = named(
    db,
    `
    UPDATE turns SET status = @status, stop_reason = @stop_reason, cancel_reason = @cancel_reason,
      interrupted_reason = NULL, error_code = @error_code, error_class = @error_class, error_message = @error_message,
      retryable = @retryable, llm_call_count = @llm_call_count, tool_call_count = @tool_call_count,
      wall_time_seconds = @wall_time_seconds, final_message_id = @final_message_id, ended_at = @ended_at
    WHERE id = @turn_id AND session_id = @session_id AND ${TURN_IS_OPEN}`,
  );
  const landTurn = named<Pick<SessionRecord, 'turn_count' | 'updated_at' | 'active_model'>>(
    db,
    `
    UPDATE sessions SET turn_count = turn_count + @completed, updated_at = @ended_at, pending_active_model = NULL,
      active_model = CASE WHEN pending_active_model IS NULL THEN active_model
        ELSE json_extract(pending_active_model, '$.model') END
    WHERE id = @session_id RETURNING turn_count, updated_at, active_model`,
  );
  const interruptTurn = named(
    db,
    `
    UPDATE turns SET status = 'interrupted', interrupted_reason = @reason,
      llm_call_count = @llm_call_count, tool_call_count = @tool_call_count
    WHERE id = @turn_id AND ${TURN_IS_OPEN}`,
  );
  const resumeTurn = named(
    db,
    `
    UPDATE turns SET status = 'in_flight', interrupted_reason = NULL, resume_attempts = resume_attempts + @attempt
    WHERE id = @turn_id AND status = 'interrupted'`,
  );
  const turnStatus = db.prepare<[string], { status: TurnStatus }>('SELECT status FROM turns WHERE id = ?');

  const insertMessage = insertInto(db, 'messages', MESSAGE_COLUMNS);
  const insertCall = insertInto(db, 'tool_calls', CALL_COLUMNS);
  const settleCall = named(
    db,
    `
    UPDATE tool_calls SET status = @status, result_json = @result_json, changed_json = @changed_json,
      completed_at = @at
    WHERE id = @id AND status = 'pending'`,
  );
  const answerCall = named(db, 'UPDATE tool_calls SET result_message_id = @result_message_id WHERE id = @id');
  const callAnswered = db.prepare<[string], AnsweredCall>(
    'SELECT session_id, message_id, result_message_id FROM tool_calls WHERE id = ?',
  );

  function changeTurn(statement: Named<unknown>, turn_id: string, values: object): void {
    if (statement.run({ ...values, turn_id }).changes === 1) return;
    const status = turnStatus.get(turn_id)?.status;
    if (status === undefined) throw new Error(`no turn ${turn_id}`);
    throw turnRefusal(turn_id, status);
  }

  function providerRaw(message: StoredMessage): string | null {
    if (message.provider_raw === null) return null;
    const text = canonicalJson(message.provider_raw);
    const bytes = Buffer.byteLength(text);
    if (bytes <= PROVIDER_RAW_LIMIT) return text;
    log.warn({ session_id: message.session_id, message_id: message.id, bytes }, 'provider_raw too large, not stored');
    return null;
  }

  function linkResult(message: StoredMessage, toolUseId: string): void {
    const violation = resultViolation(message, toolUseId, callAnswered.get(toolUseId) ?? null);
    if (violation !== null) throw new InvalidMessageError([violation]);
    answerCall.run({ id: toolUseId, result_message_id: message.id });
  }

  return {
    'turn.insert': ({ turn }, effects) => {
      if (touchSession.run(turn).changes === 0) {
        throw new JournalConflict('session_ended', `session ${turn.session_id} has ended or does not exist`);
      }
      effects.sessions.push({ id: turn.session_id, values: { updated_at: turn.started_at } });
      const { retryable, ...values } = turn;
      insertTurn({ ...values, retryable: bit(retryable), tools_json: json(turn.tools) });
    },
    'turn.end': ({ turn_id, session_id, outcome }, effects) => {
      const { retryable, ...values } = outcome;
      changeTurn(endTurn, turn_id, { ...values, session_id, retryable: bit(retryable) });
      const completed = bit(outcome.status === 'completed');
      const landed = landTurn.get({ session_id, completed, ended_at: outcome.ended_at });
      effects.sessions.push({ id: session_id, values: landed ? { ...landed, pending_active_model: null } : null });
    },
    'turn.interrupt': (write) => changeTurn(interruptTurn, write.turn_id, write),
    'turn.resume': ({ turn_id, count_attempt }) => changeTurn(resumeTurn, turn_id, { attempt: bit(count_attempt) }),
    'message.insert': ({ message }, effects) => {
      const raw = providerRaw(message);
      const content = JSON.stringify(message.content);
      insertMessage({
        id: message.id,
        session_id: message.session_id,
        turn_id: message.turn_id,
        role: message.role,
        status: message.metadata.status,
        created_at: Date.parse(message.created_at),
        metadata_json: json(message.metadata),
        content_json: content,
        provider_raw_json: raw,
      });
      const toolUseId = message.role === 'tool' ? message.metadata.parent_tool_use_id : null;
      if (toolUseId !== null) linkResult(message, toolUseId);
      const stored = raw === null && message.provider_raw !== null ? { ...message, provider_raw: null } : message;
      effects.messages.push({ message: stored, bytes: content.length + (raw?.length ?? 0) });
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
