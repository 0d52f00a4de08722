// The memory files of a workspace as a prompt shows them (10 §4).
import { utf8Head } from '../policy/tools/tool-output.ts';
import type { Logger } from '../ports/log.ts';
import type { WorkspaceFiles } from '../ports/workspace.ts';
import { isMissing, problemOf, readStart } from './descriptors.ts';

/** In the order of the prompt; `cap` is the hard cap in UTF-8 bytes. */
const MEMORY_FILES = [
  { name: 'USER.md', heading: 'User context', cap: 3072 },
  { name: 'MEMORY.md', heading: 'Workspace memory', cap: 4096 },
] as const;

/**
 * Both files under their headings, blank ones left out; null when there is nothing to say.
 * A file that is too large is shown in part, one that cannot be read not at all.
 * @param warn called for each such file
 */
export async function memoryText(files: WorkspaceFiles, warn: Logger['warn']): Promise<string | null> {
  const folder = `${files.root}/.metis`;
  if (isMissing(folder)) return null;
  const sections: string[] = [];
  for (const { name, heading, cap } of MEMORY_FILES) {
    if (isMissing(`${folder}/${name}`)) continue;
    const data = await readMemory(files, name, cap + 1, warn);
    const text = utf8Head(data, cap).toString('utf8').trim();
    const over = data.length > cap;
    if (over) warn({ file: name, cap }, 'a memory file exceeds its cap and is shown in part');
    const body = over ? `${text}\n[truncated: file exceeds its ${cap}-byte cap]` : text;
    if (body !== '') sections.push(`## ${heading} (${name})\n${body}`);
  }
  return sections.length === 0 ? null : sections.join('\n\n');
}

async function readMemory(files: WorkspaceFiles, name: string, bytes: number, warn: Logger['warn']): Promise<Buffer> {
  try {
    const path = await files.resolve(`.metis/${name}`, 'read');
    return (await readStart(path.absolute, bytes)) ?? Buffer.alloc(0);
  } catch (error) {
    warn({ file: name, problem: problemOf(error) }, 'a memory file is ignored');
    return Buffer.alloc(0);
  }
}
