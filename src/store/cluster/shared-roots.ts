// Shared roots are the same file system on each node: each bears the cluster's id in a file that all nodes must find (16 §7.1).

import { constants } from 'node:fs';
import fs from 'node:fs/promises';
import path from 'node:path';
import { sharedPlace } from '#core/policy/cluster/tree-place.ts';
import type { Logger } from '#core/ports/logger.ts';
import { StartupError } from '#protocol/errors.ts';
import type { Send } from '../postgres/connection/client.ts';
import { type Pool, runInTurn } from '../postgres/connection/pool.ts';

const MARK_FILE = '.metis-cluster';
/** Length of an id and its line end; a longer file was not written by a node. */
const MAX_MARK_BYTES = 64;
const { O_RDONLY, O_NOFOLLOW, O_NONBLOCK } = constants;

const KEEP = 'INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO NOTHING';
const KEPT = 'SELECT value FROM meta WHERE key = ?';

/** The fault of a root that a node has marked, as one line; null = none. Does not read the database. */
type CheckRoot = (root: string) => Promise<string | null>;

/**
 * The first node of a cluster marks each of its roots; every later one must find the mark, and the same.
 * Returns the watcher that checks later whether each root still has the mark.
 * @param id of the cluster, if it has none yet
 * Throws `StartupError('shared_root_mismatch')`.
 */
export async function markSharedRoots(pool: Pool, roots: readonly string[], id: string): Promise<CheckRoot> {
  if (roots.length === 0) return async () => null;
  // One node at a time: the second must see the first one's mark, or find that it cannot.
  return runInTurn(pool, 'shared roots', async (send) => {
    await send(KEEP, ['cluster_id', id]);
    const cluster = (await readMeta(send, 'cluster_id'))!;
    for (const root of roots) {
      const known = `shared_root ${root}`;
      await requireMark(root, cluster, (await readMeta(send, known)) === null);
      await send(KEEP, [known, cluster]);
    }
    return (root) => findFault(root, cluster, false);
  });
}

/** The faults that would prevent a start. Changes nothing. @param send null = the database has no tables yet */
export async function faultsOfRoots(send: Send | null, roots: readonly string[]): Promise<readonly string[]> {
  const readKey = async (key: string) => (send === null ? null : readMeta(send, key));
  const cluster = await readKey('cluster_id');
  const faults: string[] = [];
  for (const root of roots) {
    const fault = await findFault(root, cluster, (await readKey(`shared_root ${root}`)) === null);
    if (fault !== null) faults.push(fault);
  }
  return faults;
}

async function findFault(root: string, cluster: string | null, isFirst: boolean): Promise<string | null> {
  try {
    await isMarked(root, cluster, isFirst);
    return null;
  } catch (error) {
    if (error instanceof StartupError) return error.message;
    throw error;
  }
}

async function readMeta(send: Send, key: string): Promise<string | null> {
  return (await send<{ value: string }>(KEPT, [key])).rows[0]?.value ?? null;
}

async function requireMark(root: string, cluster: string, isFirst: boolean): Promise<void> {
  if (await isMarked(root, cluster, isFirst)) return;
  const file = path.join(root, MARK_FILE);
  try {
    await fs.writeFile(file, `${cluster}\n`, { flag: 'wx', mode: 0o644, flush: true });
  } catch (cause) {
    throw mismatch(root, `${file} cannot be written (${describeRootFault(cause)}); let the server write there`);
  }
}

/**
 * Changes nothing; false where the root has still to be marked.
 * @param cluster null = it has no id yet
 * @param isFirst no node has marked this root yet
 * Throws `StartupError('shared_root_mismatch')`.
 */
async function isMarked(root: string, cluster: string | null, isFirst: boolean): Promise<boolean> {
  let real: string;
  try {
    real = await fs.realpath(root);
  } catch (cause) {
    throw mismatch(root, `it cannot be opened (${describeRootFault(cause)}); mount it, or correct the path`);
  }
  // Paths of workspaces have no links in them.
  if (real !== root) throw mismatch(root, `it leads to ${real}; name that folder, the same on each node`);
  const file = path.join(root, MARK_FILE);
  const found = await readMark(root, file);
  if (found !== null) {
    if (found === cluster) return true;
    throw mismatch(
      root,
      `${file} bears the id of another cluster; give each cluster roots and a database of its own, or remove the file if that cluster is gone`,
    );
  }
  if (!isFirst) {
    throw mismatch(root, `${file}, which the first node wrote, is not there; mount the same file system on each node`);
  }
  return false;
}

/** The content of the mark; null where the file is missing. Untrusted: any user with write access may have written it. */
async function readMark(root: string, file: string): Promise<string | null> {
  let handle: fs.FileHandle;
  try {
    // Without O_NONBLOCK a FIFO would hang the start.
    handle = await fs.open(file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  } catch (cause) {
    if (describeRootFault(cause) === 'ENOENT') return null;
    throw mismatch(root, `${file} cannot be read (${describeRootFault(cause)})`);
  }
  try {
    if (!(await handle.stat()).isFile()) throw mismatch(root, `${file} is no file`);
    const bytes = Buffer.alloc(MAX_MARK_BYTES);
    const { bytesRead } = await handle.read(bytes, 0, bytes.length, 0);
    return bytes.toString('utf8', 0, bytesRead).trimEnd();
  } finally {
    await handle.close();
  }
}

function describeRootFault(cause: unknown): string {
  return String((cause as NodeJS.ErrnoException).code ?? cause);
}

function mismatch(root: string, reason: string): StartupError {
  return new StartupError('shared_root_mismatch', [`shared_root_mismatch: cluster.shared_roots: ${root}: ${reason}`]);
}

// While a node runs: a root without its mark leads to files that are not of this cluster (16 §7.1).

export interface RootWatch {
  /** Checks every root and logs changes since the last check. */
  check(): Promise<void>;
  /** Places of this node whose trees it can own at this moment. */
  filterPlaces(places: readonly string[]): readonly string[];
  /** Why this node is not ready, null where every root is sound. */
  fault(): string | null;
}

export function createRootWatch(roots: readonly string[], checkRoot: CheckRoot, log: Logger): RootWatch {
  const faults = new Map<string, string>();
  return {
    async check() {
      for (const root of roots) {
        const fault = await checkRoot(root);
        const known = faults.get(root) ?? null;
        if (fault === known) continue;
        if (fault === null) {
          faults.delete(root);
          log.warn({ root }, 'the shared root bears the mark of this cluster again');
        } else {
          faults.set(root, fault);
          log.warn({ root, reason: fault }, 'the shared root is not the one of this cluster; no tree of it is taken');
        }
      }
    },
    filterPlaces: (places) => places.filter((place) => ![...faults.keys()].some((root) => place === sharedPlace(root))),
    fault: () => [...faults.values()][0] ?? null,
  };
}
