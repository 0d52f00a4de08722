// Where files lie decides who owns a tree: marks in shared roots, workspaces outside them, nodes that are not alike (16 §7).

import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { silentLogger } from '#core/ports/logger.ts';
import { systemClock } from '#protocol/clock.ts';
import type { Config } from '#protocol/config.ts';
import { createRootWatch, markSharedRoots } from '#store/cluster/shared-roots.ts';
import { openDatabase } from '#store/postgres/connection/open.ts';
import { MIGRATIONS } from '../store/postgres/world.ts';
import { type LogLine, recordingLogger } from '../store/suite/world.ts';
import { tempFolder } from '../support/engine.ts';
import { priceFileA, priceFileB } from '../support/prices.ts';
import { startReal, startStrictFake } from '../support/real-server.ts';
import { registryAt } from '../support/registry-at.ts';
import { ownSchema, postgresService, type Schema } from '../support/services.ts';
import { until } from '../support/until.ts';

const { url, missing } = await postgresService();

async function emptySchema(): Promise<Schema> {
  const schema = await ownSchema(url!);
  onTestFinished(() => schema.drop());
  return schema;
}

/** Starts one cluster after the other on the same roots. */
async function cluster() {
  const schema = await emptySchema();
  const pool = await openDatabase({
    url: schema.url,
    size: 4,
    synchronousCommit: 'on',
    log: silentLogger,
    migrationsDir: MIGRATIONS,
    clock: systemClock,
  });
  onTestFinished(() => pool.close());
  return { mark: (roots: readonly string[], id = 'of-the-node') => markSharedRoots(pool, roots, id) };
}
const refused = (reason: string) => expect.objectContaining({ message: expect.stringMatching(reason) });

describe.skipIf(url === null)(`shared roots${missing && `, skipped: ${missing}`}`, () => {
  test('the first node marks a root, and every later one finds its mark', async () => {
    const root = tempFolder();
    const { mark } = await cluster();
    await Promise.all([mark([root], 'first'), mark([root], 'second')]);
    const written = fs.readFileSync(path.join(root, '.metis-cluster'), 'utf8');
    expect(['first\n', 'second\n']).toContain(written);
    await mark([root], 'third');
    expect(fs.readFileSync(path.join(root, '.metis-cluster'), 'utf8')).toBe(written);
  });

  // Promise 16.13: another folder as shared root is shared_root_mismatch.
  test('another folder at its path, without the mark, is shared_root_mismatch', async () => {
    const root = path.join(tempFolder(), 'root');
    fs.mkdirSync(root);
    const { mark } = await cluster();
    await mark([root]);
    fs.renameSync(root, `${root}-away`);
    fs.mkdirSync(root);
    await expect(mark([root])).rejects.toEqual(refused('^shared_root_mismatch: .* is not there; mount the same'));
    expect(fs.readdirSync(root)).toEqual([]);
  });

  // Promise 16.27: a shared root that is replaced while a node runs is reported once, as is its return.
  test('one that is replaced by an empty folder while a node runs is reported once, and so is its return', async () => {
    const root = path.join(tempFolder(), 'root');
    fs.mkdirSync(root);
    const { mark } = await cluster();
    const logged: LogLine[] = [];
    const watch = createRootWatch([root], await mark([root]), recordingLogger(logged));
    const places = ['anywhere', `shared:${root}`];
    const check = async () => {
      for (let i = 0; i < 3; i++) await watch.check();
      return [watch.fault(), watch.filterPlaces(places), logged.map(({ level, message }) => `${level} ${message}`)];
    };
    expect(await check()).toEqual([null, places, []]);
    fs.renameSync(root, `${root}-away`);
    fs.mkdirSync(root);
    const lost = expect.stringMatching(/^warn the shared root is not the one of this cluster/);
    const gone = expect.stringMatching(/^shared_root_mismatch: .* is not there; mount the same/);
    expect(await check()).toEqual([gone, ['anywhere'], [lost]]);
    expect(fs.readdirSync(root)).toEqual([]);
    fs.rmdirSync(root);
    fs.renameSync(`${root}-away`, root);
    const back = expect.stringMatching(/^warn the shared root bears the mark of this cluster again/);
    expect(await check()).toEqual([null, places, [lost, back]]);
  });

  test('a root of another cluster, one that is not there, and one behind a link are refused', async () => {
    const folder = tempFolder();
    const root = path.join(folder, 'root');
    fs.mkdirSync(root);
    const [one, two] = [await cluster(), await cluster()];
    await one.mark([root], 'one');
    await expect(two.mark([root], 'two')).rejects.toEqual(refused('bears the id of another cluster'));
    await expect(one.mark([path.join(folder, 'gone')])).rejects.toEqual(refused('cannot be opened .ENOENT.'));
    fs.symlinkSync(root, path.join(folder, 'link'));
    await expect(one.mark([path.join(folder, 'link')])).rejects.toEqual(
      refused('it leads to .*/root; name that folder'),
    );
  });

  test('what is no mark in its place hangs nothing and is refused', async () => {
    const { mark } = await cluster();
    const strange: readonly [(file: string) => void, string][] = [
      [(file) => void execFileSync('mkfifo', [file]), 'is no file'],
      [(file) => fs.mkdirSync(file), 'is no file'],
      [(file) => fs.symlinkSync('/dev/zero', file), 'cannot be read .ELOOP.'],
      [(file) => fs.writeFileSync(file, Buffer.alloc(1_000_000, 'x')), 'id of another cluster'],
      [(file) => fs.writeFileSync(file, ''), 'id of another cluster'],
    ];
    for (const [put, reason] of strange) {
      const root = tempFolder();
      put(path.join(root, '.metis-cluster'));
      await expect(mark([root])).rejects.toEqual(refused(reason));
    }
  });
});

