// list_files: what a folder holds (09 §13).

import { setImmediate } from 'node:timers/promises';
import type { ToolFactory } from '#core/ports/tool-port.ts';
import type { ConfinedPath, WorkspaceFiles } from '#core/ports/workspace.ts';
import { compareText } from '#protocol/text/compare-text.ts';
import { toolText } from '#protocol/tool.ts';
import {
  byteKey,
  cancelNothing,
  defineTool,
  inputSchema,
  PRUNED_FOLDERS,
  pathSchema,
  workspaceFiles,
} from './common.ts';

const BETWEEN = 1000;

const definition = defineTool({
  name: 'list_files',
  description:
    'Lists a folder of the workspace, one name per line, folders with a final slash. With recursive it lists everything below, except dependency, build and cache folders.',
  side_effects: 'read',
  file_access: 'read',
  path_use: 'list',
  input_schema: inputSchema(
    {
      path: { ...pathSchema('Folder, relative to the workspace.'), default: '.' },
      recursive: { type: 'boolean', default: false, description: 'List what lies in its folders too.' },
      max_entries: { type: 'integer', minimum: 1, maximum: 5000, default: 1000, description: 'Most lines to show.' },
    },
    [],
  ),
});

export const listFiles: ToolFactory = () => ({
  definition,
  cancel: cancelNothing,
  async execute(input, context) {
    const files = workspaceFiles(context);
    const folder = await files.resolve((input.path as string | undefined) ?? '.', 'list');
    const max = (input.max_entries as number | undefined) ?? 1000;
    const lines: string[] = [];
    let more = 0;
    for await (const line of walkFolder(folder, '', {
      files,
      recursive: input.recursive === true,
      signal: context.signal,
    })) {
      if (lines.length < max) lines.push(line);
      else more += 1;
      // A folder may hold a million names: yield to the event loop.
      if ((lines.length + more) % BETWEEN === 0) {
        await setImmediate();
        context.signal.throwIfAborted();
      }
    }
    if (more > 0) lines.push(`... [${more} more]`);
    return toolText(lines.join('\n') || '(empty)');
  },
});

/** Lines in byte order: a folder's line precedes the lines of its content. */
async function* walkFolder(
  folder: ConfinedPath,
  prefix: string,
  listing: { readonly files: WorkspaceFiles; readonly recursive: boolean; readonly signal: AbortSignal },
): AsyncGenerator<string> {
  const { files, recursive, signal } = listing;
  signal.throwIfAborted();
  const entries = await files.entries(folder);
  const lines = entries.map((entry) => {
    const line = entry.kind === 'directory' ? `${entry.name}/` : entry.name;
    return { entry, line, key: byteKey(line) };
  });
  lines.sort((a, b) => compareText(a.key, b.key));
  for (const { entry, line } of lines) {
    const inner = await files.below(folder, entry);
    if (inner === null) continue;
    if (!recursive || entry.kind !== 'directory') yield `${prefix}${line}`;
    else if (!PRUNED_FOLDERS.includes(entry.name)) {
      yield `${prefix}${line}`;
      yield* walkFolder(inner, `${prefix}${line}`, listing);
    }
  }
}
