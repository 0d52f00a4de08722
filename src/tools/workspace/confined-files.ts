// Confinement: which paths a tool may touch, and the file API that keeps it to them (09 §8).
import { createHash } from 'node:crypto';
import { lstat, realpath } from 'node:fs/promises';
import {
  type ConfinedPath,
  type DirectoryEntry,
  PathEscape,
  type PathUse,
  type WorkspaceFiles,
} from '#core/ports/workspace.ts';
import { ToolError } from '#protocol/tool.ts';
import {
  errorCode,
  folderPrefix,
  isMissing,
  listDirectory,
  NotRegular,
  openRegular,
  replaceFile,
  runExclusive,
  SwappedPath,
} from './descriptors.ts';

const MAX_PATH_BYTES = 4096;
const MAX_READ_BYTES = 64 * 1024 * 1024;
const CHUNK_BYTES = 64 * 1024;
const METIS = '.metis';
/** Lists programs that the server may start. */
const MCP_FILE = '.mcp.json';
/** Longer names cannot be spellings of a protected name. */
const MAX_SPELLING = 64;

/**
 * @param root real path of an existing directory
 * @param dataFolder real path of the server's own, whose files no model may see; null = none to hide
 */
export function createWorkspaceFiles(root: string, dataFolder: string | null = null): WorkspaceFiles {
  // A workspace inside of the data folder is not hidden.
  const hidden = dataFolder !== null && root.startsWith(`${dataFolder}/`) ? null : dataFolder;
  const isOutsideData = (absolute: string) =>
    hidden === null || (absolute !== hidden && !absolute.startsWith(`${hidden}/`));
  const isVisible = (relative: string) => isReadable(relative) && isOutsideData(joinRoot(root, relative));
  return {
    root,
    roots: [{ prefix: '', absolute: root }],
    binary_hint: '',
    async resolve(given, use) {
      const path = await confine(root, given, use);
      if (isOutsideData(path.absolute)) return path;
      throw new ToolError('permission_denied', `Path '${formatPath(given)}' is protected`);
    },
    readFile: readWhole,
    chunks,
    hash,
    entries: listEntries,
    write: (path, data) => withToolErrors(path, () => replaceFile(root, path.relative, data)),
    exclusive: (path, fn) => runExclusive(path.absolute, fn),
    below: async (folder, entry) => {
      const inner = childPath(folder, entry);
      if (isVisible(inner.relative)) return inner;
      return null;
    },
    readable: isVisible,
  };
}

function joinRoot(root: string, relative: string): string {
  if (relative === '.') return root;
  return `${folderPrefix(root)}${relative}`;
}

async function confine(root: string, given: string, use: PathUse): Promise<ConfinedPath> {
  checkForm(given);
  const inside = folderPrefix(root);
  const target = given.startsWith('/') ? given : `${inside}${given}`;
  const absolute = await realTarget(target).catch((error: unknown) => {
    throw new ToolError(
      'execution_error',
      `cannot access ${formatPath(given)}: ${errorCode(error) ?? 'unknown error'}`,
    );
  });
  if (absolute === null || (absolute !== root && !absolute.startsWith(inside))) throw escapeError(given);
  const relative = absolute === root ? '.' : absolute.slice(inside.length);
  if (!isPermitted(relative, use) || !isPermitted(await resolveAlias(root, absolute, relative), use)) {
    throw new ToolError('permission_denied', `Path '${formatPath(given)}' is protected`);
  }
  return { given, absolute, relative };
}

/** The longest existing part of a path made real, what is missing appended; null when no safe answer exists. */
async function realTarget(path: string): Promise<string | null> {
  const missing: string[] = [];
  let prefix = path;
  for (;;) {
    try {
      const real = await realpath(prefix);
      if (missing.length === 0) return real;
      return `${folderPrefix(real)}${missing.reverse().join('/')}`;
    } catch (error) {
      const code = errorCode(error);
      if (code === 'ELOOP') return null;
      if (code !== 'ENOENT' && code !== 'ENOTDIR') throw error;
    }
    // Writing through a dangling link would create its target.
    if ((await lstat(prefix).catch(() => null))?.isSymbolicLink()) return null;
    const cut = prefix.lastIndexOf('/');
    const name = prefix.slice(cut + 1);
    if (name === '..') return null;
    if (name !== '.' && name !== '') missing.push(name);
    prefix = prefix.slice(0, cut) || '/';
  }
}

function checkForm(given: string): void {
  const reject = (problem: string) => {
    throw new ToolError('permission_denied', `Path '${formatPath(given)}' ${problem}`);
  };
  if (given === '') reject('is empty');
  if (given.includes('\0')) reject('contains a NUL character');
  if (Buffer.byteLength(given) > MAX_PATH_BYTES) reject(`is longer than ${MAX_PATH_BYTES} bytes`);
}

