// The turn loop: ask the machine what is next, do it, until a terminal event is stored (00 §3, 04 §3.1).

import { Cancelled, cancelledBy } from '#protocol/abort.ts';
import { TreeLost } from '#protocol/batch.ts';
import { closeOpenParts } from '../closing/open-parts.ts';
import { callModel } from '../model-call/call-model.ts';
import { pauseTree } from '../money/budget-limits.ts';
import { reportExceeded, warnIfNear } from '../money/budget-notices.ts';
import type { Engine } from '../state/engine.ts';
import { FAULT, isHandOver, throwIfLost } from '../state/interrupt.ts';
import type { BudgetRefusal } from '../state/reservations.ts';
import { limitReached, refused } from '../state/run-progress.ts';
import { cancelScope } from '../state/session-lock.ts';
import type { ToolResults } from '../state/tool-results.ts';
import type { TurnEnd, TurnRun } from '../state/turn-run.ts';
import { dispatchTools } from '../tool-call/dispatch.ts';
import { completeTurn, endTurn } from './end.ts';
import { readInputs } from './inputs.ts';
import { interruptTurn } from './interrupt.ts';
import { nextStep } from './next-step.ts';
import { storeAnswers } from './store-answers.ts';

/**
 * Runs an admitted turn to its terminal event, or puts it down where it can be taken up again. Nothing is thrown but
 * the journal's own faults. A cancellation is honoured between steps and inside them; its closing cannot be cancelled.
 * @param known results of the newest message's tool calls from before a restart
 */
export async function runTurn(engine: Engine, run: TurnRun, known: ToolResults = new Map()): Promise<TurnEnd> {
  let results = known;
  try {
    for (;;) {
      throwIfLost(run.signal);
      const step = nextStep(engine, run);
      // The calls of a stopped turn are dispatched all the same: each is turned away with its own terminal event.
      // So is a call that is announced: it is made, turned away at once, and so has its outcome.
      const owed = step.kind === 'run_tools' || run.next_call?.started != null;
      if (run.signal.aborted && !owed) return await stop(engine, run);
      if (step.kind === 'finish') {
        const inputs = step.limit === null ? await readInputs(engine, run) : 'limited';
        if (inputs === 'read') continue;
        limitReached(run, step.limit);
        const { stopReason } = step;
        if (inputs === 'limited') return await endTurn(engine, run, { status: 'completed', stop_reason: stopReason });
        const end = await completeTurn(engine, run, stopReason);
        if (end !== null) return end;
        continue;
      }
      if (engine.draining.value && !run.signal.aborted) {
        cancelScope(run.scope, new Cancelled('shutdown'));
        continue;
      }
      if (step.kind === 'call_model') {
        const outcome = await callModel(engine, run);
        if (outcome.ok) {
          if (outcome.end !== null) return outcome.end;
          results = outcome.settled;
          await warnIfNear(engine, run);
        } else if (outcome.error === null) return await overBudget(engine, run, outcome.refusal);
        else if (!run.signal.aborted)
          return await endTurn(engine, run, {
            status: 'failed',
            error_code: 'provider_error',
            message: outcome.error.message,
            error_class: outcome.error.error_class,
            retryable: outcome.error.retryable,
          });
        continue;
      }
      const done = await dispatchTools(engine, run, step.calls, results);
      throwIfLost(run.signal);
      results = done.results;
      if (run.signal.aborted) return await stop(engine, run);
      if (done.interrupted) return await interruptTurn(engine, run, done.interrupted.reason);
      await storeAnswers(engine, run, step.calls, results);
      results = new Map();
    }
  } catch (thrown) {
    if (thrown instanceof TreeLost) return { status: 'lost' };
    engine.log.error({ err: thrown, session_id: run.session.id, turn_id: run.turn.id }, 'a turn failed unexpectedly');
    // When one of these is refused too the turn stays open: whoever comes next, or the next start, ends it whole.
    await closeOpenParts(engine, run.session, run.turn.id, FAULT);
    return endTurn(engine, run, {
      status: 'failed',
      error_code: 'internal_error',
      message: 'internal error',
      error_class: null,
      retryable: false,
    });
  }
}

/** A refused call: the tree waits for a higher limit, or this turn ends here (14 §3). */
async function overBudget(engine: Engine, run: TurnRun, refusal: BudgetRefusal): Promise<TurnEnd> {
  if (refusal.on_reached === 'stop') {
    await reportExceeded(engine, run, refusal);
    refused(run, refusal);
    return endTurn(engine, run, { status: 'completed', stop_reason: 'budget_exceeded' });
  }
  if (pauseTree(engine, run.session, refusal)) await reportExceeded(engine, run, refusal);
  return interruptTurn(engine, run, 'budget');
}

/** An aborted turn ends as cancelled, unless the process stops and the turn goes on after its next start. */
async function stop(engine: Engine, run: TurnRun): Promise<TurnEnd> {
  if (isHandOver(engine, run.signal)) return interruptTurn(engine, run, 'restart');
  // Workers that were interrupted before the cancellation came have nobody else who would end them.
  const by = cancelledBy(run.signal);
  await engine.workers.closeUnder(run.turn.id, by);
  return endTurn(engine, run, { status: 'cancelled', by });
}
