// One atomic step: the rows that it changes and the events that it records (00 §3, 02 §2).

import type { AttemptRecord } from './check.ts';
import type { Decision, Scope } from './confirmation.ts';
import type { DelegationRecord, DeliveryRecord } from './delegate.ts';
import type { Transient } from './delta.ts';
import type { ToolConfirmationRequested } from './event/tool-events.ts';
import type { EventDraft } from './event.ts';
import type { CallChanges, WorkerChanges, WorktreeRecord } from './file-change.ts';
import type { ConfirmationId, MessageId, SessionId, ToolUseId, TurnId } from './ids.ts';
import type { Fingerprint, PatternRecord } from './learned-pattern.ts';
import type { StoredMessage, ToolResultBlock } from './message.ts';
import type { Pusd } from './money.ts';
import type { AuditRecord, Share, TokenRecord } from './people/person.ts';
import type { Checkpoint } from './prompt-parts.ts';
import type { OnReached } from './scalars.ts';
import type { Disposition, SessionRecord } from './session.ts';
import type { ToolCallStatus } from './tool.ts';
import type { TurnInputRecord, TurnRecord, UserScore } from './turn.ts';
import type { CaseCallRecord, CaseStart } from './what-if/case.ts';
import type { TreeCost } from './what-if/cost-ahead.ts';
import type { SessionWorker, TrustedText } from './worker-definition.ts';

/** How a turn ended: the columns written with its terminal event. */
export type TurnOutcome = Pick<
  TurnRecord,
  | 'stop_reason'
  | 'cancel_reason'
  | 'error_code'
  | 'error_class'
  | 'error_message'
  | 'retryable'
  | 'llm_call_count'
  | 'tool_call_count'
  | 'wall_time_seconds'
  | 'final_message_id'
> & { readonly status: 'completed' | 'cancelled' | 'failed'; readonly ended_at: number };

export interface ToolCallRow {
  readonly id: ToolUseId;
  readonly session_id: SessionId;
  readonly turn_id: TurnId;
  readonly message_id: MessageId;
  readonly name: string;
  readonly status: ToolCallStatus;
  readonly provider: string;
  readonly provider_id: string | null;
  readonly created_at: number;
}

export interface ConfirmationRow {
  readonly id: ConfirmationId;
  readonly session_id: SessionId;
  readonly turn_id: TurnId;
  readonly root_session_id: SessionId;
  readonly tool_use_id: ToolUseId;
  readonly tool_name: string;
  readonly rule: string | null;
  readonly key_hash: string | null;
  readonly request: ToolConfirmationRequested;
  readonly input: Readonly<Record<string, unknown>>;
  readonly requested_at: number;
  readonly expires_at: number;
}

export interface IdempotencyRow {
  readonly method: string;
  readonly path: string;
  /** '' without auth. */
  readonly token_hash: string;
  readonly key: string;
  readonly session_id: string | null;
  readonly body_hash: string;
  readonly status: number;
  readonly response_json: string;
  readonly expires_at: number;
}

