// Files of a worker's tree: linked folders of the caller are read through their recorded target, and never written (20 §2.2).
import type { PathUse, WorkspaceFiles } from '#core/ports/workspace.ts';
import { ToolError } from '#protocol/tool.ts';
import { findWorktreeId, readOrigin } from './origin.ts';

/**
 * @param home the folder that holds all worktrees
 * @param open the files of a folder, confined to it
 */
export function readLinkedFolders(
  home: string,
  files: WorkspaceFiles,
  open: (root: string) => WorkspaceFiles,
): WorkspaceFiles {
  const id = findWorktreeId(home, files.root);
  if (id === null) return files;
  return {
    ...files,
    async resolve(given: string, use: PathUse) {
      const relative = given.startsWith(`${files.root}/`) ? given.slice(files.root.length + 1) : given;
      const { links } = await readOrigin(`${home}/${id}.git`).catch(() => ({ links: {} }));
      const plain = relative.replace(/^(\.?\/)+/, '');
      const link = Object.entries(links).find(([name]) => plain === name || plain.startsWith(`${name}/`));
      if (link === undefined || plain.split('/').includes('..')) return files.resolve(given, use);
      const [name, target] = link;
      if (use === 'write') throw new ToolError('permission_denied', `Path '${name}' is linked and only read`);
      const { absolute } = await open(target).resolve(plain.slice(name.length + 1) || '.', use);
      return { given, absolute, relative: plain };
    },
  };
}
