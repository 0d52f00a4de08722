// Blocks of a message, by their types alone.
import type { Message } from '#client/client.ts';

export type ContentBlock = Message['content'][number];

export function textOf(content: readonly ContentBlock[]): string {
  return content.flatMap((block) => (block.type === 'text' ? [block.text] : [])).join('\n');
}
