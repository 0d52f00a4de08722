// Opaque page cursors: the last sort key, bound to the query it came from (05 §1.7).

import { validationError } from '#protocol/errors.ts';
import { canonicalJson, sha256Hex } from '#protocol/text/canonical-json.ts';

const HASH_LENGTH = 16;

/** What a page is a page of: the path and every filter, without `cursor` and `limit`. */
export type PageScope = Readonly<Record<string, unknown>>;

/** Null for the last page. */
export function encodeCursor(key: string | null, scope: PageScope): string | null {
  if (key === null) return null;
  return Buffer.from(JSON.stringify({ k: key, q: hashOf(scope) })).toString('base64url');
}

/** The sort key to go on after; null for the first page. Throws `validation_error`. */
export function decodeCursor(cursor: string | undefined, scope: PageScope): string | null {
  if (cursor === undefined) return null;
  const { k, q } = parsed(cursor);
  if (typeof k !== 'string' || typeof q !== 'string') throw refused('is not a cursor of this server');
  if (q !== hashOf(scope)) throw refused('belongs to a query with other parameters; start again without it');
  return k;
}

function parsed(cursor: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(Buffer.from(cursor, 'base64url').toString('utf8'));
    return typeof value === 'object' && value !== null ? { ...value } : {};
  } catch {
    return {};
  }
}

function hashOf(scope: PageScope): string {
  return sha256Hex(canonicalJson(scope)).slice(0, HASH_LENGTH);
}

function refused(message: string) {
  return validationError([{ path: 'cursor', message }]);
}
