// Disks that refuse, and files that are none: nothing is left half written, nothing hangs, and all that was made goes (20 §2).
import { execFileSync, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import type { SessionId } from '#protocol/ids.ts';
import { createGit } from '#tools/worktree/git.ts';
import { inspectRepository, openOwnGit } from '#tools/worktree/repository.ts';
import { compareTrees } from '#tools/worktree/snapshot.ts';
import { createTarget, undoChanges, writeChanges } from '#tools/worktree/write-changes.ts';
import { until } from '../../support/until.ts';
import { makeKillableGit } from '../../support/worktrees.ts';
import { ANY_PATH, createRepository, readUserState, type TestRepository } from './repository.ts';

const inTree = (tree: { readonly tree_path: string }, name: string) => path.join(tree.tree_path, name);
const makeFifo = (file: string) => execFileSync('mkfifo', [file]);
const isRoot = process.getuid?.() === 0;

/** Runs `act` while no file of the folder can be made: permissions do not bind root. */
async function whileLocked<T>(folder: string, act: () => Promise<T>): Promise<T> {
  if (isRoot) execFileSync('chattr', ['+i', folder]);
  else fs.chmodSync(folder, 0o555);
  try {
    return await act();
  } finally {
    if (isRoot) execFileSync('chattr', ['-i', folder]);
    else fs.chmodSync(folder, 0o755);
  }
}

test('a folder that cannot be written is an obstacle by name, and what was written before it goes back', async () => {
  const repo = createRepository({ 'a.txt': 'a\n', 'z/z.txt': 'z\n' });
  const tree = await repo.create();
  fs.writeFileSync(inTree(tree, 'a.txt'), 'a2\n');
  fs.writeFileSync(inTree(tree, 'z/z.txt'), 'z2\n');
  const recorded = { ...tree, ...(await repo.worktrees.recordResult(tree, ANY_PATH)) };
  const merge = await repo.worktrees.merge(recorded);
  if (merge.kind === 'conflict') throw new Error('a conflict');
  const written = await whileLocked(path.join(repo.root, 'z'), () => repo.worktrees.write(recorded, merge));
  expect(written).toMatchObject({
    changed_meanwhile: [],
    obstacle: expect.stringMatching(/^z\/z\.txt cannot be written: (EACCES|EPERM)$/),
  });
  expect([repo.read('a.txt'), repo.read('z/z.txt')]).toEqual(['a\n', 'z\n']);
  expect(fs.readdirSync(path.join(repo.root, 'z'))).toEqual(['z.txt']);
  expect(await repo.worktrees.write(recorded, merge)).toEqual({ changed_meanwhile: [], obstacle: null });
  expect([repo.read('a.txt'), repo.read('z/z.txt')]).toEqual(['a2\n', 'z2\n']);
});

test('a file that was saved while a merge is undone keeps its text, and the others go back', async () => {
  const repo = createRepository({ 'a.txt': 'a\n', 'b.txt': 'b\n', 'd/c.txt': 'c\n' });
  const before = repo.git('rev-parse', 'HEAD^{tree}').trim();
  for (const name of ['a.txt', 'b.txt', 'new/n.txt']) repo.write(name, 'new\n');
  fs.rmSync(path.join(repo.root, 'd'), { recursive: true });
  repo.git('add', '-A');
  repo.git('commit', '-q', '-m', 'second');
  const after = repo.git('rev-parse', 'HEAD^{tree}').trim();
  repo.git('reset', '-q', '--hard', 'HEAD~');
  const git = createGit({ PATH: process.env.PATH });
  const inspected = await inspectRepository(git, repo.root, repo.folder);
  const own = await openOwnGit(git, inspected, path.join(repo.folder, 'own.git'));
  const changes = await compareTrees(own, before, after);
  const { written } = await writeChanges(await createTarget(own, after, changes), changes);
  expect(written).toHaveLength(4);
  repo.write('a.txt', 'saved\n');
  const back = changes.map((change) => ({ ...change, before: change.after, after: change.before }));
  expect(await undoChanges(await createTarget(own, before, back), written)).toEqual({
    changed: ['a.txt'],
    obstacles: [],
  });
  expect(['a.txt', 'b.txt', 'd/c.txt'].map(repo.read)).toEqual(['saved\n', 'b\n', 'c\n']);
  expect(fs.existsSync(path.join(repo.root, 'new'))).toBe(false);
});

test('links that leave the tree by way of other links, or by an absolute path into it, stay behind', async () => {
  const repo = createRepository({ 'a.txt': 'a\n', 'p/q/f': 'f\n' });
  const tree = await repo.create();
  fs.symlinkSync('../..', inTree(tree, 'p/q/r'));
  fs.symlinkSync('p/q/r/../secret', inTree(tree, 'through'));
  fs.symlinkSync(inTree(tree, 'a.txt'), inTree(tree, 'absolute'));
  fs.symlinkSync('absolute', inTree(tree, 'to-absolute'));
  fs.symlinkSync('loop', inTree(tree, 'loop'));
  fs.symlinkSync('a.txt', inTree(tree, 'good'));
  fs.symlinkSync('p/q/r/good', inTree(tree, 'good-through'));
  fs.symlinkSync('missing/x', inTree(tree, 'dangling'));
  expect(await repo.apply(tree)).toEqual({ conflicts: [], changed: [] });
  expect(fs.readdirSync(repo.root).sort()).toEqual(['.git', 'a.txt', 'dangling', 'good', 'good-through', 'p']);
  expect(fs.readFileSync(path.join(repo.root, 'good-through'), 'utf8')).toBe('a\n');
});

test('a file whose encoding or identity git converts is compared in the form that git stores', async () => {
  const repo = createRepository({ '.gitattributes': 'u.txt working-tree-encoding=UTF-16LE text\ni.txt ident\n' });
  fs.writeFileSync(path.join(repo.root, 'u.txt'), Buffer.from('one\ntwo\n', 'utf16le'));
  repo.write('i.txt', '$Id$\none\n');
  repo.git('add', '-A');
  repo.git('commit', '-q', '-m', 'second');
  fs.rmSync(path.join(repo.root, 'i.txt'));
  repo.git('checkout', '-q', 'i.txt');
  const tree = await repo.create();
  fs.writeFileSync(inTree(tree, 'u.txt'), Buffer.from('one\n2\n', 'utf16le'));
  fs.appendFileSync(inTree(tree, 'i.txt'), 'two\n');
  expect(await repo.apply(tree)).toEqual({ conflicts: [], changed: [] });
  expect(fs.readFileSync(path.join(repo.root, 'u.txt')).toString('utf16le')).toBe('one\n2\n');
  expect(repo.read('i.txt')).toMatch(/^\$Id: \w+ \$\none\ntwo\n$/);
});

test('a worktree with paths beyond the limit of the system, and with locked folders, goes whole', async () => {
  const repo = createRepository({ 'a.txt': 'a\n' });
  const tree = await repo.create();
  const name = 'd'.repeat(200);
  const makeDeep = `cd "$1"; for i in $(seq 1 30); do mkdir ${name} && cd ${name} || exit 1; done; echo deep > f`;
  execFileSync('bash', ['-c', makeDeep, 'bash', tree.tree_path]);
  fs.mkdirSync(inTree(tree, 'locked/inner'), { recursive: true });
  fs.chmodSync(inTree(tree, 'locked/inner'), 0);
  fs.chmodSync(inTree(tree, 'locked'), 0o555);
  fs.writeFileSync(inTree(tree, 'b.txt'), 'b\n');
  expect(await repo.apply(tree)).toEqual({ conflicts: [], changed: [] });
  expect(fs.readdirSync(repo.root).sort()).toEqual(['.git', 'a.txt', 'b.txt']);
  await repo.worktrees.removeFolder(tree);
  expect(fs.readdirSync(repo.home)).toEqual([]);
});

/** Where the system would wait for a writer, another thread for files is lost each time. */
async function createWithFifo(place: string): Promise<TestRepository> {
  const repo = createRepository({ 'a.txt': 'a\n' });
  const file = path.join(repo.root, place);
  fs.rmSync(file, { force: true });
  fs.mkdirSync(path.dirname(file), { recursive: true });
  makeFifo(file);
  return repo;
}

test('a FIFO in the place of a file of git is not waited for', async () => {
  const attributes = await createWithFifo('.git/info/attributes');
  const tree = await attributes.create();
  fs.writeFileSync(inTree(tree, 'a.txt'), 'a2\n');
  expect(await attributes.apply(tree)).toEqual({ conflicts: [], changed: [] });
  const named = await createWithFifo('attributes.fifo');
  named.git('config', 'core.attributesFile', path.join(named.root, 'attributes.fifo'));
  await named.create();
  const index = await createWithFifo('.git/index');
  await expect(index.create()).rejects.toThrow('.git/index is no regular file');
  expect(fs.readdirSync(index.home)).toEqual([]);
  expect(index.git('for-each-ref', 'refs/metis')).toBe('');
});

test('a FIFO in the place of a tracked file is no change, and no file is written over it', async () => {
  const repo = createRepository({ 'a.txt': 'a\n', 'b.txt': 'b\n', 'c.txt': 'c\n' });
  const tree = await repo.create();
  fs.rmSync(inTree(tree, 'a.txt'));
  makeFifo(inTree(tree, 'a.txt'));
  makeFifo(inTree(tree, 'new'));
  fs.writeFileSync(inTree(tree, 'b.txt'), 'b2\n');
  expect(await repo.apply(tree)).toEqual({ conflicts: [], changed: [] });
  expect([fs.readdirSync(repo.root).sort(), repo.read('a.txt'), repo.read('b.txt')]).toEqual([
    ['.git', 'a.txt', 'b.txt', 'c.txt'],
    'a\n',
    'b2\n',
  ]);
  const next = await repo.create();
  fs.writeFileSync(inTree(next, 'c.txt'), 'c2\n');
  fs.rmSync(path.join(repo.root, 'c.txt'));
  makeFifo(path.join(repo.root, 'c.txt'));
  expect(await repo.apply(next)).toEqual({ conflicts: [], changed: ['c.txt'] });
  expect(fs.lstatSync(path.join(repo.root, 'c.txt')).isFIFO()).toBe(true);
});

test('locks of git commands that were killed stop no result and no removal', async () => {
  const repo = createRepository({ 'a.txt': 'a\n' });
  const before = readUserState(repo.root);
  const tree = await repo.create();
  fs.writeFileSync(inTree(tree, 'a.txt'), 'a2\n');
  const refs = path.join(repo.root, '.git/refs/metis', tree.session_id);
  for (const name of ['result', 'caller', 'checkout'])
    fs.writeFileSync(path.join(repo.home, `${tree.session_id}.git`, `${name}.index.lock`), '');
  fs.writeFileSync(path.join(refs, 'result.lock'), '');
  expect(await repo.apply(tree)).toEqual({ conflicts: [], changed: [] });
  fs.writeFileSync(path.join(refs, 'base.lock'), '');
  await repo.worktrees.removeRefs(tree);
  await repo.worktrees.removeFolder(tree);
  expect(repo.git('for-each-ref', 'refs/metis')).toBe('');
  expect(fs.existsSync(refs)).toBe(false);
  expect(readUserState(repo.root)).toEqual(before);
});

test('refs that cannot be removed go at the next start, once nothing has a record of them', async () => {
  const repo = createRepository({ 'a.txt': 'a\n' });
  const tree = await repo.create();
  const lock = path.join(repo.root, '.git/packed-refs.lock');
  fs.writeFileSync(lock, '');
  await expect(repo.worktrees.removeRefs(tree)).rejects.toThrow('packed-refs');
  await repo.worktrees.removeFolder(tree);
  expect(fs.readdirSync(repo.home)).toEqual([`${tree.session_id}.git`]);
  fs.rmSync(lock);
  const nothing = { isKept: async () => false, hasRecord: async () => false };
  expect(await repo.worktrees.sweep(nothing)).toEqual([tree.session_id]);
  expect(repo.git('for-each-ref', 'refs/metis')).toBe('');
  expect(fs.readdirSync(repo.home)).toEqual([]);
});

test('where the caller is gone, the changes are read from the repository, and a merge names what is missing', async () => {
  const repo = createRepository({ 'a.txt': 'a\n' });
  const outer = await repo.create();
  const inner = await repo.create(outer.tree_path);
  fs.writeFileSync(inTree(inner, 'a.txt'), 'a2\n');
  const recorded = { ...inner, ...(await repo.worktrees.recordResult(inner, ANY_PATH)) };
  for (const tree of [inner, outer]) await repo.worktrees.removeFolder(tree);
  expect((await repo.worktrees.diff(recorded, 10_000)).text).toContain('+a2');
  const limits = { files: 9, bytes_per_text: 1000, bytes: 1000 };
  expect((await repo.worktrees.readTexts(recorded, limits)).files).toMatchObject([{ path: 'a.txt', new_text: 'a2\n' }]);
  await repo.worktrees.removeFolder(inner);
  await expect(repo.worktrees.merge(recorded)).rejects.toThrow(
    `the worktree ${outer.session_id} of the caller is gone`,
  );
  fs.rmSync(repo.root, { recursive: true });
  await expect(repo.worktrees.merge({ ...recorded, caller_path: repo.root })).rejects.toThrow('does not exist');
  await expect(repo.worktrees.diff(recorded, 10_000)).rejects.toThrow('does not exist');
});

test('where the workspace goes while a worker is at work, the error names it, and the worktree is removed', async () => {
  const repo = createRepository({ 'a.txt': 'a\n' });
  const tree = await repo.create();
  fs.writeFileSync(inTree(tree, 'a.txt'), 'a2\n');
  fs.rmSync(repo.root, { recursive: true });
  const gone = `the repository ${repo.root}/.git does not exist`;
  await expect(repo.worktrees.recordResult(tree, ANY_PATH)).rejects.toThrow(gone);
  await repo.worktrees.removeRefs(tree);
  await repo.worktrees.removeFolder(tree);
  expect(fs.readdirSync(repo.home)).toEqual([]);
});

test('a git folder that was being made or removed leads to its session tree, whatever it holds', async () => {
  const repo = createRepository({ 'a.txt': 'a\n' });
  const kept = await repo.create();
  const [tree, other] = ['X', 'Y'].map((end) => kept.session_id.replace(/.$/, end));
  const parts = [`${kept.session_id}.git~${tree}`, `${kept.session_id}-check.git~${tree}`, `${tree}.git~${other}`];
  for (const name of parts) fs.mkdirSync(path.join(repo.home, name, 'objects'), { recursive: true });
  const seen: (string | null)[] = [];
  const removed = await repo.worktrees.sweep({
    isOwn: async (folder) => {
      seen.push(folder.tree);
      return folder.tree === tree;
    },
    isKept: async () => false,
    hasRecord: async () => true,
  });
  expect(removed).toEqual([kept.session_id]);
  expect(seen.sort()).toEqual([tree, tree, other, null].sort());
  const left = [kept.session_id, `${kept.session_id}.git`, parts[2]];
  expect(fs.readdirSync(repo.home).sort()).toEqual(left.sort());
});

test('the start of a recorded session whose ref cannot be removed is found by the next start', async () => {
  const repo = createRepository({ 'a.txt': 'a\n' });
  const { session_id, ...made } = await repo.create();
  await repo.worktrees.removeFolder({ session_id, ...made });
  expect(fs.readdirSync(repo.home)).toEqual([]);
  const lock = path.join(repo.root, '.git/packed-refs.lock');
  fs.writeFileSync(lock, '');
  const owner = { session_id, repository: made.repository, caller_path: repo.root };
  await expect(repo.worktrees.removeRefs(owner)).rejects.toThrow('packed-refs');
  fs.rmSync(lock);
  expect(repo.git('for-each-ref', 'refs/metis')).not.toBe('');
  const nothing = { isKept: async () => false, hasRecord: async () => false };
  expect(await repo.worktrees.sweep(nothing)).toEqual([session_id]);
  expect(repo.git('for-each-ref', 'refs/metis')).toBe('');
  expect(fs.readdirSync(repo.home)).toEqual([]);
});

/** A server with a git command that is at work: both may be killed. */
async function startSleepingGit(home: string) {
  const url = new URL('../../../src/tools/worktree/git.ts', import.meta.url);
  // git waits for the end of its input.
  const code = `
    import { createGit } from ${JSON.stringify(url.href)};
    const git = createGit(process.env, ${JSON.stringify(home)});
    await git({ args: ['-c', 'alias.wait=!echo $$ > ${home}/pid; exec sleep 300', 'wait'], cwd: ${JSON.stringify(home)} });`;
  const server = spawn(process.execPath, ['--input-type=module', '-e', code], { stdio: 'inherit' });
  onTestFinished(() => void server.kill('SIGKILL'));
  await until(() => fs.existsSync(`${home}/pid`) && fs.readFileSync(`${home}/pid`, 'utf8').endsWith('\n'), 30);
  return { server, pid: Number(fs.readFileSync(`${home}/pid`, 'utf8')) };
}

test.skipIf(process.platform !== 'linux')(
  'a git command of a killed server is ended by the next start, one of a server that runs is not',
  async () => {
    const repo = createRepository({ 'a.txt': 'a\n' });
    await repo.create();
    const isAlive = (pid: number) =>
      fs.existsSync(`/proc/${pid}/cwd`) && fs.readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]![0] !== 'Z';
    const { server, pid } = await startSleepingGit(repo.home);
    expect(await repo.worktrees.endStray()).toBe(0);
    expect(isAlive(pid)).toBe(true);
    const isOver = new Promise((resolve) => server.once('exit', resolve));
    server.kill('SIGKILL');
    await isOver;
    expect(isAlive(pid)).toBe(true);
    // Of a session tree without a worktree here nothing can run.
    expect(await repo.worktrees.endStray('sess_01JZ8M4T0W9V5Q3N7R2K6H1XCE' as SessionId)).toBe(0);
    expect(await repo.worktrees.endStray()).toBeGreaterThan(0);
    expect(isAlive(pid)).toBe(false);
  },
);

