// Opening a database: pragmas, the owner lock, and one clear line for everything that can be wrong (01 §2, §11.1).
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  copyFileSync,
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join, resolve } from 'node:path';
import Database from 'better-sqlite3';
import { expect, onTestFinished, test } from 'vitest';
import { silentLogger } from '#core/ports/logger.ts';
import { StartupError } from '#protocol/errors.ts';
import { createCheckpointer } from '#store/sqlite/connection/checkpointer.ts';
import { isOwned } from '#store/sqlite/connection/database-file.ts';
import { openDatabase, openReader } from '#store/sqlite/connection/open.ts';
import { createTx } from '#store/sqlite/connection/reads.ts';
import { storedSession } from '../suite/nouns.ts';
import { type LogLine, recordingLogger } from '../suite/world.ts';
import { MIGRATIONS, openWorld, tempFolder } from './world.ts';

const NEWEST = readdirSync(MIGRATIONS).filter((name) => name.endsWith('.sql')).length;
const ROOT = resolve(import.meta.dirname, '../../..');

function failure(path: string): StartupError {
  try {
    openDatabase({ path, synchronous: 'NORMAL', migrationsDir: MIGRATIONS, log: silentLogger }).close();
  } catch (error) {
    if (error instanceof StartupError) return error;
    throw error;
  }
  throw new Error('opened');
}

test('a missing folder is created, and the file has every table of the model, all of them STRICT', async () => {
  const world = openWorld(join(tempFolder(), 'a', 'b', 'metis.db'));
  const tables = await world.rows(
    "SELECT name, strict, wr FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite_%'",
  );
  expect(tables).toHaveLength(39);
  expect(tables.filter((table) => table.strict !== 1n)).toEqual([]);
  expect(
    tables
      .filter((table) => table.wr === 1n)
      .map((table) => table.name)
      .sort(),
  ).toEqual([
    'llm_call_rounds',
    'owner_days',
    'purged_runs',
    'rollup_bill_hour',
    'rollup_day',
    'rollup_parent',
    'rollup_parent_day',
    'rollup_session_hour',
  ]);
});

test.skipIf(process.platform === 'win32')(
  'folder and files are closed to others, and are closed again where they were open',
  async () => {
    const folder = join(tempFolder(), 'data');
    const path = join(folder, 'metis.db');
    const open = () => readdirSync(folder).filter((name) => (statSync(join(folder, name)).mode & 0o777) !== 0o600);
    const before = process.umask(0o022);
    try {
      const world = openWorld(path);
      await storedSession(world);
      expect(open()).toEqual([]);
      expect(statSync(folder).mode & 0o777).toBe(0o700);
      world.handle.close();
      for (const name of readdirSync(folder)) chmodSync(join(folder, name), 0o644);
      chmodSync(folder, 0o755);
      await storedSession(openWorld(path));
      expect(open()).toEqual([]);
      expect(statSync(folder).mode & 0o777).toBe(0o755);
    } finally {
      process.umask(before);
    }
  },
);

test('an empty or missing file beside a log with content is refused, and the log stays', async () => {
  const path = join(tempFolder(), 'metis.db');
  for (const state of ['is empty', 'is missing']) {
    writeFileSync(`${path}-wal`, 'pages');
    if (state === 'is empty') writeFileSync(path, '');
    else rmSync(path, { force: true });
    expect(failure(path).problems).toEqual([
      expect.stringMatching(new RegExp(`^database_corrupt: .*metis\\.db ${state}, but .*-wal holds 5 bytes`)),
    ]);
    expect(readFileSync(`${path}-wal`, 'utf8')).toBe('pages');
  }
  rmSync(`${path}-wal`);
  await storedSession(openWorld(path));
});

test('a second name of the file is refused, and a link leads to the one lock', async () => {
  const folder = tempFolder();
  const path = join(folder, 'metis.db');
  const world = openWorld(path);
  await storedSession(world);
  symlinkSync(path, join(folder, 'link.db'));
  expect(failure(join(folder, 'link.db')).code).toBe('database_in_use');
  expect(isOwned(join(folder, 'link.db'))).toBe(true);
  world.handle.close();
  mkdirSync(join(folder, 'other'));
  linkSync(path, join(folder, 'other', 'metis.db'));
  expect(failure(join(folder, 'other', 'metis.db')).problems).toEqual([
    expect.stringMatching(/^database_in_use: .*other.metis\.db has 2 names \(hard links\)/),
  ]);
  expect(readdirSync(join(folder, 'other'))).toEqual(['metis.db']);
});

test('the writer has the pragmas of the layout', () => {
  const { db } = openWorld().handle;
  const pragma = (name: string) => db.pragma(name, { simple: true });
  expect(pragma('journal_mode')).toBe('wal');
  expect(pragma('synchronous')).toBe(1);
  expect(pragma('foreign_keys')).toBe(1);
  expect(pragma('busy_timeout')).toBe(5000);
  expect(pragma('wal_autocheckpoint')).toBe(8192);
  expect(pragma('user_version')).toBe(NEWEST);
});

