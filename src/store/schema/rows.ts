// Converts rows to domain objects; the other direction is beside each statement that writes.

import { unpackMetadata, unpackPayload } from '#core/policy/journal/stored-payload.ts';
import type { ConfirmationRow } from '#core/ports/journal-writer.ts';
import type { ToolCallState } from '#core/ports/store-reader.ts';
import type { AttemptRecord } from '#protocol/check.ts';
import { isoTime } from '#protocol/clock.ts';
import type { Confirmation } from '#protocol/confirmation.ts';
import type { DelegationRecord, DeliveryRecord } from '#protocol/delegate.ts';
import type { AnyEvent } from '#protocol/event.ts';
import { NO_CHANGES, type WorkerChanges, type WorktreeRecord } from '#protocol/file-change.ts';
import type { Message, StoredMessage } from '#protocol/message.ts';
import { type Pusd, toPusdOrNull } from '#protocol/money.ts';
import { toPersonRef } from '#protocol/people/person.ts';
import type { Checkpoint } from '#protocol/prompt-parts.ts';
import type { SessionRecord } from '#protocol/session.ts';
import type { TurnInputRecord, TurnRecord, UserScore } from '#protocol/turn.ts';
import type { WorkerSnapshot } from '#protocol/worker-definition.ts';
import type * as conversation from './conversation.ts';
import type * as ledger from './ledger.ts';
import type * as memory from './memory.ts';
import { NO_TIMEOUT } from './words.ts';

/** Money beside other columns is selected as text: a JS number would lose picodollars. */
type WithLimit<Row extends { readonly max_cost_pusd: number | null }> = Row & {
  readonly max_cost_text: string | null;
};
export const LIMIT_AS_TEXT = 'CAST(max_cost_pusd AS TEXT) AS max_cost_text';

/** The name of a token that a row refers to, where it was selected. */
interface WithPerson {
  readonly person_name?: string | null;
}
export type SessionRow = WithLimit<typeof conversation.sessions.$inferSelect> & WithPerson;
export type TurnRow = typeof conversation.turns.$inferSelect & WithPerson;

/** Selects the name of the token whose id is in this column. */
export function selectPersonName(column: string): string {
  return `(SELECT p.name FROM tokens p WHERE p.id = ${column}) AS person_name`;
}
export type TurnInputRow = typeof conversation.turn_inputs.$inferSelect;
export type MessageRow = typeof conversation.messages.$inferSelect;
export type ToolCallRowStored = typeof conversation.tool_calls.$inferSelect;
export type DelegationRow = WithLimit<typeof conversation.delegations.$inferSelect>;
export type DeliveryRow = typeof conversation.deliveries.$inferSelect;
export type ConfirmationRowStored = typeof conversation.confirmations.$inferSelect;
export type WorktreeRow = typeof memory.worktrees.$inferSelect;
export type AttemptRow = typeof memory.delegation_attempts.$inferSelect;
export type CheckpointRow = typeof memory.compaction_checkpoints.$inferSelect;
/** A row of the view `events`. */
export type EventRow = Omit<typeof ledger.event_rows.$inferSelect, 'session_key' | 'type' | 'actor' | 'sensitivity'> &
  Readonly<Record<'session_id' | 'type' | 'actor' | 'sensitivity', string>>;

function parseColumn<T>(text: string): T {
  return JSON.parse(text) as T;
}
function parsedOrNull<T>(text: string | null): T | null {
  if (text === null) return null;
  return parseColumn<T>(text);
}
export function isoOrNull(ms: number | null): string | null {
  if (ms === null) return null;
  return isoTime(ms);
}
export function pusdOrNull(text: string | null): Pusd | null {
  if (text === null) return null;
  return BigInt(text) as Pusd;
}

export function sessionRecord(row: SessionRow): SessionRecord {
  const {
    allow_workers_json,
    worker_definition_json,
    max_cost_text,
    budget_warned_pusd,
    confirm_above_usd,
    person_name: _,
    experiment_id: __,
    experiment_json,
    ...rest
  } = row;
  return {
    ...rest,
    experiment: parsedOrNull(experiment_json),
    pending_active_model: parsedOrNull(row.pending_active_model),
    is_worker: row.is_worker === 1,
    has_workspace: row.has_workspace === 1,
    record_case: row.record_case === 1,
    allow_workers: parsedOrNull(allow_workers_json),
    worker_definition: parsedOrNull(worker_definition_json),
    max_cost_pusd: pusdOrNull(max_cost_text),
    confirm_above_pusd: toPusdOrNull(confirm_above_usd),
  } as SessionRecord;
}

export function turnRecord(row: TurnRow): TurnRecord {
  const { tools_json, fingerprint_json, user_score_json, forecast_json, person_name: _, ...rest } = row;
  return {
    ...rest,
    forecast: parsedOrNull(forecast_json),
    retryable: row.retryable === null ? null : row.retryable === 1,
    tools: parseColumn(tools_json),
  } as TurnRecord;
}

export function userScore({ user_score_json }: TurnRow): UserScore | null {
  return parsedOrNull(user_score_json);
}

export function turnInput({ content_json, ...row }: TurnInputRow): TurnInputRecord {
  return { ...row, content: parseColumn(content_json) } as TurnInputRecord;
}

export function deliveryRecord({ delivered_at: _, message_id: __, ...row }: DeliveryRow): DeliveryRecord {
  return row as DeliveryRecord;
}

/** Without `provider_raw`, which never leaves the engine. */
export function wireMessage(row: Omit<MessageRow, 'provider_raw_json'>): Message {
  return {
    id: row.id,
    session_id: row.session_id,
    turn_id: row.turn_id,
    role: row.role,
    content: parseColumn(row.content_json),
    metadata: unpackMetadata(parseColumn(row.metadata_json), row.status),
    created_at: isoTime(row.created_at),
  } as Message;
}
export function storedMessage(row: MessageRow): StoredMessage {
  return { ...wireMessage(row), provider_raw: parsedOrNull(row.provider_raw_json) };
}

