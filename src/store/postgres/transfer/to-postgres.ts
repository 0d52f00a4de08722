// Copies a SQLite database into an empty PostgreSQL database, in slices that a killed copy continues behind (16 §9).
import type Database from 'better-sqlite3';
import { findPlace, type Places } from '#core/policy/cluster/tree-place.ts';
import { StartupError } from '#protocol/errors.ts';
import { sha256Hex } from '#protocol/text/canonical-json.ts';
import { createSend, type Send } from '#store/postgres/connection/client.ts';
import { connectClient, requireSessionMode } from '#store/postgres/connection/connect.ts';
import {
  COPY_MARK,
  filesIn,
  knownVersion,
  migrate,
  readingFault,
  serverVersion,
} from '#store/postgres/connection/open.ts';
import { TRY_TURN } from '#store/postgres/connection/pool.ts';
import { PRUNED_THROUGH, TURN_IS_OPEN } from '#store/schema/words.ts';
import { newestId } from '#store/sqlite/connection/id-seed.ts';
import { compareTable, describeTotal } from './compare.ts';
import {
  type CopiedTable,
  listCopiedTables,
  quoteNames,
  type Row,
  readKeyValues,
  selectRows,
  toStorableText,
} from './tables.ts';

export interface MoveOptions {
  /** Of a migrated file, which no server has open. */
  readonly source: Database.Database;
  readonly url: string;
  readonly migrationsDir: string;
  /** Where the files of trees lie on the nodes of the cluster. */
  readonly places: Places;
  /** Takes one line about what was done. */
  readonly report: (line: string) => void;
  /** Ends the copy between two slices with its reason. */
  readonly leave: AbortSignal;
}

export interface Moved {
  /** Texts that held a NUL, which PostgreSQL cannot store. */
  readonly changedTexts: number;
  /** The database held the whole copy already. */
  readonly wasDone: boolean;
}

/** How far a copy has come; stored with each slice. */
interface Progress {
  readonly source: string;
  readonly table: string | null;
  readonly after: Row | null;
  readonly changedTexts: number;
  readonly done: boolean;
}

const SLICE_ROWS = 2000;
const SLICE_CHARACTERS = 4 * 1024 * 1024;
const SET_MARK = `INSERT INTO meta (key, value) VALUES ('${COPY_MARK}', ?)
  ON CONFLICT (key) DO UPDATE SET value = excluded.value`;
const TYPES = { INTEGER: 'bigint', REAL: 'double precision', TEXT: 'text' } as const;

/** Throws `StartupError`: as `openDatabase` does, `database_not_empty`, `migration_running`. */
export async function copyToPostgres(options: MoveOptions): Promise<Moved> {
  const { source, url, migrationsDir } = options;
  return withTarget(url, async (send) => {
    const { rows } = await send<{ got: number }>(TRY_TURN, ['copy of a file']);
    if (rows[0]?.got !== 1) {
      throw new StartupError('migration_running', ['migration_running: another program copies into this database']);
    }
    await serverVersion(send);
    const own = describeSource(source);
    const isNew = (await knownVersion(send, filesIn(migrationsDir).length)) === 0;
    const found = isNew ? null : await findProgress(send, own);
    if (found?.done === true) return { changedTexts: found.changedTexts, wasDone: true };
    await migrate(url, migrationsDir);
    const progress = found ?? (await beginCopy(send, own));
    const changedTexts = await copyTables(options, send, progress);
    await completeCopy(options, send, { ...progress, changedTexts, done: true });
    await send('ANALYZE', []);
    return { changedTexts, wasDone: false };
  });
}

/** Compares every row of both databases. Returns a line for each difference. @param report takes the totals of each table, one line each */
export async function verifyCopy(
  { source, url }: Pick<MoveOptions, 'source' | 'url'>,
  report: (line: string) => void,
): Promise<readonly string[]> {
  return withTarget(url, async (send) => {
    const differences: string[] = [];
    for (const table of listCopiedTables(source)) {
      const compared = await compareTable(source, send, table);
      differences.push(...compared.differences);
      report(describeTotal(compared.total));
    }
    const kept = new Map(
      (await send<{ key: string; value: string }>('SELECT key, value FROM meta', [])).rows.map((row) => [
        row.key,
        row.value,
      ]),
    );
    for (const { key, value } of listMetaRows(source))
      if (kept.get(key) !== toStorableText(value)) differences.push(`meta ${key}: differs`);
    return differences;
  });
}

async function withTarget<T>(url: string, work: (send: Send) => Promise<T>): Promise<T> {
  try {
    await requireSessionMode(url);
    const client = await connectClient(url, { statement_timeout: 0, synchronous_commit: 'on' });
    try {
      return await work(createSend(client));
    } finally {
      await client.end().catch(() => {});
    }
  } catch (error) {
    throw readingFault(url, error);
  }
}

