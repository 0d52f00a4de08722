// Worktrees by git: base, result, merge and write, on real repositories (20 §2).
import fs from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import type { SessionId } from '#protocol/ids.ts';
import { ANY_PATH, createRepository, readUserState } from './repository.ts';

const inTree = (tree: { readonly tree_path: string }, name: string) => path.join(tree.tree_path, name);

test('claude-code#57768, #81361: the base is the workspace as it is now, not the default branch: changed, new, staged and deleted files', async () => {
  const repo = createRepository({ 'a.txt': 'a\n', 'b.txt': 'b\n', 'gone.txt': 'x\n', '.gitignore': 'ignored\n' });
  repo.git('checkout', '-q', '-b', 'work');
  repo.write('committed.txt', 'on this branch alone\n');
  repo.git('add', 'committed.txt');
  repo.git('commit', '-q', '-m', 'second');
  repo.write('a.txt', 'a changed\n');
  repo.write('new/n.txt', 'new\n');
  repo.write('staged.txt', 'staged\n');
  repo.write('ignored', 'secret\n');
  repo.git('add', 'staged.txt');
  fs.rmSync(path.join(repo.root, 'gone.txt'));
  const before = readUserState(repo.root);
  const tree = await repo.create();
  expect(fs.readFileSync(inTree(tree, 'committed.txt'), 'utf8')).toBe('on this branch alone\n');
  expect(fs.readFileSync(inTree(tree, 'a.txt'), 'utf8')).toBe('a changed\n');
  expect(fs.readFileSync(inTree(tree, 'new/n.txt'), 'utf8')).toBe('new\n');
  expect(fs.readFileSync(inTree(tree, 'staged.txt'), 'utf8')).toBe('staged\n');
  expect(fs.existsSync(inTree(tree, 'gone.txt'))).toBe(false);
  expect(fs.existsSync(inTree(tree, 'ignored'))).toBe(false);
  expect(readUserState(repo.root)).toEqual(before);
  expect(repo.git('rev-parse', `refs/metis/${tree.session_id}/base^`)).toBe(repo.git('rev-parse', 'HEAD'));
  expect(repo.git('worktree', 'list', '--porcelain')).toContain('locked in use by metis');
});

test('a result is merged into the workspace, and the worktree goes without a trace but its refs', async () => {
  const repo = createRepository({ 'a.txt': '1\n2\n3\n4\n5\n', 'b.txt': 'b\n', 'sub/c.txt': 'c\n' });
  repo.write('a.txt', '1 mine\n2\n3\n4\n5\n');
  const before = readUserState(repo.root);
  const tree = await repo.create();
  fs.writeFileSync(inTree(tree, 'a.txt'), '1 mine\n2\n3\n4\n5 theirs\n');
  fs.rmSync(inTree(tree, 'sub/c.txt'));
  fs.writeFileSync(inTree(tree, 'run.sh'), '#!/bin/sh\n', { mode: 0o755 });
  repo.write('b.txt', 'b saved meanwhile\n');
  const recorded = await repo.worktrees.recordResult(tree, ANY_PATH);
  expect(recorded.files).toEqual([
    { path: 'a.txt', change: 'edited' },
    { path: 'run.sh', change: 'created' },
    { path: 'sub/c.txt', change: 'deleted' },
  ]);
  expect(await repo.apply(tree)).toEqual({ conflicts: [], changed: [] });
  expect(repo.read('a.txt')).toBe('1 mine\n2\n3\n4\n5 theirs\n');
  expect(repo.read('b.txt')).toBe('b saved meanwhile\n');
  expect(fs.existsSync(path.join(repo.root, 'sub'))).toBe(false);
  expect(fs.statSync(path.join(repo.root, 'run.sh')).mode & 0o111).not.toBe(0);
  await repo.worktrees.removeFolder(tree);
  expect(readUserState(repo.root)).toEqual(before);
  expect(fs.readdirSync(repo.home)).toEqual([]);
  expect(repo.git('worktree', 'list').trim().split('\n')).toHaveLength(1);
  expect(repo.git('for-each-ref', '--format=%(refname)', 'refs/metis').trim().split('\n')).toHaveLength(2);
  await repo.worktrees.removeRefs(tree);
  expect(repo.git('for-each-ref', 'refs/metis')).toBe('');
});

