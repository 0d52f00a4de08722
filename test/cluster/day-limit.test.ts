// The limit of a day, of which several nodes spend at once: never above it, nearly all of it, and a dead node's part comes back (16 §8).
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { ApiError } from '#client/request.ts';
import { DAY_MS } from '#core/policy/analytics/rollup.ts';
import { silentLogger } from '#core/ports/logger.ts';
import type { Share, SharedLimit } from '#core/ports/shared-limit.ts';
import { systemClock } from '#protocol/clock.ts';
import { fromPusd, type Pusd, toPusd } from '#protocol/money.ts';
import { type AllowedDayLimit, createDayLimit } from '#store/cluster/day-limit.ts';
import type { Pool } from '#store/postgres/connection/pool.ts';
import { openSchema, type PostgresWorld } from '../store/postgres/world.ts';
import { storedSession } from '../store/suite/nouns.ts';
import { NOON } from '../store/suite/world.ts';
import { callCompleted } from '../support/drafts.ts';
import { gate } from '../support/moments.ts';
import { startNodes, type TestNode } from '../support/nodes.ts';
import { pause } from '../support/planned-work.ts';
import { ownSchema, postgresService } from '../support/services.ts';
import { until } from '../support/until.ts';

const { url, missing } = await postgresService();
/** A busy machine must not miss it: a lease that ends gives its allowance away. */
const LEASE_SECONDS = 5;
/** Of nodes that are processes of their own, each of which works. */
const NODE_LEASE_SECONDS = 10;
const PATIENCE_SECONDS = 60;
vi.setConfig({ testTimeout: 180_000 });
const LIMIT = toPusd('1');
const day: SharedLimit = {
  pool: 'day',
  limit: LIMIT,
  since: NOON - (NOON % DAY_MS),
  caller: null,
  owner: null,
  experiment: null,
};
const usd = (text: string) => toPusd(text as Parameters<typeof toPusd>[0]);

interface Node {
  readonly world: PostgresWorld;
  readonly limit: AllowedDayLimit;
}

/** @param delay what a node's statements go through */
async function openNodes(names: readonly string[], delay = (pool: Pool) => pool): Promise<Node[]> {
  const schema = await ownSchema(url!);
  onTestFinished(() => schema.drop());
  const made: Node[] = [];
  for (const name of names) {
    const world = await openSchema(schema.url, NOON, { name, leaseSeconds: LEASE_SECONDS });
    const limit = createDayLimit({
      pool: delay(world.pool),
      trees: world.trees,
      leaseSeconds: LEASE_SECONDS,
      clock: systemClock,
      log: silentLogger,
    });
    onTestFinished(() => limit.close());
    made.push({ world, limit });
  }
  return made;
}

/** A call that costs all that was reserved for it: what is counted wrong shows at once. */
async function paid({ world }: Node, session: Parameters<typeof callCompleted>[1], share: Share, amount: Pusd) {
  if (!share.ok) throw new Error('refused');
  await world.journal.commit({ emit: [callCompleted(world, session, null, { cost_usd: fromPusd(amount) })] });
  share.release();
}

