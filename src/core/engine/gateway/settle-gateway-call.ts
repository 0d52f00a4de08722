// Settles a call of the gateway: stores its counts and its cost, or why it failed, and no text of it (19 §2.2, §2.7).
import type { RequestFacts } from '#core/policy/gateway/request-facts.ts';
import { replaceIncredibleCounts } from '#core/policy/pricing/credible-usage.ts';
import type { MeterReading } from '#core/ports/gateway-relay.ts';
import { draft, type EventDraft } from '#protocol/event.ts';
import type { EventId, RequestId } from '#protocol/ids.ts';
import { TreeLost } from '#protocol/journal-batch.ts';
import { getProvider, type ModelEntry } from '#protocol/model.ts';
import type { Effort } from '#protocol/scalars.ts';
import type { SessionRecord } from '#protocol/session.ts';
import type { TokenUsage } from '#protocol/usage.ts';
import { warnOfLimits } from '../money/budget-notices.ts';
import { type BoundPrompt, learnPrompt } from '../money/call-price.ts';
import { isOfOneModel, stampUsage } from '../money/stamp-usage.ts';
import { observeCall, outageEvents } from '../routing/route-environment.ts';
import type { GatewayEngine, ModelCatalog, Runtime } from '../state/engine.ts';
import type { Outcome } from '../state/gateway-memory.ts';

/** Characters of an answer that an estimate takes for one token. */
export const ESTIMATED_CHARACTERS = 4;

/** A call that was announced. */
export interface AnnouncedCall {
  readonly session: SessionRecord;
  readonly model: ModelEntry;
  readonly effort: Effort | null;
  readonly request_id: RequestId;
  /** The call's `llm.call_started`. */
  readonly started: EventId;
  readonly estimated_input_tokens: RequestFacts['estimated_input_tokens'];
  /** Monotonic milliseconds. */
  readonly began: number;
  readonly limited: boolean;
  /** The model's name in the registry, not the client's name for it. */
  readonly by_wire_name: boolean;
  /** The prompt that was reserved for; null where no limit covers the call. */
  readonly prompt: BoundPrompt | null;
  /** Nothing in the request bounds its cost, and a limit covers it. */
  readonly unbounded: boolean;
  /** Most tokens of the answer, by the bound that was sent. */
  readonly most_output_tokens: number;
  /** Releases the call's reservation. */
  release(): void;
}

/**
 * Stores the outcome in one transaction and releases the reservation in the same tick. Never rejects. An outcome that
 * cannot be stored is logged and keeps its reservation, so that the limit counts what was spent. The node that takes
 * over a lost tree closes its calls.
 */
export async function settleCall(engine: GatewayEngine, call: AnnouncedCall, outcome: Outcome): Promise<void> {
  const where = { session_id: call.session.id, request_id: call.request_id };
  let stored: StoredOutcome;
  try {
    stored = await storeOutcome(engine, call, outcome);
  } catch (err) {
    if (err instanceof TreeLost) {
      call.release();
      engine.log.warn(where, 'the outcome of a gateway call was not stored: another node takes its session');
    } else engine.log.error({ err, ...where }, 'the outcome of a call of the gateway could not be stored');
    return;
  }
  call.release();
  if (!stored.billed || !call.limited) return;
  const place = { session: call.session, submitted_by: null, turn_id: null, model: call.model.id, caps: [] };
  await warnOfLimits(engine, place, stored.event);
}

interface StoredOutcome {
  readonly event: EventId;
  /** Whether the ledger has a row of the call. */
  readonly billed: boolean;
}

async function storeOutcome(engine: GatewayEngine, call: AnnouncedCall, outcome: Outcome): Promise<StoredOutcome> {
  const { session, model } = call;
  const { error_class, error_detail } = outcome;
  const failure = error_class === null ? null : { error_class, error_detail };
  const counts = outcome.counts && !isClientsOwn(engine, call, outcome);
  const outages = counts ? observeCall(engine, model, failure) : [];
  const usage = outcome.reading === null ? null : resolveUsage(engine, call, outcome);
  const emit: EventDraft[] = [
    usage === null ? draftFailed(engine, call, outcome) : draftCompleted(engine, call, outcome, usage),
  ];
  emit.push(...outageEvents(outages, { session_id: session.id, turn_id: null, parent: 0 }));
  const [event] = await engine.journal.commit({ emit });
  if (
    usage !== null &&
    call.prompt !== null &&
    error_class === null &&
    isOfOneModel(engine, model, outcome.reading!.bill)
  )
    learnPrompt(engine, call.prompt, { model, usage, served: outcome.reading!.served_model });
  return { event: event!.id, billed: usage !== null };
}

