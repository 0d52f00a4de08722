// The limit of a day, of which several nodes spend at once: never above it, nearly all of it, and a dead node's part comes back (16 §8).
import { describe, expect, onTestFinished, test } from 'vitest';
import { type Clock, systemClock } from '../../src/kernel/clock.ts';
import { fromPusd, type Pusd, toPusd } from '../../src/kernel/money.ts';
import { DAY_MS } from '../../src/policy/analytics/rollup.ts';
import type { Share, SharedLimit } from '../../src/ports/day-limit.ts';
import { silentLogger } from '../../src/ports/log.ts';
import { type AllowedDayLimit, createDayLimit } from '../../src/store/postgres/cluster/day-limit.ts';
import { openSchema, type PostgresWorld } from '../store/postgres/world.ts';
import { storedSession } from '../store/suite/nouns.ts';
import { NOON } from '../store/suite/world.ts';
import { callCompleted } from '../support/drafts.ts';
import { ownSchema, postgresService } from '../support/services.ts';
import { until } from '../support/until.ts';

const { url, missing } = await postgresService();
const LEASE_SECONDS = 1;
const LIMIT = toPusd('1');
const day: SharedLimit = { pool: 'day', limit: LIMIT, since: NOON - (NOON % DAY_MS), caller: null };
const usd = (text: string) => toPusd(text as Parameters<typeof toPusd>[0]);

interface Node {
  readonly world: PostgresWorld;
  readonly limit: AllowedDayLimit;
  /** Nothing of it is due any more, as in a process that was killed. */
  kill(): void;
  readonly alive: () => boolean;
}

async function nodes(names: readonly string[]): Promise<Node[]> {
  const schema = await ownSchema(url!);
  onTestFinished(() => schema.drop());
  const made: Node[] = [];
  for (const name of names) {
    let alive = true;
    const clock: Clock = { ...systemClock, after: (ms, fn) => systemClock.after(ms, () => alive && fn()) };
    const world = await openSchema(schema.url, NOON, { name, leaseSeconds: LEASE_SECONDS, clock });
    const limit = createDayLimit({
      pool: world.pool,
      trees: world.trees,
      leaseSeconds: LEASE_SECONDS,
      clock,
      log: silentLogger,
    });
    onTestFinished(() => limit.close());
    made.push({
      world,
      limit,
      alive: () => alive,
      kill: () => {
        alive = false;
      },
    });
  }
  return made;
}

/** A call that costs all that was reserved for it: what is counted wrong shows at once. */
async function paid({ world }: Node, session: Parameters<typeof callCompleted>[1], share: Share, amount: Pusd) {
  if (!share.ok) throw new Error('refused');
  await world.journal.commit({ emit: [callCompleted(world, session, null, { cost_usd: fromPusd(amount) })] });
  share.release();
}
const ledger = async ({ world }: Node) => (await world.store.spend.since(day.since)) as Pusd;

describe.skipIf(url === null)(`the limit of a day on several nodes${missing && `, skipped: ${missing}`}`, () => {
  test('three nodes spend at once and one is killed: never more than the limit, and nine tenths of it can be spent', async () => {
    const three = await nodes(['a', 'b', 'c']);
    const [a, , c] = three as [Node, Node, Node];
    const heldByDead = usd('0.3');
    // Calls in flight of a node that dies: of no cost, and in the way until its lease has ended.
    expect(await c.limit.take(day, heldByDead)).toMatchObject({ ok: true });

    const seen: Pusd[] = [];
    async function spend(node: Node): Promise<void> {
      const session = await storedSession(node.world);
      const calls = async () => {
        for (let n = 1; node.alive(); n += 1) {
          const amount = ((toPusd('0.01') * BigInt((n % 7) + 1)) / 7n) as Pusd;
          const share = await node.limit.take(day, amount);
          // Whoever was killed meanwhile settles nothing.
          if (!node.alive()) return;
          if (share.ok) await paid(node, session, share, amount);
          else if ((await a.world.trees.nodes()).length < three.length) return;
          else await pauseOf(20);
          if (n === 3 && node === c) c.kill();
        }
      };
      await Promise.all(Array.from({ length: 8 }, calls));
    }
    let done = false;
    const watch = async () => {
      while (!done) seen.push(await ledger(a));
    };
    const watching = watch();
    await Promise.all(three.map(spend));
    done = true;
    await watching;

    const spent = await ledger(a);
    seen.push(spent);
    expect(seen.filter((each) => each > LIMIT)).toEqual([]);
    expect(spent).toBeGreaterThanOrEqual(usd('0.9'));
    // What the dead node held is spent by the others in the end.
    expect(seen.some((each) => each > LIMIT - heldByDead)).toBe(true);
  });

  test('of nodes that ask at the same moment for more than half, one gets it', async () => {
    const three = await nodes(['a', 'b', 'c']);
    for (let round = 0; round < 10; round += 1) {
      const limit = { ...day, pool: `key:${round}`, caller: String(round) };
      const shares = await Promise.all(three.map((each) => each.limit.take(limit, usd('0.6'))));
      expect(shares.filter((share) => share.ok)).toHaveLength(1);
    }
  });

  test('a call that fits asks nobody; one that does not is told what others hold', async () => {
    const [a, b] = (await nodes(['a', 'b'])) as [Node, Node];
    const first = await a.limit.take(day, usd('0.1'));
    expect(first.ok).toBe(true);
    // 2 % of the limit is slack: the answer comes without a question.
    expect(a.limit.take(day, usd('0.01'))).toMatchObject({ ok: true });
    expect(b.limit.take(day, usd('0.01'))).toBeInstanceOf(Promise);
    const refused = await b.limit.take(day, usd('0.95'));
    expect(refused).toEqual({ ok: false, elsewhere: usd('0.12') });
  });

  test('what is left of ended calls is given back with the heartbeat, and slack that nobody uses with the next', async () => {
    const [a, b] = (await nodes(['a', 'b'])) as [Node, Node];
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

  test('the keys of the gateway have allowances of their own, of what their own callers spent', async () => {
    const [a, b] = (await nodes(['a', 'b'])) as [Node, Node];
    const key = (caller: string): SharedLimit => ({ ...day, pool: `key:${caller}`, caller });
    const session = await storedSession(a.world, { door: 'gateway', caller: 'ci' });
    await paid(a, session, await a.limit.take(key('ci'), usd('0.6')), usd('0.6'));
    expect(await b.limit.take(key('ci'), usd('0.6'))).toMatchObject({ ok: false });
    expect(await b.limit.take(key('team'), usd('0.6'))).toMatchObject({ ok: true });
  });
});

const pauseOf = (ms: number) => new Promise<void>((resolve) => void systemClock.after(ms, resolve));
