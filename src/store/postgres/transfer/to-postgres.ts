// Copies a SQLite database into an empty PostgreSQL database: all but the rows themselves (16 §9).
import type Database from 'better-sqlite3';
import { findPlace, type Places } from '#core/policy/cluster/tree-place.ts';
import { StartupError } from '#protocol/errors.ts';
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
import { PRUNED_THROUGH, TURN_T_IS_OPEN } from '#store/schema/words.ts';
import { newestId } from '#store/sqlite/connection/id-seed.ts';
import {
  beginProgress,
  type Copying,
  compareCopy,
  copyTables,
  describeSource,
  type Moved,
  type Progress,
  parseMark,
} from './copy-rows.ts';
import { createPostgresReader, createPostgresWriter, createSqliteReader, inTransaction } from './row-access.ts';
import { listCopiedTables } from './tables.ts';

export interface MoveOptions extends Copying {
  /** Of a migrated file, which no server has open. */
  readonly source: Database.Database;
  readonly url: string;
  readonly migrationsDir: string;
  /** Where the files of trees lie on the nodes of the cluster. */
  readonly places: Places;
  /** Types of events by the name under which the place of a webhook receiver is stored. */
  readonly noticed: ReadonlyMap<string, ReadonlySet<string>>;
}

/** Throws `StartupError`: as `openDatabase` does, `database_not_empty`, `migration_running`. */
export async function copyToPostgres(options: MoveOptions): Promise<Moved> {
  const { source, url, migrationsDir } = options;
  return withTarget(url, async (send) => {
    await serverVersion(send);
    const { rows } = await send<{ got: number }>(TRY_TURN, ['copy of a file']);
    if (rows[0]?.got !== 1) {
      throw new StartupError('migration_running', ['migration_running: another program copies into this database']);
    }
    const tables = listCopiedTables(source);
    const reader = createSqliteReader(source);
    const own = await describeSource(reader, tables, newestId(source));
    const isNew = (await knownVersion(send, filesIn(migrationsDir).length)) === 0;
    const found = isNew ? null : await findProgress(send, own);
    if (found?.done === true) return { changedTexts: found.changedTexts, wasDone: true };
    await migrate(url, migrationsDir);
    const writer = createPostgresWriter(send);
    const progress = found ?? beginProgress(own);
    if (found === null) {
      await inTransaction(send, async () => {
        // The numbers of event types are those of the source, which its events name.
        await send('DELETE FROM event_types', []);
        await writer.setMark(JSON.stringify(progress));
      });
    }
    const changedTexts = await copyTables(options, { reader, writer }, tables, progress);
    const mark = JSON.stringify({ ...progress, table: null, after: null, changedTexts, done: true });
    await completeCopy(options, send, () => writer.setMark(mark));
    await send('ANALYZE', []);
    return { changedTexts, wasDone: false };
  });
}

/** Compares every row of both databases. Returns a line for each difference. @param report takes the totals of each table, one line each */
export async function verifyCopy(
  { source, url }: Pick<MoveOptions, 'source' | 'url'>,
  report: (line: string) => void,
): Promise<readonly string[]> {
  return withTarget(url, (send) => {
    const sides = { source: createSqliteReader(source), copy: createPostgresReader(send) };
    return compareCopy({ report }, sides, listCopiedTables(source));
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

/** Null = the database is empty. Throws `StartupError('database_not_empty')`. */
async function findProgress(send: Send, own: string): Promise<Progress | null> {
  const { rows } = await send<{ value: string }>(`SELECT value FROM meta WHERE key = '${COPY_MARK}'`, []);
  if (rows[0] === undefined) {
    await requireEmpty(send);
    return null;
  }
  const progress = parseMark(rows[0].value, own);
  if (progress !== null) return progress;
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

interface RootRow {
  readonly id: string;
  readonly workspace_path: string;
  readonly wanted: 0 | 1;
}

/** A turn that is open is taken up by a node, but not one that waits for money. */
const ROOTS = `SELECT s.id, s.workspace_path, EXISTS (SELECT 1 FROM turns t WHERE t.session_id = s.id AND ${TURN_T_IS_OPEN}
    AND NOT (t.status = 'interrupted' AND t.interrupted_reason IS 'budget')) AS wanted
  FROM sessions s WHERE s.id = s.root_session_id ORDER BY s.id`;
/** The next commit of a tree has the number 2: the first one makes the row. */
const MAKE_TREES = `INSERT INTO trees (root_session_id, owner_epoch, seq, last_id, wanted, place, pruned_through_id)
  SELECT root, 1, 1, CAST(? AS text), wanted <> 0, place, CAST(? AS text)
  FROM unnest(CAST(? AS text[]), CAST(? AS bigint[]), CAST(? AS text[])) AS r (root, wanted, place)`;
/** What a receiver has not been sent. One that never had a place begins with what comes after the copy. */
const QUEUE_NOTICES = `INSERT INTO notices (receiver, event_id)
  SELECT CAST(@receiver AS text), e.id FROM event_rows e JOIN event_types t ON t.number = e.type
  WHERE e.id > @sent AND t.type = ANY (CAST(@types AS text[]))`;
const IDENTITIES = `SELECT CAST(table_name AS text) AS "table", CAST(column_name AS text) AS "column"
  FROM information_schema.columns WHERE table_schema = current_schema() AND is_identity = 'YES'`;

/** Trees, counters and the mark come in one transaction: no node sees a part of them. */
async function completeCopy(
  { source, places, noticed }: MoveOptions,
  send: Send,
  setMark: () => Promise<void>,
): Promise<void> {
  const roots = source.prepare<[], RootRow>(ROOTS).all();
  const pruned = readMeta(source, PRUNED_THROUGH);
  await inTransaction(send, async () => {
    await send(MAKE_TREES, [
      newestId(source) ?? '',
      pruned,
      roots.map((root) => root.id),
      roots.map((root) => root.wanted),
      roots.map((root) => findPlace(root.workspace_path, places)),
    ]);
    for (const [key, value] of await createSqliteReader(source).meta())
      await send('INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO NOTHING', [key, value]);
    for (const [receiver, types] of noticed) {
      const sent = readMeta(source, receiver);
      if (sent !== null) await send(QUEUE_NOTICES, { receiver, types: [...types], sent });
    }
    const { rows: identities } = await send<{ table: string; column: string }>(IDENTITIES, []);
    for (const { table, column } of identities) {
      await send(
        `SELECT setval(pg_get_serial_sequence('${table}', '${column}'), (SELECT coalesce(max("${column}"), 0) + 1 FROM "${table}"), false)`,
        [],
      );
    }
    await setMark();
  });
}

function readMeta(db: Database.Database, key: string): string | null {
  return db.prepare<[string], string>('SELECT value FROM meta WHERE key = ?').pluck().get(key) ?? null;
}

/** Roots whose workspaces no node of the cluster shares, by their paths. */
export function listUnsharedWorkspaces(db: Database.Database, places: Places): readonly string[] {
  const paths = db
    .prepare<[], string>('SELECT DISTINCT workspace_path FROM sessions WHERE id = root_session_id ORDER BY 1')
    .pluck()
    .all();
  return paths.filter((workspace) => findPlace(workspace, places).startsWith('node:'));
}
