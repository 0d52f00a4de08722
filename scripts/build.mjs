// Checks the types of src/, bundles it and the dashboard into dist/, with types for the programs that import the client, and makes the commands executable. Incremental: a second run takes a fraction of the first.
// npm runs it at the end of `npm ci` too (`prepare`), so that the command of a checkout is always there.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';

const root = new URL('..', import.meta.url);
const tsc = new URL('node_modules/typescript/bin/tsc', root);
// Installed without the compiler (`--omit=dev`), beside what was built elsewhere.
if (process.env.npm_lifecycle_event === 'prepare' && !fs.existsSync(tsc)) process.exit(0);
for (const project of ['tsconfig.build.json', 'tsconfig.client.json']) {
  const done = spawnSync(process.execPath, [tsc.pathname, '-p', project], { cwd: root, stdio: 'inherit' });
  if (done.status !== 0) process.exit(done.status ?? 1);
}
await import('./build-server.mjs');
await import('./build-dashboard.mjs');
for (const command of ['main.js', 'server.js']) fs.chmodSync(new URL(`dist/${command}`, root), 0o755);
