// Workers of sessions: what every database is asked for (13 §3.4).
import type { SessionWorker } from '#protocol/worker/session-worker.ts';

export const BY_NAME = 'SELECT * FROM worker_definitions WHERE root_session_id = ? AND name = ?';
export const OF_TREE = 'SELECT * FROM worker_definitions WHERE root_session_id = ? ORDER BY name';

export const COLUMNS = [
  'root_session_id',
  'name',
  'created_by_session_id',
  'created_by_tool_use_id',
  'yaml',
  'path',
  'digest',
  'edited_by_user',
  'created_at',
] as const;

/** A row that is not there, or is another session's, stays as it is. */
export const REPLACE = `
  UPDATE worker_definitions SET created_by_tool_use_id = @created_by_tool_use_id, yaml = @yaml, path = @path,
    digest = @digest, edited_by_user = @edited_by_user, created_at = @created_at
  WHERE root_session_id = @root_session_id AND name = @name AND created_by_session_id = @created_by_session_id`;

export type WorkerRow = Omit<SessionWorker, 'edited_by_user'> & { readonly edited_by_user: number };

export function sessionWorker(row: WorkerRow): SessionWorker {
  return { ...row, edited_by_user: row.edited_by_user === 1 };
}
