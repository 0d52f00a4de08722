// Limits the part of a tool's answer that reaches the model: 256 KiB of text and five images (09 §10).
import type { ToolResultContent } from '#protocol/message.ts';
import { type ToolOutput, toolText } from '#protocol/tool.ts';
import { countDecodedBytes, MAX_IMAGE_BYTES } from '../context/image-blocks.ts';

/** UTF-8 bytes of text kept of one answer. Notes about what was left out come on top. */
export const MAX_OUTPUT_BYTES = 262_144;
const MAX_OUTPUT_IMAGES = 5;

/** An answer of a tool that applied the limit in its own way: its text is not cut again. */
export function createCutOutput(
  text: string,
  rest: Partial<Omit<ToolOutput, 'content' | 'metadata'>> = {},
): ToolOutput {
  return toolText(text, { ...rest, metadata: { cut_by_tool: true } });
}

/** The answer within its limits; text is cut at a code point, from the end. */
export function truncateOutput(output: ToolOutput): ToolOutput {
  const content = withoutExcessImages(output.content);
  if (output.metadata?.cut_by_tool === true) return { ...output, content };
  return { ...output, content: truncateTexts(content) };
}

function withoutExcessImages(content: readonly ToolResultContent[]): readonly ToolResultContent[] {
  let images = 0;
  return content.map((block) => {
    if (block.type !== 'image') return block;
    const bytes = countDecodedBytes(block.source.data);
    if (bytes > MAX_IMAGE_BYTES) return note(`[image omitted: ${bytes} bytes, at most ${MAX_IMAGE_BYTES} are shown]`);
    images += 1;
    if (images > MAX_OUTPUT_IMAGES) return note(`[image omitted: at most ${MAX_OUTPUT_IMAGES} are shown]`);
    return block;
  });
}

function note(text: string): ToolResultContent {
  return { type: 'text', text };
}

function truncateTexts(content: readonly ToolResultContent[]): readonly ToolResultContent[] {
  const sizes = content.map((block) => (block.type === 'text' ? Buffer.byteLength(block.text) : 0));
  const total = sizes.reduce((sum, size) => sum + size, 0);
  if (total <= MAX_OUTPUT_BYTES) return content;
  const kept: ToolResultContent[] = [];
  let left = MAX_OUTPUT_BYTES;
  let omitted = 0;
  for (const [index, block] of content.entries()) {
    const size = sizes[index] ?? 0;
    if (block.type !== 'text' || (omitted === 0 && size <= left)) {
      kept.push(block);
      left -= size;
    } else if (omitted === 0) {
      const head = cutUtf8(block.text, left);
      omitted = total - (MAX_OUTPUT_BYTES - left) - Buffer.byteLength(head);
      kept.push({ type: 'text', text: `${head}${omittedNote(omitted)}` });
    }
  }
  return kept;
}

/** The line in place of omitted text. */
export function omittedNote(bytes: number): string {
  return `\n... [output truncated: ${bytes} bytes omitted]`;
}

/** The longest start of a text that has at most this many UTF-8 bytes. */
export function cutUtf8(text: string, bytes: number): string {
  if (Buffer.byteLength(text) <= bytes) return text;
  return utf8Head(Buffer.from(text), bytes).toString('utf8');
}

/** The first bytes of valid UTF-8, without a character cut in two. */
export function utf8Head(data: Buffer, bytes: number): Buffer {
  if (data.length <= bytes) return data;
  let end = bytes;
  while (end > 0 && isContinuation(data[end])) end -= 1;
  return data.subarray(0, end);
}

/** Drops the rest of a character whose start was lost. */
export function utf8Tail(data: Buffer): Buffer {
  let start = 0;
  while (start < data.length && isContinuation(data[start])) start += 1;
  return data.subarray(start);
}

function isContinuation(byte: number | undefined): boolean {
  return byte !== undefined && (byte & 0xc0) === 0x80;
}