test('storage.synchronous FULL is honoured', () => {
  const path = join(tempFolder(), 'metis.db');
  const handle = openDatabase({ path, synchronous: 'FULL', migrationsDir: MIGRATIONS, log: silentLogger });
  expect(handle.db.pragma('synchronous', { simple: true })).toBe(2);
  handle.close();
});

test('the connection for reports sees what was committed and cannot write', async () => {
  const world = openWorld();
  const { id } = await storedSession(world);
  expect(world.handle.reader.prepare('SELECT id FROM sessions').pluck().get()).toBe(id);
  expect(() => world.handle.reader.exec('DELETE FROM sessions')).toThrow(/readonly|query_only/i);
  const other = openReader(world.path);
  expect(() => other.exec('DELETE FROM sessions')).toThrow(/readonly|query_only/i);
  other.close();
});

// Promise 01.2: the owner goes on undisturbed after a refused second opening.
test('a second opening of the same file is refused with database_in_use; the first goes on', async () => {
  const world = openWorld();
  expect(isOwned(world.path)).toBe(true);
  const { code, problems } = failure(world.path);
  expect(code).toBe('database_in_use');
  expect(problems).toHaveLength(1);
  expect(problems[0]).toContain(world.path);
  await storedSession(world);
  world.handle.close();
  expect(isOwned(world.path)).toBe(false);
  expect(await openWorld(world.path).count('sessions')).toBe(1);
});

// Promise 01.2: one owner per database file, also against another process, until it is gone.
test('a process that holds the lock keeps others out until it dies, also by kill -9', async () => {
  const path = join(tempFolder(), 'metis.db');
  const script = `const db = new (require('better-sqlite3'))(${JSON.stringify(`${path}-owner`)});
    db.exec('BEGIN EXCLUSIVE'); console.log('held'); setInterval(() => {}, 1000)`;
  const holder = spawn(process.execPath, ['-e', script], { cwd: ROOT, stdio: ['ignore', 'pipe', 'inherit'] });
  await once(holder.stdout, 'data');
  expect(failure(path).code).toBe('database_in_use');
  holder.kill('SIGKILL');
  await once(holder, 'exit');
  expect(await openWorld(path).count('sessions')).toBe(0);
});

// Promise 01.27: a newer database is refused and left as it is.
test('a database of a newer schema is refused with schema_too_new and left as it is', () => {
  const path = join(tempFolder(), 'metis.db');
  const db = new Database(path);
  db.exec(`CREATE TABLE later (x); PRAGMA user_version = ${NEWEST + 1};`);
  db.close();
  const before = readFileSync(path);
  const { code, problems } = failure(path);
  expect(code).toBe('schema_too_new');
  expect(problems[0]).toContain(`has schema ${NEWEST + 1}, this version knows ${NEWEST};`);
  expect(readFileSync(path).equals(before)).toBe(true);
});

test('a file that is no database, or another program’s, is refused with one line', () => {
  const folder = tempFolder();
  const garbage = join(folder, 'garbage.db');
  writeFileSync(garbage, 'not a database at all, but longer than one header of a hundred bytes '.repeat(20));
  expect(failure(garbage).code).toBe('database_corrupt');

  const foreign = join(folder, 'foreign.db');
  const db = new Database(foreign);
  db.exec('CREATE TABLE bookmarks (url TEXT)');
  db.close();
  expect(failure(foreign)).toMatchObject({
    code: 'database_corrupt',
    problems: [expect.stringContaining('another program')],
  });
});

test('a path that cannot be written is refused with one line', () => {
  const folder = tempFolder();
  writeFileSync(join(folder, 'file'), '');
  expect(failure(join(folder, 'file', 'metis.db')).code).toBe('database_unwritable');
  mkdirSync(join(folder, 'folder.db'));
  expect(failure(join(folder, 'folder.db')).code).toBe('database_unwritable');
});

test('a migration that fails leaves nothing behind', () => {
  const folder = tempFolder();
  const migrations = join(folder, 'migrations');
  mkdirSync(join(migrations, 'meta'), { recursive: true });
  writeFileSync(join(migrations, 'meta', '_journal.json'), JSON.stringify({ entries: [{ idx: 0, tag: 'broken' }] }));
  writeFileSync(join(migrations, 'broken.sql'), 'CREATE TABLE half (x TEXT) STRICT; CREATE TABLE half (x TEXT);');
  const path = join(folder, 'metis.db');
  expect(() => openDatabase({ path, synchronous: 'NORMAL', migrationsDir: migrations, log: silentLogger })).toThrow(
    StartupError,
  );
  expect(isOwned(path)).toBe(false);
  const db = new Database(path);
  expect(db.prepare('SELECT count(*) FROM sqlite_master').pluck().get()).toBe(0);
  db.close();
  expect(existsSync(path)).toBe(true);
});

