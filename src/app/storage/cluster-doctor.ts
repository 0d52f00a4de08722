// What `metis doctor` says of a cluster: its database, shared roots and NATS (17 §2). Loaded only when `database.url` is set.
import path from 'node:path';
import { natsFault } from '../../bus/nats/link.ts';
import type { Config } from '../../domain/config.ts';
import { StartupError } from '../../kernel/errors.ts';
import { inspectCluster } from '../../store/postgres/cluster/inspect.ts';

export interface ClusterLine {
  readonly level: 'ok' | 'warning' | 'error';
  readonly text: string;
}

/** Changes nothing. */
export async function clusterLines(url: string, config: Config, packageDir: string): Promise<readonly ClusterLine[]> {
  return [...(await databaseLines(url, config, packageDir)), await natsLine(config.nats.url)];
}

async function databaseLines(url: string, { cluster }: Config, packageDir: string): Promise<readonly ClusterLine[]> {
  try {
    const found = await inspectCluster(url, path.join(packageDir, 'migrations', 'postgres'), cluster.shared_roots);
    const { host, pathname } = new URL(url);
    const forward = found.missing === 0 ? '' : '; the next start brings it forward';
    const text = `PostgreSQL ${found.version}, database ${host}${pathname}${forward}`;
    return [{ level: 'ok', text }, ...rootLines(cluster, found.rootFaults)];
  } catch (error) {
    if (error instanceof StartupError) return error.problems.map((text) => ({ level: 'error', text }));
    throw error;
  }
}

function rootLines(cluster: Config['cluster'], faults: readonly string[]): readonly ClusterLine[] {
  const { shared_roots: roots, local_workspaces: local } = cluster;
  if (faults.length > 0) return faults.map((text) => ({ level: 'error', text }));
  if (roots.length > 0) return [{ level: 'ok', text: `shared roots ${roots.join(', ')}` }];
  if (local) return [];
  const cure = 'set cluster.shared_roots or cluster.local_workspaces';
  return [{ level: 'warning', text: `no shared root, so that every session with a workspace is refused; ${cure}` }];
}

/** Without NATS everything works, only later on other nodes. */
async function natsLine(url: string | null): Promise<ClusterLine> {
  const late = 'clients of other nodes see events within 2 s, and no deltas';
  if (url === null) return { level: 'warning', text: `nats.url is not set: ${late}` };
  const { host } = new URL(url);
  const fault = await natsFault(url);
  return fault === null
    ? { level: 'ok', text: `NATS at ${host}` }
    : { level: 'warning', text: `NATS at ${host} does not take this server (${fault}): ${late}` };
}
