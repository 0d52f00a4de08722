// Spans folded from committed events: planner, delegate, worker, chat, with the attribute names of OpenTelemetry's GenAI conventions (18 §2).
import type { Attributes, Context, Span, Tracer } from '@opentelemetry/api';
import type { LiveBus } from '#core/ports/live-bus.ts';
import type { Event } from '#protocol/event.ts';
import { promptTokens } from '#protocol/usage.ts';
import type { AnswerFacts, Content, FindCallTarget } from './call-facts.ts';
import { foldEvents } from './metrics.ts';
import type { TraceHeaders, TraceRelay } from './trace-relay.ts';

type Api = typeof import('@opentelemetry/api');
interface Open {
  readonly span: Span;
  readonly context: Context;
}

/**
 * Starts a span with the event that opens it and ends it with the one that closes it, at the times of the events. A turn
 * that an earlier process began is a trace of its own from where it is resumed. Attributes
 * hold no message and no tool input, except what `content` recorded.
 */
export function foldSpans(
  api: Api,
  tracer: Tracer,
  {
    bus,
    relay,
    content,
    answers,
    targetOf,
  }: {
    readonly bus: LiveBus;
    readonly relay: TraceRelay;
    readonly content: Content | null;
    readonly answers: AnswerFacts;
    readonly targetOf: FindCallTarget;
  },
): void {
  const { ROOT_CONTEXT, SpanKind, SpanStatusCode, trace } = api;
  const turns = new Map<string, Open>();
  const tools = new Map<string, Open>();
  const calls = new Map<string, Open>();
  /** Worker session -> the call that opened it. */
  const workers = new Map<string, string>();

  function open(event: Event, name: string, parent: Context, attributes: Attributes): Open {
    const { session_id, turn_id } = event;
    const kind = attributes['gen_ai.operation.name'] === 'chat' ? SpanKind.CLIENT : SpanKind.INTERNAL;
    const own = { 'gen_ai.conversation.id': session_id, ...(turn_id !== null && { 'metis.turn.id': turn_id }) };
    const startTime = Date.parse(event.timestamp);
    const span = tracer.startSpan(name, { startTime, kind, attributes: { ...attributes, ...own } }, parent);
    return { span, context: trace.setSpan(parent, span) };
  }

  function close(spans: Map<string, Open>, key: string, event: Event, attributes: Attributes): void {
    const found = spans.get(key);
    if (found === undefined) return;
    spans.delete(key);
    found.span.setAttributes(attributes);
    if (attributes['error.type'] !== undefined) found.span.setStatus({ code: SpanStatusCode.ERROR });
    found.span.end(Date.parse(event.timestamp));
  }

  /** What a turn's own spans lie under. */
  const within = (event: Event) => turns.get(event.turn_id ?? '')?.context ?? ROOT_CONTEXT;

  function findParent({ turn_id, session_id }: Event): Context {
    const caller = workers.get(session_id);
    if (caller !== undefined) return tools.get(caller)?.context ?? ROOT_CONTEXT;
    if (turn_id === null) return ROOT_CONTEXT;
    const headers = relay.of(turn_id);
    if (headers === undefined) return ROOT_CONTEXT;
    return readRemoteParent(headers);
  }

  function readRemoteParent({ traceparent, tracestate }: TraceHeaders): Context {
    const [, traceId = '', spanId = '', flags = '00'] = traceparent.split('-');
    const state = tracestate !== undefined && { traceState: api.createTraceState(tracestate) };
    const parent = { traceId, spanId, traceFlags: Number.parseInt(flags, 16), isRemote: true, ...state };
    return trace.setSpanContext(ROOT_CONTEXT, parent);
  }

  function openTurn(event: Event): void {
    if (event.turn_id === null || turns.has(event.turn_id)) return;
    const name = event.actor === 'worker' ? 'worker' : 'planner';
    const attributes = { 'gen_ai.operation.name': 'invoke_agent', 'gen_ai.agent.name': name };
    turns.set(event.turn_id, open(event, `invoke_agent ${name}`, findParent(event), attributes));
  }
  const closeTurn = (event: Event, attributes: Attributes) => close(turns, event.turn_id ?? '', event, attributes);

  foldEvents(bus, 'spans', {
    'turn.started': (_payload, event) => openTurn(event),
    'turn.resumed': (_payload, event) => openTurn(event),
    'turn.completed': ({ stop_reason }, event) =>
      closeTurn(event, { 'metis.turn.outcome': 'completed', 'metis.turn.stop_reason': stop_reason }),
    'turn.cancelled': ({ reason }, event) =>
      closeTurn(event, { 'metis.turn.outcome': 'cancelled', 'metis.turn.reason': reason }),
    'turn.failed': ({ error_code }, event) =>
      closeTurn(event, { 'metis.turn.outcome': 'failed', 'error.type': error_code }),
    'route.decided'({ chosen_model, chain, winner_index }, { turn_id }) {
      const policy = chain[winner_index]?.policy;
      turns.get(turn_id ?? '')?.span.setAttributes({
        'gen_ai.request.model': targetOf(chosen_model).model,
        'metis.model': chosen_model,
        ...(policy !== undefined && { 'metis.route.policy': policy }),
      });
    },
    'llm.call_started'({ request_id, model, provider, purpose }, event) {
      const target = targetOf(model);
      const attributes = {
        'gen_ai.operation.name': 'chat',
        'gen_ai.provider.name': provider,
        'gen_ai.request.model': target.model,
        ...target.server,
        'metis.model': model,
        'metis.purpose': purpose,
      };
      calls.set(request_id, open(event, `chat ${target.model}`, within(event), attributes));
    },
    'llm.call_completed'(payload, event) {
      const { request_id, stop_reason, error_class } = payload;
      close(calls, request_id, event, {
        ...answers.find(request_id),
        'gen_ai.response.finish_reasons': [stop_reason],
        // Ours are disjoint; here the cached ones are among the input.
        'gen_ai.usage.input_tokens': promptTokens(payload),
        'gen_ai.usage.output_tokens': payload.output_tokens,
        'gen_ai.usage.cache_read.input_tokens': payload.cached_input_tokens,
        'gen_ai.usage.cache_creation.input_tokens': payload.cache_creation_input_tokens,
        'gen_ai.usage.reasoning.output_tokens': payload.reasoning_tokens,
        'gen_ai.usage.cost': Number(payload.cost_usd),
        'metis.cost.usd': payload.cost_usd,
        'metis.priced': payload.priced,
        ...(error_class !== null && { 'error.type': error_class }),
        ...content?.take(request_id),
      });
    },
    'llm.call_failed': ({ request_id, error_class }, event) =>
      close(calls, request_id, event, { 'error.type': error_class, ...content?.take(request_id) }),
    'tool.called'({ tool_use_id, tool_name }, event) {
      const attributes = {
        'gen_ai.operation.name': 'execute_tool',
        'gen_ai.tool.name': tool_name,
        'gen_ai.tool.call.id': tool_use_id,
      };
      tools.set(tool_use_id, open(event, `execute_tool ${tool_name}`, within(event), attributes));
    },
    'tool.completed': ({ tool_use_id, success }, event) =>
      close(tools, tool_use_id, event, { 'metis.tool.success': success }),
    'tool.failed': ({ tool_use_id, error_class }, event) =>
      close(tools, tool_use_id, event, { 'error.type': error_class }),
    'delegate.started': ({ worker_session_id, tool_use_id }) => void workers.set(worker_session_id, tool_use_id),
    'session.ended': (_payload, { session_id }) => void workers.delete(session_id),
  });
  relay.use((toolUseId) => toTraceHeaders(tools.get(toolUseId)));
}

function toTraceHeaders(found: Open | undefined): TraceHeaders | undefined {
  if (found === undefined) return undefined;
  const { traceId, spanId, traceFlags, traceState } = found.span.spanContext();
  const state = traceState?.serialize();
  const traceparent = `00-${traceId}-${spanId}-${traceFlags.toString(16).padStart(2, '0')}`;
  return { traceparent, ...(state && { tracestate: state }) };
}
