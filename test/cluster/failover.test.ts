// PostgreSQL fails over to a standby, or refuses writes, under nodes at work (16 §3.4, §4.4, §10).
import pg from 'pg';
import { describe, expect, test, vi } from 'vitest';
import { type Nodes, startNodes, type TestNode } from '../support/nodes.ts';
import { accountOf, allEnded, message, pause, plannedWork } from '../support/planned-work.ts';
import { noPostgres, type Postgres, startPostgres } from '../support/postgres.ts';
import { startProxy, targetOf, through } from '../support/proxy.ts';
import { until } from '../support/until.ts';

const PATIENCE_SECONDS = 60;
const FULL = process.env.METIS_CLUSTER === 'full';
/** Long enough for a commit of each turn. */
const READ_ONLY_MS = FULL ? 8000 : 2500;
/** A beat is a fifth of it, and two may pass beside the time without writes before 0.8 of it is over, on a busy machine too. */
const READ_ONLY_LEASE_SECONDS = 60;
/** The lease that a node has by default, and one that ends before the promotion. */
const LEASES = FULL ? [15, 3] : [15];
const NAMES = ['s0', 's1', 's2', 's3', 's4', 's5'];
vi.setConfig({ testTimeout: 180_000 });

interface Cluster {
  readonly nodes: Nodes;
  readonly work: ReturnType<typeof plannedWork>;
  readonly postgres: Postgres;
  readonly standby: Postgres | null;
  readonly proxy: Awaited<ReturnType<typeof startProxy>>;
  readonly a: TestNode;
}

/** One node on a server of its own behind a proxy, with a turn at work in each of `NAMES`. */
async function startWork(leaseSeconds: number, withStandby = false): Promise<Cluster> {
  const postgres = await startPostgres();
  const standby = withStandby ? await postgres.standby() : null;
  const proxy = await startProxy(targetOf(postgres.url));
  const work = plannedWork(() => 1000);
  const set = { 'cluster.lease_seconds': leaseSeconds };
  const nodes = await startNodes({ database: through(postgres.url, proxy), answer: work.answer, set });
  const a = await nodes.start('a');
  return { nodes, work, postgres, standby, proxy, a };
}

async function submitAll({ nodes, work, a }: Cluster): Promise<void> {
  for (const name of NAMES) {
    const session = await a.session(nodes.workspace(name));
    await a.client.submitTurn(session, { content: message(name) });
  }
  await until(() => work.asks.length >= NAMES.length * 2, PATIENCE_SECONDS);
}

async function execute(url: string, ...statements: readonly string[]): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    for (const sql of statements) await client.query(sql);
  } finally {
    await client.end();
  }
}

describe.skipIf(noPostgres !== '')(`PostgreSQL fails over${noPostgres && `, skipped: ${noPostgres}`}`, () => {
  // Promise 16.22: a standby is promoted under nodes at work: every turn completes, no call is paid twice.
  test.each(LEASES)('a standby is promoted, lease %i s: every turn completes, no call is paid twice', async (lease) => {
    const cluster = await startWork(lease, true);
    const { nodes, work, postgres, proxy, a } = cluster;
    const standby = cluster.standby!;
    await submitAll(cluster);
    await postgres.stop('fast');
    proxy.retarget(targetOf(standby.url));
    await pause(READ_ONLY_MS);
    await standby.promote();
    await allEnded(nodes, PATIENCE_SECONDS);
    expect(await accountOf(nodes, work)).toMatchObject({
      paidTwice: [],
      turns: { 'completed end_turn': NAMES.length },
      unended: [],
      strayWorkers: [],
    });
    expect((await fetch(`${a.url}/readyz`)).status).toBe(200);
  });

  // Promise 16.22: a primary that is read-only for less than the lease: no turn fails, no take-over.
  test('a database that refuses writes for less than the lease: no turn fails, no tree changes hands', async () => {
    const cluster = await startWork(READ_ONLY_LEASE_SECONDS);
    const { nodes, work, postgres } = cluster;
    await submitAll(cluster);
    await execute(postgres.url, 'ALTER SYSTEM SET default_transaction_read_only = on', 'SELECT pg_reload_conf()');
    await pause(READ_ONLY_MS);
    await execute(postgres.url, 'ALTER SYSTEM RESET default_transaction_read_only', 'SELECT pg_reload_conf()');
    await allEnded(nodes, PATIENCE_SECONDS);
    expect(await accountOf(nodes, work)).toMatchObject({
      paidTwice: [],
      unpaid: 0,
      turns: { 'completed end_turn': NAMES.length },
      unended: [],
    });
    expect(await nodes.rows('SELECT DISTINCT owner_epoch FROM trees')).toEqual([{ owner_epoch: '1' }]);
  });

  // Promise 16.22: a database that refuses commits for another reason: every turn completes after.
  test('a database that fails for another reason: the tree is given up, and every turn completes after', async () => {
    const cluster = await startWork(15);
    const { nodes, work, postgres } = cluster;
    const schema = nodes.schema.name;
    await submitAll(cluster);
    const refuse = `CREATE FUNCTION ${schema}.refuse() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN RAISE EXCEPTION 'the disk is worn' USING ERRCODE = '58030'; END $$`;
    const on = (table: string) =>
      `CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON ${schema}.${table} EXECUTE FUNCTION ${schema}.refuse()`;
    const off = (table: string) => `DROP TRIGGER refuse ON ${schema}.${table}`;
    await execute(postgres.url, refuse, on('event_rows'), on('turns'));
    await pause(READ_ONLY_MS);
    await execute(postgres.url, off('event_rows'), off('turns'));
    await allEnded(nodes, PATIENCE_SECONDS);
    expect(await accountOf(nodes, work)).toMatchObject({
      turns: { 'completed end_turn': NAMES.length },
      unended: [],
      strayWorkers: [],
    });
  });
});
