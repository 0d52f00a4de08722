// Putting a turn down where it stands: no terminal event, everything stored so far is kept for its resumption (04 §13).
import { Cancelled, cancelledBy } from '../../kernel/abort.ts';
import { endUnfinishedTurn } from '../closing/close-turn.ts';
import type { Engine } from '../state/engine.ts';
import type { TurnEnd, TurnRun } from '../state/turn-run.ts';

export type InterruptReason = 'restart' | 'budget';

/** Thrown through a delegation whose worker was put down: the planner's call stays open and its turn is put down too. */
export class Interrupted extends Error {
  readonly reason: InterruptReason;
  constructor(reason: InterruptReason) {
    super(`interrupted: ${reason}`);
    this.name = 'Interrupted';
    this.reason = reason;
  }
}

/** Whether the process stops in a way that lets its turns go on after the next start. */
export function isHandOver(engine: Engine, signal: AbortSignal): boolean {
  if (!engine.draining.value || engine.config.recovery.on_start === 'cancel') return false;
  return !signal.aborted || (signal.reason instanceof Cancelled && signal.reason.reason === 'shutdown');
}

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
