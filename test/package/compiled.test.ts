// What Node.js made of the package's code is kept in the package, and nowhere else; where it cannot be, nothing is lost.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { ROOT, temporaryHome } from '../app/metis.ts';

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

/** `metis --version`, told nothing about where compiled code is kept. */
function version() {
  const temporary = path.join(home.path, 'tmp');
  fs.mkdirSync(temporary, { recursive: true });
  const env = { PATH: process.env.PATH, HOME: home.path, TMPDIR: temporary };
  const { status, stdout, stderr } = spawnSync(process.execPath, [path.join(folder, 'dist/main.js'), '--version'], {
    env,
    encoding: 'utf8',
  });
  expect([status, stderr]).toEqual([0, '']);
  expect(stdout).toMatch(/^\d+\.\d+\.\d+\n$/);
  expect(fs.readdirSync(temporary)).toEqual([]);
  expect(fs.readdirSync(home.path).sort()).toEqual(['package', 'tmp']);
}

it('code is compiled once: what a command compiled stays beside it, by version of Node.js, and in no other place', () => {
  version();
  const kept = fs.readdirSync(path.join(folder, 'dist/.cache'));
  expect(kept).toEqual([expect.stringContaining(process.version)]);
  const files = () => fs.readdirSync(path.join(folder, 'dist/.cache', kept[0]!)).sort();
  const before = files();
  expect(before.length).toBeGreaterThan(5);
  version();
  expect(files()).toEqual(before);
});

it('where it cannot be kept, a command works all the same and says nothing', () => {
  fs.writeFileSync(path.join(folder, 'dist/.cache'), 'no folder');
  version();
  expect(fs.readFileSync(path.join(folder, 'dist/.cache'), 'utf8')).toBe('no folder');
});
