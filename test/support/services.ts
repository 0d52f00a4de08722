// The services that tests of a cluster need: found, named where they are missing, each test file with a schema of its own.
import { randomBytes } from 'node:crypto';
import net from 'node:net';
import pg from 'pg';

const DATABASE = process.env.METIS_TEST_DATABASE_URL ?? 'postgres://postgres@127.0.0.1:5432/test';
const NATS = process.env.METIS_TEST_NATS_URL ?? 'nats://127.0.0.1:4222';
const NATS_PORT = 4222;
const PATIENCE_MS = 2000;

/** Null where tests are to be skipped; throws where the services are required. */
export interface Service {
  readonly url: string | null;
  /** For the title of what is skipped. */
  readonly missing: string;
}

export async function postgresService(): Promise<Service> {
  const client = new pg.Client({ connectionString: DATABASE, connectionTimeoutMillis: PATIENCE_MS });
  client.on('error', () => {});
  try {
    await client.connect();
    await dropLeftSchemas(client);
    await client.end();
    return { url: DATABASE, missing: '' };
  } catch (cause) {
    const missing = `no PostgreSQL at ${DATABASE} (METIS_TEST_DATABASE_URL)`;
    if (process.env.METIS_TEST_SERVICES === 'required') throw new Error(missing, { cause });
    return { url: null, missing };
  }
}

/** As above, for NATS. */
export async function natsService(): Promise<Service> {
  const { hostname, port } = new URL(NATS);
  const socket = net.connect({ host: hostname, port: Number(port || NATS_PORT), timeout: PATIENCE_MS });
  const answered = new Promise((resolve) => {
    socket.once('data', () => resolve(true));
    for (const end of ['error', 'timeout', 'close']) socket.once(end, () => resolve(false));
  });
  const found = await answered;
  socket.destroy();
  if (found) return { url: NATS, missing: '' };
  const missing = `no NATS at ${NATS} (METIS_TEST_NATS_URL)`;
  if (process.env.METIS_TEST_SERVICES === 'required') throw new Error(missing);
  return { url: null, missing };
}

export interface Schema {
  /** The database's address with the schema as its search path. */
  readonly url: string;
  readonly name: string;
  /** With whatever was made in it. */
  drop(): Promise<void>;
}

/** Of tests that ended before they could: no test lasts so long. By one test file at a time. */
const LEFT_MS = 3_600_000;

async function dropLeftSchemas(client: pg.Client): Promise<void> {
  // Goes with the connection.
  const { rows: turn } = await client.query("SELECT pg_try_advisory_lock(hashtext('metis test schemas')) AS mine");
  if (!turn[0].mine) return;
  const { rows } = await client.query("SELECT nspname AS name FROM pg_namespace WHERE nspname ~ '^metis_test_'");
  await client.query('SET client_min_messages = error');
  for (const { name } of rows) {
    const made = /^metis_test_(\w+)_[0-9a-f]{12}$/.exec(name)?.[1];
    if (made !== undefined && Number.parseInt(made, 36) < Date.now() - LEFT_MS)
      await client.query(`DROP SCHEMA IF EXISTS ${name} CASCADE`);
  }
}

/** @param now of its making, Unix ms: it stands in the name */
export async function ownSchema(url: string, now = Date.now()): Promise<Schema> {
  const name = `metis_test_${now.toString(36)}_${randomBytes(6).toString('hex')}`;
  await run(url, `CREATE SCHEMA ${name}`);
  const own = new URL(url);
  own.searchParams.set('options', `-c search_path=${name}`);
  // So that a test finds its own connections.
  own.searchParams.set('application_name', name);
  return { url: own.href, name, drop: () => run(url, `SET client_min_messages = error; DROP SCHEMA ${name} CASCADE`) };
}

async function run(url: string, sql: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    await client.query(sql);
  } finally {
    await client.end();
  }
}
