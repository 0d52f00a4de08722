// What the turns of a tree wait for at this moment, from rows alone (20 §6).
import type { Waiting } from '#protocol/session.ts';
import * as sql from '#store/read/waiting.ts';
import type { Reads } from '../connection/reads.ts';

/** The session's own and its descendants', oldest first, at most 50. */
export type WaitingOf = (session: { readonly id: string; readonly is_worker: number | boolean }) => Promise<Waiting[]>;

export function createWaiting({ all, get }: Reads): WaitingOf {
  async function waitsOf({ id, session_id, status, interrupted_reason }: sql.OpenTurn): Promise<readonly sql.Wait[]> {
    if (status === 'interrupted') {
      if (interrupted_reason !== 'budget') return [];
      return [['budget', id, (await get<{ since: number }>(sql.NEWEST_EVENT, id))?.since ?? 0]];
    }
    const [asked, call, pending] = await Promise.all([
      all<sql.Since>(sql.ASKED, id),
      get<sql.NewestCall>(sql.NEWEST_CALL, id),
      all<sql.PendingCall>(sql.PENDING, session_id, id),
    ]);
    return sql.waitsOf(asked, call, pending);
  }
  return async ({ id, is_worker }) => {
    const turns = await all<sql.OpenTurn>(is_worker ? sql.BELOW : sql.OF_ROOT, id);
    return sql.waitingOn(await Promise.all(turns.map(async (turn) => ({ turn, waits: await waitsOf(turn) }))));
  };
}
