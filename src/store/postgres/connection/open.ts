// Opens the database of a cluster: waits for the server and migrates, by one node at a time. Every failure is one line (16 §9, §11).

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { orAbort } from '#protocol/abort.ts';
import { type Clock, sleep } from '#protocol/clock.ts';
import { StartupError } from '#protocol/errors.ts';
import {
  ADD_EVENT_TYPE,
  findMissingTypes,
  LIST_EVENT_TYPES,
  type TypeNumbers,
  type TypeRow,
  toTypeNumbers,
} from '#store/schema/words.ts';
import { createSend, type Send } from './client.ts';
import { connectClient, requireSessionMode } from './connect.ts';
import { isRefusal, isTransient } from './faults.ts';
import { AWAIT_TURN, createPool, type Pool, type PoolOptions, REGISTRATION } from './pool.ts';

/** Nodes that know this schema or a newer one can still write a database of this version. */
const COMPATIBLE_FROM = 7;
/** Key in `meta`: how far the copy of a file into this database has come (16 §9). */
export const COPY_MARK = 'copied_from';
const SET =
  'INSERT INTO meta (key, value) VALUES (@key, @value) ON CONFLICT (key) DO UPDATE SET value = excluded.value';

/**
 * Runs the missing migrations in one transaction and returns their names.
 * @param dir holds `NNNN_noun.sql`; the n-th leads to schema version n
 * @param compatibleFrom the oldest schema that a node must know after it
 * Throws `StartupError('database_too_old' | 'schema_too_new' | 'database_foreign')`, `OlderNodesRunning`.
 */
export async function migrate(url: string, dir: string, compatibleFrom = COMPATIBLE_FROM): Promise<readonly string[]> {
  const files = filesIn(dir);
  const client = await connectClient(url, { statement_timeout: 0 });
  try {
    const send = createSend(client);
    await serverVersion(send);
    await client.query('BEGIN');
    await send(AWAIT_TURN, ['migrations']);
    const known = await knownVersion(send, files.length);
    const missing = files.slice(known);
    if (known > 0 && missing.length > 0) await requireNoOlderNodes(send, known, compatibleFrom);
    for (const name of missing) await client.query(readFileSync(join(dir, name), 'utf8'));
    if (missing.length > 0) {
      await send(SET, { key: 'schema_version', value: String(files.length) });
      await send(SET, { key: 'compatible_from', value: String(compatibleFrom) });
    }
    await client.query('COMMIT');
    return missing;
  } finally {
    await client.end();
  }
}

/** Running nodes could not write the database after the migration. Nothing was changed. */
class OlderNodesRunning extends Error {
  constructor(names: readonly string[]) {
    super(`nodes of an older version are running: ${names.join(', ')}`);
    this.name = 'OlderNodesRunning';
  }
}

/** A node of a version before the column knows the schema that the database has, or an older one. */
const OLDER_NODES = `SELECT n.name FROM nodes n WHERE n.lease_until > clock_timestamp()
  AND coalesce(CAST(to_jsonb(n) ->> 'schema_version' AS bigint), @known) < @compatibleFrom ORDER BY n.name`;

/** Until the end of the transaction no node registers. */
async function requireNoOlderNodes(send: Send, known: number, compatibleFrom: number): Promise<void> {
  await send(AWAIT_TURN, [REGISTRATION]);
  const { rows } = await send<{ name: string }>(OLDER_NODES, { known, compatibleFrom });
  if (rows.length > 0) throw new OlderNodesRunning(rows.map(({ name }) => name));
}

const OLDEST = 14;

/** Null = no schema of the search path exists. */
const SERVER = `SELECT current_setting('server_version') AS version, CAST(current_schema() AS text) AS "schema",
  current_setting('search_path') AS path`;

/** Version of the server, such as `15.4`. Throws `StartupError('database_too_old' | 'database_refused')` (16 §1). */
export async function serverVersion(send: Send): Promise<string> {
  const { rows } = await send<{ version: string; schema: string | null; path: string }>(SERVER, []);
  const { schema, path } = rows[0]!;
  const version = rows[0]!.version.split(' ')[0]!;
  if (Number.parseInt(version, 10) < OLDEST) {
    throw new StartupError('database_too_old', [
      `database_too_old: the server of database.url is PostgreSQL ${version}; use ${OLDEST} or newer`,
    ]);
  }
  if (schema !== null) return version;
  throw new StartupError('database_refused', [
    `database_refused: no schema of the search_path ${path} exists; create it with CREATE SCHEMA, or correct the address`,
  ]);
}

