// What the people of a project tell every agent: the first instruction file that exists (10 §2).
import { resolve } from 'node:path';
import { utf8Head } from '#core/policy/tools/tool-output.ts';
import type { Logger } from '#core/ports/log.ts';
import type { WorkspaceFiles } from '#core/ports/workspace.ts';
import { isMissing, problemOf, readStart } from './descriptors.ts';

const MAX_BYTES = 32 * 1024;

/** The first of `names` (workspace-relative) that is a readable file, cut at 32 KiB with a note; null when there is none. */
export async function readInstructions(
  files: WorkspaceFiles,
  names: readonly string[],
  log: Logger,
): Promise<{ readonly path: string; readonly text: string } | null> {
  for (const name of names) {
    if (isMissing(resolve(files.root, name))) continue;
    try {
      const data = await readStart((await files.resolve(name, 'read')).absolute, MAX_BYTES + 1);
      if (data === null) continue;
      const text = utf8Head(data, MAX_BYTES).toString('utf8');
      const note = data.length > MAX_BYTES ? `\n[truncated: ${name} exceeds ${MAX_BYTES} bytes]` : '';
      return { path: name, text: `${text}${note}` };
    } catch (error) {
      log.warn({ path: resolve(files.root, name), problem: problemOf(error) }, 'an instruction file is ignored');
    }
  }
  return null;
}
