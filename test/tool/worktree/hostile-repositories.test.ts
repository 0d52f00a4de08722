// Hostile repositories and results: nothing of theirs runs, and nothing beside the changed paths is written (20 §2.1, §2.5).
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { silentLogger } from '#core/ports/logger.ts';
import { createSandbox } from '#tools/sandbox/bubblewrap.ts';
import { createWorkerLibrary } from '#tools/workspace/worker-files.ts';
import { createWorkspaces } from '#tools/workspace/workspaces.ts';
import { ANY_PATH, createRepository, readUserState, run, type TestRepository } from './repository.ts';

const inTree = (tree: { readonly tree_path: string }, name: string) => path.join(tree.tree_path, name);

/** A script that leaves a mark where it runs. */
function createTrap(repo: TestRepository): { readonly command: string; hasRun(): boolean } {
  const mark = path.join(repo.folder, 'ran');
  const script = path.join(repo.folder, 'trap.sh');
  fs.writeFileSync(script, `#!/bin/sh\necho "$0 $*" >> '${mark}'\ncat\n`, { mode: 0o755 });
  return { command: script, hasRun: () => fs.existsSync(mark) };
}

test('hooks, filters, merge drivers, fsmonitor and helpers that a repository configures do not run', async () => {
  const repo = createRepository({ 'a.txt': '1\n2\n3\n', 'b.bin': 'x\n' });
  const trap = createTrap(repo);
  const hooks = path.join(repo.root, '.git/hooks');
  const names = 'pre-commit post-checkout post-commit reference-transaction post-index-change pre-auto-gc post-merge';
  for (const name of names.split(' ')) fs.copyFileSync(trap.command, path.join(hooks, name));
  repo.write('.gitattributes', '* filter=evil merge=evil diff=evil\n');
  const settings = {
    'filter.evil.clean': trap.command,
    'filter.evil.smudge': trap.command,
    'filter.evil.process': trap.command,
    'filter.evil.required': 'true',
    'merge.evil.driver': `${trap.command} %A`,
    'diff.evil.command': trap.command,
    'diff.evil.textconv': trap.command,
    'core.fsmonitor': trap.command,
    'core.sshCommand': trap.command,
    'core.askPass': trap.command,
    'core.editor': trap.command,
    'core.pager': trap.command,
    'credential.helper': `!${trap.command}`,
    'gpg.program': trap.command,
    'commit.gpgSign': 'true',
    'uploadpack.packObjectsHook': trap.command,
    'core.alternateRefsCommand': trap.command,
    'gc.auto': '1',
    'submodule.recurse': 'true',
  };
  for (const [key, value] of Object.entries(settings)) repo.git('config', key, value);
  const before = readUserState(repo.root);
  const tree = await repo.create();
  fs.writeFileSync(inTree(tree, 'a.txt'), '1\n2\n3 theirs\n');
  fs.writeFileSync(inTree(tree, '.gitattributes'), '* filter=evil merge=evil text\n');
  repo.write('a.txt', '1 mine\n2\n3\n');
  expect(await repo.apply(tree)).toMatchObject({ changed: [] });
  await repo.worktrees.diff({ ...tree, ...(await repo.worktrees.recordResult(tree, ANY_PATH)) }, 10_000);
  await repo.worktrees.removeFolder(tree);
  await repo.worktrees.removeRefs(tree);
  expect(trap.hasRun()).toBe(false);
  expect(readUserState(repo.root)).toEqual(before);
});

// Promise 20.3: A `GIT_DIR` in the environment of the server changes nothing.
test('the variables of git in the environment of the server change nothing', async () => {
  const elsewhere = createRepository({ 'other.txt': 'other\n' });
  const env = {
    GIT_DIR: path.join(elsewhere.root, '.git'),
    GIT_WORK_TREE: elsewhere.root,
    GIT_INDEX_FILE: path.join(elsewhere.folder, 'index'),
    GIT_CONFIG_COUNT: '1',
    GIT_CONFIG_KEY_0: 'core.sparseCheckout',
    GIT_CONFIG_VALUE_0: 'true',
  };
  const repo = createRepository({ 'a.txt': 'a\n' }, { env });
  const before = readUserState(elsewhere.root);
  const tree = await repo.create();
  fs.writeFileSync(inTree(tree, 'a.txt'), 'a2\n');
  expect(await repo.apply(tree)).toEqual({ conflicts: [], changed: [] });
  expect(repo.read('a.txt')).toBe('a2\n');
  expect(readUserState(elsewhere.root)).toEqual(before);
});

