// Bundles src/dashboard/ into dist/dashboard/: one page, and assets whose names carry a hash of what they hold.
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

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

// Everybody whose work is in the bundle, with the terms they give it under.
const packages = new Set(
  Object.keys(metafile.inputs).flatMap((file) => /^node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(file)?.[1] ?? []),
);
const licenses = [...packages].sort().map((name) => {
  const folder = path.join(root, 'node_modules', name);
  const file = fs.readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
  if (file === undefined) throw new Error(`${name} is bundled and carries no licence`);
  return `${name}\n\n${fs.readFileSync(path.join(folder, file), 'utf8').trim()}\n`;
});
fs.writeFileSync(`${target}/LICENSES.txt`, licenses.join(`\n${'-'.repeat(78)}\n`));