/** The path for a one-line message. */
export function formatPath(given: string): string {
  const short = given.length > 200 ? `${given.slice(0, 200)}...` : given;
  return short.replace(/\p{Cc}/gu, '?');
}

function escapeError(given: string): ToolError {
  return new PathEscape(`Path '${formatPath(given)}' escapes workspace boundary`);
}

/** If `.metis` is a link to another folder of the workspace, that folder is protected too. */
async function resolveAlias(root: string, absolute: string, relative: string): Promise<string> {
  const metis = await realpath(`${root}/${METIS}`).catch(() => null);
  if (metis === null || (absolute !== metis && !absolute.startsWith(`${metis}/`))) return relative;
  return `${METIS}${absolute.slice(metis.length)}`;
}

function isPermitted(relative: string, use: PathUse): boolean {
  if (use === 'write') return !isProtectedName(relative);
  return isReadable(relative) && (use === 'list' || relative !== METIS);
}

/** Whether a path, relative to the workspace, is one that no model may write. */
export function isProtectedName(relative: string): boolean {
  return isMetis(relative) || isSpelling(relative, MCP_FILE);
}

// Some file systems treat `.METIS` as `.metis`, or ignore invisible characters: every spelling is protected.
function isMetis(relative: string): boolean {
  return isSpelling(relative.split('/', 1)[0] ?? '', METIS);
}

function isSpelling(given: string, name: string): boolean {
  if (given.length > MAX_SPELLING) return false;
  return (
    given
      .normalize('NFKC')
      .replace(/[\p{Cf}\p{Mn}]/gu, '')
      .toLowerCase() === name
  );
}

function isReadable(relative: string): boolean {
  return !isMetis(relative) || /^\.metis(\/(MEMORY\.md|USER\.md|skills(\/.*)?))?$/s.test(relative);
}

async function readWhole(path: ConfinedPath, limitBytes = MAX_READ_BYTES): Promise<Buffer> {
  const parts: Buffer[] = [];
  let size = 0;
  for await (const part of chunks(path)) {
    size += part.length;
    if (size > limitBytes) {
      throw new ToolError(
        'execution_error',
        `file too large: ${formatPath(path.given)} has more than ${limitBytes} bytes`,
      );
    }
    parts.push(part);
  }
  return Buffer.concat(parts, size);
}

async function* chunks(path: ConfinedPath): AsyncGenerator<Buffer> {
  const handle = await withToolErrors(path, () => openRegular(path.absolute));
  try {
    for (;;) {
      const { bytesRead, buffer } = await handle.read(Buffer.allocUnsafe(CHUNK_BYTES), 0, CHUNK_BYTES);
      if (bytesRead === 0) return;
      yield buffer.subarray(0, bytesRead);
    }
  } finally {
    await handle.close();
  }
}

async function hash(path: ConfinedPath, signal: AbortSignal): Promise<string | null> {
  if (isMissing(path.absolute)) return null;
  const digest = createHash('sha256');
  for await (const data of chunks(path)) {
    signal.throwIfAborted();
    digest.update(data);
  }
  return digest.digest('hex');
}

function listEntries(path: ConfinedPath): Promise<readonly DirectoryEntry[]> {
  return withToolErrors(path, () => listDirectory(path.absolute), 'directory');
}

/** Converts errors of the file system into errors for the model. */
async function withToolErrors<T>(path: ConfinedPath, act: () => Promise<T>, wanted = 'file'): Promise<T> {
  try {
    return await act();
  } catch (error) {
    if (error instanceof SwappedPath) throw escapeError(path.given);
    const given = formatPath(path.given);
    if (error instanceof NotRegular) throw new ToolError('execution_error', `not a regular file: ${given}`);
    const code = errorCode(error);
    if (code === null) throw error;
    throw new ToolError('execution_error', systemMessage(code, given, wanted));
  }
}

function systemMessage(code: string, given: string, wanted: string): string {
  if (code === 'ENOENT') return `${wanted} not found: ${given}`;
  if (code === 'ENOTDIR') {
    if (wanted === 'file') return `a part of the path is no directory: ${given}`;
    return `not a directory: ${given}`;
  }
  return `cannot access ${given}: ${code}`;
}

export function childPath(folder: ConfinedPath, entry: DirectoryEntry): ConfinedPath {
  return {
    given: `${folder.given}/${entry.name}`,
    absolute: `${folderPrefix(folder.absolute)}${entry.name}`,
    relative: folder.relative === '.' ? entry.name : `${folder.relative}/${entry.name}`,
  };
}