/** A repository whose git can be killed, and a merge into it that writes `z.txt` last. */
async function mergeKillable() {
  const bin = fs.mkdtempSync(path.join(os.tmpdir(), 'metis-git-'));
  onTestFinished(() => fs.rmSync(bin, { recursive: true, force: true }));
  const killable = makeKillableGit(bin);
  const repo = createRepository(
    { '.gitattributes': '*.id ident\n', 'a.txt': 'a\n', 'b.id': '$Id$\nb\n', 'z.txt': 'z\n' },
    { env: killable.env },
  );
  // As a checkout has it: to compare it, git is needed.
  fs.rmSync(path.join(repo.root, 'b.id'));
  repo.git('checkout', '--', 'b.id');
  const tree = await repo.create();
  fs.writeFileSync(inTree(tree, 'a.txt'), 'a2\n');
  fs.writeFileSync(inTree(tree, 'b.id'), '$Id$\nb2\n');
  fs.writeFileSync(inTree(tree, 'z.txt'), 'z2\n');
  const recorded = { ...tree, ...(await repo.worktrees.recordResult(tree, ANY_PATH)) };
  const merge = await repo.worktrees.merge(recorded);
  if (merge.kind === 'conflict') throw new Error('a conflict');
  const before = ['a.txt', 'b.id', 'z.txt'].map(repo.read);
  return { killable, repo, recorded, merge, before, readAll: () => ['a.txt', 'b.id', 'z.txt'].map(repo.read) };
}

