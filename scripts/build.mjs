// Checks the types of src/, bundles it and the dashboard into dist/, with types for the programs that import the client, and makes the commands executable. Incremental: a second run takes a fraction of the first, and one of what was built already does nothing.
// npm runs it at the end of `npm ci` too (`prepare`), so that the command of a checkout is always there.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { hashInputs } from './build-inputs.mjs';

const root = new URL('..', import.meta.url);
const tsc = new URL('node_modules/typescript/bin/tsc', root);
// Installed without the compiler (`--omit=dev`), beside what was built elsewhere.
if (process.env.npm_lifecycle_event === 'prepare' && !fs.existsSync(tsc)) process.exit(0);
if (process.env.npm_lifecycle_event === 'prepare') {
  const own = /node\/v(\S+)/.exec(process.env.npm_config_user_agent ?? '')?.[1] ?? '';
  const other = own === '' || own === process.versions.node ? '' : `, in place of your ${own}`;
  console.log(`Building Metis. npm runs its commands here on Node.js ${process.versions.node}${other}.`);
}
/** Beside what the compiler remembers; neither is packed. */
const stamp = new URL('dist/.tsbuildinfo-inputs', root);
const inputs = hashInputs(new URL('.', root).pathname);
const isBuilt = (name) => fs.existsSync(new URL(`dist/${name}`, root));
if (['main.js', 'server.js', 'client/client.js', 'dashboard/index.html', '.tsbuildinfo-inputs'].every(isBuilt))
  if (fs.readFileSync(stamp, 'utf8') === inputs) process.exit(0);
fs.rmSync(stamp, { force: true });
for (const project of ['tsconfig.build.json', 'tsconfig.client.json']) {
  const done = spawnSync(process.execPath, [tsc.pathname, '-p', project], { cwd: root, stdio: 'inherit' });
  if (done.status !== 0) process.exit(done.status ?? 1);
}
writeRelativeImports(new URL('dist', root).pathname);
await import('./build-server.mjs');
await import('./build-dashboard.mjs');
for (const command of ['main.js', 'server.js']) fs.chmodSync(new URL(`dist/${command}`, root), 0o755);
fs.writeFileSync(stamp, inputs);

/** Rewrites `#protocol/…` of the emitted types to relative paths: `#` resolves to `src/`, which the package does not hold. */
function writeRelativeImports(folder) {
  for (const name of fs.readdirSync(folder, { recursive: true })) {
    if (!name.endsWith('.d.ts')) continue;
    const file = path.join(folder, name);
    const text = fs.readFileSync(file, 'utf8');
    const relative = (target) => {
      const found = path.relative(path.dirname(file), path.join(folder, target)).replaceAll(path.sep, '/');
      return found.startsWith('.') ? found : `./${found}`;
    };
    const rewritten = text.replaceAll(
      /(['"])#([^'"]+)\1/g,
      (_, quote, target) => `${quote}${relative(target)}${quote}`,
    );
    if (rewritten !== text) fs.writeFileSync(file, rewritten);
  }
}
