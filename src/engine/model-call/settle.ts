// Closing a model call: whole, cut off with known usage, or failed without cost; one transaction each (00 §3 step 4).

import type { Transient } from '../../domain/delta.ts';
import { draft, type EventDraft } from '../../domain/event.ts';
import { type StopReason, type StoredMessage, toolUses } from '../../domain/message.ts';
import type { MessageComplete } from '../../domain/model-stream.ts';
import type { ErrorClass } from '../../domain/scalars.ts';
import type { TurnStopReason } from '../../domain/turn.ts';
import type { Usage } from '../../domain/usage.ts';
import type { ToolUseId } from '../../kernel/ids.ts';
import type { Pusd } from '../../kernel/money.ts';
import { recordOutcome, type Unavailable } from '../../policy/registry/availability.ts';
import { next } from '../../policy/turn-machine.ts';
import type { Write } from '../../ports/journal.ts';
import type { AdapterError } from '../../ports/provider.ts';
import { completion } from '../closing/turn-end-records.ts';
import { type Engine, safeText } from '../state/engine.ts';
import type { ToolResults } from '../state/tool-results.ts';
import type { TurnRun, TurnTally } from '../state/turn-run.ts';
import { errorResult } from '../tool-call/results.ts';
import type { Call, CallOutcome } from './call.ts';
import { transient } from './deltas.ts';
import { callCompleted, charge, messageWrites, storedMessage } from './records.ts';

export async function settleSuccess(engine: Engine, call: Call): Promise<CallOutcome> {
  const { run, heard } = call;
  const complete = heard.complete!;
  const settled = new Map([...heard.input_errors].map(([id, fault]) => [id, errorResult(id, `$: ${fault}`)]));
  const charged = charge(engine, call, complete.usage, {
    served: complete.served_model,
    latency: complete.latency_ms,
  });
  const message = storedMessage(engine, call, complete, { status: 'complete', usage: charged.usage });
  const tally = counted(run.tally, charged.usage, charged.cost);
  const finished = finishedBy(call, message, complete.stop_reason);
  const closing = finished && completion(engine, { ...run, tally, final_message_id: message.id }, finished);
  const events = await engine.journal.commit({
    writes: [
      ...messageWrites(engine, call, message, 'pending'),
      ...settleInvalid(engine, settled),
      ...(closing ? [closing.write] : []),
    ],
    emit: [
      messageComplete(engine, call, complete, { stop: complete.stop_reason, usage: charged.usage }),
      callCompleted(call, charged.usage, {
        stop_reason: complete.stop_reason as 'end_turn',
        error_class: null,
        content: message.content,
        message_id: message.id,
      }),
      ...invalidInputs(run, message, heard.input_errors),
      ...(closing ? [closing.event] : []),
    ],
  });
  observe(engine, run, null);
  run.history.push(message);
  run.call_event_id = events[0]!.id;
  if (settled.size > 0) run.cause = events.at(-1)!.id;
  run.tally.tool_calls += settled.size;
  run.stop_reason = complete.stop_reason;
  run.final_message_id = message.id;
  count(run, charged.usage, charged.cost);
  return { ok: true, settled, end: finished && { status: 'completed', stop_reason: finished } };
}

/**
 * How the turn completes with this message, when nothing can come between: no call to answer, no limit to warn about,
 * nobody who stops it. Then both are one batch, and a crash finds the turn either before its answer or ended.
 */
function finishedBy({ run, limited }: Call, message: StoredMessage, stopReason: StopReason): TurnStopReason | null {
  if (limited || run.signal.aborted || toolUses(message.content).length > 0) return null;
  const step = next({
    last: message,
    stopReason,
    llmCalls: 0,
    maxLlmCalls: 0,
    outputTokensLeft: null,
    contextRequested: run.context_request !== null,
  });
  return step.kind === 'finish' && step.limit === null ? step.stopReason : null;
}

/** Arguments that are no JSON object are answered with the message itself: nothing of them survives a restart otherwise. */
function settleInvalid(engine: Engine, settled: ToolResults): Write[] {
  return [...settled.values()].map((result) => ({
    kind: 'tool_call.settle',
    id: result.tool_use_id,
    status: 'failed',
    result,
    at: engine.clock.now(),
  }));
}

function invalidInputs(run: TurnRun, message: StoredMessage, errors: ReadonlyMap<ToolUseId, string>): EventDraft[] {
  return toolUses(message.content)
    .filter((block) => errors.has(block.id))
    .map((block) =>
      draft({
        type: 'tool.input_invalid',
        session_id: run.session.id,
        turn_id: run.turn.id,
        // `llm.call_completed` stands right behind the transient `message.complete`.
        parent: 1,
        payload: { tool_use_id: block.id, tool_name: block.name, validation_errors: [`$: ${errors.get(block.id)}`] },
      }),
    );
}

