// One model call: started and settled in the journal, streamed to the bus, every outcome with its cost (00 §3 steps 3-4).
import type { Delta, Transient } from '../domain/delta.ts';
import { draft, type EventDraft } from '../domain/event.ts';
import { type ContentBlock, type StopReason, type StoredMessage, toolUses } from '../domain/message.ts';
import type { ErrorClass } from '../domain/scalars.ts';
import type { TokenUsage, Usage } from '../domain/usage.ts';
import { isoTime } from '../kernel/clock.ts';
import type { EventId, MessageId, RequestId, ToolUseId } from '../kernel/ids.ts';
import { fromPusd, type Pusd } from '../kernel/money.ts';
import { requestMessages } from '../policy/context/assemble.ts';
import { estimateRequest } from '../policy/context/estimate.ts';
import { priceCall, servedModelId, usageFault } from '../policy/pricing/cost.ts';
import { recordOutcome } from '../policy/routing/availability.ts';
import type { Write } from '../ports/journal.ts';
import { AdapterError, type CanonicalRequest, type MessageComplete, type StreamEvent } from '../ports/provider.ts';
import { abandonable } from './abandon.ts';
import { withoutRaw } from './admit.ts';
import { type BudgetRefusal, reserve } from './budget.ts';
import { type Engine, safeText } from './context.ts';
import { cutShort } from './cut-short.ts';
import { errorResult, type ToolResults } from './tool-results.ts';
import type { TurnBase, TurnRun } from './turn-run.ts';

export type CallOutcome =
  | { readonly ok: true; readonly settled: ToolResults }
  | { readonly ok: false; readonly error: AdapterError }
  /** A limit refused the call before it left. */
  | { readonly ok: false; readonly error: null; readonly refusal: BudgetRefusal };

/** What the stream said so far that its last event does not repeat. */
interface Heard {
  /** Left behind after its cancellation: whatever still comes is discarded. */
  abandoned: boolean;
  message_id: MessageId | null;
  complete: MessageComplete | null;
  readonly provider_tool_ids: Map<ToolUseId, string | null>;
  readonly input_errors: Map<ToolUseId, string>;
}

interface Call {
  readonly run: TurnRun;
  readonly request_id: RequestId;
  readonly started: EventId;
  readonly began: number;
  readonly heard: Heard;
}

/**
 * Makes the turn's next model call and stores its outcome. Never throws for a provider's failure:
 * a call cut off with known usage is recorded with its cost, one without costs nothing (01 §4.4).
 */
export async function callModel(engine: Engine, run: TurnRun): Promise<CallOutcome> {
  const { request, estimated } = await assemble(engine, run);
  const reservation = await reserve(engine, run, request);
  if (!reservation.ok) return { ok: false, error: null, refusal: reservation.refusal };
  try {
    return await leave(engine, run, request, estimated);
  } finally {
    // Right behind the settling commit, in the same tick: from now on the ledger has what the reservation held.
    reservation.release();
  }
}

async function leave(engine: Engine, run: TurnRun, request: CanonicalRequest, estimated: number): Promise<CallOutcome> {
  const events = await engine.journal.commit({
    emit: [
      draft({
        type: 'llm.call_started',
        session_id: run.session.id,
        turn_id: run.turn.id,
        parent: run.cause,
        payload: {
          model: run.model.id,
          provider: run.turn.provider ?? '',
          estimated_input_tokens: estimated,
          request_id: request.request_id,
          call_index: run.tally.llm_calls + 1,
          purpose: 'turn',
          is_worker: run.session.is_worker,
          parent_session_id: run.session.parent_session_id,
          root_session_id: run.session.root_session_id,
        },
      }),
    ],
  });
  const call: Call = {
    run,
    request_id: request.request_id,
    started: events[0]!.id,
    began: engine.clock.monotonic(),
    heard: {
      abandoned: false,
      message_id: null,
      complete: null,
      provider_tool_ids: new Map(),
      input_errors: new Map(),
    },
  };
  try {
    await abandonable(engine, run.signal, listen(engine, call, request), 'model call');
  } catch (thrown) {
    call.heard.abandoned = true;
    call.heard.complete ??= cutShort(engine, call.run, call.heard.message_id, request);
    return settleFailure(engine, call, asAdapterError(engine, call, thrown));
  }
  return settleSuccess(engine, call);
}

