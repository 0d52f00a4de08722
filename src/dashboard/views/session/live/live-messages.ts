// Stored messages of a live session: adding pages, dropping old ones, and finding edited calls.
import type { Message } from '#client/client.ts';
import { findEditedCalls } from '../edited-call.ts';
import type { LiveSession } from './live-node.ts';

/** Messages read anew, newer or older than those at hand: one without a doubt follows the other. */
export function takeMessages(live: LiveSession, messages: readonly Message[]): void {
  const last = live.messages.at(-1);
  const [first] = messages;
  // One that follows, as nearly all do: thousands may come in one turn.
  if (messages.length === 1 && first !== undefined && last !== undefined && first.id > last.id) {
    live.messages.push(first);
  } else {
    const byId = new Map([...live.messages, ...messages].map((message) => [message.id, message]));
    live.messages = [...byId.values()].sort((a, b) => (a.id < b.id ? -1 : 1));
  }
  for (const { id } of messages) live.open.delete(id);
  lookForEdits(live, messages);
  live.version++;
}

/** The connection broke: the stream does not repeat messages or the text of workers, so they are loaded again. */
export function loseMessages(live: LiveSession): void {
  live.wholeUpTo ??= live.messages.at(-1)?.id ?? null;
  live.wantsMessages = true;
  for (const node of live.nodes) node.missed = node.ended_at === null;
}

/** The newest messages; where they do not reach down to what is known to be whole, all before them is asked for anew. */
export function takeNewest(live: LiveSession, messages: readonly Message[], hasOlder: boolean): void {
  const [first] = messages;
  const { wholeUpTo } = live;
  if (wholeUpTo !== null && first !== undefined && first.id > wholeUpTo) {
    live.messages = live.messages.filter(({ id }) => id >= first.id);
    live.hasOlder = hasOlder;
  }
  live.wholeUpTo = null;
  takeMessages(live, messages);
}

/** Results that say that their call was edited. */
export function lookForEdits(live: LiveSession, messages: readonly Message[]): void {
  if (findEditedCalls(messages).some((id) => !live.edits.has(id))) live.wantsEdits = true;
}
