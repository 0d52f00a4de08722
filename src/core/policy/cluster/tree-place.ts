// The place of a tree's files, which decides which nodes can own the tree (16 §7).

/** The part of the configuration `cluster.*` that decides where files may lie. */
export interface Places {
  readonly node_name: string;
  /** Absolute; the same file system on each node that lists them. */
  readonly shared_roots: readonly string[];
  /** Workspace of sessions that have no files. */
  readonly no_files: string;
}

const ANYWHERE = 'anywhere';

/** The place of trees whose workspace lies below this shared root. */
export function sharedPlace(root: string): string {
  return `shared:${root}`;
}

/** All places whose trees a node can own. */
export function listPlaces({ node_name, shared_roots }: Omit<Places, 'no_files'>): readonly string[] {
  return [ANYWHERE, `node:${node_name}`, ...shared_roots.map(sharedPlace)];
}

/**
 * `shared:<root>` below a shared root (the longest match); `anywhere` without files; else `node:<name>`: only this node
 * has the files.
 * @param workspacePath absolute, links resolved
 */
export function findPlace(workspacePath: string, { node_name, shared_roots, no_files }: Places): string {
  if (workspacePath === no_files) return ANYWHERE;
  const root = shared_roots
    .filter((folder) => isBelow(workspacePath, [folder]))
    .reduce<string | null>((longest, folder) => (folder.length > (longest?.length ?? -1) ? folder : longest), null);
  if (root === null) return `node:${node_name}`;
  return sharedPlace(root);
}

/** Whether a path is one of these folders or below one. All paths are absolute, links resolved. */
export function isBelow(path: string, folders: readonly string[]): boolean {
  return folders.some((folder) => path === folder || path.startsWith(folder.endsWith('/') ? folder : `${folder}/`));
}
