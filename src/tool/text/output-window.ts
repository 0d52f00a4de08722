// The output of a running program in bounded memory: its first and its last part (09 §10).
import { omittedNote, utf8Tail } from '../../policy/tools/tool-output.ts';

export interface OutputWindow {
  push(data: Buffer): void;
  /** Everything, or both ends with the number of bytes between them. Invalid bytes are U+FFFD. Call once, at the end. */
  text(): string;
}

/** @param half bytes kept of each end */
export function createOutputWindow(half: number): OutputWindow {
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  const head: Buffer[] = [];
  let headBytes = 0;
  const ring = Buffer.alloc(half);
  let behind = 0;

  function keep(text: string) {
    const data = Buffer.from(text);
    const first = data.subarray(0, half - headBytes);
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
  }
  return {
    push: (data) => keep(decoder.decode(data, { stream: true })),
    text() {
      keep(decoder.decode());
      const start = Buffer.concat(head);
      if (behind <= half) return Buffer.concat([start, ring.subarray(0, behind)]).toString('utf8');
      const at = behind % half;
      const end = utf8Tail(Buffer.concat([ring.subarray(at), ring.subarray(0, at)]));
      const kept = wholeCharacters(start);
      const omitted = start.length + behind - kept.length - end.length;
      return `${kept.toString('utf8')}${omittedNote(omitted)}\n${end.toString('utf8')}`;
    },
  };
}

/** Without a character at its end that was cut in two. */
function wholeCharacters(data: Buffer): Buffer {
  let start = data.length - 1;
  while (start >= 0 && ((data[start] ?? 0) & 0xc0) === 0x80) start -= 1;
  const lead = data[start] ?? 0;
  const size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
  return start + size > data.length ? data.subarray(0, start) : data;
}
