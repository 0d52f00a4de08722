// Files that a person has trusted: what every database is asked for and writes (20 §11).

export const DIGEST = 'SELECT sha256 FROM trusted_files WHERE workspace_path = ? AND path = ?';
export const LIST = 'SELECT * FROM trusted_files WHERE workspace_path = ? ORDER BY path';
export const PUT = `INSERT INTO trusted_files (workspace_path, path, sha256, trusted_by, trusted_at)
  VALUES (@workspace_path, @path, @sha256, @trusted_by, @trusted_at)
  ON CONFLICT (workspace_path, path) DO UPDATE SET
    sha256 = excluded.sha256, trusted_by = excluded.trusted_by, trusted_at = excluded.trusted_at`;
export const REMOVE = 'DELETE FROM trusted_files WHERE workspace_path = @workspace_path AND path = @path';