test('opening an up-to-date database again keeps its rows', async () => {
  const world = openWorld();
  const { id } = await storedSession(world);
  expect((await (await world.reopen()).store.sessions.record(id))?.id).toBe(id);
});

test('the write-ahead log is copied while the writer goes on, and closing leaves one whole file', async () => {
  const world = openWorld();
  for (let i = 0; i < 130; i++) await storedSession(world);
  // Far below `wal_autocheckpoint`, so that what stands in the file alone was copied by nobody else.
  const copied = () => {
    const alone = join(tempFolder(), 'alone.db');
    copyFileSync(world.path, alone);
    const db = new Database(alone);
    try {
      return db.prepare<[], number>('SELECT count(*) FROM sessions').pluck().get()!;
    } catch {
      // Taken in the middle of a copy.
      return 0;
    } finally {
      db.close();
    }
  };
  await expect.poll(copied, { timeout: 10_000 }).toBeGreaterThanOrEqual(64);
  world.handle.close();
  expect(existsSync(`${world.path}-wal`)).toBe(false);
  expect(copied()).toBe(130);
});

test('the thread that copies the log holds up no closing, not even when it cannot open the file, and stays away after it', async () => {
  const folder = tempFolder();
  const lines: LogLine[] = [];
  const gone = createCheckpointer(join(folder, 'missing', 'metis.db'), 'NORMAL', recordingLogger(lines));
  for (let i = 0; i < 64; i++) gone.committed();
  const began = performance.now();
  gone.close();
  expect(performance.now() - began).toBeLessThan(1500);
  for (let i = 0; i < 64; i++) gone.committed();
  // By the time the thread of another one has failed, so has any that was started before it.
  const others: LogLine[] = [];
  const other = createCheckpointer(join(folder, 'missing', 'metis.db'), 'NORMAL', recordingLogger(others));
  onTestFinished(() => other.close());
  for (let i = 0; i < 64; i++) other.committed();
  await expect.poll(() => others.length, { timeout: 10_000 }).toBe(1);
  // One thread was started, not another one after the closing.
  expect(lines.length).toBeLessThanOrEqual(1);
});

test('the thread that copies the log comes back after it has failed', async () => {
  const path = join(tempFolder(), 'later.db');
  const lines: LogLine[] = [];
  const checkpoints = createCheckpointer(path, 'NORMAL', recordingLogger(lines));
  onTestFinished(() => checkpoints.close());
  const commits = () => {
    for (let i = 0; i < 64; i++) checkpoints.committed();
  };
  commits();
  await expect.poll(() => lines.length, { timeout: 10_000 }).toBe(1);
  expect(lines[0]!.message).toContain('failed; the writer copies it');

  const db = new Database(path);
  onTestFinished(() => void db.close());
  db.pragma('journal_mode = WAL');
  db.exec('CREATE TABLE t (x); INSERT INTO t VALUES (1)');
  const size = () => statSync(path).size;
  const before = size();
  await expect
    .poll(
      () => {
        commits();
        return size();
      },
      { timeout: 10_000 },
    )
    .toBeGreaterThan(before);
  expect(lines).toHaveLength(1);
});

test('a named value that is missing is an error, not a NULL', () => {
  const tx = createTx(openWorld().handle.db);
  expect(() => tx.run('SELECT @a, @b', { a: 1 })).toThrow('no value for b');
  const found: unknown[] = [];
  tx.run('SELECT @a AS a, @b AS b, @a AS c', { a: 1, b: null, more: 2 }, ({ rows }) => {
    found.push(...rows);
  });
  expect(found).toEqual([{ a: 1, b: null, c: 1 }]);
});

test('no value is looked at while a statement is planned, so that the next one finds it planned', () => {
  const { handle } = openWorld();
  for (const db of [handle.db, handle.reader]) {
    const statement = db.prepare<[string, number, number], { n: number }>(
      'SELECT count(*) AS n FROM turns t JOIN sessions s ON s.id = t.session_id WHERE s.id = ? AND t.started_at >= ? LIMIT ?',
    );
    expect(statement.source).not.toMatch(/(= |LIMIT )\?/);
    expect(statement.get('sess_1', 0, 1)).toEqual({ n: 0 });
    const steps = db
      .prepare<[string, number, number], { detail: string }>(`EXPLAIN QUERY PLAN ${statement.source}`)
      .all('', 0, 1);
    expect(steps.map((step) => step.detail.replace(/ USING.*/, ''))).toEqual(['SEARCH s', 'SEARCH t']);
  }
});
