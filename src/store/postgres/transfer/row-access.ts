// Reads and writes whole rows of a SQLite and of a PostgreSQL database for a copy (16 §9).
import type Database from 'better-sqlite3';
import type { Send } from '#store/postgres/connection/client.ts';
import { COPY_MARK } from '#store/postgres/connection/open.ts';
import { PRUNED_THROUGH } from '#store/schema/words.ts';
import type { RowReader, RowWriter } from './copy-rows.ts';
import { type CopiedTable, quoteNames, type Row, readKeyValues, selectRows, type Value } from './tables.ts';

/** A slice is cut by rows and by length: a message may hold images. */
const SLICE_ROWS = 2000;
const SLICE_CHARACTERS = 4 * 1024 * 1024;

/**
 * Keys of `meta` that are a database's own: its schema, what nodes share, the mark of a copy, and positions in the order
 * of one file's events, which several nodes do not have and which begin at the newest event.
 */
const OWN_KEYS = new Set([
  'schema_version',
  'compatible_from',
  'cluster_id',
  'frame_key',
  'probe',
  'learning_cursor',
  PRUNED_THROUGH,
  COPY_MARK,
]);
const isCopiedKey = (key: string) => !OWN_KEYS.has(key) && !key.startsWith('notify:');
const LIST_META = 'SELECT key, value FROM meta ORDER BY key';

interface MetaRow {
  readonly key: string;
  readonly value: string;
}

const toCopiedMeta = (rows: readonly MetaRow[]): ReadonlyMap<string, string> =>
  new Map(rows.filter(({ key }) => isCopiedKey(key)).map(({ key, value }) => [key, value]));

export function createSqliteReader(db: Database.Database): RowReader {
  return {
    slices: (table, after) => {
      const select = db.prepare(selectRows(table, after)).safeIntegers().raw();
      return cutSlices(select.iterate(...(after ?? [])) as Iterable<Row>);
    },
    first: async (sql) => db.prepare(sql).raw().get() as Row,
    meta: async () => toCopiedMeta(db.prepare<[], MetaRow>(LIST_META).all()),
  };
}

function* cutSlices(rows: Iterable<Row>): Generator<readonly Row[]> {
  let slice: Row[] = [];
  let characters = 0;
  for (const row of rows) {
    slice.push(row);
    characters += countCharacters(row);
    if (slice.length < SLICE_ROWS && characters < SLICE_CHARACTERS) continue;
    yield slice;
    slice = [];
    characters = 0;
  }
  if (slice.length > 0) yield slice;
}

function countCharacters(row: Row): number {
  let characters = 0;
  for (const value of row) if (typeof value === 'string') characters += value.length;
  return characters;
}

const SET_MARK = `INSERT INTO meta (key, value) VALUES ('${COPY_MARK}', ?)
  ON CONFLICT (key) DO UPDATE SET value = excluded.value`;
const insertInto = ({ name, columns }: CopiedTable) =>
  `INSERT INTO "${name}" (${quoteNames(columns.map((column) => column.name))})`;

export interface SqliteWriter extends RowWriter {
  setMark(mark: string): void;
}

export function createSqliteWriter(db: Database.Database): SqliteWriter {
  const setMark = (text: string) => void db.prepare(SET_MARK).run(text);
  return {
    setMark,
    write: async (table, rows, text) => {
      const insert = db.prepare(`${insertInto(table)} VALUES (${table.columns.map(() => '?').join(', ')})`);
      db.transaction(() => {
        for (const row of rows) insert.run(...row);
        setMark(text);
      })();
    },
  };
}

/** Fewest rows of a query whose rows may be long. */
const FEW_ROWS = 10;
const GROWTH = 4;

/** @param send of one connection; for one moment of a database that is written, within a transaction that repeats its reads */
export function createPostgresReader(send: Send): RowReader {
  return {
    async *slices(table, after) {
      let [from, count] = [after, FEW_ROWS];
      for (;;) {
        // A number in the text: for an unknown limit PostgreSQL might sort the whole table.
        const sql = `${selectRows(table, from)} LIMIT ${count}`;
        const { rows } = await send<Readonly<Record<string, Value>>>(sql, from ?? [], 'exact');
        const slice = rows.map((row) => toRow(table, row));
        if (slice.length > 0) yield slice;
        if (slice.length < count) return;
        from = readKeyValues(table, slice.at(-1)!);
        count = chooseCount(count, Math.max(...slice.map(countCharacters)));
      }
    },
    first: async (sql) => Object.values((await send<Record<string, Value>>(sql, [], 'exact')).rows[0]!),
    meta: async () => toCopiedMeta((await send<MetaRow>(LIST_META, [])).rows),
  };
}

/** So that the next slice is not too long if its rows are as long as the longest one of this slice. */
function chooseCount(count: number, longest: number): number {
  let next = Math.min(SLICE_ROWS, count * GROWTH);
  while (next > FEW_ROWS && next * longest > SLICE_CHARACTERS) next = Math.floor(next / GROWTH);
  return Math.max(FEW_ROWS, next);
}

function toRow({ columns }: CopiedTable, row: Readonly<Record<string, Value>>): Row {
  return columns.map(({ name, type }) => {
    const value = row[name] ?? null;
    // A smallint comes as a number.
    return type === 'INTEGER' && typeof value === 'number' ? BigInt(value) : value;
  });
}

const TYPES = { INTEGER: 'bigint', REAL: 'double precision', TEXT: 'text' } as const;

export interface PostgresWriter extends RowWriter {
  setMark(mark: string): Promise<void>;
}

export function createPostgresWriter(send: Send): PostgresWriter {
  const setMark = async (text: string) => void (await send(SET_MARK, [text]));
  return {
    setMark,
    async write(table, rows, text) {
      const arrays = table.columns.map((column) => `CAST(? AS ${TYPES[column.type]}[])`).join(', ');
      const columns = table.columns.map((_, i) => rows.map((row) => row[i]!));
      await inTransaction(send, async () => {
        await send(`${insertInto(table)} SELECT * FROM unnest(${arrays})`, columns);
        await setMark(text);
      });
    },
  };
}

export async function inTransaction(send: Send, work: () => Promise<void>): Promise<void> {
  await send('BEGIN', []);
  try {
    await work();
    await send('COMMIT', []);
  } catch (error) {
    await send('ROLLBACK', []).catch(() => {});
    throw error;
  }
}
