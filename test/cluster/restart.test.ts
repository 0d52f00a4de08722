// PostgreSQL itself restarted, in order and by a fall, under nodes at work (16 §3.4, §10). Short in `npm test`, as long as
// the chapter says with `npm test -- cluster`; where there is no PostgreSQL to start, database.test.ts holds the promise.
import { describe, expect, test, vi } from 'vitest';
import { type Nodes, startNodes, type TestNode } from '../support/nodes.ts';
import { accountOf, allEnded, message, pause, plannedWork } from '../support/planned-work.ts';
import { noPostgres, startPostgres } from '../support/postgres.ts';
import { until } from '../support/until.ts';

const PATIENCE_SECONDS = 60;
const FULL = process.env.METIS_CLUSTER === 'full';
const RESTARTS = FULL ? (['fast', 'immediate', 'fast'] as const) : (['fast', 'immediate'] as const);
const BETWEEN_MS = FULL ? 10_000 : 500;
const AWAY_MS = 20_000;
const SESSIONS = ['s0', 's1', 's2', 's3'];
vi.setConfig({ testTimeout: 180_000 });

/** Turn after turn in each session while `working`; resolves with how many there were. */
async function drive(nodes: Nodes, node: TestNode, working: () => boolean): Promise<number> {
  const each = SESSIONS.map(async (name) => {
    const session = await node.session(nodes.workspace(`${node.name}-${name}`));
    let turns = 0;
    do {
      turns += 1;
      expect(await node.turn(session, message(`${node.name}.${name}.${turns}`))).toMatchObject({ status: 'completed' });
    } while (working());
    return turns;
  });
  return (await Promise.all(each)).reduce((sum, turns) => sum + turns, 0);
}

describe.skipIf(noPostgres !== '')(`PostgreSQL restarted${noPostgres && `, skipped: ${noPostgres}`}`, () => {
  // Promise 16.6: PostgreSQL itself restarted under nodes at work, clean and `immediate` (three times in 30 s by `npm test -- cluster`): no turn fails, no take-over, every commit once.
  test('again and again, in order and by a fall: no turn fails, no tree changes hands, every commit once', async () => {
    const postgres = await startPostgres();
    const work = plannedWork(() => 100);
    const set = { 'cluster.lease_seconds': 15 };
    const nodes = await startNodes({ database: postgres.url, answer: work.answer, set });
    const both = await Promise.all([nodes.start('a'), nodes.start('b')]);
    let working = true;
    const driven = Promise.all(both.map((node) => drive(nodes, node, () => working)));
    driven.catch(() => {});
    for (const mode of RESTARTS) {
      const asked = work.asks.length;
      await until(() => work.asks.length >= asked + SESSIONS.length, PATIENCE_SECONDS);
      await postgres.stop(mode);
      await postgres.start();
      await pause(BETWEEN_MS);
    }
    working = false;
    const turns = (await driven).reduce((sum, n) => sum + n, 0);
    expect(await accountOf(nodes, work)).toMatchObject({
      paidTwice: [],
      unpaid: 0,
      turns: { 'completed end_turn': turns },
      unended: [],
      strayWorkers: [],
    });
    expect(await nodes.rows('SELECT DISTINCT owner_epoch FROM trees')).toEqual([{ owner_epoch: '1' }]);
    expect(await nodes.rows("SELECT 1 FROM events WHERE type = 'turn.resumed'")).toEqual([]);
  });

  // Promise 16.6 (npm test -- cluster): PostgreSQL stopped for 20 s with a lease of 3 s: every turn completes after (`npm test -- cluster`).
  test.runIf(FULL)('away for longer than the lease, for 20 s: every turn completes after', async () => {
    const postgres = await startPostgres();
    const work = plannedWork(() => 300);
    const nodes = await startNodes({ database: postgres.url, answer: work.answer });
    const both = await Promise.all([nodes.start('a'), nodes.start('b')]);
    const names = both.flatMap((node) => SESSIONS.map((name) => [node, `${node.name}-${name}`] as const));
    for (const [node, name] of names) {
      const session = await node.session(nodes.workspace(name));
      await node.client.submitTurn(session, { content: message(name) });
    }
    await until(() => work.asks.length >= names.length * 2, PATIENCE_SECONDS);
    await postgres.stop('fast');
    await pause(AWAY_MS);
    for (const node of both) expect((await fetch(`${node.url}/readyz`)).status).toBe(503);
    await postgres.start();
    await allEnded(nodes, PATIENCE_SECONDS);
    expect(await accountOf(nodes, work)).toMatchObject({
      paidTwice: [],
      turns: { 'completed end_turn': names.length },
      unended: [],
      strayWorkers: [],
    });
    expect(await nodes.rows("SELECT 1 FROM events WHERE type = 'turn.resumed'")).not.toEqual([]);
    for (const node of both) expect((await fetch(`${node.url}/readyz`)).status).toBe(200);
  });
});
