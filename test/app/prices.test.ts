// Where prices come from: an import tool that a developer runs, and which no server needs (08 §10).
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { address, getJson, ROOT, start, temporaryHome } from './metis.ts';

const COLLECTION = '@pydantic/genai-prices';

let home: ReturnType<typeof temporaryHome>;
beforeEach(() => {
  home = temporaryHome();
});
afterEach(() => home.remove());

/** A module loaded before everything else. */
const preload = (source: string) => `--import=data:text/javascript,${encodeURIComponent(source)}`;

// Promise 08.20: the server starts where the collection is not installed.
it('the server starts and prices its models where the price collection is not installed', async () => {
  const hooks = `export async function resolve(specifier, context, next) {
    if (specifier.startsWith('@pydantic/')) throw new Error('not installed: ' + specifier);
    return next(specifier, context);
  }`;
  const register = `import { register } from 'node:module'; register('data:text/javascript,' + ${JSON.stringify(encodeURIComponent(hooks))});`;
  const env = { NODE_OPTIONS: preload(register) };
  // The hook does its work: the collection itself cannot be loaded under it.
  const load = ['--input-type=module', '-e', `await import('${COLLECTION}')`];
  expect(() => execFileSync(process.execPath, load, { cwd: ROOT, env, stdio: 'pipe' })).toThrow(/not installed/);

  const server = start(['serve', '--port', '0'], { home: home.path, env });
  const { table } = await getJson(`${await address(server)}/pricing`);
  expect(Object.keys(table.models).length).toBeGreaterThan(10);
  expect((await server.stop()).code).toBe(0);
});

// Promise 08.20: the import tool gives the same file twice, without a network.
it('gen:prices makes the same file twice without a network, and writes nothing when nothing changed', () => {
  const copy = path.join(home.path, 'checkout');
  fs.mkdirSync(path.join(copy, 'config'), { recursive: true });
  fs.cpSync(path.join(ROOT, 'scripts'), path.join(copy, 'scripts'), { recursive: true });
  // It holds what `#core/…` means.
  fs.cpSync(path.join(ROOT, 'package.json'), path.join(copy, 'package.json'));
  fs.cpSync(path.join(ROOT, 'config/registry.yaml'), path.join(copy, 'config/registry.yaml'));
  for (const name of ['node_modules', 'src']) fs.symlinkSync(path.join(ROOT, name), path.join(copy, name));
  const target = path.join(copy, 'config/prices.json');
  const closed = `import net from 'node:net';
    net.Socket.prototype.connect = () => { throw new Error('a price import opens no connection'); };`;
  const run = () =>
    execFileSync(process.execPath, [preload(closed), path.join(copy, 'scripts/gen-prices.mjs')], {
      cwd: copy,
      env: { PATH: process.env.PATH },
      encoding: 'utf8',
      stdio: 'pipe',
    });
  expect(run()).toMatch(/^config\/prices\.json: \d+ models, version \d{4}-\d\d-\d\d-[0-9a-f]{8}$/m);
  const first = fs.readFileSync(target, 'utf8');
  const { mtimeNs } = fs.statSync(target, { bigint: true });
  expect(run()).toContain('is up to date');
  expect(fs.statSync(target, { bigint: true }).mtimeNs).toBe(mtimeNs);
  fs.rmSync(target);
  run();
  const again = fs.readFileSync(target, 'utf8');
  // Only the day may have changed in between.
  const day = /"(pricing_version|imported_on)": "\d{4}-\d\d-\d\d/g;
  expect(again.replaceAll(day, '')).toBe(first.replaceAll(day, ''));
  const { scripts } = JSON.parse(fs.readFileSync(path.join(ROOT, 'package.json'), 'utf8'));
  expect(scripts['gen:prices']).toContain('scripts/gen-prices.mjs');
});
