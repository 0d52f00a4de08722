// Preloaded into a server: counts what its main thread does. On SIGUSR2 it writes the counts since the signal before
// to the file named in STEP_PROBE.
//
// A continuation is an `await`, a `then` or a `finally`. STEP_PROBE_PLACES=1 also counts the lines that make promises.
import fs from 'node:fs';
import { createRequire, registerHooks } from 'node:module';
import net from 'node:net';
import { promiseHooks } from 'node:v8';
import { isMainThread } from 'node:worker_threads';

const KINDS = [
  'promises',
  'continuations',
  'jobs',
  'ticks',
  'parses',
  'parsed',
  'stringifies',
  'stringified',
  'validations',
  'statements',
  'commits',
  'encodes',
  'decodes',
  'copies',
  'writes',
];
const counts = Object.fromEntries(KINDS.map((kind) => [kind, 0]));
const places = new Map();
const withPlaces = process.env.STEP_PROBE_PLACES === '1';

if (isMainThread) {
  countPromises();
  countJson();
  countBytes();
  countStatements();
  countValidations();
  process.on('SIGUSR2', report);
}

function report() {
  const file = process.env.STEP_PROBE;
  const found = { ...counts, places: [...places].sort(([, a], [, b]) => b - a) };
  for (const kind of KINDS) counts[kind] = 0;
  places.clear();
  fs.writeFileSync(`${file}.part`, JSON.stringify(found));
  fs.renameSync(`${file}.part`, file);
}

/** Replaces a function by one that counts it first. */
function count(owner, name, add) {
  const original = owner[name];
  owner[name] = function counted(...args) {
    add(args);
    return original.apply(this, args);
  };
}

function countPromises() {
  promiseHooks.onInit((_promise, parent) => {
    const kind = parent === undefined ? 'promises' : 'continuations';
    counts[kind] += 1;
    if (withPlaces) place(kind);
  });
  promiseHooks.onBefore(() => {
    counts.jobs += 1;
  });
  count(process, 'nextTick', () => {
    counts.ticks += 1;
  });
}

function place(kind) {
  const stack = new Error('place').stack.split('\n').slice(2);
  const found = stack.find((line) => !line.includes('node:') && !line.includes('step-probe')) ?? stack[0] ?? 'nowhere';
  const key = `${kind} ${found.trim()}`;
  places.set(key, (places.get(key) ?? 0) + 1);
}

function countJson() {
  count(JSON, 'parse', ([text]) => {
    counts.parses += 1;
    counts.parsed += text?.length ?? 0;
  });
  const { stringify } = JSON;
  JSON.stringify = function counted(...args) {
    const text = stringify.apply(this, args);
    counts.stringifies += 1;
    counts.stringified += text?.length ?? 0;
    return text;
  };
}

function countBytes() {
  const encoded = () => {
    counts.encodes += 1;
  };
  const decoded = () => {
    counts.decodes += 1;
  };
  const copied = () => {
    counts.copies += 1;
  };
  count(Buffer, 'from', ([value]) => (typeof value === 'string' ? encoded() : copied()));
  for (const name of ['write', 'utf8Write', 'latin1Write']) count(Buffer.prototype, name, encoded);
  count(TextEncoder.prototype, 'encode', encoded);
  for (const name of ['toString', 'utf8Slice', 'latin1Slice']) count(Buffer.prototype, name, decoded);
  count(TextDecoder.prototype, 'decode', decoded);
  count(Buffer, 'concat', copied);
  count(Buffer.prototype, 'copy', copied);
  count(globalThis, 'structuredClone', copied);
  for (const name of ['_write', '_writev']) {
    count(net.Socket.prototype, name, () => {
      counts.writes += 1;
    });
  }
}

function countStatements() {
  const Database = createRequire(import.meta.url)('better-sqlite3');
  const db = new Database(':memory:');
  const statement = Object.getPrototypeOf(db.prepare('SELECT 1'));
  for (const name of ['run', 'get', 'all', 'iterate']) {
    const original = statement[name];
    statement[name] = function counted(...args) {
      counts.statements += 1;
      if (this.source === 'COMMIT') counts.commits += 1;
      return original.apply(this, args);
    };
  }
  count(Object.getPrototypeOf(db), 'exec', () => {
    counts.statements += 1;
  });
  db.close();
}

/** The functions of zod are bound to each schema as it is made, so its source is changed as it is loaded. */
function countValidations() {
  globalThis.countedValidation = () => {
    counts.validations += 1;
    return true;
  };
  registerHooks({
    load(url, context, next) {
      const loaded = next(url, context);
      if (!url.endsWith('/zod/v4/core/parse.js')) return loaded;
      const source = String(loaded.source).replaceAll('schema._zod.run({', 'schema._zod.run(countedValidation() && {');
      return { ...loaded, source };
    },
  });
}
