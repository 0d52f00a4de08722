// A database that goes away, answers slowly, or is cut off from one node (16 §3.4, §4.4, §10).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, test, vi } from 'vitest';
import { startNodes } from '../support/nodes.ts';
import { accountOf, allEnded, message, pause, plannedWork } from '../support/planned-work.ts';
import { startProxy, targetOf, through } from '../support/proxy.ts';
import { postgresService } from '../support/services.ts';
import { until } from '../support/until.ts';
import { insisting } from './insist.ts';

const { url, missing } = await postgresService();

const PATIENCE_SECONDS = 60;
/** As long as the chapter says, with `npm test -- cluster`; short in `npm test`. */
const FULL = process.env.METIS_CLUSTER === 'full';
const AWAY_MS = FULL ? 5000 : 1500;
const BETWEEN_MS = FULL ? 5000 : 0;
/** Longer than a busy machine keeps a node from its beats. */
const LEASE_SECONDS = FULL ? 15 : 60;
const LONG_AWAY_MS = FULL ? 18_000 : 2000;
/** A probe's second, and what a busy machine takes on top. */
const PROBE_MS = 1500;
const START_MS = FULL ? 40_000 : 3000;
const SLOW_MS = FULL ? 60_000 : 0;
vi.setConfig({ testTimeout: 180_000 });

const nameList = (count: number) => Array.from({ length: count }, (_, i) => `s${i}`);

