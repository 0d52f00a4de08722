// read_file: a text file, whole or by lines (09 §13, §10).
import { createHash } from 'node:crypto';
import { alreadyCut, MAX_OUTPUT_BYTES } from '#core/policy/tools/tool-output.ts';
import type { ToolFactory } from '#core/ports/tool.ts';
import { toolText } from '#protocol/tool.ts';
import { define, filesOf, inputSchema, nothingToCancel, notText, pathSchema } from './definition.ts';
import { createLineWindow } from './line-window.ts';

const definition = define({
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
  cancel: nothingToCancel,
  async execute(input, context) {
    context.signal.throwIfAborted();
    const files = filesOf(context);
    const path = await files.resolve(input.path as string, 'read');
    const offset = (input.offset as number | undefined) ?? 1;
    const limit = (input.limit as number | undefined) ?? Number.POSITIVE_INFINITY;
    const sliced = input.offset !== undefined || input.limit !== undefined;

    const window = createLineWindow(offset, limit, MAX_OUTPUT_BYTES);
    const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
    const decode = (data?: Buffer) => {
      try {
        return data === undefined ? decoder.decode() : decoder.decode(data, { stream: true });
      } catch {
        throw notText(path.given, files.binary_hint);
      }
    };
    const digest = createHash('sha256');
    for await (const data of files.chunks(path)) {
      context.signal.throwIfAborted();
      digest.update(data);
      window.push(decode(data));
    }
    window.push(decode());
    context.known.read(path.relative, digest.digest('hex'));
    const { text, total, last, cut } = window.end();

    if (sliced && offset > total && !(total === 0 && offset === 1)) {
      return toolText(`(file has ${total} line(s); offset ${offset} is past end)`);
    }
    const header = sliced ? `(showing lines ${total === 0 ? 0 : offset}-${last} of ${total})\n` : '';
    if (!cut) return alreadyCut(`${header}${text}`);
    return alreadyCut(
      `${header}${text}\n... [truncated at line ${last} of ${total}; continue with offset=${last + 1}]`,
    );
  },
});