// Promise 20.6: 50 hostile file names reach the workspace, and nothing else is written.
test('50 hostile file names reach the workspace byte by byte, and nothing else is written', async () => {
  const repo = createRepository({ 'a.txt': 'a\n' });
  const tree = await repo.create();
  const words = String.raw`-rf --help --exec=x -z * ? [a] {b} $HOME $(id) \`id\` ;id |id &id >x <x !x #x ~ ~root %s %00 \n \t \\ ' " '" a'b a"b ... .... -
    con nul aux.txt a:b a|b CON COM1 .gitx .git. .gitmodules.x HEAD refs index.lock @ @{u} :x :(top)x :!x ^x`;
  const names = words.split(/\s+/).map((name) => Buffer.from(name));
  names.push(Buffer.from('with space'), Buffer.from('tab\there'), Buffer.from('line\nbreak'), Buffer.from(' '));
  names.push(
    Buffer.from([0xff, 0xfe]),
    Buffer.from([0x61, 0xc3, 0x28]),
    Buffer.from('\u202egnp.exe'),
    Buffer.from('é'),
  );
  names.push(Buffer.from('é'), Buffer.from('🙂'), Buffer.from('x'.repeat(255)), Buffer.from('\x07bell'));
  expect(names.length).toBeGreaterThanOrEqual(50);
  for (const name of names) fs.writeFileSync(Buffer.concat([Buffer.from(`${tree.tree_path}/`), name]), name);
  expect(await repo.apply(tree)).toEqual({ conflicts: [], changed: [] });
  const found = fs.readdirSync(Buffer.from(repo.root), { encoding: 'buffer' }).map((name) => name.toString('hex'));
  const refused = new Set(['.git.'].map((name) => Buffer.from(name).toString('hex')));
  const expected = [...names, Buffer.from('.git'), Buffer.from('a.txt')].map((name) => name.toString('hex'));
  expect(found.filter((name) => !refused.has(name)).sort()).toEqual(
    [...new Set(expected)].filter((name) => !refused.has(name)).sort(),
  );
  expect(fs.readdirSync(repo.folder).sort()).toEqual(['data', 'workspace']);
});

// Promise 20.6: Links out of the tree and `.git` files stay behind.
test('links that lead out of the tree, nested repositories and files named .git stay behind', async () => {
  const repo = createRepository({ 'a.txt': 'a\n', 'd/x.txt': 'x\n' });
  fs.mkdirSync(path.join(repo.folder, 'outside'));
  fs.writeFileSync(path.join(repo.folder, 'outside/secret'), 'secret');
  const tree = await repo.create();
  fs.symlinkSync('/etc/passwd', inTree(tree, 'passwd'));
  fs.symlinkSync('../../../outside', inTree(tree, 'up'));
  fs.symlinkSync('a.txt', inTree(tree, 'inside'));
  fs.mkdirSync(inTree(tree, 'nested'));
  run(inTree(tree, 'nested'), 'init', '-q');
  fs.writeFileSync(inTree(tree, 'nested/.git/hooks/post-checkout'), '#!/bin/sh\n');
  fs.writeFileSync(inTree(tree, 'd/.git'), 'gitdir: /tmp/evil\n');
  fs.writeFileSync(inTree(tree, '.git'), 'gitdir: /tmp/evil\n');
  fs.writeFileSync(inTree(tree, 'b.txt'), 'b\n');
  const before = readUserState(repo.root);
  expect(await repo.apply(tree)).toEqual({ conflicts: [], changed: [] });
  expect(fs.readdirSync(repo.root).sort()).toEqual(['.git', 'a.txt', 'b.txt', 'd', 'inside']);
  expect(fs.readdirSync(path.join(repo.root, 'd'))).toEqual(['x.txt']);
  expect(readUserState(repo.root)).toEqual(before);
  expect(fs.readdirSync(path.join(repo.folder, 'outside'))).toEqual(['secret']);
});

