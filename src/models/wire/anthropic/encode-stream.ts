// Canonical stream events as server-sent events of Anthropic Messages (11.5, read backwards).
import type { MessageComplete } from '#protocol/model-stream.ts';
import type { TokenUsage } from '#protocol/usage.ts';
import type { AnswerHead, EventEncoder } from '../encoder.ts';
import { STOP_REASONS } from './decode-stream.ts';

const WIRE_STOPS = new Map([...STOP_REASONS].reverse().map(([wire, reason]) => [reason, wire]));

export function createAnthropicEventEncoder(head: AnswerHead): EventEncoder {
  /** Wire index of the newest block, and its canonical index while it is open. */
  let index = -1;
  let open: number | null = null;

  function close(): string[] {
    if (open === null) return [];
    open = null;
    return [sse('content_block_stop', { index })];
  }

  function start(content_block: object): string[] {
    const before = close();
    index++;
    return [...before, sse('content_block_start', { index, content_block })];
  }

  /** Starts the block at this canonical index unless it is open. */
  function within(at: number, content_block: object): string[] {
    if (open === at) return [];
    const started = start(content_block);
    open = at;
    return started;
  }

  const delta = (value: object) => sse('content_block_delta', { index, delta: value });

  function complete(event: MessageComplete): string[] {
    if (event.stop_reason === 'error' || event.stop_reason === 'cancelled') return [];
    const stop_reason = WIRE_STOPS.get(event.stop_reason);
    const usage = event.usage.usage_estimated ? {} : { usage: counts(event.usage, event.usage.output_tokens) };
    return [
      ...close(),
      sse('message_delta', { delta: { stop_reason, stop_sequence: null }, ...usage }),
      sse('message_stop', {}),
    ];
  }

  return (event) => {
    switch (event.type) {
      case 'message.start': {
        const { id, model } = head;
        const usage = head.usage === null ? {} : { usage: counts(head.usage, 1) };
        return [
          sse('message_start', { message: { id, type: 'message', role: 'assistant', model, content: [], ...usage } }),
        ];
      }
      case 'text.delta':
        return [
          ...within(event.content_block_index, { type: 'text', text: '' }),
          delta({ type: 'text_delta', text: event.text }),
        ];
      case 'thinking.delta':
        return [
          ...within(event.content_block_index, { type: 'thinking', thinking: '', signature: '' }),
          ...(event.text === '' ? [] : [delta({ type: 'thinking_delta', thinking: event.text })]),
          ...(event.signature === null ? [] : [delta({ type: 'signature_delta', signature: event.signature })]),
        ];
      case 'redacted': {
        const started = start({ type: 'redacted_thinking', data: event.data });
        return [...started, sse('content_block_stop', { index })];
      }
      case 'tool.use_start': {
        const id = event.provider_tool_id ?? event.tool_use_id;
        return within(event.content_block_index, { type: 'tool_use', id, name: event.tool_name, input: {} });
      }
      case 'tool.use_input_delta':
        return [delta({ type: 'input_json_delta', partial_json: event.partial_json })];
      case 'tool.use_end':
        return close();
      case 'message.complete':
        return complete(event);
    }
  };
}

function sse(type: string, data: object): string {
  return `event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`;
}

function counts(usage: TokenUsage, output_tokens: number): object {
  return {
    input_tokens: usage.input_tokens,
    cache_read_input_tokens: usage.cached_input_tokens,
    cache_creation_input_tokens: usage.cache_creation_input_tokens,
    cache_creation: { ephemeral_1h_input_tokens: usage.cache_creation_1h_input_tokens },
    output_tokens,
    output_tokens_details: { thinking_tokens: usage.reasoning_tokens },
  };
}
