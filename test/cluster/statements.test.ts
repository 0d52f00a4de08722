// What a node says to PostgreSQL for a turn and when nothing happens, which its speed stands on (16 §4.2, §14).
// `METIS_ROOM=full` measures it beside SQLite, with the benchmark.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { ROOT } from '../app/metis.ts';
import { startNodes } from '../support/nodes.ts';
import { allEnded, pause } from '../support/planned-work.ts';
import { postgresService } from '../support/services.ts';
import { listenIn } from '../support/spoken.ts';
import { until } from '../support/until.ts';

const { url, missing } = await postgresService();

const MEASURED = process.env.METIS_ROOM === 'full';
vi.setConfig({ testTimeout: MEASURED ? 1_200_000 : 120_000 });

const TURNS = 10;
/** Two commits of 5 and 11 (one more adds the money of people, where there are any), eight reads for whoever waits for its answer. */
const MOST_A_TURN = 24;
/** Each of the reads, and each commit. */
const MOST_TRIPS_A_TURN = 11;
const FENCE = /^WITH changed AS \(UPDATE trees SET seq/;
/** Look, heartbeat, nodes, tokens, settings of a connection. */
const UPKEEP = /FROM trees WHERE owner_node|^UPDATE nodes|FROM nodes|FROM tokens ORDER BY name|set_config/;
const IDLE_MS = 3000;
/** One look a sweep, one heartbeat a fifth of the lease, one read of the nodes; and room for a slow machine's second. */
const MOST_IDLE = 7;
/** Share of SQLite's turns a second, by how many sessions are at work. */
const WANTED = { 16: 0.6, 64: 0.4 };

function split<T>(all: readonly T[], test: (one: T) => boolean): [T[], T[]] {
  return [all.filter(test), all.filter((one) => !test(one))];
}

describe.skipIf(url === null)(`statements of a node${missing && `, skipped: ${missing}`}`, () => {
  // Promise 16.16: a plain turn on PostgreSQL is two commits in few statements, each in one round trip, an idle node one look a second.
  test('a plain turn is two commits of one round trip in few statements; an idle node looks once a second, and locks nothing', async () => {
    const set = { 'cluster.lease_seconds': 15, 'pattern.mode': 'off', 'eval.disabled': true };
    const nodes = await startNodes({ database: url!, answer: () => ({ text: 'done' }), set });
    const { url: database, statements, sendings } = await listenIn(nodes.schema.url);
    const node = await nodes.start('a', { database });
    const session = await node.session(nodes.workspace('w'));
    const turn = async () => {
      const headers = { 'content-type': 'application/json', prefer: 'wait=60' };
      const target = `${node.url}/sessions/${session}/turns`;
      const response = await fetch(target, { method: 'POST', headers, body: '{"content": "hello"}' });
      expect(await response.json()).toMatchObject({ status: 'completed' });
    };
    await turn();
    const before = sendings.length;
    for (let i = 0; i < TURNS; i++) await turn();
    const trips = sendings.slice(before).filter(([first]) => !UPKEEP.test(first!));
    const ofTurns = trips.flat();
    expect(ofTurns.filter((text) => FENCE.test(text))).toHaveLength(2 * TURNS);
    // Each commit is one sending, whose end commits it.
    expect(ofTurns.filter((text) => /^(BEGIN|COMMIT|ROLLBACK)/.test(text))).toEqual([]);
    expect(trips.length).toBeLessThanOrEqual(MOST_TRIPS_A_TURN * TURNS);
    expect(ofTurns.length).toBeLessThanOrEqual(MOST_A_TURN * TURNS);

    const idle = statements.length;
    await pause(IDLE_MS);
    const [settings, upkeep] = split(statements.slice(idle), (text) => text.startsWith('SELECT set_config('));
    // The first heartbeat opens its connection. A connection that was opened again and again would be seen here.
    expect(settings.length).toBeLessThanOrEqual(1);
    expect(upkeep).not.toContain('BEGIN');
    expect(upkeep.length).toBeGreaterThan(0);
    expect(upkeep.length).toBeLessThanOrEqual(MOST_IDLE);
  });

  // Promise 16.16: a commit without calls does not wait for the sums over all trees, whose rows another transaction holds.
  test('a turn starts while transactions with calls wait for the rows of the day', async () => {
    const nodes = await startNodes({
      database: url!,
      answer: () => ({ text: 'done' }),
      set: { 'eval.disabled': true },
    });
    const node = await nodes.start('a');
    const sessions = await Promise.all(['s0', 's1', 's2'].map((name) => node.session(nodes.workspace(name))));
    const holder = new pg.Client({ connectionString: nodes.schema.url });
    await holder.connect();
    onTestFinished(() => holder.end());
    await holder.query('BEGIN; LOCK TABLE rollup_day IN EXCLUSIVE MODE');
    const waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = CAST('rollup_day' AS regclass)";
    const submit = (session: string) => node.client.submitTurn(session, { content: 'go' });
    for (const session of sessions.slice(0, 2)) {
      await submit(session);
      await until(async () => (await nodes.rows(waiting)).length === 1);
    }
    const { turn_id } = await submit(sessions[2]!);
    expect(await nodes.rows('SELECT status FROM turns WHERE id = $1', turn_id)).toEqual([{ status: 'in_flight' }]);
    // What has calls is the next transaction.
    expect(await nodes.rows(waiting)).toHaveLength(1);
    await holder.query('ROLLBACK');
    await allEnded(nodes, 60);
    expect(await nodes.rows('SELECT DISTINCT status FROM turns')).toEqual([{ status: 'completed' }]);
  });

  // Promise 16.16 (npm test -- room): a node makes 60 % of the turns a second of SQLite with 16 sessions and 40 % with 64, by `npm test -- room`.
  test.runIf(MEASURED)(
    'a node makes at least 60 % of the turns a second of SQLite with 16 sessions, and 40 % with 64',
    async () => {
      const bench = spawn(process.execPath, ['bench/run.mjs', '--only', 'cluster', '--rounds', '3'], {
        cwd: ROOT,
        stdio: 'inherit',
      });
      expect(await once(bench, 'exit')).toEqual([0, null]);
      const { rows } = JSON.parse(fs.readFileSync(path.join(ROOT, 'bench/results/latest.json'), 'utf8')) as {
        rows: readonly { row: string; ratio: number }[];
      };
      for (const [sessions, wanted] of Object.entries(WANTED)) {
        const name = `turns/s, ${sessions} sessions, on PostgreSQL beside SQLite`;
        expect(rows.find(({ row }) => row === name)?.ratio, name).toBeGreaterThanOrEqual(wanted);
      }
    },
  );
});
