// An old Node.js is told so; it never gets as far as a native part, which would end it without a word.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { MAIN, ROOT, temporaryHome } from './metis.ts';

const { engines, devDependencies, dependencies, allowScripts } = JSON.parse(
  fs.readFileSync(path.join(ROOT, 'package.json'), 'utf8'),
);

/** Runs `metis serve` where Node says that it is `version`, and every native part or dependency ends the process with 99. */
function metisOn(version: string) {
  const preload = `
    Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '${version}' } });
    process.dlopen = () => process.exit(99);`;
  return spawnSync(
    process.execPath,
    ['--import', `data:text/javascript,${encodeURIComponent(preload)}`, MAIN, 'serve', '--port', '0'],
    { encoding: 'utf8', env: { PATH: process.env.PATH, HOME: home.path }, timeout: 15_000 },
  );
}
const home = temporaryHome();
afterAll(() => home.remove());

it.each(['18.20.8', '20.20.2', '22.13.1'])(
  'Node.js %s is refused in one sentence before a native part is loaded',
  (version) => {
    const { status, stderr, stdout } = metisOn(version);
    expect(stderr).toBe(`metis: Node.js 22.14 or newer is needed, this is ${version}: install a current one.\n`);
    expect(stdout).toBe('');
    expect(status).toBe(1);
  },
);

it('the oldest supported line goes on to the database', () => {
  expect(engines.node).toBe('>=22.14.0');
  expect(metisOn('22.14.0').status).toBe(99);
});

it('only a checkout brings a Node.js of its own', () => {
  expect(devDependencies.node).toMatch(/^\^24\./);
  expect(dependencies.node).toBeUndefined();
  expect(allowScripts.node).toBe(true);
});