test('a conflict names its paths and writes nothing', async () => {
  const repo = createRepository({ 'a.txt': 'one\n', 'b.txt': 'b\n' });
  const tree = await repo.create();
  fs.writeFileSync(inTree(tree, 'a.txt'), 'theirs\n');
  fs.writeFileSync(inTree(tree, 'b.txt'), 'b theirs\n');
  repo.write('a.txt', 'mine\n');
  expect(await repo.apply(tree)).toEqual({ conflicts: ['a.txt'], changed: [] });
  expect(repo.read('a.txt')).toBe('mine\n');
  expect(repo.read('b.txt')).toBe('b\n');
});

test('a file that is saved between merge and write is not overwritten, and what was written before it goes back', async () => {
  const repo = createRepository({ 'a.txt': 'a\n', 'z.txt': 'z\n' });
  const tree = await repo.create();
  fs.writeFileSync(inTree(tree, 'a.txt'), 'a theirs\n');
  fs.writeFileSync(inTree(tree, 'z.txt'), 'z theirs\n');
  const { result_tree } = await repo.worktrees.recordResult(tree, ANY_PATH);
  const recorded = { ...tree, result_tree };
  const merge = await repo.worktrees.merge(recorded);
  if (merge.kind === 'conflict') throw new Error('a conflict');
  repo.write('z.txt', 'saved\n');
  expect(await repo.worktrees.write(recorded, merge)).toEqual({ changed_meanwhile: ['z.txt'], obstacle: null });
  expect([repo.read('a.txt'), repo.read('z.txt')]).toEqual(['a\n', 'saved\n']);
});

test('writing the same merge again, after half of it was written, ends as one writing does', async () => {
  const repo = createRepository({ 'a.txt': 'a\n', 'b.txt': 'b\n', 'c.txt': 'c\n' });
  const tree = await repo.create();
  fs.writeFileSync(inTree(tree, 'a.txt'), 'a2\n');
  fs.rmSync(inTree(tree, 'b.txt'));
  fs.writeFileSync(inTree(tree, 'd.txt'), 'd\n');
  const { result_tree } = await repo.worktrees.recordResult(tree, ANY_PATH);
  const recorded = { ...tree, result_tree };
  const merge = await repo.worktrees.merge(recorded);
  if (merge.kind === 'conflict') throw new Error('a conflict');
  repo.write('a.txt', 'a2\n');
  fs.rmSync(path.join(repo.root, 'b.txt'));
  expect(await repo.worktrees.write(recorded, merge)).toEqual({ changed_meanwhile: [], obstacle: null });
  expect(await repo.worktrees.write(recorded, merge)).toEqual({ changed_meanwhile: [], obstacle: null });
  expect(fs.readdirSync(repo.root).sort()).toEqual(['.git', 'a.txt', 'c.txt', 'd.txt']);
});

test('a file takes the place of a folder, and a folder that of a file', async () => {
  const repo = createRepository({ file: 'f\n', 'folder/a': 'a\n', 'folder/b': 'b\n' });
  const tree = await repo.create();
  fs.rmSync(inTree(tree, 'file'));
  fs.mkdirSync(inTree(tree, 'file'));
  fs.writeFileSync(inTree(tree, 'file/x'), 'x\n');
  fs.rmSync(inTree(tree, 'folder'), { recursive: true });
  fs.writeFileSync(inTree(tree, 'folder'), 'now a file\n');
  expect(await repo.apply(tree)).toEqual({ conflicts: [], changed: [] });
  expect([repo.read('file/x'), repo.read('folder')]).toEqual(['x\n', 'now a file\n']);
});

test('line ends are converted as in an ordinary checkout', async () => {
  const repo = createRepository({ '.gitattributes': '*.txt text eol=crlf\n', 'a.txt': 'one\ntwo\n', 'b.bin': 'x\r\n' });
  repo.git('rm', '-q', '--cached', 'a.txt');
  fs.writeFileSync(path.join(repo.root, 'a.txt'), 'one\r\ntwo\r\n');
  repo.git('add', '-A');
  repo.git('commit', '-q', '--allow-empty', '-m', 'second');
  const tree = await repo.create();
  expect(fs.readFileSync(inTree(tree, 'a.txt'), 'utf8')).toBe('one\r\ntwo\r\n');
  fs.writeFileSync(inTree(tree, 'a.txt'), 'one\r\ntwo\r\nthree\r\n');
  expect(await repo.apply(tree)).toEqual({ conflicts: [], changed: [] });
  expect(repo.read('a.txt')).toBe('one\r\ntwo\r\nthree\r\n');
  expect(repo.git('diff', '--stat')).toContain('1 insertion');
});