describe.skipIf(url === null)(`the limit of a day on several nodes${missing && `, skipped: ${missing}`}`, () => {
  // Promise 16.14: three node processes spend of one day's limit at once and one is killed: the ledger never passes it, and nine tenths can be spent.
  test('three nodes spend at once and one is killed: never more than the limit, and nine tenths of it can be spent', async () => {
    const LIMIT_USD = 10;
    const OUTPUT = 4000;
    const SPENDERS = 4;
    let dead = false;
    const nodes = await startNodes({
      database: url!,
      answer: async ({ user }) => {
        // Calls in flight of the node that dies: of no cost, and in the way until its lease has ended.
        if (user.startsWith('c')) await until(() => dead, PATIENCE_SECONDS);
        // As dear as was reserved for, nearly: what is counted wrong shows.
        return { text: 'done', usage: { input: 1000, output: OUTPUT } };
      },
      set: {
        'budgets.daily_usd': String(LIMIT_USD),
        'turn.max_output_tokens': OUTPUT,
        'tools.disabled': ['*'],
        'cluster.lease_seconds': NODE_LEASE_SECONDS,
      },
    });
    const [a, b, c] = (await Promise.all(['a', 'b', 'c'].map((name) => nodes.start(name)))) as [
      TestNode,
      TestNode,
      TestNode,
    ];
    const spentUsd = async () => {
      const [row] = await nodes.rows('SELECT CAST(coalesce(sum(cost_pusd), 0) AS text) AS pusd FROM llm_calls');
      return Number(fromPusd(BigInt(row!.pusd!) as Pusd));
    };
    const opened = (node: TestNode) =>
      Promise.all(Array.from({ length: SPENDERS }, (_, i) => node.session(nodes.workspace(`${node.name}${i}`))));

    const theirs = await opened(c);
    for (const session of theirs) await c.client.submitTurn(session, { content: 'c' });
    await until(() => nodes.fake.calls.length === SPENDERS, PATIENCE_SECONDS);
    const ENOUGH_USD = 0.9 * LIMIT_USD;
    const MORE_TRIES = 40;
    let refusals = 0;
    let giveUpAt = Number.POSITIVE_INFINITY;
    async function spend(node: TestNode, session: string): Promise<void> {
      let tries = 0;
      for (;;) {
        const turn = await node.turn(session, node.name).catch((error: unknown) => {
          if (error instanceof ApiError && error.code === 'budget_exceeded') return null;
          throw error;
        });
        if (turn !== null && turn.stop_reason !== 'budget_exceeded') continue;
        refusals += 1;
        // The nodes take turns with what is left: more tries, also once enough is spent, which must not be too much.
        if (performance.now() > giveUpAt) return;
        if (tries > 0 || (dead && (await spentUsd()) >= ENOUGH_USD)) tries += 1;
        if (tries > MORE_TRIES) return;
        await pause(250);
      }
    }
    const spending = [a, b].map(async (node) => {
      const sessions = await opened(node);
      await Promise.all(sessions.map((session) => spend(node, session)));
    });
    await until(() => refusals > 0, PATIENCE_SECONDS);
    const atKill = await spentUsd();
    // Read behind the ledger: until now the node has returned what its calls do not need.
    const [allowance] = await nodes.rows(
      "SELECT open_pusd FROM day_allowances JOIN nodes n ON n.id = node_id WHERE n.name = 'c'",
    );
    const held = Number(fromPusd(BigInt(allowance!.open_pusd!) as Pusd));
    await c.kill();
    dead = true;
    giveUpAt = performance.now() + PATIENCE_SECONDS * 1000;
    await Promise.all(spending);
    await until(
      async () => (await nodes.rows('SELECT 1 FROM turns WHERE ended_at IS NULL')).length === 0,
      PATIENCE_SECONDS,
    );
    const spent = await spentUsd();
    // The ledger only grows: what holds at its end held at every moment.
    expect(atKill).toBeLessThanOrEqual(LIMIT_USD - held);
    expect(spent).toBeLessThanOrEqual(LIMIT_USD);
    expect(spent).toBeGreaterThanOrEqual(ENOUGH_USD);
    // What the dead node held was spent by the others.
    expect(spent).toBeGreaterThan(LIMIT_USD - held);
  });

  // Promise 16.14: of nodes that ask at the same moment for more than half of a limit, one gets it.
  test('of nodes that ask at the same moment for more than half, one gets it', async () => {
    const three = await openNodes(['a', 'b', 'c']);
    for (let round = 0; round < 10; round += 1) {
      const limit = { ...day, pool: `key:${round}`, caller: String(round) };
      const shares = await Promise.all(three.map((each) => each.limit.take(limit, usd('0.6'))));
      expect(shares.filter((share) => share.ok)).toHaveLength(1);
    }
  });

  test('a call that fits asks nobody; one that does not is told what others hold', async () => {
    const [a, b] = (await openNodes(['a', 'b'])) as [Node, Node];
    const first = await a.limit.take(day, usd('0.1'));
    expect(first.ok).toBe(true);
    // 2 % of the limit is slack: the answer comes without a question.
    expect(a.limit.take(day, usd('0.01'))).toMatchObject({ ok: true });
    expect(b.limit.take(day, usd('0.01'))).toBeInstanceOf(Promise);
    const refused = await b.limit.take(day, usd('0.95'));
    expect(refused).toEqual({ ok: false, elsewhere: usd('0.12') });
  });

  // Promise 16.14: a call that ends while its node asks for more is counted once.
  test('a call that ends while its node asks for more is counted once: its part of the answer is spent', async () => {
    const read = gate();
    const arrived = gate();
    let late = false;
    const [a] = (await openNodes(['a'], (pool) => ({
      ...pool,
      async transaction(work) {
        const answer = await pool.transaction(work);
        if (!late) return answer;
        read.open();
        await arrived.opened;
        return answer;
      },
    }))) as [Node];
    const session = await storedSession(a.world);
    const first = await a.limit.take(day, usd('0.5'));
    late = true;
    const second = a.limit.take(day, usd('0.4'));
    await read.opened;
    // Its cost is in the ledger, which was read before.
    await paid(a, session, first, usd('0.5'));
    late = false;
    arrived.open();
    expect(await second).toMatchObject({ ok: true });
    expect(await a.limit.take(day, usd('0.11'))).toMatchObject({ ok: false });
    expect(await a.limit.take(day, usd('0.1'))).toMatchObject({ ok: true });
  });

  test('what is left of ended calls is given back with the heartbeat, and slack that nobody uses with the next', async () => {
    const [a, b] = (await openNodes(['a', 'b'])) as [Node, Node];
    const session = await storedSession(a.world);
    const share = await a.limit.take(day, usd('0.9'));
    expect(await b.limit.take(day, usd('0.5'))).toMatchObject({ ok: false });
    if (!share.ok) throw new Error('refused');
    // It cost a tenth of what it could have.
    await a.world.journal.commit({ emit: [callCompleted(a.world, session, null, { cost_usd: '0.09' })] });
    share.release();
    await until(async () => (await b.world.rows('SELECT open_pusd FROM day_allowances'))[0]?.open_pusd === 0n);
    expect(await b.limit.take(day, usd('0.91'))).toMatchObject({ ok: true });
    expect(await a.limit.take(day, usd('0.01'))).toMatchObject({ ok: false, elsewhere: usd('0.91') });
  });

  // Promise 16.14: what ended calls of a busy node left over comes back though its queue of requests never empties.
  test('a node whose requests are refused without a pause gives back what its ended calls left over', async () => {
    const [a, b] = (await openNodes(['a', 'b'])) as [Node, Node];
    const session = await storedSession(a.world);
    const share = await a.limit.take(day, usd('0.6'));
    if (!share.ok) throw new Error('refused');
    await a.world.journal.commit({ emit: [callCompleted(a.world, session, null, { cost_usd: '0.3' })] });
    share.release();
    let isOver = false;
    // Two at once: one of them always waits.
    const refused = [1, 2].map(async () => {
      while (!isOver) expect(await a.limit.take(day, usd('0.9'))).toMatchObject({ ok: false });
    });
    await until(async () => (await b.limit.take(day, usd('0.5'))).ok, PATIENCE_SECONDS);
    isOver = true;
    await Promise.all(refused);
  });

  test('the keys of the gateway have allowances of their own, of what their own callers spent', async () => {
    const [a, b] = (await openNodes(['a', 'b'])) as [Node, Node];
    const key = (caller: string): SharedLimit => ({ ...day, pool: `key:${caller}`, caller });
    const session = await storedSession(a.world, { door: 'gateway', caller: 'ci' });
    await paid(a, session, await a.limit.take(key('ci'), usd('0.6')), usd('0.6'));
    expect(await b.limit.take(key('ci'), usd('0.6'))).toMatchObject({ ok: false });
    expect(await b.limit.take(key('team'), usd('0.6'))).toMatchObject({ ok: true });
  });
});
