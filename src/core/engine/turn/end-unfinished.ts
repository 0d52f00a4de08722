// Ending a turn that nobody runs any more: after a crash, or when it was interrupted and is not wanted back (04 §13).

import { Cancelled, createScope } from '#protocol/abort.ts';
import type { SessionRecord } from '#protocol/session.ts';
import type { TurnRecord } from '#protocol/turn.ts';
import { closeOpenParts } from '../closing/open-parts.ts';
import type { Engine } from '../state/engine.ts';
import { FAULT } from '../state/interrupt.ts';
import { CANCELLED_TEXT, RESTART_TEXT } from '../tool-call/results.ts';
import { endTurn } from './end.ts';
import { rebuildRun } from './rebuild.ts';

const SHUTDOWN = new Cancelled('shutdown');

/**
 * Ends the session's open turn, if it has one, with everything below it. For a caller that holds the session's lock:
 * such a turn was interrupted, or lost its loop to a fault of the journal.
 */
export async function endOpenTurn(engine: Engine, session: SessionRecord, reason: Cancelled = SHUTDOWN): Promise<void> {
  const turn = await engine.store.turns.open(session.id);
  if (turn) await endUnfinishedTurn(engine, session, turn, reason);
}

/**
 * Ends a turn that has no running loop: it is rebuilt as if it were to go on, and cancelled (01 §11.5). Doing it twice
 * changes nothing.
 */
export async function endUnfinishedTurn(
  engine: Engine,
  session: SessionRecord,
  turn: TurnRecord,
  reason: Cancelled,
): Promise<void> {
  await closeOpenParts(engine, session, turn.id, reason);
  const scope = createScope();
  scope.abort(reason);
  const toolset = engine.tools.knownTools(session.workspace_path);
  const alone = { scope, toolset, worker: null, clocks: [], tree: { delegations: 0 }, caps: [] };
  const { run } = await rebuildRun(engine, session, turn, alone);
  // Nobody can know what a call did that its process did not outlive.
  const text = reason.reason === 'shutdown' && reason !== FAULT ? RESTART_TEXT : CANCELLED_TEXT;
  await endTurn(engine, run, { status: 'cancelled', by: reason }, text);
}