test('a workspace below the top of the repository has its place in the worktree, and nothing beside it is written', async () => {
  const repo = createRepository({ 'top.txt': 't\n', 'pack äö/a.txt': 'a\n', 'other/o.txt': 'o\n' });
  const tree = await repo.create(path.join(repo.root, 'pack äö'));
  expect(fs.readdirSync(tree.tree_path)).toEqual(['a.txt']);
  fs.writeFileSync(inTree(tree, 'a.txt'), 'a2\n');
  fs.writeFileSync(path.join(tree.folder, 'top.txt'), 'changed\n');
  fs.symlinkSync('a.txt', inTree(tree, 'inside'));
  fs.symlinkSync('../top.txt', inTree(tree, 'outside'));
  const { files } = await repo.worktrees.recordResult(tree, ANY_PATH);
  expect(files).toEqual([
    { path: 'a.txt', change: 'edited' },
    { path: 'inside', change: 'created' },
  ]);
  expect(await repo.apply(tree)).toEqual({ conflicts: [], changed: [] });
  expect([repo.read('pack äö/a.txt'), repo.read('top.txt')]).toEqual(['a2\n', 't\n']);
});

test('a worktree of a worktree begins with what that worker left and is applied to it', async () => {
  const repo = createRepository({ 'a.txt': 'a\n' });
  const outer = await repo.create();
  fs.writeFileSync(inTree(outer, 'a.txt'), 'outer\n');
  // What the worker writes there is not asked any more.
  fs.writeFileSync(inTree(outer, '.git'), `gitdir: ${repo.folder}/elsewhere\n`);
  const inner = await repo.create(outer.tree_path);
  expect(fs.readFileSync(inTree(inner, 'a.txt'), 'utf8')).toBe('outer\n');
  fs.writeFileSync(inTree(inner, 'b.txt'), 'inner\n');
  expect(await repo.apply(inner)).toEqual({ conflicts: [], changed: [] });
  expect(fs.readFileSync(inTree(outer, 'b.txt'), 'utf8')).toBe('inner\n');
  expect(fs.existsSync(path.join(repo.root, 'b.txt'))).toBe(false);
});

test('a worktree of a repository without a commit', async () => {
  const repo = createRepository({});
  repo.git('checkout', '-q', '--orphan', 'new');
  repo.write('a.txt', 'a\n');
  const tree = await repo.create();
  fs.writeFileSync(inTree(tree, 'a.txt'), 'a2\n');
  expect(await repo.apply(tree)).toEqual({ conflicts: [], changed: [] });
  expect(repo.read('a.txt')).toBe('a2\n');
});

test('a worktree of a linked worktree of the user', async () => {
  const repo = createRepository({ 'a.txt': 'a\n' });
  const linked = path.join(repo.folder, 'linked');
  repo.git('worktree', 'add', '-q', '-b', 'feature', linked);
  fs.writeFileSync(path.join(linked, 'a.txt'), 'feature\n');
  const tree = await repo.create(linked);
  expect(fs.readFileSync(inTree(tree, 'a.txt'), 'utf8')).toBe('feature\n');
  fs.writeFileSync(inTree(tree, 'a.txt'), 'feature 2\n');
  expect(await repo.apply(tree)).toEqual({ conflicts: [], changed: [] });
  expect(fs.readFileSync(path.join(linked, 'a.txt'), 'utf8')).toBe('feature 2\n');
  expect(repo.read('a.txt')).toBe('a\n');
});

test('the diff of a result is a patch, cut at its limit', async () => {
  const repo = createRepository({ 'a.txt': 'a\n' });
  const tree = await repo.create();
  fs.writeFileSync(inTree(tree, 'a.txt'), 'b\n');
  const { result_tree } = await repo.worktrees.recordResult(tree, ANY_PATH);
  const whole = await repo.worktrees.diff({ ...tree, result_tree }, 100_000);
  expect(whole.truncated).toBe(false);
  expect(whole.text).toContain('-a\n+b\n');
  expect(await repo.worktrees.diff({ ...tree, result_tree }, 20)).toEqual({
    text: whole.text.slice(0, 20),
    truncated: true,
  });
});

