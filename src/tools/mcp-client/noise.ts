// What a server writes beside the protocol, for the debug log: 64 KiB a minute at most (09 §11.4).

import type { Logger } from '#core/ports/log.ts';
import type { Clock } from '#protocol/clock.ts';

const BYTES = 65_536;
const PERIOD_MS = 60_000;

export function noiseLog(server: string, clock: Clock, log: Logger): (text: string) => void {
  let began = clock.monotonic();
  let left = BYTES;
  return (text) => {
    if (clock.monotonic() - began >= PERIOD_MS) {
      began = clock.monotonic();
      left = BYTES;
    }
    if (left <= 0) return;
    const shown = Buffer.from(text).subarray(0, left).toString('utf8');
    left -= Buffer.byteLength(shown);
    log.debug({ mcp_server: server, text: shown.trimEnd() }, 'an MCP server wrote');
    if (left <= 0) log.debug({ mcp_server: server }, 'an MCP server writes too much: no more of it this minute');
  };
}
