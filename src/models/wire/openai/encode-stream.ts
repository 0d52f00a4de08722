// Canonical stream events as chunks of OpenAI Chat Completions (11.6, read backwards).
import type { MessageComplete } from '#protocol/model-stream.ts';
import type { TokenUsage } from '#protocol/usage.ts';
import type { AnswerHead, EventEncoder } from '../encoder.ts';
import { STOP_REASONS } from './decode-stream.ts';

const WIRE_STOPS = new Map([...STOP_REASONS].reverse().map(([wire, reason]) => [reason, wire]));

/** Thinking has no place on this wire and is left out. */
export function createOpenAiEventEncoder(head: AnswerHead): EventEncoder {
  let calls = 0;
  const chunk = (rest: object) =>
    `data: ${JSON.stringify({ id: head.id, object: 'chat.completion.chunk', model: head.model, ...rest })}\n\n`;
  const delta = (value: object, finish_reason: string | null = null) =>
    chunk({ choices: [{ index: 0, delta: value, finish_reason }] });

  function complete(event: MessageComplete): string[] {
    if (event.stop_reason === 'error' || event.stop_reason === 'cancelled') return [];
    return [
      delta({}, WIRE_STOPS.get(event.stop_reason) ?? 'stop'),
      ...(event.usage.usage_estimated ? [] : [chunk({ choices: [], usage: counts(event.usage) })]),
      'data: [DONE]\n\n',
    ];
  }

  return (event) => {
    switch (event.type) {
      case 'message.start':
        return [delta({ role: 'assistant', content: '' })];
      case 'text.delta':
        return [delta({ content: event.text })];
      case 'tool.use_start': {
        const call = { name: event.tool_name, arguments: '' };
        const id = event.provider_tool_id ?? event.tool_use_id;
        return [delta({ tool_calls: [{ index: calls++, id, type: 'function', function: call }] })];
      }
      case 'tool.use_input_delta':
        return [delta({ tool_calls: [{ index: calls - 1, function: { arguments: event.partial_json } }] })];
      case 'message.complete':
        return complete(event);
      case 'tool.use_end':
      case 'thinking.delta':
      case 'redacted':
        return [];
    }
  };
}

/** The prompt count contains what was read from and written to a cache. */
function counts(usage: TokenUsage): object {
  const { cached_input_tokens: cached, cache_creation_input_tokens: written } = usage;
  const prompt_tokens = usage.input_tokens + cached + written;
  return {
    prompt_tokens,
    completion_tokens: usage.output_tokens,
    total_tokens: prompt_tokens + usage.output_tokens,
    prompt_tokens_details: { cached_tokens: cached, cache_write_tokens: written },
    completion_tokens_details: { reasoning_tokens: usage.reasoning_tokens },
  };
}
