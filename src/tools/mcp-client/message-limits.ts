// Limits for untrusted messages of an MCP server: size, pace, and lines in the debug log (09 §11).
import type { Limits } from '#core/policy/parsing/text-limits.ts';
import type { Logger } from '#core/ports/logger.ts';
import type { Clock } from '#protocol/clock.ts';

/** Room for the largest image a tool may answer with, in base64. */
export const MESSAGE_LIMITS: Limits = { bytes: 8_388_608, depth: 100, nodes: 200_000 };

/** Why a connection can be used no longer, as the end of a sentence that begins with the server's name. */
export type OnFault = (reason: string) => void;

// Pace: a server that writes without end must not occupy the event loop (09 §11.4).

/** Messages taken in a row, and milliseconds that they may take, before everybody else has a turn. */
const SLICE_MESSAGES = 32;
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
    if (count < SLICE_MESSAGES && spent < SLICE_MS) return 0;
    return Math.max((PAUSE_MS * count) / SLICE_MESSAGES, SHARE * spent);
  };
}

// Debug log of output outside the protocol: at most 64 KiB a minute (09 §11.4).

const NOISE_BYTES = 65_536;
const NOISE_PERIOD_MS = 60_000;

export function createNoiseLog(server: string, clock: Clock, log: Logger): (text: string) => void {
  let began = clock.monotonic();
  let left = NOISE_BYTES;
  return (text) => {
    if (clock.monotonic() - began >= NOISE_PERIOD_MS) {
      began = clock.monotonic();
      left = NOISE_BYTES;
    }
    if (left <= 0) return;
    const shown = Buffer.from(text).subarray(0, left).toString('utf8');
    left -= Buffer.byteLength(shown);
    log.debug({ mcp_server: server, text: shown.trimEnd() }, 'an MCP server wrote');
    if (left <= 0) log.debug({ mcp_server: server }, 'an MCP server writes too much: no more of it this minute');
  };
}
