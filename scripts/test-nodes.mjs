// Runs the suite on each supported line of Node.js, fetched from the package registry into a temporary folder.
// `--short` runs what depends on the runtime most, native parts, sockets, processes, on the lines other than that of this process. `--only 22` one line alone, `--retry` gives a test that fails a second try.
import { spawn } from 'node:child_process';
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
const own = process.versions.node.split('.')[0];
const lines = values.only ? [values.only] : LINES.filter((line) => !values.short || line !== own);
const failed = [];
try {
  // Half of a short run is the start of processes and waiting for them: its lines run beside each other.
  if (values.short) await Promise.all(lines.map(runLine));
  else for (const line of lines) await runLine(line);
} finally {
  fs.rmSync(folder, { recursive: true, force: true });
}
console.log(failed.length === 0 ? '\nevery line passed' : `\nfailed on ${failed.join(', ')}`);
process.exitCode = failed.length === 0 ? 0 : 1;

/** Of lines beside each other, each prints once it has ended. */
async function runLine(line) {
  const printed = [];
  const print = values.short ? (text) => printed.push(text) : (text) => process.stdout.write(text);
  const name = `node-${process.platform}-${process.arch}`;
  const prefix = path.join(folder, line);
  fs.mkdirSync(prefix);
  await run('npm', ['install', '--silent', '--no-save', '--prefix', prefix, `${name}@${line}`], {}, print);
  const bin = path.join(prefix, 'node_modules', name, 'bin');
  const node = path.join(bin, 'node');
  print(`\nNode.js of line ${line}: `);
  await run(node, ['--version'], {}, print);
  const vitest = path.join(root, 'node_modules/vitest/vitest.mjs');
  const args = [vitest, 'run', ...(values.retry ? ['--retry=1'] : []), ...(values.short ? SHORT : [])];
  const env = { PATH: `${bin}${path.delimiter}${process.env.PATH}` };
  if (!(await run(node, args, env, print))) failed.push(line);
  process.stdout.write(printed.join(''));
}

/** @returns whether the command ended well */
function run(command, args, env, print) {
  return new Promise((resolve) => {
    const stdio = ['ignore', 'pipe', 'pipe'];
    const child = spawn(command, args, { cwd: root, env: { ...process.env, ...env }, stdio });
    for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', print);
    child.once('error', (error) => {
      print(`${error.message}\n`);
      resolve(false);
    });
    child.once('close', (code) => resolve(code === 0));
  });
}