export function filesIn(dir: string): readonly string[] {
  return readdirSync(dir)
    .filter((name) => name.endsWith('.sql'))
    .sort();
}

/** The schema version of the database; 0 = no tables yet. Throws `StartupError('schema_too_new' | 'database_foreign')`. @param own schema version of this program */
export async function knownVersion(send: Send, own: number): Promise<number> {
  const { version, compatibleFrom } = await readVersion(send);
  if (version > own && compatibleFrom > own) {
    throw new StartupError('schema_too_new', [
      `schema_too_new: the database has schema ${version} and needs a version that knows ${compatibleFrom}, this one knows ${own}; start the newer version`,
    ]);
  }
  return version;
}

async function readVersion(send: Send): Promise<{ readonly version: number; readonly compatibleFrom: number }> {
  const tables = await send<{ name: string }>(
    "SELECT CAST(tablename AS text) AS name FROM pg_tables WHERE schemaname = current_schema() AND tablename IN ('meta', 'sessions')",
    [],
  );
  if (tables.rows.length === 0) return { version: 0, compatibleFrom: 0 };
  if (tables.rows.length === 2) {
    const meta = await send<{ key: string; value: string }>(
      "SELECT key, value FROM meta WHERE key IN ('schema_version', 'compatible_from')",
      [],
    );
    const values = new Map(meta.rows.map(({ key, value }) => [key, Number(value)]));
    const version = values.get('schema_version');
    if (version !== undefined) return { version, compatibleFrom: values.get('compatible_from') ?? version };
  }
  throw new StartupError('database_foreign', [
    'database_foreign: the database holds the tables of another program; choose another one, or a schema of its own, with database.url',
  ]);
}

export interface OpenPool extends Pool {
  readonly typeNumbers: TypeNumbers;
}

interface OpenOptions extends PoolOptions {
  readonly migrationsDir: string;
  readonly clock: Clock;
  /** Maximum wait for a missing server and for the end of older nodes; null or absent = no limit. */
  readonly patienceMs?: number | null;
  /** Aborts the wait; the signal's reason is thrown. */
  readonly leave?: AbortSignal;
}

const AGAIN_MS = 500;
const ALIVE_MS = 60_000;

/**
 * Throws `StartupError`: `database_unreachable`, `database_refused`, `database_pooler_mode`, `database_too_old`,
 * `schema_too_new`, `database_foreign`, `older_nodes_running`, `migration_unfinished`.
 */
export async function openDatabase(options: OpenOptions): Promise<OpenPool> {
  const { url, migrationsDir, clock, log, patienceMs = null, leave = new AbortController().signal } = options;
  const from = clock.monotonic();
  // Nothing else is open yet, and a sleep does not keep the process alive: without this timer it would exit.
  const alive = setInterval(() => {}, ALIVE_MS);
  let reported: boolean | null = null;
  try {
    for (;;) {
      try {
        await orAbort(requireSessionMode(url), leave);
        const applied = await orAbort(migrate(url, migrationsDir), leave);
        if (applied.length > 0) log.info({ migrations: applied }, 'database migrated');
        const pool = createPool(options);
        try {
          await orAbort(requireWholeCopy(pool.send), leave);
          return { ...pool, typeNumbers: await orAbort(registerEventTypes(pool), leave) };
        } catch (error) {
          await pool.close();
          throw error;
        }
      } catch (error) {
        if (leave.aborted) throw leave.reason;
        if (!(isTransient(error) || error instanceof OlderNodesRunning)) throw startupFault(url, error);
        if (patienceMs !== null && clock.monotonic() - from >= patienceMs) throw startupFault(url, error, patienceMs);
        // Logged as an error, so that the terminal shows why the start waits.
        if (reported !== isTransient(error))
          log.error({ reason: describeFault(error) }, waitingFor(url, error, patienceMs));
        reported = isTransient(error);
      }
      await orAbort(sleep(clock, AGAIN_MS), leave);
    }
  } finally {
    clearInterval(alive);
  }
}

/**
 * Opens a migrated database for commands that only read; neither migrates nor waits. Throws `StartupError` as
 * `openDatabase` does, and `database_not_migrated` where migrations are missing.
 */
export async function openReader(options: PoolOptions & { readonly migrationsDir: string }): Promise<Pool> {
  const { url, migrationsDir } = options;
  try {
    await requireSessionMode(url);
    await withMigrated(url, migrationsDir, async () => {});
  } catch (error) {
    throw startupFault(url, error);
  }
  return createPool({ ...options, isReadOnly: true });
}

