// What V8 compiled of the package's code is kept in the package, and nowhere else; where it cannot be, nothing is lost.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import vm from 'node:vm';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { address, ROOT, start, temporaryHome } from '../app/metis.ts';

let home: ReturnType<typeof temporaryHome>;
let folder: string;
/** The package, installed somewhere else. */
beforeEach(() => {
  home = temporaryHome();
  folder = path.join(home.path, 'package');
  fs.mkdirSync(folder);
  const built = path.join(ROOT, 'dist');
  fs.cpSync(built, path.join(folder, 'dist'), { recursive: true, filter: (file) => path.basename(file) !== '.cache' });
  fs.cpSync(path.join(ROOT, 'package.json'), path.join(folder, 'package.json'));
  fs.symlinkSync(path.join(ROOT, 'node_modules'), path.join(folder, 'node_modules'));
});
afterEach(() => home.remove());

/** A command that is told nothing about where compiled code is kept: what it prints. */
function run(...args: string[]): string {
  const temporary = path.join(home.path, 'tmp');
  fs.mkdirSync(temporary, { recursive: true });
  const env = { PATH: process.env.PATH, HOME: home.path, TMPDIR: temporary };
  const { status, stdout, stderr } = spawnSync(process.execPath, [path.join(folder, 'dist/main.js'), ...args], {
    env,
    timeout: 60_000,
    encoding: 'utf8',
  });
  expect([status, stderr]).toEqual([0, '']);
  expect(fs.readdirSync(temporary)).toEqual([]);
  expect(fs.readdirSync(home.path).sort()).toEqual(['package', 'tmp']);
  return stdout;
}

const expectVersion = () => expect(run('--version')).toMatch(/^\d+\.\d+\.\d+\n$/);

/** File -> its inode, which a file that is written again has not. */
function listKept(kind: 'commands' | 'serve'): ReadonlyMap<string, number> {
  const kept = path.join(folder, 'dist/.cache', `metis-${process.version}-${process.arch}-${kind}`);
  return new Map(fs.readdirSync(kept).map((name) => [path.join(kept, name), fs.statSync(path.join(kept, name)).ino]));
}

const SCRIPT = 'dist/server/command-line.cjs';

function findKept(): string {
  return [...listKept('commands').keys()].find((file) => path.basename(file) === path.basename(SCRIPT))!;
}

it('code is compiled once: what a command compiled stays beside it, by version of Node.js, and in no other place', () => {
  expectVersion();
  expect(fs.readdirSync(path.join(folder, 'dist/.cache'))).toEqual([expect.stringContaining(process.version)]);
  const before = listKept('commands');
  expect(before.size).toBeGreaterThan(5);
  expectVersion();
  expect(listKept('commands')).toEqual(before);
});

it('the functions that ran are kept too', () => {
  expectVersion();
  const text = fs.readFileSync(path.join(folder, SCRIPT), 'latin1');
  const alone = new vm.Script(`(function(exports,require,module,__filename,__dirname){${text}\n})`).createCachedData();
  expect(fs.statSync(findKept()).size).toBeGreaterThan(2 * alone.byteLength);
});

it('the next server takes what the one before it compiled', async () => {
  const serve = async () => {
    const main = path.join(folder, 'dist/main.js');
    const given = ['serve', '--port', '0', '--data', path.join(home.path, 'data')];
    const server = start(given, { home: home.path, main, env: { NODE_COMPILE_CACHE: '' } });
    await address(server);
    expect((await server.stop()).code).toBe(0);
    return listKept('serve');
  };
  for (const name of ['config', 'migrations']) fs.symlinkSync(path.join(ROOT, name), path.join(folder, name));
  const before = await serve();
  expect(before.size).toBeGreaterThan(50);
  expect(await serve()).toEqual(before);
});

it('a script that was changed is compiled anew, though it is as long as it was', () => {
  expect(run('--help')).toContain('A session server for planner and worker LLM agents.');
  const file = path.join(folder, SCRIPT);
  const changed = fs
    .readFileSync(file, 'latin1')
    .replace('A session server for planner', 'A changed server for planner');
  fs.writeFileSync(file, changed, 'latin1');
  expect(run('--help')).toContain('A changed server for planner and worker LLM agents.');
});

it('what is kept in part or damaged is compiled anew', () => {
  expectVersion();
  const kept = findKept();
  const whole = fs.readFileSync(kept);
  const damaged = Buffer.from(whole);
  damaged.fill(0, whole.byteLength - 1000, whole.byteLength - 500);
  for (const bytes of [whole.subarray(0, whole.byteLength / 2), Buffer.alloc(3), damaged]) {
    fs.writeFileSync(kept, bytes);
    expectVersion();
    expect(fs.readFileSync(kept).byteLength).toBe(whole.byteLength);
    expect(fs.readFileSync(kept).equals(bytes)).toBe(false);
  }
});

it('what is no file of its own, or is too large, is neither read nor waited for, and leaves no draft', () => {
  run('--version');
  const files = [...listKept('commands').keys()];
  const [pipe, folderInPlace, link, large] = files as [string, string, string, string];
  const other = fs.readFileSync(pipe);
  for (const file of [pipe, folderInPlace, link]) fs.rmSync(file);
  spawnSync('mkfifo', [pipe]);
  fs.mkdirSync(path.join(folderInPlace, 'inside'), { recursive: true });
  fs.writeFileSync(path.join(folder, 'elsewhere'), other);
  fs.symlinkSync(path.join(folder, 'elsewhere'), link);
  fs.truncateSync(large, 300 * 1024 * 1024);
  run('--version');
  expect([...listKept('commands').keys()]).toEqual(files);
  expect(fs.readFileSync(path.join(folder, 'elsewhere')).equals(other)).toBe(true);
  for (const file of [pipe, link, large]) expect(fs.lstatSync(file).size).toBeLessThan(64 * 1024 * 1024);
  for (const file of [pipe, link, large]) expect(fs.lstatSync(file).isFile()).toBe(true);
});

it.skipIf(process.getuid?.() !== 0)('code of another user is not run, but compiled anew', () => {
  run('--version');
  const before = listKept('commands');
  const stranger = findKept();
  fs.chownSync(stranger, 65_534, 65_534);
  run('--version');
  const after = listKept('commands');
  expect(after.get(stranger)).not.toBe(before.get(stranger));
  expect(fs.statSync(stranger).uid).toBe(0);
  for (const [file, inode] of before) if (file !== stranger) expect(after.get(file)).toBe(inode);
});

it('drafts of processes that were killed are removed, and those of others that write are not', () => {
  expectVersion();
  const kept = findKept();
  const { pid } = spawnSync('true');
  const [old, fresh] = [`${kept}.${pid}`, `${kept}.${process.pid}`];
  for (const draft of [old, fresh]) fs.writeFileSync(draft, 'half');
  fs.rmSync(kept);
  expectVersion();
  expect([old, fresh, kept].map((file) => fs.existsSync(file))).toEqual([false, true, true]);
});

it('where it cannot be kept, a command works all the same and says nothing', () => {
  fs.writeFileSync(path.join(folder, 'dist/.cache'), 'no folder');
  expectVersion();
  expect(fs.readFileSync(path.join(folder, 'dist/.cache'), 'utf8')).toBe('no folder');
});