test('the texts of a result are those of text files, within the limits', async () => {
  const repo = createRepository({ 'top/a.txt': 'a\n', 'top/away.txt': 'gone\n', 'top/long.txt': 'l' });
  const tree = await repo.create(path.join(repo.root, 'top'));
  const put = (name: string, content: string | Buffer) => fs.writeFileSync(path.join(tree.tree_path, name), content);
  put('a.txt', 'ä\n');
  put('fresh.txt', 'new');
  put('long.txt', 'l'.repeat(2000));
  put('zero.bin', 'a\0b');
  put('latin.txt', Buffer.from([0xe4, 0x0a]));
  fs.rmSync(path.join(tree.tree_path, 'away.txt'));
  fs.symlinkSync('a.txt', path.join(tree.tree_path, 'link'));
  const { result_tree } = await repo.worktrees.recordResult(tree, ANY_PATH);
  const recorded = { ...tree, result_tree };
  const edited = { path: 'a.txt', change: 'edited', old_text: 'a\n', new_text: 'ä\n' };
  const gone = { path: 'away.txt', change: 'deleted', old_text: 'gone\n', new_text: null };
  const created = { path: 'fresh.txt', change: 'created', old_text: null, new_text: 'new' };
  const limits = { files: 200, bytes_per_text: 1000, bytes: 5000 };
  expect(await repo.worktrees.readTexts(recorded, limits)).toEqual({
    files: [edited, gone, created],
    truncated: false,
  });
  expect(await repo.worktrees.readTexts(recorded, { ...limits, files: 2 })).toEqual({
    files: [edited, gone],
    truncated: true,
  });
  // What is larger than what is left of all bytes is passed over for what is not.
  expect(await repo.worktrees.readTexts(recorded, { ...limits, bytes: 8 })).toEqual({
    files: [edited, created],
    truncated: true,
  });
  expect(await repo.worktrees.readTexts(tree, limits)).toEqual({ files: [], truncated: false });
});

test('claude-code#41010: a sweep removes what no delegation claims, and no work and no folder of others', async () => {
  const repo = createRepository({ 'a.txt': 'a\n' });
  const kept = await repo.create();
  const left = await repo.create();
  const unknown = await repo.create();
  // Folders of others: one of a person, one that only looks like a worktree.
  fs.mkdirSync(path.join(repo.home, 'notes'));
  fs.writeFileSync(path.join(repo.home, 'notes/mine.txt'), 'mine');
  const foreign = path.join(repo.home, kept.session_id.replace('sess_0', 'sess_7'));
  fs.mkdirSync(foreign);
  const removed = await repo.worktrees.sweep({
    isKept: async (id) => id === kept.session_id,
    hasRecord: async (id) => id !== unknown.session_id,
  });
  expect([...removed].sort()).toEqual([left.session_id, unknown.session_id].sort());
  const expected = [kept.session_id, `${kept.session_id}.git`, path.basename(foreign), 'notes'];
  expect(fs.readdirSync(repo.home).sort()).toEqual(expected.sort());
  expect(fs.readdirSync(path.join(repo.root, '.git/worktrees'))).toEqual([kept.session_id]);
  const refs = repo.git('for-each-ref', '--format=%(refname)', 'refs/metis').trim().split('\n');
  expect(refs.sort()).toEqual(
    [kept, left].map(({ session_id }: { session_id: SessionId }) => `refs/metis/${session_id}/base`).sort(),
  );
});

test('what a half-made worktree leaves is removed by the next start, refs first', async () => {
  const repo = createRepository({ 'a.txt': 'a\n' });
  const { session_id, folder } = await repo.create();
  // The process died within the removal: whatever is left leads to the rest.
  fs.rmSync(folder, { recursive: true });
  fs.rmSync(path.join(repo.root, '.git/worktrees', session_id), { recursive: true });
  const nothing = { isKept: async () => false, hasRecord: async () => false };
  expect(await repo.worktrees.sweep(nothing)).toEqual([session_id]);
  expect(repo.git('for-each-ref', 'refs/metis')).toBe('');
  expect(fs.readdirSync(repo.home)).toEqual([]);
});

