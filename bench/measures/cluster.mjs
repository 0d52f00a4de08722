// Several nodes: turns a second of one node on PostgreSQL beside the server on SQLite, and of three nodes beside one.
// The database is the one that tests of a cluster use (METIS_TEST_DATABASE_URL); without it the rows are left out, by name.
import { randomBytes } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import { createClient } from '../client.mjs';
import { ratioAtLeast } from '../limits.mjs';
import { startServer } from '../processes.mjs';
import { turnsPerSecond } from './turns.mjs';

export const name = 'cluster';

const DATABASE = process.env.METIS_TEST_DATABASE_URL ?? 'postgres://postgres@127.0.0.1:5432/test';
const PATIENCE_MS = 2000;
const LANES = [
  { lanes: 16, turns: 480, least: 0.6 },
  { lanes: 64, turns: 960, least: 0.4 },
];
const NODES = 3;

export function measure(bench) {
  return withSchema(bench, async (database, schema) => {
    const root = path.join(bench.folder, 'shared');
    const place = { workspace: path.join(root, 'workspace'), model: bench.model };
    fs.mkdirSync(place.workspace, { recursive: true });
    const nodes = [];
    try {
      for (let n = 1; n <= NODES; n += 1) {
        const keys = {
          'database.url': database,
          'cluster.name': schema,
          'cluster.node_name': `bench-${n}`,
          'cluster.shared_roots': JSON.stringify([root]),
        };
        const server = await startServer(path.join(bench.folder, `node-${n}`), bench.provider, { keys });
        const client = createClient(server.url);
        nodes.push({ server, client });
        await bench.warmServer(client, place);
      }
      await vacuum(schema);
      return await figures(
        bench,
        place,
        nodes.map(({ client }) => client),
      );
    } finally {
      for (const { server, client } of nodes) {
        client.close();
        await server.stop();
      }
    }
  });
}

/** Runs `work` with the address and the name of a schema of its own; no rows without the database. */
export async function withSchema(bench, work) {
  if (!(await answers())) {
    bench.note(`  left out: no PostgreSQL at ${DATABASE} (METIS_TEST_DATABASE_URL)`);
    return [];
  }
  const schema = `metis_bench_${randomBytes(6).toString('hex')}`;
  const database = new URL(DATABASE);
  database.searchParams.set('options', `-c search_path=${schema}`);
  await query(`CREATE SCHEMA ${schema}`);
  try {
    return await work(database.href, schema);
  } finally {
    await query(`SET client_min_messages = error; DROP SCHEMA ${schema} CASCADE`);
  }
}

async function figures(bench, place, clients) {
  const [one] = clients;
  const rows = [];
  for (const { lanes, turns, least } of LANES) {
    const count = bench.quick ? Math.ceil(turns / 4) : turns;
    const { sqlite, postgres, three } = await bench.rounds({
      sqlite: () => turnsPerSecond([bench.client], bench, lanes, count),
      postgres: () => turnsPerSecond([one], place, lanes, count),
      three: () => turnsPerSecond(clients, place, lanes, count),
    });
    const row = { unit: '/s', better: 'higher' };
    rows.push(
      {
        row: `turns/s, ${lanes} sessions, on PostgreSQL beside SQLite`,
        ...row,
        metis: postgres,
        relay: sqlite,
        limit: ratioAtLeast(least),
      },
      { row: `turns/s, ${lanes} sessions, ${NODES} nodes beside one`, ...row, metis: three, relay: postgres },
    );
  }
  return rows;
}

async function answers() {
  const client = new pg.Client({ connectionString: DATABASE, connectionTimeoutMillis: PATIENCE_MS });
  client.on('error', () => {});
  return client.connect().then(
    () => client.end().then(() => true),
    () => false,
  );
}

/** What autovacuum does after a warm-up, at a moment of ours: on some servers it is off, on others it runs in the middle. */
async function vacuum(schema) {
  const { rows } = await query(`SELECT tablename AS name FROM pg_tables WHERE schemaname = '${schema}'`);
  await query(`VACUUM (ANALYZE) ${rows.map(({ name }) => `${schema}.${name}`).join(', ')}`);
}

async function query(sql) {
  const client = new pg.Client({ connectionString: DATABASE });
  await client.connect();
  try {
    return await client.query(sql);
  } finally {
    await client.end();
  }
}
