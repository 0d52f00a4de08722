// Canonical stream events of a whole answer, made from its blocks: what a wire's encoder says.

import type { AssembledEvent } from '#models/wire/assembly.ts';
import type { ContentBlock, StopReason } from '#protocol/message.ts';
import { NO_TOKENS, type TokenUsage } from '#protocol/usage.ts';
import { messageId, toolUseId } from './messages.ts';

/** A block with the fragments it comes in; a call's name and the id that its provider gave it. */
export type AnswerBlock =
  | { readonly kind: 'text'; readonly pieces: readonly string[] }
  | { readonly kind: 'thinking'; readonly pieces: readonly string[]; readonly signature: string }
  | { readonly kind: 'redacted'; readonly data: string }
  | { readonly kind: 'tool'; readonly name: string; readonly id: string; readonly pieces: readonly string[] };

export interface AnswerEnd {
  readonly stop: StopReason;
  readonly rawStop: string | null;
  /** Null: the provider reported none. */
  readonly usage: TokenUsage | null;
}

/** @param model canonical id */
export function answerEvents(model: string, blocks: readonly AnswerBlock[], end: AnswerEnd): AssembledEvent[] {
  const message_id = messageId(1);
  const out: AssembledEvent[] = [{ type: 'message.start', message_id, model }];
  const final_content: ContentBlock[] = [];
  for (const [i, block] of blocks.entries()) {
    const at = { message_id, content_block_index: i };
    const tool_use_id = toolUseId(i);
    if (block.kind === 'redacted') {
      out.push({ type: 'redacted', data: block.data });
      final_content.push({ type: 'redacted_thinking', data: block.data });
      continue;
    }
    const whole = block.pieces.join('');
    if (block.kind === 'text') {
      for (const text of block.pieces) out.push({ type: 'text.delta', ...at, text });
      final_content.push({ type: 'text', text: whole });
    } else if (block.kind === 'thinking') {
      for (const text of block.pieces) out.push({ type: 'thinking.delta', ...at, text, signature: null });
      out.push({ type: 'thinking.delta', ...at, text: '', signature: block.signature });
      final_content.push({ type: 'thinking', text: whole, signature: block.signature });
    } else {
      const { input, error } = parsed(whole);
      const { name: tool_name, id: provider_tool_id } = block;
      out.push({ type: 'tool.use_start', ...at, tool_use_id, tool_name, provider_tool_id });
      for (const partial_json of block.pieces)
        out.push({ type: 'tool.use_input_delta', ...at, tool_use_id, partial_json });
      out.push({ type: 'tool.use_end', ...at, tool_use_id, final_input: input, input_error: error });
      final_content.push({ type: 'tool_use', id: tool_use_id, name: tool_name, input });
    }
  }
  out.push({
    type: 'message.complete',
    message_id,
    stop_reason: end.stop,
    raw_stop_reason: end.rawStop,
    final_content,
    usage: end.usage ?? { ...NO_TOKENS, usage_estimated: true },
    bill: null,
    latency_ms: 0,
    retry_count: 0,
    response_id: null,
    served_model: null,
    provider_raw: null,
  });
  return out;
}

function parsed(json: string): { readonly input: Readonly<Record<string, unknown>>; readonly error: string | null } {
  try {
    return { input: json === '' ? {} : JSON.parse(json), error: null };
  } catch (error) {
    return { input: {}, error: String(error) };
  }
}
