// Runs the scripts of the built package from what V8 compiled of them before, the functions that ran included. What Node.js
// itself keeps of a module is made before the module runs: each start compiled 2,700 functions anew.
import fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import vm from 'node:vm';
// As a whole: an older Node.js, which has no `crc32`, is to load it and say what is wrong.
import zlib from 'node:zlib';
import { removeDraft, removeLeftDrafts } from './drafts.ts';

type Require = (name: string) => unknown;
/** What a CommonJS script is given: exports, require, module, __filename, __dirname. */
type Run = (...given: readonly [object, Require, { readonly exports: object }, string, string]) => void;

/** A script that was compiled anew, and where it is to be kept. */
interface Compiled {
  readonly script: vm.Script;
  readonly source: number;
  readonly file: string;
}

/** In front of what is kept: the sums of the source and of what follows. V8 itself looks at the length of the source alone. */
const SUMS_BYTES = 8;
/** By then a server has started. Later V8 lets go of the functions that only the start ran. */
const WRITE_AFTER_MS = 30_000;

/**
 * Loads `entry` and what it requires. What was compiled anew is kept half a minute later and when the process ends.
 * @param folder of the built package, absolute
 * @param entry relative to `folder`
 * @param cacheFolder a folder that only who may write the scripts may write; null = nothing is kept
 */
export function loadBuilt(folder: string, entry: string, cacheFolder: string | null): unknown {
  const outside = createRequire(path.join(folder, entry));
  const loaded = new Map<string, { exports: object }>();
  const compiled: Compiled[] = [];
  let hasSwept = false;

  function loadScript(file: string): object {
    const known = loaded.get(file);
    if (known !== undefined) return known.exports;
    const module = { exports: {} };
    loaded.set(file, module);
    const parent = path.dirname(file);
    const require: Require = (name) => (name.startsWith('.') ? loadScript(path.join(parent, name)) : outside(name));
    compileScript(file)(module.exports, require, module, file, parent);
    return module.exports;
  }

  function compileScript(file: string): Run {
    const bytes = fs.readFileSync(file);
    const source = zlib.crc32(bytes);
    const kept = cacheFolder === null ? null : path.join(cacheFolder, path.basename(file));
    const data = kept === null ? null : readCachedCode(kept, file, source);
    const script = new vm.Script(
      `(function(exports,require,module,__filename,__dirname){${bytes.toString('latin1')}\n})`,
      {
        filename: pathToFileURL(file).href,
        importModuleDynamically: vm.constants.USE_MAIN_CONTEXT_DEFAULT_LOADER,
        ...(data !== null && { cachedData: data }),
      },
    );
    if (kept !== null && script.cachedDataRejected !== false) compiled.push({ script, source, file: kept });
    return script.runInThisContext() as Run;
  }

  function write(count: number): void {
    if (cacheFolder === null || compiled.length === 0) return;
    if (!hasSwept) sweepDrafts(cacheFolder);
    hasSwept = true;
    writeCachedCode(compiled.splice(0, count));
  }

  /** One after the other: all of a server's together take 65 ms. */
  function writeNext(): void {
    write(1);
    if (compiled.length > 0) setImmediate(writeNext).unref();
  }

  setTimeout(writeNext, WRITE_AFTER_MS).unref();
  process.on('exit', () => write(compiled.length));
  return loadScript(path.join(folder, entry));
}

const DRAFT = /\.cjs\.(\d+)$/;

function sweepDrafts(folder: string): void {
  try {
    removeLeftDrafts(folder, DRAFT);
  } catch {
    // There is none yet, or it is of another user.
  }
}

/** More than any script's compiled code. */
const MOST_BYTES = 64 * 1024 * 1024;
/** What is kept is a file: neither a link that leads elsewhere nor a pipe without a writer. */
const OPEN_FILE = fs.constants.O_RDONLY | fs.constants.O_NOFOLLOW | fs.constants.O_NONBLOCK;

/**
 * Null where there is nothing, of another source, in part, or of a user who may change neither this process nor the script.
 * @param script whose compiled code it is
 */
function readCachedCode(file: string, script: string, source: number): Buffer | null {
  let opened: number | null = null;
  try {
    opened = fs.openSync(file, OPEN_FILE);
    const stats = fs.fstatSync(opened);
    const isTrusted = stats.uid === process.getuid?.() || stats.uid === fs.statSync(script).uid;
    if (!stats.isFile() || stats.size > MOST_BYTES || !isTrusted) return null;
    const bytes = fs.readFileSync(opened);
    const data = bytes.subarray(SUMS_BYTES);
    if (bytes.readUInt32LE(0) === source && bytes.readUInt32LE(4) === zlib.crc32(data)) return data;
  } catch {
    // The first start, or a folder of another user.
  } finally {
    if (opened !== null) fs.closeSync(opened);
  }
  return null;
}

/** Where nothing can be written nothing is kept. */
function writeCachedCode(compiled: readonly Compiled[]): void {
  for (const { script, source, file } of compiled) {
    const draft = `${file}.${process.pid}`;
    try {
      const data = script.createCachedData();
      const sums = Buffer.alloc(SUMS_BYTES);
      sums.writeUInt32LE(source, 0);
      sums.writeUInt32LE(zlib.crc32(data), 4);
      fs.mkdirSync(path.dirname(file), { recursive: true });
      fs.rmSync(draft, { force: true });
      // Another process may read it: it is there whole or not at all.
      fs.writeFileSync(draft, Buffer.concat([sums, data]), { flag: 'wx' });
      fs.renameSync(draft, file);
    } catch {
      // A read-only container, a full disk, something else in its place.
      removeDraft(draft);
    }
  }
}
