// Why a batch is not written: it breaks a rule by itself, or the state of the database refuses it (01 §6, 02 §2).
export type ConflictCode =
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
  /** No further input may wait for the turn. */
  | 'inputs_full'
  | 'confirmation_resolved'
  /** A fingerprint that the workspace has under another id. */
  | 'shape_known'
  /** A second worker for one delegation call. */
  | 'worker_exists'
  /** A client's name for a session that has one already. */
  | 'client_known'
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

/** A message came for a turn that was about to end. */
export function isInputsWaiting(error: unknown): boolean {
  return error instanceof JournalConflict && error.code === 'inputs_waiting';
}

/** Somebody else opened the session of this client's name first. */
export function isClientKnown(error: unknown): boolean {
  return error instanceof JournalConflict && error.code === 'client_known';
}

/** Nothing can be stored at present; the message says why. */
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
