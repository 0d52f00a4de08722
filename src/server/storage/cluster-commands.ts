// Commands on a cluster: checks of `metis doctor` (17 §2), upkeep of its database (16 §9). Loaded only when `database.url` is set.

import { lookup } from 'node:dns/promises';
import path from 'node:path';
import type { PruneReport } from '#core/ports/journal-writer.ts';
import type { Logger } from '#core/ports/logger.ts';
import type { NodeInfo } from '#core/ports/tree-ownership.ts';
import { createProbe } from '#http/forward/other-nodes.ts';
import type { LedgerDay, TimeWindow } from '#protocol/analytics.ts';
import { systemClock } from '#protocol/clock.ts';
import type { Config } from '#protocol/config.ts';
import { StartupError } from '#protocol/errors.ts';
import { natsFault } from '#store/bus/nats/link.ts';
import { inspectCluster, listClusterModels } from '#store/cluster/inspect.ts';
import { openDatabase, openReader, readingFault } from '#store/postgres/connection/open.ts';
import type { Pool } from '#store/postgres/connection/pool.ts';
import { createAnalytics } from '#store/postgres/report/analytics.ts';
import { prune, rebuildRollups, verifyPostgresRollups } from '#store/postgres/write/postgres-maintenance.ts';

export interface ClusterLine {
  readonly level: 'ok' | 'warning' | 'error';
  readonly text: string;
}

/** Changes nothing. */
export async function checkCluster(url: string, config: Config, packageDir: string): Promise<readonly ClusterLine[]> {
  return [...(await checkClusterDatabase(url, config, packageDir)), await checkNats(config.nats.url)];
}

/** Models that were called since a moment; none where the database cannot be asked, which has a line of its own. */
export async function readClusterModels(url: string, since: number): Promise<readonly string[]> {
  try {
    return await listClusterModels(url, since);
  } catch {
    return [];
  }
}

async function checkClusterDatabase(
  url: string,
  { cluster }: Config,
  packageDir: string,
): Promise<readonly ClusterLine[]> {
  try {
    const found = await inspectCluster(url, path.join(packageDir, 'migrations', 'postgres'), cluster.shared_roots);
    const { host, pathname } = new URL(url);
    const forward = found.missing === 0 ? '' : '; the next start brings it forward';
    const text = `PostgreSQL ${found.version}, database ${host}${pathname}${forward}`;
    return [
      { level: 'ok', text },
      ...checkSharedRoots(cluster, found.rootFaults),
      ...(await checkNodes(found.nodes)),
      ...(await checkAdvertiseUrl(cluster, found.nodes)),
    ];
  } catch (error) {
    if (error instanceof StartupError) return error.problems.map((text) => ({ level: 'error', text }));
    throw error;
  }
}

function checkSharedRoots(cluster: Config['cluster'], faults: readonly string[]): readonly ClusterLine[] {
  const { shared_roots: roots, local_workspaces: local } = cluster;
  if (faults.length > 0) return faults.map((text) => ({ level: 'error', text }));
  if (roots.length > 0) return [{ level: 'ok', text: `shared roots ${roots.join(', ')}` }];
  if (local) return [];
  const cure = 'set cluster.shared_roots or cluster.local_workspaces';
  return [{ level: 'warning', text: `no shared root, so that every session with a workspace is refused; ${cure}` }];
}

/** Of the nodes that run: whether this machine reaches them. */
async function checkNodes(nodes: readonly NodeInfo[]): Promise<readonly ClusterLine[]> {
  if (nodes.length === 0) return [];
  const probe = createProbe();
  const lines = nodes.map(async (node): Promise<ClusterLine> => {
    // Each is asked as one of its own version: what another version answers is not judged.
    const reason = await probe.ask(node, node.version);
    if (reason === null) return { level: 'ok', text: `node ${node.name} is reached at ${node.url}` };
    return {
      level: 'warning',
      text: `node ${node.name} cannot be reached at ${node.url} (${reason}); check its cluster.advertise_url and the network`,
    };
  });
  return Promise.all(lines).finally(() => probe.close());
}

/** Of the configured address of this node, while no node runs there. */
async function checkAdvertiseUrl(
  { advertise_url: url }: Config['cluster'],
  nodes: readonly NodeInfo[],
): Promise<readonly ClusterLine[]> {
  if (url === null || nodes.some((node) => node.url === url)) return [];
  const { hostname } = new URL(url);
  try {
    await lookup(hostname.replace(/^\[|\]$/g, ''));
    return [];
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    const text = `cluster.advertise_url: ${hostname} is not found (${code}); name a host that the other nodes reach`;
    return [{ level: 'warning', text }];
  }
}

/** Without NATS everything works, only later on other nodes. */
async function checkNats(url: string | null): Promise<ClusterLine> {
  const late = 'clients of other nodes see events within 2 s, and no deltas';
  if (url === null) return { level: 'warning', text: `nats.url is not set: ${late}` };
  const { host } = new URL(url);
  const fault = await natsFault(url);
  if (fault === null) return { level: 'ok', text: `NATS at ${host}` };
  return { level: 'warning', text: `NATS at ${host} does not take this server (${fault}): ${late}` };
}

/** What commands read; nothing is changed. */
export interface ClusterReads {
  /** One line per difference. */
  verifyRollups(): Promise<readonly string[]>;
  calls(): Promise<number>;
  ledgerDays(window: TimeWindow): Promise<readonly LedgerDay[]>;
}

export interface ClusterUpkeep {
  /** Throws `maintenance_running`. @param cutoff Unix ms */
  prune(cutoff: number, dryRun: boolean): Promise<PruneReport>;
  /** Throws `maintenance_running`. */
  rebuildRollups(): Promise<void>;
  calls(): Promise<number>;
}

/** The command waits for its statement. */
const STATEMENT_MS = 3_600_000;

interface ClusterPlace {
  readonly url: string;
  readonly packageDir: string;
  readonly log: Logger;
}

const poolOptions = ({ url, packageDir, log }: ClusterPlace) => ({
  url,
  size: 2,
  synchronousCommit: 'on' as const,
  statementMs: STATEMENT_MS,
  migrationsDir: path.join(packageDir, 'migrations', 'postgres'),
  log,
});

/** Opens the database for `work` alone, and migrates it. Throws `StartupError`. */
export async function withCluster<T>(at: ClusterPlace, work: (upkeep: ClusterUpkeep) => Promise<T>): Promise<T> {
  const pool = await openDatabase({ ...poolOptions(at), clock: systemClock, patienceMs: 0 });
  try {
    return await work({
      prune: (cutoff, dryRun) => prune(pool, cutoff, dryRun),
      rebuildRollups: () => rebuildRollups(pool),
      calls: () => countCalls(pool),
    });
  } finally {
    await pool.close();
  }
}

/** Reads a migrated database for `work` alone, also beside running nodes. Throws `StartupError`. */
export async function readCluster<T>(at: ClusterPlace, work: (reads: ClusterReads) => Promise<T>): Promise<T> {
  const pool = await openReader(poolOptions(at));
  try {
    return await work({
      verifyRollups: () => verifyPostgresRollups(pool),
      ledgerDays: (window) => createAnalytics(pool).ledgerDays({ window, provider: null }),
      calls: () => countCalls(pool),
    });
  } catch (error) {
    throw readingFault(at.url, error);
  } finally {
    await pool.close();
  }
}

async function countCalls(pool: Pool): Promise<number> {
  return (await pool.send<{ n: number }>('SELECT count(*) AS n FROM ledger_calls', [])).rows[0]!.n;
}
