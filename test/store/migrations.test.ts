// The migrations and the schema in code say the same (00 §4, 01 §11.3).
import { execFileSync } from 'node:child_process';
import { cpSync, readdirSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { getTableConfig, type SQLiteTable } from 'drizzle-orm/sqlite-core';
import { expect, test } from 'vitest';
import * as conversation from '../../src/store/sqlite/schema/conversation.ts';
import * as ledger from '../../src/store/sqlite/schema/ledger.ts';
import * as memory from '../../src/store/sqlite/schema/memory.ts';
import { MIGRATIONS, openWorld, tempFolder } from './world.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const TABLES: readonly SQLiteTable[] = Object.values({ ...conversation, ...ledger, ...memory });

test('drizzle-kit finds nothing to add to the migrations (else: npx drizzle-kit generate --name <noun>)', () => {
  const copy = join(tempFolder(), 'migrations');
  cpSync(MIGRATIONS, copy, { recursive: true });
  const kit = join(ROOT, 'node_modules/drizzle-kit/bin.cjs');
  const schema = './src/store/sqlite/schema/*.ts';
  const args = [kit, 'generate', '--dialect=sqlite', `--schema=${schema}`, `--out=${relative(ROOT, copy)}`];
  const said = execFileSync(process.execPath, args, { cwd: ROOT, encoding: 'utf8' });
  expect(said).toContain('No schema changes');
  expect(readdirSync(copy, { recursive: true }).sort()).toEqual(readdirSync(MIGRATIONS, { recursive: true }).sort());
});

test('a migrated database has the tables, columns, keys and indices of the schema', () => {
  const world = openWorld();
  const found = world.rows(
    "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name",
  );
  expect(found.map((row) => row.name)).toEqual(TABLES.map((table) => getTableConfig(table).name).sort());
  for (const table of TABLES) {
    const { name, columns, primaryKeys, indexes, uniqueConstraints, foreignKeys, checks } = getTableConfig(table);
    const keyed = primaryKeys[0]?.columns.map((c) => c.name) ?? columns.filter((c) => c.primary).map((c) => c.name);
    const info = world.rows(`SELECT * FROM pragma_table_info('${name}')`);
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
      world
        .rows(`SELECT name FROM pragma_index_list('${name}') WHERE origin = 'c'`)
        .map((row) => row.name)
        .sort(),
      name,
    ).toEqual([...indexes.map((i) => i.config.name), ...uniqueConstraints.map((u) => u.name), ...uniqueColumns].sort());
    const keys = world.rows(`SELECT DISTINCT id, "table" FROM pragma_foreign_key_list('${name}')`);
    expect(keys.map((row) => row.table).sort(), name).toEqual(
      foreignKeys.map((key) => getTableConfig(key.reference().foreignTable).name).sort(),
    );
    const sql = String(world.rows('SELECT sql FROM sqlite_master WHERE name = ?', name)[0]?.sql);
    for (const check of checks) expect(sql).toContain(`CONSTRAINT "${check.name}"`);
  }
});