// Promise 20.16: of several nodes the one that takes a tree up removes what names no tree, where its worker is of this one.
test('a worktree that is opened again after its removal is removed by the owner of its tree, and by no other', async () => {
  const repo = createRepository({ 'a.txt': 'a\n' });
  const tree = await repo.create();
  await repo.worktrees.removeFolder(tree);
  // The node that takes the tree up looks at what is kept; then it dies.
  await repo.worktrees.findLeftMarkers(tree);
  expect(fs.readdirSync(repo.home)).toEqual([`${tree.session_id}.git`]);
  const owner = { isKept: async () => false, hasRecord: async () => true };
  const sweep = (isOwn: (id: string, noted: string | null) => boolean) =>
    repo.worktrees.sweep({ ...owner, isOwn: async ({ id, tree: noted }) => isOwn(id, noted) });
  expect(await sweep((_id, noted) => noted === 'sess_root')).toEqual([]);
  expect(await sweep((id, noted) => noted === null && id === tree.session_id)).toEqual([tree.session_id]);
  expect(fs.readdirSync(repo.home)).toEqual([]);
});

test('a git folder that its process had just made goes, one with other files in it stays', async () => {
  const repo = createRepository({ 'a.txt': 'a\n' });
  const { session_id, ...made } = await repo.create();
  await repo.worktrees.removeFolder({ session_id, ...made });
  const [empty, begun, foreign] = ['X', 'Y', 'Z'].map((end) => session_id.replace(/.$/, end));
  for (const id of [empty, begun, foreign]) fs.mkdirSync(path.join(repo.home, `${id}.git`));
  fs.writeFileSync(path.join(repo.home, `${begun}.git/origin.json.tmp`), '{"repo');
  fs.writeFileSync(path.join(repo.home, `${foreign}.git/notes.txt`), 'mine');
  const nothing = { isKept: async () => false, hasRecord: async () => false };
  expect([...(await repo.worktrees.sweep(nothing))].sort()).toEqual([empty, begun].sort());
  expect(fs.readdirSync(repo.home)).toEqual([`${foreign}.git`]);
});

test('the size of a worktree is that of its files, and of the objects that its refs alone hold', async () => {
  const repo = createRepository({ 'a.txt': 'a\n' });
  const tree = await repo.create();
  const noise = Buffer.from(Array.from({ length: 100_000 }, (_, i) => (i * 7919 + (i >> 3) * 104_729) % 251));
  fs.writeFileSync(inTree(tree, 'big.bin'), noise);
  const before = await repo.worktrees.measure(tree);
  expect(before.folder_bytes).toBeGreaterThanOrEqual(100_000);
  await repo.worktrees.recordResult(tree, ANY_PATH);
  await repo.worktrees.removeFolder(tree);
  const kept = await repo.worktrees.measure(tree);
  expect(kept.folder_bytes).toBe(0);
  expect(kept.ref_bytes).toBeGreaterThan(before.ref_bytes);
  await repo.worktrees.removeRefs(tree);
  expect(await repo.worktrees.measure(tree)).toEqual({ folder_bytes: 0, ref_bytes: 0 });
});

test('files that are newer than the index, and a workspace of as many as several processes check out, are no change', async () => {
  const names = Array.from({ length: 300 }, (_, i) => `d${i % 3}/f${i}.txt`);
  const repo = createRepository(Object.fromEntries(names.map((name) => [name, `${name}\n`])));
  const before = readUserState(repo.root);
  for (const name of names) fs.utimesSync(path.join(repo.root, name), 2_000_000_000, 2_000_000_000);
  const tree = await repo.create();
  expect(tree.base_tree).toBe(repo.git('rev-parse', 'HEAD^{tree}').trim());
  for (const name of names) expect(fs.readFileSync(inTree(tree, name), 'utf8')).toBe(`${name}\n`);
  for (const name of names) fs.utimesSync(inTree(tree, name), 2_000_000_000, 2_000_000_000);
  // As long as it was: only its content differs.
  fs.writeFileSync(inTree(tree, 'd0/f0.txt'), 'd0/F0.txt\n');
  const { files } = await repo.worktrees.recordResult(tree, ANY_PATH);
  expect(files).toEqual([{ path: 'd0/f0.txt', change: 'edited' }]);
  expect(readUserState(repo.root)).toEqual(before);
});
