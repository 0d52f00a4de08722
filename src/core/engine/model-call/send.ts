// One model call: reserved, announced in the journal, streamed to the bus, its outcome stored (00 §3 steps 3-4).

import { AdapterError } from '#core/ports/provider.ts';
import type { EventId, MessageId } from '#protocol/ids.ts';
import { textBlock } from '#protocol/message.ts';
import type { CanonicalRequest } from '#protocol/model-request.ts';
import type { StreamEvent } from '#protocol/model-stream.ts';
import { learnPrompt } from '../money/call-price.ts';
import { reserve } from '../money/reserve-money.ts';
import type { Engine } from '../state/engine.ts';
import { withGrace } from '../state/grace.ts';
import { throwIfLost } from '../state/interrupt.ts';
import type { ModelRequest } from '../state/model-request.ts';
import { named, type TurnRun } from '../state/turn-run.ts';
import { believedUsage } from './believed-usage.ts';
import type { Call, CallOutcome } from './call.ts';
import { toDelta, transient } from './deltas.ts';
import { callStarted } from './model-request.ts';
import { partialAnswer } from './partial-answer.ts';
import { type Failure, observe, settleFailure } from './settle.ts';

/** Stores what a call answered whole, in one transaction with its `llm.call_completed`. */
export type Keep = (engine: Engine, call: Call) => Promise<CallOutcome>;

/**
 * Reserves what the call may cost, announces it and makes it; the outcome is stored.
 * @param how `started` is its `llm.call_started` where that is stored already
 */
export async function makeCall(
  engine: Engine,
  run: TurnRun,
  prepared: ModelRequest,
  how: { readonly keep: Keep; readonly started: EventId | null },
): Promise<CallOutcome> {
  // Asked of an announced call too: a limit may have been set while its announcement was stored.
  const { reservation, prompt } = await reserve(engine, run, prepared.request);
  if (!reservation.ok) {
    if (how.started) await turnAway(engine, newCall(engine, run, { prepared, started: how.started, limited: true }));
    return { ok: false, error: null, refusal: reservation.refusal };
  }
  let call: Call | null = null;
  try {
    const started = how.started ?? (await announce(engine, run, prepared));
    call = newCall(engine, run, { prepared, started, limited: reservation.limited });
    const outcome = await send(engine, call, prepared.request, how.keep);
    const { complete } = call.heard;
    if (outcome.ok && complete !== null && prompt !== null)
      learnPrompt(engine, prompt, { model: run.model, usage: complete.usage, served: complete.served_model });
    return outcome;
  } finally {
    // Right behind the settling commit, in the same tick: from now on the ledger has what the reservation held.
    // What was spent and could not be booked stays reserved: a limit must not forget it.
    if (!call?.unbooked) reservation.release();
  }
}

async function announce(engine: Engine, run: TurnRun, prepared: ModelRequest): Promise<EventId> {
  const events = await engine.journal.commit({ emit: [callStarted(run, prepared, run.cause)] });
  return events[0]!.id;
}

async function turnAway(engine: Engine, call: Call): Promise<void> {
  const why = { error_class: 'cancelled', request_id: call.request_id } as const;
  const error = new AdapterError('a limit was set before the call left', why);
  await settleFailure(engine, call, { error, outages: [] });
}

/** @param of `started` is its `llm.call_started`, which is stored */
function newCall(
  engine: Engine,
  run: TurnRun,
  of: { readonly prepared: ModelRequest; readonly started: EventId; readonly limited: boolean },
): Call {
  return {
    run,
    purpose: of.prepared.purpose,
    request_id: of.prepared.request.request_id,
    started: of.started,
    began: engine.clock.monotonic(),
    heard: {
      left_behind: false,
      message_id: null,
      unshown: '',
      complete: null,
      provider_tool_ids: new Map(),
      input_errors: new Map(),
    },
    limited: of.limited,
    unbooked: false,
  };
}