test('a folder that became a link out of the workspace is not written through', async () => {
  const repo = createRepository({ 'd/x.txt': 'x\n', 'a.txt': 'a\n' });
  fs.mkdirSync(path.join(repo.folder, 'outside'));
  const tree = await repo.create();
  fs.writeFileSync(inTree(tree, 'd/new.txt'), 'new\n');
  const { result_tree } = await repo.worktrees.recordResult(tree, ANY_PATH);
  const recorded = { ...tree, result_tree };
  const merge = await repo.worktrees.merge(recorded);
  if (merge.kind === 'conflict') throw new Error('a conflict');
  fs.rmSync(path.join(repo.root, 'd'), { recursive: true });
  fs.symlinkSync(path.join(repo.folder, 'outside'), path.join(repo.root, 'd'));
  expect(await repo.worktrees.write(recorded, merge)).toEqual({ changed_meanwhile: ['d/new.txt'], obstacle: null });
  expect(fs.readdirSync(path.join(repo.folder, 'outside'))).toEqual([]);
});

test('protected files and linked folders are in no snapshot, in whatever spelling', async () => {
  const repo = createRepository(
    { 'a.txt': 'a\n', '.metis/MEMORY.md': 'memory\n', '.mcp.json': '{}\n', 'node_modules/x.js': 'x\n' },
    { links: ['node_modules'] },
  );
  repo.git('rm', '-q', '-r', '--cached', 'node_modules');
  repo.git('commit', '-q', '-m', 'second');
  const tree = await repo.create();
  expect(fs.readdirSync(tree.tree_path).sort()).toEqual(['.git', 'a.txt', 'node_modules']);
  expect(fs.readlinkSync(inTree(tree, 'node_modules'))).toBe(path.join(repo.root, 'node_modules'));
  fs.rmSync(inTree(tree, 'node_modules'));
  fs.mkdirSync(inTree(tree, '.METIS'));
  fs.writeFileSync(inTree(tree, '.METIS/trust.yaml'), 'always_allow: ["*"]\n');
  fs.mkdirSync(inTree(tree, '.metis'));
  fs.writeFileSync(inTree(tree, '.metis/MEMORY.md'), 'evil\n');
  fs.writeFileSync(inTree(tree, '.mcp.json'), '{"evil": 1}\n');
  fs.mkdirSync(inTree(tree, 'node_modules'));
  fs.writeFileSync(inTree(tree, 'node_modules/y.js'), 'y\n');
  fs.writeFileSync(inTree(tree, 'b.txt'), 'b\n');
  expect(await repo.apply(tree)).toEqual({ conflicts: [], changed: [] });
  expect(fs.readdirSync(repo.root).sort()).toEqual(['.git', '.mcp.json', '.metis', 'a.txt', 'b.txt', 'node_modules']);
  expect([repo.read('.metis/MEMORY.md'), repo.read('.mcp.json')]).toEqual(['memory\n', '{}\n']);
});

// Promise 20.6: Case twins stay two files.
test('case twins are two files where the file system has two', async () => {
  const repo = createRepository({ Readme: 'R\n', readme: 'r\n' });
  const tree = await repo.create();
  fs.writeFileSync(inTree(tree, 'readme'), 'r2\n');
  expect(await repo.apply(tree)).toEqual({ conflicts: [], changed: [] });
  expect([repo.read('Readme'), repo.read('readme')]).toEqual(['R\n', 'r2\n']);
});

