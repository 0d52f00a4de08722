// Closes a model call: complete, cut off with known usage, or failed without cost; one transaction each (00 §3 step 4).
import type { CallFailure, Unavailable } from '#core/policy/registry/availability.ts';
import { findEndReason } from '#core/policy/turn-machine.ts';
import type { Write } from '#core/ports/journal-writer.ts';
import type { AdapterError } from '#core/ports/provider.ts';
import type { Transient } from '#protocol/delta.ts';
import { draft, type Event, type EventDraft } from '#protocol/event.ts';
import { isInputsWaiting } from '#protocol/journal-batch.ts';
import { type StopReason, type StoredMessage, toolUses } from '#protocol/message.ts';
import type { MessageComplete } from '#protocol/model-call.ts';
import type { TurnStopReason } from '#protocol/turn.ts';
import type { Usage } from '#protocol/usage.ts';
import type { Charged } from '../money/stamp-usage.ts';
import { observeCall, outageEvents } from '../routing/route-environment.ts';
import {
  type ModelCallEngine,
  type ModelCatalog,
  type RoutingState,
  type Runtime,
  type Storage,
  safeName,
  safeText,
} from '../state/engine.ts';
import {
  addToTally,
  countModelCall,
  recordAnswer,
  recordPartialAnswer,
  type ServingModel,
  type ToolResults,
} from '../state/turn-run.ts';
import { errorResult } from '../tool-call/tool-results.ts';
import {
  buildMessage,
  type Call,
  type CallOutcome,
  callCompletedEvent,
  chargeCall,
  messageWrites,
  toTransient,
} from './call-records.ts';
import { buildTurnEnd } from './turn-end.ts';

export async function settleSuccess(engine: ModelCallEngine, call: Call): Promise<CallOutcome> {
  const { run, stream } = call;
  const complete = stream.complete!;
  const settled = new Map([...stream.input_errors].map(([id, fault]) => [id, errorResult(id, `$: ${fault}`)]));
  const charged = chargeCall(engine, call, complete.usage, complete);
  const message = buildMessage(engine, call, complete, { status: 'complete', usage: charged.usage });
  const tally = addToTally(run.tally, charged.usage, charged.cost);
  const stopReason = findTurnEnd(call, message, complete.stop_reason);
  let ending = stopReason && ({ status: 'completed', stop_reason: stopReason } as const);
  const store = async () => {
    const closing = ending && buildTurnEnd(engine, { ...run, tally, final_message_id: message.id }, ending, 0);
    const stored = await engine.journal.commit({
      writes: [
        ...messageWrites(engine, call, message, 'pending'),
        ...invalidInputWrites(engine, settled),
        ...(closing?.writes ?? []),
      ],
      emit: [
        ...stream.held,
        messageCompleteDelta(engine, call, complete, { stop: complete.stop_reason, usage: charged.usage }),
        callCompletedEvent(call, charged, {
          stop_reason: complete.stop_reason as 'end_turn',
          error_class: null,
          content: message.content,
          message_id: message.id,
        }),
        // `llm.call_completed` directly follows the delta `message.complete`.
        ...invalidInputEvents(engine, call, message, stream.held.length + 1),
        ...(closing ? [closing.event] : []),
      ],
    });
    if (closing?.cost) engine.forecasts?.add(closing.cost);
    return stored;
  };
  let events: readonly Event[];
  try {
    events = await store();
  } catch (error) {
    if (!isInputsWaiting(error)) throw error;
    // A message for the turn is waiting, so the turn continues.
    ending = null;
    events = await store();
  }
  observeOutcome(engine, run, null);
  recordAnswer(run, message, {
    stop_reason: complete.stop_reason,
    event: events[0]!.id,
    settled: settled.size,
    last: events.at(-1)!.id,
  });
  countModelCall(run, charged.usage, charged.cost);
  return { ok: true, settled, end: ending };
}

/**
 * Completes the turn with this message when nothing is left to do: no tool call, no limit to warn about, no
 * cancellation. Both are one batch, so that after a crash the turn is either without its answer or ended.
 */
function findTurnEnd({ run, limited }: Call, message: StoredMessage, stopReason: StopReason): TurnStopReason | null {
  if (limited || run.signal.aborted) return null;
  return findEndReason({ last: message, stopReason, contextRequested: run.context_request !== null });
}

