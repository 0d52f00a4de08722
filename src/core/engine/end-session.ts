// Ending and purging a session (05 §3.1, 01 §7.2, §7.4).

import path from 'node:path';
import { Cancelled } from '#protocol/abort.ts';
import { JournalConflict } from '#protocol/batch.ts';
import { isoTime } from '#protocol/clock.ts';
import { draft } from '#protocol/event.ts';
import type { SessionId } from '#protocol/ids.ts';
import { fromPusd } from '#protocol/money.ts';
import { endOutside } from './delegation/outside-delegation.ts';
import { endGatewayTree } from './gateway/client-session.ts';
import { forget } from './money/budget-limits.ts';
import { alreadyEnded, liveSession, topLevelSession } from './session/find-session.ts';
import type { Engine } from './state/engine.ts';
import { takeOver } from './state/session-lock.ts';
import { secondsSince } from './state/session-starts.ts';
import { endOpenTurn } from './turn/end-unfinished.ts';

export interface EndReply {
  readonly id: SessionId;
  readonly ended_at: string;
}

/** Cancels what runs, waits for its terminal event, then ends the session (05 §3.1). */
export async function endSession(engine: Engine, id: string): Promise<EndReply & { readonly purged: false }> {
  const session = await liveSession(engine, id);
  if (engine.ending.has(session.id)) throw alreadyEnded();
  engine.ending.add(session.id);
  // Held to the end: no turn is admitted, resumed or ended beside it.
  await takeOver(engine.locks, session.id, null, new Cancelled('user_cancel', 'session ended'));
  try {
    await endOpenTurn(engine, session);
    await endOutside(engine, session, new Cancelled('user_cancel', 'session ended'));
    await endGatewayTree(engine, session);
    const at = engine.clock.now();
    const now = (await engine.store.sessions.record(session.id)) ?? session;
    await engine.journal.commit({
      writes: [{ kind: 'session.end', session_id: session.id, disposition: 'completed', at }],
      emit: [
        draft({
          type: 'session.ended',
          session_id: session.id,
          turn_id: null,
          parent: null,
          actor: 'user',
          payload: {
            disposition: 'completed',
            turn_count: now.turn_count,
            total_cost_usd: fromPusd(await engine.store.spend.ofSession(session.id)),
            duration_seconds: secondsSince(engine, session.id, session.created_at),
          },
        }),
      ],
    });
    forget(engine, 'session', session.id);
    engine.files.forget(session.id);
    engine.starts.delete(session.id);
    return { id: session.id, ended_at: isoTime(at), purged: false };
  } catch (error) {
    if (error instanceof JournalConflict && error.code === 'session_ended') throw alreadyEnded();
    throw error;
  } finally {
    engine.locks.release(session.id);
    engine.ending.delete(session.id);
  }
}

/** Ends the session if needed, then removes it and every descendant; the ledger stays (01 §7.4). */
export async function purgeSession(
  engine: Engine,
  id: string,
): Promise<EndReply & { readonly purged: true; readonly purged_session_count: number }> {
  const session = await topLevelSession(engine, id);
  await engine.library.dropCopies(path.join(engine.config.workers.generated_dir, session.id)).catch((err: unknown) => {
    engine.log.warn({ err, session_id: session.id }, 'copies of created workers could not be removed');
  });
  const ended = session.ended_at === null ? await endSession(engine, id) : { ended_at: isoTime(session.ended_at) };
  const purged_session_count = await engine.journal.purge(session.id);
  engine.recommender?.forget(session.workspace_path);
  return { id: session.id, ended_at: ended.ended_at, purged: true, purged_session_count };
}