test('attributes of a result convert no file that it did not change', async () => {
  const repo = createRepository({ 'a.txt': 'a\n', 'b.txt': '$Id$ é\n', 'd/c.txt': 'c\n' });
  const trap = createTrap(repo);
  repo.git('config', 'filter.evil.smudge', trap.command);
  repo.git('config', 'filter.evil.clean', trap.command);
  const before = readUserState(repo.root);
  const tree = await repo.create();
  const hostile = [
    '* text eol=crlf ident filter=evil',
    '[attr]evil filter=evil merge=evil',
    '../* evil',
    '/etc/* evil',
    'a.txt evil export-subst',
    `${'x'.repeat(100_000)} text`,
  ].join('\n');
  fs.writeFileSync(inTree(tree, '.gitattributes'), hostile);
  fs.writeFileSync(inTree(tree, 'd/.gitattributes'), '* binary -diff merge=evil\n');
  expect(await repo.apply(tree)).toEqual({ conflicts: [], changed: [] });
  expect([repo.read('a.txt'), repo.read('b.txt'), repo.read('d/c.txt')]).toEqual(['a\n', '$Id$ é\n', 'c\n']);
  expect(fs.readdirSync(repo.root).sort()).toEqual(['.git', '.gitattributes', 'a.txt', 'b.txt', 'd']);
  expect(readUserState(repo.root)).toEqual(before);
  expect(trap.hasRun()).toBe(false);
});

test('submodules of a result are no part of it, whatever `.gitmodules` names', async () => {
  const repo = createRepository({ 'a.txt': 'a\n' });
  const trap = createTrap(repo);
  for (const [key, value] of [
    ['submodule.mod.update', `!${trap.command}`],
    ['submodule.mod.url', `ext::${trap.command}`],
    ['submodule.recurse', 'true'],
    ['protocol.ext.allow', 'always'],
  ])
    repo.git('config', key!, value!);
  const before = readUserState(repo.root);
  const tree = await repo.create();
  const modules = ['mod', '../../evil', '.git/hooks'].map(
    (place) => `[submodule "${place}"]\n\tpath = ${place}\n\turl = ext::${trap.command}\n\tupdate = !${trap.command}\n`,
  );
  fs.writeFileSync(inTree(tree, '.gitmodules'), modules.join(''));
  fs.mkdirSync(inTree(tree, 'mod'));
  run(inTree(tree, 'mod'), 'init', '-q');
  fs.copyFileSync(trap.command, inTree(tree, 'mod/.git/hooks/post-checkout'));
  run(inTree(tree, 'mod'), 'config', 'core.fsmonitor', trap.command);
  fs.writeFileSync(inTree(tree, 'mod/m.txt'), 'm\n');
  fs.writeFileSync(inTree(tree, 'b.txt'), 'b\n');
  expect(await repo.apply(tree)).toEqual({ conflicts: [], changed: [] });
  expect(fs.readdirSync(repo.root).sort()).toEqual(['.git', '.gitmodules', 'a.txt', 'b.txt']);
  expect(fs.readdirSync(repo.folder).sort()).toEqual(['data', 'trap.sh', 'workspace']);
  expect(readUserState(repo.root)).toEqual(before);
  expect(trap.hasRun()).toBe(false);
});

test('submodules are left as they are in the base', async () => {
  const repo = createRepository({ 'a.txt': 'a\n' });
  const other = createRepository({ 'o.txt': 'o\n' });
  repo.git('-c', 'protocol.file.allow=always', 'submodule', '--quiet', 'add', other.root, 'mod');
  repo.git('commit', '-q', '-m', 'module');
  const trap = createTrap(repo);
  run(path.join(repo.root, 'mod'), 'config', 'core.fsmonitor', trap.command);
  fs.writeFileSync(path.join(repo.root, 'mod/o.txt'), 'changed\n');
  const tree = await repo.create();
  fs.writeFileSync(inTree(tree, 'a.txt'), 'a2\n');
  fs.rmSync(inTree(tree, 'mod'), { recursive: true, force: true });
  expect(await repo.apply(tree)).toEqual({ conflicts: [], changed: [] });
  expect(repo.read('mod/o.txt')).toBe('changed\n');
  expect(repo.read('a.txt')).toBe('a2\n');
  expect(trap.hasRun()).toBe(false);
});

