// Two nodes with different trees that merge into one workspace: one after the other, whatever ends in between (20 §2.5).
import fs from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import { describe, expect, test, vi } from 'vitest';
import { silentLogger } from '#core/ports/logger.ts';
import { systemClock } from '#protocol/clock.ts';
import { createWorkspaceLock, nameWorkspaceLock } from '#store/postgres/connection/workspace-lock.ts';
import type { FakeCall, FakeMessage } from '../support/fake-provider.ts';
import { startNodes } from '../support/nodes.ts';
import { ownSchema, postgresService } from '../support/services.ts';
import { until } from '../support/until.ts';
import { initRepository } from '../support/worktrees.ts';

const { url, missing } = await postgresService();
const PATIENCE_SECONDS = 60;
vi.setConfig({ testTimeout: 180_000 });

const KEY = "hashtext(current_schema() || ' ' || $1)";
const WAITING = `SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid::bigint = ${KEY}::bigint & 4294967295`;
const WORKERS = ['1', '2', '3'];
/** Far enough apart that git merges changes of single lines. */
const text = (lines: ReadonlySet<string>) =>
  ['a1', 'a2', 'a3', 'b1', 'b2', 'b3']
    .flatMap((name) => [lines.has(name) ? `${name} done` : name, ...Array.from({ length: 8 }, () => '-')])
    .join('\n');

/** The planner of `turn <node>` has workers that change one line of the file each. */
function answer(call: FakeCall): FakeMessage {
  if (call.results.length > 0) return { text: 'done' };
  const job = /job (\w+)/.exec(call.system)?.[1];
  if (job !== undefined) {
    const input = { command: `sed -i 's/^${job}$/${job} done/' file.txt` };
    return { tool_calls: [{ name: 'shell', input }] };
  }
  const node = /turn (\w)/.exec(call.user)![1];
  return {
    tool_calls: WORKERS.map((n) => ({
      name: 'delegate',
      input: { tier: 'fast', task: `job ${node}${n}`, isolation: 'worktree' },
    })),
  };
}

describe.skipIf(url === null)(`one workspace of several nodes${missing && `, skipped: ${missing}`}`, () => {
  test('a node merges once no other one does, and both lose no change', async () => {
    const nodes = await startNodes({ database: url!, answer });
    const set = { 'cluster.worktree_root': path.join(nodes.root, 'trees') };
    const workspace = path.join(nodes.root, 'repo');
    const file = path.join(workspace, 'file.txt');
    initRepository(workspace, { 'file.txt': text(new Set()) });
    const both = await Promise.all(['a', 'b'].map((name) => nodes.start(name, { set })));
    // A third one merges, and is about to write.
    await nodes.rows(`SELECT pg_advisory_lock(${KEY})`, nameWorkspaceLock(workspace));
    const turns = both.map(async (node) => node.turn(await node.session(workspace), `turn ${node.name}`));
    await until(
      async () => (await nodes.rows(WAITING, nameWorkspaceLock(workspace))).length === both.length,
      PATIENCE_SECONDS,
    );
    expect(fs.readFileSync(file, 'utf8')).toBe(text(new Set()));
    fs.writeFileSync(path.join(workspace, 'third.txt'), 'third\n');
    await nodes.rows(`SELECT pg_advisory_unlock(${KEY})`, nameWorkspaceLock(workspace));
    for (const turn of await Promise.all(turns)) expect(turn.status).toBe('completed');
    expect(await nodes.rows('SELECT applied, count(*) AS n FROM worktrees GROUP BY 1')).toEqual([
      { applied: '1', n: '6' },
    ]);
    expect(fs.readFileSync(file, 'utf8')).toBe(text(new Set(['a1', 'a2', 'a3', 'b1', 'b2', 'b3'])));
    expect(fs.readdirSync(workspace).sort()).toEqual(['.git', 'file.txt', 'third.txt']);
    // Nothing holds a connection while nothing is merged.
    expect(await nodes.rows("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")).toEqual([]);
  });

  test('the lock of a workspace ends with the connection of its holder, and holds one workspace alone', async () => {
    const schema = await ownSchema(url!);
    const openLock = () =>
      createWorkspaceLock({ url: schema.url, isOfUse: () => true, clock: systemClock, log: silentLogger });
    const [a, b] = [openLock(), openLock()];
    const steps: string[] = [];
    let release = () => {};
    const released = new Promise<void>((resolve) => {
      release = resolve;
    });
    let begin = () => {};
    const begun = new Promise<void>((resolve) => {
      begin = resolve;
    });
    const first = a.run('/one', async () => {
      begin();
      await released;
      steps.push('first ends');
      return 1;
    });
    await begun;
    const second = b.run('/one', async () => {
      steps.push('second begins');
      return 2;
    });
    expect(await b.run('/two', async () => 3)).toBe(3);
    expect(steps).toEqual([]);
    release();
    expect([await first, await second]).toEqual([1, 2]);
    expect(steps).toEqual(['first ends', 'second begins']);

    // The holder's connection is ended, as the database does with that of a stopped process.
    const third = a.run('/one', async () => {
      const { rows } = await cutHolders();
      expect(rows.length).toBe(1);
      return b.run('/one', async () => 4);
    });
    expect(await third).toBe(4);
    for (const lock of [a, b]) await lock.close();
    await schema.drop();

    async function cutHolders() {
      const client = new pg.Client({ connectionString: schema.url });
      await client.connect();
      try {
        return await client.query(
          `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objid::bigint = ${KEY}::bigint & 4294967295`,
          [nameWorkspaceLock('/one')],
        );
      } finally {
        await client.end();
      }
    }
  });
});
