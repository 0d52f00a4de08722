// What was worked out for the beginning of a history, so that a longer one costs only what is new (10 §1).
import type { StoredMessage } from '#protocol/message.ts';

export interface Beginnings<State> {
  /** The newest that was kept of a history which begins with exactly these messages; null when there is none. */
  of(messages: readonly StoredMessage[]): Beginning<State> | null;
  /** In place of what was kept of a history that begins with the same message. */
  keep(messages: readonly StoredMessage[], state: State): void;
}

interface Beginning<State> {
  /** How many messages it covers. */
  readonly count: number;
  readonly state: State;
}

/** Stored messages never change, so that the same objects in the same order are the same history. */
export function createBeginnings<State>(): Beginnings<State> {
  // A history may grow in its array: the count is that of the moment it was kept.
  const kept = new WeakMap<StoredMessage, Beginning<State> & { readonly messages: readonly StoredMessage[] }>();
  return {
    of(messages) {
      const known = messages.length === 0 ? undefined : kept.get(messages[0]!);
      return known !== undefined && agree(messages, known.messages, known.count) ? known : null;
    },
    keep(messages, state) {
      if (messages.length > 0) kept.set(messages[0]!, { messages, count: messages.length, state });
    },
  };
}

function agree(messages: readonly StoredMessage[], kept: readonly StoredMessage[], count: number): boolean {
  if (count > messages.length) return false;
  for (let i = 0; i < count; i += 1) if (messages[i] !== kept[i]) return false;
  return true;
}
