// Changes of sessions: a session ends once, and nothing changes an ended one (01 §7.1, §7.2).
import type Database from 'better-sqlite3';
import { checkSessionLinks, type ParentLinks } from '#core/policy/journal/conditions.ts';
import { JournalConflict } from '#core/ports/journal-writer.ts';
import { toPusd } from '#protocol/money.ts';
import { json } from '#store/schema/values.ts';
import type { Effects } from '#store/write/effects.ts';
import * as sql from '#store/write/sessions.ts';
import { insertInto, type Named, named } from '../connection/named.ts';
import type { Appliers } from './writes.ts';

export function sessionWrites(db: Database.Database): Appliers<Extract<keyof Appliers, `session.${string}`>> {
  const insert = insertInto(db, 'sessions', sql.COLUMNS);
  const parentOf = db.prepare<[string], ParentLinks>(sql.PARENT);
  const exists = db.prepare(sql.EXISTS);
  const setModel = named(db, sql.SET_MODEL);
  const queueModel = named(db, sql.QUEUE_MODEL);
  const setLimit = named(db, sql.SET_LIMIT);
  const setOnReached = named(db, sql.SET_ON_REACHED);
  const setWorkspace = named(db, sql.SET_WORKSPACE);
  const setWarned = named(db, sql.SET_WARNED);
  const setPolicyVersion = named(db, sql.SET_POLICY_VERSION);
  const end = named(db, sql.END);

  /** Runs a conditional change; when no row met it, says why. */
  function run(statement: Named<unknown>, session_id: string, values: object, effects: Effects): void {
    effects.sessions.push({ id: session_id, values: null });
    if (statement.run({ ...values, session_id }).changes === 1) return;
    if (exists.get(session_id) === undefined) throw new Error(`no session ${session_id}`);
    throw new JournalConflict('session_ended', `session ${session_id} has ended`);
  }

  return {
    'session.insert': ({ session }) => {
      checkSessionLinks(session, (id) => parentOf.get(id) ?? null);
      insert(sql.sessionRow(session));
    },
    'session.set_model': (write, effects) => run(setModel, write.session_id, write, effects),
    'session.queue_model': (write, effects) =>
      run(queueModel, write.session_id, { ...write, pending: json(write.pending) }, effects),
    'session.set_limit': (write, effects) => {
      const max_cost_pusd = write.max_cost_usd === null ? null : toPusd(write.max_cost_usd);
      run(setLimit, write.session_id, { ...write, max_cost_pusd }, effects);
    },
    'session.set_on_reached': (write, effects) => run(setOnReached, write.session_id, write, effects),
    'session.set_workspace': (write, effects) => run(setWorkspace, write.session_id, write, effects),
    'session.warned': ({ session_id, limit_usd }, effects) =>
      run(setWarned, session_id, { limit_pusd: toPusd(limit_usd) }, effects),
    'session.set_policy_version': (write, effects) => run(setPolicyVersion, write.session_id, write, effects),
    'session.end': (write, effects) => {
      run(end, write.session_id, write, effects);
      effects.ended.push(write.session_id);
    },
  };
}
