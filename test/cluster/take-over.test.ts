// Nodes that die, stop or go down with turns at work: others finish these, and nothing is paid or run twice (16 §4, §10).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, test, vi } from 'vitest';
import { type Nodes, startNodes, type TestNode } from '../support/nodes.ts';
import { accountOf, CALLS_A_TURN, LOG, message, pause, plannedWork } from '../support/planned-work.ts';
import { postgresService } from '../support/services.ts';
import { until } from '../support/until.ts';

const { url, missing } = await postgresService();

/** Processes start slowly on a machine that has much else to do; every wait ends as soon as it may. */
const PATIENCE_SECONDS = 60;
vi.setConfig({ testTimeout: 180_000 });

/** A turn in each of these sessions; resolves when all are at work. */
async function begin(nodes: Nodes, node: TestNode, names: readonly string[]): Promise<string[]> {
  return Promise.all(
    names.map(async (name) => {
      const session = await node.session(nodes.workspace(name));
      await node.client.submitTurn(session, { content: message(name) });
      return session;
    }),
  );
}
/** The same in one more, by way of another node, with an answer that is waited for. */
async function beginWaiting(node: TestNode, session: string, name: string): Promise<unknown[]> {
  const answer = await fetch(`${node.url}/sessions/${session}/turns`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'idempotency-key': name, prefer: 'wait=120' },
    body: JSON.stringify({ content: message(name) }),
  });
  const { status = null } = (await answer.json()) as { status?: string };
  return [answer.status, status];
}
const allEnded = (nodes: Nodes, count: number) =>
  until(async () => {
    const [row] = await nodes.rows(
      'SELECT count(*) AS n FROM turns t JOIN sessions s ON s.id = t.session_id WHERE s.is_worker = 0 AND t.ended_at IS NOT NULL',
    );
    return Number(row!.n) === count;
  }, PATIENCE_SECONDS);
const nameList = (count: number) => Array.from({ length: count }, (_, i) => `s${i}`);
const linesOf = (nodes: Nodes, name: string) =>
  fs
    .readFileSync(path.join(nodes.root, name, LOG), 'utf8')
    .split('\n')
    .filter(Boolean);

