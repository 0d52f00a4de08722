// Splits this server's own request into the parts of its prompt. Each part is measured once, so a growing history costs only its new messages (14 §2).
import { createHash } from 'node:crypto';
import type { ContentBlock, StoredMessage } from '#protocol/message.ts';
import type { JsonSchema } from '#protocol/tool.ts';
import { collectTexts, type Prompt, type PromptPart } from '../pricing/prompt-tokens.ts';

/** The content of one model call. */
export interface RequestParts {
  readonly system_prompt: string | null;
  readonly system_prompt_volatile: string | null;
  readonly messages: readonly StoredMessage[];
  readonly tools: readonly { readonly name: string; readonly description: string; readonly input_schema: JsonSchema }[];
}

/** The parts of a model call that are sent to the provider. */
export interface SentParts extends RequestParts {
  /** Set for a worker that must return a structured answer. */
  readonly output_schema: JsonSchema | null;
}

type HeadPart = Prompt['head'][number];

interface Size {
  bytes: number;
  images: number;
  unbounded: boolean;
}

/** `{"role":"assistant","content":[]},` around a message's blocks. */
const MESSAGE_FRAME_BYTES = 34;
/** `[{"type":"text","text":},{"type":"text","text":}]` around the two system texts. */
const SYSTEM_FRAME_BYTES = 56;
/** `{"type":"function","function":{"name":,"description":,"parameters":}},` around a tool's three parts. */
const TOOL_FRAME_BYTES = 72;
/** Keys and brackets around a tool call or a result, beside the stored block's own keys. */
const CALL_FRAME_BYTES = 48;
/** The sentence that demands an answer of a schema, or the keys around it where the wire has a place of its own. */
const DEMAND_BYTES = 160;

// Stored messages and tool definitions never change.
const messageParts = new WeakMap<StoredMessage, PromptPart>();
const toolParts = new WeakMap<RequestParts['tools'][number], HeadPart>();
const schemaTexts = new WeakMap<JsonSchema, string>();

export function requestPrompt(request: SentParts): Prompt {
  const head: HeadPart[] = [];
  if (request.system_prompt !== null) head.push(systemPart('stable', request.system_prompt));
  if (request.system_prompt_volatile !== null) head.push(systemPart('volatile', request.system_prompt_volatile));
  for (const tool of request.tools) head.push(toolPart(tool));
  if (request.output_schema !== null) head.push(schemaPart(request.output_schema));
  return {
    settings: '',
    head,
    messages: request.messages.map(messagePart),
    frame_bytes: SYSTEM_FRAME_BYTES,
    unkeyed: { bytes: 0, images: 0 },
    unbounded: false,
  };
}

/** The schema as JSON, made once. */
export function schemaText(schema: JsonSchema): string {
  const known = schemaTexts.get(schema);
  if (known !== undefined) return known;
  const text = JSON.stringify(schema);
  schemaTexts.set(schema, text);
  return text;
}

function systemPart(place: string, text: string): HeadPart {
  return { ...PLAIN, key: `${place} ${hashText(text)}`, bytes: jsonBytes(text), texts: () => [text] };
}

function toolPart(tool: RequestParts['tools'][number]): HeadPart {
  const known = toolParts.get(tool);
  if (known !== undefined) return known;
  const text = JSON.stringify([tool.name, tool.description, tool.input_schema]);
  const part = { ...PLAIN, key: `tool ${hashText(text)}`, bytes: Buffer.byteLength(text) + TOOL_FRAME_BYTES };
  toolParts.set(tool, part);
  return part;
}

/** The part of an output schema, which is sent as a separate field or quoted in a text. */
function schemaPart(schema: JsonSchema): HeadPart {
  const text = JSON.stringify(schemaText(schema));
  return { ...PLAIN, key: `schema ${hashText(text)}`, bytes: Buffer.byteLength(text) + DEMAND_BYTES };
}

const PLAIN = { images: 0, unbounded: false, texts: null } as const;

function messagePart(message: StoredMessage): PromptPart {
  const known = messageParts.get(message);
  if (known !== undefined) return known;
  const size: Size = { bytes: MESSAGE_FRAME_BYTES, images: 0, unbounded: false };
  for (const block of message.content) addBlock(size, block);
  const part: PromptPart = {
    ...size,
    // A view shows a message whole or shortened, under one id.
    key: `${message.id} ${size.bytes} ${size.images}`,
    texts: size.images > 0 || size.unbounded ? null : () => message.content.flatMap(blockTexts),
  };
  messageParts.set(message, part);
  return part;
}

function addBlock(size: Size, block: ContentBlock): void {
  if (block.type === 'image') size.images += 1;
  else if (block.type === 'document') size.unbounded = true;
  // Some wires quote the arguments once more.
  else if (block.type === 'tool_use')
    size.bytes +=
      jsonBytes(block.id) + jsonBytes(block.name) + jsonBytes(JSON.stringify(block.input)) + CALL_FRAME_BYTES;
  else if (block.type !== 'tool_result') size.bytes += Buffer.byteLength(JSON.stringify(block));
  else {
    size.bytes += Buffer.byteLength(JSON.stringify({ ...block, content: [] })) + CALL_FRAME_BYTES;
    for (const inner of block.content) addBlock(size, inner);
  }
}

function blockTexts(block: ContentBlock): readonly string[] {
  if (block.type === 'tool_use') return [block.id, block.name, JSON.stringify(block.input)];
  return collectTexts(block);
}

function jsonBytes(text: string): number {
  return Buffer.byteLength(JSON.stringify(text));
}

function hashText(text: string): string {
  return createHash('sha1').update(text).digest('base64');
}
