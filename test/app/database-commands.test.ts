// The commands that work on the database file: a copy that can be restored, old events that go, sums that agree.
import fs from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { script } from '../crash/script.ts';
import { type Json, startWorld, type World } from '../crash/world.ts';

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
  // Promise 17.7: A backup beside a server under load opens, verifies clean and can be restored.
  it('beside a server at work copies one moment, which opens, verifies, and can be restored', async () => {
    const server = await world.serve();
    const before = await oneTurn();
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
    const last = new Database(copies.at(-1)!, { readonly: true });
    const turns = last.prepare('SELECT id, session_id FROM turns').all() as Json[];
    const cost = last.prepare('SELECT sum(cost_pusd) FROM llm_calls WHERE root_session_id = ?').pluck().get(before);
    last.close();

    // As the manual says: stop, put the copy in the place of the database and its companions, start.
    await server.stop('SIGTERM');
    for (const suffix of ['', '-wal', '-shm']) fs.rmSync(path.join(world.data, `metis.db${suffix}`), { force: true });
    fs.renameSync(copies.at(-1)!, path.join(world.data, 'metis.db'));
    await world.serve();
    for (const turn of turns) expect((await world.ended(turn.session_id, turn.id)).status).toBe('completed');
    const { cost_so_far_usd, workers_cost_usd } = await world.ask('GET', `/sessions/${before}`);
    expect(Math.round((Number(cost_so_far_usd) + Number(workers_cost_usd)) * 1e12)).toBe(cost);
  });

  it('never writes over a file, and leaves none behind when it fails', async () => {
    await (await world.serve()).stop('SIGTERM');
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
    await (await world.serve(...held)).stop('SIGTERM');
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
    await world.serve(...held);
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
    await (await world.serve()).stop('SIGTERM');
    expect(await world.command('prune', '--days', '1')).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^deleted 0 events .*oldest kept: none\n$/),
    });
    expect((await world.command('prune', '--days', '0')).code).toBe(2);
    const forever = await world.command('prune', '--set', 'trace.retention_days=null');
    expect(forever).toMatchObject({ code: 1, stderr: expect.stringMatching(/--days is required/) });
    await world.serve();
    const elsewhere = await world.command('prune', '--days', '1', '--server', 'http://127.0.0.1:9');
    expect(elsewhere).toMatchObject({ code: 1, stderr: expect.stringMatching(/nothing answers at .*--server/) });
  });
});

describe('metis rollups', () => {
  it('verify prints what differs, rebuild mends it, and both leave a running server alone', async () => {
    const server = await world.serve();
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
