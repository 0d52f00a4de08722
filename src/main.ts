#!/usr/bin/env node
// The `metis` command: refuses a Node.js that cannot run it before anything else is loaded, then hands over.
import fs from 'node:fs';
import module from 'node:module';
import path from 'node:path';

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
  // Compiled code is kept beside what it was compiled from: who may write there may change the code itself, and it goes with
  // the package. Where nothing can be written nothing is kept.
  if (import.meta.filename.endsWith('.js')) module.enableCompileCache(path.join(import.meta.dirname, '.cache'));
  const { runCommandLine } = await import('./server/command-line.ts');
  await runCommandLine({ packageDir: path.resolve(import.meta.dirname, '..'), version });
}
