// Rows that are written whole: workers of sessions, trusted files, price versions, request keys and `meta` (01 §11.3).
export const SET_META =
  'INSERT INTO meta (key, value) VALUES (@key, @value) ON CONFLICT (key) DO UPDATE SET value = excluded.value';
export const KEY_COLUMNS = [
  'method',
  'path',
  'token_hash',
  'key',
  'session_id',
  'body_hash',
  'status',
  'response_json',
  'expires_at',
] as const;
export const PRICE_COLUMNS = ['version', 'content_hash', 'source', 'models_json', 'created_at'] as const;
export const PRICE_HASH = 'SELECT content_hash FROM price_versions WHERE version = ?';

export function ratesChanged(version: string): Error {
  return new Error(
    `price table version ${version} was used before with other rates; give the changed table a new pricing_version`,
  );
}

export const WORKER_COLUMNS = [
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
/** Leaves the row of another session as it is. */
export const REPLACE_WORKER = `
  UPDATE worker_definitions SET created_by_tool_use_id = @created_by_tool_use_id, yaml = @yaml, path = @path,
    digest = @digest, edited_by_user = @edited_by_user, created_at = @created_at
  WHERE root_session_id = @root_session_id AND name = @name AND created_by_session_id = @created_by_session_id`;

export const PUT_TRUSTED_FILE = `INSERT INTO trusted_files (workspace_path, path, sha256, trusted_by, trusted_at)
  VALUES (@workspace_path, @path, @sha256, @trusted_by, @trusted_at)
  ON CONFLICT (workspace_path, path) DO UPDATE SET
    sha256 = excluded.sha256, trusted_by = excluded.trusted_by, trusted_at = excluded.trusted_at`;
export const REMOVE_TRUSTED_FILE = 'DELETE FROM trusted_files WHERE workspace_path = @workspace_path AND path = @path';
