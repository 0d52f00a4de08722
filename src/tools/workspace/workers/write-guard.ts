// Files that make a worker what it is: no file tool of a model writes them (13 §3.4).
import { realpath } from 'node:fs/promises';
import type { WorkerLibrary } from '#core/ports/worker-library.ts';
import type { WorkspaceFiles } from '#core/ports/workspace.ts';
import { ToolError } from '#protocol/tool.ts';

const DEFINITION = /^(\.metis\/.+|workers\/[^/]+\.(yaml|json)|\.claude\/agents\/.+\.md)$/;
/** Each may be a link to another folder of the workspace, whose real name is no way around. */
const FOLDERS = [
  '.metis/workers',
  '.metis/prompts',
  '.metis/schemas',
  'workers',
  '.claude/agents',
  'prompts',
  'schemas',
];
const PROMPT = /^prompts\/([^/]+)\.[^./]+$/;

export function withoutDefinitions(root: string, files: WorkspaceFiles, library: WorkerLibrary): WorkspaceFiles {
  return {
    ...files,
    async resolve(path, use) {
      const confined = await files.resolve(path, use);
      if (use !== 'write') return confined;
      const names = [confined.relative, ...(await aliases(root, confined.absolute))].map(folded);
      if (names.some((name) => DEFINITION.test(name)) || (await belongs(confined.absolute, names)))
        throw new ToolError(
          'permission_denied',
          `Path '${path.replace(/\p{Cc}/gu, '?')}' is protected: it is part of a worker's definition; worker_create makes a new worker`,
        );
      return confined;
    },
  };

  async function belongs(absolute: string, names: readonly string[]): Promise<boolean> {
    const stems = names.flatMap((name) => PROMPT.exec(name)?.[1] ?? []);
    if (stems.length > 0 && (await library.names(root)).some((name) => stems.includes(name.toLowerCase()))) return true;
    return library.owns(root, absolute);
  }
}

/** What the path is called by way of a folder of definitions that is a link. */
async function aliases(root: string, absolute: string): Promise<readonly string[]> {
  const found: string[] = [];
  for (const folder of FOLDERS) {
    const real = await realpath(`${root}/${folder}`).catch(() => null);
    if (real !== null && absolute.startsWith(`${real}/`)) found.push(`${folder}${absolute.slice(real.length)}`);
  }
  return found;
}

/** In the spelling that every file system takes for the same (09 §8). */
function folded(relative: string): string {
  return relative
    .normalize('NFKC')
    .replace(/[\p{Cf}\p{Mn}]/gu, '')
    .toLowerCase();
}
