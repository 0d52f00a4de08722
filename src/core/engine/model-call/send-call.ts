// Sends one model call: reserves money, announces the call in the journal, streams to the bus, stores the outcome (00 §3 steps 3-4).

import { estimateRequest } from '#core/policy/context/token-estimate.ts';
import { replaceIncredibleCounts } from '#core/policy/pricing/credible-usage.ts';
import { AdapterError, type Spent } from '#core/ports/provider.ts';
import type { EventId, MessageId } from '#protocol/ids.ts';
import { type ContentBlock, textBlock } from '#protocol/message.ts';
import type { CanonicalRequest, MessageComplete, StreamEvent } from '#protocol/model-call.ts';
import type { ReportedBill, TokenUsage } from '#protocol/usage.ts';
import { type BoundPrompt, learnPrompt } from '../money/call-price.ts';
import { reserveMoney, reserveSpent } from '../money/reserve-money.ts';
import { isOfOneModel } from '../money/stamp-usage.ts';
import { throwIfLost, withGrace } from '../state/concurrency.ts';
import type { Cluster, ModelCallEngine, ModelCatalog, Runtime, Storage } from '../state/engine.ts';
import { logFields, type ModelRequest, type TurnRun } from '../state/turn-run.ts';
import { type Call, type CallOutcome, chargeCall, recordCaseCall, toDelta, toTransient } from './call-records.ts';
import { callStartedEvent } from './model-request.ts';
import { type Failure, observeOutcome, settleFailure } from './settle-call.ts';

// The recorded counts of a call: an implausible count is replaced by an estimate, so that limits stay correct (08 §4.1).

interface Reported {
  readonly usage: TokenUsage;
  /** The answer so far. */
  readonly content: readonly ContentBlock[];
  readonly bill: ReportedBill | null;
}

function correctUsage(
  engine: Pick<Runtime, 'log'>,
  call: Pick<Call, 'prompt'>,
  request: CanonicalRequest,
  { usage: reported, content, bill }: Reported,
): TokenUsage {
  const estimates = { input: () => estimateRequest(request), output: () => estimateAnswer(content, request) };
  const { usage, faults } = replaceIncredibleCounts(reported, request.model.capabilities, estimates, bill);
  if (faults.length > 0)
    engine.log.warn(
      {
        session_id: request.caller.session_id,
        turn_id: request.caller.turn_id,
        model: request.model.id,
        request_id: request.request_id,
        faults,
      },
      'the provider reports impossible counts; they are estimated',
    );
  return limitEstimate(call, request, usage);
}

/** The same of the attempts before it. */
function correctLost(
  engine: Pick<Runtime, 'log'>,
  call: Pick<Call, 'prompt'>,
  request: CanonicalRequest,
  bill: ReportedBill | null,
): ReportedBill | null {
  if (bill?.lost === undefined) return bill;
  return {
    ...bill,
    lost: bill.lost.map((usage) => correctUsage(engine, call, request, { usage, content: [], bill: null })),
  };
}

/** An estimate of the prompt by its characters may be above what was reserved for it: no cap is passed by an estimate. */
function limitEstimate({ prompt }: Pick<Call, 'prompt'>, request: CanonicalRequest, usage: TokenUsage): TokenUsage {
  if (prompt === null || !usage.usage_estimated || usage.input_tokens <= prompt.tokens) return usage;
  // The answer alone was estimated.
  if (usage.input_tokens !== estimateRequest(request)) return usage;
  return { ...usage, input_tokens: prompt.tokens };
}

/** Tokens of an answer by its characters, four per token; never above its bound. */
function estimateAnswer(content: readonly ContentBlock[], { max_output_tokens }: CanonicalRequest): number {
  let total = 0;
  for (const block of content) {
    if (block.type === 'text' || block.type === 'thinking') total += block.text.length;
    else if (block.type === 'tool_use') total += block.name.length + JSON.stringify(block.input).length;
  }
  return Math.min(Math.ceil(total / 4), max_output_tokens);
}

// Builds the outcome of a model call whose stream was abandoned, from the received deltas (04 §9, 01 §4.4).

/** Null when nothing was streamed. Counts are estimates, since the provider's counts never arrived. */
function buildPartialAnswer(
  engine: Pick<Cluster, 'bus'>,
  call: Call,
  request: CanonicalRequest,
): MessageComplete | null {
  if (call.stream.message_id === null) return null;
  const content = call.purpose === 'turn' ? readStreamedBlocks(engine, call) : [textBlock(call.stream.hidden_text)];
  return {
    type: 'message.complete',
    stop_reason: 'cancelled',
    raw_stop_reason: null,
    final_content: content,
    usage: limitEstimate(call, request, {
      input_tokens: estimateRequest(request),
      cached_input_tokens: 0,
      cache_creation_input_tokens: 0,
      cache_creation_1h_input_tokens: 0,
      output_tokens: estimateAnswer(content, request),
      reasoning_tokens: 0,
      usage_estimated: true,
    }),
    bill: null,
    latency_ms: 0,
    retry_count: 0,
    served_model: null,
    response_id: null,
    provider_raw: null,
  };
}