// Promise 20.6: No git, a sparse checkout and a folder outside a repository are named.
test('what no worktree can be made of says why', async () => {
  const repo = createRepository({ 'a.txt': 'a\n', 'd/b.txt': 'b\n' });
  expect(await repo.worktrees.findObstacle(repo.root)).toBeNull();
  expect(await repo.worktrees.findObstacle(repo.folder)).toContain('lies in no git work tree');
  repo.git('config', 'core.worktree', '/');
  expect(await repo.worktrees.findObstacle(repo.root)).toContain('lies in no git work tree');
  repo.git('config', '--unset', 'core.worktree');
  repo.git('sparse-checkout', 'set', 'd');
  expect(await repo.worktrees.findObstacle(repo.root)).toContain('sparse checkout');
  repo.git('config', 'core.sparseCheckout', 'false');
  await expect(repo.create()).rejects.toThrow('sparse checkout');
  expect(fs.existsSync(repo.home)).toBe(false);
  expect(repo.git('for-each-ref', 'refs/metis')).toBe('');
  const none = createRepository({}, { env: { PATH: '/nowhere' } });
  expect(await none.worktrees.findObstacle(none.root)).toBe('git is not installed');
});

// Promise 20.6: An old git is named.
test('an older git is refused by its version', async () => {
  const repo = createRepository({});
  const bin = path.join(repo.folder, 'bin');
  fs.mkdirSync(bin);
  fs.writeFileSync(path.join(bin, 'git'), '#!/bin/sh\necho git version 2.37.9\n', { mode: 0o755 });
  const old = createRepository({}, { env: { PATH: `${bin}:${process.env.PATH}` } });
  expect(await old.worktrees.findObstacle(old.root)).toBe('git 2.38 or newer is needed, this is git version 2.37.9');
});

test('a huge new file is refused by name, and nothing is left', async () => {
  const repo = createRepository({ 'a.txt': 'a\n' });
  repo.write('huge.bin', '');
  fs.truncateSync(path.join(repo.root, 'huge.bin'), 600 * 1024 * 1024);
  await expect(repo.create()).rejects.toThrow('huge.bin is too large');
  expect(fs.readdirSync(repo.home)).toEqual([]);
  expect(repo.git('for-each-ref', 'refs/metis')).toBe('');
  fs.rmSync(path.join(repo.root, 'huge.bin'));
  for (const n of [1, 2, 3, 4, 5]) {
    repo.write(`large-${n}.bin`, '');
    fs.truncateSync(path.join(repo.root, `large-${n}.bin`), 450 * 1024 * 1024);
  }
  await expect(repo.create()).rejects.toThrow('new and changed files have more than');
  expect(fs.readdirSync(repo.home)).toEqual([]);
});

test('a huge file of a worker is refused by name, and nothing of its result is written', async () => {
  const repo = createRepository({ 'a.txt': 'a\n' });
  const before = readUserState(repo.root);
  const tree = await repo.create();
  fs.writeFileSync(inTree(tree, 'a.txt'), 'changed\n');
  fs.writeFileSync(inTree(tree, 'huge.bin'), '');
  fs.truncateSync(inTree(tree, 'huge.bin'), 600 * 1024 * 1024);
  await expect(repo.apply(tree)).rejects.toThrow('huge.bin is too large');
  expect(fs.readdirSync(repo.root).sort()).toEqual(['.git', 'a.txt']);
  expect(repo.read('a.txt')).toBe('a\n');
  expect(readUserState(repo.root)).toEqual(before);
});

test('files that git was told to assume unchanged, and a split index, are read as they are', async () => {
  const repo = createRepository({ 'a.txt': 'a\n', 'b.txt': 'b\n' });
  repo.git('update-index', '--assume-unchanged', 'a.txt');
  repo.git('update-index', '--split-index');
  repo.write('a.txt', 'assumed\n');
  const before = readUserState(repo.root);
  const tree = await repo.create();
  expect(fs.readFileSync(inTree(tree, 'a.txt'), 'utf8')).toBe('assumed\n');
  expect(readUserState(repo.root)).toEqual(before);
});

