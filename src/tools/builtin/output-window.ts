// The output of a running program in bounded memory: its first and its last part (09 §10).
import { isUtf8 } from 'node:buffer';
import { omittedNote, utf8Tail } from '#core/policy/tools/tool-output.ts';

export interface OutputWindow {
  push(data: Buffer): void;
  /** Everything, or both ends with the number of bytes between them. Invalid bytes are U+FFFD. Call once, at the end. */
  text(): string;
}

/**
 * Bytes are kept as they come and read as text at the end: a flood that is no text would take long to read.
 * @param half bytes kept of each end
 */
export function createOutputWindow(half: number): OutputWindow {
  const head: Buffer[] = [];
  let headBytes = 0;
  const ring = Buffer.alloc(half);
  let behind = 0;

  return {
    push(data) {
      // What a stream hands out is its own again afterwards.
      const first = Buffer.from(data.subarray(0, half - headBytes));
      if (first.length > 0) head.push(first);
      headBytes += first.length;
      // Of a piece longer than the ring only its end can survive.
      let rest = data.subarray(first.length);
      behind += Math.max(0, rest.length - half);
      rest = rest.subarray(Math.max(0, rest.length - half));
      const at = behind % half;
      const fits = Math.min(rest.length, half - at);
      rest.copy(ring, at, 0, fits);
      rest.copy(ring, 0, fits);
      behind += rest.length;
    },
    text() {
      const start = Buffer.concat(head);
      if (behind <= half) {
        const whole = readable(Buffer.concat([start, ring.subarray(0, behind)]));
        return whole.length <= 2 * half ? whole.toString('utf8') : bothEnds(whole, whole, 0);
      }
      const at = behind % half;
      const end = utf8Tail(Buffer.concat([ring.subarray(at), ring.subarray(0, at)]));
      const kept = wholeCharacters(start);
      return bothEnds(readable(kept), readable(end), start.length + behind - kept.length - end.length);
    },
  };

  /** The first half of one and the last half of the other; `between` bytes are lost already. */
  function bothEnds(first: Buffer, last: Buffer, between: number): string {
    const from = wholeCharacters(first.subarray(0, half));
    const to = utf8Tail(last.subarray(Math.max(0, last.length - half)));
    const lost =
      first === last ? first.length - from.length - to.length : first.length + last.length - from.length - to.length;
    return `${from.toString('utf8')}${omittedNote(between + lost)}\n${to.toString('utf8')}`;
  }
}

/** As UTF-8: an invalid byte becomes U+FFFD, which takes three. */
function readable(data: Buffer): Buffer {
  return isUtf8(data) ? data : Buffer.from(data.toString('utf8'));
}

/** Without a character at its end that was cut in two. */
function wholeCharacters(data: Buffer): Buffer {
  let start = data.length - 1;
  while (start >= 0 && ((data[start] ?? 0) & 0xc0) === 0x80) start -= 1;
  const lead = data[start] ?? 0;
  const size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
  return start + size > data.length ? data.subarray(0, start) : data;
}
