// Fills a data folder with many sessions: one real turn is run, and its rows are copied under new ids.
import path from 'node:path';
import Database from 'better-sqlite3';
import { createIdGenerator } from '#protocol/ids.ts';
import { createClient, marker, openSession } from './client.mjs';
import { startServer } from './processes.mjs';

const SESSIONS_PER_TRANSACTION = 2000;

/**
 * @param sessions each with a turn, its messages and `events` events
 * @param longest messages of one more session, and as many events; 0 for none
 * @returns id of that session, or null
 */
export async function seed(bench, data, { sessions, events, longest = 0 }) {
  const pattern = await oneTurn(bench, data);
  const db = new Database(path.join(data, 'metis.db'));
  try {
    db.pragma('synchronous = OFF');
    const ids = createIdGenerator(() => Date.now(), Math.random);
    ids.seed(db.prepare('SELECT max(id) FROM events').pluck().get());
    const copy = copier(db, pattern);
    const some = db.transaction((count) => {
      for (let i = 0; i < count; i++) copy(ids, { events, messages: pattern.messages.length });
    });
    for (let left = sessions; left > 0; left -= SESSIONS_PER_TRANSACTION)
      some(Math.min(left, SESSIONS_PER_TRANSACTION));
    const long = longest > 0 ? db.transaction(() => copy(ids, { events: longest, messages: longest }))() : null;
    // What was copied is learned, as it is in a server that was stopped in order.
    db.prepare("UPDATE meta SET value = (SELECT max(id) FROM events) WHERE key = 'learning_cursor'").run();
    db.pragma('wal_checkpoint(TRUNCATE)');
    return long;
  } finally {
    db.close();
  }
}

/** The rows that one short session leaves. */
async function oneTurn(bench, data) {
  const server = await startServer(data, bench.provider);
  const client = createClient(server.url);
  try {
    const session = await openSession(client, bench);
    await session.turn(marker({ chunks: 20 }));
    session.close();
    const db = new Database(path.join(data, 'metis.db'), { readonly: true });
    const rows = (sql) => db.prepare(sql).all(session.id);
    const pattern = {
      session: rows('SELECT * FROM sessions WHERE id = ?')[0],
      turn: rows('SELECT * FROM turns WHERE session_id = ?')[0],
      messages: rows('SELECT * FROM messages WHERE session_id = ? ORDER BY id'),
      events: rows(
        'SELECT e.* FROM event_rows e JOIN event_sessions s USING (session_key) WHERE s.session_id = ? ORDER BY e.id',
      ),
    };
    db.close();
    return pattern;
  } finally {
    client.close();
    await server.stop();
  }
}

/** Stores a copy of the pattern, with its messages and events repeated as often as asked; gives the session's id. */
function copier(db, { session, turn, messages, events }) {
  const insert = (table, row) => {
    const names = Object.keys(row);
    return db.prepare(`INSERT INTO ${table} (${names.join(', ')}) VALUES (${names.map((n) => `@${n}`).join(', ')})`);
  };
  const sessionInsert = insert('sessions', session);
  const turnInsert = insert('turns', turn);
  const messageInsert = insert('messages', messages[0]);
  const keyInsert = insert('event_sessions', { session_id: '' });
  const eventInsert = insert('event_rows', events[0]);
  return (ids, wanted) => {
    const session_id = ids.session();
    const turn_id = ids.turn();
    sessionInsert.run({ ...session, id: session_id, root_session_id: session_id });
    turnInsert.run({ ...turn, id: turn_id, session_id });
    for (let i = 0; i < wanted.messages; i++) {
      messageInsert.run({ ...messages[i % messages.length], id: ids.message(), session_id, turn_id });
    }
    const session_key = keyInsert.run({ session_id }).lastInsertRowid;
    for (let i = 0; i < wanted.events; i++) {
      eventInsert.run({ ...events[i % events.length], id: ids.event(), session_key, turn_id });
    }
    return session_id;
  };
}