describe.skipIf(url === null)(`take-over${missing && `, skipped: ${missing}`}`, () => {
  // Promise 16.1: a node that is killed at work leaves no turn unfinished.
  // Promise 16.2: after a node was killed no completed call is paid again, no call has a second worker, no command runs twice.
  test('SIGKILL of a node at work: another finishes every turn, no completed call is paid again, no command runs twice', async () => {
    const names = nameList(6);
    const work = plannedWork(() => 150);
    const nodes = await startNodes({ database: url!, answer: work.answer });
    const [a, b] = await Promise.all([nodes.start('a'), nodes.start('b')]);
    const waited = beginWaiting(b, await a.session(nodes.workspace(names[0]!)), names[0]!);
    await begin(nodes, a, names.slice(1));
    // In the middle: some commands have run, some workers are at work.
    await until(() => work.asks.length >= names.length * 3, PATIENCE_SECONDS);
    await a.kill();
    const open = Number(
      (
        await nodes.rows(
          `SELECT count(*) AS n FROM events s WHERE type = 'llm.call_started' AND NOT EXISTS (
         SELECT 1 FROM events e WHERE e.parent_event_id = s.id AND e.type IN ('llm.call_completed', 'llm.call_failed'))`,
        )
      )[0]!.n,
    );
    expect(open).toBeGreaterThan(0);
    await allEnded(nodes, names.length);
    expect(await waited).toEqual([200, 'completed']);
    const account = await accountOf(nodes, work);
    expect(account).toMatchObject({
      paidTwice: [],
      paid: names.length * CALLS_A_TURN,
      turns: { 'completed end_turn': names.length },
      unended: [],
      strayWorkers: [],
    });
    expect(account.unpaid).toBeLessThanOrEqual(open);
    for (const name of names) expect(linesOf(nodes, name).length).toBeLessThanOrEqual(1);
    expect(await nodes.rows('SELECT 1 FROM trees WHERE wanted')).toEqual([]);
    expect(await nodes.rows('SELECT name FROM nodes WHERE lease_until > now()')).toEqual([{ name: 'b' }]);
  });

  // Promise 16.5: a node that stands still beyond its lease commits nothing of what it lost, has a new id, and takes new turns; its commands ran once.
  test('a node that stands still beyond its lease commits nothing of what it lost, and comes back under a new id', async () => {
    const names = nameList(10);
    let stopped = false;
    const work = plannedWork(
      () => 50,
      async ({ key }) => {
        // A call in the middle of each tree is under way until the node stands still.
        if (key.endsWith('planner 2')) await until(() => stopped, PATIENCE_SECONDS);
      },
    );
    const nodes = await startNodes({ database: url!, answer: work.answer });
    const [a] = await Promise.all([nodes.start('a'), nodes.start('b')]);
    await begin(nodes, a, names);
    await until(
      () =>
        new Set(work.asks.filter(({ key }) => key.endsWith('planner 2')).map(({ key }) => key)).size === names.length,
      PATIENCE_SECONDS,
    );
    const [before] = await nodes.rows("SELECT id FROM nodes WHERE name = 'a'");
    /** What is learned of a turn comes later, and from any node. */
    const eventsOfTurns = () =>
      nodes.rows(
        `SELECT e.id FROM events e JOIN sessions s ON s.id = e.session_id
         WHERE s.workspace_path NOT LIKE '%/later' AND e.type NOT LIKE 'eval.%' AND e.type NOT LIKE 'pattern.%' ORDER BY e.id`,
      );
    a.signal('SIGSTOP');
    stopped = true;
    await allEnded(nodes, names.length);
    const rows = await eventsOfTurns();
    a.signal('SIGCONT');
    const after = await until(async () => {
      const [row] = await nodes.rows("SELECT id FROM nodes WHERE name = 'a' AND lease_until > now()");
      return row !== undefined && row.id !== before!.id && row;
    }, PATIENCE_SECONDS);
    expect(after.id).not.toBe(before!.id);
    const session = await a.session(nodes.workspace('later'));
    expect(await a.turn(session, message('later'))).toMatchObject({ status: 'completed' });
    const ours = await eventsOfTurns();
    expect(ours).toEqual(rows);
    const account = await accountOf(nodes, work);
    expect(account).toMatchObject({ paidTwice: [], turns: { 'completed end_turn': names.length + 1 }, unended: [] });
    for (const name of names) expect(linesOf(nodes, name)).toEqual([name]);
  });

  // Promise 16.12: turns of a node that is stopped in order go on elsewhere before its lease ends, and no call is repeated.
  test('SIGTERM with turns at work: they go on elsewhere at once, and no call is repeated', async () => {
    const names = nameList(4);
    const work = plannedWork(() => 300);
    const nodes = await startNodes({
      database: url!,
      answer: work.answer,
      set: { 'shutdown.drain_seconds': 10, 'cluster.lease_seconds': 60 },
    });
    const [a, b] = await Promise.all([nodes.start('a'), nodes.start('b')]);
    const waited = beginWaiting(b, await a.session(nodes.workspace(names[0]!)), names[0]!);
    await begin(nodes, a, names.slice(1));
    await until(() => work.asks.length >= names.length * 2, PATIENCE_SECONDS);
    expect(await a.stop()).toMatchObject({ code: 0 });
    // It goes on elsewhere: not an answer that says it stands.
    expect(await waited).toEqual([202, null]);
    // No lease ran out: it was given up.
    await allEnded(nodes, names.length);
    const account = await accountOf(nodes, work);
    expect(account).toMatchObject({
      paidTwice: [],
      unpaid: 0,
      turns: { 'completed end_turn': names.length },
      unended: [],
    });
    const [resumed] = await nodes.rows("SELECT count(*) AS n FROM events WHERE type = 'turn.resumed'");
    expect(Number(resumed!.n)).toBeGreaterThanOrEqual(names.length);
    for (const name of names) expect(linesOf(nodes, name)).toEqual([name]);
  });

  // Promise 16.19: a turn that ends its node at each resumption is cancelled after three; one that makes progress is not.
  test('a turn that kills its node at each resumption is ended after three; one that makes progress is not, nor those beside it', async () => {
    let node: TestNode | null = null;
    const nodes = await startNodes({
      database: url!,
      answer: async ({ user, number }) => {
        const [kind] = /deadly|lively|bystander/.exec(user)!;
        deaths.set(kind!, (deaths.get(kind!) ?? 0) + 1);
        const asked = deaths.get(kind!)!;
        // Each second call of the lively one is answered before its node dies.
        if (kind === 'lively') {
          if (asked > 9) return { text: 'done' };
          if (asked % 2 === 1) return { tool_calls: [{ name: 'list_files', input: { path: '.' } }] };
        }
        if (kind === 'bystander') {
          await pause(1500);
          return { text: 'done' };
        }
        // By then those beside it are at work, and none of them has come to anything.
        if (bystanders > 0) await pause(700);
        await node!.kill();
        return { text: `nobody hears ${number}` };
      },
    });
    const deaths = new Map<string, number>();
    let bystanders = 3;
    for (const kind of ['deadly', 'lively']) {
      node = await nodes.start('n0');
      for (let i = 0; i < bystanders; i++) {
        const other = await node.session(nodes.workspace(`bystander ${i}`));
        await node.client.submitTurn(other, { content: 'bystander' });
      }
      const session = await node.session(nodes.workspace(kind));
      const { turn_id } = await node.client.submitTurn(session, { content: kind });
      for (let n = 1; ; n++) {
        await until(
          () => node!.child.exitCode !== null || node!.child.signalCode !== null || ended(turn_id),
          PATIENCE_SECONDS,
        );
        if (await ended(turn_id)) break;
        node = await nodes.start(`n${n}`);
      }
      await allEnded(nodes, 1 + 3 + (kind === 'lively' ? 1 : 0));
      bystanders = 0;
      await node.kill();
    }
    async function ended(turn: string): Promise<boolean> {
      return (await nodes.rows('SELECT 1 FROM turns WHERE id = $1 AND ended_at IS NOT NULL', turn)).length > 0;
    }
    const turns = await nodes.rows(
      "SELECT status, cancel_reason FROM turns t JOIN sessions s ON s.id = t.session_id WHERE workspace_path NOT LIKE '%bystander%' ORDER BY t.id",
    );
    expect(turns).toEqual([
      { status: 'cancelled', cancel_reason: 'shutdown' },
      { status: 'completed', cancel_reason: null },
    ]);
    expect(deaths.get('deadly')).toBe(4);
    expect(await nodes.rows("SELECT 1 FROM turns WHERE status = 'completed'")).toHaveLength(4);
  });
});