function readStreamedBlocks(engine: Pick<Cluster, 'bus'>, { run, stream }: Call): readonly ContentBlock[] {
  const open = engine.bus.openMessages((id) => id === run.session.id);
  const start = open.find((t) => t.delta.type === 'message.start' && t.delta.payload.message_id === stream.message_id);
  if (start?.delta.type === 'message.start') return start.delta.payload.content;
  return [];
}

/** Stores a call's complete answer, in one transaction with its `llm.call_completed`. */
export type SettleAnswer = (engine: ModelCallEngine, call: Call) => Promise<CallOutcome>;

/**
 * Reserves the most that the call may cost, announces it, sends it and stores the outcome.
 * @param how `started` is the call's `llm.call_started` where that is stored already
 */
export async function makeCall(
  engine: ModelCallEngine,
  run: TurnRun,
  prepared: ModelRequest,
  how: { readonly settleAnswer: SettleAnswer; readonly started: EventId | null },
): Promise<CallOutcome> {
  // Also for an announced call: a limit may have been set while its announcement was being stored.
  const reserving = reserveMoney(engine, run, prepared.request);
  const { reservation, prompt } = reserving instanceof Promise ? await reserving : reserving;
  if (!reservation.ok) {
    if (how.started)
      await rejectCall(engine, newCall(engine, run, { prepared, started: how.started, limited: true, prompt }));
    return { ok: false, error: null, refusal: reservation.refusal };
  }
  let call: Call | null = null;
  try {
    const started = how.started ?? (await announceModelCall(engine, run, prepared));
    call = newCall(engine, run, { prepared, started, limited: reservation.limited, prompt });
    const outcome = await sendCall(engine, call, prepared.request, how.settleAnswer);
    const { complete } = call.stream;
    if (outcome.ok && complete !== null && prompt !== null && isOfOneModel(engine, run.model, complete.bill))
      learnPrompt(engine, prompt, { model: run.model, usage: complete.usage, served: complete.served_model });
    return outcome;
  } finally {
    // In the same tick as the settling commit: the ledger now has the cost in place of the reservation.
    // A cost that could not be stored stays reserved, so that the limit counts it.
    if (!call?.unbooked) for (const held of [reservation, ...(call?.spent ?? [])]) held.release();
  }
}

async function announceModelCall(
  engine: Pick<Storage, 'journal'>,
  run: TurnRun,
  prepared: ModelRequest,
): Promise<EventId> {
  const events = await engine.journal.commit({ emit: [callStartedEvent(run, prepared, run.cause)] });
  return events[0]!.id;
}

async function rejectCall(engine: Runtime & Storage & ModelCatalog, call: Call): Promise<void> {
  const why = { error_class: 'cancelled', request_id: call.request_id } as const;
  const error = new AdapterError('a limit was set before the call left', why);
  await settleFailure(engine, call, { error, outages: [] });
}

/** @param of `started` is the call's `llm.call_started`, which is stored */
function newCall(
  engine: Pick<Runtime, 'clock'>,
  run: TurnRun,
  of: {
    readonly prepared: ModelRequest;
    readonly started: EventId;
    readonly limited: boolean;
    readonly prompt: BoundPrompt | null;
  },
): Call {
  return {
    run,
    purpose: of.prepared.purpose,
    request_id: of.prepared.request.request_id,
    started: of.started,
    began: engine.clock.monotonic(),
    stream: {
      left_behind: false,
      message_id: null,
      hidden_text: '',
      held: [],
      complete: null,
      provider_tool_ids: new Map(),
      input_errors: new Map(),
    },
    limited: of.limited,
    prompt: of.prompt,
    spent: [],
    unbooked: false,
  };
}

/** Never throws for a provider's failure. */
async function sendCall(
  engine: ModelCallEngine,
  call: Call,
  request: CanonicalRequest,
  keep: SettleAnswer,
): Promise<CallOutcome> {
  try {
    await withGrace(engine, call.run.signal, forwardStream(engine, call, request), {
      ...logFields(call.run),
      what: 'model call',
    });
  } catch (thrown) {
    call.stream.left_behind = true;
    throwIfLost(call.run.signal, thrown);
    call.stream.complete ??= buildPartialAnswer(engine, call, request);
    const error = toAdapterError(engine, call, request, thrown);
    const failure = { error, outages: observeOutcome(engine, call.run, error) };
    await recordCaseCall(engine, call, request, error);
    return await storeOutcome(engine, call, failure, keep);
  }
  if (call.run.session.record_case) await recordCaseCall(engine, call, request, null);
  return await storeOutcome(engine, call, null, keep);
}

/** Stores the outcome. A fault of the store is thrown after the call is closed: a turn cannot continue with a lost answer. */
async function storeOutcome(
  engine: ModelCallEngine,
  call: Call,
  failure: Failure | null,
  keep: SettleAnswer,
): Promise<CallOutcome> {
  try {
    if (failure === null) return await keep(engine, call);
    return await settleFailure(engine, call, failure);
  } catch (thrown) {
    throwIfLost(call.run.signal, thrown);
    await settleUnstorable(engine, call, failure);
    throw thrown;
  }
}

