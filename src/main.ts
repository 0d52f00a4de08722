#!/usr/bin/env node
// The `metis` command: refuses a Node.js that cannot run it before anything else is loaded, then hands over.
import fs from 'node:fs';
import path from 'node:path';
import v8 from 'node:v8';
import { loadBuilt } from './server/built-scripts.ts';

/**
 * By how much the old heap of `metis serve` may grow before it is collected. A turn outlives the young heap, and under many
 * of them V8 would let their garbage grow to three times of what lives: 1,000 paced sessions held 529 MiB, and 342 with
 * this. What is kept of compiled code holds for the flags that it was compiled with, so they come first.
 */
const HEAP_GROWTH = '--heap-growing-percent=50';

// As source in `src/`, built in `dist/`: the package is the folder above.
const { version, engines } = JSON.parse(fs.readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as {
  version: string;
  engines: { node: string };
};
const [major = 0, minor = 0] = engines.node.replace('>=', '').split('.').map(Number);
const [ownMajor = 0, ownMinor = 0] = process.versions.node.split('.').map(Number);
if (ownMajor < major || (ownMajor === major && ownMinor < minor)) {
  process.stderr.write(
    `metis: Node.js ${major}.${minor} or newer is needed, this is ${process.versions.node}: install a current one.\n`,
  );
  process.exitCode = 1;
} else {
  const isServing = process.argv[2] === 'serve';
  if (isServing) v8.setFlagsFromString(HEAP_GROWTH);
  const { runCommandLine } = await loadCommandLine(isServing);
  await runCommandLine({ packageDir: path.resolve(import.meta.dirname, '..'), version });
}

type CommandLine = typeof import('./server/command-line.ts');

/** Of what all commands share, each command runs other functions, and `metis serve` the most. */
function loadCommandLine(isServing: boolean): CommandLine | Promise<CommandLine> {
  if (import.meta.filename.endsWith('.ts')) return import('./server/command-line.ts');
  const { NODE_DISABLE_COMPILE_CACHE, NODE_COMPILE_CACHE } = process.env;
  // Beside what it was compiled from: who may write there may change the code itself, and it goes with the package.
  const folder = NODE_COMPILE_CACHE || path.join(import.meta.dirname, '.cache');
  const name = `metis-${process.version}-${process.arch}-${isServing ? 'serve' : 'commands'}`;
  const cacheFolder = NODE_DISABLE_COMPILE_CACHE === '1' ? null : path.join(folder, name);
  return loadBuilt(import.meta.dirname, 'server/command-line.cjs', cacheFolder) as CommandLine;
}
