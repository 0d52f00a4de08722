// INSERT statements by the columns of a table: one row, or many as one array a column.
import { getTableColumns, getTableName, is } from 'drizzle-orm';
import { SQLiteTable } from 'drizzle-orm/sqlite-core';
import * as conversation from '#store/schema/conversation.ts';
import * as ledger from '#store/schema/ledger.ts';
import * as memory from '#store/schema/memory.ts';
import type { Tx } from '#store/write/transaction.ts';

const TYPES: Readonly<Record<string, string>> = { text: 'text', integer: 'bigint', real: 'double precision' };

/** By table and column: what PostgreSQL has for SQLite's type. */
const columnTypes = new Map<string, ReadonlyMap<string, string>>(
  Object.values({ ...conversation, ...ledger, ...memory })
    .filter((value) => is(value, SQLiteTable))
    .map((table) => [
      getTableName(table),
      new Map(Object.entries(getTableColumns(table)).map(([name, column]) => [name, TYPES[column.getSQLType()]!])),
    ]),
);

type Row = Readonly<Record<string, unknown>>;

/**
 * Takes any number of rows in one statement.
 * @param keys where a `session_key` is looked up: the rows bring the session's id for it; without a key there the statement
 * fails, so that no row is left out
 */
export function insertRows(
  table: string,
  columns: readonly string[],
  conflict = '',
  keys = '',
): (tx: Tx, rows: readonly Row[]) => void {
  const types = columnTypes.get(table)!;
  const keyed = columns.includes('session_key');
  const columnType = (column: string) => (column === 'session_key' ? 'text' : types.get(column));
  const arrays = columns.map((column) => `CAST(? AS ${columnType(column)}[])`).join(', ');
  const given = columns.map((column) => (column === 'session_key' ? 's.session_key' : `r.${column}`)).join(', ');
  const from = `unnest(${arrays}) AS r (${columns.join(', ')})`;
  const rows = keyed ? `${from} LEFT JOIN ${keys} s ON s.session_id = r.session_key` : from;
  const sql = `INSERT INTO ${table} (${columns.join(', ')}) SELECT ${given} FROM ${rows} ${conflict}`;
  return (tx, rows) => {
    if (rows.length === 0) return;
    tx.run(
      sql,
      columns.map((column) => rows.map((row) => row[column])),
    );
  };
}
