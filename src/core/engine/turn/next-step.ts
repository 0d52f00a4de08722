// What a running turn does next, and its next call where that is certain before the step in hand is stored (00 §3).

import { next, type Step } from '#core/policy/turn-machine.ts';
import type { StoredMessage } from '#protocol/message.ts';
import { isCrowded } from '../model-call/compact.ts';
import { modelRequest } from '../model-call/model-request.ts';
import { limitsOf } from '../money/budget-limits.ts';
import { volatilePrompt } from '../prompt/volatile-prompt.ts';
import type { Engine } from '../state/engine.ts';
import type { ModelRequest } from '../state/model-request.ts';
import type { TurnRun } from '../state/turn-run.ts';

export function nextStep(engine: Engine, run: TurnRun, history: readonly StoredMessage[] = run.history): Step {
  return next({
    last: lastSent(history),
    stopReason: run.stop_reason,
    llmCalls: run.tally.llm_calls,
    maxLlmCalls: maxLlmCalls(engine, run),
    outputTokensLeft: run.worker?.output_tokens_left ?? null,
    contextRequested: run.context_request !== null,
  });
}

/**
 * The call that follows once `history` is stored, to be announced in the same transaction. Null where the turn may go
 * another way, money has to be reserved first, or room has to be made in the window.
 */
export async function certainCall(
  engine: Engine,
  run: TurnRun,
  history: readonly StoredMessage[],
): Promise<ModelRequest | null> {
  if (nextStep(engine, run, history).kind !== 'call_model') return null;
  const volatile = await volatilePrompt(engine, run.session);
  // Last, behind everything that may take time.
  if ((await limitsOf(engine, run.session, run.caps)).length > 0) return null;
  if (!mayAnnounce(engine, run.signal)) return null;
  const prepared = modelRequest(engine, { ...run, history }, volatile);
  return isCrowded(engine, prepared) ? null : prepared;
}

/** Nobody stops the turn: a call that is announced all the same is turned away, and costs two events. */
export function mayAnnounce(engine: Engine, signal: AbortSignal): boolean {
  return !signal.aborted && !engine.draining.value;
}

/** The newest message that a provider would be sent. */
function lastSent(history: readonly StoredMessage[]): StoredMessage {
  const last = history.findLast((m) => m.metadata.status === 'complete');
  if (!last) throw new Error('a turn without its user message');
  return last;
}

/** Model calls in one turn of a worker, however many `turn.max_llm_calls` allows a planner. */
const MAX_WORKER_LLM_CALLS = 25;

function maxLlmCalls(engine: Engine, run: TurnRun): number {
  const limit = engine.config.turn.max_llm_calls;
  return run.session.is_worker ? Math.min(limit, MAX_WORKER_LLM_CALLS) : limit;
}
