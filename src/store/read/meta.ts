// Price versions, request keys and `meta`: what every database is asked for (01 §11.3).
export const PRICE_VERSION =
  'SELECT version, content_hash, source, models_json, created_at FROM price_versions WHERE version = ?';
export const PRICE_VERSIONS =
  'SELECT version, content_hash, source, created_at FROM price_versions ORDER BY created_at DESC, version DESC';
export const KEYED = 'SELECT * FROM idempotency_keys WHERE method = ? AND path = ? AND token_hash = ? AND key = ?';
export const META = 'SELECT value FROM meta WHERE key = ?';
/** A row that is really written: an empty transaction succeeds on a full disk too. */
export const PROBE = "INSERT INTO meta (key, value) VALUES ('probe', '') ON CONFLICT (key) DO UPDATE SET value = ''";
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
