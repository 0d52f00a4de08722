// Titles of sessions that were read: a message once stored never changes (01 §7.1).
import type Database from 'better-sqlite3';
import * as sql from '#store/read/sessions.ts';

const MAX_CACHED = 10_000;

/** Null before the first user message, or when that has no text. Once there is one it never changes, so it is kept. */
export function createTitles(db: Database.Database): (sessionId: string) => string | null {
  const cached = new Map<string, string | null>();
  const first = db.prepare<[string], string>(sql.FIRST_MESSAGE).pluck();
  return (sessionId) => {
    const known = cached.get(sessionId);
    if (known !== undefined) return known;
    const content = first.get(sessionId);
    if (content === undefined) return null;
    const title = sql.titleOf(content);
    if (cached.size >= MAX_CACHED) cached.delete(cached.keys().next().value ?? '');
    cached.set(sessionId, title);
    return title;
  };
}
