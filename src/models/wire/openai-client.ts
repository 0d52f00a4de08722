// OpenAI Chat Completions from the server's side: reads a client's request, writes the answer as chunks (11.6, reversed).
import { z } from 'zod';
import type { ContentBlock, TextBlock } from '#protocol/message.ts';
import type { MessageComplete } from '#protocol/model-call.ts';
import { ok, type Result } from '#protocol/result.ts';
import type { TokenUsage } from '#protocol/usage.ts';
import {
  type AnswerHead,
  type CallIds,
  type ClientMessage,
  type ClientRequest,
  type EventEncoder,
  readBody,
} from './codec.ts';
import { joinTexts } from './encode-history.ts';
import { OPENAI_STOP_REASONS } from './openai-stream.ts';
import { parseArguments } from './provider-values.ts';

const JsonObject = z.record(z.string(), z.unknown());
const DATA_URL = /^data:([^;,]{1,100});base64,/;
const Text = z.object({ type: z.literal('text'), text: z.string() });
const Texts = z.union([z.string(), z.array(Text)]);
const Image = z.object({
  type: z.literal('image_url'),
  image_url: z.object({ url: z.string().regex(DATA_URL, 'must be a data URL in base64') }),
});
const File = z.object({
  type: z.literal('file'),
  file: z.object({
    filename: z.string().nullish(),
    file_data: z.string().regex(DATA_URL, 'must be a data URL in base64'),
  }),
});
const Arguments = z.string().transform((text, context) => {
  const { input, error } = parseArguments(text, false);
  if (error !== null) context.addIssue({ code: 'custom', message: error });
  return input;
});
const Call = z.object({ id: z.string(), function: z.object({ name: z.string(), arguments: Arguments }) });
const Message = z.discriminatedUnion('role', [
  z.object({ role: z.enum(['system', 'developer']), content: Texts }),
  z.object({
    role: z.literal('user'),
    content: z.union([z.string(), z.array(z.discriminatedUnion('type', [Text, Image, File]))]),
  }),
  z.object({ role: z.literal('assistant'), content: Texts.nullish(), tool_calls: z.array(Call).default([]) }),
  z.object({ role: z.literal('tool'), tool_call_id: z.string(), content: Texts }),
]);
const Tool = z.object({
  function: z.object({ name: z.string(), description: z.string().default(''), parameters: JsonObject.default({}) }),
});
const Body = z.object({
  model: z.string(),
  messages: z.array(Message),
  tools: z.array(Tool).default([]),
  max_completion_tokens: z.int().nullish(),
  max_tokens: z.int().nullish(),
  stop: z.union([z.string().transform((one) => [one]), z.array(z.string())]).nullish(),
  temperature: z.number().nullish(),
  response_format: z.object({ json_schema: z.object({ schema: JsonObject.nullish() }).nullish() }).nullish(),
});
type WireMessage = z.infer<typeof Message>;

/** This wire cannot mark a result as an error: `is_error` is always false. */
export function readOpenAiRequest(text: string, callIds: CallIds): Result<ClientRequest, string> {
  const read = readBody(text, Body);
  if (!read.ok) return read;
  const body = read.value;
  const system = body.messages.flatMap((message) =>
    message.role === 'system' || message.role === 'developer' ? toTextParts(message.content) : [],
  );
  return ok({
    model: body.model,
    system: joinTexts(system.map((part) => part.text)),
    messages: body.messages.flatMap((message) => toCanonicalMessages(message, callIds)),
    tools: body.tools.map(({ function: { name, description, parameters } }) => ({
      name,
      description,
      input_schema: parameters,
    })),
    max_output_tokens: body.max_completion_tokens ?? body.max_tokens ?? null,
    stop_sequences: body.stop ?? [],
    temperature: body.temperature ?? null,
    output_schema: body.response_format?.json_schema?.schema ?? null,
  });
}

function toCanonicalMessages(message: WireMessage, callIds: CallIds): ClientMessage[] {
  switch (message.role) {
    case 'system':
    case 'developer':
      return [];
    case 'user': {
      const { content } = message;
      const blocks = typeof content === 'string' ? toTextParts(content) : content.map(userPart);
      return [{ role: 'user', content: blocks }];
    }
    case 'assistant': {
      const calls = message.tool_calls.map(
        ({ id, function: { name, arguments: input } }): ContentBlock => ({
          type: 'tool_use',
          id: callIds(id),
          name,
          input,
        }),
      );
      return [{ role: 'assistant', content: [...toTextParts(message.content ?? []), ...calls] }];
    }
    case 'tool': {
      const tool_use_id = callIds(message.tool_call_id);
      const content = [...toTextParts(message.content)];
      return [{ role: 'tool', content: [{ type: 'tool_result', tool_use_id, content, is_error: false }] }];
    }
  }
}

function userPart(part: z.infer<typeof Text> | z.infer<typeof Image> | z.infer<typeof File>): ContentBlock {
  if (part.type === 'text') return part;
  const url = part.type === 'file' ? part.file.file_data : part.image_url.url;
  const [head, type] = DATA_URL.exec(url)!;
  const bytes = { source: { kind: 'base64' as const, data: url.slice(head.length) }, media_type: type! };
  if (part.type === 'image_url') return { type: 'image', ...bytes };
  return { type: 'document', ...bytes, name: part.file.filename ?? '' };
}

/** A plain string is one text part. */
function toTextParts(content: z.infer<typeof Texts>): readonly TextBlock[] {
  if (typeof content === 'string') return [{ type: 'text', text: content }];
  return content;
}

const WIRE_STOPS = new Map([...OPENAI_STOP_REASONS].reverse().map(([wire, reason]) => [reason, wire]));

/** Leaves out thinking, which this wire does not support. */
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
      ...(event.usage.usage_estimated ? [] : [chunk({ choices: [], usage: encodeUsage(event.usage) })]),
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
function encodeUsage(usage: TokenUsage): object {
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
