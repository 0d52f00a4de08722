// What the turns of a tree wait for at this moment, from rows alone (20 §6).
import type { Waiting } from '#protocol/session.ts';
import * as sql from '#store/read/waiting.ts';
import type { SqliteStoreHandle } from '../connection/open.ts';

/** The session's own and its descendants', oldest first, at most 50. */
export type WaitingOf = (session: { readonly id: string; readonly is_worker: number | boolean }) => Waiting[];

export function createWaiting({ db }: SqliteStoreHandle): WaitingOf {
  const ofRoot = db.prepare<[string], sql.OpenTurn>(sql.OF_ROOT);
  const below = db.prepare<[string], sql.OpenTurn>(sql.BELOW);
  const asked = db.prepare<[string], sql.Since>(sql.ASKED);
  const newestEvent = db.prepare<[string], number>(sql.NEWEST_EVENT).pluck();
  const newestCall = db.prepare<[string], sql.NewestCall>(sql.NEWEST_CALL);
  const pending = db.prepare<[string, string], sql.PendingCall>(sql.PENDING);

  function waitsOf({ id, session_id, status, interrupted_reason }: sql.OpenTurn): readonly sql.Wait[] {
    if (status !== 'interrupted') return sql.waitsOf(asked.all(id), newestCall.get(id), pending.all(session_id, id));
    return interrupted_reason === 'budget' ? [['budget', id, newestEvent.get(id) ?? 0]] : [];
  }
  return ({ id, is_worker }) =>
    sql.waitingOn((is_worker ? below : ofRoot).all(id).map((turn) => ({ turn, waits: waitsOf(turn) })));
}
