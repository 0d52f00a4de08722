// edit_file replaces one text in a file; write_file creates or overwrites a file (09 §13).
import type { ToolFactory } from '#core/ports/tool-port.ts';
import { ToolError, toolText } from '#protocol/tool.ts';
import {
  cancelNothing,
  checkStale,
  defineTool,
  hashContent,
  inputSchema,
  pathSchema,
  refuseStale,
  utf8Text,
  workspaceFiles,
} from './common.ts';

const MAX_FILE_BYTES = 16 * 1024 * 1024;

const editFileDefinition = defineTool({
  name: 'edit_file',
  description:
    'Replaces a text in a file of the workspace. The old text must occur exactly once, so include enough of its surroundings; both texts are taken literally.',
  side_effects: 'write',
  file_access: 'write',
  group: 'sandbox.write',
  input_schema: inputSchema(
    {
      path: pathSchema('File, relative to the workspace.'),
      old: { type: 'string', minLength: 1, description: 'The text to replace, exactly as it occurs in the file.' },
      new: { type: 'string', description: 'The text to put in its place.' },
    },
    ['path', 'old', 'new'],
  ),
});

export const editFile: ToolFactory = () => ({
  definition: editFileDefinition,
  cancel: cancelNothing,
  async check(input, context) {
    await checkStale(context, input.path as string, 'allowed');
    return [];
  },
  async execute(input, context) {
    const files = workspaceFiles(context);
    const old = input.old as string;
    const path = await files.resolve(input.path as string, 'write');
    await files.exclusive(path, async () => {
      context.signal.throwIfAborted();
      const data = await files.readFile(path, MAX_FILE_BYTES);
      refuseStale(context, path, { now: hashContent(data), unread: 'allowed' });
      const text = utf8Text(data, path.given, files.binary_hint);
      const at = onlyOccurrence(text, old, path.given);
      const edited = `${text.slice(0, at)}${input.new}${text.slice(at + old.length)}`;
      await files.write(path, edited);
      context.known.recordWrite(path.relative, hashContent(edited));
    });
    return toolText(`Edited ${path.given}`, { files_modified: [path.relative] });
  },
});

/** Where the text stands. Throws `ToolError` unless that is one place; overlapping places count as several. */
function onlyOccurrence(text: string, sought: string, path: string): number {
  const first = text.indexOf(sought);
  if (first < 0) throw new ToolError('execution_error', `text to replace not found in ${path}`);
  let count = 0;
  for (let at = first; at >= 0; at = text.indexOf(sought, at + 1)) count += 1;
  if (count === 1) return first;
  throw new ToolError('execution_error', `text to replace appears ${count} times in ${path}; must be unique`);
}

// write_file: creates or overwrites a file (09 §13).

const writeFileDefinition = defineTool({
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
  definition: writeFileDefinition,
  cancel: cancelNothing,
  async check(input, context) {
    await checkStale(context, input.path as string, 'refused');
    return [];
  },
  async execute(input, context) {
    const files = workspaceFiles(context);
    const content = input.content as string;
    const path = await files.resolve(input.path as string, 'write');
    const created = await files.exclusive(path, async () => {
      context.signal.throwIfAborted();
      const now = await files.hash(path, context.signal);
      refuseStale(context, path, { now, unread: 'refused' });
      await files.write(path, content);
      context.known.recordWrite(path.relative, hashContent(content));
      return now === null;
    });
    return toolText(`Wrote ${Buffer.byteLength(content)} bytes to ${path.given}`, {
      files_modified: [path.relative],
      files_created: created ? [path.relative] : [],
    });
  },
});