async function assemble(engine: Engine, run: TurnRun): Promise<{ request: CanonicalRequest; estimated: number }> {
  const { session } = run;
  const volatile = session.is_worker
    ? session.system_prompt_volatile
    : await engine.workspaces.memoryText(session.workspace_path);
  const { messages, missing } = requestMessages(run.history);
  if (missing.length > 0)
    engine.log.error({ session_id: session.id, tool_use_ids: missing }, 'tool calls without a stored result');
  const limits = [engine.config.turn.max_output_tokens, run.model.capabilities.max_output_tokens];
  if (run.worker?.output_tokens_left != null) limits.push(run.worker.output_tokens_left);
  const request: CanonicalRequest = {
    request_id: engine.ids.request(),
    model: run.model,
    messages,
    tools: run.wire_tools,
    system_prompt: session.system_prompt,
    system_prompt_volatile: volatile,
    max_output_tokens: Math.min(...limits),
    stop_sequences: [],
    temperature: null,
    output_schema: run.worker?.output_schema ?? null,
    caller: {
      session_id: session.id,
      turn_id: run.turn.id,
      is_worker: session.is_worker,
      parent_session_id: session.parent_session_id,
      turn_index: run.turn_index,
      call_index: run.tally.llm_calls + 1,
    },
  };
  return { request, estimated: estimateRequest(request) };
}

/** Forwards the stream as it comes; resolves when it ended whole, throws what the adapter throws. */
async function listen(engine: Engine, call: Call, request: CanonicalRequest): Promise<void> {
  const { run, heard } = call;
  for await (const event of run.adapter.stream(request, run.signal)) {
    if (heard.abandoned) return;
    note(heard, event);
    const delta = toDelta(event);
    if (delta) engine.journal.transient(transient(engine, run, delta));
  }
  if (heard.complete === null) throw new Error('the stream ended without its last event');
  const fault = usageFault(heard.complete.usage);
  if (fault === null) return;
  // Priced it would be a lie: the call is closed as one whose counts never came.
  heard.complete = null;
  throw new Error(`the adapter reported an impossible usage: ${fault}`);
}

function note(heard: Heard, event: StreamEvent): void {
  heard.message_id = event.message_id as MessageId;
  if (event.type === 'tool.use_start') heard.provider_tool_ids.set(event.tool_use_id, event.provider_tool_id);
  else if (event.type === 'tool.use_end' && event.input_error !== null)
    heard.input_errors.set(event.tool_use_id, event.input_error);
  else if (event.type === 'message.complete') heard.complete = event;
}

/** The public form; `message.complete` waits for its transaction. */
function toDelta(event: StreamEvent): Delta | null {
  const { message_id } = event;
  switch (event.type) {
    case 'message.start':
      return {
        type: event.type,
        payload: { message_id, role: 'assistant', model: event.model, content: [], open_tool_inputs: [] },
      };
    case 'text.delta':
      return {
        type: event.type,
        payload: { message_id, content_block_index: event.content_block_index, text: event.text },
      };
    case 'thinking.delta':
      return {
        type: event.type,
        payload: {
          message_id,
          content_block_index: event.content_block_index,
          text: event.text,
          signature: event.signature,
        },
      };
    case 'tool.use_start':
      return {
        type: event.type,
        payload: {
          message_id,
          content_block_index: event.content_block_index,
          tool_use_id: event.tool_use_id,
          tool_name: event.tool_name,
        },
      };
    case 'tool.use_input_delta':
      return {
        type: event.type,
        payload: {
          message_id,
          content_block_index: event.content_block_index,
          tool_use_id: event.tool_use_id,
          partial_json: event.partial_json,
        },
      };
    case 'tool.use_end':
      return {
        type: event.type,
        payload: {
          message_id,
          content_block_index: event.content_block_index,
          tool_use_id: event.tool_use_id,
          final_input: event.final_input,
          input_error: event.input_error,
        },
      };
    case 'message.complete':
      return null;
  }
}

