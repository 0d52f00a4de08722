// The size of a text or a stored message in code points, as the token guess counts it (10 §1).
import type { ContentBlock, StoredMessage } from '#protocol/message.ts';
import { decodedBytes } from './image-blocks.ts';
import { type RequestParts, type SentParts, schemaText } from './request-prompt.ts';
import { summaryOf } from './session-history.ts';

const IMAGE_CODE_POINTS = 1024;
/** Of a document, which says little of how long its text is. */
const BYTES_A_CODE_POINT = 16;
const TOOL_RESULT_CODE_POINTS = 16;
const HIGH_SURROGATE = /[\uD800-\uDBFF]/;

// Stored messages never change, so each is measured once.
const messageSizes = new WeakMap<StoredMessage, number>();

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

export function messageSize(message: StoredMessage): number {
  const known = messageSizes.get(message);
  if (known !== undefined) return known;
  let size = 0;
  for (const block of message.content) size += blockSize(block);
  messageSizes.set(message, size);
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
    case 'document':
      return Math.floor(decodedBytes(block.source.data) / BYTES_A_CODE_POINT);
    case 'redacted_thinking':
      return 0;
  }
}

// How large a request is, by the guess that routing and compaction use; money uses a bound (10 §1, 14 §2).

// Tools never change, so each is measured once.
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