/** Never throws for a provider's failure. */
async function send(engine: Engine, call: Call, request: CanonicalRequest, keep: Keep): Promise<CallOutcome> {
  try {
    await withGrace(engine, call.run.signal, listen(engine, call, request), {
      ...named(call.run),
      what: 'model call',
    });
  } catch (thrown) {
    call.heard.left_behind = true;
    throwIfLost(call.run.signal, thrown);
    call.heard.complete ??= partialAnswer(engine, call, request);
    const error = asAdapterError(engine, call, request, thrown);
    const failure = { error, outages: observe(engine, call.run, error) };
    return settle(engine, call, failure, keep);
  }
  return settle(engine, call, null, keep);
}

/** Stores the outcome. A fault in that is thrown, since nobody can go on with an answer that is lost; the call is closed before. */
async function settle(engine: Engine, call: Call, failure: Failure | null, keep: Keep): Promise<CallOutcome> {
  try {
    return failure === null ? await keep(engine, call) : await settleFailure(engine, call, failure);
  } catch (thrown) {
    throwIfLost(call.run.signal, thrown);
    await settleLost(engine, call, failure);
    throw thrown;
  }
}

const LOST = 'The answer could not be stored.';

/**
 * What was paid for is recorded with its exact cost, a sentence in place of a content that may be what cannot be stored.
 * Only a cost that cannot be stored at all is left out, and stays reserved: the call must not stay open for ever.
 */
async function settleLost(engine: Engine, call: Call, failure: Failure | null): Promise<void> {
  const { heard, request_id } = call;
  const outages = failure?.outages ?? [];
  const closed = { error_class: 'other', request_id } as const;
  const error = new AdapterError('the outcome of the call could not be stored', closed);
  call.unbooked = heard.complete !== null || (failure?.error.usage ?? null) !== null;
  if (call.unbooked)
    try {
      if (heard.complete !== null && heard.complete.final_content.length > 0)
        heard.complete = { ...heard.complete, final_content: [textBlock(LOST)], provider_raw: null };
      await settleFailure(engine, call, { error: failure?.error ?? error, outages });
      call.unbooked = false;
      return;
    } catch (err) {
      engine.log.error(
        { err, ...named(call.run), request_id },
        'a call that was paid for could not be recorded with its cost',
      );
    }
  heard.complete = null;
  await settleFailure(engine, call, { error, outages });
}

/** Forwards the stream of an answer as it comes; resolves when it ended whole, throws what the adapter throws. */
async function listen(engine: Engine, call: Call, request: CanonicalRequest): Promise<void> {
  const { run, heard } = call;
  for await (const event of run.adapter.stream(request, run.signal)) {
    if (heard.left_behind) return;
    note(engine, call, request, event);
    // What a summary says is for nobody who watches the conversation.
    const delta = call.purpose === 'turn' ? toDelta(event) : null;
    if (delta) engine.journal.transient(transient(engine, run, delta));
  }
  if (heard.complete === null) throw new Error('the stream ended without its last event');
}

function note(engine: Engine, { heard, purpose }: Call, request: CanonicalRequest, event: StreamEvent): void {
  heard.message_id = event.message_id as MessageId;
  if (event.type === 'tool.use_start') heard.provider_tool_ids.set(event.tool_use_id, event.provider_tool_id);
  else if (event.type === 'tool.use_end' && event.input_error !== null)
    heard.input_errors.set(event.tool_use_id, event.input_error);
  else if (event.type === 'text.delta' && purpose === 'compaction') heard.unshown += event.text;
  else if (event.type === 'message.complete')
    heard.complete = { ...event, usage: believedUsage(engine, request, event.usage, event.final_content) };
}

/** Adapters throw nothing else; whatever else arrives here is a bug of ours and is closed like a provider's failure. */
function asAdapterError(engine: Engine, call: Call, request: CanonicalRequest, thrown: unknown): AdapterError {
  if (thrown instanceof AdapterError) {
    if (thrown.usage === null || call.heard.complete !== null) return thrown;
    return new AdapterError(thrown.message, { ...thrown, usage: believedUsage(engine, request, thrown.usage, []) });
  }
  const cancelled = call.run.signal.aborted;
  if (!cancelled)
    engine.log.error(
      { err: thrown, ...named(call.run), request_id: call.request_id },
      'a provider stream failed unexpectedly',
    );
  return new AdapterError(cancelled ? 'cancelled' : 'unexpected failure while streaming', {
    error_class: cancelled ? 'cancelled' : 'other',
    request_id: call.request_id,
  });
}
