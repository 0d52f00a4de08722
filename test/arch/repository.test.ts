// The repository carries nothing of the machine it was written on, and installs the same everywhere.
import fs from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { projectTexts, ROOT, valueImports } from './source.ts';

const texts = projectTexts();

it('the walk finds the project', () => {
  expect(texts.map((file) => file.path)).toEqual(expect.arrayContaining(['package.json', 'README.md', 'src/main.ts']));
});

it('no file names a place of one machine', () => {
  // Put together here, so that this file does not name them either.
  const homes = `/(?:${['root', 'home/[a-z]\\w+', 'Users/\\w+'].join('|')})/(?!\\.)[\\w-]`;
  // The checkout itself, unless it stands so high that its path is a common word such as `/app`.
  const checkout = ROOT.split('/').length > 2 ? `|${ROOT.replaceAll('.', '\\.')}\\b` : '';
  const home = new RegExp(homes + checkout);
  const wrong = texts
    .filter((file) => !file.path.startsWith('test/provider/recorded/'))
    .flatMap((file) =>
      file.text
        .split('\n')
        .map((line, i) => ({ line, place: `${file.path}:${i + 1}` }))
        .filter(({ line }) => home.test(line.replaceAll(/https?:\/\/\S+/g, '')))
        .map(({ place }) => place),
    );
  expect(wrong).toEqual([]);
});

it('the lock file names no registry', () => {
  const lock = JSON.parse(fs.readFileSync(path.join(ROOT, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, { resolved?: string; integrity?: string }>;
  };
  const entries = Object.entries(lock.packages).filter(([name]) => name !== '');
  expect(entries.length).toBeGreaterThan(50);
  expect(entries.filter(([, entry]) => entry.resolved !== undefined).map(([name]) => name)).toEqual([]);
  const npmrc = fs.readFileSync(path.join(ROOT, '.npmrc'), 'utf8');
  expect(npmrc).not.toMatch(/registry\s*=|_auth|\/\//);
});

it('whether a dependency may run a script at installation is decided, so that none is left to a warning', () => {
  const json = (name: string) => JSON.parse(fs.readFileSync(path.join(ROOT, name), 'utf8'));
  const lock = json('package-lock.json') as { packages: Record<string, { hasInstallScript?: boolean; os?: unknown }> };
  const decided = json('package.json').allowScripts as Record<string, boolean>;
  const asking = Object.entries(lock.packages)
    // What is made for one system only, such as a watcher of files of another, is no part of every installation.
    .filter(([name, entry]) => name !== '' && entry.os === undefined)
    // npm builds what holds a binding.gyp unasked, though the lock file names no script of it.
    .filter(([name, entry]) => entry.hasInstallScript === true || fs.existsSync(path.join(ROOT, name, 'binding.gyp')))
    .map(([name]) => name.slice(name.lastIndexOf('node_modules/') + 'node_modules/'.length));
  expect(asking).toContain('better-sqlite3');
  expect([...new Set(asking)].filter((name) => !(name in decided))).toEqual([]);
});

it('what source imports at run time is named in package.json, and what the build does not bundle is installed with the package', async () => {
  const { dependencies, devDependencies } = JSON.parse(fs.readFileSync(path.join(ROOT, 'package.json'), 'utf8')) as {
    dependencies: Record<string, string>;
    devDependencies: Record<string, string>;
  };
  const { EXTERNAL } = (await import(path.join(ROOT, 'scripts/bundle-libraries.mjs'))) as { EXTERNAL: string[] };
  // The client is not bundled, and its types are those of the protocol.
  const isInstalled = (name: string, file: string) => EXTERNAL.includes(name) || file.startsWith('src/client/');
  const wrong = texts
    .filter((file) => /^src\/.*\.tsx?$/.test(file.path))
    .flatMap((file) => {
      return valueImports(file.text)
        .filter((name) => !/^[.#]/.test(name))
        .filter((name) => !name.startsWith('node:'))
        .map((name) => (name.startsWith('@') ? name.split('/').slice(0, 2) : name.split('/').slice(0, 1)).join('/'))
        .filter((name) => !(name in dependencies) && (isInstalled(name, file.path) || !(name in devDependencies)))
        .map((name) => `${file.path}: ${name}${name in devDependencies ? ' is a dev dependency' : ''}`);
    });
  expect([...new Set(wrong)]).toEqual([]);
  expect(Object.keys(dependencies).sort()).toEqual(['@vscode/ripgrep', 'better-sqlite3', 'ws', 'zod']);
});

it('no file names a package registry or a proxy', () => {
  const host = /https?:\/\/[^\s/'"`]*(?:registry|npmjs|artifact|nexus|proxy)[^\s/'"`]*/i;
  const wrong = texts.filter((file) => host.test(file.text));
  expect(wrong.map((file) => file.path)).toEqual([]);
});

it.each([
  ['migrations', 0],
  ['migrations/postgres', 1],
])('%s is numbered from %i without a gap: the number of files is the schema version', (folder, first) => {
  const names = fs.readdirSync(path.join(ROOT, folder)).filter((name) => name.endsWith('.sql'));
  const numbers = names.sort().map((name) => Number(name.slice(0, 4)));
  expect(numbers).toEqual(names.map((_, i) => i + first));
});
