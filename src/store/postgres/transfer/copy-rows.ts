// Copies tables from one database into another, in slices that a killed copy continues behind, and compares both (16 §9).
import { fromPusd } from '#protocol/money.ts';
import { sha256Hex } from '#protocol/text/canonical-json.ts';
import { type CopiedTable, type Row, readKeyValues, toStorableText, type Value } from './tables.ts';

/** One side of a copy, read. Integers are bigints. */
export interface RowReader {
  /** The rows behind `after`, all without it, in the order of the key. */
  slices(table: CopiedTable, after: Row | null): AsyncIterable<readonly Row[]> | Iterable<readonly Row[]>;
  /** The one row of a statement without values, whose columns have different names. */
  first(sql: string): Promise<Row>;
  /** Rows of `meta` that belong into a copy. */
  meta(): Promise<ReadonlyMap<string, string>>;
}

/** The other side, which had no rows. */
export interface RowWriter {
  /** Stores the rows and the mark in one transaction. */
  write(table: CopiedTable, rows: readonly Row[], mark: string): Promise<void>;
}

/** How far a copy has come; stored as the mark with each slice. */
export interface Progress {
  readonly source: string;
  readonly table: string | null;
  readonly after: readonly (string | number | null)[] | null;
  /** Texts that held a NUL, which PostgreSQL cannot store. */
  readonly changedTexts: number;
  readonly done: boolean;
}

export interface Copying {
  /** Takes one line about what was done. */
  readonly report: (line: string) => void;
  /** Ends the copy between two slices with its reason. */
  readonly leave: AbortSignal;
}

export interface Moved {
  readonly changedTexts: number;
  /** The target held the whole copy already. */
  readonly wasDone: boolean;
}

/** What a copy is made of: rows and greatest values of each table. It changes with whatever a server stores. */
export async function describeSource(
  reader: RowReader,
  tables: readonly CopiedTable[],
  newest: string | null,
): Promise<string> {
  const lines = [newest ?? ''];
  for (const table of tables) {
    const greatest = table.columns
      .filter((column) => column.type === 'INTEGER' || table.key.includes(column.name))
      .map(({ name }) => `max("${name}") AS "${name}"`);
    const row = await reader.first(`SELECT count(*), ${greatest.join(', ')} FROM "${table.name}"`);
    lines.push(`${table.name} ${row.map(String).join(' ')}`);
  }
  return sha256Hex(lines.join('\n'));
}

export const beginProgress = (source: string): Progress => ({
  source,
  table: null,
  after: null,
  changedTexts: 0,
  done: false,
});

/** The mark of a copy that was begun. Null = it is of another source, or of this one before it changed. */
export function parseMark(mark: string, source: string): Progress | null {
  const progress = JSON.parse(mark) as Progress;
  return progress.source === source ? progress : null;
}

/** Copies what is missing behind `from`. Returns how many texts were changed. */
export async function copyTables(
  { report, leave }: Copying,
  { reader, writer }: { readonly reader: RowReader; readonly writer: RowWriter },
  tables: readonly CopiedTable[],
  from: Progress,
): Promise<number> {
  const first = tables.findIndex(({ name }) => name === from.table);
  let { changedTexts } = from;
  for (const table of tables.slice(Math.max(0, first))) {
    const after = table.name === from.table ? from.after : null;
    const rows = Number((await reader.first(`SELECT count(*) FROM "${table.name}"`))[0]);
    let copied = 0;
    // A slice is read and converted while the one before it is written.
    let writing: Promise<void> = Promise.resolve();
    try {
      for await (const slice of reader.slices(table, after)) {
        leave.throwIfAborted();
        const storable = slice.map(toStorableRow);
        changedTexts += countChanges(slice, storable);
        const key = readKeyValues(table, slice.at(-1)!).map((value) =>
          typeof value === 'bigint' ? Number(value) : value,
        );
        const progress: Progress = { source: from.source, table: table.name, after: key, changedTexts, done: false };
        await writing;
        copied += slice.length;
        const line = `${table.name}: ${copied} of ${rows} rows`;
        const isLast = copied >= rows;
        writing = writer.write(table, storable, JSON.stringify(progress)).then(() => {
          if (!isLast) report(line);
        });
        writing.catch(() => {});
      }
      await writing;
    } finally {
      await writing.catch(() => {});
    }
    if (rows > 0) report(`${table.name}: ${rows} rows`);
  }
  return changedTexts;
}