// Promise 20.16: With the sandbox a command in a worktree cannot write the caller's workspace by an absolute path.
test('a sandboxed command in a worktree reads the caller, its repository and its links, and writes none of them', async () => {
  const repo = createRepository(
    { 'a.txt': 'a\n', '.gitignore': 'node_modules\n', 'node_modules/x.js': 'x\n' },
    { links: ['node_modules'] },
  );
  const tree = await repo.create();
  const env = { PATH: process.env.PATH ?? '' };
  const sandbox = createSandbox({
    network: false,
    dataFolder: path.join(repo.folder, 'data'),
    projectFiles: false,
    env,
  });
  const command = `echo evil > ${repo.root}/evil; echo evil > ${repo.root}/.git/evil; echo evil > node_modules/evil;
    rm -rf ${repo.root}/a.txt; cat ${repo.root}/a.txt node_modules/x.js; echo mine > mine; git status --short`;
  const argv = await sandbox(tree.tree_path, ['/bin/sh', '-c', command]);
  const { stdout } = spawnSync(argv[0]!, argv.slice(1), { env, encoding: 'utf8' });
  expect(stdout).toBe('a\nx\n?? mine\n');
  expect(fs.readdirSync(repo.root).sort()).toEqual(['.git', '.gitignore', 'a.txt', 'node_modules']);
  expect(fs.existsSync(path.join(repo.root, '.git/evil'))).toBe(false);
  expect(fs.readdirSync(path.join(repo.root, 'node_modules'))).toEqual(['x.js']);
  expect(fs.readFileSync(inTree(tree, 'mine'), 'utf8')).toBe('mine\n');
});

test('a sandboxed command sees no other worktree, where they lie outside the data folder too', async () => {
  const repo = createRepository({ 'a.txt': 'a\n' });
  const [tree, other] = [await repo.create(), await repo.create()];
  const env = { PATH: process.env.PATH ?? '' };
  const dataFolder = path.join(repo.folder, 'elsewhere');
  fs.mkdirSync(dataFolder);
  const sandbox = createSandbox({ network: false, dataFolder, worktreesFolder: repo.home, projectFiles: false, env });
  const command = `echo evil > ${repo.root}/evil; cat ${other.tree_path}/a.txt; cat ${repo.root}/a.txt; echo mine > mine`;
  const argv = await sandbox(tree.tree_path, ['/bin/sh', '-c', command]);
  const { stdout } = spawnSync(argv[0]!, argv.slice(1), { env, encoding: 'utf8' });
  expect(stdout).toBe('a\n');
  expect(fs.readdirSync(repo.root).sort()).toEqual(['.git', 'a.txt']);
  expect(fs.readFileSync(inTree(tree, 'mine'), 'utf8')).toBe('mine\n');
});

test('file tools read a linked folder of the caller, write none of it, and follow no other link', async () => {
  const repo = createRepository(
    { 'a.txt': 'a\n', '.gitignore': 'node_modules\n', 'node_modules/pack/x.js': 'x\n' },
    { links: ['node_modules', '.venv'] },
  );
  const tree = await repo.create();
  const library = createWorkerLibrary(silentLogger);
  const workspaces = createWorkspaces({
    globalRoutingPath: '/nowhere',
    globalSkillsPath: '/nowhere',
    library,
    dataFolder: path.join(repo.folder, 'data'),
    worktreesFolder: repo.home,
    log: silentLogger,
  });
  const files = workspaces.files(tree.tree_path);
  const read = async (name: string) => (await files.readFile(await files.resolve(name, 'read'))).toString();
  expect(await read('node_modules/pack/x.js')).toBe('x\n');
  expect(await read('./node_modules/pack/x.js')).toBe('x\n');
  expect(await read('a.txt')).toBe('a\n');
  await expect(files.resolve('node_modules/pack/x.js', 'write')).rejects.toThrow('only read');
  await expect(files.resolve('node_modules/../../../workspace/a.txt', 'read')).rejects.toThrow('escapes');
  // A worker that puts another link in its place still reads the caller's folder.
  fs.rmSync(inTree(tree, 'node_modules'));
  fs.symlinkSync('/etc', inTree(tree, 'node_modules'));
  await expect(read('node_modules/passwd')).rejects.toThrow('not found');
  await expect(read(`${repo.root}/a.txt`)).rejects.toThrow('escapes');
});
