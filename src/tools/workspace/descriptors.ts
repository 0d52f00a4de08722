// Files by descriptor: the checked file is the opened file, even if a link is swapped in between (09 §8 step 5).

import { constants, type Dirent, lstatSync } from 'node:fs';
import { type FileHandle, lstat, mkdir, open, readdir, readlink, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { DirectoryEntry } from '#core/ports/workspace.ts';
import { readErrorMessage } from '#protocol/text/error-message.ts';

const LINUX = process.platform === 'linux';
const { O_RDONLY, O_WRONLY, O_CREAT, O_EXCL, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK } = constants;

/** A path has changed since it was checked: it is a link, or its directory has moved. */
export class SwappedPath extends Error {}
/** A directory, FIFO, socket or device instead of a file. */
export class NotRegular extends Error {}

/** The folder with a final slash: the start of every path in it. */
export function folderPrefix(folder: string): string {
  if (folder === '/') return folder;
  return `${folder}/`;
}

/** Describes an error for the log. */
export function describeProblem(error: unknown): string {
  if (error instanceof SwappedPath) return 'is a link, or lies behind one';
  if (error instanceof NotRegular) return 'is not a regular file';
  return readErrorMessage(error);
}

/** The code of a failed system call; null for every other error. */
export function errorCode(error: unknown): string | null {
  if (error instanceof Error && 'code' in error && typeof error.code === 'string') return error.code;
  return null;
}

/** Opens a regular file for reading. `absolute` is a real path. Throws `SwappedPath`, `NotRegular` or the system's error. */
export async function openRegular(absolute: string): Promise<FileHandle> {
  // Without O_NONBLOCK opening a FIFO would block until it has a writer.
  const handle = await openUnfollowed(absolute, O_RDONLY | O_NONBLOCK);
  try {
    if (!(await handle.stat()).isFile()) throw new NotRegular();
    return handle;
  } catch (error) {
    await handle.close();
    throw error;
  }
}

/**
 * Whether a path does not exist, not even as a dangling link. One system call: most optional files of most workspaces
 * are missing, and a turn checks several.
 */
export function isMissing(path: string): boolean {
  try {
    return lstatSync(path, { throwIfNoEntry: false }) === undefined;
  } catch {
    // Opening the path will report the error.
    return false;
  }
}

/** At most the first `bytes` bytes of a regular file; null when there is none. Throws as `openRegular`. */
export async function readStart(absolute: string, bytes: number): Promise<Buffer | null> {
  if (isMissing(absolute)) return null;
  const handle = await openRegular(absolute).catch((error: unknown) => {
    if (errorCode(error) === 'ENOENT') return null;
    throw error;
  });
  if (handle === null) return null;
  try {
    const size = Math.min(bytes, (await handle.stat()).size);
    const data = Buffer.alloc(size);
    let filled = 0;
    while (filled < size) {
      const { bytesRead } = await handle.read(data, filled, size - filled, filled);
      if (bytesRead === 0) break;
      filled += bytesRead;
    }
    return data.subarray(0, filled);
  } finally {
    await handle.close();
  }
}

function readKind(entry: Dirent): DirectoryEntry['kind'] {
  if (entry.isFile()) return 'file';
  if (entry.isDirectory()) return 'directory';
  return 'other';
}

/** Lists a directory. `absolute` is a real path. Throws `SwappedPath` or the system's error. */
export async function listDirectory(absolute: string): Promise<readonly DirectoryEntry[]> {
  const handle = await openUnfollowed(absolute, O_RDONLY | O_DIRECTORY);
  try {
    const entries = await readdir(descriptorPath(handle, absolute), { withFileTypes: true });
    return entries.map((entry) => ({
      name: entry.name,
      kind: readKind(entry),
    }));
  } finally {
    await handle.close();
  }
}

async function openUnfollowed(absolute: string, flags: number): Promise<FileHandle> {
  const handle = await open(absolute, flags | O_NOFOLLOW).catch((error: unknown) => {
    if (errorCode(error) === 'ELOOP') throw new SwappedPath();
    if (errorCode(error) === 'ENXIO') throw new NotRegular();
    throw error;
  });
  if (!LINUX) return handle;
  const actual = await readlink(`/proc/self/fd/${handle.fd}`).catch(() => null);
  if (actual === absolute) return handle;
  await handle.close();
  throw new SwappedPath();
}

/** A path to an open directory that no swap can redirect; where the system has none, its plain path. */
function descriptorPath(handle: FileHandle, absolute: string): string {
  if (LINUX) return `/proc/self/fd/${handle.fd}`;
  return absolute;
}

/**
 * Replaces a file in one step: written beside it, then renamed over it. Missing directories below `root` are created,
 * links on the way are refused, an existing file's mode is kept.
 * @param relative real path below `root`
 * @param sync also survives a power cut
 * @param ready awaited before the rename; if it throws, the file stays unchanged
 */
export async function replaceFile(
  root: string,
  relative: string,
  data: string | Uint8Array,
  { sync = false, ready }: { readonly sync?: boolean; readonly ready?: () => Promise<void> } = {},
): Promise<void> {
  const segments = relative.split('/');
  const name = segments.pop() ?? '';
  let at = root;
  let directory = await openUnfollowed(root, O_RDONLY | O_DIRECTORY);
  try {
    for (const segment of segments) {
      const inside = await descend(descriptorPath(directory, at), segment);
      await directory.close();
      directory = inside;
      at = `${at}/${segment}`;
    }
    await replaceIn(directory, `${descriptorPath(directory, at)}/${name}`, data, { sync, ready });
  } finally {
    await directory.close();
  }
}

/** Makes the folders of a real path below `root` that are missing; a link on the way is refused. */
export async function createFolder(root: string, relative: string): Promise<void> {
  let at = root;
  let directory = await openUnfollowed(root, O_RDONLY | O_DIRECTORY);
  try {
    for (const segment of relative === '.' ? [] : relative.split('/')) {
      const inside = await descend(descriptorPath(directory, at), segment);
      await directory.close();
      directory = inside;
      at = `${at}/${segment}`;
    }
  } finally {
    await directory.close();
  }
}

async function descend(parent: string, segment: string): Promise<FileHandle> {
  const flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW;
  const path = `${parent}/${segment}`;
  try {
    return await open(path, flags);
  } catch (error) {
    if (errorCode(error) !== 'ENOENT') return throwSwapped(error, path);
    await mkdir(path).catch((failure: unknown) => {
      if (errorCode(failure) !== 'EEXIST') throw failure;
    });
    return open(path, flags).catch((failure: unknown) => throwSwapped(failure, path));
  }
}

/** A link where a directory was is a swap; a file there is an ordinary mistake. */
async function throwSwapped(error: unknown, path: string): Promise<never> {
  if (errorCode(error) === 'ELOOP' || (await lstat(path).catch(() => null))?.isSymbolicLink()) throw new SwappedPath();
  throw error;
}

let temporaryFiles = 0;

async function replaceIn(
  directory: FileHandle,
  target: string,
  data: string | Uint8Array,
  { sync, ready }: { readonly sync: boolean; readonly ready: (() => Promise<void>) | undefined },
): Promise<void> {
  const mode = await readMode(target);
  temporaryFiles += 1;
  const temporary = `${dirname(target)}/.metis-${process.pid}-${temporaryFiles}.tmp`;
  const handle = await open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o666);
  try {
    try {
      await handle.writeFile(data);
      if (mode !== null) await handle.chmod(mode);
      if (sync) await handle.sync();
    } finally {
      await handle.close();
    }
    await ready?.();
    await rename(temporary, target);
    if (sync) await directory.sync();
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
}

/** Mode of the regular file at a path; null when there is none. */
async function readMode(path: string): Promise<number | null> {
  const stat = await lstat(path).catch((error: unknown) => {
    if (errorCode(error) === 'ENOENT') return null;
    throw error;
  });
  if (stat === null) return null;
  if (stat.isSymbolicLink()) throw new SwappedPath();
  if (!stat.isFile()) throw new NotRegular();
  return stat.mode & 0o777;
}

// One queue of writers per real path, for the whole process (09 §8).

const tails = new Map<string, Promise<unknown>>();

/** Runs `fn` after all earlier calls for this path have ended, with or without errors. */
export async function runExclusive<T>(realPath: string, fn: () => Promise<T>): Promise<T> {
  const before = tails.get(realPath) ?? Promise.resolve();
  const turn = before.then(fn);
  const tail = turn.catch(() => {});
  tails.set(realPath, tail);
  try {
    return await turn;
  } finally {
    if (tails.get(realPath) === tail) tails.delete(realPath);
  }
}
