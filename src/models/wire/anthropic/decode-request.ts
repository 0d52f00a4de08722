// A body of Anthropic Messages as canonical parts (11.5, read backwards).
import { z } from 'zod';
import type { ContentBlock, ToolResultContent } from '#protocol/message.ts';
import { ok, type Result } from '#protocol/result.ts';
import { type CallIds, type ClientMessage, type ClientRequest, readBody } from '../client-request.ts';
import { joined } from '../history.ts';

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

/** A message with tool results becomes one `tool` message a result, and one of the user with the rest. */
export function readAnthropicRequest(text: string, callIds: CallIds): Result<ClientRequest, string> {
  const read = readBody(text, Body);
  if (!read.ok) return read;
  const body = read.value;
  return ok({
    model: body.model,
    system: joined(asParts(body.system).map((part) => part.text)),
    messages: body.messages.flatMap(({ role, content }) => {
      const blocks = asParts(content).map((block) => canonical(block, callIds));
      const results = blocks.filter((block) => block.type === 'tool_result');
      const rest = blocks.filter((block) => block.type !== 'tool_result');
      const said: ClientMessage[] = results.map((result) => ({ role: 'tool', content: [result] }));
      return rest.length === 0 ? said : [...said, { role, content: rest }];
    }),
    tools: body.tools,
    max_output_tokens: body.max_tokens,
    stop_sequences: body.stop_sequences,
    temperature: body.temperature ?? null,
    output_schema: body.output_config?.format?.schema ?? null,
  });
}

function canonical(block: z.infer<typeof Block>, callIds: CallIds): ContentBlock {
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
        content: asParts(block.content).map(resultPart),
      };
    case 'thinking':
      return { type: 'thinking', text: block.thinking, signature: block.signature };
    case 'redacted_thinking':
      return block;
  }
}

function resultPart(part: z.infer<typeof ResultPart>): ToolResultContent {
  return part.type === 'text' ? part : { type: 'image', ...base64(part.source) };
}

function base64({ media_type, data }: z.infer<typeof Source>) {
  return { source: { kind: 'base64' as const, data }, media_type };
}

/** A text alone stands for one part. */
function asParts<T>(content: string | readonly T[]): readonly (T | z.infer<typeof Text>)[] {
  return typeof content === 'string' ? [{ type: 'text', text: content }] : content;
}
