// Workers in worktrees on several nodes: below a shared root, finished by whichever node takes the tree over (20 §2.2, §2.6).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, test, vi } from 'vitest';
import type { FakeCall, FakeMessage } from '../support/fake-provider.ts';
import { type Nodes, startNodes } from '../support/nodes.ts';
import { postgresService } from '../support/services.ts';
import { until } from '../support/until.ts';
import { git, initRepository } from '../support/worktrees.ts';

const { url, missing } = await postgresService();
const PATIENCE_SECONDS = 60;
vi.setConfig({ testTimeout: 180_000 });

const isWorker = (call: FakeCall) => call.tools.includes('_request_context');
const task = { tier: 'fast', task: 'job', isolation: 'worktree' };
const COMMAND = 'echo one > a.txt; echo new > b.txt';
const answer = async (call: FakeCall, last: () => Promise<void> = async () => {}): Promise<FakeMessage> => {
  if (!isWorker(call))
    return call.results.length === 0 ? { tool_calls: [{ name: 'delegate', input: task }] } : { text: 'ok' };
  if (call.results.length === 0) return { tool_calls: [{ name: 'shell', input: { command: COMMAND } }] };
  await last();
  return { text: 'done' };
};
const listFolder = (folder: string) => (fs.existsSync(folder) ? fs.readdirSync(folder) : []);
const readState = (nodes: Nodes, workspace: string) => ({
  a: fs.readFileSync(path.join(workspace, 'a.txt'), 'utf8'),
  b: fs.existsSync(path.join(workspace, 'b.txt')),
  left: [...listFolder(path.join(nodes.root, 'trees')), ...listFolder(path.join(workspace, '.git/worktrees'))],
});

