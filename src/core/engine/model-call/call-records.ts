// The records of a settled model call: its price, its message, its tool calls, its event (01 §4.4, 02 §9.4).

import { describeHead, describeMessage } from '#core/policy/session/case-request.ts';
import type { Write } from '#core/ports/journal-writer.ts';
import type { AdapterError } from '#core/ports/provider.ts';
import { isoTime } from '#protocol/clock.ts';
import type { Delta, Transient } from '#protocol/delta.ts';
import type { Purpose } from '#protocol/event/turn-events.ts';
import { draft, type EventDraft } from '#protocol/event.ts';
import type { EventId, MessageId, RequestId, ToolUseId } from '#protocol/ids.ts';
import { type ContentBlock, type StoredMessage, textBlock, toolUses, withoutRaw } from '#protocol/message.ts';
import type { CanonicalRequest, MessageComplete, StreamEvent } from '#protocol/model-call.ts';
import type { ErrorClass } from '#protocol/scalars.ts';
import type { ReportedBill, TokenUsage, Usage } from '#protocol/usage.ts';
import type { CaseCall } from '#protocol/what-if/case.ts';
import type { BoundPrompt } from '../money/call-price.ts';
import { type Charged, stampUsage } from '../money/stamp-usage.ts';
import type { ModelCatalog, Runtime, Storage } from '../state/engine.ts';
import type { BudgetRefusal } from '../state/memory.ts';
import { logFields, type ToolResults, type TurnEnd, type TurnPlan, type TurnRun } from '../state/turn-run.ts';

// One model call in progress, and its outcome.

export type CallOutcome =
  /** `end` is set when the turn completed in the same transaction. */
  | { readonly ok: true; readonly settled: ToolResults; readonly end: TurnEnd | null }
  | { readonly ok: false; readonly error: AdapterError }
  /** A limit refused the call before it was sent. */
  | { readonly ok: false; readonly error: null; readonly refusal: BudgetRefusal };

/** Streamed content that the last event does not repeat. */
interface StreamState {
  /** Abandoned after its cancellation: later output is discarded. */
  left_behind: boolean;
  message_id: MessageId | null;
  /** The outcome of a call whose text is not streamed to clients. */
  hidden_text: string;
  /** Deltas of an answer that came whole: they are published with its end, in one write to each subscriber. */
  readonly held: Transient[];
  complete: MessageComplete | null;
  readonly provider_tool_ids: Map<ToolUseId, string | null>;
  readonly input_errors: Map<ToolUseId, string>;
}

export interface Call {
  readonly run: TurnRun;
  readonly purpose: Purpose;
  readonly request_id: RequestId;
  readonly started: EventId;
  readonly began: number;
  readonly stream: StreamState;
  /** A money limit covers the call, and may need a warning about its share. */
  readonly limited: boolean;
  /** The prompt that was reserved for; null where no limit covers the call. */
  readonly prompt: BoundPrompt | null;
  /** Money of attempts that broke off and are billed, held until the call is settled. */
  readonly spent: { release(): void }[];
  /** The call was paid for and its cost could not be stored: its reservation is kept. */
  unbooked: boolean;
}

/** The call's usage with its money, computed once (08 §6). */
export function chargeCall(
  engine: Runtime & ModelCatalog,
  call: Call,
  tokens: TokenUsage,
  answer: {
    readonly served_model: string | null;
    readonly latency_ms: number;
    readonly bill: ReportedBill | null;
  },
): Charged {
  const { served_model: served, latency_ms: latency, bill } = answer;
  const prices = call.prompt?.prices ?? null;
  return stampUsage(engine, call.run.model, tokens, { served, latency, bill, prices, where: logFields(call.run) });
}

export function buildMessage(
  engine: Pick<Runtime, 'clock'>,
  call: Call,
  complete: MessageComplete,
  { status, usage }: { readonly status: 'complete' | 'cancelled' | 'error'; readonly usage: Usage },
): StoredMessage {
  const { run } = call;
  const { final_content } = complete;
  // A stored answer has at least one block; adapters omit an empty text, so an empty answer gets one here.
  const content = final_content.length === 0 && status === 'complete' ? [textBlock('')] : [...final_content];
  return {
    id: call.stream.message_id!,
    session_id: run.session.id,
    turn_id: run.turn.id,
    role: 'assistant',
    content,
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

export function messageWrites(
  engine: Pick<Runtime, 'clock'>,
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
          provider_id: call.stream.provider_tool_ids.get(block.id) ?? null,
          created_at: at,
        },
      }),
    ),
  ];
}