describe.skipIf(url === null)(`the database${missing && `, skipped: ${missing}`}`, () => {
  test('while it is away GET /nodes is 503, and 200 after its return', async () => {
    const nodes = await startNodes({ database: url!, answer: () => ({ text: 'done' }) });
    const proxy = await startProxy(targetOf(nodes.schema.url));
    const a = await nodes.start('a', { database: through(nodes.schema.url, proxy) });
    proxy.cut();
    const answer = await fetch(`${a.url}/nodes`);
    expect([answer.status, await answer.json()]).toMatchObject([503, { error: { code: 'storage_unavailable' } }]);
    proxy.mend();
    await until(async () => (await fetch(`${a.url}/nodes`)).status === 200, PATIENCE_SECONDS);
  });

  // Promise 16.6: the database away three times for less than the lease: no turn fails, no take-over, every commit once.
  test('away again and again for less than the lease: no turn fails, no tree changes hands, every commit once', async () => {
    const names = nameList(6);
    const work = plannedWork(() => (FULL ? 1500 : 200));
    const nodes = await startNodes({
      database: url!,
      answer: work.answer,
      set: { 'cluster.lease_seconds': LEASE_SECONDS },
    });
    const proxy = await startProxy(targetOf(nodes.schema.url));
    const a = await nodes.start('a', { database: through(nodes.schema.url, proxy) });
    await nodes.start('b');
    const turns = names.map(async (name) => {
      const session = await a.session(nodes.workspace(name));
      return a.turn(session, message(name));
    });
    for (const so of [1, 2, 3]) {
      await until(() => work.asks.length >= so * 8, PATIENCE_SECONDS);
      proxy.cut();
      await pause(AWAY_MS);
      proxy.mend();
      // A heartbeat comes through before the next.
      await pause(BETWEEN_MS);
    }
    for (const turn of await Promise.all(turns)) expect(turn).toMatchObject({ status: 'completed' });
    expect(await accountOf(nodes, work)).toMatchObject({ paidTwice: [], unpaid: 0, unended: [], strayWorkers: [] });
    expect(await nodes.rows('SELECT DISTINCT owner_epoch FROM trees')).toEqual([{ owner_epoch: '1' }]);
    expect(await nodes.rows("SELECT 1 FROM events WHERE type = 'turn.resumed'")).toEqual([]);
  });

  // Promise 16.6 (npm test -- cluster): away for longer than the lease: trees are dropped, and every turn completes after its return.
  test('away for longer than the lease: trees are dropped, and every turn goes on after its return', async () => {
    const names = nameList(4);
    const work = plannedWork(() => 200);
    const nodes = await startNodes({ database: url!, answer: work.answer });
    const proxy = await startProxy(targetOf(nodes.schema.url));
    const a = await nodes.start('a', { database: through(nodes.schema.url, proxy) });
    const post = insisting(() => a.url);
    for (const name of names) {
      const session = await a.session(nodes.workspace(name));
      // A busy machine may lose a lease of 3 s before the cut.
      await post(`/sessions/${session}/turns`, name, { content: message(name) });
    }
    await until(() => work.asks.length >= names.length * 2, PATIENCE_SECONDS);
    proxy.cut();
    await until(async () => (await fetch(`${a.url}/readyz`)).status === 503, PATIENCE_SECONDS);
    await pause(LONG_AWAY_MS);
    proxy.mend();
    await allEnded(nodes, PATIENCE_SECONDS);
    expect(await accountOf(nodes, work)).toMatchObject({
      paidTwice: [],
      turns: { 'completed end_turn': names.length },
      unended: [],
    });
    // They were let go and taken up again, not kept.
    expect(await nodes.rows("SELECT 1 FROM events WHERE type = 'turn.resumed'")).not.toEqual([]);
    expect((await fetch(`${a.url}/readyz`)).status).toBe(200);
  });

  // Promise 16.8: a node cut off from the database has ended its tools when another takes over.
  test('cut off from one node: its command is ended before its lease, which another node waits for', async () => {
    const nodes = await startNodes({
      database: url!,
      // Deaf to SIGTERM.
      answer: ({ results }) =>
        results.length > 0
          ? { text: 'done' }
          : {
              tool_calls: [
                { name: 'shell', input: { command: "trap '' TERM; echo $$ > pid; while :; do sleep 0.1; done" } },
              ],
            },
    });
    const proxy = await startProxy(targetOf(nodes.schema.url));
    const a = await nodes.start('a', { database: through(nodes.schema.url, proxy) });
    const workspace = nodes.workspace('one');
    const session = await a.session(workspace);
    const { turn_id } = await a.client.submitTurn(session, { content: 'go' });
    const pid = await until(
      () => fs.existsSync(path.join(workspace, 'pid')) && Number(fs.readFileSync(path.join(workspace, 'pid'), 'utf8')),
      PATIENCE_SECONDS,
    );
    const b = await nodes.start('b');
    expect(isAlive(pid)).toBe(true);
    proxy.hole();
    await until(async () => {
      const [tree] = await nodes.rows(
        "SELECT n.name FROM trees t JOIN nodes n ON n.id = t.owner_node WHERE t.owner_epoch > 1 AND n.name = 'b'",
      );
      return tree !== undefined;
    }, PATIENCE_SECONDS);
    expect(isAlive(pid)).toBe(false);
    const turn = await until(async () => {
      const found = await b.client.getTurn(session, turn_id);
      return found.ended_at !== null && found;
    }, PATIENCE_SECONDS);
    expect(turn).toMatchObject({ status: 'completed' });
    const [call] = await nodes.rows('SELECT result_json FROM tool_calls');
    expect(call!.result_json).toContain('it may or may not have taken effect');
  });

  // Promise 16.25: without an answer of the database /healthz and /metrics are 200 and /readyz says why not, within a second.
  test('without an answer: /healthz and /metrics are 200 and /readyz says why not, each within a second', async () => {
    const nodes = await startNodes({ database: url!, answer: () => ({ text: 'done' }) });
    const proxy = await startProxy(targetOf(nodes.schema.url));
    const a = await nodes.start('a', { database: through(nodes.schema.url, proxy) });
    await a.session(nodes.workspace('one'));
    const ask = async (where: string) => {
      const from = performance.now();
      const answer = await fetch(a.url + where);
      const text = await answer.text();
      return { status: answer.status, text, inTime: performance.now() - from < PROBE_MS };
    };
    expect((await ask('/healthz')).text).toContain('"active_sessions":1');
    const { text: before } = await ask('/metrics');
    expect(before).toContain('metis_active_sessions 1');
    const own = /^metis_(?:lease|trees|event_loop|database|commit)/;
    const withoutOwn = (text: string) => text.split('\n').filter((line) => !own.test(line));
    const leaseAge = (text: string) => Number(/^metis_lease_age_seconds (.+)$/m.exec(text)![1]);
    proxy.hole();
    expect(await ask('/readyz')).toMatchObject({
      status: 503,
      inTime: true,
      text: expect.stringContaining('the database did not answer within a second'),
    });
    for (let i = 0; i < 3; i++) {
      const health = { status: 200, inTime: true, text: expect.stringContaining('"active_sessions":1') };
      expect(await ask('/healthz')).toMatchObject(health);
      const { text, ...answer } = await ask('/metrics');
      expect(answer).toEqual({ status: 200, inTime: true });
      // What the node knows without the database goes on; all else is what the database answered last.
      expect(withoutOwn(text)).toEqual(withoutOwn(before));
      expect(leaseAge(text)).toBeGreaterThan(leaseAge(before));
    }
    await until(async () => (await ask('/readyz')).text.includes('no valid lease'), PATIENCE_SECONDS);
    proxy.mend();
    await until(async () => (await ask('/readyz')).status === 200, PATIENCE_SECONDS);
  });

  // Promise 16.25: a node waits for its database at the start, or ends as it is configured.
  test('not there at the start: a node waits for it, one that is configured so ends', async () => {
    const nodes = await startNodes({ database: url!, answer: () => ({ text: 'done' }) });
    const proxy = await startProxy(targetOf(nodes.schema.url));
    proxy.cut();
    const database = through(nodes.schema.url, proxy);
    const refused = await nodes.refused('b', { database, set: { 'database.start_timeout_seconds': 1 } });
    expect(refused.stderr).toContain('database_unreachable');
    const started = nodes.start('a', { database });
    // As long as the other waited, and longer.
    await pause(START_MS);
    proxy.mend();
    expect((await fetch(`${(await started).url}/readyz`)).status).toBe(200);
  });

  // Promise 16.8: 200 ms a statement cause no take-over.
  test('200 ms an answer: turns are slower, and no tree changes hands', async () => {
    const names = nameList(3);
    const work = plannedWork(() => 50);
    // The lease that a node has unless told: a short one a busy machine alone would miss.
    const set = { 'cluster.lease_seconds': 15 };
    const nodes = await startNodes({ database: url!, answer: work.answer, set });
    const proxy = await startProxy(targetOf(nodes.schema.url));
    const a = await nodes.start('a', { database: through(nodes.schema.url, proxy) });
    await nodes.start('b');
    proxy.delay(200);
    await Promise.all(
      names.map(async (name) => {
        const until = performance.now() + SLOW_MS;
        for (let n = 0; n === 0 || performance.now() < until; n++) {
          const one = `${name}n${n}`;
          const session = await a.session(nodes.workspace(one));
          expect(await a.turn(session, message(one))).toMatchObject({ status: 'completed' });
        }
      }),
    );
    expect(await nodes.rows('SELECT DISTINCT owner_epoch FROM trees')).toEqual([{ owner_epoch: '1' }]);
    expect(await accountOf(nodes, work)).toMatchObject({ paidTwice: [], unpaid: 0, unended: [] });
  });
});

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
