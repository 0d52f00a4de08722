// Where a session can be forked, and what the prompt of a fork has of the messages before that point (21 §4).

import type { ComparedStep, CompareReply } from '#protocol/api/fork-bodies.ts';
import type { MessageId, TurnId } from '#protocol/ids.ts';
import { type ContentBlock, joinText, type StoredMessage, toolUses } from '#protocol/message.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import { canonicalJson } from '#protocol/text/canonical-json.ts';
import { cutText } from '../cut.ts';

/** The message, or the turn, behind which a fork is to begin. */
export type ForkPlace =
  | { readonly kind: 'message'; readonly id: MessageId }
  /** @param ended false while the turn runs */
  | { readonly kind: 'turn'; readonly id: TurnId; readonly ended: boolean };

/** The nearest messages behind which a fork can begin; null = there is none on this side. */
export interface NearestPoints {
  readonly before: MessageId | null;
  readonly after: MessageId | null;
}

/** Whether the history up to this message is whole: a complete answer without tool calls. */
function isForkPoint({ role, content, metadata }: StoredMessage): boolean {
  return role === 'assistant' && metadata.status === 'complete' && toolUses(content).length === 0;
}

/** The prefix of a fork; an error with the nearest points, or null where the history has no such message or turn. */
export function findPrefix(
  history: readonly StoredMessage[],
  place: ForkPlace,
): Result<readonly StoredMessage[], NearestPoints | null> {
  const at = history.findLastIndex((message) => (place.kind === 'message' ? message.id : message.turn_id) === place.id);
  const message = history[at];
  if (message === undefined) return err(null);
  if (isForkPoint(message) && (place.kind === 'message' || place.ended)) return ok(history.slice(0, at + 1));
  const before = history.slice(0, at).findLast(isForkPoint)?.id ?? null;
  const after = history.slice(at + 1).find(isForkPoint)?.id ?? null;
  return err({ before, after });
}

const shortened = new WeakMap<StoredMessage, StoredMessage>();

/**
 * The messages without thinking that another model than this one wrote: only its own model can use it.
 * @param reference a model, with an effort or without; null = routing decides, and each provider drops what it did not write
 */
export function omitThinking(messages: readonly StoredMessage[], reference: string | null): readonly StoredMessage[] {
  if (reference === null) return messages;
  return messages.map((message) => (isWrittenBy(message, reference) ? message : withoutThinking(message)));
}

function isWrittenBy({ role, metadata: { model } }: StoredMessage, reference: string): boolean {
  return role !== 'assistant' || reference === model || reference.startsWith(`${model}:`);
}

function withoutThinking(message: StoredMessage): StoredMessage {
  const known = shortened.get(message);
  if (known !== undefined) return known;
  const content = message.content.filter(({ type }) => type !== 'thinking' && type !== 'redacted_thinking');
  const isWhole = content.length === message.content.length || content.length === 0;
  const shown = isWhole ? message : { ...message, content, provider_raw: null };
  shortened.set(message, shown);
  return shown;
}

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
