// Where the files of a tree lie, which decides who can own it (16 §7).

/** What of the configuration `cluster.*` says where files may lie. */
export interface Places {
  readonly node_name: string;
  /** Absolute; the same file system on each node that lists them. */
  readonly shared_roots: readonly string[];
}

/** All that a node can own. */
export function placesOf({ node_name, shared_roots }: Places): readonly string[] {
  return [`node:${node_name}`, ...shared_roots.map((root) => `shared:${root}`)];
}

/**
 * `shared:<root>` below a shared root, the longest of those that fit; else `node:<name>`: this node alone has the files.
 * @param workspacePath absolute, links resolved
 */
export function placeOf(workspacePath: string, { node_name, shared_roots }: Places): string {
  const root = shared_roots
    .filter((folder) => workspacePath === folder || workspacePath.startsWith(folder === '/' ? '/' : `${folder}/`))
    .reduce<string | null>((longest, folder) => (folder.length > (longest?.length ?? -1) ? folder : longest), null);
  return root === null ? `node:${node_name}` : `shared:${root}`;
}

/** Whether other nodes have its files too. */
export function isShared(place: string): boolean {
  return place.startsWith('shared:');
}
