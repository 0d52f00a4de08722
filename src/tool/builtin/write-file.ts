// write_file: creates or overwrites a file (09 §13).
import { toolText } from '../../domain/tool.ts';
import type { ToolFactory } from '../../ports/tool.ts';
import { define, filesOf, inputSchema, nothingToCancel, pathSchema } from './definition.ts';

const definition = define({
  name: 'write_file',
  description:
    'Writes a file of the workspace: creates it, with missing folders, or replaces its whole content. To change a part of a file use edit_file.',
  side_effects: 'write',
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
  async execute(input, context) {
    const files = filesOf(context);
    const content = input.content as string;
    const path = await files.resolve(input.path as string, 'write');
    await files.exclusive(path, () => {
      context.signal.throwIfAborted();
      return files.write(path, content);
    });
    return toolText(`Wrote ${Buffer.byteLength(content)} bytes to ${path.given}`, { files_modified: [path.relative] });
  },
});