test('a git command that is killed between two files is an obstacle by name, and the first goes back', async () => {
  const { killable, repo, recorded, merge, before, readAll } = await mergeKillable();
  // The first compares it before anything is written.
  killable.kill('hash-object', 2);
  expect(await repo.worktrees.write(recorded, merge)).toEqual({
    changed_meanwhile: [],
    obstacle: 'b.id cannot be written: git hash-object was stopped by SIGKILL',
  });
  expect(readAll()).toEqual(before);
  expect(await repo.worktrees.write(recorded, merge)).toEqual({ changed_meanwhile: [], obstacle: null });
  expect(repo.read('z.txt')).toBe('z2\n');
});

test('where a write that a process had begun cannot be finished, what that process wrote goes back too', async () => {
  const { killable, repo, recorded, merge, before, readAll } = await mergeKillable();
  const resumed = { ...merge, is_resumed: true };
  repo.write('a.txt', 'a2\n');
  killable.kill('hash-object', 2);
  expect(await repo.worktrees.write(recorded, resumed)).toMatchObject({
    obstacle: 'b.id cannot be written: git hash-object was stopped by SIGKILL',
  });
  expect(readAll()).toEqual(before);
  repo.write('a.txt', 'a2\n');
  repo.write('z.txt', 'saved\n');
  expect(await repo.worktrees.write(recorded, resumed)).toEqual({ changed_meanwhile: ['z.txt'], obstacle: null });
  expect(readAll()).toEqual([...before.slice(0, 2), 'saved\n']);
  // Half of it may be there: it is to be tried again.
  killable.kill('checkout-index');
  await expect(repo.worktrees.write(recorded, resumed)).rejects.toThrow('git checkout-index was stopped by SIGKILL');
});

