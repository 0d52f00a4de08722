// Who owns a tree on several nodes: the lease, the claim, the fence, and answers that were lost (16 §3, §4).
import { describe, expect, onTestFinished, test } from 'vitest';
import { silentLogger } from '#core/ports/logger.ts';
import { TreeLost } from '#protocol/journal-batch.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { register } from '#store/cluster/node-lease.ts';
import { createPool } from '#store/postgres/connection/pool.ts';
import { type NodeOptions, openSchema, type PostgresWorld, released } from '../store/postgres/world.ts';
import { endTurn, storedSession, storedTurn } from '../store/suite/nouns.ts';
import { NOON } from '../store/suite/world.ts';
import { systemEvent } from '../support/drafts.ts';
import { manualClock } from '../support/manual-clock.ts';
import { gate } from '../support/moments.ts';
import { ownSchema, postgresService, type Schema } from '../support/services.ts';
import { until } from '../support/until.ts';

const { url, missing } = await postgresService();
const LEASE_SECONDS = 1;

async function emptySchema(): Promise<Schema> {
  const schema = await ownSchema(url!);
  onTestFinished(() => schema.drop());
  return schema;
}
const node = (schema: Schema, name: string, options: NodeOptions = {}): Promise<PostgresWorld> =>
  openSchema(schema.url, NOON, { name, leaseSeconds: LEASE_SECONDS, ...options });