/** Why a call did not come to its end. */
export interface Failure {
  readonly error: AdapterError;
  /** Outages that begin with it, told together with its outcome. */
  readonly outages: readonly Unavailable[];
}

/** Takes note of what a call says about its model and provider: once a call, however often its storing is tried. */
export function observe(engine: Engine, run: TurnRun, errorClass: ErrorClass | null): readonly Unavailable[] {
  const { model, turn } = run;
  const said = { model: model.id, provider: turn.provider ?? '', error_class: errorClass };
  const { state, transitions } = recordOutcome(
    engine.routes.availability,
    said,
    engine.clock.monotonic(),
    engine.registry,
  );
  engine.routes.availability = state;
  return transitions;
}

export async function settleFailure(engine: Engine, call: Call, { error, outages }: Failure): Promise<CallOutcome> {
  const { run, heard } = call;
  const usage = heard.complete?.usage ?? error.usage;
  const emit: (EventDraft | Transient)[] = [];
  const writes: Write[] = [];
  let counted: { usage: Usage; cost: Pusd } | null = null;
  let partial: StoredMessage | null = null;

  if (usage === null) {
    emit.push(
      draft({
        type: 'llm.call_failed',
        session_id: run.session.id,
        turn_id: run.turn.id,
        parent: call.started,
        payload: {
          model: run.model.id,
          provider: run.turn.provider ?? '',
          error_class: error.error_class,
          error_message_redacted: safeText(engine, error.message, run.session.workspace_path),
          retry_count: error.retry_count,
          latency_ms: elapsed(engine, call),
          request_id: call.request_id,
          is_worker: run.session.is_worker,
          parent_session_id: run.session.parent_session_id,
          root_session_id: run.session.root_session_id,
        },
      }),
    );
  } else {
    counted = charge(engine, call, usage, {
      served: heard.complete?.served_model ?? null,
      latency: elapsed(engine, call),
    });
    const cut: StopReason = error.error_class === 'cancelled' ? 'cancelled' : 'error';
    if (heard.complete) {
      if (heard.complete.final_content.length > 0) {
        partial = storedMessage(engine, call, heard.complete, { status: cut, usage: counted.usage });
        writes.push(...messageWrites(engine, call, partial, 'cancelled'));
      }
      emit.push(messageComplete(engine, call, heard.complete, { stop: cut, usage: counted.usage }));
    }
    emit.push(
      callCompleted(call, counted.usage, {
        stop_reason: 'cancelled',
        error_class: error.error_class,
        content: heard.complete?.final_content ?? [],
        message_id: partial?.id ?? null,
      }),
    );
  }
  const cause = emit.length - 1;
  for (const t of outages) {
    emit.push(
      draft({
        type: 'routing.provider_unavailable',
        session_id: run.session.id,
        turn_id: run.turn.id,
        parent: cause,
        payload: {
          provider: t.provider,
          scope: t.scope,
          models_affected: [...t.models],
          trigger_reason: t.trigger_reason,
        },
      }),
    );
  }
  await engine.journal.commit({ writes, emit });
  if (counted) count(run, counted.usage, counted.cost);

  if (partial) {
    run.history.push(partial);
    run.final_message_id = partial.id;
  }
  return { ok: false, error };
}

function messageComplete(
  engine: Engine,
  call: Call,
  complete: MessageComplete,
  { stop, usage }: { readonly stop: StopReason; readonly usage: Usage },
): Transient {
  return transient(engine, call.run, {
    type: 'message.complete',
    payload: {
      message_id: call.heard.message_id!,
      stop_reason: stop,
      final_content: complete.final_content,
      usage,
      latency_ms: usage.latency_ms,
    },
  });
}

/** Adds a finished call to the turn's figures; they equal the ledger's because both come from the same usage. */
function count(run: TurnRun, usage: Usage, cost: Pusd): void {
  Object.assign(run.tally, counted(run.tally, usage, cost));
  if (run.worker?.output_tokens_left != null) run.worker.output_tokens_left -= usage.output_tokens;
}

function counted(tally: TurnTally, usage: Usage, cost: Pusd): TurnTally {
  return {
    llm_calls: tally.llm_calls + 1,
    tool_calls: tally.tool_calls,
    input_tokens: tally.input_tokens + usage.input_tokens,
    output_tokens: tally.output_tokens + usage.output_tokens,
    cached_input_tokens: tally.cached_input_tokens + usage.cached_input_tokens,
    cache_creation_input_tokens: tally.cache_creation_input_tokens + usage.cache_creation_input_tokens,
    cost_pusd: (tally.cost_pusd + cost) as Pusd,
  };
}

function elapsed(engine: Engine, call: Call): number {
  return Math.round(engine.clock.monotonic() - call.began);
}
