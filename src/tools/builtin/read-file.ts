// read_file: a text file, whole or by lines (09 §13, §10).
import { createHash } from 'node:crypto';
import { createCutOutput, cutUtf8, MAX_OUTPUT_BYTES, omittedNote } from '#core/policy/tools/tool-output.ts';
import type { ToolFactory } from '#core/ports/tool-port.ts';
import { toolText } from '#protocol/tool.ts';
import { cancelNothing, defineTool, inputSchema, notTextError, pathSchema, workspaceFiles } from './common.ts';

// The lines of a text that streams by: counts all, keeps the wanted ones as far as they fit (09 §10, §13).

interface LineWindow {
  push(text: string): void;
  /** `last`: number of the last line kept; `cut`: wanted lines were left out, or a part of the only one. */
  end(): { readonly text: string; readonly total: number; readonly last: number; readonly cut: boolean };
}

/**
 * Lines end with `\n`, `\r\n` or `\r` and keep their ending.
 * @param offset number of the first wanted line, from 1
 * @param bytes most UTF-8 bytes to keep; only whole lines are kept, but of a first line that is too long its start
 */
function createLineWindow(offset: number, limit: number, bytes: number): LineWindow {
  const kept: string[] = [];
  let keptBytes = 0;
  let total = 0;
  let last = 0;
  let full = false;
  // The line that is not finished yet; beyond the limit only its size is of interest.
  let line = '';
  let lineBytes = 0;
  let carriage = false;

  function isInWindow(): boolean {
    return total + 1 >= offset && total + 1 < offset + limit;
  }
  function addPart(part: string) {
    if (part === '') return;
    const size = Buffer.byteLength(part);
    if (isInWindow() && !full && lineBytes <= bytes) line += part;
    lineBytes += size;
  }
  function finishLine() {
    if (isInWindow() && !full) keepLine();
    total += 1;
    line = '';
    lineBytes = 0;
  }
  function keepLine() {
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
        addPart(pair ? '\r\n' : '\r');
        finishLine();
        if (pair) rest = rest.slice(1);
      }
      // Whether a final `\r` ends a line alone is known with the next character only.
      carriage ||= rest.endsWith('\r');
      if (carriage) rest = rest.slice(0, -1);
      const ending = /\r\n|\n|\r/g;
      let from = 0;
      for (let match = ending.exec(rest); match !== null; match = ending.exec(rest)) {
        addPart(rest.slice(from, ending.lastIndex));
        finishLine();
        from = ending.lastIndex;
      }
      addPart(rest.slice(from));
    },
    end() {
      if (carriage) addPart('\r');
      if (lineBytes > 0) finishLine();
      return { text: kept.join(''), total, last, cut: full };
    },
  };
}

const definition = defineTool({
  name: 'read_file',
  description:
    'Reads a UTF-8 text file of the workspace. For a long file give offset and limit; lines count from 1. Output beyond 256 KiB is cut at a line, with the offset to go on from.',
  side_effects: 'read',
  file_access: 'read',
  input_schema: inputSchema(
    {
      path: pathSchema('File, relative to the workspace.'),
      offset: { type: 'integer', minimum: 1, description: 'First line to show.' },
      limit: { type: 'integer', minimum: 1, description: 'Number of lines to show.' },
    },
    ['path'],
  ),
});

export const readFile: ToolFactory = () => ({
  definition,
  cancel: cancelNothing,
  async execute(input, context) {
    context.signal.throwIfAborted();
    const files = workspaceFiles(context);
    const path = await files.resolve(input.path as string, 'read');
    const offset = (input.offset as number | undefined) ?? 1;
    const limit = (input.limit as number | undefined) ?? Number.POSITIVE_INFINITY;
    const sliced = input.offset !== undefined || input.limit !== undefined;

    const window = createLineWindow(offset, limit, MAX_OUTPUT_BYTES);
    const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
    const decode = (data?: Buffer) => {
      try {
        if (data === undefined) return decoder.decode();
        return decoder.decode(data, { stream: true });
      } catch {
        throw notTextError(path.given, files.binary_hint);
      }
    };
    const digest = createHash('sha256');
    for await (const data of files.chunks(path)) {
      context.signal.throwIfAborted();
      digest.update(data);
      window.push(decode(data));
    }
    window.push(decode());
    context.known.recordRead(path.relative, digest.digest('hex'));
    const { text, total, last, cut } = window.end();

    if (sliced && offset > total && !(total === 0 && offset === 1)) {
      return toolText(`(file has ${total} line(s); offset ${offset} is past end)`);
    }
    let header = '';
    if (sliced) header = `(showing lines ${Math.min(offset, total)}-${last} of ${total})\n`;
    if (!cut) return createCutOutput(`${header}${text}`);
    return createCutOutput(
      `${header}${text}\n... [truncated at line ${last} of ${total}; continue with offset=${last + 1}]`,
    );
  },
});
