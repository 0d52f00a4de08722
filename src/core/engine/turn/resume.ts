// What a turn that is taken up again stores first, and its end when nobody can go on with it (04 §13).

import { Cancelled } from '#protocol/abort.ts';
import { draft } from '#protocol/event.ts';
import type { Engine } from '../state/engine.ts';
import type { TurnBase, TurnEnd } from '../state/turn-run.ts';
import { endTurn } from './end.ts';

/** Back to `in_flight`, with `turn.resumed`. A pause for money is no failed attempt. */
export async function announceResumed(engine: Engine, run: TurnBase): Promise<void> {
  const reason = run.turn.interrupted_reason ?? 'restart';
  await engine.journal.commit({
    writes: [{ kind: 'turn.resume', turn_id: run.turn.id, count_attempt: engine.crashed.delete(run.turn.id) }],
    emit: [
      draft({
        type: 'turn.resumed',
        session_id: run.session.id,
        turn_id: run.turn.id,
        parent: run.started_event_id,
        payload: {
          resumed_at_call_index: run.tally.llm_calls + 1,
          reused_llm_calls: run.tally.llm_calls,
          reused_tool_calls: run.tally.tool_calls,
          interrupted_reason: reason,
        },
      }),
    ],
  });
}

/** Ends a turn that nobody can go on with, its workers first. */
export async function failModelGone(engine: Engine, run: TurnBase): Promise<TurnEnd> {
  await engine.workers.closeUnder(run.turn.id, new Cancelled('shutdown'));
  return endTurn(engine, run, {
    status: 'failed',
    error_code: 'model_not_configured',
    message: `the model of this turn is not configured any more: ${run.turn.chosen_model}`,
    error_class: null,
    retryable: false,
  });
}
