// What a start would find in the database of a cluster and in its shared roots; changes nothing (17 §2).
import pg from 'pg';
import { sending } from '../connection/client.ts';
import { filesIn, knownVersion } from '../connection/migrate.ts';
import { startupFault } from '../connection/open.ts';
import { clientConfig } from '../connection/pool.ts';
import { faultsOfRoots } from './shared-roots.ts';

export interface Inspection {
  /** Of the server, like `15.4`. */
  readonly version: string;
  /** Older than what nodes need (16 §1). */
  readonly isOld: boolean;
  /** Migrations that the next start runs. */
  readonly missing: number;
  /** One line each. */
  readonly rootFaults: readonly string[];
}

const OLDEST = 14;

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
    const files = filesIn(migrationsDir);
    const known = await knownVersion(send, files.length);
    const { rows } = await send<{ version: string }>("SELECT current_setting('server_version') AS version", []);
    const version = rows[0]!.version.split(' ')[0]!;
    return {
      version,
      isOld: Number.parseInt(version, 10) < OLDEST,
      missing: Math.max(0, files.length - known),
      rootFaults: await faultsOfRoots(known === 0 ? null : send, roots),
    };
  } catch (error) {
    throw startupFault(url, error);
  } finally {
    await client.end().catch(() => {});
  }
}
