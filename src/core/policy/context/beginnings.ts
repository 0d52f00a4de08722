// Caches values computed for a prefix of a history, so that a longer history costs only its new messages (10 §1).
import type { StoredMessage } from '#protocol/message.ts';
import { isSameLine } from './session-history.ts';

export interface Beginnings<State> {
  /** The newest value cached for a prefix of exactly these messages; null when there is none. */
  find(messages: readonly StoredMessage[]): Beginning<State> | null;
  /** Replaces the value cached for a history with the same first message. */
  keep(messages: readonly StoredMessage[], state: State): void;
}

interface Beginning<State> {
  /** Number of messages that the value covers. */
  readonly count: number;
  readonly state: State;
}

/** Stored messages never change, so that the same objects in the same order are the same history. */
export function createBeginnings<State>(): Beginnings<State> {
  // The array of a history may grow: the count is that of the moment of caching.
  const kept = new WeakMap<StoredMessage, Beginning<State> & { readonly messages: readonly StoredMessage[] }>();
  return {
    find(messages) {
      const known = messages.length === 0 ? undefined : kept.get(messages[0]!);
      if (known !== undefined && agree(messages, known.messages, known.count)) return known;
      return null;
    },
    keep(messages, state) {
      if (messages.length > 0) kept.set(messages[0]!, { messages, count: messages.length, state });
    },
  };
}

function agree(messages: readonly StoredMessage[], kept: readonly StoredMessage[], count: number): boolean {
  if (count > messages.length) return false;
  if (isSameLine(messages, kept, count)) return true;
  for (let i = 0; i < count; i += 1) if (messages[i] !== kept[i]) return false;
  return true;
}