test('where git is killed while it looks for left conflict markers, none are taken to be absent', async () => {
  const { killable, repo, recorded } = await mergeKillable();
  killable.kill('rev-parse');
  await expect(repo.worktrees.findLeftMarkers(recorded)).rejects.toThrow('git rev-parse was stopped by SIGKILL');
  expect(await repo.worktrees.findLeftMarkers(recorded)).toEqual([]);
});

test('in the middle of a merge, files count as they lie on the disk, and a submodule in conflict does not stop a worker', async () => {
  const repo = createRepository({ 'a.txt': 'a\n', 'b.txt': 'b\n', 'c.txt': 'c\n' });
  const commitBoth = (side: string) => {
    for (const name of ['a.txt', 'b.txt']) repo.write(name, `${side}\n`);
    const link = createHash('sha1').update(side).digest('hex');
    repo.git('add', 'a.txt', 'b.txt');
    repo.git('update-index', '--add', '--cacheinfo', `160000,${link},sub`);
    repo.git('commit', '-q', '-m', side);
  };
  repo.git('checkout', '-q', '-b', 'theirs');
  commitBoth('theirs');
  repo.git('checkout', '-q', 'main');
  commitBoth('ours');
  expect(() => repo.git('merge', '-q', 'theirs')).toThrow();
  fs.mkdirSync(path.join(repo.root, 'sub'), { recursive: true });
  fs.rmSync(path.join(repo.root, 'b.txt'));
  makeFifo(path.join(repo.root, 'b.txt'));
  const state = readUserState(repo.root);
  const unmerged = repo.git('ls-files', '-u');
  expect(unmerged.match(/\t(a\.txt|b\.txt|sub)$/gm)?.length).toBeGreaterThan(5);
  const tree = await repo.create();
  expect(fs.readFileSync(inTree(tree, 'a.txt'), 'utf8')).toMatch(
    /^<<<<<<< HEAD\nours\n=======\ntheirs\n>>>>>>> theirs\n$/,
  );
  expect(fs.readFileSync(inTree(tree, 'b.txt'), 'utf8')).toBe('ours\n');
  fs.writeFileSync(inTree(tree, 'a.txt'), 'solved\n');
  fs.writeFileSync(inTree(tree, 'c.txt'), 'c2\n');
  expect(await repo.apply(tree)).toEqual({ conflicts: [], changed: [] });
  expect([repo.read('a.txt'), repo.read('c.txt'), repo.git('ls-files', '-u')]).toEqual(['solved\n', 'c2\n', unmerged]);
  expect(fs.lstatSync(path.join(repo.root, 'b.txt')).isFIFO()).toBe(true);
  expect(readUserState(repo.root)).toEqual(state);
});
