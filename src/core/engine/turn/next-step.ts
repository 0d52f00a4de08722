// Computes a running turn's next step from its stored state (00 §3).
import { countPauses, findNextStep, type Step } from '#core/policy/turn-machine.ts';
import type { StoredMessage } from '#protocol/message.ts';
import type { Runtime } from '../state/engine.ts';
import type { TurnBase, TurnPlan } from '../state/turn-run.ts';

export function decideNextStep(
  engine: Pick<Runtime, 'config'>,
  run: TurnBase,
  history: readonly StoredMessage[] = run.history,
): Step {
  return findNextStep({
    last: findLastSent(history),
    stopReason: run.stop_reason,
    llmCalls: run.tally.llm_calls,
    maxLlmCalls: maxLlmCalls(engine, run),
    outputTokensLeft: run.worker?.output_tokens_left ?? null,
    pauses: countPauses(history),
    contextRequested: run.context_request !== null,
    concluded: run.conclusion_message !== null,
  });
}

/** The newest message that a provider would be sent. */
function findLastSent(history: readonly StoredMessage[]): StoredMessage {
  const last = history.findLast((m) => m.metadata.status === 'complete');
  if (!last) throw new Error('a turn without its user message');
  return last;
}

/** Model calls in one turn of a worker, however many `turn.max_llm_calls` allows a planner. */
const MAX_WORKER_LLM_CALLS = 25;

function maxLlmCalls(engine: Pick<Runtime, 'config'>, run: Pick<TurnPlan, 'session'>): number {
  const limit = engine.config.turn.max_llm_calls;
  if (run.session.is_worker) return Math.min(limit, MAX_WORKER_LLM_CALLS);
  return limit;
}