describe.skipIf(url === null)(`worktrees on several nodes${missing && `, skipped: ${missing}`}`, () => {
  // Promise 20.16: On three nodes a worker whose node is killed goes on in its worktree on another node; nothing is left over.
  test('a worker goes on in its worktree on another node, and its changes are applied once', async () => {
    let killed = () => {};
    const isKilled = new Promise<void>((resolve) => {
      killed = resolve;
    });
    let asked = 0;
    let first = true;
    const nodes = await startNodes({
      database: url!,
      answer: (call) =>
        answer(call, async () => {
          asked += 1;
          if (first) await isKilled;
        }),
    });
    const set = { 'cluster.worktree_root': path.join(nodes.root, 'trees') };
    const workspace = path.join(nodes.root, 'repo');
    initRepository(workspace, { 'a.txt': 'a\n' });
    const [a, b] = [await nodes.start('a', { set }), await nodes.start('b', { set })];
    await nodes.start('c', { set });
    const session = await a.session(workspace);
    const { turn_id } = await a.client.submitTurn(session, { content: 'go' });
    await until(() => asked > 0, PATIENCE_SECONDS);
    expect(readState(nodes, workspace)).toMatchObject({
      a: 'a\n',
      b: false,
      left: expect.arrayContaining([expect.stringMatching(/^sess_/)]),
    });
    await a.kill();
    first = false;
    killed();
    const turn = await until(async () => {
      const found = await b.client.getTurn(session, turn_id).catch(() => null);
      return found !== null && found.status === 'completed' && found;
    }, PATIENCE_SECONDS);
    expect(turn.status).toBe('completed');
    expect(readState(nodes, workspace)).toEqual({ a: 'one\n', b: true, left: [] });
    const rows = await nodes.rows('SELECT applied FROM worktrees');
    expect(rows).toEqual([{ applied: '1' }]);
    expect(git(workspace, 'for-each-ref', 'refs/metis').trim().split('\n')).toHaveLength(2);
  });

  // Promise 20.7: `continue` of a worker that ended on a node that died: another node goes on with its messages and what it left, paid on the new session.
  test('a worker that ended on a node that died is continued by another node', async () => {
    const asked: FakeCall[] = [];
    const command = 'echo one > a.txt';
    const nodes = await startNodes({
      database: url!,
      answer(call) {
        if (isWorker(call)) {
          asked.push(call);
          const isContinued = asked.some(({ user }) => user.includes('and finish'));
          if (call.results.length > 0) return { text: isContinued ? 'finished' : 'begun' };
          return { tool_calls: [{ name: 'shell', input: { command: isContinued ? 'cat a.txt > b.txt' : command } }] };
        }
        if (call.results.length > 0) return { text: 'ok' };
        const id = /\[worker (sess_\w+)/.exec(call.text)?.[1];
        const input =
          id === undefined ? { ...task, apply: 'never' } : { tier: 'fast', task: 'and finish', continue: id };
        return { tool_calls: [{ name: 'delegate', input }] };
      },
    });
    const set = { 'cluster.worktree_root': path.join(nodes.root, 'trees') };
    const workspace = path.join(nodes.root, 'repo');
    initRepository(workspace, { 'a.txt': 'a\n' });
    const [a, b] = [await nodes.start('a', { set }), await nodes.start('b', { set })];
    const session = await a.session(workspace);
    expect(await a.turn(session, 'go')).toMatchObject({ status: 'completed' });
    expect(readState(nodes, workspace)).toEqual({ a: 'a\n', b: false, left: [] });
    const before = asked.at(-1)!;
    await a.kill();
    const { turn_id } = await until(
      () => b.client.submitTurn(session, { content: 'go on' }).catch(() => false as const),
      PATIENCE_SECONDS,
    );
    const turn = await until(async () => {
      const found = await b.client.getTurn(session, turn_id).catch(() => null);
      return found !== null && found.ended_at !== null && found;
    }, PATIENCE_SECONDS);
    expect(turn.status).toBe('completed');
    // It starts with the messages of the first one, its answer and the new task.
    const messages = ({ body }: FakeCall) =>
      (
        JSON.parse(JSON.stringify(body.messages).replaceAll(/,"cache_control":{[^}]*}/g, '')) as { role: string }[]
      ).filter(({ role }) => role !== 'system');
    const known = messages(before);
    const first = messages(asked.find(({ user }) => user.includes('and finish'))!);
    expect(first.slice(0, known.length)).toEqual(known);
    expect(first.slice(known.length).map(({ role }) => role)).toEqual(['assistant', 'user']);
    // It has what the first one left in its tree, and both are applied.
    expect(readState(nodes, workspace)).toEqual({ a: 'one\n', b: true, left: [] });
    expect(fs.readFileSync(path.join(workspace, 'b.txt'), 'utf8')).toBe('one\n');
    const workers = await nodes.rows(
      `SELECT s.continues_session_id AS earlier, w.applied,
         (SELECT count(*) FROM llm_calls c WHERE c.session_id = s.id) AS calls
       FROM sessions s JOIN worktrees w ON w.session_id = s.id ORDER BY s.created_at`,
    );
    expect(workers).toEqual([
      { earlier: null, applied: '0', calls: '2' },
      { earlier: expect.stringMatching(/^sess_/), applied: '1', calls: '2' },
    ]);
  });

  // Promise 20.16: On several nodes refs that the purge of their session could not remove go with the next start of a node.
  test('refs that a purge could not remove go when a node starts, and none of a session that is stored', async () => {
    const nodes = await startNodes({ database: url!, answer });
    const set = { 'cluster.worktree_root': path.join(nodes.root, 'trees') };
    const workspace = path.join(nodes.root, 'repo');
    initRepository(workspace, { 'a.txt': 'a\n' });
    const a = await nodes.start('a', { set });
    const [purged, kept] = [await a.session(workspace), await a.session(workspace)];
    for (const session of [purged, kept]) expect(await a.turn(session, 'go')).toMatchObject({ status: 'completed' });
    const workers = await nodes.rows('SELECT session_id AS id FROM worktrees ORDER BY created_at');
    const [gone, left] = workers.map(({ id }) => id!);
    const lock = path.join(workspace, '.git/packed-refs.lock');
    fs.writeFileSync(lock, '');
    await a.client.endSession(purged, { purge: true });
    fs.rmSync(lock);
    expect(await nodes.rows('SELECT session_id AS id FROM worktrees')).toEqual([{ id: left }]);
    const trees = path.join(nodes.root, 'trees');
    expect(listFolder(trees)).toEqual([`${gone}.git`]);
    const refs = (id: string) => git(workspace, 'for-each-ref', '--format=%(refname)', `refs/metis/${id}`);
    expect(refs(gone!)).not.toBe('');
    // A folder that another node makes at this moment is as young, and is of no stored session either.
    const b = await nodes.start('b', { set });
    expect(listFolder(trees)).toEqual([`${gone}.git`]);
    const anHourAgo = Date.now() / 1000 - 3600;
    fs.utimesSync(path.join(trees, `${gone}.git`), anHourAgo, anHourAgo);
    fs.mkdirSync(path.join(trees, `${left}.git~${kept}`));
    fs.utimesSync(path.join(trees, `${left}.git~${kept}`), anHourAgo, anHourAgo);
    await b.kill();
    await nodes.start('c', { set });
    expect(refs(gone!)).toBe('');
    expect(refs(left!).trim().split('\n')).toHaveLength(2);
    expect(listFolder(trees)).toEqual([`${left}.git~${kept}`]);
  });

  test('without a shared folder for worktrees a call is refused by the name of the setting', async () => {
    const nodes = await startNodes({ database: url!, answer });
    const workspace = path.join(nodes.root, 'repo');
    initRepository(workspace, { 'a.txt': 'a\n' });
    const a = await nodes.start('a');
    const session = await a.session(workspace);
    await a.turn(session, 'go');
    const { messages } = await a.client.listMessages(session);
    expect(JSON.stringify(messages)).toContain('isolation: cluster.worktree_root is not set');
    const said = await nodes.refused('b', { set: { 'cluster.worktree_root': '/nowhere/trees' } });
    expect(said.stderr).toContain('cluster.worktree_root: /nowhere/trees lies below none of cluster.shared_roots');
  });
});