/** A change of a row, named after what happened. Applied in order, before the batch's events. */
export type Write =
  | { readonly kind: 'session.insert'; readonly session: SessionRecord }
  | {
      readonly kind: 'session.set_model';
      readonly session_id: SessionId;
      readonly model: string | null;
      readonly at: number;
    }
  | {
      readonly kind: 'session.queue_model';
      readonly session_id: SessionId;
      /** Null drops a queued swap. */
      readonly pending: { readonly model: string | null } | null;
      readonly at: number;
    }
  | {
      readonly kind: 'session.set_limit';
      readonly session_id: SessionId;
      readonly max_cost_pusd: Pusd | null;
      readonly at: number;
    }
  | {
      readonly kind: 'session.set_on_reached';
      readonly session_id: SessionId;
      readonly on_reached: OnReached;
      readonly at: number;
    }
  | {
      /** The folder alone: reports go on to count its money where they began to. */
      readonly kind: 'session.set_workspace';
      readonly session_id: SessionId;
      readonly workspace_path: string;
      readonly at: number;
    }
  | {
      /** Of a root session and its workers, ended ones too. What is absent stays. */
      readonly kind: 'session.set_ownership';
      readonly session_id: SessionId;
      readonly owner?: string | null;
      readonly share?: Share;
      readonly at: number;
    }
  | { readonly kind: 'session.set_policy_version'; readonly session_id: SessionId; readonly version: string | null }
  | {
      readonly kind: 'session.end';
      readonly session_id: SessionId;
      readonly disposition: Disposition;
      readonly at: number;
    }
  | {
      readonly kind: 'turn.insert';
      readonly turn: TurnRecord;
      /** Absent where nothing is learned of it. */
      readonly fingerprint?: Fingerprint | null;
    }
  /** Also lands a queued model swap and counts the turn (04 §3.1 step 6). */
  | {
      readonly kind: 'turn.end';
      readonly turn_id: TurnId;
      readonly session_id: SessionId;
      readonly outcome: TurnOutcome;
      /** Inputs and results of workers that it leaves unread: fails the batch with `inputs_waiting` when they are not that many, or when it completes and workers are open. */
      readonly unread_inputs: number;
    }
  | {
      readonly kind: 'turn.interrupt';
      readonly turn_id: TurnId;
      readonly reason: 'restart' | 'budget';
      readonly llm_call_count: number;
      readonly tool_call_count: number;
    }
  | { readonly kind: 'turn.resume'; readonly turn_id: TurnId; readonly count_attempt: boolean }
  /** Requests the turn's conclusion. Fails the batch for a turn that has ended, or whose conclusion was requested before. */
  | { readonly kind: 'turn.request_conclusion'; readonly turn_id: TurnId; readonly at: number }
  /** The message that asks for the last answer is in the history. */
  | { readonly kind: 'turn.conclude'; readonly turn_id: TurnId; readonly at: number; readonly message_id: MessageId }
  /** A user's score of an ended turn; replaces an earlier score. Fails the batch while the turn is open. */
  | { readonly kind: 'turn.score'; readonly turn_id: TurnId; readonly user_score: UserScore }
  /** Fails the batch with `turn_closed`, or with `inputs_full` when as many wait as may. */
  | { readonly kind: 'turn_input.insert'; readonly input: TurnInputRecord }
  /** It is stored as a message from now on. */
  | { readonly kind: 'turn_input.read'; readonly id: string }
  | { readonly kind: 'message.insert'; readonly message: StoredMessage }
  | { readonly kind: 'checkpoint.insert'; readonly checkpoint: Checkpoint }
  | { readonly kind: 'tool_call.insert'; readonly call: ToolCallRow }
  | {
      readonly kind: 'tool_call.settle';
      readonly id: ToolUseId;
      readonly status: ToolCallStatus;
      readonly result: ToolResultBlock | null;
      /** Changes of the workspace by the call; absent = none. */
      readonly changed?: CallChanges;
      readonly at: number;
    }
  /** The stored tool message that answers the call. */
  | { readonly kind: 'tool_call.answer'; readonly id: ToolUseId; readonly result_message_id: MessageId }
  | { readonly kind: 'delegation.insert'; readonly delegation: DelegationRecord }
  | { readonly kind: 'delegation.interrupt'; readonly tool_use_id: ToolUseId; readonly active_seconds: number }
  | { readonly kind: 'delegation.resume'; readonly tool_use_id: ToolUseId }
  | ({ readonly kind: 'delegation.end'; readonly tool_use_id: ToolUseId } & Pick<
      DelegationRecord,
      'failure_mode' | 'error_message' | 'output' | 'active_seconds'
    > & {
        readonly status: 'completed' | 'failed';
        readonly changes: WorkerChanges;
        readonly ended_at: number;
      })
  /** Stored with the end of a background worker's delegation. */
  | { readonly kind: 'delivery.insert'; readonly delivery: Omit<DeliveryRecord, 'read_by'> }
  /** The result of this call holds it. Fails the batch with `delivery_read` when it was read before. */
  | { readonly kind: 'delivery.claim'; readonly id: string; readonly read_by: ToolUseId }
  /** It is in the history from now on, as this message or within it. Fails the batch with `delivery_read` when it was before. */
  | { readonly kind: 'delivery.deliver'; readonly id: string; readonly message_id: MessageId; readonly at: number }
  /** Its changes were applied, or tried to be: afterwards, or together with those of others before its end. */
  | { readonly kind: 'delegation.applied'; readonly tool_use_id: ToolUseId; readonly changes: WorkerChanges }
  /** With the session that is recorded. */
  | { readonly kind: 'case.start'; readonly session_id: SessionId; readonly start: CaseStart }
  | ({ readonly kind: 'case.call' } & CaseCallRecord)
  /** In place of what was stored of the worktree before. */
  | { readonly kind: 'worktree.put'; readonly worktree: WorktreeRecord }
  | { readonly kind: 'worktree.remove'; readonly session_id: SessionId }
  /** In place of what was stored of the attempt before. */
  | { readonly kind: 'attempt.put'; readonly attempt: AttemptRecord }
  | { readonly kind: 'confirmation.insert'; readonly confirmation: ConfirmationRow }
  /** Conditional: fails the batch with `confirmation_resolved` if the confirmation is resolved already. */
  | {
      readonly kind: 'confirmation.resolve';
      readonly id: ConfirmationId;
      readonly decision: Decision;
      readonly scope: Scope | null;
      readonly reason: string | null;
      readonly modified: Readonly<Record<string, unknown>> | null;
      readonly resolved_by: 'user' | 'policy';
      /** Id of the token that answered; absent = no named token. */
      readonly answered_by?: string | null;
      readonly at: number;
    }
  /** Fails the batch with `name_taken` when a token, a revoked one too, has the name. */
  | { readonly kind: 'token.insert'; readonly token: TokenRecord }
  /** Fails the batch with `last_admin` where no other token of an admin is left; `other_admins` are those of the file. */
  | { readonly kind: 'token.revoke'; readonly id: string; readonly at: number; readonly other_admins: number }
  /** Deletes entries that are older than `drop_before` (Unix ms); null = none. */
  | { readonly kind: 'audit.insert'; readonly entry: AuditRecord; readonly drop_before: number | null }
  /** Fails the batch with `worker_exists` when the tree has one of the name. */
  | { readonly kind: 'worker.insert'; readonly worker: SessionWorker }
  /** In place of what was trusted of this path before. */
  | { readonly kind: 'trusted_file.put'; readonly file: TrustedText }
  | { readonly kind: 'trusted_file.remove'; readonly workspace_path: string; readonly path: string }
  /** Takes the place of the worker of its tree, name and creating session. */
  | { readonly kind: 'worker.replace'; readonly worker: SessionWorker }
  | { readonly kind: 'idempotency.insert'; readonly row: IdempotencyRow }
  /** The limit a root session was warned about (14 §1). */
  | { readonly kind: 'session.warned'; readonly session_id: SessionId; readonly limit_pusd: Pusd }
  | { readonly kind: 'meta.set'; readonly key: string; readonly value: string }
  /** Fails the batch when its turn is gone. */
  | { readonly kind: 'pattern.record'; readonly record: PatternRecord }
  /** Fails the batch when the turn is not recorded, or has a score that is not to be replaced. */
  | {
      readonly kind: 'pattern.score';
      readonly turn_id: string;
      readonly score: number;
      readonly replaces: boolean;
      /** Whether a check or a person gave it. */
      readonly is_verified: boolean;
      readonly at: number;
    }
  /** The work has ended in the same batch. */
  | { readonly kind: 'tree_cost.insert'; readonly cost: TreeCost }
  /** Of a shape without outcomes nothing stays. */
  | {
      readonly kind: 'pattern.forget';
      readonly fingerprint_id: string;
      readonly primary_model: string;
      readonly is_worker: boolean;
    };

