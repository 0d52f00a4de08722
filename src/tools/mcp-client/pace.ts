// How fast a stranger's messages are taken: one that writes without end may not have the event loop to itself (09 §11.4).
import type { Clock } from '#protocol/clock.ts';

/** Messages taken in a row, and milliseconds that they may take, before everybody else has a turn. */
const MESSAGES = 32;
const SLICE_MS = 5;
const PAUSE_MS = 10;
/** A message's cost is not over when it has been handed on, and others are to have more of the time than it. */
const SHARE = 4;

/**
 * Begins now. The returned function counts what has come since it was last asked, and answers 0 to go on, or how many
 * milliseconds to wait before the next message.
 */
export function beginSlice(clock: Clock): (messages?: number) => number {
  const began = clock.monotonic();
  let count = 0;
  return (messages = 1) => {
    count += messages;
    const spent = clock.monotonic() - began;
    return count < MESSAGES && spent < SLICE_MS ? 0 : Math.max((PAUSE_MS * count) / MESSAGES, SHARE * spent);
  };
}
