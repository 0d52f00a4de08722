// The size of a text or a stored message in code points, as the token guess counts it (10 §1).
import type { ContentBlock, StoredMessage } from '#protocol/message.ts';
import { countDecodedBytes } from './image-blocks.ts';

const IMAGE_CODE_POINTS = 1024;
/** Bytes of a document that count as one code point: its size is a poor measure of the length of its text. */
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
      return Math.floor(countDecodedBytes(block.source.data) / BYTES_A_CODE_POINT);
    case 'redacted_thinking':
      return 0;
  }
}