/**
 * Runs `work` on one connection that can only read a migrated database. Throws as `openReader`.
 * @param work gets whether the database has exactly the schema of this version, and not a newer one
 */
export async function withMigrated<T>(
  url: string,
  migrationsDir: string,
  work: (send: Send, isCurrent: boolean) => Promise<T>,
): Promise<T> {
  const client = await connectClient(url, { default_transaction_read_only: 'on', statement_timeout: 0 });
  try {
    const send = createSend(client);
    await serverVersion(send);
    const files = filesIn(migrationsDir);
    const known = await knownVersion(send, files.length);
    if (known < files.length) throw notMigrated(url, known);
    await requireWholeCopy(send);
    return await work(send, known === files.length);
  } finally {
    await client.end().catch(() => {});
  }
}

/** Throws `StartupError('migration_unfinished')` for a migrated database that holds a part of a copy. */
export async function requireWholeCopy(send: Send): Promise<void> {
  const { rows } = await send<{ value: string }>(`SELECT value FROM meta WHERE key = '${COPY_MARK}'`, []);
  if (rows[0] === undefined || (JSON.parse(rows[0].value) as { readonly done: boolean }).done) return;
  throw new StartupError('migration_unfinished', [
    'migration_unfinished: the database holds a part of a copy; run metis migrate again, which continues it',
  ]);
}

function notMigrated(url: string, known: number): StartupError {
  const problem =
    known === 0
      ? 'has no tables; check the database and the search_path in database.url, or start the server once, which makes them'
      : 'was written by an older version; start the server once, which brings it forward';
  return new StartupError('database_not_migrated', [`database_not_migrated: ${hideCredentials(url)} ${problem}`]);
}

async function registerEventTypes(pool: Pool): Promise<TypeNumbers> {
  for (;;) {
    const numbers = toTypeNumbers((await pool.send<TypeRow>(LIST_EVENT_TYPES, [])).rows);
    const missing = findMissingTypes(numbers);
    if (missing.length === 0) return numbers;
    // Read again afterwards: another node may have taken one of these numbers.
    for (const type of missing) await pool.send(ADD_EVENT_TYPE, [type]);
  }
}

function waitingFor(url: string, error: unknown, patienceMs: number | null): string {
  const time = patienceMs === null ? 'until it does' : `for ${patienceMs / 1000} s`;
  if (isTransient(error)) return `PostgreSQL does not answer at ${hideCredentials(url)}; trying ${time}`;
  return 'the migration waits for older nodes, which could not write the database after it: stop them';
}

/** A permanent fault as one line. @param waitedMs time already waited */
export function startupFault(url: string, error: unknown, waitedMs = 0): StartupError {
  if (error instanceof StartupError) return error;
  if (error instanceof OlderNodesRunning) return olderNodes(error);
  if (isTransient(error)) return unreachable(url, error, waitedMs);
  return createRefusal(url, error);
}

function olderNodes({ message }: OlderNodesRunning): StartupError {
  return new StartupError('older_nodes_running', [
    `older_nodes_running: ${message}; they could not write the database after its migration: stop them, then start this node again`,
  ]);
}

/** A fault of the database while a command reads it as one line; any other error as it came. */
export function readingFault(url: string, error: unknown): unknown {
  if (isTransient(error)) return unreachable(url, error, 0);
  if (isRefusal(error) || lacksPassword(error)) return createRefusal(url, error);
  return error;
}

/** The address without its password. */
function hideCredentials(url: string): string {
  const { host, pathname, username } = new URL(url);
  return `postgres://${username === '' ? '' : `${username}@`}${host}${pathname}`;
}

/** The server asks for a password that the client does not have; the driver has no code for it. */
function lacksPassword(error: unknown): boolean {
  return error instanceof Error && error.message.includes('client password must be a string');
}

function describeFault(error: unknown): string {
  if (lacksPassword(error)) return 'it asks for a password, which neither the address nor PGPASSWORD nor ~/.pgpass has';
  if (error instanceof Error) return error.message || String((error as NodeJS.ErrnoException).code);
  return String(error);
}

function unreachable(url: string, error: unknown, patienceMs: number): StartupError {
  return new StartupError('database_unreachable', [
    `database_unreachable: no answer from ${hideCredentials(url)}${patienceMs === 0 ? '' : ` for ${patienceMs / 1000} s`} (${describeFault(error)}); start PostgreSQL or check database.url`,
  ]);
}

function createRefusal(url: string, error: unknown): StartupError {
  return new StartupError('database_refused', [
    `database_refused: ${hideCredentials(url)} does not take this server (${describeFault(error)}); check user, password, database and parameters in database.url`,
  ]);
}
