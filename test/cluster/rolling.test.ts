// Nodes that are told to stop at work: each tree goes to another node behind its step, and calls that are under way end in
// the old process (16 §4.6). One round in `npm test`; `npm test -- rolling` replaces all three nodes twenty times.
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import type { FakeMessage } from '../support/fake-provider.ts';
import { type Nodes, PLANNER, startNodes, type TestNode } from '../support/nodes.ts';
import { accountOf, allEnded, message, type PlannedWork, plannedWork } from '../support/planned-work.ts';
import { postgresService } from '../support/services.ts';
import { until } from '../support/until.ts';
import { insisting } from './insist.ts';
import { type Subscriber, subscribe } from './storm/subscriber.ts';

const { url, missing } = await postgresService();

const FULL = process.env.METIS_ROLLING === 'full';
const ROUNDS = FULL ? 20 : 1;
const NODES = 3;
const SESSIONS = FULL ? 12 : 6;
const PATIENCE_SECONDS = 60;
/** No lease ends within a test: what goes on elsewhere was released. */
const LEASE_SECONDS = 120;
const DRAIN_SECONDS = 1;
/** Longer than the drain. */
const LONG_CALL_MS = 2500;
const isLong = (number: number) => number % 7 === 0;
vi.setConfig({ testTimeout: FULL ? 1_800_000 : 180_000 });

const STOPPING = { 'shutdown.drain_seconds': DRAIN_SECONDS, 'shutdown.linger_seconds': 60 };
const set = { ...STOPPING, 'cluster.lease_seconds': LEASE_SECONDS };

async function storedIds(nodes: Nodes, session: string): Promise<string[]> {
  const rows = await nodes.rows(
    'SELECT e.id FROM events e JOIN sessions s ON s.id = e.session_id WHERE s.root_session_id = $1 ORDER BY e.id',
    session,
  );
  return rows.map(({ id }) => id!);
}

/** Every event of the session's tree since the subscriber began, each once, in order. */
async function expectWhole(nodes: Nodes, { session, since, seen, faults }: Subscriber): Promise<void> {
  const last = seen.at(-1) ?? '';
  const stored = (await storedIds(nodes, session)).filter((id) => id > (since ?? '') && id <= last);
  expect(faults).toEqual([]);
  expect(seen).toEqual(stored);
}

/** Keys of calls that were asked more than once. */
const askedAgain = ({ asks }: PlannedWork) =>
  asks.map(({ key }) => key).filter((key, at, keys) => keys.indexOf(key) !== at);

/** Turn after turn in one session, by whichever node is up; resolves with how many ended. */
async function drive(nodes: Nodes, nodeUrl: () => string, name: string, working: () => boolean) {
  const post = insisting(nodeUrl);
  const { id } = await post('/sessions', `session ${name}`, {
    workspace_path: nodes.workspace(name),
    initial_active_model: PLANNER,
  });
  const subscriber = subscribe(id, nodeUrl);
  onTestFinished(() => subscriber.stop());
  await until(() => subscriber.since !== null, PATIENCE_SECONDS);
  let turns = 0;
  for (; turns === 0 || working(); turns++) {
    const turn = `${name}.${turns}`;
    const { turn_id } = await post(`/sessions/${id}/turns`, `turn ${turn}`, { content: message(turn) });
    await until(() => subscriber.heard(turn_id), 2 * PATIENCE_SECONDS);
  }
  await subscriber.stop();
  return { subscriber, turns };
}

/** A node with one turn whose first call takes until `answer` is called, and another node. */
async function startLongCall(linger: number, plan?: (key: string) => FakeMessage) {
  let answer = () => {};
  const held = new Promise<void>((resolve) => {
    answer = resolve;
  });
  const work = plannedWork(
    () => 50,
    ({ key, number }) => (key.startsWith('long planner 0') && number === 1 ? held : undefined),
    plan,
  );
  const nodes = await startNodes({
    database: url!,
    answer: work.answer,
    set: { ...set, 'shutdown.drain_seconds': 0, 'shutdown.linger_seconds': linger },
  });
  const [a, b] = await Promise.all([nodes.start('a'), nodes.start('b')]);
  const session = await a.session(nodes.workspace('long'));
  const subscriber = subscribe(session, () => (a.child.exitCode === null ? a.url : b.url));
  onTestFinished(() => subscriber.stop());
  await until(() => subscriber.since !== null, PATIENCE_SECONDS);
  const { turn_id } = await a.client.submitTurn(session, { content: message('long') });
  await until(() => work.asks.length === 1, PATIENCE_SECONDS);
  return { nodes, work, a, b, session, turn_id, subscriber, answer };
}

const statusOf = async (node: TestNode, path: string) => (await fetch(`${node.url}${path}`)).status;
const isDraining = async ({ client }: TestNode) => (await client.listNodes()).some(({ draining }) => draining);

