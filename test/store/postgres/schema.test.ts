// Both databases hold the same tables (16 §2, §12): names, columns, what may be NULL, CHECKs and unique indexes.

import { cpSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import pg from 'pg';
import { describe, expect, onTestFinished, test } from 'vitest';
import { systemClock } from '#protocol/clock.ts';
import { StartupError } from '#protocol/errors.ts';
import { filesIn, migrate, openDatabase } from '#store/postgres/connection/open.ts';
import { migrate as migrateSqlite } from '#store/sqlite/connection/migrate.ts';
import { systemEvent } from '../../support/drafts.ts';
import { ownSchema, postgresService, type Schema } from '../../support/services.ts';
import { until } from '../../support/until.ts';
import { MIGRATIONS as SQLITE_MIGRATIONS } from '../sqlite/world.ts';
import { type LogLine, NOON, recordingLogger } from '../suite/world.ts';
import { MIGRATIONS, openSchema } from './world.ts';

const { url, missing } = await postgresService();
/** What only a cluster needs. */
const OF_CLUSTER = ['nodes', 'trees', 'day_allowances', 'notices'];
const TYPES: Readonly<Record<string, string>> = {
  bigint: 'INTEGER',
  smallint: 'INTEGER',
  text: 'TEXT',
  'double precision': 'REAL',
};

interface Shape {
  readonly columns: readonly string[];
  /** By name, each with the words that it allows. */
  readonly checks: Readonly<Record<string, readonly string[]>>;
  /** By name, each with its columns and whether it is of some rows only. */
  readonly unique: Readonly<Record<string, string>>;
}
type Shapes = Readonly<Record<string, Shape>>;

const words = (sql: string) => [...sql.matchAll(/'([^']*)'/g)].map(([, word]) => word!).sort();

function sqliteShapes(): Shapes {
  const db = new Database(':memory:');
  migrateSqlite(db, ':memory:', SQLITE_MIGRATIONS, () => {});
  const tables = db
    .prepare<[], { name: string; sql: string }>("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
    .all();
  return Object.fromEntries(
    tables.map(({ name, sql }) => {
      const columns = db
        .prepare<[], { name: string; type: string; notnull: number; pk: number }>(`PRAGMA table_info(${name})`)
        .all();
      const indexes = db
        .prepare<[], { name: string; unique: number; partial: number; origin: string }>(`PRAGMA index_list(${name})`)
        .all();
      const unique = indexes
        .filter((index) => index.unique === 1 && index.origin !== 'pk')
        .map((index) => {
          const of = db.prepare<[], { name: string }>(`PRAGMA index_info(${index.name})`).all();
          return [index.name, `${of.map((column) => column.name).join(',')} ${index.partial}`] as const;
        });
      const keys = columns.filter(({ pk }) => pk > 0).sort((a, b) => a.pk - b.pk);
      return [
        name,
        {
          columns: columns
            .map((c) => `${c.name} ${c.type} ${c.notnull === 1 || c.pk > 0 ? 'NOT NULL' : 'NULL'}`)
            .sort(),
          checks: Object.fromEntries(checksIn(sql)),
          unique: Object.fromEntries([...unique, ['(key)', keys.map((column) => column.name).join(',')]]),
        },
      ];
    }),
  );
}

function checksIn(sql: string): [string, string[]][] {
  return [...sql.matchAll(/CONSTRAINT "(\w+)" CHECK\(/g)].map((match) => {
    let depth = 1;
    let end = match.index + match[0].length;
    for (; depth > 0; end++) depth += sql[end] === '(' ? 1 : sql[end] === ')' ? -1 : 0;
    return [match[1]!, words(sql.slice(match.index, end))];
  });
}

describe.skipIf(url === null)(`the schema on PostgreSQL${missing && `, skipped: ${missing}`}`, () => {
  // Promise 16.18: both schemas have the same tables, columns, CHECKs and unique indexes.
  test('has the tables, columns, CHECKs and unique indexes of the embedded database, and those of the cluster', async () => {
    const schema = await ownSchema(url!);
    onTestFinished(() => schema.drop());
    const world = await openSchema(schema.url, NOON);
    const columns = await world.rows(`
      SELECT CAST(table_name AS text) AS "table", CAST(column_name AS text) AS name, CAST(data_type AS text) AS type,
        CAST(is_nullable AS text) AS nullable, CAST(collation_name AS text) AS collation
      FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name)
      WHERE table_schema = current_schema() AND table_type = 'BASE TABLE'`);
    const checks = await world.rows(`
      SELECT CAST(c.relname AS text) AS "table", CAST(k.conname AS text) AS name, pg_get_constraintdef(k.oid) AS sql
      FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
      WHERE k.contype = 'c' AND c.relnamespace = CAST(current_schema() AS regnamespace)`);
    const unique = await world.rows(`
      SELECT CAST(c.relname AS text) AS "table", CAST(i.relname AS text) AS name, x.indisprimary AS key, x.indpred IS NOT NULL AS partial,
        (SELECT string_agg(CAST(a.attname AS text), ',' ORDER BY k.place) FROM unnest(x.indkey) WITH ORDINALITY AS k (number, place)
          JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.number) AS columns
      FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class c ON c.oid = x.indrelid
      WHERE x.indisunique AND c.relnamespace = CAST(current_schema() AS regnamespace)`);
    const names = [...new Set(columns.map((column) => String(column.table)))];
    expect(names.filter((name) => OF_CLUSTER.includes(name)).sort()).toEqual([...OF_CLUSTER].sort());
    const shapes = Object.fromEntries(
      names
        .filter((name) => !OF_CLUSTER.includes(name))
        .map((name): [string, Shape] => {
          const of = <Row extends Record<string, unknown>>(rows: readonly Row[]) =>
            rows.filter((row) => row.table === name);
          return [
            name,
            {
              columns: of(columns)
                .map((c) => `${c.name} ${TYPES[String(c.type)]} ${c.nullable === 'YES' ? 'NULL' : 'NOT NULL'}`)
                .sort(),
              checks: Object.fromEntries(of(checks).map((check) => [check.name, words(String(check.sql))])),
              unique: Object.fromEntries(
                of(unique).map((index) =>
                  index.key === 1n ? ['(key)', index.columns] : [index.name, `${index.columns} ${index.partial}`],
                ),
              ),
            } as Shape,
          ];
        }),
    );
    expect(shapes).toEqual(sqliteShapes());
    expect([...new Set(columns.filter((c) => c.type === 'text').map((c) => c.collation))]).toEqual(['C']);
  });

  // Promise 16.13: two nodes that start on an empty database migrate it once.
  test('is made once when two nodes start on an empty database', async () => {
    const schema = await ownSchema(url!);
    onTestFinished(() => schema.drop());
    const ran = await Promise.all([migrate(schema.url, MIGRATIONS), migrate(schema.url, MIGRATIONS)]);
    const files = readdirSync(MIGRATIONS).sort();
    expect(ran.toSorted((a, b) => a.length - b.length)).toEqual([[], files]);
  });

  // Promise 16.13: a schema that needs a newer version is schema_too_new.
  test('of a newer version is served when that version says so, else refused; tables of another program are refused', async () => {
    const schema = await ownSchema(url!);
    onTestFinished(() => schema.drop());
    const world = await openSchema(schema.url, NOON);
    const known = readdirSync(MIGRATIONS).length;
    const set = (key: string, value: number) =>
      world.execute('UPDATE meta SET value = ? WHERE key = ?', String(value), key);
    await set('schema_version', known + 2);
    expect(await migrate(schema.url, MIGRATIONS)).toEqual([]);
    await set('compatible_from', known + 1);
    await expect(migrate(schema.url, MIGRATIONS)).rejects.toThrow(/^schema_too_new: /);
    await world.execute("DELETE FROM meta WHERE key = 'schema_version'");
    await expect(migrate(schema.url, MIGRATIONS)).rejects.toBeInstanceOf(StartupError);
  });

  test('events of an older schema are read field by field as they were', async () => {
    const { schema, client } = await schemaBeforeCompactEvents();
    const types = ['route.decided', 'past.thing', 'llm.call_failed', 'future.thing'];
    const actors = ['user', 'agent', 'system', 'tool', 'worker'];
    for (let i = 0; i < 20; i++) {
      const place = [i % 7 === 0 ? 'system' : `sess_${i % 4}`, i % 2 === 0 ? null : `t_${i}`, i === 3 ? 'e_2' : null];
      const words = [types[i % 4], actors[i % 5], i % 3 === 0 ? 'private' : 'pseudonymous', `{"n":${i}}`];
      const values = [`e_${90 - i}`, 100 - i, ...place, ...words];
      await client.query('INSERT INTO events VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)', values);
    }
    const read = async () => (await client.query('SELECT * FROM events ORDER BY id')).rows;
    const rows = await read();
    await migrate(schema.url, MIGRATIONS);
    expect(rows).toHaveLength(20);
    expect(await read()).toEqual(rows);
  });

  test('events that a node of the version before has not committed yet are waited for', async () => {
    const { schema, client } = await schemaBeforeCompactEvents();
    const write = (id: string) =>
      client.query("INSERT INTO events VALUES ($1, 1, 'sess_a', NULL, NULL, 'turn.started', 'user', 'private', '{}')", [
        id,
      ]);
    await write('e_1');
    await client.query('BEGIN');
    await write('e_2');
    const eyes = await connected(schema.url);
    const migrated = migrate(schema.url, MIGRATIONS);
    await until(async () => {
      const waiting =
        'SELECT 1 FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT granted AND application_name = $1';
      return (await eyes.query(waiting, [schema.name])).rows.length > 0;
    });
    await client.query('COMMIT');
    await migrated;
    expect((await client.query('SELECT id FROM events ORDER BY id')).rows).toEqual([{ id: 'e_1' }, { id: 'e_2' }]);
  });

  // Promise 16.24: a breaking migration changes nothing while older nodes run, and names them.
  test('a migration that older nodes could not outlive is refused with their names and changes nothing', async () => {
    const schema = await ownSchema(url!);
    onTestFinished(() => schema.drop());
    const world = await openSchema(schema.url, NOON, { name: 'older' });
    const next = mkdtempSync(join(tmpdir(), 'metis-schema-'));
    onTestFinished(() => rmSync(next, { recursive: true }));
    cpSync(MIGRATIONS, next, { recursive: true });
    writeFileSync(join(next, '9999_more.sql'), 'CREATE TABLE more (id text)');
    const own = filesIn(MIGRATIONS).length;
    await expect(migrate(schema.url, next, own + 1)).rejects.toThrow('nodes of an older version are running: older');
    const version = "SELECT value FROM meta WHERE key = 'schema_version'";
    expect(await world.rows(version)).toEqual([{ value: String(own) }]);
    // One that they outlive runs beside them.
    expect(await migrate(schema.url, next, own)).toEqual(['9999_more.sql']);
  });

  // Promise 16.24: a start waits for older nodes, or ends as older_nodes_running.
  test('a start waits for nodes of a version before their schema was stored, or ends as older_nodes_running', async () => {
    const { schema, client } = await schemaBeforeCompactEvents();
    await client.query(`INSERT INTO nodes (id, name, url, version, places, config_hash, lease_until)
      VALUES ('n', 'ancient', '', '0', '{}', '', now() + interval '1 hour')`);
    const logged: LogLine[] = [];
    const options = {
      url: schema.url,
      size: 2,
      synchronousCommit: 'on',
      log: recordingLogger(logged),
      migrationsDir: MIGRATIONS,
      clock: systemClock,
    } as const;
    const refused = openDatabase({ ...options, patienceMs: 0 });
    await expect(refused).rejects.toMatchObject({ code: 'older_nodes_running' });
    await expect(refused).rejects.toThrow(/ancient/);
    const opened = openDatabase(options);
    await until(() => logged.length > 0);
    expect(logged).toMatchObject([{ level: 'error', message: expect.stringContaining('older nodes') }]);
    await client.query('UPDATE nodes SET lease_until = now()');
    await (await opened).close();
  });

  test('an event whose session lost its key, as in a database that was put back, is refused aloud; the next brings the key', async () => {
    const schema = await ownSchema(url!);
    onTestFinished(() => schema.drop());
    const world = await openSchema(schema.url, NOON);
    const commit = (label: string) => world.journal.commit({ emit: [systemEvent(label)] });
    await commit('first');
    await world.execute('DELETE FROM event_rows');
    await world.execute('DELETE FROM event_sessions');
    await expect(commit('second')).rejects.toThrow(/session_key/);
    await commit('third');
    expect(await world.rows('SELECT session_id FROM events')).toEqual([{ session_id: 'system' }]);
  });
});

/** With a connection to it. */
async function schemaBeforeCompactEvents(): Promise<{ readonly schema: Schema; readonly client: pg.Client }> {
  const schema = await ownSchema(url!);
  onTestFinished(() => schema.drop());
  const first = mkdtempSync(join(tmpdir(), 'metis-schema-'));
  onTestFinished(() => rmSync(first, { recursive: true }));
  for (const name of filesIn(MIGRATIONS).filter((file) => file < '0006'))
    cpSync(join(MIGRATIONS, name), join(first, name));
  await migrate(schema.url, first);
  return { schema, client: await connected(schema.url) };
}

async function connected(connectionString: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString });
  await client.connect();
  onTestFinished(() => client.end());
  return client;
}
