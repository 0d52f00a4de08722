// Bundles src/dashboard/ into dist/dashboard/: one page, and assets whose names carry a hash of what they hold.
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { writeLicenses } from './bundle-libraries.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));
const source = path.join(root, 'src/dashboard');
const target = path.join(root, 'dist/dashboard');

const { metafile } = await build({
  entryPoints: {
    main: `${source}/main.tsx`,
    'markdown-worker': `${source}/markdown-worker.ts`,
    style: `${source}/style/all.css`,
    icon: `${source}/icon.svg`,
  },
  outdir: `${target}/assets`,
  entryNames: '[name]-[hash]',
  chunkNames: '[name]-[hash]',
  loader: { '.svg': 'copy' },
  bundle: true,
  // Views that are not open are not loaded.
  splitting: true,
  format: 'esm',
  target: ['chrome123', 'firefox120', 'safari17.5'],
  minify: true,
  jsx: 'automatic',
  jsxImportSource: 'preact',
  // The client asks for it in Node alone.
  external: ['ws'],
  legalComments: 'eof',
  metafile: true,
  absWorkingDir: root,
  logLevel: 'warning',
});

const made = Object.entries(metafile.outputs).map(([file, output]) => ({
  name: path.basename(file),
  entry: output.entryPoint ?? Object.keys(output.inputs)[0] ?? '',
}));
const assetOf = (entry) => {
  const found = made.find((asset) => asset.entry === `src/dashboard/${entry}`);
  if (found === undefined) throw new Error(`the bundler made nothing of ${entry}`);
  return `assets/${found.name}`;
};
const page = fs
  .readFileSync(`${source}/page.html`, 'utf8')
  .replace('%SCRIPT%', assetOf('main.tsx'))
  .replace('%MARKDOWN_WORKER%', assetOf('markdown-worker.ts'))
  .replace('%STYLE%', assetOf('style/all.css'))
  .replace('%ICON%', assetOf('icon.svg'));
fs.writeFileSync(`${target}/index.html`, page);
// What an earlier build left behind. A server that runs holds its own copy in memory.
const names = new Set(made.map(({ name }) => name));
for (const name of fs.readdirSync(`${target}/assets`)) {
  if (!names.has(name)) fs.rmSync(`${target}/assets/${name}`);
}

// The terms of every library in the bundle.
writeLicenses(metafile, `${target}/LICENSES.txt`);
