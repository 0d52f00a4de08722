// Purges a session with all it stored (01 §7.4).
import path from 'node:path';
import { isoTime } from '#protocol/clock.ts';
import type { SessionId } from '#protocol/ids.ts';
import { NAMELESS_ADMIN, type Person } from '#protocol/people/person.ts';
import { discardTree, withClosedTree } from './delegation/worker-tree.ts';
import { type EndReply, endSession } from './manage-session.ts';
import { requireTopLevelSession } from './session/session-records.ts';
import { auditWrites } from './state/audit-writes.ts';
import type { Engine } from './state/engine.ts';

/** Ends the session if needed, then removes it and every descendant; the ledger stays (01 §7.4). */
export async function purgeSession(
  engine: Engine,
  id: string,
  actor: Person = NAMELESS_ADMIN,
): Promise<EndReply & { readonly purged: true; readonly purged_session_count: number }> {
  const session = await requireTopLevelSession(engine, id);
  await engine.library.dropCopies(path.join(engine.config.workers.generated_dir, session.id)).catch((err: unknown) => {
    engine.log.warn({ err, session_id: session.id }, 'copies of created workers could not be removed');
  });
  const ended =
    session.ended_at === null ? await endSession(engine, id, actor) : { ended_at: isoTime(session.ended_at) };
  await endForeignForks(engine, session.id, actor);
  const worktrees = await engine.store.worktrees.list(session.id);
  // While the rows lead to them.
  for (const worktree of worktrees) await withClosedTree(engine, worktree, () => discardTree(engine, worktree));
  const { owner, share } = session;
  const noted = auditWrites(engine, actor, 'session.purged', { subject: session.id, details: { owner, share } });
  if (noted.length > 0) await engine.journal.commit({ writes: noted, emit: [] });
  const purged_session_count = await engine.journal.purge(session.id);
  engine.recommender?.forget(session.workspace_path);
  await engine.forecasts?.refresh();
  return { id: session.id, ended_at: ended.ended_at, purged: true, purged_session_count };
}

/** A fork of another owner ends with its original, whose messages it loses (23 §4). */
async function endForeignForks(engine: Engine, origin: SessionId, actor: Person): Promise<void> {
  for (const fork of await engine.store.sessions.foreignForks(origin)) {
    try {
      await endSession(engine, fork, actor);
    } catch (err) {
      // It ends at this moment, or another node holds it: the purge takes its beginning in any case.
      engine.log.warn({ err, session_id: fork }, 'a fork of a purged session could not be ended');
    }
  }
}
