// Putting a turn down where it stands: no terminal event, everything stored so far is kept for its resumption (04 §13).

import { cancelledBy } from '#protocol/abort.ts';
import type { Engine } from '../state/engine.ts';
import type { InterruptReason } from '../state/interrupt.ts';
import { isHandOver } from '../state/interrupt.ts';
import type { TurnEnd, TurnRun } from '../state/turn-run.ts';
import { endUnfinishedTurn } from './end-unfinished.ts';

/** Puts the turn down; one that was cancelled at the last moment ends instead, since nobody else would end it. */
export async function interruptTurn(engine: Engine, run: TurnRun, reason: InterruptReason): Promise<TurnEnd> {
  await engine.journal.commit({
    writes: [
      {
        kind: 'turn.interrupt',
        turn_id: run.turn.id,
        reason,
        llm_call_count: run.tally.llm_calls,
        tool_call_count: run.tally.tool_calls,
      },
    ],
    emit: [],
  });
  if (!run.signal.aborted || isHandOver(engine, run.signal)) return { status: 'interrupted', reason };
  const cancelled = cancelledBy(run.signal);
  await endUnfinishedTurn(engine, run.session, run.turn, cancelled);
  return { status: 'cancelled', reason: cancelled.reason };
}
