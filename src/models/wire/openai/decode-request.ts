// A body of OpenAI Chat Completions as canonical parts (11.6, read backwards).
import { z } from 'zod';
import type { ContentBlock, TextBlock } from '#protocol/message.ts';
import { ok, type Result } from '#protocol/result.ts';
import { parseArguments } from '../arguments.ts';
import { type CallIds, type ClientMessage, type ClientRequest, readBody } from '../client-request.ts';
import { joined } from '../history.ts';

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

/** Whether a result is an error cannot be said on this wire: none is. */
export function readOpenAiRequest(text: string, callIds: CallIds): Result<ClientRequest, string> {
  const read = readBody(text, Body);
  if (!read.ok) return read;
  const body = read.value;
  const system = body.messages.flatMap((message) =>
    message.role === 'system' || message.role === 'developer' ? texts(message.content) : [],
  );
  return ok({
    model: body.model,
    system: joined(system.map((part) => part.text)),
    messages: body.messages.flatMap((message) => canonical(message, callIds)),
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

function canonical(message: WireMessage, callIds: CallIds): ClientMessage[] {
  switch (message.role) {
    case 'system':
    case 'developer':
      return [];
    case 'user': {
      const { content } = message;
      const blocks = typeof content === 'string' ? texts(content) : content.map(userPart);
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
      return [{ role: 'assistant', content: [...texts(message.content ?? []), ...calls] }];
    }
    case 'tool': {
      const tool_use_id = callIds(message.tool_call_id);
      const content = [...texts(message.content)];
      return [{ role: 'tool', content: [{ type: 'tool_result', tool_use_id, content, is_error: false }] }];
    }
  }
}

function userPart(part: z.infer<typeof Text> | z.infer<typeof Image> | z.infer<typeof File>): ContentBlock {
  if (part.type === 'text') return part;
  const url = part.type === 'file' ? part.file.file_data : part.image_url.url;
  const [head, type] = DATA_URL.exec(url)!;
  const bytes = { source: { kind: 'base64' as const, data: url.slice(head.length) }, media_type: type! };
  return part.type === 'image_url'
    ? { type: 'image', ...bytes }
    : { type: 'document', ...bytes, name: part.file.filename ?? '' };
}

/** A text alone stands for one part. */
function texts(content: z.infer<typeof Texts>): readonly TextBlock[] {
  return typeof content === 'string' ? [{ type: 'text', text: content }] : content;
}
