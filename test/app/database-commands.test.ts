// The commands that work on the database file: a copy that can be restored, old events that go, sums that agree.
import fs from 'node:fs';
import path from 'node:path';
import { gunzipSync } from 'node:zlib';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { fromPusd } from '#protocol/money.ts';
import { script } from '../crash/script.ts';
import { type Json, startWorld, type World } from '../crash/world.ts';
import { ROOT } from './metis.ts';

const DAY = 86_400_000;
const delegate = { name: 'delegate', input: { tier: 'fast', task: 'the job' } };
const usage = { input: 1000, output: 100 };

let world: World;
let said: ReturnType<typeof script>;
beforeEach(async () => {
  said = script({
    'planner 0': { tool_calls: [delegate, delegate], usage },
    'worker 0': { tool_calls: [{ name: 'list_files', input: {} }], usage },
  });
  world = await startWorld(said.answer);
});
afterEach(() => world.close());

async function oneTurn(): Promise<string> {
  const id = await world.session();
  expect((await world.ended(id, await world.submit(id, 'go'))).status).toBe('completed');
  return id;
}
function change(file: string, ...statements: string[]): void {
  const db = new Database(file);
  for (const sql of statements) db.exec(sql);
  db.close();
}
const eventIds = () => world.rows<{ id: string }>('SELECT id FROM events ORDER BY id').map(({ id }) => id);

describe('metis backup', () => {
  // Promise 17.7: A backup beside a server under load opens and verifies clean.
  it('beside a server at work copies one moment, which opens and verifies', async () => {
    const server = await world.serveHere();
    await oneTurn();
    let working = true;
    const load = Promise.all(
      Array.from({ length: 4 }, async () => {
        while (working) await oneTurn();
      }),
    );
    const copies: string[] = [];
    for (const name of ['one.db', 'two.db', 'three.db']) {
      const copy = path.join(world.home, name);
      expect(await world.command('backup', copy)).toMatchObject({ code: 0, stderr: '' });
      copies.push(copy);
    }
    working = false;
    await load;
    for (const copy of copies) {
      const verified = await world.command('rollups', 'verify', '--set', `storage.db_path=${copy}`);
      expect(verified).toMatchObject({ code: 0, stdout: expect.stringMatching(/agree: [1-9]\d* calls/) });
      expect(fs.statSync(copy).mode & 0o077).toBe(0);
    }
    await server.stop('SIGTERM');
  });

  it('never writes over a file, and leaves none behind when it fails', async () => {
    await (await world.serveHere()).stop('SIGTERM');
    const taken = path.join(world.home, 'taken.db');
    fs.writeFileSync(taken, 'precious');
    const refused = await world.command('backup', taken);
    expect(refused).toMatchObject({
      code: 1,
      stdout: '',
      stderr: expect.stringMatching(/^metis: .*taken\.db exists already; .*\n$/),
    });
    expect(fs.readFileSync(taken, 'utf8')).toBe('precious');
    const broken = path.join(world.home, 'broken.db');
    fs.writeFileSync(broken, 'no database at all, but longer than its header would be');
    const target = path.join(world.home, 'copy.db');
    expect((await world.command('backup', target, '--set', `storage.db_path=${broken}`)).code).toBe(1);
    expect(fs.existsSync(target)).toBe(false);
    expect((await world.command('backup', target, '--set', 'storage.db_path=/nowhere/metis.db')).stderr).toMatch(
      /no database at/,
    );
  });
});

