// Maps the errors of SQLite to those of the port: the rule behind a violated index, and a disk that refuses writes.
import Database from 'better-sqlite3';
import { InvalidMessageError, JournalConflict, StorageFault } from '#core/ports/journal-writer.ts';

/** By the prefix of SQLite's error code. */
const REFUSALS: readonly (readonly [string, string])[] = [
  ['SQLITE_FULL', 'the disk is full'],
  ['SQLITE_READONLY', 'the database cannot be written'],
  ['SQLITE_CANTOPEN', 'the database cannot be opened for writing'],
  ['SQLITE_IOERR', 'the disk reports an error'],
];

/** The error to throw for one that SQLite raised; anything unknown is returned as it came. */
export function journalFault(cause: unknown): unknown {
  if (!(cause instanceof Database.SqliteError)) return cause;
  const refusal = REFUSALS.find(([code]) => cause.code.startsWith(code));
  if (refusal) return new StorageFault(refusal[1], cause);
  if (cause.code !== 'SQLITE_CONSTRAINT_UNIQUE' && cause.code !== 'SQLITE_CONSTRAINT_PRIMARYKEY') return cause;
  const columns = cause.message.slice(cause.message.indexOf(':') + 2);
  if (columns === 'turns.session_id') {
    return new JournalConflict('turn_in_flight', 'the session has a turn that has not ended');
  }
  if (
    columns === 'sessions.parent_tool_use_id' ||
    columns === 'delegations.tool_use_id' ||
    columns === 'delegations.worker_session_id'
  ) {
    return new JournalConflict('worker_exists', 'the call has a worker already');
  }
  if (
    columns === 'sessions.caller, sessions.client_ref' ||
    columns === 'sessions.root_session_id, sessions.client_ref'
  ) {
    return new JournalConflict('client_known', 'the client has a session of that name already');
  }
  if (columns.startsWith('idempotency_keys.')) {
    return new JournalConflict('idempotency_exists', 'the idempotency key is stored already');
  }
  if (columns === 'tool_calls.id') return new InvalidMessageError(['tool_use.id: is taken by another call']);
  return cause;
}
