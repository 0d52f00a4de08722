// Compares the messages of two sessions: what both begin with, and where they part (21 §4).
import type { ComparedStep, CompareReply } from '#protocol/api/fork-bodies.ts';
import { type ContentBlock, joinText, type StoredMessage } from '#protocol/message.ts';
import { canonicalJson } from '#protocol/text/canonical-json.ts';
import { cutText } from '../cut.ts';

/** Number of messages, one by one the same, that both histories begin with. */
export function countShared(a: readonly StoredMessage[], b: readonly StoredMessage[]): number {
  let shared = 0;
  while (shared < a.length && a[shared]?.id === b[shared]?.id) shared += 1;
  return shared;
}

/** @param a, b the messages behind the shared ones */
export function findFirstDifference(
  a: readonly StoredMessage[],
  b: readonly StoredMessage[],
): CompareReply['first_difference'] {
  for (let index = 0; index < Math.max(a.length, b.length); index += 1) {
    const [one, other] = [a[index], b[index]];
    if (one === undefined || other === undefined || contentKey(one) !== contentKey(other))
      return { index, a: describeStep(one), b: describeStep(other) };
  }
  return null;
}

/** The same for two messages that say the same, whichever ids their tool calls have. */
function contentKey({ role, content }: StoredMessage): string {
  return canonicalJson([role, ...content.map(withoutIds)]);
}

function withoutIds(block: ContentBlock): unknown {
  if (block.type === 'tool_use') return { ...block, id: '' };
  if (block.type === 'tool_result') return { ...block, tool_use_id: '' };
  return block;
}

const STEP_CHARACTERS = 400;

function describeStep(message: StoredMessage | undefined): ComparedStep | null {
  if (message === undefined) return null;
  const text = message.content
    .map(describeBlock)
    .filter((line) => line !== '')
    .join('\n');
  return { message_id: message.id, role: message.role, text: cutText(text, STEP_CHARACTERS) };
}

function describeBlock(block: ContentBlock): string {
  switch (block.type) {
    case 'text':
      return block.text;
    case 'tool_use':
      return `${block.name} ${JSON.stringify(block.input)}`;
    case 'tool_result':
      return joinText(block.content.filter(({ type }) => type === 'text'));
    default:
      return `[${block.type}]`;
  }
}
