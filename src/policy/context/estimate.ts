// How large a request is: the token guess used for routing and compaction, and the upper bound used for money (10 §1, 14 §2).
import type { ContentBlock, StoredMessage } from '../../domain/message.ts';
import type { JsonSchema } from '../../domain/tool.ts';

/** What one model call carries. */
export interface RequestParts {
  readonly system_prompt: string | null;
  readonly system_prompt_volatile: string | null;
  readonly messages: readonly StoredMessage[];
  readonly tools: readonly { readonly name: string; readonly description: string; readonly input_schema: JsonSchema }[];
}

interface Bound {
  readonly bytes: number;
  readonly images: number;
}

const IMAGE_CODE_POINTS = 1024;
const IMAGE_BOUND_TOKENS = 1500;
const TOOL_RESULT_CODE_POINTS = 16;
/** `{"role":"assistant","content":[]},` around a message's blocks. */
const MESSAGE_FRAME_BYTES = 34;
const HIGH_SURROGATE = /[\uD800-\uDBFF]/;

// Stored messages and tool schemas never change, so each is measured once and a growing history costs only what is new.
const messageSizes = new WeakMap<StoredMessage, number>();
// A history only grows, so what was summed up of an array stays true of its beginning.
const historySizes = new WeakMap<readonly StoredMessage[], { readonly count: number; readonly size: number }>();
const messageBounds = new WeakMap<StoredMessage, Bound>();
const schemaTexts = new WeakMap<JsonSchema, string>();
const toolSizes = new WeakMap<RequestParts['tools'][number], number>();

/** Tokens of the texts together: `max(1, floor(code points / 4))`. */
export function estimateText(...texts: readonly string[]): number {
  return tokens(texts.reduce((sum, text) => sum + codePoints(text), 0));
}

/** Tokens of a request by the same guess. Tool names are not counted. */
export function estimateRequest(request: RequestParts): number {
  let size = codePoints(request.system_prompt ?? '') + codePoints(request.system_prompt_volatile ?? '');
  size += historySize(request.messages);
  for (const tool of request.tools) size += toolSize(tool);
  return tokens(size);
}

/** Never below what a provider counts for the request: `ceil(UTF-8 bytes of its JSON / 2.5)` plus 1 500 per image. */
export function boundRequest(request: RequestParts): number {
  let bytes = jsonBytes(request.system_prompt ?? '') + jsonBytes(request.system_prompt_volatile ?? '');
  let images = 0;
  for (const message of request.messages) {
    const bound = messageBound(message);
    bytes += bound.bytes;
    images += bound.images;
  }
  for (const tool of request.tools) {
    bytes += jsonBytes(tool.name) + jsonBytes(tool.description) + Buffer.byteLength(schemaText(tool.input_schema));
  }
  return Math.ceil(bytes / 2.5) + images * IMAGE_BOUND_TOKENS;
}

/** Unicode code points; a lone surrogate counts as one. */
export function codePoints(text: string): number {
  if (!HIGH_SURROGATE.test(text)) return text.length;
  let pairs = 0;
  for (let i = 0; i < text.length - 1; i += 1) {
    if ((text.charCodeAt(i) & 0xfc00) !== 0xd800 || (text.charCodeAt(i + 1) & 0xfc00) !== 0xdc00) continue;
    pairs += 1;
    i += 1;
  }
  return text.length - pairs;
}

function tokens(size: number): number {
  return Math.max(1, Math.floor(size / 4));
}

function historySize(messages: readonly StoredMessage[]): number {
  const known = historySizes.get(messages);
  let size = known?.size ?? 0;
  for (let i = known?.count ?? 0; i < messages.length; i += 1) size += messageSize(messages[i]!);
  if (messages.length > 0) historySizes.set(messages, { count: messages.length, size });
  return size;
}

function messageSize(message: StoredMessage): number {
  const known = messageSizes.get(message);
  if (known !== undefined) return known;
  let size = 0;
  for (const block of message.content) size += blockSize(block);
  messageSizes.set(message, size);
  return size;
}

function toolSize(tool: RequestParts['tools'][number]): number {
  const known = toolSizes.get(tool);
  if (known !== undefined) return known;
  const size = codePoints(tool.description) + codePoints(schemaText(tool.input_schema));
  toolSizes.set(tool, size);
  return size;
}

function blockSize(block: ContentBlock): number {
  switch (block.type) {
    case 'text':
    case 'thinking':
      return codePoints(block.text);
    case 'tool_use':
      return codePoints(block.name) + codePoints(JSON.stringify(block.input));
    case 'tool_result':
      return block.content.reduce((sum, inner) => sum + blockSize(inner), TOOL_RESULT_CODE_POINTS);
    case 'image':
      return IMAGE_CODE_POINTS;
    case 'redacted_thinking':
    case 'document':
      return 0;
  }
}

function messageBound(message: StoredMessage): Bound {
  const known = messageBounds.get(message);
  if (known !== undefined) return known;
  const bound = { bytes: MESSAGE_FRAME_BYTES, images: 0 };
  for (const block of message.content) addBound(bound, block);
  messageBounds.set(message, bound);
  return bound;
}

function addBound(bound: { bytes: number; images: number }, block: ContentBlock): void {
  // An image is bounded by count: the length of its base64 text says nothing about its tokens.
  if (block.type === 'image') bound.images += 1;
  else if (block.type !== 'tool_result') bound.bytes += Buffer.byteLength(JSON.stringify(block));
  else {
    bound.bytes += Buffer.byteLength(JSON.stringify({ ...block, content: [] }));
    for (const inner of block.content) addBound(bound, inner);
  }
}

function jsonBytes(text: string): number {
  return Buffer.byteLength(JSON.stringify(text));
}

function schemaText(schema: JsonSchema): string {
  const known = schemaTexts.get(schema);
  if (known !== undefined) return known;
  const text = JSON.stringify(schema);
  schemaTexts.set(schema, text);
  return text;
}
