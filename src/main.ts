#!/usr/bin/env node
// The `metis` command: refuses a Node.js that cannot run it before anything else is loaded, then hands over.
import fs from 'node:fs';

const { engines } = JSON.parse(fs.readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as {
  engines: { node: string };
};
const [major = 0, minor = 0] = engines.node.replace('>=', '').split('.').map(Number);
const [ownMajor = 0, ownMinor = 0] = process.versions.node.split('.').map(Number);
if (ownMajor < major || (ownMajor === major && ownMinor < minor)) {
  process.stderr.write(
    `metis: Node.js ${major}.${minor} or newer is needed, this is ${process.versions.node}: install a current one.\n`,
  );
  process.exitCode = 1;
} else await import('./app/command-line.ts');