describe('metis restore', () => {
  const list = (folder: string) => fs.readdirSync(folder).sort();
  const totals = (file: string) => {
    const db = new Database(file, { readonly: true });
    const rows = db
      .prepare('SELECT model, count(*) AS calls, sum(cost_pusd) AS pusd FROM llm_calls GROUP BY model ORDER BY model')
      .safeIntegers()
      .all() as { model: string; calls: bigint; pusd: bigint }[];
    db.close();
    return rows.map(({ model, calls, pusd }) => ({ model, calls: Number(calls), cost_usd: fromPusd(pusd) }));
  };
  const reported = async () =>
    ((await world.ask('GET', '/analytics/cost?group_by=model&from=all')).data as Json[])
      .map(({ model, call_count, cost_usd }) => ({ model, calls: call_count, cost_usd }))
      .sort((a, b) => (a.model < b.model ? -1 : 1));

  // Promise 17.14: A server on a new folder, restored from a backup of a server under load, has the sums of the backup and resumes its open turns.
  it('a server under load is lost; on another folder its backup has the same sums, and open turns go on', async () => {
    const server = await world.serve();
    await oneTurn();
    const held = await world.session();
    const gate = said.hold('planner 0');
    const heldTurn = await world.submit(held, 'hold on');
    await gate.arrived;
    let working = true;
    const load = Promise.all(
      Array.from({ length: 4 }, async () => {
        while (working) await oneTurn();
      }),
    );
    await oneTurn();
    const copy = path.join(world.home, 'copy.db');
    expect(await world.command('backup', copy)).toMatchObject({ code: 0, stderr: '' });
    working = false;
    await load;
    await server.stop('SIGKILL');
    gate.release();

    // The folder is lost with what came after the backup; the new one has no database, and is not even there yet.
    fs.rmSync(world.data, { recursive: true });
    const restored = await world.command('restore', copy);
    expect(restored).toMatchObject({ code: 0, stderr: '' });
    expect(restored.stdout).toMatch(/metis\.db: [1-9]\d* sessions, [1-9]\d* calls, [1-9]\d* open turns, a copy of /);
    expect(list(world.data)).toEqual(['metis.db', 'metis.db-owner']);
    expect(fs.statSync(path.join(world.data, 'metis.db')).mode & 0o077).toBe(0);
    expect(totals(path.join(world.data, 'metis.db'))).toEqual(totals(copy));
    const turns = world.rows('SELECT id, session_id, status FROM turns');
    expect(turns).toContainEqual({ id: heldTurn, session_id: held, status: 'in_flight' });

    const paused = await world.serveHere('--set', 'recovery.on_start=hold');
    expect(await reported()).toEqual(totals(copy));
    await paused.stop('SIGTERM');
    await world.serveHere();
    for (const turn of turns) expect((await world.ended(turn.session_id, turn.id)).status).toBe('completed');
    await oneTurn();
    const verified = await world.command('rollups', 'verify');
    expect(verified).toMatchObject({ code: 0, stdout: expect.stringMatching(/agree: [1-9]\d* calls/) });
    expect((await reported()).reduce((sum, { calls }) => sum + calls, 0)).toBe(
      Number(/agree: (\d+)/.exec(verified.stdout)![1]),
    );
  });

  // Promise 17.14: A folder in use or with a database, and a file that is damaged, newer, foreign or no backup are refused, and nothing is written.
  it('refuses a folder in use or with a database, and what is no sound backup, and writes nothing', async () => {
    const server = await world.serveHere();
    await oneTurn();
    const copy = path.join(world.home, 'copy.db');
    await world.command('backup', copy);
    const refusal = async (file: string) => {
      const { code, stdout, stderr } = await world.command('restore', file);
      expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
      return stderr;
    };
    expect(await refusal(copy)).toMatch(
      /^metis: database_in_use: .*metis\.db is in use by a running server, or by a command .*\n$/,
    );
    await server.stop('SIGTERM');
    const before = list(world.data);
    expect(await refusal(copy)).toMatch(/^metis: database_not_empty: .*metis\.db exists; name a folder .*\n$/);
    expect(list(world.data)).toEqual(before);
    // A log belongs to the database that was there: it would be read into the restored one.
    fs.rmSync(path.join(world.data, 'metis.db'));
    fs.writeFileSync(path.join(world.data, 'metis.db-journal'), 'of another database');
    expect(await refusal(copy)).toMatch(/^metis: database_not_empty: .*metis\.db-journal exists; /);
    fs.rmSync(world.data, { recursive: true });

    const made = (name: string, write: (file: string) => void) => {
      const file = path.join(world.home, name);
      write(file);
      return file;
    };
    const damaged = made('damaged.db', (file) => {
      fs.copyFileSync(copy, file);
      const opened = fs.openSync(file, 'r+');
      const size = fs.statSync(file).size;
      for (let at = 8192; at < size; at += 8192) fs.writeSync(opened, Buffer.alloc(600, 7), 0, 600, at);
      fs.closeSync(opened);
    });
    const newer = made('newer.db', (file) => {
      fs.copyFileSync(copy, file);
      change(file, 'PRAGMA user_version = 999');
    });
    const foreign = made('foreign.db', (file) => change(file, 'CREATE TABLE other (a)'));
    const bare = made('bare.db', (file) => change(file, 'VACUUM'));
    const text = made('text.db', (file) => fs.writeFileSync(file, 'no database at all, but longer than its header'));
    const nothing = made('nothing.db', (file) => fs.writeFileSync(file, ''));
    expect(await refusal(damaged)).toMatch(/^metis: database_corrupt: .*damaged\.db /);
    expect(await refusal(newer)).toMatch(/^metis: schema_too_new: .*newer\.db has schema 999, /);
    expect(await refusal(foreign)).toMatch(/^metis: database_corrupt: .* tables of another program/);
    expect(await refusal(bare)).toMatch(/^metis: (database_corrupt: )?.*bare\.db (holds no sessions|is empty); /);
    expect(await refusal(text)).toMatch(/^metis: database_corrupt: .*text\.db is not a readable database/);
    expect(await refusal(nothing)).toMatch(/^metis: .*nothing\.db is empty; name a file that metis backup wrote\n$/);
    expect(await refusal(world.home)).toMatch(/^metis: .* is not a file; /);
    expect(await refusal('absent.db')).toMatch(/^metis: .*absent\.db does not exist; /);
    expect(fs.existsSync(path.join(world.data, 'metis.db'))).toBe(false);
    if (fs.existsSync(world.data)) expect(list(world.data)).toEqual(['metis.db-owner']);

    // What a killed attempt left is written anew.
    fs.mkdirSync(world.data, { recursive: true });
    fs.writeFileSync(path.join(world.data, 'metis.db-unfinished'), 'a part');
    expect((await world.command('restore', copy)).code).toBe(0);
    expect(list(world.data)).toEqual(['metis.db', 'metis.db-owner']);
  });

  // Promise 17.14: A backup of an earlier version is restored, and the start of the server brings it forward.
  it('restores what an earlier version wrote; the server brings it forward', async () => {
    const old = path.join(world.home, 'old.db');
    fs.writeFileSync(old, gunzipSync(fs.readFileSync(path.join(ROOT, 'test/fixtures/0.1.0.db.gz'))));
    const restored = await world.command('restore', old);
    expect(restored).toMatchObject({ code: 0, stderr: '' });
    const [, sessions] = /: (\d+) sessions, [1-9]\d* calls, /.exec(restored.stdout)!;
    await world.serveHere('--set', 'recovery.on_start=hold');
    expect(world.rows('SELECT id FROM sessions')).toHaveLength(Number(sessions));
    expect((await world.command('rollups', 'verify')).code).toBe(0);
  });
});