describe.skipIf(url === null)(`workspaces of a cluster${missing && `, skipped: ${missing}`}`, () => {
  async function node(schema: Schema, folder: string, over: Partial<Config['cluster']>, more: object = {}) {
    const fake = await startStrictFake(() => ({ text: 'ok' }));
    return startReal({
      folder,
      registry: registryAt(fake),
      config: {
        database: { url: schema.url },
        cluster: { name: schema.name, node_name: path.basename(folder), lease_seconds: 3, ...over },
        ...more,
      },
    });
  }

  // Promise 16.13: a workspace outside the shared roots is 403 and stores nothing.
  test('below a shared root they are opened; outside it is 403, and nothing is stored', async () => {
    const [schema, home, root] = [await emptySchema(), tempFolder(), tempFolder()];
    const a = await node(schema, path.join(home, 'a'), { shared_roots: [root] });
    fs.mkdirSync(path.join(root, 'app'));
    await a.session(path.join(root, 'app'), null);
    const outside = await a.call('POST', '/sessions', { workspace_path: home });
    expect([outside.status, outside.body.error.code]).toEqual([403, 'workspace_not_shared']);
    expect(outside.body.error.message).toContain('cluster.local_workspaces');
    expect((await a.call('GET', '/sessions')).body.sessions).toHaveLength(1);
    expect(a.log.filter((line) => line.msg.includes('no workspace can be opened'))).toEqual([]);
  });

  // Promise 16.27: a node whose shared root was replaced is not ready and claims no tree there.
  test('a root that is replaced while a node runs makes it not ready, and takes its trees from it, until it is back', async () => {
    const [schema, home] = [await emptySchema(), tempFolder()];
    const root = path.join(home, 'root');
    fs.mkdirSync(path.join(root, 'app'), { recursive: true });
    const a = await node(schema, path.join(home, 'a'), { shared_roots: [root] });
    const session = await a.session(path.join(root, 'app'), 'anthropic:claude-haiku-4-5');
    const places = async () => (await a.engine.trees.nodes())[0]!.places;
    const readiness = async () => {
      const { status, body } = await a.call('GET', '/readyz');
      return [status, body.error?.message ?? ''];
    };
    expect(await readiness()).toEqual([200, '']);
    await a.engine.trees.releaseAll();
    fs.renameSync(root, `${root}-away`);
    fs.mkdirSync(root);
    await until(async () => !(await places()).includes(`shared:${root}`));
    expect(await readiness()).toEqual([503, expect.stringMatching(/^shared_root_mismatch: .*\.metis-cluster/)]);
    expect(await a.engine.trees.hold(session as never)).toMatchObject({ own: false, url: null });
    fs.rmdirSync(root);
    fs.renameSync(`${root}-away`, root);
    await until(async () => (await places()).includes(`shared:${root}`));
    expect(await readiness()).toEqual([200, '']);
    expect((await a.turn(session, 'go')).status).toBe('completed');
  });

  test('with local workspaces they belong to the node that opened them; a node without either says so', async () => {
    const [schema, home] = [await emptySchema(), tempFolder()];
    const a = await node(schema, path.join(home, 'a'), { local_workspaces: true });
    const session = await a.session(home, null);
    expect(await a.engine.store.sessions.record(session as never)).toMatchObject({ workspace_path: home });
    const b = await node(schema, path.join(home, 'b'), {});
    expect(b.log.filter((line) => line.msg.includes('no workspace can be opened'))).toHaveLength(1);
    expect(await b.engine.trees.nodes()).toMatchObject([
      { name: 'a', places: ['anywhere', 'node:a'] },
      { name: 'b', places: ['anywhere', 'node:b'] },
    ]);
  });

  // Promise 16.13: with local workspaces a turn sent elsewhere runs on its node, and is 503 while that is gone.
  test('a turn sent elsewhere runs on the node that has the files, held by it or not; while that node is gone it is 503', async () => {
    const [schema, home] = [await emptySchema(), tempFolder()];
    const a = await node(schema, path.join(home, 'a'), { local_workspaces: true });
    const b = await node(schema, path.join(home, 'b'), { local_workspaces: true });
    const session = await a.session(home, 'anthropic:claude-haiku-4-5');
    const ran = async () => (await b.turn(session, 'go')).status;
    expect(await ran()).toBe('completed');
    await a.engine.trees.releaseAll();
    expect(await ran()).toBe('completed');
    expect([a.events, b.events].map((events) => events.filter((e) => e.type === 'turn.completed').length)).toEqual([
      2, 0,
    ]);

    await a.close();
    const refused = await b.call('POST', `/sessions/${session}/turns`, { content: 'go' });
    expect([refused.status, refused.body.error.code]).toEqual([503, 'node_unavailable']);
    expect((await b.call('GET', `/sessions/${session}/messages`)).body.messages).toHaveLength(4);
  });

  // Promise 16.39: Of three nodes, what a node may have of its own is no difference; keys that differ are named by GET /nodes and the log.
  test('nodes of one configuration are alike, whatever their data folders are called; another one is told so', async () => {
    const [schema, home, root] = [await emptySchema(), tempFolder(), tempFolder()];
    const fake = await startStrictFake(() => ({ text: 'ok' }));
    const start = (name: string, more: object = {}, prices = [priceFileA()]) =>
      startReal({
        folder: path.join(home, name),
        registry: registryAt(fake),
        prices,
        config: {
          database: { url: schema.url },
          cluster: { name: schema.name, node_name: name, lease_seconds: 3, shared_roots: [root] },
          ...more,
        },
      });
    const a = await start('a');
    // What a node may have of its own.
    const b = await start('b', { log: { level: 'debug' }, gateway: { record: path.join(home, 'recorded') } });
    const c = await start('c', { turn: { max_llm_calls: 7 } }, [priceFileA(), priceFileB()]);
    const matches = async (from: typeof a) => (await from.engine.trees.nodes()).map((each) => each.config_matches);
    expect(await matches(a)).toEqual([true, true, false]);
    expect(await matches(c)).toEqual([false, false, true]);
    const listed = async (from: typeof a) =>
      (await from.call('GET', '/nodes')).body.map((each: { config_differs: string[] }) => each.config_differs);
    expect(await listed(a)).toEqual([[], [], ['prices', 'turn.max_llm_calls']]);
    expect(await listed(c)).toEqual([['prices', 'turn.max_llm_calls'], ['prices', 'turn.max_llm_calls'], []]);
    const warned = (from: typeof a) => from.log.filter((line) => line.msg.includes('make them alike'));
    expect(warned(b)).toEqual([]);
    expect(warned(c)).toMatchObject([{ nodes: ['a', 'b'], keys: ['prices', 'turn.max_llm_calls'] }]);
  });
});