/** Arguments that are not a JSON object are answered together with the message: they would not survive a restart. */
function invalidInputWrites(engine: Pick<Runtime, 'clock'>, settled: ToolResults): Write[] {
  return [...settled.values()].map((result) => ({
    kind: 'tool_call.settle',
    id: result.tool_use_id,
    status: 'failed',
    result,
    at: engine.clock.now(),
  }));
}

function invalidInputEvents(
  engine: Pick<Runtime, 'secrets'>,
  { run, stream: { input_errors: errors } }: Call,
  message: StoredMessage,
  parent: number,
): EventDraft[] {
  return toolUses(message.content)
    .filter((block) => errors.has(block.id))
    .map((block) =>
      draft({
        type: 'tool.input_invalid',
        session_id: run.session.id,
        turn_id: run.turn.id,
        parent,
        payload: {
          tool_use_id: block.id,
          tool_name: safeName(engine, block.name),
          validation_errors: [safeName(engine, `$: ${errors.get(block.id)}`)],
        },
      }),
    );
}

/** Why a call did not complete. */
export interface Failure {
  readonly error: AdapterError;
  /** Outages that start with this call, stored together with its outcome. */
  readonly outages: readonly Unavailable[];
}

/** Records the evidence of a call about its model and provider: once per call, however often storing it is tried. */
export function observeOutcome(
  engine: Runtime & ModelCatalog & RoutingState,
  run: Pick<ServingModel, 'model'>,
  failure: CallFailure | null,
): readonly Unavailable[] {
  return observeCall(engine, run.model, failure);
}

export async function settleFailure(
  engine: Runtime & Storage & ModelCatalog,
  call: Call,
  { error, outages }: Failure,
): Promise<CallOutcome> {
  const { run, stream } = call;
  const usage = stream.complete?.usage ?? error.usage;
  const emit: (EventDraft | Transient)[] = [...stream.held];
  const writes: Write[] = [];
  let charged: Charged | null = null;
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
          latency_ms: elapsedMs(engine, call),
          request_id: call.request_id,
          is_worker: run.session.is_worker,
          parent_session_id: run.session.parent_session_id,
          root_session_id: run.session.root_session_id,
        },
      }),
    );
  } else {
    charged = chargeCall(engine, call, usage, {
      served_model: stream.complete?.served_model ?? null,
      latency_ms: elapsedMs(engine, call),
      bill: (stream.complete ?? error).bill,
    });
    const cut: StopReason = error.error_class === 'cancelled' ? 'cancelled' : 'error';
    if (stream.complete && call.purpose === 'turn') {
      if (stream.complete.final_content.length > 0) {
        partial = buildMessage(engine, call, stream.complete, { status: cut, usage: charged.usage });
        writes.push(...messageWrites(engine, call, partial, 'cancelled'));
      }
      emit.push(messageCompleteDelta(engine, call, stream.complete, { stop: cut, usage: charged.usage }));
    }
    emit.push(
      callCompletedEvent(call, charged, {
        stop_reason: 'cancelled',
        error_class: error.error_class,
        content: stream.complete?.final_content ?? [],
        message_id: partial?.id ?? null,
      }),
    );
  }
  const place = { session_id: run.session.id, turn_id: run.turn.id, parent: emit.length - 1 };
  emit.push(...outageEvents(outages, place));
  await engine.journal.commit({ writes, emit });
  if (charged) countModelCall(run, charged.usage, charged.cost);

  if (partial) recordPartialAnswer(run, partial);
  return { ok: false, error };
}

function messageCompleteDelta(
  engine: Pick<Runtime, 'clock'>,
  call: Call,
  complete: MessageComplete,
  { stop, usage }: { readonly stop: StopReason; readonly usage: Usage },
): Transient {
  return toTransient(engine, call.run, {
    type: 'message.complete',
    payload: {
      message_id: call.stream.message_id!,
      stop_reason: stop,
      final_content: complete.final_content,
      usage,
      latency_ms: usage.latency_ms,
    },
  });
}

function elapsedMs(engine: Pick<Runtime, 'clock'>, call: Call): number {
  return Math.round(engine.clock.monotonic() - call.began);
}