/** What a sweep asks first, what it reads of its own rows, and how one of them is given up. */
const LOOKS = /^SELECT\s+EXISTS \(SELECT 1 FROM trees WHERE owner_node IS NULL/;
const READS_OWN = /^SELECT root_session_id AS root FROM trees WHERE owner_node/;
const RELEASES = /^UPDATE trees SET owner_node = NULL WHERE root_session_id/;

const told = (session: SessionRecord, label: string) => ({ emit: [systemEvent(label, { session_id: session.id })] });
const treeRow = async (world: PostgresWorld, root: string) =>
  (
    await world.rows('SELECT owner_node, owner_epoch, seq, last_id, wanted FROM trees WHERE root_session_id = ?', root)
  )[0];

describe.skipIf(url === null)(`ownership${missing && `, skipped: ${missing}`}`, () => {
  test('a tree is held by who made it; others learn where, and what they write of it is refused whole', async () => {
    const schema = await emptySchema();
    const [a, b] = [await node(schema, 'a'), await node(schema, 'b')];
    const session = await storedSession(a);
    expect(released(await a.trees.hold(session.id))).toMatchObject({ own: true });
    expect(await b.trees.hold(session.id)).toEqual({
      own: false,
      url: 'http://a',
      epoch: 1,
      place: expect.any(String),
    });
    await expect(b.journal.commit(told(session, 'stolen'))).rejects.toThrow(TreeLost);
    expect(await a.count('events')).toBe(0);
    expect(await b.trees.hold(a.ids.session())).toBeNull();
    expect(await b.trees.nodes()).toMatchObject([
      { name: 'a', trees: 1 },
      { name: 'b', trees: 0 },
    ]);
  });

  // Promise 16.20: of nodes that register one name at the same moment one gets it.
  test('of nodes that register one name at the same moment one gets it', async () => {
    const world = await node(await emptySchema(), 'other');
    const ROUNDS = 10;
    for (let i = 0; i < ROUNDS; i++) {
      const self = { name: `same${i}`, url: '', version: '0', places: [], configKeys: {}, schema: 1 };
      const each = Array.from({ length: 4 }, () => register(world.pool, world.ids.next(), self, 60_000));
      expect((await Promise.all(each)).filter(Boolean)).toHaveLength(1);
    }
    expect(await world.rows("SELECT name FROM nodes WHERE name LIKE 'same%'")).toHaveLength(ROUNDS);
  });

  test('of two nodes that claim a tree at once one gets it, and an idle one goes to who asks', async () => {
    const schema = await emptySchema();
    const [a, b] = [await node(schema, 'a'), await node(schema, 'b')];
    const session = await storedSession(a);
    await a.trees.releaseAll();
    expect(await treeRow(a, session.id)).toMatchObject({ owner_node: null, owner_epoch: 1n });
    const holds = await Promise.all([a.trees.hold(session.id), b.trees.hold(session.id)]);
    expect(holds.map((hold) => released(hold)?.own).sort()).toEqual([false, true]);
    expect(await treeRow(a, session.id)).toMatchObject({ owner_epoch: 2n });
  });

  test('a new tree is not claimed again by a sweep that sees it before its node has the answer', async () => {
    const answered = gate();
    let late = true;
    let sweeps = 0;
    const world = await node(await emptySchema(), 'a', {
      through: (pool) => {
        async function answerLate<T>(commit: Promise<T>): Promise<T> {
          const answer = await commit;
          if (late && (await pool.send('SELECT 1 FROM trees', [])).rows.length > 0) {
            late = false;
            await answered.opened;
          }
          return answer;
        }
        return {
          ...pool,
          async send(sql, values, how) {
            if (LOOKS.test(sql)) sweeps += 1;
            return pool.send(sql, values, how);
          },
          transaction: (work) => answerLate(pool.transaction(work)),
          atOnce: (statements) => answerLate(pool.atOnce(statements)),
        };
      },
    });
    const storing = storedSession(world);
    await until(() => !late);
    const before = sweeps;
    // With the third that begins from now on, what the first two found is done.
    await until(() => sweeps >= before + 3);
    answered.open();
    const session = await storing;
    expect(await treeRow(world, session.id)).toMatchObject({ owner_epoch: 1n, seq: 1n });
    await world.journal.commit(told(session, 'after'));
    expect(await treeRow(world, session.id)).toMatchObject({ owner_epoch: 1n, seq: 2n });
  });

  test('a tree that is being released is not claimed again by a sweep that read its row before', async () => {
    const read = gate();
    const gone = gate();
    let late = false;
    let sweeps = 0;
    const world = await node(await emptySchema(), 'a', {
      through: (pool) => ({
        ...pool,
        async send(sql, values, how) {
          if (LOOKS.test(sql)) sweeps += 1;
          if (late && RELEASES.test(sql)) await read.opened;
          const answer = await pool.send(sql, values, how);
          if (late && READS_OWN.test(sql)) {
            read.open();
            await gone.opened;
          }
          return answer as never;
        },
      }),
    });
    const session = await storedSession(world);
    late = true;
    await world.trees.releaseAll();
    late = false;
    const before = sweeps;
    gone.open();
    await until(() => sweeps >= before + 2);
    expect(await treeRow(world, session.id)).toMatchObject({ owner_node: null, owner_epoch: 1n });
  });

  test('a stopped node loses its trees by the sweep of another, writes nothing of them and comes back under a new id', async () => {
    const schema = await emptySchema();
    // Its timers stand still, and by its own clock no time has passed.
    const stopped = manualClock(NOON);
    const a = await node(schema, 'a', { clock: stopped });
    const session = await storedSession(a);
    const turn = await storedTurn(a, session);
    const idle = await storedSession(a);
    const [before] = await a.journal.commit(told(session, 'before'));
    expect(await treeRow(a, session.id)).toMatchObject({ wanted: 1n });
    const id = a.trees.node;

    const taken: unknown[] = [];
    const b = await node(schema, 'b', { takeUp: async (root, how) => void taken.push([root, how]) });
    await until(() => b.trees.holds(session.id));
    expect(taken).toEqual([[session.id, { wanted: true, swept: true }]]);
    expect(await treeRow(b, session.id)).toMatchObject({ owner_node: b.trees.node, owner_epoch: 2n, wanted: 1n });
    await until(async () => (await treeRow(b, idle.id))?.owner_node === null);

    const events = await a.count('events');
    await expect(a.journal.commit(told(session, 'late'))).rejects.toThrow(TreeLost);
    expect(await a.count('events')).toBe(events);
    const [after] = await b.journal.commit(told(session, 'after'));
    expect(after!.id > before!.id).toBe(true);
    await endTurn(b, turn);
    expect(await treeRow(b, session.id)).toMatchObject({ wanted: 0n });

    const lost: string[] = [];
    a.trees.onLost((root) => lost.push(root));
    stopped.advance(LEASE_SECONDS * 1000);
    await until(() => a.trees.node !== id);
    expect(lost).toContain(idle.id);
    expect((await b.trees.nodes()).map((each) => each.id)).not.toContain(id);
  });

  // Promise 18.7: a tree whose owner's lease has ended counts as taken over where a request claims it, one that was released and idle does not.
  test('a request that claims a tree of a node whose lease has ended counts as a take-over', async () => {
    const schema = await emptySchema();
    const a = await node(schema, 'a', { clock: manualClock(NOON) });
    const [lapsed, given] = [await storedSession(a), await storedSession(a)];
    await a.execute('UPDATE trees SET owner_node = NULL WHERE root_session_id = ?', given.id);
    // Its sweeps look in vain, so that requests alone claim.
    const b = await node(schema, 'b', {
      leaseSeconds: 60,
      through: (pool) => ({
        ...pool,
        send: (sql, values, how) => (LOOKS.test(sql) ? new Promise(() => {}) : pool.send(sql, values, how)),
      }),
    });
    await a.execute("UPDATE nodes SET lease_until = now() - CAST('1 second' AS interval) WHERE name = 'a'");
    expect(released(await b.trees.hold(given.id))).toMatchObject({ own: true });
    expect(b.trees.figures().takeovers).toEqual({ released: 0, lapsed: 0 });
    expect(released(await b.trees.hold(lapsed.id))).toMatchObject({ own: true });
    expect(b.trees.figures().takeovers).toEqual({ released: 0, lapsed: 1 });
  });

  test('upkeep that fails again and again is one line, and one more after it has worked again', async () => {
    let failures = 0;
    let sweeps = 0;
    let isAway = true;
    const world = await node(await emptySchema(), 'a', {
      leaseSeconds: 60,
      through: (pool) => ({
        ...pool,
        async send(sql, values, how) {
          if (isAway && LOOKS.test(sql)) {
            failures += 1;
            throw Object.assign(new Error('gone'), { code: 'ECONNREFUSED' });
          }
          if (LOOKS.test(sql)) sweeps += 1;
          return pool.send(sql, values, how);
        },
      }),
    });
    const lines = () => world.logged.map(({ message }) => message).filter((message) => message.includes('the upkeep'));
    await until(() => failures >= 3);
    expect(lines()).toEqual(['the database does not answer the upkeep of the node']);
    const before = sweeps;
    isAway = false;
    await until(() => sweeps >= before + 2);
    isAway = true;
    await until(() => failures >= 5);
    expect(lines()).toHaveLength(2);
  });

  // Promise 16.5: stopped between fence and COMMIT it delays the take-over by 3 s at most, and commits nothing.
  test('a node that stands still between fence and COMMIT keeps its tree from others for 3 s at most, and commits nothing', async () => {
    const schema = await emptySchema();
    const a = await node(schema, 'a', { clock: manualClock(NOON) });
    const session = await storedSession(a);
    await storedTurn(a, session);
    const pool = createPool({ url: schema.url, size: 1, synchronousCommit: 'on', log: silentLogger });
    onTestFinished(() => pool.close());
    let fenced = false;
    let goOn = () => {};
    const going = new Promise<void>((resolve) => {
      goOn = resolve;
    });
    const stopped = pool.transaction(async ({ send }) => {
      await send('UPDATE trees SET seq = seq + 1 WHERE root_session_id = ?', [session.id]);
      fenced = true;
      await going;
    });
    stopped.catch(() => {});
    await until(() => fenced);
    const b = await node(schema, 'b');
    await until(() => b.trees.holds(session.id));
    const row = await treeRow(b, session.id);
    goOn();
    await expect(stopped).rejects.toThrow();
    expect(await treeRow(b, session.id)).toEqual(row);
  });

  // Promise 16.22: a commit that the database refuses gives up its tree, and the node's own sweep takes it up.
  test('a commit that the database refuses gives up its tree, which the next sweep of the same node takes up', async () => {
    const schema = await emptySchema();
    const taken: string[] = [];
    const a = await node(schema, 'a', { leaseSeconds: 60, takeUp: async (root) => void taken.push(root) });
    const session = await storedSession(a);
    await storedTurn(a, session);
    // A tree whose row was lost with its database: the node holds as many trees as there are rows after the next loss.
    const gone = await storedSession(a);
    await a.execute('DELETE FROM trees WHERE root_session_id = ?', gone.id);
    await a.execute(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN RAISE EXCEPTION 'the disk is worn' USING ERRCODE = '58030'; END $$`);
    await a.execute('CREATE TRIGGER refuse BEFORE INSERT ON event_rows EXECUTE FUNCTION refuse()');
    const refused = a.journal.commit(told(session, 'refused'));
    await expect(refused).rejects.toThrow(TreeLost);
    expect(a.trees.holds(session.id)).toBe(false);
    expect(a.logged.some(({ message }) => message === 'commit failed')).toBe(true);
    await a.execute('DROP TRIGGER refuse ON event_rows');
    await until(() => taken.includes(session.id));
    await a.journal.commit(told(session, 'stored'));
    expect(await treeRow(a, session.id)).toMatchObject({ owner_node: a.trees.node, owner_epoch: 2n });
  });

  // Promise 16.24: a node that is too old drops its trees, is not ready, opens none, renews no lease.
  test('a node that a migration has made too old drops its trees, is not ready, makes none and renews no lease', async () => {
    const schema = await emptySchema();
    const a = await node(schema, 'a');
    const session = await storedSession(a);
    expect(a.trees.unready()).toBeNull();
    await a.execute("UPDATE meta SET value = '1000' WHERE key = 'compatible_from'");
    await until(() => a.trees.unready() !== null);
    expect(a.trees.unready()).toContain('a newer version has changed the database');
    expect(a.trees.holds(session.id)).toBe(false);
    await expect(storedSession(a)).rejects.toThrow(TreeLost);
    await until(async () => (await a.trees.nodes()).length === 0);
    expect(a.logged.filter(({ message }) => message.includes('newer version'))).toHaveLength(1);
  });

  test('connections are cut again and again under commits: each is written once, in its order', async () => {
    const schema = await emptySchema();
    const a = await node(schema, 'a', { leaseSeconds: 60 });
    const sessions = await Promise.all(Array.from({ length: 4 }, () => storedSession(a)));
    const killer = await node(await emptySchema(), 'killer', { leaseSeconds: 60 });
    const COMMITS = 40;
    const BETWEEN_CUTS = 8;
    let written = 0;
    let cuts = 0;
    async function commitAll(session: SessionRecord): Promise<void> {
      for (let i = 0; i < COMMITS; i++) {
        const committed = a.journal.commit(told(session, `${session.id} ${i}`));
        written += 1;
        // While it is on its way.
        if (written % BETWEEN_CUTS === 0) cuts += await cut();
        await committed;
      }
    }
    async function cut(): Promise<number> {
      const rows = await killer.rows(
        'SELECT pg_terminate_backend(pid) AS cut FROM pg_stat_activity WHERE application_name = ?',
        schema.name,
      );
      return rows.length;
    }
    await Promise.all(sessions.map(commitAll));
    expect(cuts).toBeGreaterThan(0);
    for (const session of sessions) {
      // The last cut may have met the connections of reads, which have not noticed it yet.
      const { rows } = await until(() => eventsOf(a, session).catch(() => null));
      expect(rows).toHaveLength(COMMITS);
      const row = await treeRow(a, session.id);
      expect(row?.seq).toBe(BigInt(COMMITS + 1));
      expect(a.trees.holds(session.id)).toBe(true);
    }
  });
});

async function eventsOf(world: PostgresWorld, session: SessionRecord) {
  const query = { session_id: session.id, include_workers: false, types: null, after: null, until: null, limit: 1000 };
  return world.store.events.list(query);
}