/** What a copy was made of: rows and greatest values of each table. It changes with whatever a server stores. */
function describeSource(db: Database.Database): string {
  const tables = listCopiedTables(db).map((table) => {
    const greatest = table.columns
      .filter((column) => column.type === 'INTEGER' || table.key.includes(column.name))
      .map((column) => `max("${column.name}")`);
    const row = db
      .prepare(`SELECT count(*), ${greatest.join(', ')} FROM "${table.name}"`)
      .raw()
      .get() as Row;
    return `${table.name} ${row.map(String).join(' ')}`;
  });
  return sha256Hex([newestId(db) ?? '', ...tables].join('\n'));
}

/** Null = the database is empty. Throws `StartupError('database_not_empty')`. */
async function findProgress(send: Send, own: string): Promise<Progress | null> {
  const { rows } = await send<{ value: string }>(`SELECT value FROM meta WHERE key = '${COPY_MARK}'`, []);
  if (rows[0] === undefined) {
    await requireEmpty(send);
    return null;
  }
  const progress = JSON.parse(rows[0].value) as Progress;
  if (progress.source === own) return progress;
  throw new StartupError('database_not_empty', [
    'database_not_empty: the database of --to holds the copy of another file, or of this one before it changed; name an empty database',
  ]);
}

/** The nodes of a cluster that runs may register at any time; tables without a row of a session are empty. */
const ALIVE_NODES = 'SELECT name FROM nodes WHERE lease_until > now() ORDER BY name';

async function requireEmpty(send: Send): Promise<void> {
  const { rows: nodes } = await send<{ name: string }>(ALIVE_NODES, []);
  if (nodes.length > 0) {
    throw new StartupError('database_not_empty', [
      `database_not_empty: nodes run on the database of --to: ${nodes.map(({ name }) => name).join(', ')}; stop them first`,
    ]);
  }
  const { rows: tables } = await send<{ name: string }>(
    `SELECT CAST(tablename AS text) AS name FROM pg_tables WHERE schemaname = current_schema()
      AND tablename NOT IN ('meta', 'event_types', 'nodes', 'day_allowances') ORDER BY tablename`,
    [],
  );
  for (const { name } of tables) {
    const { rows } = await send(`SELECT 1 AS found FROM "${name}" LIMIT 1`, []);
    if (rows.length === 0) continue;
    throw new StartupError('database_not_empty', [
      `database_not_empty: the database of --to has rows in ${name}; name an empty one, or a schema of its own in the address`,
    ]);
  }
}

/** The numbers of event types are those of the source, which its events name. */
async function beginCopy(send: Send, source: string): Promise<Progress> {
  const progress: Progress = { source, table: null, after: null, changedTexts: 0, done: false };
  await inTransaction(send, async () => {
    await send('DELETE FROM event_types', []);
    await send(SET_MARK, [JSON.stringify(progress)]);
  });
  return progress;
}

async function inTransaction(send: Send, work: () => Promise<void>): Promise<void> {
  await send('BEGIN', []);
  try {
    await work();
    await send('COMMIT', []);
  } catch (error) {
    await send('ROLLBACK', []).catch(() => {});
    throw error;
  }
}

/** Returns how many texts were changed. */
async function copyTables(options: MoveOptions, send: Send, from: Progress): Promise<number> {
  const { source, report, leave } = options;
  const tables = listCopiedTables(source);
  const first = from.table === null ? 0 : tables.findIndex(({ name }) => name === from.table);
  let { changedTexts } = from;
  for (const table of tables.slice(Math.max(0, first))) {
    const after = table.name === from.table ? from.after : null;
    const rows = countTableRows(source, table.name);
    let copied = 0;
    for (const slice of readSlices(source, table, after)) {
      leave.throwIfAborted();
      const storable = slice.map((row) =>
        row.map((value) => (typeof value === 'string' ? toStorableText(value) : value)),
      );
      changedTexts += countChanges(slice, storable);
      const key = readKeyValues(table, slice.at(-1)!).map((value) =>
        typeof value === 'bigint' ? Number(value) : value,
      );
      const progress: Progress = { source: from.source, table: table.name, after: key, changedTexts, done: false };
      await inTransaction(send, async () => {
        await send(insertRows(table), transpose(table, storable));
        await send(SET_MARK, [JSON.stringify(progress)]);
      });
      copied += slice.length;
      if (copied < rows) report(`${table.name}: ${copied} of ${rows} rows`);
    }
    if (rows > 0) report(`${table.name}: ${rows} rows`);
  }
  return changedTexts;
}

