// Unique indices as the port names them: which rule of the model a violated index stands for.
import Database from 'better-sqlite3';
import { InvalidMessageError, JournalConflict } from '../../../ports/journal.ts';

/** The error to throw for one that SQLite raised; anything unknown is returned as it came. */
export function asConflict(cause: unknown): unknown {
  if (!(cause instanceof Database.SqliteError)) return cause;
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
  if (columns.startsWith('idempotency_keys.')) {
    return new JournalConflict('idempotency_exists', 'the idempotency key is stored already');
  }
  if (columns === 'tool_calls.id') return new InvalidMessageError(['tool_use.id: is taken by another call']);
  return cause;
}