const LOST = 'The answer could not be stored.';

/**
 * Records a paid call with its exact cost, and a sentence in place of content that may not be storable. Only a cost that
 * cannot be stored at all is omitted, and stays reserved: the call must not stay open for ever.
 */
async function settleUnstorable(
  engine: Runtime & Storage & ModelCatalog,
  call: Call,
  failure: Failure | null,
): Promise<void> {
  const { stream, request_id } = call;
  const outages = failure?.outages ?? [];
  const closed = { error_class: 'other', request_id } as const;
  const error = new AdapterError('the outcome of the call could not be stored', closed);
  call.unbooked = stream.complete !== null || (failure?.error.usage ?? null) !== null;
  if (call.unbooked)
    try {
      if (stream.complete !== null && stream.complete.final_content.length > 0)
        stream.complete = { ...stream.complete, final_content: [textBlock(LOST)], provider_raw: null };
      await settleFailure(engine, call, { error: failure?.error ?? error, outages });
      call.unbooked = false;
      return;
    } catch (err) {
      engine.log.error(
        { err, ...logFields(call.run), request_id },
        'a call that was paid for could not be recorded with its cost',
      );
    }
  stream.complete = null;
  await settleFailure(engine, call, { error, outages });
}

/** Forwards the stream of an answer as it arrives. Resolves at its complete end, throws the adapter's errors. */
async function forwardStream(engine: ModelCallEngine, call: Call, request: CanonicalRequest): Promise<void> {
  const { run, stream } = call;
  const forwardEvent = (event: StreamEvent, isWhole = false) => {
    if (stream.left_behind) return;
    recordStreamEvent(engine, call, request, event);
    // The text of a summary is not part of the conversation that clients watch.
    const delta = call.purpose === 'turn' ? toDelta(event) : null;
    if (delta === null) return;
    const transient = toTransient(engine, run, delta);
    if (isWhole) stream.held.push(transient);
    else engine.journal.publishDelta(transient);
  };
  await run.adapter.stream(request, run.signal, forwardEvent, (spent) => holdSpent(engine, call, request, spent));
  if (stream.complete === null) throw new Error('the stream ended without its last event');
}

/** Whether a call may be repeated after an attempt that is billed: what it spent has to fit the limits beside the next one. */
async function holdSpent(
  engine: ModelCallEngine,
  call: Call,
  request: CanonicalRequest,
  { usage: reported, bill }: Spent,
): Promise<boolean> {
  if (call.prompt === null) return true;
  const usage = correctUsage(engine, call, request, { usage: reported, content: [], bill });
  const { cost } = chargeCall(engine, call, usage, { served_model: null, latency_ms: 0, bill });
  try {
    const held = await reserveSpent(engine, call.run, cost);
    // Abandoned meanwhile, so that the call is settled already.
    if (call.stream.left_behind) held?.release();
    else if (held !== null) call.spent.push(held);
    return held !== null && !call.stream.left_behind;
  } catch (err) {
    engine.log.error({ err, ...logFields(call.run), request_id: call.request_id }, 'the limits could not be read');
    return false;
  }
}

function recordStreamEvent(
  engine: Pick<Runtime, 'log'>,
  call: Call,
  request: CanonicalRequest,
  event: StreamEvent,
): void {
  const { stream, purpose } = call;
  stream.message_id = event.message_id as MessageId;
  if (event.type === 'tool.use_start') stream.provider_tool_ids.set(event.tool_use_id, event.provider_tool_id);
  else if (event.type === 'tool.use_end' && event.input_error !== null)
    stream.input_errors.set(event.tool_use_id, event.input_error);
  else if (event.type === 'text.delta' && purpose === 'compaction') stream.hidden_text += event.text;
  else if (event.type === 'message.complete')
    stream.complete = {
      ...event,
      usage: correctUsage(engine, call, request, {
        usage: event.usage,
        content: event.final_content,
        bill: event.bill,
      }),
      bill: correctLost(engine, call, request, event.bill),
    };
}

/** Adapters throw `AdapterError` only; any other error here is a bug, closed like a provider's failure. */
function toAdapterError(
  engine: Pick<Runtime, 'log'>,
  call: Call,
  request: CanonicalRequest,
  thrown: unknown,
): AdapterError {
  if (thrown instanceof AdapterError) {
    if (thrown.usage === null || call.stream.complete !== null) return thrown;
    const usage = correctUsage(engine, call, request, { usage: thrown.usage, content: [], bill: thrown.bill });
    return new AdapterError(thrown.message, {
      ...thrown,
      usage,
      bill: correctLost(engine, call, request, thrown.bill),
    });
  }
  const cancelled = call.run.signal.aborted;
  if (!cancelled)
    engine.log.error(
      { err: thrown, ...logFields(call.run), request_id: call.request_id },
      'a provider stream failed unexpectedly',
    );
  return new AdapterError(cancelled ? 'cancelled' : 'unexpected failure while streaming', {
    error_class: cancelled ? 'cancelled' : 'other',
    request_id: call.request_id,
  });
}
