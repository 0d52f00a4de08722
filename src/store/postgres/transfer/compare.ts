// Compares a table of a SQLite database with its copy in PostgreSQL, row by row (16 §9).
import type Database from 'better-sqlite3';
import { fromPusd } from '#protocol/money.ts';
import type { Send } from '#store/postgres/connection/client.ts';
import { type CopiedTable, type Row, readKeyValues, selectRows, toStorableText, type Value } from './tables.ts';

/** Of one table, when both sides agree. */
interface Total {
  readonly table: string;
  readonly rows: number;
  /** Exact sums of the columns that hold money, in picodollars. */
  readonly sums: ReadonlyMap<string, bigint>;
}

interface Compared {
  readonly total: Total;
  readonly differences: readonly string[];
}

const SLICE_ROWS = 2000;
/** Of one table; more would only repeat what is wrong. */
const MAX_DIFFERENCES = 20;

export async function compareTable(db: Database.Database, send: Send, table: CopiedTable): Promise<Compared> {
  const sums = new Map(table.columns.filter(isMoney).map(({ name }) => [name, 0n]));
  const differences: string[] = [];
  let rows = 0;
  let after: Row | null = null;
  for (;;) {
    const [own, copies]: [readonly Row[], readonly Row[]] = [
      readSource(db, table, after),
      await readCopy(send, table, after),
    ];
    for (let i = 0; i < Math.max(own.length, copies.length) && differences.length < MAX_DIFFERENCES; i++) {
      const difference = describeDifference(table, own[i], copies[i]);
      if (difference !== null) differences.push(`${table.name} ${difference}`);
    }
    for (const row of own) addMoney(table, sums, row);
    rows += own.length;
    if (own.length < SLICE_ROWS || differences.length >= MAX_DIFFERENCES) break;
    after = readKeyValues(table, own.at(-1)!);
  }
  return { total: { table: table.name, rows, sums }, differences };
}

const isMoney = ({ name }: { readonly name: string }) => name.endsWith('_pusd');

function addMoney({ columns }: CopiedTable, sums: Map<string, bigint>, row: Row): void {
  for (const [i, column] of columns.entries()) {
    const value = row[i];
    if (typeof value === 'bigint' && sums.has(column.name)) sums.set(column.name, sums.get(column.name)! + value);
  }
}

function readSource(db: Database.Database, table: CopiedTable, after: Row | null): readonly Row[] {
  const rows = db
    .prepare(`${selectRows(table, after)} LIMIT ${SLICE_ROWS}`)
    .safeIntegers()
    .raw()
    .all(...(after ?? []));
  return (rows as Row[]).map((row) => row.map((value) => (typeof value === 'string' ? toStorableText(value) : value)));
}

async function readCopy(send: Send, table: CopiedTable, after: Row | null): Promise<readonly Row[]> {
  const { rows } = await send<Readonly<Record<string, Value>>>(
    `${selectRows(table, after)} LIMIT ${SLICE_ROWS}`,
    after ?? [],
    'exact',
  );
  return rows.map((row) =>
    table.columns.map(({ name, type }) => {
      const value = row[name] ?? null;
      // A smallint comes as a number.
      return type === 'INTEGER' && typeof value === 'number' ? BigInt(value) : value;
    }),
  );
}

function describeDifference(table: CopiedTable, own: Row | undefined, copy: Row | undefined): string | null {
  if (own === undefined) return `${readKeyValues(table, copy!).join(' ')}: only in the copy`;
  if (copy === undefined) return `${readKeyValues(table, own).join(' ')}: missing in the copy`;
  const at = own.findIndex((value, i) => value !== copy[i]);
  if (at < 0) return null;
  return `${readKeyValues(table, own).join(' ')}: ${table.columns[at]!.name} differs`;
}

export function describeTotal({ table, rows, sums }: Total): string {
  const money = [...sums].map(([column, sum]) => `, ${column.replace(/_pusd$/, '')} $${fromPusd(sum)}`);
  return `${table}: ${rows} rows compared${money.join('')}`;
}
