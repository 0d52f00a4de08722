// Opens the database file: lock, pragmas, migrations; every failure is one clear line (01 §11.1).

import fs from 'node:fs';
import { dirname } from 'node:path';
import Database from 'better-sqlite3';
import type { Logger } from '#core/ports/logger.ts';
import { StartupError } from '#protocol/errors.ts';
import { makeFolder } from '#protocol/folder.ts';
import { readErrorMessage } from '#protocol/text/error-message.ts';
import {
  beginReadAtOnce,
  createHistoryCache,
  createSessionCache,
  createSessionSet,
  type HistoryCache,
  type ReadCaches,
  type SessionCache,
} from '#store/read/caches.ts';
import { type Dialect, expandFragments } from '#store/schema/dialect.ts';
import {
  ADD_EVENT_TYPE,
  findMissingTypes,
  LIST_EVENT_TYPES,
  type TypeNumbers,
  type TypeRow,
  toTypeNumbers,
} from '#store/schema/words.ts';
import { type Checkpointer, createCheckpointer } from './checkpointer.ts';
import { acquireOwnerLock, closeToOthers, makePrivateFile, resolveDatabasePath } from './database-file.ts';
import { giveBackRoom, migrate, missingMigrations } from './migrate.ts';

// Prepares statements of a connection: expands fragments, and keeps one plan for all values.

const SQLITE: Dialect = {
  index: (name) => `INDEXED BY ${name}`,
  no_index: () => '+',
  join_in_order: () => 'CROSS JOIN',
  in_list: () => 'IN (SELECT value FROM json_each(?))',
  text_at: (column, ...path) =>
    `json_extract(${column}, '$${path.map((key) => `.${key}`.replace(/^\.(\d+)$/, '[$1]')).join('')}')`,
  json_field: (column, field) => `json_extract(${column}, '$.${field}')`,
  greatest: () => 'max',
  least: () => 'min',
  // One transaction writes at a time.
  keep_rows: () => '',
  lock_rows: () => '',
  first_id: () => '?',
};

/**
 * When SQLite plans a join or an order, it reads the values that columns are compared with, in case there are statistics
 * of the column, and the value of a limit. Then every new value plans the statement again. This database has no
 * statistics. A plus before the `?` hides the value and changes nothing else: 30 µs became 5 for the pattern of a turn, 10
 * became 3 for the checkpoints of a session, 58 became 11 for a page of events.
 */
function translateStatements(db: Database.Database): void {
  const prepare = db.prepare.bind(db);
  const translate = (sql: string) => expandFragments(SQLITE, sql).replaceAll(/(= |LIMIT )\?/g, '$1+?');
  db.prepare = ((sql: string) => prepare(translate(sql))) as typeof db.prepare;
}

/** An open database. `db` is the one writer and also serves the reads of the turn loop. */
export interface SqliteStoreHandle {
  readonly path: string;
  readonly db: Database.Database;
  /** A second connection that cannot write (`query_only`), for reports. */
  readonly reader: Database.Database;
  readonly typeNumbers: TypeNumbers;
  /** Notified of every commit. */
  readonly checkpoints: Checkpointer;
  /** Sessions in use and their histories: read by the store, kept current by the journal. */
  readonly caches: ReadCaches & { readonly histories: HistoryCache; readonly sessions: SessionCache };
  /** Frees the owner lock as well. Idempotent. */
  close(): void;
}

interface OpenOptions {
  readonly path: string;
  readonly synchronous: 'NORMAL' | 'FULL';
  readonly migrationsDir: string;
  readonly log: Logger;
}

const BUSY_TIMEOUT_MS = 5000;
const HISTORY_CACHE_BYTES = 64 * 1024 * 1024;

/**
 * Creates the folder when it is missing, takes the owner lock and migrates forward. Folder and files are their owner's
 * alone; a folder that was there keeps its rights. A link is followed first, so that one file has one lock.
 * Throws `StartupError`: `database_in_use`, `schema_too_new`, `database_corrupt`, `database_unwritable`.
 */
