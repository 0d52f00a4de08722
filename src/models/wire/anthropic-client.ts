// Anthropic Messages from the server's side: reads a client's request, writes the answer as events (11.5, reversed).
import { z } from 'zod';
import type { ContentBlock, ToolResultContent } from '#protocol/message.ts';
import type { MessageComplete } from '#protocol/model-call.ts';
import { ok, type Result } from '#protocol/result.ts';
import type { TokenUsage } from '#protocol/usage.ts';
import { ANTHROPIC_STOP_REASONS } from './anthropic-stream.ts';
import {
  type AnswerHead,
  type CallIds,
  type ClientMessage,
  type ClientRequest,
  type EventEncoder,
  readBody,
} from './codec.ts';
import { joinTexts } from './encode-history.ts';

const JsonObject = z.record(z.string(), z.unknown());
const Source = z.object({ type: z.literal('base64'), media_type: z.string(), data: z.string() });
const Text = z.object({ type: z.literal('text'), text: z.string() });
const Image = z.object({ type: z.literal('image'), source: Source });
const ResultPart = z.discriminatedUnion('type', [Text, Image]);
const Block = z.discriminatedUnion('type', [
  Text,
  Image,
  z.object({ type: z.literal('document'), source: Source, title: z.string().nullish() }),
  z.object({ type: z.literal('tool_use'), id: z.string(), name: z.string(), input: JsonObject }),
  z.object({
    type: z.literal('tool_result'),
    tool_use_id: z.string(),
    content: z.union([z.string(), z.array(ResultPart)]).default([]),
    is_error: z.boolean().default(false),
  }),
  z.object({ type: z.literal('thinking'), thinking: z.string(), signature: z.string() }),
  z.object({ type: z.literal('redacted_thinking'), data: z.string() }),
]);
const Body = z.object({
  model: z.string(),
  system: z.union([z.string(), z.array(Text)]).default([]),
  messages: z.array(z.object({ role: z.enum(['user', 'assistant']), content: z.union([z.string(), z.array(Block)]) })),
  tools: z
    .array(z.object({ name: z.string(), description: z.string().default(''), input_schema: JsonObject }))
    .default([]),
  max_tokens: z.int(),
  stop_sequences: z.array(z.string()).default([]),
  temperature: z.number().nullish(),
  output_config: z.object({ format: z.object({ schema: JsonObject }).nullish() }).nullish(),
});

/** A message with tool results becomes one `tool` message for each result and one user message for the rest. */
export function readAnthropicRequest(text: string, callIds: CallIds): Result<ClientRequest, string> {
  const read = readBody(text, Body);
  if (!read.ok) return read;
  const body = read.value;
  return ok({
    model: body.model,
    system: joinTexts(toParts(body.system).map((part) => part.text)),
    messages: body.messages.flatMap(({ role, content }) => {
      const blocks = toParts(content).map((block) => toCanonicalBlock(block, callIds));
      const results = blocks.filter((block) => block.type === 'tool_result');
      const rest = blocks.filter((block) => block.type !== 'tool_result');
      const toolMessages: ClientMessage[] = results.map((result) => ({ role: 'tool', content: [result] }));
      if (rest.length === 0) return toolMessages;
      return [...toolMessages, { role, content: rest }];
    }),
    tools: body.tools,
    max_output_tokens: body.max_tokens,
    stop_sequences: body.stop_sequences,
    temperature: body.temperature ?? null,
    output_schema: body.output_config?.format?.schema ?? null,
  });
}

function toCanonicalBlock(block: z.infer<typeof Block>, callIds: CallIds): ContentBlock {
  switch (block.type) {
    case 'text':
    case 'image':
      return resultPart(block);
    case 'document':
      return { type: 'document', ...base64(block.source), name: block.title ?? '' };
    case 'tool_use':
      return { ...block, id: callIds(block.id) };
    case 'tool_result':
      return {
        ...block,
        tool_use_id: callIds(block.tool_use_id),
        content: toParts(block.content).map(resultPart),
      };
    case 'thinking':
      return { type: 'thinking', text: block.thinking, signature: block.signature };
    case 'redacted_thinking':
      return block;
  }
}

function resultPart(part: z.infer<typeof ResultPart>): ToolResultContent {
  if (part.type === 'text') return part;
  return { type: 'image', ...base64(part.source) };
}

function base64({ media_type, data }: z.infer<typeof Source>) {
  return { source: { kind: 'base64' as const, data }, media_type };
}

/** A plain string is one text part. */
function toParts<T>(content: string | readonly T[]): readonly (T | z.infer<typeof Text>)[] {
  if (typeof content === 'string') return [{ type: 'text', text: content }];
  return content;
}

const WIRE_STOPS = new Map([...ANTHROPIC_STOP_REASONS].reverse().map(([wire, reason]) => [reason, wire]));

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
    const usage = event.usage.usage_estimated ? {} : { usage: encodeUsage(event.usage, event.usage.output_tokens) };
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
        const usage = head.usage === null ? {} : { usage: encodeUsage(head.usage, 1) };
        return [
          sse('message_start', { message: { id, type: 'message', role: 'assistant', model, content: [], ...usage } }),
        ];
      }
      case 'text.delta':
        return [
          ...within(event.content_block_index, { type: 'text', text: '' }),
          delta({ type: 'text_delta', text: event.text }),
        ];
      case 'thinking.delta': {
        const frames = [...within(event.content_block_index, { type: 'thinking', thinking: '', signature: '' })];
        if (event.text !== '') frames.push(delta({ type: 'thinking_delta', thinking: event.text }));
        if (event.signature !== null) frames.push(delta({ type: 'signature_delta', signature: event.signature }));
        return frames;
      }
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

function encodeUsage(usage: TokenUsage, output_tokens: number): object {
  return {
    input_tokens: usage.input_tokens,
    cache_read_input_tokens: usage.cached_input_tokens,
    cache_creation_input_tokens: usage.cache_creation_input_tokens,
    cache_creation: { ephemeral_1h_input_tokens: usage.cache_creation_1h_input_tokens },
    output_tokens,
    output_tokens_details: { thinking_tokens: usage.reasoning_tokens },
  };
}
