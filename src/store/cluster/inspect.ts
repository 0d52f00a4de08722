// Checks the database of a cluster and its shared roots as a start would, and changes nothing (17 §2).
import type { NodeInfo } from '#core/ports/tree-ownership.ts';
import { createSend } from '../postgres/connection/client.ts';
import { connectClient, requireSessionMode } from '../postgres/connection/connect.ts';
import { filesIn, knownVersion, requireWholeCopy, serverVersion, startupFault } from '../postgres/connection/open.ts';
import { listNodes } from './node-lease.ts';
import { faultsOfRoots } from './shared-roots.ts';

const DAY_MS = 86_400_000;

export interface Inspection {
  /** Version of the server, such as `15.4`. */
  readonly version: string;
  /** Migrations that the next start runs. */
  readonly missing: number;
  /** Active nodes that are not draining. */
  readonly nodes: readonly NodeInfo[];
  /** Faults, one line each. */
  readonly rootFaults: readonly string[];
}

/** Ids of the models that were called since a moment, in whole days (UTC), by any node. @param since Unix milliseconds */
export async function listClusterModels(url: string, since: number): Promise<readonly string[]> {
  const client = await connectClient(url, {});
  try {
    const day = Math.floor(since / DAY_MS);
    const used = 'SELECT DISTINCT model FROM rollup_day WHERE day >= $1 AND calls > 0 ORDER BY model';
    const { rows } = await createSend(client)<{ model: string }>(used, [day]);
    return rows.map(({ model }) => model);
  } finally {
    await client.end().catch(() => {});
  }
}

/** Throws `StartupError`, where the database keeps a server from starting. @param migrationsDir as for `migrate` */
export async function inspectCluster(
  url: string,
  migrationsDir: string,
  roots: readonly string[],
): Promise<Inspection> {
  try {
    await requireSessionMode(url);
    const client = await connectClient(url, {});
    try {
      const send = createSend(client);
      const version = await serverVersion(send);
      const files = filesIn(migrationsDir);
      const known = await knownVersion(send, files.length);
      if (known > 0) await requireWholeCopy(send);
      return {
        version,
        nodes: known < files.length ? [] : (await listNodes(send, {})).filter(({ draining }) => !draining),
        missing: Math.max(0, files.length - known),
        rootFaults: await faultsOfRoots(known === 0 ? null : send, roots),
      };
    } finally {
      await client.end().catch(() => {});
    }
  } catch (error) {
    throw startupFault(url, error);
  }
}
