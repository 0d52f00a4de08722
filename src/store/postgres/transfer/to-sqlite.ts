// Copies the PostgreSQL database of a cluster into a new SQLite file, to look at (16 §9).
import fs from 'node:fs';
import Database from 'better-sqlite3';
import { StartupError } from '#protocol/errors.ts';
import { COPY_MARK, readingFault, withMigrated } from '#store/postgres/connection/open.ts';
import { PRUNED_THROUGH } from '#store/schema/words.ts';
import { makeDatabase } from '#store/sqlite/connection/copy.ts';
import { migrate } from '#store/sqlite/connection/migrate.ts';
import { openReader } from '#store/sqlite/connection/open.ts';
import {
  beginProgress,
  type Copying,
  compareCopy,
  copyTables,
  describeSource,
  type Moved,
  type Progress,
  parseMark,
  type RowReader,
} from './copy-rows.ts';
import { createPostgresReader, createSqliteReader, createSqliteWriter } from './row-access.ts';
import { type CopiedTable, listCopiedTables } from './tables.ts';

export interface CopyOptions extends Copying {
  readonly url: string;
  /** The new database file. */
  readonly file: string;
  /** Of SQLite; PostgreSQL's are in `postgres` below it. */
  readonly migrationsDir: string;
  readonly verify: boolean;
}

/** The cursors of all trees end where the newest of them ends: a client whose cursor is before it reads its session anew. */
const PRUNED = 'SELECT max(pruned_through_id) AS pruned, max(last_id) AS newest FROM trees';

/**
 * Reads one moment of the database, while its nodes run. `differences` has a line for each row of the copy that is not
 * the source's, if `verify` asks for it.
 * Throws `StartupError`: as `openReader` of PostgreSQL does, `database_not_empty`, `database_in_use`.
 */
export async function copyToSqlite(options: CopyOptions): Promise<Moved & { readonly differences: readonly string[] }> {
  const { url, file, migrationsDir } = options;
  try {
    return await withMigrated(url, `${migrationsDir}/postgres`, async (send, isCurrent) => {
      // Its tables may have columns that the new file has not.
      if (!isCurrent)
        throw new StartupError('schema_too_new', [
          'schema_too_new: a newer version has changed the database; copy it with that version',
        ]);
      await send('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY', []);
      const reader = createPostgresReader(send);
      const moved = await copySnapshot(options, reader);
      return { ...moved, differences: options.verify ? await compareFile(options, reader) : [] };
    });
  } catch (error) {
    if (error instanceof Database.SqliteError)
      throw new StartupError('database_unwritable', [
        `database_unwritable: ${file} cannot be written (${error.message})`,
      ]);
    throw readingFault(url, error);
  }
}

async function copySnapshot(options: CopyOptions, reader: RowReader): Promise<Moved> {
  const { file, migrationsDir } = options;
  const [pruned, newest] = (await reader.first(PRUNED)) as readonly (string | null)[];
  const describeTarget = (db: Database.Database) => describeSource(reader, listCopiedTables(db), newest ?? null);
  const whole = await findWhole(file, describeTarget);
  if (whole !== null) return { changedTexts: whole.changedTexts, wasDone: true };
  return makeDatabase(file, async (unfinished) => {
    const db = openUnfinished(unfinished, migrationsDir);
    try {
      const tables = listCopiedTables(db);
      const own = await describeTarget(db);
      const writer = createSqliteWriter(db);
      const found = readProgress(db, own);
      if (found === null) emptyTables(db, tables);
      const progress = found ?? beginProgress(own);
      const changedTexts = await copyTables(options, { reader, writer }, tables, progress);
      const meta = await reader.meta();
      db.transaction(() => {
        const keep = db.prepare(
          'INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value',
        );
        for (const [key, value] of meta) keep.run(key, value);
        if (pruned !== null && pruned !== undefined) keep.run(PRUNED_THROUGH, pruned);
        writer.setMark(JSON.stringify({ ...progress, table: null, after: null, changedTexts, done: true }));
        requireReferences(db);
      })();
      return { changedTexts, wasDone: false };
    } finally {
      db.close();
    }
  });
}

/** Null for a file that is missing, or holds anything but this copy: that is refused next. */
async function findWhole(
  file: string,
  describeTarget: (db: Database.Database) => Promise<string>,
): Promise<Progress | null> {
  if (!fs.existsSync(file)) return null;
  try {
    const found = await withReader(file, async (db) => readProgress(db, await describeTarget(db)));
    return found?.done === true ? found : null;
  } catch (error) {
    if (error instanceof Database.SqliteError) return null;
    throw error;
  }
}

/** The new file, or what an interrupted copy has written of it. */
function openUnfinished(file: string, migrationsDir: string): Database.Database {
  const open = () => {
    const db = new Database(file);
    migrate(db, file, migrationsDir, () => {
      // References are checked once, at the end.
      db.pragma('foreign_keys = OFF');
      db.pragma('synchronous = NORMAL');
      db.pragma(`cache_size = ${CACHE_PAGES}`);
    });
    return db;
  };
  try {
    return open();
  } catch {
    // Something else: a part of a restored backup, or of a copy by another version.
    fs.truncateSync(file);
    fs.rmSync(`${file}-journal`, { force: true });
    return open();
  }
}

/** In KiB, negative: 256 MiB, so that indices are not read again for each slice. */
const CACHE_PAGES = -262_144;

function readProgress(db: Database.Database, own: string): Progress | null {
  const mark = db.prepare<[string], string>('SELECT value FROM meta WHERE key = ?').pluck().get(COPY_MARK);
  return mark === undefined ? null : parseMark(mark, own);
}

/** A new file too: the numbers of event types are those of the source, which its events name. */
function emptyTables(db: Database.Database, tables: readonly CopiedTable[]): void {
  db.transaction(() => {
    for (const { name } of tables.toReversed()) db.exec(`DELETE FROM "${name}"`);
  })();
}

function requireReferences(db: Database.Database): void {
  const broken = db.pragma('foreign_key_check') as readonly { readonly table: string }[];
  if (broken.length > 0) throw new Error(`${broken.length} rows refer to none, the first in ${broken[0]!.table}`);
}

async function withReader<T>(file: string, work: (db: Database.Database) => Promise<T>): Promise<T> {
  const db = openReader(file);
  try {
    return await work(db);
  } finally {
    db.close();
  }
}

const compareFile = ({ file, report }: CopyOptions, reader: RowReader) =>
  withReader(file, (db) =>
    compareCopy({ report }, { source: reader, copy: createSqliteReader(db) }, listCopiedTables(db)),
  );