/** One atomic step. `emit` is in order; a draft's numeric `parent` is an index into it. */
export interface Batch {
  readonly writes?: readonly Write[];
  readonly emit: readonly (EventDraft | Transient)[];
}

// Why a batch is not written: it breaks a rule by itself, or the state of the database refuses it (01 §6, 02 §2).

type ConflictCode =
  /** A second open turn on one session. */
  | 'turn_in_flight'
  /** An event or a change for a turn that has ended. */
  | 'turn_closed'
  | 'session_ended'
  /** An event of a session that is not there, or not any more. */
  | 'session_gone'
  /** A change for a turn that is not there, or not any more. */
  | 'turn_gone'
  /** A turn was to end with another number of unread inputs than it has. */
  | 'inputs_waiting'
  /** The result of a worker is in the history, or in the result of another call. */
  | 'delivery_read'
  /** No further input may wait for the turn. */
  | 'inputs_full'
  | 'confirmation_resolved'
  /** A fingerprint that the workspace has under another id. */
  | 'shape_known'
  /** A second worker for one delegation call. */
  | 'worker_exists'
  /** A client's name for a session that has one already. */
  | 'client_known'
  | 'name_taken'
  | 'last_admin'
  /** A fork of another owner is open, whose messages the purge would delete. */
  | 'fork_open'
  | 'idempotency_exists';

