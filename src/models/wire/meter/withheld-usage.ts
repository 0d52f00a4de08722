// Leaves one event of a chat stream out, the chunk of counts that the client did not ask for, and nothing else (19 §2.2).
import { isMapping } from '#core/policy/parsing/yaml.ts';
import { EVENT_CHARACTERS, tryEventData } from '../event-data.ts';

const LF = 0x0a;
const CR = 0x0d;

export interface Withheld {
  /** The bytes that go on now: whole events, or all of a stream that is none. */
  pass(bytes: Uint8Array): Uint8Array;
  /** What is left when the stream has ended. */
  rest(): Uint8Array;
}

export function withoutUsageChunk(): Withheld {
  let waiting: Buffer = Buffer.alloc(0);
  return {
    pass(bytes) {
      waiting = Buffer.concat([waiting, bytes]);
      const kept: Buffer[] = [];
      let from = 0;
      for (let end = endOfEvent(waiting, from); end >= 0; end = endOfEvent(waiting, from)) {
        const event = waiting.subarray(from, end);
        if (!isUsageChunk(event)) kept.push(event);
        from = end;
      }
      waiting = waiting.subarray(from);
      // What never ends is no event: it goes on as it is.
      if (waiting.length > EVENT_CHARACTERS) {
        kept.push(waiting);
        waiting = Buffer.alloc(0);
      }
      return kept.length === 1 ? kept[0]! : Buffer.concat(kept);
    },
    rest: () => (isUsageChunk(waiting) ? Buffer.alloc(0) : waiting),
  };
}

/** Behind the blank line that ends the event; -1 when it has not come. */
function endOfEvent(bytes: Buffer, from: number): number {
  for (let at = bytes.indexOf(LF, from); at >= 0; at = bytes.indexOf(LF, at + 1)) {
    if (bytes[at + 1] === LF) return at + 2;
    if (bytes[at + 1] === CR && bytes[at + 2] === LF) return at + 3;
  }
  return -1;
}

function isUsageChunk(event: Buffer): boolean {
  if (!event.includes('"usage"')) return false;
  const data = event
    .toString('utf8')
    .split(/\r?\n/)
    .filter((line) => line.startsWith('data:'))
    .map((line) => line.slice(5))
    .join('\n');
  const chunk = tryEventData(data);
  return isMapping(chunk) && isMapping(chunk.usage) && Array.isArray(chunk.choices) && chunk.choices.length === 0;
}