export function checkpoint(row: CheckpointRow): Checkpoint {
  const { message_ids_json, through_message_id, summary_text, model, kind, ...step } = row;
  return (
    kind === 'elide'
      ? { ...step, kind, message_ids: parseColumn(message_ids_json ?? '[]') }
      : { ...step, kind, through_message_id, summary_text, model }
  ) as Checkpoint;
}

export function toolCallState(row: ToolCallRowStored): ToolCallState {
  return {
    id: row.id,
    session_id: row.session_id,
    message_id: row.message_id,
    name: row.name,
    status: row.status,
    result: parsedOrNull(row.result_json),
    answered: row.result_message_id !== null,
  } as ToolCallState;
}

const OLDER_REQUEST = {
  worker: null,
  attachments: [],
  effort: null,
  isolation: 'shared',
  apply: 'each',
  check: null,
  on_fail: [],
} satisfies Partial<DelegationRecord['request']>;

export function delegationRecord(row: DelegationRow): DelegationRecord {
  const {
    max_cost_text,
    effective_tools_json,
    dropped_tools_json,
    output_json,
    request_json,
    changes_json,
    allowed_tool_count,
    timeout_seconds,
    ...rest
  } = row;
  const stored = parseColumn<Partial<DelegationRecord['request']>>(request_json);
  return {
    ...rest,
    // The column holds 0 where nothing was asked for.
    allowed_tool_count: (stored.allowed_tools ?? null) === null ? null : allowed_tool_count,
    timeout_seconds: timeout_seconds === NO_TIMEOUT ? null : timeout_seconds,
    effective_tools: parseColumn(effective_tools_json),
    dropped_tools: parseColumn(dropped_tools_json),
    max_cost_pusd: pusdOrNull(max_cost_text),
    output: parsedOrNull(output_json),
    // Older rows know no named workers, no effort, no worktrees and no checks.
    request: { ...OLDER_REQUEST, ...stored },
    ...NO_CHANGES,
    isolation: stored.isolation ?? 'shared',
    ...parsedOrNull<WorkerChanges>(changes_json),
  } as DelegationRecord;
}

export function worktreeRecord(row: WorktreeRow): WorktreeRecord {
  return { ...row, applied: row.applied === null ? null : row.applied === 1 } as WorktreeRecord;
}

export function attemptRecord({ protected_json, passed, ...row }: AttemptRow): AttemptRecord {
  const protected_changes = parseColumn<readonly string[]>(protected_json);
  return { ...row, passed: passed === null ? null : passed === 1, protected_changes } as AttemptRecord;
}

export function confirmationRow(row: ConfirmationRowStored): ConfirmationRow {
  return {
    id: row.id,
    session_id: row.session_id,
    turn_id: row.turn_id,
    root_session_id: row.root_session_id,
    tool_use_id: row.tool_use_id,
    tool_name: row.tool_name,
    rule: row.rule,
    key_hash: row.key_hash,
    request: parseColumn(row.request_json),
    input: parseColumn(row.input_json),
    requested_at: row.requested_at,
    expires_at: row.expires_at,
  } as ConfirmationRow;
}
/** Requests that were stored before delegations were confirmed together. */
const OLDER_CONFIRMATION = { kind: 'tool', tool_use_ids: [] } as const;

/** The description of the rule that requires the approval, found by the tool's name or its group's. */
function ruleDescription({ tool_name, rule, worker_definition_json }: ShownConfirmation): string | null {
  const snapshot = parsedOrNull<WorkerSnapshot>(worker_definition_json ?? null);
  const rules = snapshot?.definition.tool_rules ?? {};
  const names = rule === 'sandbox.read' ? [rule] : [tool_name, rule];
  const key = names.find((name) => name !== null && Object.hasOwn(rules, name));
  if (key == null) return null;
  return rules[key]?.description ?? null;
}

/** With the worker definition of the requesting session; absent where it was not joined. */
export type ShownConfirmation = ConfirmationRowStored &
  WithPerson & { readonly worker_definition_json?: string | null };

export function wireConfirmation(row: ShownConfirmation): Confirmation {
  return {
    ...OLDER_CONFIRMATION,
    ...parseColumn<Confirmation>(row.request_json),
    session_id: row.session_id,
    turn_id: row.turn_id,
    requested_at: isoTime(row.requested_at),
    rule_description: ruleDescription(row),
    decision: row.decision,
    scope: row.scope,
    reason: row.reason,
    resolved_by: row.resolved_by,
    resolved_at: isoOrNull(row.resolved_at),
    ...(row.answered_by !== null && { answered_by: toPersonRef(row.answered_by, row.person_name ?? null) }),
  } as Confirmation;
}

/** An event of an unknown type is returned as it was written (02 §5). */
export function storedEvent(row: EventRow): AnyEvent {
  return {
    id: row.id,
    timestamp: isoTime(row.timestamp_ms),
    session_id: row.session_id,
    turn_id: row.turn_id,
    parent_event_id: row.parent_event_id,
    type: row.type,
    actor: row.actor,
    payload: unpackPayload(row.type, parseColumn(row.payload_json), row),
    sensitivity: row.sensitivity,
  } as AnyEvent;
}

/** An event and the text of its payload as it was published. */
export function rawEvent(row: EventRow): { readonly event: AnyEvent; readonly payload_json: string } {
  const event = storedEvent(row);
  return { event, payload_json: JSON.stringify(event.payload) };
}