/** A failure that other clients' calls would not meet: of the client's own key, or of a model name that it made up. */
function isClientsOwn(
  { config }: Pick<Runtime, 'config'>,
  { by_wire_name }: AnnouncedCall,
  { error_class, error_detail }: Outcome,
): boolean {
  const isAboutModel = error_detail === 'model_not_found' || error_detail === 'model_denied';
  if (isAboutModel && !by_wire_name) return true;
  if (config.gateway.credentials !== 'client') return false;
  return isAboutModel || error_class === 'auth' || (error_class === 'rate_limit' && error_detail !== 'overloaded');
}

function commonPayload({ session, model, request_id }: AnnouncedCall) {
  return {
    model: model.id,
    provider: getProvider(model.id),
    request_id,
    is_worker: session.is_worker,
    parent_session_id: session.parent_session_id,
    root_session_id: session.root_session_id,
  };
}

function measureLatency(engine: Pick<Runtime, 'clock'>, { began }: AnnouncedCall): number {
  return Math.round(engine.clock.monotonic() - began);
}

function draftFailed(
  engine: Pick<Runtime, 'clock'>,
  call: AnnouncedCall,
  { error_class, message }: Outcome,
): EventDraft {
  return draft({
    type: 'llm.call_failed',
    session_id: call.session.id,
    turn_id: null,
    parent: call.started,
    payload: {
      ...commonPayload(call),
      error_class: error_class ?? 'other',
      error_message_redacted: message,
      retry_count: 0,
      latency_ms: measureLatency(engine, call),
    },
  });
}

function draftCompleted(
  engine: Runtime & ModelCatalog,
  call: AnnouncedCall,
  outcome: Outcome,
  tokens: TokenUsage,
): EventDraft {
  const { session, model, request_id } = call;
  const reading = outcome.reading!;
  const { usage, bill } = stampUsage(engine, model, tokens, {
    served: reading.served_model,
    latency: measureLatency(engine, call),
    where: { session_id: session.id, request_id },
    bill: reading.bill,
    prices: call.prompt?.prices ?? null,
  });
  return draft({
    type: 'llm.call_completed',
    session_id: session.id,
    turn_id: null,
    parent: call.started,
    payload: {
      ...usage,
      ...bill,
      ...commonPayload(call),
      effort: call.effort,
      stop_reason: outcome.error_class === null ? resolveStopReason(reading) : 'cancelled',
      error_class: outcome.error_class,
      produced_tool_calls: reading.tool_calls,
      produced_thinking_blocks: reading.thinking_blocks,
      message_id: null,
      purpose: 'gateway',
      bound: call.unbounded ? 'none' : null,
    },
  });
}

function resolveStopReason({ stop_reason, tool_calls }: MeterReading) {
  const hasReason = stop_reason !== null && stop_reason !== 'cancelled' && stop_reason !== 'error';
  if (hasReason && stop_reason !== 'end_turn') return stop_reason;
  if (tool_calls > 0) return 'tool_use';
  return 'end_turn';
}

/** Null where a failed call has no counts (01 §4.4). Missing counts are estimated. */
function resolveUsage(
  engine: Pick<Runtime, 'log'>,
  call: AnnouncedCall,
  { reading, error_class }: Outcome,
): TokenUsage | null {
  const { usage, characters, tool_calls, response_id } = reading!;
  const inputKnown = usage.input !== null || usage.cached !== null || usage.creation !== null;
  const outputKnown = usage.output !== null && !usage.early;
  const nothing = !inputKnown && usage.output === null && characters === 0 && tool_calls === 0;
  // A begun answer was billed for its prompt at least: disconnecting before its first word must not bypass a limit.
  const isBilled = call.prompt !== null && response_id !== null;
  if (error_class !== null && nothing && !isBilled) return null;
  const estimates = {
    // Calls that are cut off before their counts arrive must not bypass a limit.
    input: () => call.prompt?.tokens ?? call.estimated_input_tokens,
    output: () => Math.min(Math.ceil(characters / ESTIMATED_CHARACTERS), call.most_output_tokens),
  };
  const reported: TokenUsage = {
    input_tokens: inputKnown ? (usage.input ?? 0) : estimates.input(),
    cached_input_tokens: usage.cached ?? 0,
    cache_creation_input_tokens: usage.creation ?? 0,
    cache_creation_1h_input_tokens: Math.min(usage.creation1h ?? 0, usage.creation ?? 0),
    output_tokens: outputKnown ? usage.output! : Math.max(usage.output ?? 0, estimates.output()),
    reasoning_tokens: usage.reasoning ?? 0,
    usage_estimated: !inputKnown || !outputKnown,
  };
  const believed = replaceIncredibleCounts(reported, call.model.capabilities, estimates, reading!.bill);
  if (believed.faults.length > 0)
    engine.log.warn(
      { session_id: call.session.id, model: call.model.id, request_id: call.request_id, faults: believed.faults },
      'the provider reports impossible counts; they are estimated',
    );
  return believed.usage;
}
