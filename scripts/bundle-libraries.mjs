// Bundling of libraries into the server, and what that requires: their licences and a list of them for audits.
import fs from 'node:fs';
import { isBuiltin } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));

/** Libraries with native code. Those from the third on are optional for a library, and absent. */
export const EXTERNAL = [
  'better-sqlite3',
  '@vscode/ripgrep',
  'bufferutil',
  'utf-8-validate',
  'pg-native',
  'cloudflare:sockets',
];

/** Of undici only what the server calls: the whole library is 110 files, these need 40. */
const UNDICI = {
  Agent: 'lib/dispatcher/agent.js',
  EnvHttpProxyAgent: 'lib/dispatcher/env-http-proxy-agent.js',
  Pool: 'lib/dispatcher/pool.js',
  buildConnector: 'lib/core/connect.js',
};
/** The library adds the methods of a dispatcher that are not its own when all of it is loaded. */
const ADD_REQUEST = `
import Dispatcher from './node_modules/undici/lib/dispatcher/dispatcher.js';
import request from './node_modules/undici/lib/api/api-request.js';
Dispatcher.prototype.request = request;`;

/** Of the module itself, not of what it exports. */
const MARKS = ['__esModule', 'module.exports'];

/** Of a library, whose own map names files that are not in its package. */
const OWN_MAP = /^\/\/# sourceMappingURL=.*$/gm;

const LAZY = 'library at its first use';
const LEFT_OUT = 'left out';

/** HTTP/2, which fastify and undici load for options that we never set. undici looks up names in it at its start. */
const UNUSED = /^node:http2$/;
const NOTHING = 'module.exports = { constants: {} };';

/**
 * A library in the old format has no named exports for the bundler when it is imported at its first use; Node.js finds
 * them in its text. This states them.
 */
export const libraries = {
  name: 'libraries',
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^[^.#/]/ }, ({ path: name, kind }) => {
      if (kind !== 'dynamic-import' || isBuiltin(name) || EXTERNAL.includes(name)) return undefined;
      return { path: name, namespace: LAZY };
    });
    onResolve({ filter: UNUSED }, ({ path: name }) => ({ path: name, namespace: LEFT_OUT }));
    onLoad({ filter: /.*/, namespace: LEFT_OUT }, () => ({ contents: NOTHING }));
    onLoad({ filter: /.*/, namespace: LAZY }, async ({ path: name }) => ({
      contents: name === 'undici' ? exportParts(name, UNDICI) + ADD_REQUEST : await exportNames(name),
      resolveDir: root,
    }));
    onLoad({ filter: /\/node_modules\/.*\.[cm]?js$/ }, ({ path: file }) => ({
      contents: withLineMap(fs.readFileSync(file, 'utf8').replaceAll(OWN_MAP, '')),
      loader: 'js',
    }));
    // In the bundle `require` is the bundler's: it includes what is required, and runs it at its first use.
    onLoad({ filter: /\/src\/tools\/schema-compiler\.ts$/ }, ({ path: file }) => ({
      contents: fs.readFileSync(file, 'utf8').replace(/^const require = createRequire\(.*$/m, ''),
      loader: 'ts',
    }));
  },
};

/** The text of a library with a map of its lines; with columns the maps would be three times as large. */
function withLineMap(text) {
  const [, ...lines] = text.split('\n');
  const map = JSON.stringify({ version: 3, sources: [''], mappings: `AAAA${';AACA'.repeat(lines.length)}` });
  return `${text}\n//# sourceMappingURL=data:application/json;base64,${Buffer.from(map).toString('base64')}`;
}

const DIGITS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
/** A place that is mapped to the same line and column as the one before it. */
const REPEATED = /^[g-z0-9+/]*[A-Za-f]AAA$/;

/** Removes from a map the places that repeat the one before them, as all but the first of a library's line do. */
export function thinMap(file) {
  const map = JSON.parse(fs.readFileSync(file, 'utf8'));
  map.mappings = map.mappings.split(';').map(thinLine).join(';');
  fs.writeFileSync(file, JSON.stringify(map));
}

