// Changes of turns, their inputs, messages and tool calls (01 §6, §8).
import { turnRefusal } from '#core/policy/journal/conditions.ts';
import { type AnsweredCall, resultViolation } from '#core/policy/journal/message-rules.ts';
import { packMetadata } from '#core/policy/journal/stored-payload.ts';
import { toStoredFingerprint } from '#core/policy/learning/fingerprint.ts';
import { InvalidMessageError, JournalConflict } from '#core/ports/journal-writer.ts';
import type { Logger } from '#core/ports/logger.ts';
import type { Fingerprint } from '#protocol/learned-pattern.ts';
import type { StoredMessage } from '#protocol/message.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { canonicalJson } from '#protocol/text/canonical-json.ts';
import { MAX_TURN_INPUTS, type TurnRecord, type TurnStatus } from '#protocol/turn.ts';
import { bit, json, SESSION_IS_OPEN, TURN_IS_OPEN } from '../schema/words.ts';
import { type Answer, type Appliers, insertRow, type Tx } from './transaction.ts';

export const TURN_COLUMNS = [
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
  'fingerprint_json',
  'chosen_effort',
  'concluded_at',
  'conclusion_message_id',
  'submitted_by',
  'shape_sig',
  'forecast_json',
] as const;
export const MESSAGE_COLUMNS = [
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
export const CALL_COLUMNS = [
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
export const INPUT_COLUMNS = ['id', 'session_id', 'turn_id', 'content_json', 'submitted_at'] as const;
const PROVIDER_RAW_LIMIT = 64 * 1024;

export const TOUCH_SESSION = `UPDATE sessions SET updated_at = @started_at WHERE id = @session_id AND ${SESSION_IS_OPEN}`;
const WAITING_INPUTS = `(SELECT count(*) FROM turn_inputs WHERE turn_id = @turn_id)
    + (SELECT count(*) FROM deliveries WHERE turn_id = @turn_id AND delivered_at IS NULL)`;
const OPEN_WORKERS = `FROM delegations WHERE parent_turn_id = @turn_id AND status IN ('running','interrupted')`;
/** Only a turn that has read all its inputs, and completes without an open worker. */
export const END_TURN = `
  UPDATE turns SET status = @status, stop_reason = @stop_reason, cancel_reason = @cancel_reason,
    interrupted_reason = NULL, error_code = @error_code, error_class = @error_class, error_message = @error_message,
    retryable = @retryable, llm_call_count = @llm_call_count, tool_call_count = @tool_call_count,
    wall_time_seconds = @wall_time_seconds, final_message_id = @final_message_id, ended_at = @ended_at
  WHERE id = @turn_id AND session_id = @session_id AND ${TURN_IS_OPEN}
    AND ${WAITING_INPUTS} = @unread_inputs AND (@completed = 0 OR NOT EXISTS (SELECT 1 ${OPEN_WORKERS}))`;
export const LAND_TURN = `
  UPDATE sessions SET turn_count = turn_count + @completed, updated_at = @ended_at, pending_active_model = NULL,
    active_model = CASE WHEN pending_active_model IS NULL THEN active_model
      ELSE {json_field(pending_active_model, model)} END
  WHERE id = @session_id RETURNING turn_count, updated_at, active_model`;
export const INTERRUPT_TURN = `
  UPDATE turns SET status = 'interrupted', interrupted_reason = @reason,
    llm_call_count = @llm_call_count, tool_call_count = @tool_call_count
  WHERE id = @turn_id AND ${TURN_IS_OPEN}`;
export const RESUME_TURN = `
  UPDATE turns SET status = 'in_flight', interrupted_reason = NULL, resume_attempts = resume_attempts + @attempt
  WHERE id = @turn_id AND status = 'interrupted'`;
export const REQUEST_CONCLUSION = `
  UPDATE turns SET concluded_at = @at WHERE id = @turn_id AND concluded_at IS NULL AND ${TURN_IS_OPEN}`;
export const CONCLUDE_TURN = `
  UPDATE turns SET concluded_at = coalesce(concluded_at, @at), conclusion_message_id = @message_id
  WHERE id = @turn_id AND ${TURN_IS_OPEN}`;
export const SCORE_TURN = `
  UPDATE turns SET user_score_json = @user_score_json WHERE id = @turn_id AND NOT (${TURN_IS_OPEN})`;
export const INPUTS_WAITING = 'SELECT count(*) AS n FROM turn_inputs WHERE turn_id = ?';
/** What a turn leaves when it ends: inputs and results of workers that it has not read, and workers that are open. */
export const LEFT_OPEN = `
  SELECT ${WAITING_INPUTS} AS n, (SELECT count(*) ${OPEN_WORKERS}) AS workers`;
export const READ_INPUT = 'DELETE FROM turn_inputs WHERE id = ?';
export const TURN_STATUS = 'SELECT status FROM turns WHERE id = ?';
export const ENDED_TURN = `SELECT status FROM turns WHERE id = ? AND NOT (${TURN_IS_OPEN})`;
export const SETTLE_CALL = `
  UPDATE tool_calls SET status = @status, result_json = @result_json, changed_json = @changed_json,
    completed_at = @at
  WHERE id = @id AND status = 'pending'`;
export const ANSWER_CALL = 'UPDATE tool_calls SET result_message_id = @result_message_id WHERE id = @id';
export const CALL_ANSWERED = 'SELECT session_id, message_id, result_message_id FROM tool_calls WHERE id = ?';

export function turnRow({ retryable, forecast, ...turn }: TurnRecord, fingerprint: Fingerprint | null) {
  const shape = fingerprint === null ? null : toStoredFingerprint(fingerprint);
  return {
    ...turn,
    retryable: bit(retryable),
    tools_json: json(turn.tools),
    fingerprint_json: json(shape),
    forecast_json: json(forecast),
  };
}

/** The row of a message, the message as readers return it, and the length of its texts. */
export function messageRow(message: StoredMessage, log: Logger) {
  const raw = providerRaw(message, log);
  const content = JSON.stringify(message.content);
  return {
    row: {
      id: message.id,
      session_id: message.session_id,
      turn_id: message.turn_id,
      role: message.role,
      status: message.metadata.status,
      created_at: Date.parse(message.created_at),
      metadata_json: packMetadata(message.metadata),
      content_json: content,
      provider_raw_json: raw,
    },
    stored: raw === null && message.provider_raw !== null ? { ...message, provider_raw: null } : message,
    bytes: content.length + (raw?.length ?? 0),
  };
}

function providerRaw(message: StoredMessage, log: Logger): string | null {
  if (message.provider_raw === null) return null;
  const text = canonicalJson(message.provider_raw);
  const bytes = Buffer.byteLength(text);
  if (bytes <= PROVIDER_RAW_LIMIT) return text;
  log.warn({ session_id: message.session_id, message_id: message.id, bytes }, 'provider_raw too large, not stored');
  return null;
}

type Kinds = Extract<
  keyof Appliers,
  `turn.${string}` | `turn_input.${string}` | `message.${string}` | `tool_call.${string}`
>;

const insertTurn = insertRow('turns', TURN_COLUMNS);
const insertInput = insertRow('turn_inputs', INPUT_COLUMNS);
const insertMessage = insertRow('messages', MESSAGE_COLUMNS);
const insertCall = insertRow('tool_calls', CALL_COLUMNS);

function changeTurn(tx: Tx, statement: string, turn_id: string, values: object): void {
  tx.change(statement, { ...values, turn_id }, () => refuseTurn(tx, turn_id));
}

function refuseTurn(tx: Tx, turn_id: string): undefined {
  tx.run(TURN_STATUS, [turn_id], ({ rows }) => {
    const status = rows[0]?.status as TurnStatus | undefined;
    if (status === undefined) throw new JournalConflict('turn_gone', `no turn ${turn_id}`);
    throw turnRefusal(turn_id, status);
  });
}

const toAnsweredCall = ({ rows }: Answer) => (rows[0] as AnsweredCall | undefined) ?? null;
const countInputs = ({ rows }: Answer) => Number(rows[0]?.n ?? 0);

function linkResult(tx: Tx, message: StoredMessage, toolUseId: string): void {
  tx.run(CALL_ANSWERED, [toolUseId], (answer) => {
    const violation = resultViolation(message, toolUseId, toAnsweredCall(answer));
    if (violation !== null) throw new InvalidMessageError([violation]);
  });
  tx.run(ANSWER_CALL, { id: toolUseId, result_message_id: message.id });
}

export const turnWrites: Appliers<Kinds> = {
  'turn.insert': ({ turn, fingerprint = null }, { tx, effects }) => {
    tx.change(TOUCH_SESSION, turn, () => {
      throw new JournalConflict('session_ended', `session ${turn.session_id} has ended or does not exist`);
    });
    effects.sessions.push({ id: turn.session_id, values: { updated_at: turn.started_at } });
    effects.turns.push({ session_id: turn.session_id, isOpen: true });
    insertTurn(tx, turnRow(turn, fingerprint));
  },
  'turn.end': ({ turn_id, session_id, outcome, unread_inputs }, { tx, effects }) => {
    effects.turns.push({ session_id, isOpen: false });
    const { retryable, ...values } = outcome;
    const completed = bit(outcome.status === 'completed');
    const end = { ...values, turn_id, session_id, retryable: bit(retryable), unread_inputs, completed };
    tx.change(END_TURN, end, () => {
      tx.run(LEFT_OPEN, { turn_id }, (answer) => {
        const isFree = outcome.status !== 'completed' || Number(answer.rows[0]?.workers ?? 0) === 0;
        if (isFree && countInputs(answer) === unread_inputs) return refuseTurn(tx, turn_id);
        throw new JournalConflict('inputs_waiting', `turn ${turn_id} has got an input or has an open worker`);
      });
    });
    tx.read(LAND_TURN, { session_id, completed, ended_at: outcome.ended_at }, ({ rows }) => {
      const landed = rows[0] as Pick<SessionRecord, 'turn_count' | 'updated_at' | 'active_model'> | undefined;
      effects.sessions.push({ id: session_id, values: landed ? { ...landed, pending_active_model: null } : null });
    });
  },
  'turn.interrupt': (write, { tx }) => changeTurn(tx, INTERRUPT_TURN, write.turn_id, write),
  'turn.resume': ({ turn_id, count_attempt }, { tx }) =>
    changeTurn(tx, RESUME_TURN, turn_id, { attempt: bit(count_attempt) }),
  'turn.request_conclusion': (write, { tx }) => changeTurn(tx, REQUEST_CONCLUSION, write.turn_id, { at: write.at }),
  'turn.conclude': ({ turn_id, at, message_id }, { tx }) => changeTurn(tx, CONCLUDE_TURN, turn_id, { at, message_id }),
  'turn.score': ({ turn_id, user_score }, { tx }) =>
    changeTurn(tx, SCORE_TURN, turn_id, { user_score_json: json(user_score) }),
  'turn_input.insert': ({ input: { content, ...input } }, { tx }) => {
    tx.run(INPUTS_WAITING, [input.turn_id], (answer) => {
      if (countInputs(answer) < MAX_TURN_INPUTS) return;
      throw new JournalConflict('inputs_full', `${MAX_TURN_INPUTS} inputs wait for turn ${input.turn_id}`);
    });
    insertInput(tx, { ...input, content_json: json(content) });
  },
  'turn_input.read': ({ id }, { tx }) =>
    tx.run(READ_INPUT, [id], ({ changes }) => {
      if (changes === 0) throw new Error(`no input ${id}`);
    }),
  'message.insert': ({ message }, { tx, effects, log }) => {
    const { row, stored, bytes } = messageRow(message, log);
    insertMessage(tx, row);
    const toolUseId = message.role === 'tool' ? message.metadata.parent_tool_use_id : null;
    if (toolUseId !== null) linkResult(tx, message, toolUseId);
    effects.messages.push({ message: stored, bytes });
  },
  'tool_call.insert': ({ call }, { tx }) => insertCall(tx, call),
  'tool_call.settle': (write, { tx }) => {
    const values = { ...write, result_json: json(write.result), changed_json: json(write.changed ?? null) };
    tx.change(SETTLE_CALL, values, () => {
      throw new JournalConflict('turn_closed', `tool call ${write.id} is not pending`);
    });
  },
  // Storing the tool message has linked it already; this only confirms the pair.
  'tool_call.answer': ({ id, result_message_id }, { tx }) =>
    tx.run(CALL_ANSWERED, [id], (answer) => {
      if (toAnsweredCall(answer)?.result_message_id === result_message_id) return;
      throw new InvalidMessageError([`tool call ${id} is not answered by message ${result_message_id}`]);
    }),
};
