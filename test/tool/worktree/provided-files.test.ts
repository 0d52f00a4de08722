// What a worktree gets beside its snapshot: copies of ignored files, and folders as links or clones (20 §2.2).
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { createSandbox } from '#tools/sandbox/bubblewrap.ts';
import { createRepository } from './repository.ts';

const inTree = (tree: { readonly tree_path: string }, name: string) => path.join(tree.tree_path, name);
const NO_LINKS = { worktree_links: [] };
const copyFile = (from: string, to: string) => fs.promises.copyFile(from, to);

test('ignored files are copied by pattern, and are in no result', async () => {
  const repo = createRepository({ 'a.txt': 'a\n', '.gitignore': '.env\n/conf/local.*\nkeys/\nother\n' });
  for (const name of ['.env', 'deep/er/.env', 'conf/local.json', 'keys/one', 'keys/two', 'other'])
    repo.write(name, name);
  fs.chmodSync(path.join(repo.root, '.env'), 0o600);
  const tree = await repo.create(repo.root, { ...NO_LINKS, worktree_copy: ['.env', 'conf/local.*', 'keys/'] });
  const found = (fs.readdirSync(tree.tree_path, { recursive: true }) as string[]).filter((name) =>
    fs.statSync(inTree(tree, name)).isFile(),
  );
  expect(found.sort()).toEqual(
    ['.env', '.git', '.gitignore', 'a.txt', 'conf/local.json', 'deep/er/.env', 'keys/one', 'keys/two'].sort(),
  );
  expect(fs.statSync(inTree(tree, '.env')).mode & 0o777).toBe(0o600);
  fs.writeFileSync(inTree(tree, '.env'), 'changed');
  fs.writeFileSync(inTree(tree, 'a.txt'), 'b\n');
  expect(await repo.apply(tree)).toEqual({ conflicts: [], changed: [] });
  expect([repo.read('.env'), repo.read('a.txt')]).toEqual(['.env', 'b\n']);
});

test('patterns hold below the workspace alone, and mean no protected file, no link and no folder of other repositories', async () => {
  const repo = createRepository({ 'pack/a.txt': 'a\n', '.gitignore': '*.key\n.metis\nlinked\nnested\nnode_modules\n' });
  for (const name of ['top.key', 'pack/in.key', 'pack/.metis/x.key', 'pack/node_modules/n.key', 'outside/o.key'])
    repo.write(name, name);
  fs.symlinkSync('/etc/passwd', path.join(repo.root, 'pack/passwd.key'));
  fs.symlinkSync('../outside', path.join(repo.root, 'pack/linked'));
  const settings = { worktree_links: ['node_modules'], worktree_copy: ['*.key', 'linked/*', '/*.key'] };
  const tree = await repo.create(path.join(repo.root, 'pack'), settings);
  expect(fs.readdirSync(tree.tree_path).sort()).toEqual(['a.txt', 'in.key', 'node_modules']);
  expect(fs.existsSync(path.join(tree.folder, 'top.key'))).toBe(false);
});

test('too many bytes are refused by the name of the setting, and nothing is left', async () => {
  const repo = createRepository({ '.gitignore': 'big\n' });
  repo.write('big', '');
  fs.truncateSync(path.join(repo.root, 'big'), 300 * 1024 * 1024);
  await expect(repo.create(repo.root, { ...NO_LINKS, worktree_copy: ['big'] })).rejects.toThrow(
    'delegation.worktree_copy means more than',
  );
  expect(fs.readdirSync(repo.home)).toEqual([]);
  expect(repo.git('for-each-ref', 'refs/metis')).toBe('');
});

test('a folder is cloned where the file system can: read-only in the sandbox, in no result', async () => {
  const repo = createRepository(
    { 'a.txt': 'a\n', '.gitignore': 'node_modules\n', 'node_modules/.bin/x': 'x\n', 'node_modules/p/y.js': 'y\n' },
    { links: ['node_modules'], clone: copyFile },
  );
  fs.symlinkSync('../p/y.js', path.join(repo.root, 'node_modules/.bin/y'));
  const tree = await repo.create();
  expect(fs.lstatSync(inTree(tree, 'node_modules')).isDirectory()).toBe(true);
  expect(fs.readFileSync(inTree(tree, 'node_modules/.bin/y'), 'utf8')).toBe('y\n');
  const env = { PATH: process.env.PATH ?? '' };
  const dataFolder = path.join(repo.folder, 'data');
  const sandbox = createSandbox({ network: false, dataFolder, projectFiles: false, env });
  const command = 'echo evil > node_modules/evil; cat node_modules/p/y.js; echo mine > mine';
  const argv = await sandbox(tree.tree_path, ['/bin/sh', '-c', command]);
  const { stdout } = spawnSync(argv[0]!, argv.slice(1), { env, encoding: 'utf8' });
  expect(stdout).toBe('y\n');
  expect(fs.readdirSync(inTree(tree, 'node_modules')).sort()).toEqual(['.bin', 'p']);
  fs.writeFileSync(inTree(tree, 'node_modules/p/y.js'), 'changed\n');
  expect(await repo.apply(tree)).toEqual({ conflicts: [], changed: [] });
  expect([repo.read('mine'), repo.read('node_modules/p/y.js')]).toEqual(['mine\n', 'y\n']);
});

test('a folder of which one file cannot be cloned is linked whole', async () => {
  const clone = (from: string, to: string) =>
    from.endsWith('bad') ? Promise.reject(new Error('ENOTSUP')) : copyFile(from, to);
  const files = { '.gitignore': 'node_modules\n', 'node_modules/good': 'g', 'node_modules/x/bad': 'b' };
  const repo = createRepository(files, { links: ['node_modules'], clone });
  const tree = await repo.create();
  expect(fs.readlinkSync(inTree(tree, 'node_modules'))).toBe(path.join(repo.root, 'node_modules'));
});

test('a folder below a link of the snapshot is given to no worktree', async () => {
  const repo = createRepository({ 'a.txt': 'a\n', '.gitignore': 'deps\n' }, { links: ['out/deps'] });
  fs.mkdirSync(path.join(repo.folder, 'elsewhere/deps'), { recursive: true });
  fs.symlinkSync(path.join(repo.folder, 'elsewhere'), path.join(repo.root, 'out'));
  repo.git('add', 'out');
  repo.git('commit', '-q', '-m', 'link');
  fs.mkdirSync(path.join(repo.folder, 'other/deps'), { recursive: true });
  const tree = await repo.create();
  expect(fs.readdirSync(path.join(repo.folder, 'elsewhere'))).toEqual(['deps']);
  expect(fs.readlinkSync(inTree(tree, 'out'))).toBe(path.join(repo.folder, 'elsewhere'));
});
