// Stores a new top-level session, and makes the worktree of one that works on a copy: a fork, a run of an experiment (21 §4, §5).
import type { Write } from '#core/ports/journal-writer.ts';
import { WorktreeError } from '#core/ports/worktrees.ts';
import { validationError } from '#protocol/errors.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { takeNotices } from '../routing/route-environment.ts';
import { sessionCreatedEvent } from '../session/session-records.ts';
import type { LiveSessions, SessionEngine } from '../state/engine.ts';
import { noteStart } from '../state/memory.ts';
import { discardTree, type Placed, placeInWorktree } from './worker-tree.ts';

/**
 * Throws `validation_error` where no worktree can be made.
 * @param from folder that is copied, and the field of the body that names it
 */
export async function placeRoot(
  engine: SessionEngine,
  session: SessionRecord,
  from: { readonly caller_path: string; readonly field: string },
): Promise<Placed> {
  const { caller_path, field } = from;
  try {
    return await placeInWorktree(engine, session, { caller_path, signal: new AbortController().signal });
  } catch (error) {
    if (!(error instanceof WorktreeError)) throw error;
    throw validationError([{ path: field, message: error.message }]);
  }
}

/** Row, worktree and `session.created` are one commit; where it fails nothing is left. Throws as `journal.commit` does. */
export async function storeRoot(
  engine: SessionEngine & LiveSessions,
  { session, worktree }: Placed,
  rest: readonly Write[],
): Promise<void> {
  const writes: Write[] = [{ kind: 'session.insert', session }, ...rest];
  if (worktree !== null) writes.push({ kind: 'worktree.put', worktree });
  try {
    await engine.journal.commit({ writes, emit: [sessionCreatedEvent(session), ...takeNotices(engine, session)] });
  } catch (error) {
    await discardTree(engine, worktree);
    throw error;
  }
  noteStart(engine, session.id);
  // Started now, so that the first turn finds them ready.
  engine.tools.hold(session.workspace_path)();
}
