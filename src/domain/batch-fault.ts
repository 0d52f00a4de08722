// Why a batch is not written: it breaks a rule by itself, or the state of the database refuses it (01 §6, 02 §2).
export type ConflictCode =
  /** A second open turn on one session. */
  | 'turn_in_flight'
  /** An event or a change for a turn that has ended. */
  | 'turn_closed'
  | 'session_ended'
  | 'confirmation_resolved'
  /** A second worker for one delegation call. */
  | 'worker_exists'
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
