// Classifies the errors of PostgreSQL and maps them to those of the port (16 §3.4).
import { InvalidMessageError, JournalConflict, StorageFault } from '#core/ports/journal-writer.ts';

function sqlState(error: unknown): string {
  if (error instanceof Error && 'code' in error) return String(error.code);
  return '';
}

/** A statement after a failed one in the same transaction. */
export function isAborted(error: unknown): boolean {
  return sqlState(error) === '25P02';
}

/** A statement that must change a row changed none; nothing else that runs with it divides by zero. */
export function isNothingChanged(error: unknown): boolean {
  return sqlState(error) === '22012';
}

/** The server takes no writes: a standby before its promotion, or a server that its operator made read-only. */
export function isReadOnly(error: unknown): boolean {
  return sqlState(error) === '25006';
}

/** A pooler names the class of connection faults (08P01) also where its configuration or the address must change first. */
function isPoolerRefusal(error: unknown): boolean {
  return (
    sqlState(error) === '08P01' &&
    /^(unsupported startup parameter|no such (database|user)|bouncer config error|not allowed)|authentication failed$/.test(
      (error as Error).message,
    )
  );
}

/**
 * The connection or the server is gone, read-only, or short of something: the same statement may succeed a moment later
 * (16 §3.4).
 */
export function isTransient(error: unknown): boolean {
  if (isPoolerRefusal(error)) return false;
  return isConnectionFault(error) || isReadOnly(error) || /^(08|57|40|53)/.test(sqlState(error));
}

/** The database refuses the statement for a reason that is not in it: a permission, a missing table, a failing disk. */
export function isRefusal(error: unknown): boolean {
  return /^(?!21|22|23|54|P0)[0-9A-Z]{5}$/.test(sqlState(error));
}

/** The database cancelled the statement at its time limit. */
export function isOutOfTime(error: unknown): boolean {
  return sqlState(error) === '57014';
}

/** The same, or no answer arrived within an even longer limit. */
export function isTooSlow(error: unknown): boolean {
  return isOutOfTime(error) || (error instanceof Error && error.message.includes('Query read timeout'));
}

/** Error codes of the operating system: `ECONNRESET`, `ENETUNREACH`, `EAI_AGAIN`. Node's own begin with `ERR_`. */
const SOCKET_FAULT = /^E(?!RR_)[A-Z0-9_]+$|^ERR_(SOCKET|STREAM|SSL|TLS)_/;

/** The outcome of the last statement is unknown. */
export function isConnectionFault(error: unknown): boolean {
  const code = sqlState(error);
  if (SOCKET_FAULT.test(code) || /^(08|57P0|25P03)/.test(code)) return true;
  return (
    error instanceof Error &&
    /Connection terminated|timeout exceeded when trying to connect|Query read timeout|Client has encountered/.test(
      error.message,
    )
  );
}

const CONFLICTS: Readonly<Record<string, () => Error>> = {
  turns_open: () => new JournalConflict('turn_in_flight', 'the session has a turn that has not ended'),
  sessions_parent_tool_use: workerExists,
  delegations_pkey: workerExists,
  delegations_worker: workerExists,
  sessions_client: clientKnown,
  sessions_client_worker: clientKnown,
  idempotency_keys_pkey: () => new JournalConflict('idempotency_exists', 'the idempotency key is stored already'),
  pattern_outcomes_fingerprint_id_fkey: () =>
    new JournalConflict('shape_known', 'another node made the fingerprint under an id of its own'),
  tool_calls_pkey: () => new InvalidMessageError(['tool_use.id: is taken by another call']),
};

const UNIQUE = '23505';
const FOREIGN_KEY = '23503';

function workerExists(): Error {
  return new JournalConflict('worker_exists', 'the call has a worker already');
}
function clientKnown(): Error {
  return new JournalConflict('client_known', 'the client has a session of that name already');
}

/** The error to throw for one that PostgreSQL raised; anything unknown is returned as it came. */
export function journalFault(cause: unknown): unknown {
  if (!(cause instanceof Error)) return cause;
  const { code, constraint } = cause as Error & { readonly code?: string; readonly constraint?: string };
  if ((code === UNIQUE || code === FOREIGN_KEY) && constraint !== undefined) return CONFLICTS[constraint]?.() ?? cause;
  if (isReadOnly(cause)) return new StorageFault('the database is read-only', cause);
  if (isTransient(cause)) return new StorageFault('the database cannot be reached', cause);
  if (isRefusal(cause)) return new StorageFault(`the database refuses it with SQLSTATE ${code}`, cause);
  return cause;
}
