// Compiles src/ to dist/ and makes the command executable. Incremental: a second run takes a fraction of the first.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';

const root = new URL('..', import.meta.url);
const tsc = new URL('node_modules/typescript/bin/tsc', root);
const done = spawnSync(process.execPath, [tsc.pathname, '-p', 'tsconfig.build.json'], { cwd: root, stdio: 'inherit' });
if (done.status !== 0) process.exit(done.status ?? 1);
fs.chmodSync(new URL('dist/main.js', root), 0o755);