/** The state of the database refused the batch; nothing of it was written. */
export class JournalConflict extends Error {
  readonly code: ConflictCode;

  constructor(code: ConflictCode, message: string) {
    super(message);
    this.code = code;
    this.name = 'JournalConflict';
  }
}

/**
 * The tree of the batch is another node's now; nothing was written, and nothing more of it is to be (16 §4.4). Signals of
 * the tree abort with it too.
 */
export class TreeLost extends Error {
  /** After that another node may go on with the tree: whatever still runs of it must be gone. */
  readonly patience_ms: number;

  constructor(root: string, patienceMs = 0) {
    super(`the tree of ${root} is held by this node no longer`);
    this.patience_ms = patienceMs;
    this.name = 'TreeLost';
  }
}

/** A message or a worker's result came for a turn that was about to end, or a worker is open. */
export function isInputsWaiting(error: unknown): boolean {
  return error instanceof JournalConflict && error.code === 'inputs_waiting';
}

/** Another request has opened the session of this client's name first. */
export function isClientKnown(error: unknown): boolean {
  return error instanceof JournalConflict && error.code === 'client_known';
}

/** Nothing can be stored at present; the message gives the reason. */
export class StorageFault extends Error {
  constructor(message: string, cause: unknown) {
    super(message, { cause });
    this.name = 'StorageFault';
  }
}

/** A message that breaks the invariants of 01 §6. */
export class InvalidMessageError extends Error {
  readonly violations: readonly string[];

  constructor(violations: readonly string[]) {
    super(`invalid message: ${violations.join('; ')}`);
    this.violations = violations;
    this.name = 'InvalidMessageError';
  }
}
export class UnknownEventTypeError extends Error {
  constructor(type: string) {
    super(`unknown event type: ${type}`);
    this.name = 'UnknownEventTypeError';
  }
}
export class EventValidationError extends Error {
  readonly event_type: string;
  readonly errors: readonly string[];

  constructor(event_type: string, errors: readonly string[]) {
    super(`invalid ${event_type}: ${errors.join('; ')}`);
    this.event_type = event_type;
    this.errors = errors;
    this.name = 'EventValidationError';
  }
}