/** A place states its column as the distance to the place before it, so the next one that stays is further away. */
function thinLine(line) {
  let skipped = 0;
  const kept = line.split(',').flatMap((place, i) => {
    if (i > 0 && REPEATED.test(place)) {
      skipped += readDigits(place).value;
      return [];
    }
    if (skipped === 0) return [place];
    const { value, length } = readDigits(place);
    const moved = writeDigits(value + skipped) + place.slice(length);
    skipped = 0;
    return [moved];
  });
  return kept.join(',');
}

/** The first number of a place, none of which is negative: five bits a digit, the lowest first, the sixth bit if more follow. */
function readDigits(text) {
  let value = 0;
  let length = 0;
  for (let more = true; more; length += 1) {
    const digit = DIGITS.indexOf(text[length]);
    value += (digit & 31) * 32 ** length;
    more = digit > 31;
  }
  // The lowest bit is the sign.
  return { value: value / 2, length };
}

function writeDigits(value) {
  let text = '';
  for (let rest = value * 2; ; rest = Math.floor(rest / 32)) {
    if (rest < 32) return text + DIGITS[rest];
    text += DIGITS[(rest % 32) + 32];
  }
}

function exportParts(name, parts) {
  const exported = Object.entries(parts).map(
    ([part, file]) => `export { default as ${part} } from './node_modules/${name}/${file}';`,
  );
  return exported.join('\n');
}

/** Every exported name of a library. */
async function exportNames(name) {
  const names = Object.keys(await import(name)).filter((key) => !MARKS.includes(key));
  return `export { ${names.join(', ')} } from '${name}';`;
}

/**
 * Writes the terms of every library in a bundle: its licence and notice, or what its package.json says where it holds neither.
 * @param metafile what the bundler reports
 */
export function writeLicenses(metafile, file) {
  const namesByTerms = new Map();
  for (const library of listLibraries(metafile)) {
    const terms = readTerms(library);
    namesByTerms.set(terms, [...(namesByTerms.get(terms) ?? []), `${library.name} ${library.version}`]);
  }
  const texts = [...namesByTerms].map(([terms, names]) => `${names.join('\n')}\n\n${terms}\n`);
  fs.writeFileSync(file, texts.join(`\n${'-'.repeat(78)}\n`));
}

function readTerms({ name, license, author, folder }) {
  const files = fs.readdirSync(folder).filter((entry) => /^(?:licen[cs]e|copying|notice)/i.test(entry));
  if (files.length > 0)
    return files.map((entry) => fs.readFileSync(path.join(folder, entry), 'utf8').trim()).join('\n\n');
  if (license === undefined) throw new Error(`${name} is bundled and names no licence`);
  return [license, author?.name ?? author ?? []].flat().join(', ');
}

/** Writes the list of the libraries in a bundle in CycloneDX, so that a scanner compares them with known vulnerabilities. */
export function writeComponents(metafile, file) {
  const components = listLibraries(metafile).map(({ name, version, license }) => {
    const [scope, base] = name.startsWith('@') ? name.split('/') : ['', name];
    const purl = `pkg:npm/${scope === '' ? '' : `${encodeURIComponent(scope)}/`}${base}@${version}`;
    return {
      type: 'library',
      'bom-ref': purl,
      ...(scope !== '' && { group: scope }),
      name: base,
      version,
      purl,
      licenses: [{ expression: license }],
    };
  });
  fs.writeFileSync(
    file,
    `${JSON.stringify({ bomFormat: 'CycloneDX', specVersion: '1.6', version: 1, components }, null, 1)}\n`,
  );
}

function listLibraries(metafile) {
  const found = Object.keys(metafile.inputs).flatMap(
    (file) => /^(?:.*\/)?node_modules\/(?:@[^/]+\/)?[^/]+/.exec(file)?.[0] ?? [],
  );
  return [...new Set(found)].sort().map((place) => {
    const folder = path.join(root, place);
    const { name, version, license, author } = JSON.parse(fs.readFileSync(path.join(folder, 'package.json'), 'utf8'));
    return { name, version, license, author, folder };
  });
}
