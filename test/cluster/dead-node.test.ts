// A node that is certainly dead is taken over at once, one that is only silent when its lease ends (16 §4.8). The suite
// `rolling` kills nodes again and again and prints how long their turns stood still.
import { once } from 'node:events';
import net from 'node:net';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { freePort } from '../support/free-port.ts';
import { type NodeSettings, type Nodes, startNodes, type TestNode } from '../support/nodes.ts';
import { noPgbouncer, startPgbouncer } from '../support/pgbouncer.ts';
import { allEnded, pause } from '../support/planned-work.ts';
import { startProxy, targetOf, through } from '../support/proxy.ts';
import { postgresService } from '../support/services.ts';
import { until } from '../support/until.ts';

const { url, missing } = await postgresService();

const FULL = process.env.METIS_ROLLING === 'full';
const KILLS = FULL ? 21 : 3;
const PATIENCE_SECONDS = 60;
/** Longer than any test. */
const LONG_LEASE_SECONDS = 120;
const SHORT_LEASE_SECONDS = 6;
vi.setConfig({ testTimeout: FULL ? 900_000 : 180_000 });

interface AtWork {
  readonly nodes: Nodes;
  readonly a: TestNode;
  readonly b: TestNode;
  readonly turn: string;
  /** Lets the call of the turn be answered. */
  readonly answer: () => void;
}

/** Nodes `a`, with a turn whose call is under way, and `b`, which has seen `a`. */
async function startAtWork(leaseSeconds: number, prepare: (nodes: Nodes) => Promise<NodeSettings>): Promise<AtWork> {
  let answer = () => {};
  const held = new Promise<void>((resolve) => {
    answer = resolve;
  });
  const nodes = await startNodes({
    database: url!,
    answer: () => held.then(() => ({ text: 'done' })),
    set: { 'cluster.lease_seconds': leaseSeconds },
  });
  const [a, b] = await Promise.all([nodes.start('a', await prepare(nodes)), nodes.start('b')]);
  const session = await a!.session(nodes.workspace('w'));
  const { turn_id } = await a!.client.submitTurn(session, { content: 'go' });
  await until(() => nodes.fake.calls.length === 1, PATIENCE_SECONDS);
  await passSweeps();
  return { nodes, a: a!, b: b!, turn: turn_id, answer };
}

/** Time for two sweeps: each node has seen the others. */
const passSweeps = () => pause(2500);
const readLease = async (nodes: Nodes, name: string) => {
  const [row] = await nodes.rows(
    'SELECT extract(epoch FROM lease_until) * 1000 AS at FROM nodes WHERE name = $1 AND lease_until > now()',
    name,
  );
  return Number(row!.at);
};
const isResumed = async (nodes: Nodes, turn: string) =>
  (await nodes.rows("SELECT 1 FROM events WHERE type = 'turn.resumed' AND turn_id = $1", turn)).length > 0;

/** The turn goes on elsewhere, but not before the lease that its node had. */
async function expectAfterLease({ nodes, turn, answer }: AtWork, leaseEnd: number): Promise<void> {
  await until(() => isResumed(nodes, turn), PATIENCE_SECONDS);
  expect(Date.now()).toBeGreaterThanOrEqual(leaseEnd);
  answer();
  await allEnded(nodes, PATIENCE_SECONDS);
}

/** A door in front of a port, which refuses once it is closed. */
async function openDoor(port: number, target: number) {
  const sockets = new Set<net.Socket>();
  const server = net.createServer((near) => {
    const far = net.connect(target, '127.0.0.1');
    for (const socket of [near, far]) {
      sockets.add(socket);
      socket.on('error', () => {});
    }
    near.pipe(far).pipe(near);
  });
  server.listen(port, '127.0.0.1');
  await once(server, 'listening');
  const close = () => {
    server.close();
    for (const socket of sockets) socket.destroy();
  };
  onTestFinished(close);
  return { close };
}

