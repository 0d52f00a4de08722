// A data folder becomes the database of a cluster: `metis migrate` (16 §9).
import { spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import pg from 'pg';
import { describe, expect, onTestFinished, test } from 'vitest';
import { sha256Hex } from '#protocol/text/canonical-json.ts';
import { COPIED_OTHERWISE, listCopiedTables, OF_CLUSTER, selectRows } from '#store/postgres/transfer/tables.ts';
import { acquireOwnerLock } from '#store/sqlite/connection/database-file.ts';
import { migrate as migrateSqlite } from '#store/sqlite/connection/migrate.ts';
import { runHere } from '../app/here.ts';
import { ROOT, start } from '../app/metis.ts';
import { MIGRATIONS as SQLITE_MIGRATIONS } from '../store/sqlite/world.ts';
import { tempFolder } from '../support/engine.ts';
import { startPostgres } from '../support/postgres.ts';
import { type RealServer, startReal, startStrictFake } from '../support/real-server.ts';
import { registryAt } from '../support/registry-at.ts';
import { ownSchema, postgresService } from '../support/services.ts';
import { until } from '../support/until.ts';

const { url, missing } = await postgresService();
const MODEL = 'anthropic:claude-opus-4-7';
const usage = { input: 1234, output: 567 };

async function unlearnedTurns(database: string): Promise<number> {
  const client = new pg.Client({ connectionString: database });
  await client.connect();
  try {
    const { rows } = await client.query<{ n: string }>(
      'SELECT count(*) AS n FROM turns t WHERE NOT EXISTS (SELECT 1 FROM pattern_turns p WHERE p.turn_id = t.id)',
    );
    return Number(rows[0]!.n);
  } finally {
    await client.end();
  }
}

/** A server on SQLite that has run a planner with a worker, and a session without a turn; it is closed. */
async function filledFolder({ isOpen = false } = {}) {
  const root = tempFolder();
  const folder = path.join(tempFolder(), 'data');
  const workspace = path.join(root, 'app');
  fs.mkdirSync(workspace);
  let release = () => {};
  const held = new Promise<void>((resolve) => {
    release = resolve;
  });
  let asked = 0;
  const fake = await startStrictFake(async ({ tools, results, user }) => {
    if (user.includes('slowly') && ++asked === 1) await held;
    if (tools.includes('delegate') && results.length === 0)
      return { text: '', tool_calls: [{ name: 'delegate', input: { tier: 'fast', task: 'count' } }], usage };
    return { text: 'done', usage };
  });
  const registry = registryAt(fake);
  const server = await startReal({ folder, registry });
  const sessions = [await server.session(workspace, MODEL), await server.session(workspace, MODEL)];
  await server.turn(sessions[0]!, 'count the files');
  // What is learned of the planner's turn is stored after its end.
  await server.event('pattern.recorded', (event) => event.session_id === sessions[0]);
  await server.event('eval.completed', (event) => event.session_id === sessions[0]);
  const answers = await readAnswers(server, sessions);
  if (isOpen) {
    await server.call('POST', `/sessions/${sessions[1]}/turns`, { content: 'answer slowly' });
    await server.event('llm.call_started', (event) => event.session_id === sessions[1]);
  }
  await server.close();
  release();
  const schema = await ownSchema(url!);
  onTestFinished(() => schema.drop());
  const metis = (...args: string[]) =>
    runHere(['migrate', '--to', schema.url, '--data', folder, ...args], { home: path.dirname(folder) });
  const shared = ['--set', `cluster.shared_roots=["${root}"]`];
  const startNode = (address = schema.url) =>
    startReal({
      folder: path.join(tempFolder(), 'node'),
      registry,
      config: {
        database: { url: address },
        cluster: { name: schema.name, lease_seconds: 3, shared_roots: [root], node_name: 'a' },
      },
    });
  return {
    root,
    folder,
    file: path.join(folder, 'metis.db'),
    workspace,
    registry,
    sessions,
    answers,
    schema,
    metis,
    shared,
    startNode,
  };
}

/** What clients see of them. */
async function readAnswers(server: RealServer, sessions: readonly string[]): Promise<readonly unknown[]> {
  const targets = [
    '/sessions?include_workers=true',
    ...sessions.flatMap((id) => [`/sessions/${id}`, `/sessions/${id}/messages`, `/sessions/${id}/events`]),
    '/analytics/cost?from=all&group_by=model',
    '/analytics/cost?from=all&group_by=parent_session',
    '/analytics/cost?from=all',
  ];
  const answers: unknown[] = [];
  for (const target of targets) {
    const { status, body } = await server.call('GET', target);
    expect({ target, status }).toEqual({ target, status: 200 });
    const { generated_at: _at, to: _to, window: _window, ...rest } = body;
    answers.push({ target, ...rest });
  }
  return answers;
}

function change(file: string, sql: string): void {
  const db = new Database(file);
  db.exec(sql);
  db.close();
}

async function query(address: string, sql: string): Promise<pg.QueryResult> {
  const client = new pg.Client({ connectionString: address });
  await client.connect();
  try {
    return await client.query(sql);
  } finally {
    await client.end();
  }
}

/** Of the file alone: what lies beside it are locks. */
const readRows = (file: string) => {
  const db = new Database(file, { readonly: true });
  const rows = listCopiedTables(db).map((table) => db.prepare(selectRows(table, null)).safeIntegers().all());
  db.close();
  return rows;
};

describe.skipIf(url === null)(`metis migrate${missing && `, skipped: ${missing}`}`, () => {
  // Promise 16.28: A node on the copy answers as the server on the file did, and the copy agrees in every row.
  test('copies all of a data folder; a node on the copy answers as the server did, and goes on', async () => {
    const { file, metis, shared, answers, sessions, schema, workspace, startNode } = await filledFolder();
    const before = readRows(file);
    const moved = await metis(...shared, '--verify');
    expect(moved).toMatchObject({ code: 0, stderr: '' });
    expect(moved.stdout).toMatch(/\nledger_calls: 3 rows compared, cost \$0\.\d+/);
    expect(moved.stdout).toMatch(/\nsource and copy agree in every row; rollups and ledger agree\n$/);
    expect(readRows(file)).toEqual(before);
    const { rows: trees } = await query(
      schema.url,
      'SELECT root_session_id AS root, place, wanted FROM trees ORDER BY 1',
    );
    const place = `shared:${path.dirname(workspace)}`;
    expect(trees).toEqual(sessions.toSorted().map((root) => ({ root, place, wanted: false })));

    const node = await startNode();
    expect(await readAnswers(node, sessions)).toEqual(answers);
    for (const id of sessions) expect(await node.turn(id, 'again')).toMatchObject({ status: 'completed' });
    expect(await node.turn(await node.session(workspace, MODEL), 'new')).toMatchObject({ status: 'completed' });
  });

  // Promise 16.29: A killed copy goes on behind its last slice; until it is whole no node starts on it.
  test('a copy that was killed goes on behind its last slice, and no node starts before it is whole', async () => {
    const { folder, file, metis, shared, schema, startNode, sessions, answers } = await filledFolder();
    const many = 30_000;
    change(
      file,
      `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${many})
        INSERT INTO event_rows SELECT printf('00000000000000000000%06d', i), 1, 999, NULL, NULL, 1, 2, 1, 'a' || char(0) FROM n;
        INSERT INTO event_sessions VALUES (999, 'system_of_old')`,
    );
    const killed = start(['migrate', '--to', schema.url, '--data', folder, ...shared], { home: path.dirname(folder) });
    await killed.line(/event_rows: 4000 of \d+ rows/);
    await killed.stop('SIGKILL');
    const { rows } = await query(schema.url, 'SELECT count(*)::int AS n FROM event_rows');
    expect(rows[0].n).toBeGreaterThanOrEqual(4000);
    expect(rows[0].n).toBeLessThan(many);
    await expect(startNode()).rejects.toThrow(/migration_unfinished/);
    const env = { METIS_DATABASE_URL: schema.url };
    const doctor = await runHere(['doctor', '--port', '0'], { home: path.dirname(folder), env });
    expect(doctor).toMatchObject({ code: 1, stdout: expect.stringMatching(/^error +migration_unfinished: /m) });

    const resumed = await metis(...shared, '--verify');
    expect(resumed).toMatchObject({ code: 0, stderr: '' });
    expect(resumed.stdout).not.toMatch(/^sessions: \d+ rows$/m);
    expect(resumed.stdout).toContain(`${many} texts held U+0000`);
    expect((await metis(...shared)).stdout).toBe(
      `the database holds the whole copy already\n${many} texts held U+0000, which PostgreSQL cannot store; U+FFFD replaces it\n`,
    );
    const node = await startNode();
    expect(await readAnswers(node, sessions)).toEqual(answers);
  });

  // Promise 16.30: A file in use, a target with rows or of another source, and unshared workspaces are refused; verify finds a changed cent.
  test('refuses what it would lose, and finds a difference of one picodollar', async () => {
    const { folder, file, registry, metis, shared, schema, workspace } = await filledFolder();
    const refusal = async (...args: string[]) => {
      const { code, stdout, stderr } = await metis(...args);
      expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
      return stderr;
    };
    expect(await refusal()).toMatch(/^metis: workspace_not_shared: .*app; name a root.*\n$/);
    const server = await startReal({ folder, registry });
    expect(await refusal(...shared)).toMatch(/^metis: database_in_use: .*\n$/);
    await server.close();
    // As a second copy of the same file finds it.
    const { release } = acquireOwnerLock(file);
    expect(await refusal(...shared)).toMatch(
      /^metis: database_in_use: .* or by a command that copies it \(metis migrate/,
    );
    release();

    expect((await metis('--set', 'cluster.local_workspaces=true', '--set', 'cluster.node_name=one')).code).toBe(0);
    const { rows: places } = await query(schema.url, 'SELECT DISTINCT place FROM trees');
    expect(places).toEqual([{ place: 'node:one' }]);
    await query(
      schema.url,
      'UPDATE ledger_calls SET cost_pusd = cost_pusd + 1 WHERE seq = (SELECT min(seq) FROM ledger_calls)',
    );
    const verified = await metis(...shared, '--verify');
    expect(verified.code).toBe(1);
    expect(verified.stdout).toMatch(/^ledger_calls \d+: cost_pusd differs$/m);

    const other = await startReal({ folder, registry });
    await other.session(workspace, MODEL);
    await other.close();
    expect(await refusal(...shared)).toMatch(/^metis: database_not_empty: .*another file.*\n$/);
    await query(schema.url, "DELETE FROM meta WHERE key = 'copied_from'");
    expect(await refusal(...shared)).toMatch(/^metis: database_not_empty: .* has rows in \w+; .*\n$/);
    change(file, 'PRAGMA user_version = 3');
    expect(await refusal(...shared)).toMatch(/^metis: database_not_migrated: .*\n$/);
  });

  // Promise 16.28: A turn that was open is taken up by a node, and identity columns go on behind the copied numbers.
  test('an address without its password, or of a schema that is not there, is refused with the cure', async () => {
    const { metis, shared, schema } = await filledFolder();
    const nowhere = new URL(schema.url);
    nowhere.searchParams.set('options', '-csearch_path=no_such_schema');
    const lost = await metis(...shared, '--to', nowhere.href);
    expect(lost).toMatchObject({ code: 1, stdout: '' });
    expect(lost.stderr).toMatch(
      /^metis: database_refused: .*no_such_schema exists; create it with CREATE SCHEMA, .*\n$/,
    );

    const server = await startPostgres();
    const { rows } = await query(server.url, 'SHOW hba_file');
    fs.writeFileSync(rows[0].hba_file, 'host all all 127.0.0.1/32 scram-sha-256\n');
    await query(server.url, "ALTER ROLE postgres PASSWORD 'of the owner'");
    await query(server.url, 'SELECT pg_reload_conf()');
    const asks = /^metis: database_refused: .*it asks for a password, .*\n$/;
    await until(async () => asks.test((await metis(...shared, '--to', server.url)).stderr));
    const known = new URL(server.url);
    known.password = 'of the owner';
    expect(await metis(...shared, '--to', known.href, '--verify')).toMatchObject({ code: 0, stderr: '' });
  });

  test('a turn that was open goes on at a node, and numbers go on behind those of the file', async () => {
    const { metis, shared, schema, sessions, startNode } = await filledFolder({ isOpen: true });
    expect((await metis(...shared, '--verify')).code).toBe(0);
    const { rows: trees } = await query(schema.url, 'SELECT root_session_id AS root FROM trees WHERE wanted');
    expect(trees).toEqual([{ root: sessions[1] }]);
    const { rows: before } = await query(schema.url, 'SELECT max(seq)::int AS seq FROM ledger_calls');
    const node = await startNode();
    await node.event('turn.completed', (event) => event.session_id === sessions[1]);
    const { rows: after } = await query(schema.url, 'SELECT max(seq)::int AS seq FROM ledger_calls');
    expect(after[0].seq).toBeGreaterThan(before[0].seq);
  });

  test('what a webhook receiver was not sent yet waits in the database', async () => {
    const { file, metis, shared, schema } = await filledFolder();
    const receiver = 'http://127.0.0.1:9/hook';
    const place = `notify:${sha256Hex(receiver)}`;
    const db = new Database(file);
    const events = db
      .prepare("SELECT id FROM events WHERE type = 'turn.completed' ORDER BY id")
      .pluck()
      .all() as string[];
    db.prepare('INSERT INTO meta (key, value) VALUES (?, ?)').run(place, events[0]!);
    db.close();
    expect(events.length).toBeGreaterThan(1);
    const receivers = [receiver, 'http://127.0.0.1:9/new'].map((url) => ({ url, events: ['turn.completed'] }));
    expect(await metis(...shared, '--set', `notify=${JSON.stringify(receivers)}`)).toMatchObject({ code: 0 });
    const { rows } = await query(schema.url, 'SELECT receiver, event_id AS id FROM notices ORDER BY event_id');
    expect(rows).toEqual(events.slice(1).map((id) => ({ receiver: place, id })));
    const { rows: places } = await query(schema.url, "SELECT key FROM meta WHERE key LIKE 'notify:%'");
    expect(places).toEqual([]);
  });

  const toFolder = (schemaUrl: string, folder: string) =>
    [
      ['migrate', '--to', `sqlite:${folder}`],
      { home: path.dirname(folder), env: { METIS_DATABASE_URL: schemaUrl } },
    ] as const;
  const copyOut = (schemaUrl: string, folder: string, ...args: string[]) => {
    const [command, options] = toFolder(schemaUrl, folder);
    return runHere([...command, ...args], options);
  };
  /** Of `meta`, what a copy takes along. */
  const readMeta = (file: string) => {
    const db = new Database(file, { readonly: true });
    const rows = db
      .prepare("SELECT key, value FROM meta WHERE key NOT IN ('learning_cursor', 'copied_from') ORDER BY key")
      .all();
    db.close();
    return rows;
  };

  // Promise 16.36: A file that goes into PostgreSQL and back is the same in every row; a server on a copy of a cluster's database answers as its nodes do.
  test('a file comes back out of PostgreSQL as it was, and a copy of a running cluster answers as its nodes do', async () => {
    const { file, registry, metis, shared, sessions, schema, workspace, startNode } = await filledFolder();
    change(file, "INSERT INTO meta (key, value) VALUES ('pruned_through_id', '00000000000000000000000001')");
    expect(await metis(...shared)).toMatchObject({ code: 0 });
    const back = path.join(tempFolder(), 'back');
    const copied = await copyOut(schema.url, back, '--verify');
    expect(copied).toMatchObject({ code: 0, stderr: '' });
    expect(copied.stdout).toMatch(/\nledger_calls: 3 rows compared, cost \$0\.\d+/);
    expect(copied.stdout).toMatch(/\nsource and copy agree in every row; rollups and ledger agree\n$/);
    const copy = path.join(back, 'metis.db');
    expect(readRows(copy)).toEqual(readRows(file));
    expect(readMeta(copy)).toEqual(readMeta(file));
    expect(fs.readdirSync(back).sort()).toEqual(['metis.db', 'metis.db-owner']);
    expect(fs.statSync(copy).mode & 0o077).toBe(0);
    expect(await copyOut(schema.url, back)).toMatchObject({
      code: 0,
      stdout: 'the database holds the whole copy already\n',
    });

    const node = await startNode();
    const made = await node.session(workspace, MODEL);
    for (const id of [...sessions, made]) expect(await node.turn(id, 'again')).toMatchObject({ status: 'completed' });
    // What is learned of a turn is stored after its end.
    await until(async () => (await unlearnedTurns(schema.url)) === 0);
    const later = path.join(tempFolder(), 'later');
    expect(await copyOut(schema.url, later, '--verify')).toMatchObject({ code: 0, stderr: '' });
    const answers = await readAnswers(node, [...sessions, made]);
    await node.close();
    const server = await startReal({ folder: later, registry });
    expect(await readAnswers(server, [...sessions, made])).toEqual(answers);
    expect(await server.turn(made, 'and here')).toMatchObject({ status: 'completed' });
    expect((await runHere(['rollups', 'verify', '--data', later], { home: later })).code).toBe(0);
  });

  // Promise 16.37: A copy into a folder that was killed goes on behind its last slice; nothing has the name of a database before it is whole; what it would lose or overwrite is refused.
  test('a copy into a folder goes on where it was killed, begins again after a change, and overwrites nothing', async () => {
    const { folder, file, metis, shared, schema } = await filledFolder();
    const many = 60_000;
    change(
      file,
      `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${many})
        INSERT INTO event_rows SELECT printf('00000000000000000000%06d', i), 1, 999, NULL, NULL, 1, 2, 1, 'a' FROM n;
        INSERT INTO event_sessions VALUES (999, 'system_of_old')`,
    );
    expect(await metis(...shared)).toMatchObject({ code: 0 });
    const back = path.join(tempFolder(), 'back');
    const interrupt = async () => {
      const killed = start(...toFolder(schema.url, back));
      await killed.line(/event_rows: [4-9]\d{3} of \d+ rows/);
      await killed.stop('SIGKILL');
      expect(fs.existsSync(path.join(back, 'metis.db'))).toBe(false);
      const part = new Database(path.join(back, 'metis.db-unfinished'));
      const rows = part.prepare<[], number>('SELECT count(*) FROM event_rows').pluck().get()!;
      part.close();
      expect(rows).toBeGreaterThan(4000);
      expect(rows).toBeLessThan(many);
    };
    await interrupt();
    const resumed = await copyOut(schema.url, back, '--verify');
    expect(resumed).toMatchObject({ code: 0, stderr: '' });
    expect(resumed.stdout).not.toMatch(/^sessions: \d+ rows$/m);
    expect(readRows(path.join(back, 'metis.db'))).toEqual(readRows(file));

    fs.rmSync(back, { recursive: true });
    await interrupt();
    await query(
      schema.url,
      'UPDATE ledger_calls SET cost_pusd = cost_pusd + 1000000000000000 WHERE seq = (SELECT min(seq) FROM ledger_calls)',
    );
    const changed = await copyOut(schema.url, back, '--verify');
    expect(changed.stdout).toMatch(/^sessions: \d+ rows$/m);
    expect(changed.code).toBe(1);
    // Every row is that of the source; its sums are not those of its ledger.
    expect(changed.stdout).toMatch(/^rollup_\w+ .*$/m);
    expect(changed.stdout).not.toMatch(/ differs$/m);
    change(path.join(back, 'metis.db'), 'UPDATE turns SET started_at = started_at + 1');
    const found = await copyOut(schema.url, back, '--verify');
    expect(found.code).toBe(1);
    expect(found.stdout).toMatch(/^turns \w+: started_at differs$/m);

    const refusal = async (...args: Parameters<typeof copyOut>) => {
      const { code, stdout, stderr } = await copyOut(...args);
      expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
      return stderr;
    };
    expect(await refusal(schema.url, folder)).toMatch(/^metis: database_not_empty: .*metis\.db exists; .*\n$/);
    const { code, stderr } = await runHere(['migrate', '--to', `sqlite:${folder}`], { home: folder });
    expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringMatching(/^metis: database\.url is not set; /) });
    await query(schema.url, "UPDATE meta SET value = '3' WHERE key IN ('schema_version', 'compatible_from')");
    expect(await refusal(schema.url, path.join(back, 'new'))).toMatch(/^metis: database_not_migrated: /);
    await query(schema.url, "UPDATE meta SET value = '999' WHERE key = 'schema_version'");
    expect(await refusal(schema.url, path.join(back, 'new'))).toMatch(/^metis: schema_too_new: /);
  });

  // Promise 16.38: The commands of the page on a backup of PostgreSQL: a node on the restored database answers as the old one would, and completes the open turn.
  test.skipIf(spawnSync('pg_dump', ['--version']).status !== 0)(
    'a backup of PostgreSQL by the commands of the page is restored, and a node goes on with it',
    async () => {
      const { folder, shared, sessions, answers, startNode } = await filledFolder({ isOpen: true });
      const home = tempFolder();
      const [lost, restored] = ['lost', 'restored'].map(
        (name) => `metis_test_${name}_${randomBytes(4).toString('hex')}`,
      );
      for (const name of [lost!, restored!])
        onTestFinished(async () => void (await query(url!, `DROP DATABASE IF EXISTS ${name} WITH (FORCE)`)));
      const addressOf = (name: string) => Object.assign(new URL(url!), { pathname: `/${name}` }).href;
      await query(url!, `CREATE DATABASE ${lost}`);
      const copied = await runHere(['migrate', '--to', addressOf(lost!), '--data', folder, ...shared], { home });
      expect(copied).toMatchObject({ code: 0, stderr: '' });

      const { hostname, port, username, password } = new URL(url!);
      const server = { PGHOST: hostname, PGPORT: port, PGUSER: username, PGPASSWORD: password };
      const follow = (block: string, database: string) => {
        const text = block
          .replaceAll('postgres://metis:PASSWORD@db.internal:5432/metis_restored', addressOf(restored!))
          .replaceAll('metis_restored', restored!)
          .replaceAll('--owner metis ', `--owner ${username} `);
        const metis = `metis() { "${process.execPath}" "${path.join(ROOT, 'dist/main.js')}" "$@"; }`;
        const env = { PATH: process.env.PATH, HOME: home, METIS_DATABASE_URL: addressOf(database), ...server };
        const { status, stdout, stderr } = spawnSync('sh', ['-ec', `${metis}\n${text}`], {
          cwd: home,
          env,
          encoding: 'utf8',
        });
        expect({ text, status, stderr }).toEqual({ text, status: 0, stderr: '' });
        return stdout;
      };
      const page = fs.readFileSync(path.join(ROOT, 'docs/operations.md'), 'utf8');
      const section = page.slice(page.indexOf('\n### Backup of PostgreSQL'), page.indexOf('\n### Retention'));
      const [save, bring, ...rest] = [...section.matchAll(/^```text\n([\s\S]*?)^```/gm)].map((match) => match[1]!);
      expect(rest).toEqual([]);
      follow(save!, lost!);
      await query(url!, `DROP DATABASE ${lost} WITH (FORCE)`);
      // The environment has the old address still: the page names the new one.
      expect(follow(bring!, lost!)).toMatch(/rollups and ledger agree: [1-9]\d* calls/);

      const node = await startNode(addressOf(restored!));
      await node.event('turn.completed', (event) => event.session_id === sessions[1]);
      const found = await readAnswers(node, sessions);
      // Of the session without an open turn: the costs of the other one have grown.
      expect(found.slice(1, 4)).toEqual(answers.slice(1, 4));
      expect(await node.turn(sessions[0]!, 'again')).toMatchObject({ status: 'completed' });
    },
  );

  // Promise 16.28: No table is forgotten: each is copied, or named with the reason why not.
  test('every table of both databases is copied, or named with its reason', async () => {
    const schema = await ownSchema(url!);
    onTestFinished(() => schema.drop());
    const { migrate } = await import('#store/postgres/connection/open.ts');
    await migrate(schema.url, path.resolve(SQLITE_MIGRATIONS, 'postgres'));
    const { rows } = await query(
      schema.url,
      'SELECT tablename AS name FROM pg_tables WHERE schemaname = current_schema()',
    );
    const db = new Database(':memory:');
    migrateSqlite(db, ':memory:', SQLITE_MIGRATIONS, () => {});
    const tables = listCopiedTables(db);
    expect(
      [...tables.map(({ name }) => name), ...Object.keys(COPIED_OTHERWISE), ...Object.keys(OF_CLUSTER)].sort(),
    ).toEqual(rows.map(({ name }) => name).sort());
    // Every table has a key to copy along, and stands behind those it refers to.
    for (const [at, table] of tables.entries()) {
      expect({ table: table.name, key: table.key.length > 0 }).toEqual({ table: table.name, key: true });
      const targets = db
        .prepare<[], string>(`SELECT "table" FROM pragma_foreign_key_list('${table.name}')`)
        .pluck()
        .all();
      for (const target of targets) expect(tables.findIndex(({ name }) => name === target)).toBeLessThanOrEqual(at);
    }
  });
});