async function settleSuccess(engine: Engine, call: Call): Promise<CallOutcome> {
  const { run, heard } = call;
  const complete = heard.complete!;
  const settled = new Map([...heard.input_errors].map(([id, fault]) => [id, errorResult(id, `$: ${fault}`)]));
  const charged = charge(engine, call, complete.usage, complete.served_model, complete.latency_ms);
  const message = storedMessage(engine, call, complete, 'complete', charged.usage);
  const events = await engine.journal.commit({
    writes: [...messageWrites(engine, call, message, 'pending'), ...settleInvalid(engine, settled)],
    emit: [
      messageComplete(engine, run, message.id, complete, complete.stop_reason, charged.usage),
      callCompleted(call, complete.stop_reason as 'end_turn', null, message.content, message.id, charged.usage),
      ...invalidInputs(run, message, heard.input_errors),
    ],
  });
  engine.routes.availability = outcome(engine, run, null).state;
  run.history.push(message);
  run.call_event_id = events[0]!.id;
  if (settled.size > 0) run.cause = events.at(-1)!.id;
  run.tally.tool_calls += settled.size;
  run.stop_reason = complete.stop_reason;
  run.final_message_id = message.id;
  count(run, charged.usage, charged.cost);
  return { ok: true, settled };
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

async function settleFailure(engine: Engine, call: Call, error: AdapterError): Promise<CallOutcome> {
  const { run, heard } = call;
  const observed = outcome(engine, run, error.error_class);
  engine.routes.availability = observed.state;
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
    counted = charge(engine, call, usage, heard.complete?.served_model ?? null, elapsed(engine, call));
    const cut: StopReason = error.error_class === 'cancelled' ? 'cancelled' : 'error';
    if (heard.complete) {
      if (heard.complete.final_content.length > 0) {
        partial = storedMessage(engine, call, heard.complete, cut, counted.usage);
        writes.push(...messageWrites(engine, call, partial, 'cancelled'));
      }
      emit.push(messageComplete(engine, run, heard.message_id!, heard.complete, cut, counted.usage));
    }
    emit.push(
      callCompleted(
        call,
        'cancelled',
        error.error_class,
        heard.complete?.final_content ?? [],
        partial?.id ?? null,
        counted.usage,
      ),
    );
  }
  const cause = emit.length - 1;
  for (const t of observed.transitions) {
    if (t.kind !== 'unavailable') continue;
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

/** The call's usage with its money, stamped once (08 §6). */
function charge(
  engine: Engine,
  call: Call,
  tokens: TokenUsage,
  served: string | null,
  latency: number,
): { usage: Usage; cost: Pusd } {
  const { model } = call.run;
  const { cost_pusd, priced } = priceCall({
    table: engine.prices,
    servedModelId: servedModelId(model, served),
    pricingId: model.pricing_id,
    modelId: model.id,
    usage: tokens,
  });
  if (!priced && !engine.unpriced.has(model.id)) {
    engine.unpriced.add(model.id);
    engine.log.warn({ model: model.id, pricing_version: engine.prices.version }, 'no price for this model');
  }
  return {
    usage: {
      ...tokens,
      cost_usd: fromPusd(cost_pusd),
      pricing_version: engine.prices.version,
      priced,
      latency_ms: Math.round(latency),
    },
    cost: cost_pusd,
  };
}

function storedMessage(
  engine: Engine,
  call: Call,
  complete: MessageComplete,
  status: 'complete' | 'cancelled' | 'error',
  usage: Usage,
): StoredMessage {
  const { run } = call;
  return {
    id: call.heard.message_id!,
    session_id: run.session.id,
    turn_id: run.turn.id,
    role: 'assistant',
    content: [...complete.final_content],
    metadata: {
      model: run.model.id,
      provider: run.turn.provider,
      routing: run.routing,
      usage,
      parent_tool_use_id: null,
      status,
    },
    created_at: isoTime(engine.clock.now()),
    provider_raw: complete.provider_raw,
  };
}

function messageWrites(
  engine: Engine,
  call: Call,
  message: StoredMessage,
  callStatus: 'pending' | 'cancelled',
): Write[] {
  const at = engine.clock.now();
  return [
    { kind: 'message.insert', message },
    ...toolUses(message.content).map(
      (block): Write => ({
        kind: 'tool_call.insert',
        call: {
          id: block.id,
          session_id: call.run.session.id,
          turn_id: call.run.turn.id,
          message_id: message.id,
          name: block.name,
          status: callStatus,
          provider: call.run.turn.provider ?? '',
          provider_id: call.heard.provider_tool_ids.get(block.id) ?? null,
          created_at: at,
        },
      }),
    ),
  ];
}

function messageComplete(
  engine: Engine,
  run: TurnRun,
  messageId: MessageId,
  complete: MessageComplete,
  stop: StopReason,
  usage: Usage,
): Transient {
  return transient(engine, run, {
    type: 'message.complete',
    payload: {
      message_id: messageId,
      stop_reason: stop,
      final_content: complete.final_content,
      usage,
      latency_ms: usage.latency_ms,
    },
  });
}

function callCompleted(
  call: Call,
  stop: 'end_turn' | 'max_tokens' | 'stop_sequence' | 'tool_use' | 'cancelled',
  errorClass: ErrorClass | null,
  content: readonly ContentBlock[],
  messageId: MessageId | null,
  usage: Usage,
): EventDraft {
  const { run } = call;
  return draft({
    type: 'llm.call_completed',
    session_id: run.session.id,
    turn_id: run.turn.id,
    parent: call.started,
    payload: {
      ...usage,
      model: run.model.id,
      provider: run.turn.provider ?? '',
      stop_reason: stop,
      error_class: errorClass,
      produced_tool_calls: content.filter((b) => b.type === 'tool_use').length,
      produced_thinking_blocks: content.filter((b) => b.type === 'thinking' || b.type === 'redacted_thinking').length,
      parent_session_id: run.session.parent_session_id,
      is_worker: run.session.is_worker,
      root_session_id: run.session.root_session_id,
      request_id: call.request_id,
      message_id: messageId,
      purpose: 'turn',
    },
  });
}

/** Adds a finished call to the turn's figures; they equal the ledger's because both come from the same usage. */
function count(run: TurnRun, usage: Usage, cost: Pusd): void {
  const { tally } = run;
  tally.llm_calls += 1;
  tally.input_tokens += usage.input_tokens;
  tally.output_tokens += usage.output_tokens;
  tally.cached_input_tokens += usage.cached_input_tokens;
  tally.cache_creation_input_tokens += usage.cache_creation_input_tokens;
  tally.cost_pusd = (tally.cost_pusd + cost) as Pusd;
  if (run.worker?.output_tokens_left != null) run.worker.output_tokens_left -= usage.output_tokens;
}

function outcome(engine: Engine, run: TurnRun, errorClass: ErrorClass | null) {
  return recordOutcome(
    engine.routes.availability,
    { model: run.model.id, provider: run.turn.provider ?? '', error_class: errorClass },
    engine.clock.now(),
    engine.registry,
  );
}

function elapsed(engine: Engine, call: Call): number {
  return Math.round(engine.clock.monotonic() - call.began);
}

export function transient(engine: Engine, run: TurnBase, delta: Delta): Transient {
  return { session_id: run.session.id, turn_id: run.turn.id, timestamp: engine.clock.now(), delta };
}

/** A message that was just stored, for clients that did not send it. */
export function appended(engine: Engine, run: TurnBase, message: StoredMessage): Transient {
  return transient(engine, run, { type: 'message.appended', payload: { message: withoutRaw(message) } });
}

/** Adapters throw nothing else; whatever else arrives here is a bug of ours and is closed like a provider's failure. */
function asAdapterError(engine: Engine, call: Call, thrown: unknown): AdapterError {
  if (thrown instanceof AdapterError) return thrown;
  const cancelled = call.run.signal.aborted;
  if (!cancelled)
    engine.log.error({ err: thrown, request_id: call.request_id }, 'a provider stream failed unexpectedly');
  return new AdapterError(cancelled ? 'cancelled' : 'unexpected failure while streaming', {
    error_class: cancelled ? 'cancelled' : 'other',
    request_id: call.request_id,
  });
}
