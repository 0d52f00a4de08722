// The tables that are copied from one database to another, read from the schema itself, so that none can be forgotten (16 §9).
import type Database from 'better-sqlite3';

export interface CopiedColumn {
  readonly name: string;
  readonly type: 'INTEGER' | 'REAL' | 'TEXT';
}

export interface CopiedTable {
  readonly name: string;
  readonly columns: readonly CopiedColumn[];
  /** Columns of the primary key, by which rows are ordered. */
  readonly key: readonly string[];
}

/** Tables that are not copied row by row, each with its reason. */
export const COPIED_OTHERWISE: Readonly<Record<string, string>> = {
  meta: 'each database has a schema version and marks of its own; other keys are copied beside them',
};

/** Tables of a migrated database that a cluster alone has, and what they hold of its source. */
export const OF_CLUSTER: Readonly<Record<string, string>> = {
  nodes: 'nodes register when they start',
  trees: 'made from the sessions',
  day_allowances: 'nodes ask for theirs when they start',
  notices: 'one server keeps none',
};

/** In an order in which every row comes after those that it refers to. */
export function listCopiedTables(db: Database.Database): readonly CopiedTable[] {
  const names = db
    .prepare<[], string>(
      "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name",
    )
    .pluck()
    .all()
    .filter((name) => !Object.hasOwn(COPIED_OTHERWISE, name));
  const sorted = new Set<string>();
  const addTable = (name: string) => {
    if (sorted.has(name)) return;
    for (const target of listReferences(db, name)) if (target !== name) addTable(target);
    sorted.add(name);
  };
  for (const name of names) addTable(name);
  return [...sorted].map((name) => describeTable(db, name));
}

function listReferences(db: Database.Database, name: string): readonly string[] {
  return db.prepare<[], string>(`SELECT "table" FROM pragma_foreign_key_list('${name}')`).pluck().all();
}

interface ColumnRow extends CopiedColumn {
  readonly pk: number | bigint;
}

function describeTable(db: Database.Database, name: string): CopiedTable {
  const rows = db.prepare<[], ColumnRow>(`SELECT name, type, pk FROM pragma_table_info('${name}')`).all();
  return {
    name,
    columns: rows.map((row) => ({ name: row.name, type: row.type })),
    key: rows
      .filter((row) => Number(row.pk) > 0)
      .sort((a, b) => Number(a.pk) - Number(b.pk))
      .map((row) => row.name),
  };
}

/** Names as both databases take them. */
export function quoteNames(names: readonly string[]): string {
  return names.map((name) => `"${name}"`).join(', ');
}

export type Value = string | number | bigint | null;
export type Row = readonly Value[];

/** The rows behind `after`, all without it, in the order of the key. */
export function selectRows({ name, columns, key }: CopiedTable, after: Row | null): string {
  const marks = key.map(() => '?').join(', ');
  const where = after === null ? '' : `WHERE (${quoteNames(key)}) > (${marks})`;
  return `SELECT ${quoteNames(columns.map((column) => column.name))} FROM "${name}" ${where} ORDER BY ${quoteNames(key)}`;
}

export function readKeyValues({ columns, key }: CopiedTable, row: Row): Row {
  return key.map((name) => row[columns.findIndex((column) => column.name === name)]!);
}

/** PostgreSQL stores no NUL in a text, and no half of a surrogate pair (16 §2). */
export function toStorableText(text: string): string {
  if (!text.includes('\0') && !/\p{Cs}/u.test(text)) return text;
  return text.replaceAll('\0', '\uFFFD').replaceAll(/\p{Cs}/gu, '\uFFFD');
}
