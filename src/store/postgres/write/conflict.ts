// What PostgreSQL raises, as the port names it (16 §3.4).
import { InvalidMessageError, JournalConflict, StorageFault } from '#core/ports/journal-writer.ts';
import { isReadOnly, isRefusal, isTransient } from '../connection/faults.ts';

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
  return isRefusal(cause) ? new StorageFault(`the database refuses it with SQLSTATE ${code}`, cause) : cause;
}