export function openDatabase({ path: given, synchronous, migrationsDir, log }: OpenOptions): SqliteStoreHandle {
  let path = given;
  const opened: { close(): void }[] = [];
  const close = () => {
    for (const part of opened.splice(0).reverse()) part.close();
  };
  try {
    makeFolder(dirname(given), 0o700);
    path = resolveDatabasePath(given);
    const lock = acquireOwnerLock(path);
    opened.push({ close: lock.release });
    makePrivateFile(path);
    closeToOthers(path);
    const db = new Database(path, { timeout: BUSY_TIMEOUT_MS });
    opened.push(db);
    // Before any change: a newer file is left exactly as it was found.
    const applied = migrate(db, path, migrationsDir, () => {
      db.pragma('journal_mode = WAL');
      db.pragma(`synchronous = ${synchronous}`);
      db.pragma('foreign_keys = ON');
      db.pragma('wal_autocheckpoint = 8192');
      // Savepoints and large statements use temporary storage: memory instead of a new file each time.
      db.pragma('temp_store = MEMORY');
    });
    if (applied.length > 0) {
      log.info({ path, migrations: applied }, 'database migrated');
      giveBackRoom(db, path, log);
    }
    translateStatements(db);
    const typeNumbers = registerEventTypes(db);
    const reader = openReader(path);
    opened.push(reader);
    const checkpoints = createCheckpointer(path, synchronous, log);
    opened.push(checkpoints);
    return { path, db, reader, typeNumbers, checkpoints, caches: createCaches(), close };
  } catch (cause) {
    close();
    throw asStartupError(path, cause);
  }
}

function createCaches(): SqliteStoreHandle['caches'] {
  return {
    histories: createHistoryCache(HISTORY_CACHE_BYTES),
    sessions: createSessionCache(),
    idle: createSessionSet(),
    whole: createSessionSet(),
    beginRead: beginReadAtOnce,
  };
}

function registerEventTypes(db: Database.Database): TypeNumbers {
  const list = db.prepare<[], TypeRow>(LIST_EVENT_TYPES);
  const add = db.prepare<[string]>(ADD_EVENT_TYPE);
  for (const type of findMissingTypes(toTypeNumbers(list.all()))) add.run(type);
  return toTypeNumbers(list.all());
}

/** A connection that only reads, also beside a running server. The file must exist. */
export function openReader(path: string): Database.Database {
  const reader = new Database(path, { readonly: true, fileMustExist: true, timeout: BUSY_TIMEOUT_MS });
  reader.pragma('query_only = ON');
  translateStatements(reader);
  return reader;
}

/** The error to throw for `cause`: a fault of the file as one line, anything else unchanged. */
export function databaseFault(path: string, cause: unknown): unknown {
  if (cause instanceof Database.SqliteError) return asStartupError(path, cause);
  return cause;
}

function asStartupError(path: string, cause: unknown): StartupError {
  if (cause instanceof StartupError) return cause;
  const code = cause instanceof Error && 'code' in cause ? String(cause.code) : '';
  const reason = readErrorMessage(cause);
  if (code === 'SQLITE_NOTADB' || code.startsWith('SQLITE_CORRUPT')) {
    return new StartupError('database_corrupt', [
      `database_corrupt: ${path} is not a readable database (${reason}); restore a backup or move the file away`,
    ]);
  }
  if (code.startsWith('SQLITE_BUSY')) {
    return new StartupError('database_in_use', [`database_in_use: ${path} is locked by another process (${reason})`]);
  }
  return new StartupError('database_unwritable', [
    `database_unwritable: ${path} cannot be opened for writing (${reason}); check the folder, its rights and storage.db_path`,
  ]);
}

/**
 * Throws `StartupError` with one line for a file that is damaged, of another program or of a newer version. Reads the
 * whole file, also beside a running server; a file that is not there yet is none.
 */
export function inspectDatabase(path: string, migrationsDir: string): void {
  if (!fs.existsSync(path)) return;
  try {
    const reader = openReader(path);
    try {
      missingMigrations(reader, path, migrationsDir);
      const first = reader.pragma('quick_check(1)', { simple: true }) as string;
      if (first === 'ok') return;
      throw new StartupError('database_corrupt', [
        `database_corrupt: ${path} is damaged (${first.split('\n').at(-1)}); restore a backup or move the file away`,
      ]);
    } finally {
      reader.close();
    }
  } catch (cause) {
    throw databaseFault(path, cause);
  }
}
