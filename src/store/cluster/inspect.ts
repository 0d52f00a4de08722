// Checks the database of a cluster and its shared roots as a start would, and changes nothing (17 §2).
import type { NodeInfo } from '#core/ports/tree-ownership.ts';
import { createSend } from '../postgres/connection/client.ts';
import { connectClient, requireSessionMode } from '../postgres/connection/connect.ts';
import { filesIn, knownVersion, serverVersion, startupFault } from '../postgres/connection/open.ts';
import { listNodes } from './node-lease.ts';
import { faultsOfRoots } from './shared-roots.ts';

export interface Inspection {
  /** Of the server, like `15.4`. */
  readonly version: string;
  /** Migrations that the next start runs. */
  readonly missing: number;
  /** Active ones, draining ones aside. */
  readonly nodes: readonly NodeInfo[];
  /** One line each. */
  readonly rootFaults: readonly string[];
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
      return {
        version,
        nodes: known < files.length ? [] : (await listNodes(send, '')).filter(({ draining }) => !draining),
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
