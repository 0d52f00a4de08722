// What a start would find in the database of a cluster and in its shared roots; changes nothing (17 §2).
import pg from 'pg';
import { sending } from '../connection/client.ts';
import { filesIn, knownVersion, serverVersion } from '../connection/migrate.ts';
import { startupFault } from '../connection/open.ts';
import { clientConfig } from '../connection/pool.ts';
import { faultsOfRoots } from './shared-roots.ts';

export interface Inspection {
  /** Of the server, like `15.4`. */
  readonly version: string;
  /** Migrations that the next start runs. */
  readonly missing: number;
  /** One line each. */
  readonly rootFaults: readonly string[];
}

/** Throws `StartupError`, where the database keeps a server from starting. @param migrationsDir as for `migrate` */
export async function inspectCluster(
  url: string,
  migrationsDir: string,
  roots: readonly string[],
): Promise<Inspection> {
  const client = new pg.Client(clientConfig(url, {}));
  client.on('error', () => {});
  try {
    await client.connect();
    const send = sending(client);
    const version = await serverVersion(send);
    const files = filesIn(migrationsDir);
    const known = await knownVersion(send, files.length);
    return {
      version,
      missing: Math.max(0, files.length - known),
      rootFaults: await faultsOfRoots(known === 0 ? null : send, roots),
    };
  } catch (error) {
    throw startupFault(url, error);
  } finally {
    await client.end().catch(() => {});
  }
}