const toStorableRow = (row: Row): Row =>
  row.map((value) => (typeof value === 'string' ? toStorableText(value) : value));

function countChanges(before: readonly Row[], after: readonly Row[]): number {
  let changes = 0;
  for (const [i, row] of before.entries())
    for (const [at, value] of row.entries()) if (value !== after[i]![at]) changes++;
  return changes;
}

/** Of one table; more would only repeat what is wrong. */
const MAX_DIFFERENCES = 20;

/** Compares every row of both sides. Returns a line for each difference. */
export async function compareCopy(
  { report }: Pick<Copying, 'report'>,
  { source, copy }: { readonly source: RowReader; readonly copy: RowReader },
  tables: readonly CopiedTable[],
): Promise<readonly string[]> {
  const differences: string[] = [];
  for (const table of tables) {
    const sums = new Map(table.columns.filter(isMoney).map(({ name }) => [name, 0n]));
    const found: string[] = [];
    let rows = 0;
    for await (const [own, other] of pairRows(table, source, copy)) {
      const difference = describeDifference(table, own, other);
      if (difference !== null) found.push(`${table.name} ${difference}`);
      if (found.length >= MAX_DIFFERENCES) break;
      if (own === null) continue;
      rows++;
      addMoney(table, sums, own);
    }
    differences.push(...found);
    report(describeTotal(table.name, rows, sums));
  }
  const copied = await copy.meta();
  for (const [key, value] of await source.meta())
    if (copied.get(key) !== toStorableText(value)) differences.push(`meta ${key}: differs`);
  return differences;
}

type Pair = readonly [own: Row | null, other: Row | null];

/** Rows of the same key together; null = that side has none. */
async function* pairRows(table: CopiedTable, source: RowReader, copy: RowReader): AsyncGenerator<Pair> {
  const [owns, others] = [listRows(source, table), listRows(copy, table)];
  let [own, other] = [await nextRow(owns), await nextRow(others)];
  while (own !== null || other !== null) {
    const order = own === null ? 1 : other === null ? -1 : compareKeys(table, own, other);
    yield [order <= 0 ? own : null, order >= 0 ? other : null];
    if (order <= 0) own = await nextRow(owns);
    if (order >= 0) other = await nextRow(others);
  }
}

async function* listRows(reader: RowReader, table: CopiedTable): AsyncGenerator<Row> {
  for await (const slice of reader.slices(table, null)) for (const row of slice) yield toStorableRow(row);
}

const nextRow = async (rows: AsyncGenerator<Row>): Promise<Row | null> => (await rows.next()).value ?? null;

/** As both databases order them: texts by their bytes. */
function compareKeys(table: CopiedTable, a: Row, b: Row): number {
  const [one, other] = [readKeyValues(table, a), readKeyValues(table, b)];
  for (const [i, value] of one.entries()) {
    const order = compareValues(value, other[i]!);
    if (order !== 0) return order;
  }
  return 0;
}

function compareValues(a: Value, b: Value): number {
  if (a === b) return 0;
  if (typeof a === 'string' && typeof b === 'string') return Buffer.compare(Buffer.from(a), Buffer.from(b));
  return a! < b! ? -1 : 1;
}

const isMoney = ({ name }: { readonly name: string }) => name.endsWith('_pusd');

function addMoney({ columns }: CopiedTable, sums: Map<string, bigint>, row: Row): void {
  for (const [i, column] of columns.entries()) {
    const value = row[i];
    if (typeof value === 'bigint' && sums.has(column.name)) sums.set(column.name, sums.get(column.name)! + value);
  }
}

function describeDifference(table: CopiedTable, own: Row | null, copy: Row | null): string | null {
  if (own === null) return `${readKeyValues(table, copy!).join(' ')}: only in the copy`;
  if (copy === null) return `${readKeyValues(table, own).join(' ')}: missing in the copy`;
  const at = own.findIndex((value, i) => value !== copy[i]);
  if (at < 0) return null;
  return `${readKeyValues(table, own).join(' ')}: ${table.columns[at]!.name} differs`;
}

/** @param sums exact, of the columns that hold money, in picodollars */
function describeTotal(table: string, rows: number, sums: ReadonlyMap<string, bigint>): string {
  const money = [...sums].map(([column, sum]) => `, ${column.replace(/_pusd$/, '')} $${fromPusd(sum)}`);
  return `${table}: ${rows} rows compared${money.join('')}`;
}
