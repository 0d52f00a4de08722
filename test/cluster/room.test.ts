// How many turns run on a node, and where one goes that finds it full (16 §5.4). `METIS_ROOM=full` measures what three nodes do.
import { describe, expect, test, vi } from 'vitest';
import type { ApiError } from '#client/client.ts';
import { startNodes, type TestNode } from '../support/nodes.ts';
import { pause } from '../support/planned-work.ts';
import { postgresService } from '../support/services.ts';
import { until } from '../support/until.ts';

const { url, missing } = await postgresService();

const MEASURED = process.env.METIS_ROOM === 'full';
const PATIENCE_SECONDS = 60;
vi.setConfig({ testTimeout: MEASURED ? 600_000 : 120_000 });

/** Model calls that are under way, until they are let go. */
function heldCalls() {
  const open = new Set<() => void>();
  let most = 0;
  let free = false;
  return {
    async answer() {
      if (!free) {
        await new Promise<void>((resolve) => {
          open.add(resolve);
          most = Math.max(most, open.size);
        });
      }
      return { text: 'done' };
    },
    open: () => open.size,
    most: () => most,
    letGo() {
      free = true;
      for (const go of open) go();
    },
  };
}

const sessionsOf = (node: TestNode, workspace: string, count: number) =>
  Promise.all(Array.from({ length: count }, () => node.session(workspace)));

describe.skipIf(url === null)(`room${missing && `, skipped: ${missing}`}`, () => {
  // Promise 16.15: a node runs no more turns than it may, and a tree that nobody owns goes where there is room.
  test('a node runs as many turns as it may; a tree that nobody owns goes where there is room', async () => {
    const held = heldCalls();
    const nodes = await startNodes({ database: url!, answer: held.answer, set: { 'cluster.max_turns': 2 } });
    const all = await Promise.all(['a', 'b', 'c'].map((name) => nodes.start(name)));
    const [a, b] = all as [TestNode, TestNode, TestNode];
    const workspace = nodes.workspace('w');
    const orphans = await sessionsOf(a, workspace, 3);
    await a.stop();
    const owned = await sessionsOf(b, workspace, 3);
    const taken: string[] = [];
    const submit = async (session: string) => {
      const { turn_id } = await b.client.submitTurn(session, { content: 'hello' });
      taken.push(session);
      return { session, turn_id };
    };
    // The third waits at b: its tree is there.
    const own = owned.map(submit);
    await until(() => taken.length === 2 && held.open() === 2, PATIENCE_SECONDS);
    const elsewhere = orphans.slice(0, 2).map(submit);
    await until(() => taken.length === 4 && held.open() === 4, PATIENCE_SECONDS);
    // Full everywhere.
    const last = submit(orphans[2]!);
    const owners = 'SELECT n.name FROM trees t JOIN nodes n ON n.id = t.owner_node WHERE t.root_session_id = ANY ($1)';
    expect(await nodes.rows(owners, orphans.slice(0, 2))).toEqual([{ name: 'c' }, { name: 'c' }]);
    await until(async () => (await b.client.listNodes()).every(({ turns }) => turns === 2), PATIENCE_SECONDS);
    expect([taken.length, held.most()]).toEqual([4, 4]);
    held.letGo();
    for (const { session, turn_id } of await Promise.all([...own, ...elsewhere, last]))
      await until(async () => (await b.client.getTurn(session, turn_id)).status === 'completed', PATIENCE_SECONDS);
    expect(taken).toHaveLength(6);
  });

  // Promise 16.15 (npm test -- room): three nodes make 2.2 times the turns a second of one, by `npm test -- room`.
  test.runIf(MEASURED)(
    'three nodes make at least 2.2 times the turns a second of one, and full ones refuse after 30 s',
    async () => {
      const CALL_MS = 500;
      const SESSIONS = 200;
      const SECONDS = 30;
      let slow = CALL_MS;
      const answer = async () => {
        await pause(slow);
        return { text: 'done' };
      };
      const nodes = await startNodes({ database: url!, answer, set: { 'cluster.max_turns': 20 } });
      const all: TestNode[] = [];
      const perSecond = async () => {
        const sessions = await Promise.all(
          Array.from({ length: SESSIONS }, (_, i) => all[i % all.length]!.session(nodes.workspace('w'))),
        );
        const until = performance.now() + SECONDS * 1000;
        let turns = 0;
        await Promise.all(
          sessions.map(async (session, i) => {
            const target = `${all[i % all.length]!.url}/sessions/${session}/turns`;
            const headers = { 'content-type': 'application/json', prefer: 'wait=60' };
            while (performance.now() < until) {
              const response = await fetch(target, { method: 'POST', headers, body: '{"content": "hello"}' });
              const { status } = (await response.json()) as { status?: string };
              if (status === 'completed' && performance.now() < until) turns += 1;
            }
          }),
        );
        return turns / SECONDS;
      };
      all.push(await nodes.start('a'));
      const one = await perSecond();
      all.push(await nodes.start('b'), await nodes.start('c'));
      const three = await perSecond();
      process.stdout.write(
        `turns a second: one node ${one.toFixed(1)}, three ${three.toFixed(1)}: ${(three / one).toFixed(2)}\n`,
      );
      expect(three / one).toBeGreaterThanOrEqual(2.2);

      slow = 60_000;
      const [{ client }] = all as [TestNode];
      const sessions = await Promise.all(
        Array.from({ length: 61 }, (_, i) => all[i % 3]!.session(nodes.workspace('w'))),
      );
      const outcomes = await Promise.all(
        sessions.map((session) =>
          client.submitTurn(session, { content: 'hello' }).then(
            () => 'taken',
            (error: ApiError) => error.code,
          ),
        ),
      );
      expect(outcomes.filter((outcome) => outcome === 'server_busy')).toHaveLength(1);
    },
  );
});
