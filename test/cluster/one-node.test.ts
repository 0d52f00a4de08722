// A node by itself: started by `metis serve`, it serves what the embedded server serves (16 §11), and only it loads the drivers.
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, onTestFinished, test } from 'vitest';
import { start, temporaryHome } from '../app/metis.ts';
import { startNodes } from '../support/nodes.ts';
import { postgresService } from '../support/services.ts';
import { until } from '../support/until.ts';

const { url, missing } = await postgresService();

describe.skipIf(url === null)(`one node${missing && `, skipped: ${missing}`}`, () => {
  test('sessions, turns, tools, history and reports over HTTP, and nothing is left held', async () => {
    const cluster = await startNodes({
      database: url!,
      answer: ({ results }) =>
        results.length === 0
          ? { tool_calls: [{ name: 'write_file', input: { path: 'a.txt', content: 'written' } }] }
          : { text: 'done', usage: { input: 10, output: 5 } },
      // A machine that stands still for seconds makes it no other node.
      set: { 'cluster.lease_seconds': 60 },
    });
    const workspace = cluster.workspace('one');
    const node = await cluster.startHere('a');
    const session = await node.session(workspace);
    expect(await node.turn(session, 'write')).toMatchObject({ status: 'completed', stop_reason: 'end_turn' });
    expect(fs.readFileSync(path.join(workspace, 'a.txt'), 'utf8')).toBe('written');
    const { messages } = await node.client.listMessages(session);
    expect(messages.map(({ role }) => role)).toEqual(['user', 'assistant', 'tool', 'assistant']);
    const cost = await node.client.getCost({ group_by: 'parent_session', from: 'all' });
    expect(cost.data).toMatchObject([{ parent_session_id: session, call_count: 2 }]);
    expect(await cluster.rows('SELECT name FROM nodes')).toEqual([{ name: 'a' }]);
    expect(await cluster.rows('SELECT wanted, owner_node IS NULL AS free FROM trees')).toEqual([
      { wanted: false, free: false },
    ]);

    expect(await node.stop()).toMatchObject({ code: 0 });
    expect(await cluster.rows('SELECT 1 FROM nodes')).toEqual([]);
    expect(await cluster.rows('SELECT wanted, owner_node IS NULL AS free FROM trees')).toEqual([
      { wanted: false, free: true },
    ]);
  });

  test('a second node of the same name is refused while the first lives', async () => {
    const cluster = await startNodes({ database: url!, answer: () => ({ text: 'done' }) });
    await cluster.startHere('a');
    const { code, stderr } = await cluster.refused('a');
    expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringContaining('node_name_in_use') });
  });

  // Promise 16.20: a node that was killed starts again under its name, after the end of its old lease.
  test('a node that was killed starts again under its name, after a wait for its lease that its log reports', async () => {
    const cluster = await startNodes({
      database: url!,
      answer: () => ({ text: 'done' }),
      // Longer than a busy machine takes to start a process: the lease must not have ended by then.
      set: { 'cluster.lease_seconds': 10 },
    });
    await (await cluster.start('a')).kill();
    const again = await cluster.start('a');
    expect(again.log()).toContain('the lease of an earlier node of this name has not ended; waiting for its end');
    expect(await again.turn(await again.session(cluster.workspace('a')), 'go')).toMatchObject({ status: 'completed' });
  });

  test('a signal ends the wait for the lease with 0', async () => {
    const cluster = await startNodes({
      database: url!,
      answer: () => ({ text: 'done' }),
      set: { 'cluster.lease_seconds': 120 },
    });
    await (await cluster.start('a')).kill();
    const waiting = cluster.spawn('a');
    await until(() => waiting.output.stderr.includes('waiting for its end'), 60);
    expect(await waiting.stop('SIGTERM')).toMatchObject({ code: 0 });
  });
});

// Promise 16.18: without a database address neither driver is loaded, and nothing of the cluster.
test('without a database address neither driver is loaded, and nothing of the cluster', async () => {
  const home = temporaryHome();
  onTestFinished(home.remove);
  const coverage = path.join(home.path, 'coverage');
  const server = start(['serve', '--port', '0'], { home: home.path, env: { NODE_V8_COVERAGE: coverage } });
  onTestFinished(async () => void (await server.stop('SIGKILL')));
  await server.line(/listens on/);
  expect(await server.stop()).toMatchObject({ code: 0 });
  const loaded = fs
    .readdirSync(coverage)
    .flatMap((name) => JSON.parse(fs.readFileSync(path.join(coverage, name), 'utf8')).result as { url: string }[])
    .flatMap(({ url }) => sourcesOf(url));
  expect(loaded.filter((file) => file.includes('/store/sqlite/')).length).toBeGreaterThan(10);
  expect(
    loaded.filter((file) =>
      /\/node_modules\/(pg|pg-[a-z-]+|@nats-io)\/|\/store\/(postgres|cluster)\/|\/bus\/nats\/|storage\/cluster/.test(
        file,
      ),
    ),
  ).toEqual([]);
});

/** A file of a library as it is; one of the server's as the sources that were bundled into it. */
function sourcesOf(url: string): readonly string[] {
  if (!url.startsWith('file:')) return [url];
  const map = `${fileURLToPath(url)}.map`;
  if (url.includes('/node_modules/') || !fs.existsSync(map)) return [url];
  return (JSON.parse(fs.readFileSync(map, 'utf8')) as { sources: string[] }).sources;
}