describe.skipIf(url === null)(`a dead node${missing && `, skipped: ${missing}`}`, () => {
  // Promise 16.33: a node that was killed is taken over long before its lease ends, and its restart is served at once.
  test('that was killed is taken over long before its lease ends', async () => {
    let answer = () => {};
    const nodes = await startNodes({
      database: url!,
      answer: ({ user }) => {
        if (user !== 'long' || answer !== open) return { text: 'done' };
        return new Promise((resolve) => {
          answer = () => resolve({ text: 'done' });
        });
      },
      set: { 'cluster.lease_seconds': LONG_LEASE_SECONDS },
    });
    const open = answer;
    let [a, b] = await Promise.all([nodes.start('n0'), nodes.start('n1')]);
    const paused: number[] = [];
    for (let kill = 1; kill <= KILLS; kill++) {
      answer = open;
      const session = await a!.session(nodes.workspace(`w${kill}`));
      const { turn_id } = await a!.client.submitTurn(session, { content: 'long' });
      await until(() => answer !== open, PATIENCE_SECONDS);
      await passSweeps();
      const leaseEnd = await readLease(nodes, a!.name);
      const from = Date.now();
      await a!.kill();
      await until(() => isResumed(nodes, turn_id), PATIENCE_SECONDS);
      paused.push(Date.now() - from);
      expect(Date.now()).toBeLessThan(leaseEnd);
      answer();
      await allEnded(nodes, PATIENCE_SECONDS);
      // The same name: the lease of the one who died has been ended.
      const { name } = a!;
      [a, b] = [b, await nodes.start(name)];
    }
    const median = paused.sort((x, y) => x - y)[Math.floor(paused.length / 2)]!;
    process.stdout.write(
      `${KILLS} kills, lease ${LONG_LEASE_SECONDS} s: turns resumed after ${median} ms (median), ${paused.at(-1)} ms at most\n`,
    );
  });

  // Promise 16.34: a node that stands still, keeps its session but refuses, or answers but lost its session, keeps its trees until the lease ends.
  test('is not one that stands still: its lease decides', async () => {
    const work = await startAtWork(SHORT_LEASE_SECONDS, async () => ({}));
    const leaseEnd = await readLease(work.nodes, 'a');
    work.a.signal('SIGSTOP');
    await expectAfterLease(work, leaseEnd);
  });

  test('is not one that lost its sessions while its address answers', async () => {
    const proxy = await startProxy(targetOf(url!));
    const work = await startAtWork(SHORT_LEASE_SECONDS, async ({ schema }) => ({
      database: through(schema.url, proxy),
    }));
    const leaseEnd = await readLease(work.nodes, 'a');
    proxy.cut();
    await expectAfterLease(work, leaseEnd);
  });

  test('is not one whose address refuses while it has its session: no other node takes the turn', async () => {
    const [port, door] = [await freePort(), await freePort()];
    const opened = await openDoor(door, port);
    const work = await startAtWork(SHORT_LEASE_SECONDS, async () => ({
      set: { 'server.port': port, 'cluster.advertise_url': `http://127.0.0.1:${door}` },
    }));
    const leaseEnd = await readLease(work.nodes, 'a');
    opened.close();
    await until(() => Date.now() > leaseEnd, PATIENCE_SECONDS);
    work.answer();
    await allEnded(work.nodes, PATIENCE_SECONDS);
    expect(await isResumed(work.nodes, work.turn)).toBe(false);
  });

  test('is not taken over before its lease ends where its address never led to it', async () => {
    const nowhere = await freePort();
    const work = await startAtWork(SHORT_LEASE_SECONDS, async () => ({
      set: { 'cluster.advertise_url': `http://127.0.0.1:${nowhere}` },
    }));
    const leaseEnd = await readLease(work.nodes, 'a');
    await work.a.kill();
    await expectAfterLease(work, leaseEnd);
  });

  // Promise 16.35: behind a pooler that keeps the session of a dead node, the lease alone decides; one that resets it shows the death.
  test.skipIf(noPgbouncer !== '')(
    'behind a pooler that keeps its session, is taken over when its lease ends',
    async () => {
      const work = await startAtWork(SHORT_LEASE_SECONDS, async ({ schema }) => ({
        database: await startPgbouncer(schema.url, {
          mode: 'session',
          lines: ['server_reset_query = DEALLOCATE ALL', 'default_pool_size = 50'],
        }),
      }));
      const leaseEnd = await readLease(work.nodes, 'a');
      await work.a.kill();
      await expectAfterLease(work, leaseEnd);
    },
  );

  test.skipIf(noPgbouncer !== '')('behind a pooler that resets its session, is taken over at once', async () => {
    const work = await startAtWork(LONG_LEASE_SECONDS, async ({ schema }) => ({
      database: await startPgbouncer(schema.url, { mode: 'session', lines: ['default_pool_size = 50'] }),
    }));
    const leaseEnd = await readLease(work.nodes, 'a');
    await work.a.kill();
    await until(() => isResumed(work.nodes, work.turn), PATIENCE_SECONDS);
    expect(Date.now()).toBeLessThan(leaseEnd);
    work.answer();
    await allEnded(work.nodes, PATIENCE_SECONDS);
  });
});
