// write_file: creates or overwrites a file (09 §13).

import type { ToolFactory } from '#core/ports/tool.ts';
import { toolText } from '#protocol/tool.ts';
import {
  checkStale,
  define,
  filesOf,
  hashOf,
  inputSchema,
  nothingToCancel,
  pathSchema,
  refuseStale,
} from './definition.ts';

const definition = define({
  name: 'write_file',
  description:
    'Writes a file of the workspace: creates it, with missing folders, or replaces its whole content. To change a part of a file use edit_file.',
  side_effects: 'write',
  file_access: 'write',
  group: 'sandbox.write',
  input_schema: inputSchema(
    {
      path: pathSchema('File, relative to the workspace.'),
      content: { type: 'string', description: 'The complete new content.' },
    },
    ['path', 'content'],
  ),
});

export const writeFile: ToolFactory = () => ({
  definition,
  cancel: nothingToCancel,
  async check(input, context) {
    await checkStale(context, input.path as string, 'refused');
    return [];
  },
  async execute(input, context) {
    const files = filesOf(context);
    const content = input.content as string;
    const path = await files.resolve(input.path as string, 'write');
    const created = await files.exclusive(path, async () => {
      context.signal.throwIfAborted();
      const now = await files.hash(path, context.signal);
      refuseStale(context, path, { now, unread: 'refused' });
      await files.write(path, content);
      context.known.wrote(path.relative, hashOf(content));
      return now === null;
    });
    return toolText(`Wrote ${Buffer.byteLength(content)} bytes to ${path.given}`, {
      files_modified: [path.relative],
      files_created: created ? [path.relative] : [],
    });
  },
});
