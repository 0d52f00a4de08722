// Bundles src/ and its libraries into files of dist/: to find and read hundreds of them was a third of a start. What is loaded
// only when it is asked for is a file of its own. Libraries with native code stay where they are installed.
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { EXTERNAL, libraries, thinMap, writeComponents, writeLicenses } from './bundle-libraries.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));

const common = {
  absWorkingDir: root,
  outbase: 'src',
  outdir: 'dist',
  bundle: true,
  format: 'esm',
  target: 'node22.14',
  // Without the source itself: they tell the log where in it an error comes from.
  sourcemap: true,
  sourcesContent: false,
  metafile: true,
  // A third of the size; names stay, so that a stack can be read without the maps.
  minifyWhitespace: true,
  logLevel: 'warning',
};

const server = await build({
  ...common,
  // The commands, and what is started by its path: the threads of the reports, of the tokenizer and of large bodies.
  entryPoints: [
    'src/main.ts',
    'src/server.ts',
    'src/store/sqlite/report/analytics-thread.ts',
    'src/models/threads/tokenizer-thread.ts',
    'src/models/threads/parser-thread.ts',
  ],
  platform: 'node',
  splitting: true,
  chunkNames: 'chunks/[name]-[hash]',
  external: EXTERNAL,
  plugins: [libraries],
  // For libraries that require modules of Node.js.
  banner: {
    js: "import { createRequire as $createRequire } from 'node:module';\nconst require = $createRequire(import.meta.url);",
  },
});
// For programs of others, in Node.js and in a browser: it shares nothing with the server.
const client = await build({
  ...common,
  entryPoints: ['src/client/client.ts'],
  platform: 'neutral',
  packages: 'external',
});

for (const name of Object.keys(server.metafile.outputs)) if (name.endsWith('.map')) thinMap(path.join(root, name));
writeLicenses(server.metafile, path.join(root, 'dist/LICENSES.txt'));
writeComponents(server.metafile, path.join(root, 'dist/libraries.cdx.json'));

// What an earlier build left behind, and with it what was kept of it compiled.
const made = new Set([server, client].flatMap(({ metafile }) => Object.keys(metafile.outputs)));
for (const name of fs.readdirSync(path.join(root, 'dist'), { recursive: true })) {
  const file = path.posix.join('dist', ...name.split(path.sep));
  if (made.has(file) || !/^dist\/(?!dashboard\/|\.cache\/).*\.js(?:\.map)?$/.test(file)) continue;
  fs.rmSync(path.join(root, file));
  fs.rmSync(path.join(root, 'dist/.cache'), { recursive: true, force: true });
}
