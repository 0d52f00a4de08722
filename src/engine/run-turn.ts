// The turn loop: ask the machine what is next, do it, until a terminal event is stored (00 §3, 04 §3.1).
import { Cancelled } from '../kernel/abort.ts';
import type { ToolUseId } from '../kernel/ids.ts';
import { next } from '../policy/turn-machine.ts';
import { callModel } from './call-model.ts';
import type { Engine } from './context.ts';
import { dispatchTools, storeAnswers, type ToolResults } from './dispatch-tools.ts';
import { cancelTurnRun, completeTurn, failTurn } from './end-turn.ts';
import { cancelScope } from './session-lock.ts';
import type { TurnEnd, TurnRun } from './turn-run.ts';

/**
 * Runs an admitted turn to its terminal event. Every path stores exactly one; nothing is thrown but the journal's own
 * faults. A cancellation is honoured between steps and inside them, and its closing cannot be cancelled again.
 */
export async function runTurn(engine: Engine, run: TurnRun): Promise<TurnEnd> {
  let inputErrors: ReadonlyMap<ToolUseId, string> = new Map();
  let results: ToolResults = new Map();
  try {
    for (;;) {
      if (run.signal.aborted) return await cancelTurnRun(engine, run, results);
      const step = next({
        last: lastSent(run),
        stopReason: run.stop_reason,
        llmCalls: run.tally.llm_calls,
        maxLlmCalls: maxLlmCalls(engine, run),
        outputTokensLeft: run.worker?.output_tokens_left ?? null,
        contextRequested: run.context_request !== null,
      });
      if (step.kind === 'finish') {
        run.limit = step.limit;
        return await completeTurn(engine, run, step.stopReason);
      }
      if (engine.draining.value) {
        cancelScope(run.scope, new Cancelled('shutdown'));
        continue;
      }
      if (step.kind === 'call_model') {
        const outcome = await callModel(engine, run);
        if (!outcome.ok) {
          if (run.signal.aborted) return await cancelTurnRun(engine, run, results);
          return await failTurn(engine, run, {
            error_code: 'provider_error',
            message: outcome.error.message,
            error_class: outcome.error.error_class,
            retryable: outcome.error.retryable,
          });
        }
        inputErrors = outcome.input_errors;
        continue;
      }
      results = await dispatchTools(engine, run, step.calls, inputErrors);
      if (run.signal.aborted) return await cancelTurnRun(engine, run, results);
      await storeAnswers(engine, run, step.calls, results);
      results = new Map();
    }
  } catch (thrown) {
    engine.log.error({ err: thrown, session_id: run.session.id, turn_id: run.turn.id }, 'a turn failed unexpectedly');
    return failTurn(engine, run, {
      error_code: 'internal_error',
      message: 'internal error',
      error_class: null,
      retryable: false,
    });
  }
}

/** The newest message that a provider would be sent. */
function lastSent(run: TurnRun) {
  const last = run.history.findLast((m) => m.metadata.status === 'complete');
  if (!last) throw new Error('a turn without its user message');
  return last;
}

function maxLlmCalls(engine: Engine, run: TurnRun): number {
  const limit = engine.config.turn.max_llm_calls;
  return run.session.is_worker ? Math.min(limit, 25) : limit;
}
