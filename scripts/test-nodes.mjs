// Runs the suite on each supported line of Node.js, fetched from the package registry into a temporary folder.
// `--short` runs what depends on the runtime most, native parts, sockets, processes, on the lines other than that of this process. `--only 22` one line alone, `--retry` gives a test that fails a second try.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';

const LINES = ['22', '24', '26'];
const SHORT = ['test/store', 'test/app/client.test.ts', 'test/crash/kill.test.ts', 'test/api/stream.test.ts'];

const { values } = parseArgs({
  options: { short: { type: 'boolean' }, only: { type: 'string' }, retry: { type: 'boolean' } },
});
const root = path.resolve(import.meta.dirname, '..');
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'metis-nodes-'));
const failed = [];
try {
  const own = process.versions.node.split('.')[0];
  const lines = LINES.filter((line) => !values.short || line !== own);
  for (const line of values.only ? [values.only] : lines) {
    const name = `node-${process.platform}-${process.arch}`;
    const prefix = path.join(folder, line);
    fs.mkdirSync(prefix);
    run('npm', ['install', '--silent', '--no-save', '--prefix', prefix, `${name}@${line}`], process.env);
    const bin = path.join(prefix, 'node_modules', name, 'bin');
    const node = path.join(bin, 'node');
    const version = spawnSync(node, ['--version'], { encoding: 'utf8' }).stdout.trim();
    console.log(`\nNode.js ${version}`);
    const vitest = path.join(root, 'node_modules/vitest/vitest.mjs');
    const env = { ...process.env, PATH: `${bin}${path.delimiter}${process.env.PATH}` };
    const args = [vitest, 'run', ...(values.retry ? ['--retry=1'] : []), ...(values.short ? SHORT : [])];
    if (!run(node, args, env)) failed.push(version);
  }
} finally {
  fs.rmSync(folder, { recursive: true, force: true });
}
console.log(failed.length === 0 ? '\nevery line passed' : `\nfailed on ${failed.join(', ')}`);
process.exitCode = failed.length === 0 ? 0 : 1;

/** @returns whether the command ended well */
function run(command, args, env) {
  return spawnSync(command, args, { cwd: root, env, stdio: 'inherit' }).status === 0;
}
