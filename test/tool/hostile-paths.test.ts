// Nothing outside a workspace is read or changed by a path, whatever it says and whoever swaps links meanwhile (09 §8).
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { ToolError } from '#protocol/tool.ts';
import { listFiles } from '#tools/builtin/list-files.ts';
import { readFile } from '#tools/builtin/read-file.ts';
import { createWorkspaceFiles } from '#tools/workspace/confined-files.ts';
import { call, textOf, workspace } from './call.ts';
import { hostilePaths } from './hostile-paths.ts';

const SECRET = 'the secret of the outside';

/** Every file and link below a folder with what it holds and when it was changed. */
function picture(folder: string): readonly string[] {
  return (fs.readdirSync(folder, { recursive: true, encoding: 'utf8' }) as string[]).sort().map((name) => {
    const file = path.join(folder, name);
    const stat = fs.lstatSync(file);
    const held = stat.isFile() ? fs.readFileSync(file, 'utf8') : stat.isSymbolicLink() ? fs.readlinkSync(file) : '';
    return `${name} ${stat.mode} ${stat.isDirectory() ? '' : stat.mtimeMs} ${held}`;
  });
}

function world() {
  const root = workspace({
    'a.txt': 'a',
    'dir/b.txt': 'b',
    '.metis/trust.yaml': SECRET,
    '.metis/routing.yaml': SECRET,
    '.metis/.env': SECRET,
    '.metis/MEMORY.md': 'memory',
    '.metis/skills/x': 'skill',
  });
  const base = path.dirname(root);
  const outside = path.join(base, 'outside');
  for (const folder of [outside, `${root}-2`]) {
    fs.mkdirSync(folder);
    fs.writeFileSync(path.join(folder, 'secret'), SECRET);
  }
  const links: Readonly<Record<string, string>> = {
    out: outside,
    'dir/out': '../../outside',
    up: '..',
    top: '/',
    'file-out': '../outside/secret',
    dangling: '../outside/dangling',
    'far-dangling': '/nowhere/at/all',
    loop: 'loop',
    'loop-a': 'loop-b',
    'loop-b': 'loop-a',
    chain: 'dir/out',
    'chain-file': 'file-out',
    self: '.',
    alias: '.metis',
    'trust-link': '.metis/trust.yaml',
    '.metis/out': '../../outside',
    '.metis/skills/out': '../../../outside',
  };
  for (const [name, target] of Object.entries(links)) fs.symlinkSync(target, path.join(root, name));
  execFileSync('mkfifo', [path.join(root, 'pipe')]);
  const guarded = () => [
    picture(outside),
    picture(`${root}-2`),
    picture(path.join(root, '.metis')),
    fs.readdirSync(base),
  ];
  return { root, base, outside, guarded };
}

/** The text, or the error's; anything but a `ToolError` is a bug. */
async function told(act: () => Promise<string | Buffer>): Promise<string> {
  try {
    return String(await act());
  } catch (error) {
    if (error instanceof ToolError) return error.message;
    throw error;
  }
}

describe('200 hostile paths', () => {
  // Promise 09.4: 200 hostile paths read, write and list nothing outside the workspace and nothing protected in it.
  it('read, write and list nothing outside the workspace and nothing protected in it', async () => {
    const { root, base, outside, guarded } = world();
    const paths = hostilePaths(root, outside);
    expect(new Set(paths).size).toBeGreaterThanOrEqual(200);
    const files = createWorkspaceFiles(root);
    const before = guarded();
    for (const given of paths) {
      const texts = [
        await told(async () => files.readFile(await files.resolve(given, 'read'), 1_000_000)),
        await told(async () => textOf(await call(readFile, root, { path: given }).output)),
        await told(async () => textOf(await call(listFiles, root, { path: given }).output)),
        await told(async () => textOf(await call(listFiles, root, { path: given, recursive: true }).output)),
        await told(async () => {
          await files.write(await files.resolve(given, 'write'), 'overwritten');
          return '';
        }),
      ];
      for (const text of texts) {
        expect(text, given).not.toContain(SECRET);
        expect(text, given).not.toMatch(/root:.*:0:0:|^secret$/m);
        // The root is named only where the model named it.
        if (!given.includes(base)) expect(text, given).not.toContain(base);
      }
      expect(guarded(), given).toEqual(before);
    }
  });

  // Promise 09.4: A folder that is swapped for a link to the outside all the time leads nowhere.
  it('hold although somebody swaps a folder for a link to the outside all the time', async () => {
    const { root, outside } = world();
    fs.writeFileSync(path.join(root, 'dir', 'secret'), 'inside');
    const before = picture(outside);
    const files = createWorkspaceFiles(root);
    await swapping(root);
    let reached = 0;
    for (let i = 0; i < 400; i++) {
      const read = await told(async () => files.readFile(await files.resolve('dir/secret', 'read')));
      expect(read).not.toContain(SECRET);
      if (read === 'inside') reached += 1;
      await told(async () => {
        await files.write(await files.resolve(`dir/new-${i % 7}/x`, 'write'), 'overwritten');
        return '';
      });
      await told(async () => (await files.entries(await files.resolve('dir', 'list'))).map((e) => e.name).join());
    }
    expect(picture(outside)).toEqual(before);
    expect(reached).toBeGreaterThan(0);
  });
});

/** A process that goes on swapping `dir` until the test is over; resolves once it has begun. */
async function swapping(root: string): Promise<ChildProcess> {
  const script = `
    const fs = require('node:fs');
    process.chdir(process.argv[1]);
    process.stdout.write('x');
    // What the other side makes in the place of the folder meanwhile is in the way.
    const tried = (act) => { try { act(); return true; } catch { return false; } };
    const attempt = (act) => tried(act) || tried(() => fs.rmSync('dir', { recursive: true, force: true }));
    for (let round = 0; ; round++) {
      // Now and then the folder is there for about a millisecond, or no read would ever find it.
      if (round % 16 === 0) for (let looks = 0; looks < 500; looks++) fs.statSync('.');
      attempt(() => fs.renameSync('dir', 'kept'));
      attempt(() => fs.symlinkSync('../outside', 'dir'));
      attempt(() => fs.unlinkSync('dir'));
      attempt(() => fs.renameSync('kept', 'dir'));
    }`;
  const child = spawn(process.execPath, ['-e', script, root], { stdio: ['ignore', 'pipe', 'inherit'] });
  onTestFinished(async () => {
    const gone = once(child, 'exit');
    if (child.kill('SIGKILL')) await gone;
  });
  await once(child.stdout, 'data');
  return child;
}
