// Bundles src/ and its libraries into files of dist/: to find and read hundreds of them was a third of a start. What is loaded
// only when it is asked for is a file of its own. Libraries with native code stay where they are installed.
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { EXTERNAL, libraries, thinMap, writeComponents, writeLicenses } from './bundle-libraries.mjs';
import { makeScript } from './bundle-scripts.mjs';

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
  // What the commands load, and what is started by its path: the threads of the reports, of the tokenizer and of large bodies.
  entryPoints: [
    'src/server/command-line.ts',
    'src/store/sqlite/report/analytics-thread.ts',
    'src/models/threads/tokenizer-thread.ts',
    'src/models/threads/parser-thread.ts',
  ],
  platform: 'node',
  splitting: true,
  chunkNames: 'chunks/[name]-[hash]',
  outExtension: { '.js': '.cjs' },
  external: EXTERNAL,
  // Of a library in both formats the one that is required too: as a module it would be set up later than it is imported.
  conditions: [],
  plugins: [libraries],
});
/** The commands themselves, which load all else. */
const commands = await build({
  ...common,
  entryPoints: ['src/main.ts', 'src/server.ts'],
  platform: 'node',
  plugins: [
    {
      name: 'parts',
      setup({ onResolve }) {
        onResolve({ filter: /^\.\/main\.ts$/ }, () => ({ path: './main.js', external: true }));
        onResolve({ filter: /\/command-line\.ts$/ }, () => ({ path: './server/command-line.cjs', external: true }));
      },
    },
  ],
});
// For programs of others, in Node.js and in a browser: it shares nothing with the server.
const client = await build({
  ...common,
  entryPoints: ['src/client/client.ts'],
  platform: 'neutral',
  packages: 'external',
});

for (const name of Object.keys(server.metafile.outputs)) {
  if (name.endsWith('.map')) thinMap(path.join(root, name));
  else makeScript(path.join(root, name));
}
writeLicenses(server.metafile, path.join(root, 'dist/LICENSES.txt'));
writeComponents(server.metafile, path.join(root, 'dist/libraries.cdx.json'));

// What an earlier build left behind, and with it what was kept of it compiled.
const made = new Set([server, commands, client].flatMap(({ metafile }) => Object.keys(metafile.outputs)));
for (const name of fs.readdirSync(path.join(root, 'dist'), { recursive: true })) {
  const file = path.posix.join('dist', ...name.split(path.sep));
  if (made.has(file) || !/^dist\/(?!dashboard\/|\.cache\/).*\.c?js(?:\.map)?$/.test(file)) continue;
  fs.rmSync(path.join(root, file));
  fs.rmSync(path.join(root, 'dist/.cache'), { recursive: true, force: true });
}
