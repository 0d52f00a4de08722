// How large a request is: the token guess used for routing and compaction, and the upper bound used for money (10 §1, 14 §2).
import type { ContentBlock, StoredMessage } from '../../domain/message.ts';
import type { Capabilities } from '../../domain/model.ts';
import type { JsonSchema } from '../../domain/tool.ts';
import { summaryOf } from './history.ts';
import { codePoints } from './message-size.ts';

/** What one model call carries. */
export interface RequestParts {
  readonly system_prompt: string | null;
  readonly system_prompt_volatile: string | null;
  readonly messages: readonly StoredMessage[];
  readonly tools: readonly { readonly name: string; readonly description: string; readonly input_schema: JsonSchema }[];
}

/** What its provider is sent of one model call. */
export interface SentParts extends RequestParts {
  /** Of a worker that owes a structured answer. */
  readonly output_schema: JsonSchema | null;
}

interface Bound {
  readonly bytes: number;
  /** Bounded by their count: the length of their base64 text says nothing about their tokens. */
  readonly images: number;
  /**
   * Documents are billed by page, picture and text. A file does not tell how much that is at most: its texts are
   * compressed, its pages may be so too or stand in one tree many times. Only the model's window bounds it (14 §2).
   */
  readonly has_document: boolean;
}

type Counted = { -readonly [Key in keyof Bound]: Bound[Key] };

/** `{"role":"assistant","content":[]},` around a message's blocks. */
const MESSAGE_FRAME_BYTES = 34;
/** `[{"type":"text","text":},{"type":"text","text":}]` around the two system texts. */
const SYSTEM_FRAME_BYTES = 56;
/** `{"type":"function","function":{"name":,"description":,"parameters":}},` around a tool's three parts. */
const TOOL_FRAME_BYTES = 72;
/** What stands around a called tool, and around a result, beside the stored block's own keys. */
const CALL_FRAME_BYTES = 48;
/** The sentence that demands an answer of a schema, or the keys around it where the wire has a place of its own. */
const DEMAND_BYTES = 160;

// Stored messages and tool schemas never change, so each is measured once and a growing history costs only what is new.
const messageBounds = new WeakMap<StoredMessage, Bound>();
const schemaTexts = new WeakMap<JsonSchema, string>();
const toolSizes = new WeakMap<RequestParts['tools'][number], number>();

/** Tokens of the texts together: `max(1, floor(code points / 4))`. */
export function estimateText(...texts: readonly string[]): number {
  return tokens(texts.reduce((sum, text) => sum + codePoints(text), 0));
}

/** Tokens of a request by the same guess. Tool names are not counted. */
export function estimateRequest(request: SentParts): number {
  let size = codePoints(request.system_prompt ?? '') + codePoints(request.system_prompt_volatile ?? '');
  size += summaryOf(request.messages).size;
  for (const tool of request.tools) size += toolSize(tool);
  if (request.output_schema !== null) size += codePoints(schemaText(request.output_schema));
  return tokens(size);
}

/**
 * Never below what a provider bills for the request (14 §2), in tokens: `ceil(UTF-8 bytes of its JSON / 2.5)` plus
 * the model's `max_image_tokens` per image, never more than its window: a provider refuses what does not fit it, and
 * bills nothing for it. With a document it is the window.
 */
export function boundRequest(
  request: SentParts,
  model: Pick<Capabilities, 'max_context_tokens' | 'max_image_tokens'>,
): number {
  let bytes =
    SYSTEM_FRAME_BYTES + jsonBytes(request.system_prompt ?? '') + jsonBytes(request.system_prompt_volatile ?? '');
  let images = 0;
  for (const message of request.messages) {
    const bound = messageBound(message);
    if (bound.has_document) return model.max_context_tokens;
    bytes += bound.bytes;
    images += bound.images;
  }
  for (const tool of request.tools) {
    bytes += jsonBytes(tool.name) + jsonBytes(tool.description) + Buffer.byteLength(schemaText(tool.input_schema));
    bytes += TOOL_FRAME_BYTES;
  }
  // As a field of its own, or quoted in a text.
  if (request.output_schema !== null) bytes += jsonBytes(schemaText(request.output_schema)) + DEMAND_BYTES;
  return Math.min(Math.ceil(bytes / 2.5) + images * model.max_image_tokens, model.max_context_tokens);
}

function tokens(size: number): number {
  return Math.max(1, Math.floor(size / 4));
}

function toolSize(tool: RequestParts['tools'][number]): number {
  const known = toolSizes.get(tool);
  if (known !== undefined) return known;
  const size = codePoints(tool.description) + codePoints(schemaText(tool.input_schema));
  toolSizes.set(tool, size);
  return size;
}

function messageBound(message: StoredMessage): Bound {
  const known = messageBounds.get(message);
  if (known !== undefined) return known;
  const bound: Counted = { bytes: MESSAGE_FRAME_BYTES, images: 0, has_document: false };
  for (const block of message.content) addBound(bound, block);
  messageBounds.set(message, bound);
  return bound;
}

function addBound(bound: Counted, block: ContentBlock): void {
  if (block.type === 'image') bound.images += 1;
  else if (block.type === 'document') bound.has_document = true;
  // Some wires quote the arguments once more.
  else if (block.type === 'tool_use')
    bound.bytes +=
      jsonBytes(block.id) + jsonBytes(block.name) + jsonBytes(JSON.stringify(block.input)) + CALL_FRAME_BYTES;
  else if (block.type !== 'tool_result') bound.bytes += Buffer.byteLength(JSON.stringify(block));
  else {
    bound.bytes += Buffer.byteLength(JSON.stringify({ ...block, content: [] })) + CALL_FRAME_BYTES;
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
