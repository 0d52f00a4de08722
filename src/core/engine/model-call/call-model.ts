// The turn's next model call: a request that fits its window, and the call itself (00 §3 steps 3-4).
import { AdapterError } from '#core/ports/provider.ts';
import { volatilePrompt } from '../prompt/volatile-prompt.ts';
import type { Engine } from '../state/engine.ts';
import type { ModelRequest } from '../state/model-request.ts';
import { overflowAnswered, takeNextCall } from '../state/run-progress.ts';
import type { TurnRun } from '../state/turn-run.ts';
import type { CallOutcome } from './call.ts';
import { fitting, refitted } from './compact.ts';
import { modelRequest } from './model-request.ts';
import { makeCall } from './send.ts';
import { settleSuccess } from './settle.ts';

/**
 * Makes the turn's next model call and stores its outcome. Never throws for a provider's failure:
 * a call cut off with known usage is recorded with its cost, one without costs nothing (01 §4.4).
 * A request that nothing makes small enough is a failed call that never left (10 §7).
 */
export async function callModel(engine: Engine, run: TurnRun): Promise<CallOutcome> {
  const ahead = takeNextCall(run);
  const first = ahead?.prepared ?? modelRequest(engine, run, await volatilePrompt(engine, run.session));
  const prepared = ahead === null ? await fitting(engine, run, first) : first;
  if (prepared === null) return notCalled(run, first);
  const outcome = await makeCall(engine, run, prepared, { keep: settleSuccess, started: ahead?.started ?? null });
  if (outcome.ok || outcome.error?.error_class !== 'context_overflow' || run.signal.aborted) return outcome;
  if (run.overflow_answered) return outcome;
  overflowAnswered(run);
  const smaller = await refitted(engine, run, prepared);
  if (smaller === null || run.signal.aborted) return outcome;
  return makeCall(engine, run, smaller, { keep: settleSuccess, started: null });
}

/** The turn was stopped while room was made, or there is none to be had. */
function notCalled(run: TurnRun, { request, load, window }: ModelRequest): CallOutcome {
  const { request_id } = request;
  if (run.signal.aborted)
    return { ok: false, error: new AdapterError('cancelled', { error_class: 'cancelled', request_id }) };
  const room = Math.max(0, Math.floor(window.budget));
  const text = `the conversation needs about ${load} tokens, ${run.model.id} has room for ${room}, and nothing more can be left out; take a model with a larger window or start a new session`;
  return { ok: false, error: new AdapterError(text, { error_class: 'context_overflow', request_id }) };
}
