// The migrations and the schema in code say the same (00 §4, 01 §11.3).

import { execFileSync } from 'node:child_process';
import { cpSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import Database from 'better-sqlite3';
import { getTableConfig, type SQLiteTable } from 'drizzle-orm/sqlite-core';
import { expect, test } from 'vitest';
import { EVENT_TYPES } from '#protocol/event.ts';
import type { SessionId, TurnId } from '#protocol/ids.ts';
import { composeQuery } from '#store/read/events.ts';
import { createStore } from '#store/read/store.ts';
import * as conversation from '#store/schema/conversation.ts';
import * as ledger from '#store/schema/ledger.ts';
import * as memory from '#store/schema/memory.ts';
import * as people from '#store/schema/people.ts';
import { REPORTED_TYPES, type ReportedType, type TypeRow, typeIs } from '#store/schema/words.ts';
import { migrate } from '#store/sqlite/connection/migrate.ts';
import { createReadDatabase } from '#store/sqlite/connection/reads.ts';
import { COLUMNS } from '#store/write/sessions.ts';
import { MIGRATIONS, openWorld, tempFolder } from './world.ts';

const ROOT = resolve(import.meta.dirname, '../../..');
const TABLES: readonly SQLiteTable[] = Object.values({ ...conversation, ...ledger, ...memory, ...people });

test('a new session is stored with every column of its table, except the limit of its last budget warning', () => {
  const names = getTableConfig(conversation.sessions).columns.map(({ name }) => name);
  expect([...COLUMNS, 'budget_warned_pusd'].sort()).toEqual(names.sort());
});

test('drizzle-kit finds nothing to add to the migrations (else: npx drizzle-kit generate --name <noun>)', () => {
  const copy = join(tempFolder(), 'migrations');
  cpSync(MIGRATIONS, copy, { recursive: true });
  const kit = join(ROOT, 'node_modules/drizzle-kit/bin.cjs');
  const schema = './src/store/schema/*.ts';
  const args = [kit, 'generate', '--dialect=sqlite', `--schema=${schema}`, `--out=${relative(ROOT, copy)}`];
  const said = execFileSync(process.execPath, args, { cwd: ROOT, encoding: 'utf8' });
  expect(said).toContain('No schema changes');
  expect(readdirSync(copy, { recursive: true }).sort()).toEqual(readdirSync(MIGRATIONS, { recursive: true }).sort());
  // drizzle-kit compares with the newest snapshot only, so the older ones are deleted.
  expect(readdirSync(join(MIGRATIONS, 'meta')).filter((name) => name.endsWith('_snapshot.json'))).toHaveLength(1);
});

test('a migrated database has the tables, columns, keys and indices of the schema', async () => {
  const world = openWorld();
  const found = await world.rows(
    "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name",
  );
  expect(found.map((row) => row.name)).toEqual(TABLES.map((table) => getTableConfig(table).name).sort());
  for (const table of TABLES) {
    const { name, columns, primaryKeys, indexes, uniqueConstraints, foreignKeys, checks } = getTableConfig(table);
    const keyed = primaryKeys[0]?.columns.map((c) => c.name) ?? columns.filter((c) => c.primary).map((c) => c.name);
    const info = await world.rows(`SELECT * FROM pragma_table_info('${name}')`);
    expect(info.map((c) => ({ name: c.name, type: String(c.type).toLowerCase(), notNull: c.notnull === 1n }))).toEqual(
      columns.map((c) => ({ name: c.name, type: c.getSQLType(), notNull: c.notNull })),
    );
    expect(
      info
        .filter((c) => c.pk !== 0n)
        .sort((a, b) => Number(a.pk) - Number(b.pk))
        .map((c) => c.name),
      name,
    ).toEqual(keyed);
    const uniqueColumns = columns.filter((c) => c.isUnique).map((c) => c.uniqueName);
    expect(
      (await world.rows(`SELECT name FROM pragma_index_list('${name}') WHERE origin = 'c'`))
        .map((row) => row.name)
        .sort(),
      name,
    ).toEqual([...indexes.map((i) => i.config.name), ...uniqueConstraints.map((u) => u.name), ...uniqueColumns].sort());
    const keys = await world.rows(`SELECT DISTINCT id, "table" FROM pragma_foreign_key_list('${name}')`);
    expect(keys.map((row) => row.table).sort(), name).toEqual(
      foreignKeys.map((key) => getTableConfig(key.reference().foreignTable).name).sort(),
    );
    const sql = String((await world.rows('SELECT sql FROM sqlite_master WHERE name = ?', name))[0]?.sql);
    for (const check of checks) expect(sql).toContain(`CONSTRAINT "${check.name}"`);
  }
});

test('a row of a turn is checked without a table in memory, and a word that no check lists is refused', () => {
  const { db } = openWorld().handle;
  for (const name of ['turns', 'messages', 'tool_calls', 'event_rows', 'ledger_calls']) {
    const steps = db.prepare<[], { opcode: string }>(`EXPLAIN INSERT INTO ${name} DEFAULT VALUES`).all();
    expect(
      steps.map((step) => step.opcode),
      name,
    ).not.toContain('OpenEphemeral');
  }
  const insert = db.prepare<[string, number]>(`INSERT INTO event_rows
    VALUES (?, 5, 1, NULL, NULL, 9, ?, 0, '{}')`);
  insert.run('01KR3ZH48KGGGGGGGGGGGGGGGH', 4);
  expect(() => insert.run('01KR3ZH48KGGGGGGGGGGGGGGGJ', 5)).toThrow('CHECK constraint failed: event_rows_actor');
  const turn =
    'INSERT INTO turns (id, session_id, user_message_id, started_at, tools_json, status, error_class) VALUES';
  expect(() => db.exec(`${turn} ('t', 's', 'm', 5, '[]', 'asleep', NULL)`)).toThrow('failed: turns_status');
  expect(() => db.exec(`${turn} ('t', 's', 'm', 5, '[]', 'failed', 'luck')`)).toThrow('failed: turns_error_class');
  expect(() => db.exec(`${turn} ('t', 's', 'm', 5, '[]', 'failed', NULL)`)).toThrow('FOREIGN KEY');
});

/** A database as the first of the migrations left it. */
function firstSchema(): { readonly path: string; readonly migrations: number } {
  const first = join(tempFolder(), 'first');
  cpSync(MIGRATIONS, first, { recursive: true });
  const list = join(first, 'meta/_journal.json');
  const { entries, ...rest } = JSON.parse(readFileSync(list, 'utf8'));
  writeFileSync(list, JSON.stringify({ ...rest, entries: entries.slice(0, 1) }));
  const path = join(tempFolder(), 'metis.db');
  const db = new Database(path);
  migrate(db, path, first, () => db.pragma('journal_mode = WAL'));
  db.close();
  return { path, migrations: entries.length };
}

test('a database of the first schema comes forward with its rows, and is read the same', async () => {
  const { path, migrations } = firstSchema();
  const old = new Database(path);
  old.exec(
    `INSERT INTO events VALUES ('01KR3ZH48KGGGGGGGGGGGGGGGH', 5, 'sess_1', NULL, NULL, 'route.decided', 'system', 'private', '{}')`,
  );
  old.close();
  const world = openWorld(path);
  expect(await world.rows('PRAGMA user_version')).toEqual([{ user_version: BigInt(migrations) }]);
  expect(await world.rows('SELECT id, type FROM events')).toEqual([
    { id: '01KR3ZH48KGGGGGGGGGGGGGGGH', type: 'route.decided' },
  ]);
});

test('every type of event has its number in the database', async () => {
  const { handle } = openWorld();
  const rows = handle.db.prepare<[], TypeRow>('SELECT type, number FROM event_types ORDER BY type').all();
  expect(rows.map(({ type }) => type)).toEqual(EVENT_TYPES.toSorted());
  expect([...handle.typeNumbers].sort()).toEqual(rows.map(({ type, number }) => [type, number]));
  // The index of reports names these numbers.
  expect(Object.fromEntries(handle.typeNumbers)).toMatchObject(REPORTED_TYPES);
});

test('events of an older database are read field by field as they were, of unknown types and purged sessions too', async () => {
  const { path } = firstSchema();
  const old = new Database(path);
  const insert = old.prepare('INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)');
  const actors = ['user', 'agent', 'system', 'tool', 'worker'];
  for (let i = 0; i < 20; i++) {
    const id = `01KR3ZH48KGGGGGGGGGGGGGG${String(90 - i)}`;
    const type = ['route.decided', 'past.thing', 'llm.call_failed', 'future.thing'][i % 4];
    const words = [type, actors[i % 5], i % 3 === 0 ? 'private' : 'pseudonymous', `{"n":${i}}`];
    insert.run(
      id,
      100 - i,
      i % 7 === 0 ? 'system' : `sess_${i % 4}`,
      i % 2 === 0 ? null : `t_${i}`,
      i === 3 ? id : null,
      ...words,
    );
  }
  const rows = old.prepare('SELECT * FROM events ORDER BY id').all();
  old.close();
  const { handle } = openWorld(path);
  expect(handle.reader.prepare('SELECT * FROM events ORDER BY id').all()).toEqual(rows);
});

test('pages of a tree and of a session are found by session, whatever else is stored', async () => {
  const world = openWorld();
  for (const include_workers of [true, false]) {
    const { sql, values } = composeQuery({
      ...{ session_id: 'sess_1' as SessionId, include_workers, types: null, after: null, until: null, limit: 1 },
    });
    const plan = await world.rows(`EXPLAIN QUERY PLAN ${sql}`, ...values, 1);
    expect(plan.map((step) => step.detail)).toContainEqual(
      expect.stringMatching(
        /SEARCH event_rows USING COVERING INDEX event_rows_session \(session_key=\? AND id>\? AND id<\?\)/,
      ),
    );
  }
});

test('room that migrations free goes back to the disk', async () => {
  const { path } = firstSchema();
  const old = new Database(path);
  old.exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
    INSERT INTO llm_calls SELECT printf('%026d', i), i, 'sess_1', 'sess_1', 'sess_1', NULL, 0, NULL,
      printf('%064d', 1), 'a:b', 'a', 'A', 'turn', 1, 0, 0, 0, 1, 0, 0, 1, 0, '', '', '', 1, 7 FROM n`);
  old.close();
  const size = statSync(path).size;
  const world = openWorld(path);
  expect(await world.rows('SELECT count(*) AS calls, sum(cost_pusd) AS pusd FROM llm_calls')).toEqual([
    { calls: 20_000n, pusd: 140_000n },
  ]);
  expect(await world.rows('PRAGMA freelist_count')).toEqual([{ freelist_count: 0n }]);
  expect(statSync(path).size).toBeLessThan(size);
});

test('what reports read by type and time has its index, by the very words of their statements', async () => {
  const world = openWorld();
  for (const type of Object.keys(REPORTED_TYPES) as ReportedType[]) {
    const plan = await world.rows(
      `EXPLAIN QUERY PLAN SELECT payload_json FROM event_rows WHERE ${typeIs(type)} AND timestamp_ms >= 0 AND timestamp_ms < 9`,
    );
    expect(plan.map((step) => step.detail)).toEqual([expect.stringContaining('USING INDEX event_rows_reported')]);
  }
});

// Promise 01.30: what may be open is found by an index, however much has ended.
test('what is open is found by its index, however much has ended', async () => {
  const { handle } = openWorld();
  const asked: (() => readonly { readonly detail: string }[])[] = [];
  const prepare = handle.db.prepare.bind(handle.db);
  const watched = new Proxy(handle.db, {
    get(db, key) {
      if (key !== 'prepare') return Reflect.get(db, key, db);
      return (sql: string) => {
        const statement = prepare(sql);
        const all = statement.all.bind(statement);
        statement.all = (...values) => {
          asked.push(() => prepare<unknown[], { detail: string }>(`EXPLAIN QUERY PLAN ${sql}`).all(...values));
          return all(...values);
        };
        return statement;
      };
    },
  });
  const store = createStore(createReadDatabase(watched), handle.caches);
  const turn = 'turn_1' as TurnId;
  const sessions = { workspace_path: null, include_workers: true, parent_session_id: null, worker_name: null };
  for (const status of [['running'], ['running', 'interrupted']] as const)
    await store.sessions.list({
      ...sessions,
      status,
      door: null,
      search: null,
      failed: false,
      owner: null,
      reader: null,
      running_without_turn: [],
      before: null,
      limit: 1,
    });
  await store.sessions.list({
    ...sessions,
    status: null,
    door: null,
    search: null,
    failed: true,
    owner: null,
    reader: null,
    running_without_turn: [],
    before: null,
    limit: 1,
  });
  await store.turns.allOpen();
  await store.delegations.allOpen();
  await store.delegations.open(turn);
  await store.confirmations.allOpen();
  for (const session_id of ['sess_1', null])
    await store.confirmations.list({ session_id, reader: null, status: 'pending', after: null, limit: 1 });
  await store.events.openCalls();
  await store.events.openCalls(turn);
  await store.events.openGatewayCalls('');
  await store.events.openGatewayCalls('', 'sess_1' as SessionId);
  const steps = asked.flatMap((explain) => explain().map((step) => step.detail));
  expect(asked).toHaveLength(13);
  // A scan is one of an index that holds nothing else.
  for (const scan of steps.filter((step) => /^SCAN (?!tree|CONSTANT)/.test(step)))
    expect(scan).toMatch(/USING (COVERING )?INDEX ((turns|delegations|confirmations)_open|turns_failed)/);
  expect(steps.join()).toContain('USING COVERING INDEX turns_failed');
  expect(steps).toContain('SEARCH s USING INDEX sessions_active (is_worker=? AND door=?)');
  const using = (index: string) => steps.filter((step) => step.includes(index)).length;
  expect([using('turns_open'), using('delegations_open'), using('confirmations_open')], steps.join('\n')).toEqual([
    4, 2, 3,
  ]);
  // Of sessions that may have an open call, and of no other's events.
  const joined = (steps: readonly string[]) =>
    [steps[0], steps[1], steps[2]].map((step) => step?.replace(/^SEARCH /, ''));
  const events = [
    's USING COVERING INDEX event_sessions_id (session_id=?)',
    'e USING INDEX event_rows_session (session_key=? AND id>?)',
  ];
  expect(asked.slice(-2).map((explain) => joined(explain().map((step) => step.detail)))).toEqual([
    ['s USING INDEX sessions_active (is_worker=? AND door=?)', ...events],
    ['s USING INDEX sessions_root (root_session_id=?)', ...events],
  ]);
});