describe('metis prune', () => {
  /** Two sessions whose events are a year old, one of them with an open turn, and one of today. */
  async function oldAndNew() {
    const first = await world.serve();
    const old = await oneTurn();
    const open = await oneTurn();
    const gate = said.hold('planner 0');
    await world.submit(open, 'again');
    await gate.arrived;
    const fresh = await oneTurn();
    await first.stop('SIGKILL');
    change(
      path.join(world.data, 'metis.db'),
      `UPDATE event_rows SET timestamp_ms = timestamp_ms - ${365 * DAY} WHERE id IN (
        SELECT e.id FROM events e JOIN sessions s ON s.id = e.session_id WHERE s.root_session_id IN ('${old}', '${open}'))`,
    );
    return { old, open, fresh };
  }
  const counts = (stdout: string) => /(\d+) events older than .*; (\d+) sessions/.exec(stdout)!.slice(1);

  // Promise 02.11: Prune deletes old events of sessions at rest, a dry run counts the same, costs stay, and a running server does it itself.
  // Promise 17.7: Prune with and without a running server deletes the same rows.
  it('deletes the same rows with a server and without one, and a dry run counts them', async () => {
    const { open } = await oldAndNew();
    const held = ['--set', 'recovery.on_start=hold'];
    await (await world.serveHere(...held)).stop('SIGTERM');
    const copy = path.join(world.home, 'copy.db');
    await world.command('backup', copy);
    const all = eventIds();

    const dry = await world.command('prune', '--days', '30', '--dry-run');
    expect(dry).toMatchObject({ code: 0, stderr: '', stdout: expect.stringMatching(/^would delete [1-9]/) });
    expect(eventIds()).toEqual(all);
    const offline = await world.command('prune', '--days', '30');
    expect(offline).toMatchObject({ code: 0, stdout: expect.stringMatching(/^deleted [1-9]/) });
    expect(counts(offline.stdout)).toEqual(counts(dry.stdout));
    const left = eventIds();
    expect(all.length - left.length).toBe(Number(counts(offline.stdout)[0]));

    for (const suffix of ['', '-wal', '-shm']) fs.rmSync(path.join(world.data, `metis.db${suffix}`), { force: true });
    fs.renameSync(copy, path.join(world.data, 'metis.db'));
    await world.serveHere(...held);
    const cost = await world.ask('GET', '/analytics/cost?group_by=model&from=all');
    const through = await world.command('prune', '--days', '30', '--dry-run');
    expect(counts(through.stdout)).toEqual(counts(dry.stdout));
    expect(eventIds()).toEqual(all);
    expect((await world.command('prune', '--days', '30')).stdout).toMatch(/^deleted/);
    expect(eventIds()).toEqual(left);
    const kept = world.rows<{ n: number }>('SELECT count(*) AS n FROM events WHERE session_id = ?', open);
    expect(kept[0]!.n).toBeGreaterThan(0);
    expect((await world.ask('GET', '/analytics/cost?group_by=model&from=all')).data).toEqual(cost.data);
  });

  // Promise 02.11: Prune of an empty database deletes nothing and names no oldest event.
  it('of an empty database deletes nothing, and says what is wrong with its input', async () => {
    await (await world.serveHere()).stop('SIGTERM');
    expect(await world.command('prune', '--days', '1')).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^deleted 0 events .*oldest kept: none\n$/),
    });
    expect((await world.command('prune', '--days', '0')).code).toBe(2);
    const forever = await world.command('prune', '--set', 'trace.retention_days=null');
    expect(forever).toMatchObject({ code: 1, stderr: expect.stringMatching(/--days is required/) });
    await world.serveHere();
    const elsewhere = await world.command('prune', '--days', '1', '--server', 'http://127.0.0.1:9');
    expect(elsewhere).toMatchObject({ code: 1, stderr: expect.stringMatching(/nothing answers at .*--server/) });
  });
});

describe('metis rollups', () => {
  it('verify prints what differs, rebuild mends it, and both leave a running server alone', async () => {
    const server = await world.serveHere();
    await oneTurn();
    const refused = await world.command('rollups', 'rebuild');
    expect(refused).toMatchObject({ code: 1, stderr: expect.stringMatching(/database_in_use/) });
    expect((await world.command('rollups', 'verify')).code).toBe(0);
    await server.stop('SIGTERM');
    const sums = () => world.rows('SELECT * FROM rollup_session_hour ORDER BY 1, 2, 3, 4, 5');
    const before = sums();
    change(
      path.join(world.data, 'metis.db'),
      'UPDATE rollup_session_hour SET cost_pusd = cost_pusd + 1',
      'DELETE FROM rollup_parent_day',
    );
    const differs = await world.command('rollups', 'verify');
    expect(differs.code).toBe(1);
    expect(differs.stdout).toMatch(/^rollup_session_hour .*\n/m);
    expect(differs.stdout).toMatch(/^rollup_parent_day lacks .*\n/m);
    expect((await world.command('rollups', 'rebuild')).code).toBe(0);
    expect(sums()).toEqual(before);
    expect((await world.command('rollups', 'verify')).code).toBe(0);
  });
});
