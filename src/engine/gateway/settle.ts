// What a call of the gateway leaves behind: its counts and its money, or why it failed; nothing of what was said (19 §2.2, §2.7).
import { draft, type EventDraft } from '../../domain/event.ts';
import type { ModelEntry } from '../../domain/model.ts';
import { providerOf } from '../../domain/model.ts';
import type { ErrorClass } from '../../domain/scalars.ts';
import type { SessionRecord } from '../../domain/session.ts';
import type { TokenUsage } from '../../domain/usage.ts';
import type { EventId, RequestId } from '../../kernel/ids.ts';
import type { RequestFacts } from '../../policy/gateway/request-facts.ts';
import { credibleUsage } from '../../policy/pricing/credible-usage.ts';
import type { MeterReading } from '../../ports/relay.ts';
import { warnedOf } from '../money/budget-events.ts';
import { stampedUsage } from '../money/charge.ts';
import { observeCall, outageEvents } from '../routing/observe.ts';
import type { Engine } from '../state/engine.ts';

/** A call that was announced. */
export interface Begun {
  readonly session: SessionRecord;
  readonly model: ModelEntry;
  readonly request_id: RequestId;
  /** Its `llm.call_started`. */
  readonly started: EventId;
  readonly estimated_input_tokens: RequestFacts['estimated_input_tokens'];
  /** Monotonic milliseconds. */
  readonly began: number;
  readonly limited: boolean;
  /** Tokens that the answer can have at most, by the bound that was sent. */
  readonly most_output_tokens: number;
}

/** How a call ended. */
export interface Outcome {
  /** Null where no answer came. */
  readonly reading: MeterReading | null;
  /** Null = the answer came whole. */
  readonly error_class: ErrorClass | null;
  /** What is written of a failure; never a provider's own words, which may quote the client's. */
  readonly said: string;
  /** It says something about the provider, and not only about the client. */
  readonly counts: boolean;
}

/** Stores the outcome in one transaction. Rejects when nothing can be stored. */
export async function settleCall(engine: Engine, call: Begun, outcome: Outcome): Promise<void> {
  const { session, model } = call;
  const provider = providerOf(model.id);
  const outages = outcome.counts ? observeCall(engine, { model: model.id, provider }, outcome.error_class) : [];
  const usage = outcome.reading === null ? null : usageOf(engine, call, outcome);
  const emit: EventDraft[] = [usage === null ? failed(engine, call, outcome) : completed(engine, call, outcome, usage)];
  emit.push(...outageEvents(outages, { session_id: session.id, turn_id: null, parent: 0 }));
  const [event] = await engine.journal.commit({ emit });
  if (usage === null || !call.limited) return;
  await warnedOf(engine, { session, turn_id: null, model: model.id, caps: [] }, event!.id);
}

function common({ session, model, request_id }: Begun) {
  return {
    model: model.id,
    provider: providerOf(model.id),
    request_id,
    is_worker: session.is_worker,
    parent_session_id: session.parent_session_id,
    root_session_id: session.root_session_id,
  };
}

function latency(engine: Engine, { began }: Begun): number {
  return Math.round(engine.clock.monotonic() - began);
}

function failed(engine: Engine, call: Begun, { error_class, said }: Outcome): EventDraft {
  return draft({
    type: 'llm.call_failed',
    session_id: call.session.id,
    turn_id: null,
    parent: call.started,
    payload: {
      ...common(call),
      error_class: error_class ?? 'other',
      error_message_redacted: said,
      retry_count: 0,
      latency_ms: latency(engine, call),
    },
  });
}

function completed(engine: Engine, call: Begun, outcome: Outcome, tokens: TokenUsage): EventDraft {
  const { session, model, request_id } = call;
  const reading = outcome.reading!;
  const { usage } = stampedUsage(engine, model, tokens, {
    served: reading.served_model,
    latency: latency(engine, call),
    where: { session_id: session.id, request_id },
  });
  return draft({
    type: 'llm.call_completed',
    session_id: session.id,
    turn_id: null,
    parent: call.started,
    payload: {
      ...usage,
      ...common(call),
      stop_reason: outcome.error_class === null ? stopOf(reading) : 'cancelled',
      error_class: outcome.error_class,
      produced_tool_calls: reading.tool_calls,
      produced_thinking_blocks: reading.thinking_blocks,
      message_id: null,
      purpose: 'gateway',
    },
  });
}

function stopOf({ stop_reason, tool_calls }: MeterReading) {
  const reason = stop_reason === 'cancelled' || stop_reason === 'error' ? 'end_turn' : (stop_reason ?? 'end_turn');
  return reason === 'end_turn' && tool_calls > 0 ? 'tool_use' : reason;
}

/** Null where nothing is known of a call that did not end well (01 §4.4). What is missing is estimated. */
function usageOf(engine: Engine, call: Begun, { reading, error_class }: Outcome): TokenUsage | null {
  const { usage, characters, tool_calls } = reading!;
  const inputKnown = usage.input !== null || usage.cached !== null || usage.creation !== null;
  const outputKnown = usage.output !== null && !usage.early;
  const nothing = !inputKnown && usage.output === null && characters === 0 && tool_calls === 0;
  if (error_class !== null && nothing) return null;
  const estimates = {
    input: () => call.estimated_input_tokens,
    output: () => Math.min(Math.ceil(characters / 4), call.most_output_tokens),
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
  const believed = credibleUsage(reported, call.model.capabilities, estimates);
  if (believed.faults.length > 0)
    engine.log.warn(
      { session_id: call.session.id, model: call.model.id, request_id: call.request_id, faults: believed.faults },
      'the provider reports impossible counts; they are estimated',
    );
  return believed.usage;
}
