// A pooler between the nodes and PostgreSQL (16 §3.5, §11): in session mode it serves, else it is refused at the start.
import pg from 'pg';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { silentLogger } from '#core/ports/logger.ts';
import { systemClock } from '#protocol/clock.ts';
import { inspectCluster } from '#store/cluster/inspect.ts';
import { openDatabase } from '#store/postgres/connection/open.ts';
import { createSingle } from '#store/postgres/connection/pool.ts';
import { MIGRATIONS } from '../store/postgres/world.ts';
import { startNodes } from '../support/nodes.ts';
import { noPgbouncer, type PgbouncerOptions, startPgbouncer } from '../support/pgbouncer.ts';
import { ownSchema, postgresService } from '../support/services.ts';
import { until } from '../support/until.ts';

const { url, missing } = await postgresService();
const lacking = missing || noPgbouncer;

vi.setConfig({ testTimeout: 180_000 });

const open = (at: string) =>
  openDatabase({
    url: at,
    size: 3,
    synchronousCommit: 'off',
    log: silentLogger,
    migrationsDir: MIGRATIONS,
    clock: systemClock,
    patienceMs: 0,
  });

/** A schema of the test's own, at the address of a pooler. */
async function throughPooler(options: PgbouncerOptions): Promise<string> {
  const schema = await ownSchema(url!);
  onTestFinished(() => schema.drop());
  return startPgbouncer(schema.url, options);
}

async function ask(at: string, sql: string): Promise<void> {
  const address = new URL(at);
  address.search = '';
  const client = new pg.Client({ connectionString: address.href });
  await client.connect();
  await client.query(sql).finally(() => client.end());
}

const SETTINGS = `SELECT current_schema() AS schema, current_setting('statement_timeout') AS statement,
  current_setting('idle_in_transaction_session_timeout') AS idle, current_setting('synchronous_commit') AS sync`;

describe.skipIf(lacking !== '')(`a pooler${lacking && `, skipped: ${lacking}`}`, () => {
  // Promise 16.26: behind pgbouncer in session mode each connection has its schema and its time limits.
  test('in session mode: every connection has its schema and its time limits', async () => {
    const at = await throughPooler({ mode: 'session' });
    const pool = await open(at);
    onTestFinished(() => pool.close());
    const schema = expect.stringMatching(/^metis_test_/);
    const idle = '3s';
    expect((await pool.send(SETTINGS, [])).rows).toEqual([{ schema, statement: '10s', idle, sync: 'off' }]);
    const report = await pool.report((send) => send(SETTINGS, []));
    expect(report.rows).toEqual([{ schema, statement: '1min', idle, sync: 'on' }]);
    const heartbeat = createSingle(at, 1200);
    onTestFinished(() => heartbeat.close());
    expect((await heartbeat.send(SETTINGS, [])).rows).toMatchObject([{ schema, statement: '1200ms' }]);
  });

  // Promise 16.26: behind pgbouncer in session mode two nodes share trees.
  test('in session mode: two nodes share trees, and doctor finds both', async () => {
    const nodes = await startNodes({ database: url!, answer: () => ({ text: 'done' }) });
    const database = await startPgbouncer(nodes.schema.url, { mode: 'session', lines: ['default_pool_size = 50'] });
    const [a, b] = await Promise.all([nodes.start('a', { database }), nodes.start('b', { database })]);
    const session = await a!.session(nodes.workspace('one'));
    expect(await a!.turn(session, 'first')).toMatchObject({ status: 'completed' });
    expect(await b!.turn(session, 'second')).toMatchObject({ status: 'completed' });
    await a!.kill();
    expect(await b!.turn(session, 'third')).toMatchObject({ status: 'completed' });
    await until(async () => (await b!.client.listNodes()).length === 1, 60);
    expect(await inspectCluster(database, MIGRATIONS, [])).toMatchObject({ missing: 0, nodes: [{ name: 'b' }] });
  });

  // Promise 16.26: a pooler in transaction or statement mode is refused at the start and by doctor.
  test.each([
    { mode: 'transaction' },
    { mode: 'statement' },
    { mode: 'transaction', lines: ['server_round_robin = 1'] },
    { mode: 'transaction', lines: ['default_pool_size = 1'] },
  ] as const)('is refused at the start, and by doctor: %o', async (options) => {
    const at = await throughPooler(options);
    // Leaves the pooler two connections: in rotation, two clients in turn would meet their own again each time.
    await Promise.all([1, 2].map(() => ask(at, 'SELECT pg_sleep(0.2)')));
    const refusal = { code: 'database_pooler_mode', message: expect.stringContaining('set its pool_mode to session') };
    await expect(open(at)).rejects.toMatchObject(refusal);
    await expect(inspectCluster(at, MIGRATIONS, [])).rejects.toMatchObject(refusal);
  });

  // Promise 16.26: what a pooler refuses ends the start at once.
  test('what a pooler refuses ends the start at once, with its reason', async () => {
    const at = new URL(await throughPooler({ mode: 'session' }));
    at.searchParams.set('options', '-e');
    await expect(open(at.href)).rejects.toMatchObject({
      code: 'database_refused',
      message: expect.stringMatching(/unsupported startup parameter: options.* parameters in database\.url$/),
    });
    at.pathname = '/metis_has_no_such_database';
    at.searchParams.delete('options');
    await expect(open(at.href)).rejects.toMatchObject({ code: 'database_refused' });
  });
});