describe.skipIf(url === null)(`nodes that go down${missing && `, skipped: ${missing}`}`, () => {
  // Promise 16.12: three nodes are replaced one after the other under load: no turn fails, no call is repeated.
  // Promise 16.31: rolling restarts of three nodes under load, with calls longer than the drain: every call is asked once, subscribers miss nothing (20 rounds by `npm test -- rolling`).
  test('are replaced one after the other under load: each call is asked once, and subscribers miss nothing', async () => {
    const asked = { count: 0 };
    const work = plannedWork(() => (isLong(++asked.count) ? LONG_CALL_MS : 50 + Math.random() * 150));
    const nodes = await startNodes({ database: url!, answer: work.answer, set });
    const up = await Promise.all(Array.from({ length: NODES }, (_, i) => nodes.start(`n${i}-0`)));
    const nodeUrl = () => up[Math.floor(Math.random() * up.length)]!.url;
    let working = true;
    const driven = Promise.all(
      Array.from({ length: SESSIONS }, (_, i) => drive(nodes, nodeUrl, `s${i}`, () => working)),
    );
    driven.catch(() => {});
    const stops: number[] = [];
    for (let round = 1; round <= ROUNDS; round++) {
      for (const [i, old] of [...up.entries()]) {
        const before = work.asks.length;
        await until(() => work.asks.length >= before + SESSIONS, PATIENCE_SECONDS);
        up[i] = await nodes.start(`n${i}-${round}`);
        const from = performance.now();
        expect(await old.stop()).toMatchObject({ code: 0 });
        stops.push(performance.now() - from);
      }
    }
    working = false;
    const sessions = await driven;
    const turns = sessions.reduce((sum, one) => sum + one.turns, 0);
    const again = askedAgain(work);
    const longest = Math.max(...stops) / 1000;
    process.stdout.write(
      `${stops.length} nodes replaced, longest ${longest.toFixed(1)} s: ${turns} turns, ${work.asks.length} calls, ${again.length} asked again\n`,
    );
    expect(again).toEqual([]);
    expect(await accountOf(nodes, work)).toMatchObject({
      paidTwice: [],
      unpaid: 0,
      turns: { 'completed end_turn': turns },
      unended: [],
      strayWorkers: [],
    });
    for (const { subscriber } of sessions) await expectWhole(nodes, subscriber);
  });

  // Promise 16.32: a call longer than the drain ends in the old process, whose readiness is gone at once, and the turn goes on elsewhere; its other trees go over meanwhile.
  test('let a long call end, while everything else goes to others', async () => {
    const { nodes, work, a, b, session, turn_id, subscriber, answer } = await startLongCall(60);
    const other = await a.session(nodes.workspace('other'));
    const stopped = a.stop();
    await until(() => isDraining(b), PATIENCE_SECONDS);
    expect(await statusOf(a, '/readyz')).toBe(503);
    expect(await statusOf(a, '/healthz')).toBe(200);
    expect(await statusOf(a, '/sessions')).toBe(503);
    expect(await b.turn(other, message('other'))).toMatchObject({ status: 'completed' });
    // The tree of the long call is still there: it is asked through the other node.
    await expect(b.client.submitTurn(session, { content: 'too soon' })).rejects.toMatchObject({
      code: 'turn_in_flight',
    });
    expect(await b.client.getTurn(session, turn_id)).toMatchObject({ ended_at: null });
    expect([a.child.exitCode, subscriber.breaks]).toEqual([null, 0]);
    answer();
    expect((await stopped).code).toBe(0);
    await until(() => subscriber.heard(turn_id), PATIENCE_SECONDS);
    await allEnded(nodes, PATIENCE_SECONDS);
    expect(askedAgain(work)).toEqual([]);
    await subscriber.stop();
    await expectWhole(nodes, subscriber);
  });

  // Promise 16.32: a turn whose call goes on in a process that stops is cancelled through another node.
  test('take a cancel from another node for what they still run', async () => {
    const { a, b, session, turn_id } = await startLongCall(60);
    const stopped = a.stop();
    await until(() => isDraining(b), PATIENCE_SECONDS);
    await b.client.cancelTurn(session, turn_id);
    expect((await stopped).code).toBe(0);
    expect(await b.client.getTurn(session, turn_id)).toMatchObject({
      status: 'cancelled',
      cancel_reason: 'user_cancel',
    });
  });

  // Promise 16.32: a call that is longer than `shutdown.linger_seconds` is cut off and asked again elsewhere.
  test('cut off a call that outlasts the linger, and another node asks it again', async () => {
    const { nodes, work, a, b, session, turn_id } = await startLongCall(1);
    expect((await a.stop()).code).toBe(0);
    await allEnded(nodes, PATIENCE_SECONDS);
    expect(await b.client.getTurn(session, turn_id)).toMatchObject({ status: 'completed' });
    expect(askedAgain(work)).toEqual(['long planner 0']);
  });

  test('are not kept by a client that watches an idle tree', async () => {
    const nodes = await startNodes({ database: url!, answer: () => ({ text: 'done' }), set });
    const [a, b] = await Promise.all([nodes.start('a'), nodes.start('b')]);
    const session = await a.session(nodes.workspace('watched'));
    const subscriber = subscribe(session, () => (a.child.exitCode === null ? a.url : b.url));
    onTestFinished(() => subscriber.stop());
    await until(() => subscriber.since !== null, PATIENCE_SECONDS);
    expect((await a.stop()).code).toBe(0);
    const { turn_id } = await b.client.submitTurn(session, { content: 'after' });
    await until(() => subscriber.heard(turn_id), PATIENCE_SECONDS);
    await subscriber.stop();
    await expectWhole(nodes, subscriber);
  });
});