export function callCompletedEvent(
  call: Call,
  { usage, bill }: Charged,
  answer: {
    readonly stop_reason: 'end_turn' | 'max_tokens' | 'stop_sequence' | 'tool_use' | 'cancelled';
    readonly error_class: ErrorClass | null;
    readonly content: readonly ContentBlock[];
    readonly message_id: MessageId | null;
  },
): EventDraft {
  const { run } = call;
  return draft({
    type: 'llm.call_completed',
    session_id: run.session.id,
    turn_id: run.turn.id,
    parent: call.started,
    payload: {
      ...usage,
      ...bill,
      model: run.model.id,
      provider: run.turn.provider ?? '',
      effort: run.turn.chosen_effort,
      stop_reason: answer.stop_reason,
      error_class: answer.error_class,
      produced_tool_calls: answer.content.filter((b) => b.type === 'tool_use').length,
      produced_thinking_blocks: answer.content.filter((b) => b.type === 'thinking' || b.type === 'redacted_thinking')
        .length,
      parent_session_id: run.session.parent_session_id,
      is_worker: run.session.is_worker,
      root_session_id: run.session.root_session_id,
      request_id: call.request_id,
      message_id: answer.message_id,
      purpose: call.purpose,
    },
  });
}

// The public form of stream events, and of messages as they are stored (06 §5.1).

/** The public form; `message.complete` waits for its transaction. */
export function toDelta(event: StreamEvent): Delta | null {
  const { message_id } = event;
  if (event.type === 'message.complete') return null;
  if (event.type === 'message.start') {
    const { type, model } = event;
    return { type, payload: { message_id, role: 'assistant', model, content: [], open_tool_inputs: [] } };
  }
  if (event.type === 'text.delta') {
    const { type, content_block_index, text } = event;
    return { type, payload: { message_id, content_block_index, text } };
  }
  const at = { message_id, content_block_index: event.content_block_index };
  switch (event.type) {
    case 'thinking.delta':
      return { type: event.type, payload: { ...at, text: event.text, signature: event.signature } };
    case 'tool.use_start':
      return {
        type: event.type,
        payload: { ...at, tool_use_id: event.tool_use_id, tool_name: event.tool_name },
      };
    case 'tool.use_input_delta':
      return {
        type: event.type,
        payload: { ...at, tool_use_id: event.tool_use_id, partial_json: event.partial_json },
      };
    case 'tool.use_end': {
      const { type, tool_use_id, final_input, input_error } = event;
      return { type, payload: { ...at, tool_use_id, final_input, input_error } };
    }
  }
}

export function toTransient(engine: Pick<Runtime, 'clock'>, run: TurnPlan, delta: Delta): Transient {
  return { session_id: run.session.id, turn_id: run.turn.id, timestamp: engine.clock.now(), delta };
}

/** The delta about a stored message, for clients that did not send it. */
export function messageAppended(engine: Pick<Runtime, 'clock'>, run: TurnPlan, message: StoredMessage): Transient {
  return toTransient(engine, run, { type: 'message.appended', payload: { message: withoutRaw(message) } });
}

interface Recorded {
  readonly head: string;
  readonly messages: readonly StoredMessage[];
}

/** The last recorded call of each turn: the next one is stored as what it adds. */
const recorded = new WeakMap<TurnRun, Recorded>();

/** Never rejects: a call that cannot be recorded is settled all the same, and makes its case fail. */
export async function recordCaseCall(
  engine: Runtime & Storage,
  call: Call,
  request: CanonicalRequest,
  error: AdapterError | null,
): Promise<void> {
  const { session } = call.run;
  if (!session.record_case) return;
  try {
    await engine.journal.commit({
      writes: [
        {
          kind: 'case.call',
          request_id: call.request_id,
          session_id: session.id,
          root_session_id: session.root_session_id,
          call: describeCaseCall(call, request, error),
        },
      ],
      emit: [],
    });
  } catch (err) {
    engine.log.error({ err, ...logFields(call.run), request_id: call.request_id }, 'a call was not recorded');
  }
}

function describeCaseCall(call: Call, request: CanonicalRequest, error: AdapterError | null): CaseCall {
  const { run, stream, purpose } = call;
  const before = recorded.get(run);
  const head = describeHead(request);
  const text = JSON.stringify(head);
  const same = countSame(before?.messages ?? [], request.messages);
  recorded.set(run, { head: text, messages: [...request.messages] });
  return {
    purpose,
    is_worker: run.session.is_worker,
    parent_session_id: run.session.parent_session_id,
    head: before?.head === text ? null : head,
    same_messages: same,
    messages: request.messages.slice(same).map(describeMessage),
    answer: stream.complete === null ? null : describeAnswer(stream.complete),
    error: error && {
      error_class: error.error_class,
      error_detail: error.error_detail,
      message: error.message,
      usage: error.usage,
    },
  };
}

function countSame(before: readonly StoredMessage[], now: readonly StoredMessage[]): number {
  const at = now.findIndex((message, i) => message !== before[i]);
  return at < 0 ? now.length : at;
}

function describeAnswer({ stop_reason, final_content, usage, bill, served_model }: MessageComplete) {
  return {
    stop_reason,
    content: [...final_content],
    usage,
    bill: bill && {
      rounds: bill.rounds.map((round) => ({ ...round })),
      uses: Object.fromEntries(bill.uses),
      terms: { ...bill.terms },
      rounds_unknown: bill.rounds_unknown,
      ...(bill.lost !== undefined && { lost: [...bill.lost] }),
    },
    served_model,
  };
}
