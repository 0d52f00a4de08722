// A build that would make what is there already does nothing: `npm start`, `npm test` and the demos build first.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { ROOT, temporaryHome } from '../app/metis.ts';

const { hashInputs } = (await import(path.join(ROOT, 'scripts/build-inputs.mjs'))) as {
  hashInputs: (root: string) => string;
};

it('what was built is not built again', () => {
  const built = ['main.js', 'client/client.d.ts', 'dashboard/index.html'].map((name) => path.join(ROOT, 'dist', name));
  const changed = () => built.map((file) => fs.statSync(file).mtimeMs);
  const before = changed();
  expect(spawnSync(process.execPath, [path.join(ROOT, 'scripts/build.mjs')]).status).toBe(0);
  expect(changed()).toEqual(before);
});

it('another source, script, setting or library is another build; the time of a file is none', () => {
  const home = temporaryHome();
  onTestFinished(home.remove);
  const names = ['src/a/b.ts', 'scripts/build.mjs', 'tsconfig.build.json', 'node_modules/.package-lock.json'];
  const write = (name: string, text: string) => {
    fs.mkdirSync(path.dirname(path.join(home.path, name)), { recursive: true });
    fs.writeFileSync(path.join(home.path, name), text);
  };
  for (const name of names) write(name, 'one');
  const hashes = [hashInputs(home.path)];
  for (const name of names) {
    write(name, 'two');
    hashes.push(hashInputs(home.path));
  }
  fs.renameSync(path.join(home.path, 'src/a/b.ts'), path.join(home.path, 'src/a/c.ts'));
  hashes.push(hashInputs(home.path));
  expect(new Set(hashes).size).toBe(hashes.length);
  fs.utimesSync(path.join(home.path, 'src/a/c.ts'), 1, 1);
  expect(hashInputs(home.path)).toBe(hashes.at(-1));
});
