// The lines of a text that streams by: counts all, keeps the wanted ones as far as they fit (09 §10, §13).
import { cutUtf8, omittedNote } from '#core/policy/tools/tool-output.ts';

export interface LineWindow {
  push(text: string): void;
  /** `last`: number of the last line kept; `cut`: wanted lines were left out, or a part of the only one. */
  end(): { readonly text: string; readonly total: number; readonly last: number; readonly cut: boolean };
}

/**
 * Lines end with `\n`, `\r\n` or `\r` and keep their ending.
 * @param offset number of the first wanted line, from 1
 * @param bytes most UTF-8 bytes to keep; only whole lines are kept, but of a first line that is too long its start
 */
export function createLineWindow(offset: number, limit: number, bytes: number): LineWindow {
  const kept: string[] = [];
  let keptBytes = 0;
  let total = 0;
  let last = 0;
  let full = false;
  // The line that is not finished yet; beyond the limit only its size is of interest.
  let line = '';
  let lineBytes = 0;
  let carriage = false;

  function wanted(): boolean {
    return total + 1 >= offset && total + 1 < offset + limit;
  }
  function take(part: string) {
    if (part === '') return;
    const size = Buffer.byteLength(part);
    if (wanted() && !full && lineBytes <= bytes) line += part;
    lineBytes += size;
  }
  function finish() {
    if (wanted() && !full) keep();
    total += 1;
    line = '';
    lineBytes = 0;
  }
  function keep() {
    const fits = keptBytes + lineBytes <= bytes;
    if (fits) kept.push(line);
    else full = true;
    if (!fits && kept.length === 0) {
      const head = cutUtf8(line, bytes);
      kept.push(`${head}${omittedNote(lineBytes - Buffer.byteLength(head))}`);
    } else if (!fits) return;
    keptBytes += lineBytes;
    last = total + 1;
  }

  return {
    push(text) {
      let rest = text;
      if (carriage && rest !== '') {
        carriage = false;
        const pair = rest.startsWith('\n');
        take(pair ? '\r\n' : '\r');
        finish();
        if (pair) rest = rest.slice(1);
      }
      // Whether a final `\r` ends a line alone is known with the next character only.
      carriage ||= rest.endsWith('\r');
      if (carriage) rest = rest.slice(0, -1);
      const ending = /\r\n|\n|\r/g;
      let from = 0;
      for (let match = ending.exec(rest); match !== null; match = ending.exec(rest)) {
        take(rest.slice(from, ending.lastIndex));
        finish();
        from = ending.lastIndex;
      }
      take(rest.slice(from));
    },
    end() {
      if (carriage) take('\r');
      if (lineBytes > 0) finish();
      return { text: kept.join(''), total, last, cut: full };
    },
  };
}
