// Commands that only read the database of a cluster: they work with a user that may only read, and change nothing (22 §6, 16 §9).
import fs from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import { describe, expect, onTestFinished, test } from 'vitest';
import { migrate } from '#store/postgres/connection/open.ts';
import { startDatabase } from '../analytics/postgres.ts';
import { runHere } from '../app/here.ts';
import { temporaryHome } from '../app/metis.ts';
import { MIGRATIONS } from '../store/postgres/world.ts';
import { CALLS, DAY_MS, EXPORTS, NOON, prices } from '../support/provider-exports.ts';
import { ownSchema, postgresService } from '../support/services.ts';

const { url, missing } = await postgresService();

const COMMANDS = ['reconcile', 'rollups verify'] as const;

function aHome(): string {
  const home = temporaryHome();
  onTestFinished(home.remove);
  return home.path;
}

async function connect(address: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: address });
  await client.connect();
  onTestFinished(() => client.end());
  return client;
}

async function makeSchema(): Promise<string> {
  const schema = await ownSchema(url!);
  onTestFinished(() => schema.drop());
  return schema.url;
}

/** Tables, the schema's version and the event types. */
async function describeDatabase(client: pg.Client): Promise<unknown> {
  const tables = await client.query(
    'SELECT tablename FROM pg_tables WHERE schemaname = current_schema() ORDER BY tablename',
  );
  if (tables.rows.length === 0) return [];
  const meta = await client.query('SELECT key, value FROM meta ORDER BY key');
  const types = await client.query('SELECT * FROM event_types ORDER BY number');
  return [tables.rows, meta.rows, types.rows];
}

function runReading(address: string) {
  const home = aHome();
  const file = path.join(home, 'usage.json');
  fs.writeFileSync(file, EXPORTS.anthropicUsage());
  const words = { reconcile: ['reconcile', file, '--json'], 'rollups verify': ['rollups', 'verify'] };
  return (command: (typeof COMMANDS)[number]) =>
    runHere(words[command], { home, env: { METIS_DATABASE_URL: address } });
}

describe.skipIf(url === null)(
  `commands that only read a cluster's database${missing && `, skipped: ${missing}`}`,
  () => {
    // Promise 22.11: a database with missing migrations is refused, and nothing in it is changed.
    test('a database with missing migrations is refused in one line, and nothing in it is changed', async () => {
      const dir = fs.mkdtempSync(path.join(aHome(), 'migrations-'));
      for (const name of fs.readdirSync(MIGRATIONS).sort().slice(0, -1))
        fs.copyFileSync(path.join(MIGRATIONS, name), path.join(dir, name));
      const older = await makeSchema();
      await migrate(older, dir);
      const sentences = {
        [older]: /was written by an older version; start the server once/,
        [await makeSchema()]: /has no tables; /,
      };
      for (const [address, sentence] of Object.entries(sentences)) {
        const client = await connect(address);
        const before = await describeDatabase(client);
        const metis = runReading(address);
        for (const command of COMMANDS) {
          const { code, stdout, stderr } = await metis(command);
          expect({ command, code, stdout }).toEqual({ command, code: command === 'reconcile' ? 2 : 1, stdout: '' });
          expect(stderr).toMatch(/^metis: database_not_migrated: postgres:\/\/\S+ [^\n]+\n$/);
          expect(stderr).toMatch(sentence);
        }
        expect(await describeDatabase(client)).toEqual(before);
      }
    });

    test('a user that may only read compares an export with the ledger; without a right to the tables one line tells it', async () => {
      const database = await startDatabase(url!);
      onTestFinished(() => database.close());
      const world = await database.emptyWorld();
      const session = await world.planner();
      await world.record(
        CALLS.map(({ day, model, tokens }) => ({ session, at: NOON + day * DAY_MS, model, prices, tokens })),
      );
      const role = `${database.schema.name}_reader`;
      const client = await connect(database.schema.url);
      await client.query(
        `CREATE ROLE ${role} LOGIN PASSWORD 'secret'; GRANT USAGE ON SCHEMA ${database.schema.name} TO ${role}`,
      );
      onTestFinished(async () => {
        await client.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`);
      });
      const address = new URL(database.schema.url);
      address.username = role;
      address.password = 'secret';
      const metis = runReading(address.href);
      const refused = await metis('reconcile');
      expect(refused).toMatchObject({
        code: 2,
        stdout: '',
        stderr: expect.stringMatching(/^metis: database_\w+: [^\n]+permission denied[^\n]+\n$/),
      });
      expect(refused.stderr).not.toContain('secret');

      await client.query(`GRANT SELECT ON ALL TABLES IN SCHEMA ${database.schema.name} TO ${role}`);
      // An event type of this version that no node has registered yet.
      await client.query('DELETE FROM event_types WHERE number = (SELECT max(number) FROM event_types)');
      const before = await describeDatabase(client);
      const compared = await metis('reconcile');
      expect(compared).toMatchObject({ code: 0, stderr: '' });
      expect(JSON.parse(compared.stdout)).toMatchObject({ differences: [] });
      expect(await metis('rollups verify')).toMatchObject({
        code: 0,
        stdout: `rollups and ledger agree: ${CALLS.length} calls\n`,
      });
      expect(await describeDatabase(client)).toEqual(before);
    });
  },
);
