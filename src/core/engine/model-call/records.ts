// What a settled model call leaves behind: its price, its message, its tool calls, its event (01 §4.4, 02 §9.4).

import type { Write } from '#core/ports/journal.ts';
import { isoTime } from '#protocol/clock.ts';
import { draft, type EventDraft } from '#protocol/event.ts';
import type { MessageId } from '#protocol/ids.ts';
import { type ContentBlock, type StoredMessage, textBlock, toolUses } from '#protocol/message.ts';
import type { MessageComplete } from '#protocol/model-stream.ts';
import type { Pusd } from '#protocol/money.ts';
import type { ErrorClass } from '#protocol/scalars.ts';
import type { TokenUsage, Usage } from '#protocol/usage.ts';
import { stampedUsage } from '../money/call-price.ts';
import type { Engine } from '../state/engine.ts';
import { named } from '../state/turn-run.ts';
import type { Call } from './call.ts';

/** The call's usage with its money, stamped once (08 §6). */
export function charge(
  engine: Engine,
  call: Call,
  tokens: TokenUsage,
  { served, latency }: { readonly served: string | null; readonly latency: number },
): { usage: Usage; cost: Pusd } {
  return stampedUsage(engine, call.run.model, tokens, { served, latency, where: named(call.run) });
}

export function storedMessage(
  engine: Engine,
  call: Call,
  complete: MessageComplete,
  { status, usage }: { readonly status: 'complete' | 'cancelled' | 'error'; readonly usage: Usage },
): StoredMessage {
  const { run } = call;
  const { final_content } = complete;
  // A model may answer with nothing, but no answer is stored without a block; adapters leave an empty text out.
  const content = final_content.length === 0 && status === 'complete' ? [textBlock('')] : [...final_content];
  return {
    id: call.heard.message_id!,
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

export function callCompleted(
  call: Call,
  usage: Usage,
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
      model: run.model.id,
      provider: run.turn.provider ?? '',
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