function countTableRows(db: Database.Database, table: string): number {
  return db.prepare<[], number>(`SELECT count(*) FROM "${table}"`).pluck().get()!;
}

function countChanges(before: readonly Row[], after: readonly Row[]): number {
  return before.flatMap((row, i) => row.filter((value, column) => value !== after[i]![column])).length;
}

/** By rows and by length: a message may hold images. */
function* readSlices(db: Database.Database, table: CopiedTable, after: Row | null): Generator<readonly Row[]> {
  const rows = db
    .prepare(selectRows(table, after))
    .safeIntegers()
    .raw()
    .iterate(...(after ?? [])) as Iterable<Row>;
  let slice: Row[] = [];
  let characters = 0;
  for (const row of rows) {
    slice.push(row);
    for (const value of row) if (typeof value === 'string') characters += value.length;
    if (slice.length < SLICE_ROWS && characters < SLICE_CHARACTERS) continue;
    yield slice;
    slice = [];
    characters = 0;
  }
  if (slice.length > 0) yield slice;
}

function insertRows({ name, columns }: CopiedTable): string {
  const arrays = columns.map((column) => `CAST(? AS ${TYPES[column.type]}[])`).join(', ');
  return `INSERT INTO "${name}" (${quoteNames(columns.map((column) => column.name))}) SELECT * FROM unnest(${arrays})`;
}

const transpose = ({ columns }: CopiedTable, rows: readonly Row[]) => columns.map((_, i) => rows.map((row) => row[i]!));

interface RootRow {
  readonly id: string;
  readonly workspace_path: string;
  readonly wanted: 0 | 1;
}

/** A turn that is open is taken up by a node, but not one that waits for money. */
const ROOTS = `SELECT s.id, s.workspace_path, EXISTS (SELECT 1 FROM turns t WHERE t.session_id = s.id AND t.${TURN_IS_OPEN}
    AND NOT (t.status = 'interrupted' AND t.interrupted_reason IS 'budget')) AS wanted
  FROM sessions s WHERE s.id = s.root_session_id ORDER BY s.id`;
/** The next commit of a tree has the number 2: the first one makes the row. */
const MAKE_TREES = `INSERT INTO trees (root_session_id, owner_epoch, seq, last_id, wanted, place, pruned_through_id)
  SELECT root, 1, 1, CAST(? AS text), wanted <> 0, place, CAST(? AS text)
  FROM unnest(CAST(? AS text[]), CAST(? AS bigint[]), CAST(? AS text[])) AS r (root, wanted, place)`;
const IDENTITIES = `SELECT CAST(table_name AS text) AS "table", CAST(column_name AS text) AS "column"
  FROM information_schema.columns WHERE table_schema = current_schema() AND is_identity = 'YES'`;

/** Trees, counters and the mark come in one transaction: no node sees a part of them. */
async function completeCopy({ source, places }: MoveOptions, send: Send, progress: Progress): Promise<void> {
  const roots = source.prepare<[], RootRow>(ROOTS).all();
  const pruned = readPruned(source);
  await inTransaction(send, async () => {
    await send(MAKE_TREES, [
      newestId(source) ?? '',
      pruned,
      roots.map((root) => root.id),
      roots.map((root) => root.wanted),
      roots.map((root) => findPlace(root.workspace_path, places)),
    ]);
    for (const { key, value } of listMetaRows(source))
      await send('INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO NOTHING', [key, value]);
    const { rows: identities } = await send<{ table: string; column: string }>(IDENTITIES, []);
    for (const { table, column } of identities) {
      await send(
        `SELECT setval(pg_get_serial_sequence('${table}', '${column}'), (SELECT coalesce(max("${column}"), 0) + 1 FROM "${table}"), false)`,
        [],
      );
    }
    await send(SET_MARK, [JSON.stringify({ ...progress, table: null, after: null })]);
  });
}

function listMetaRows(db: Database.Database): readonly { readonly key: string; readonly value: string }[] {
  return db
    .prepare<[string], { key: string; value: string }>('SELECT key, value FROM meta WHERE key <> ? ORDER BY key')
    .all(PRUNED_THROUGH);
}

function readPruned(db: Database.Database): string | null {
  return db.prepare<[string], string>('SELECT value FROM meta WHERE key = ?').pluck().get(PRUNED_THROUGH) ?? null;
}

/** Roots whose workspaces no node of the cluster shares, by their paths. */
export function listUnsharedWorkspaces(db: Database.Database, places: Places): readonly string[] {
  const paths = db
    .prepare<[], string>('SELECT DISTINCT workspace_path FROM sessions WHERE id = root_session_id ORDER BY 1')
    .pluck()
    .all();
  return paths.filter((workspace) => findPlace(workspace, places).startsWith('node:'));
}
