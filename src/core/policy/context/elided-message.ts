// How a message is shown whose large parts were taken out of the view: a line in place of each (10 §7).

import type { ToolUseId } from '#protocol/ids.ts';
import { type ContentBlock, type StoredMessage, type ToolResultBlock, textBlock, toolUses } from '#protocol/message.ts';
import { decodedBytes } from './images.ts';

export const MAX_WHOLE_RESULT_BYTES = 2048;

/** Names of the tools that a message calls. */
export type CallNames = ReadonlyMap<ToolUseId, string>;

export function callNames(message: StoredMessage): CallNames {
  return new Map(toolUses(message.content).map((call) => [call.id, call.name]));
}

// Stored messages never change, and a call has one name: the same short form every time, which encoders keep the text of.
const shortForms = new WeakMap<StoredMessage, StoredMessage>();

/** @param names of the calls that a tool message may answer */
export function elided(message: StoredMessage, names: CallNames): StoredMessage {
  const known = shortForms.get(message);
  if (known !== undefined) return known;
  const short = { ...message, content: message.content.map((block) => shortBlock(block, names)) };
  shortForms.set(message, short);
  return short;
}

function shortBlock(block: ContentBlock, names: CallNames): ContentBlock {
  if (block.type === 'image') return textBlock(`[image omitted: ${block.media_type}]`);
  if (block.type !== 'tool_result') return block;
  const what = `result of ${names.get(block.tool_use_id) ?? 'a tool'}, ${resultBytes(block)} bytes`;
  return { ...block, content: [textBlock(`[elided: ${what}; call the tool again if needed]`)] };
}

/** A tool message with more in it than stays whole. */
export function isLargeResult(message: StoredMessage): boolean {
  const block = message.content[0];
  return block?.type === 'tool_result' && resultBytes(block) > MAX_WHOLE_RESULT_BYTES;
}

const sizes = new WeakMap<ToolResultBlock, number>();

/** Bytes of its texts and decoded images. */
function resultBytes(result: ToolResultBlock): number {
  let bytes = sizes.get(result);
  if (bytes !== undefined) return bytes;
  bytes = 0;
  for (const inner of result.content)
    bytes += inner.type === 'image' ? decodedBytes(inner.source.data) : Buffer.byteLength(inner.text);
  sizes.set(result, bytes);
  return bytes;
}
