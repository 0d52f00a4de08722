// Brings the database of a cluster forward: numbered SQL files, by one node at a time (16 §9).
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { StartupError } from '#protocol/errors.ts';
import { AWAIT_TURN, REGISTRATION } from './advisory.ts';
import { createSend, type Send } from './client.ts';
import { connectClient } from './connect.ts';

/** The lowest schema that this version wrote for whom a later one is still good enough. */
const COMPATIBLE_FROM = 7;
const SET =
  'INSERT INTO meta (key, value) VALUES (@key, @value) ON CONFLICT (key) DO UPDATE SET value = excluded.value';

/**
 * Runs what is missing in one transaction and returns the names of what ran.
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

/** Nodes run that could not write the database after the migration. Nothing was changed. */
export class OlderNodesRunning extends Error {
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

/** Of the server, like `15.4`. Throws `StartupError('database_too_old')` (16 §1). */
export async function serverVersion(send: Send): Promise<string> {
  const { rows } = await send<{ version: string }>("SELECT current_setting('server_version') AS version", []);
  const version = rows[0]!.version.split(' ')[0]!;
  if (Number.parseInt(version, 10) >= OLDEST) return version;
  throw new StartupError('database_too_old', [
    `database_too_old: the server of database.url is PostgreSQL ${version}; use ${OLDEST} or newer`,
  ]);
}

export function filesIn(dir: string): readonly string[] {
  return readdirSync(dir)
    .filter((name) => name.endsWith('.sql'))
    .sort();
}

/** 0 = no tables yet. Throws `StartupError('schema_too_new' | 'database_foreign')`. @param own of this program */
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
