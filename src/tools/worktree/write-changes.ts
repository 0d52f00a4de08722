// Writes the difference of two trees into a folder: each path only where the disk holds what was merged (20 §2.5).
import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import {
  type FileHandle,
  lstat,
  mkdir,
  open,
  readFile,
  readlink,
  rename,
  rm,
  rmdir,
  symlink,
  unlink,
} from 'node:fs/promises';
import type { Logger } from '#core/ports/logger.ts';
import { type MergeToWrite, WorktreeError, type Written } from '#core/ports/worktrees.ts';
import { readErrorMessage } from '#protocol/text/error-message.ts';
import { runExclusive } from '../workspace/descriptors.ts';
import { byteName, explainFailure, isSystemError, packNames, readableName } from './git.ts';
import type { Difference, Entry, OwnGit } from './repository.ts';
import { compareTrees } from './snapshot.ts';

const { O_RDONLY, O_WRONLY, O_CREAT, O_EXCL, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK } = constants;
const LINUX = process.platform === 'linux';
const LINK_MODE = '120000';
const MAX_INPUT_BYTES = 512 * 1024 * 1024;

/** One folder that paths are written to, and where their new content lies. */
export interface Target {
  readonly own: OwnGit;
  /** The caller's work tree. */
  readonly top: string;
  /** A folder with the new content of each path, as a checkout has it. */
  readonly content: string;
  /** Whether the file system has an executable bit. */
  readonly hasModes: boolean;
}

/** Puts the paths of a tree below an empty folder, as a checkout would. */
async function checkOut(own: OwnGit, tree: string, names: readonly string[], folder: string): Promise<void> {
  const index = 'checkout.index';
  await mkdir(folder, { recursive: true });
  await rm(`${own.dir}/${index}.lock`, { force: true });
  await own.run(['read-tree', tree], { index, tree: folder });
  await own.run(['checkout-index', '-f', '-q', '-z', '--stdin'], { index, tree: folder, input: packNames(names) });
}

/**
 * Checks out the new content of the changes, in place of an earlier one of this git folder.
 * @param top the folder that they are written to
 */
export async function createTarget(
  own: OwnGit,
  tree: string,
  changes: readonly Difference[],
  top: string = own.repository.top,
): Promise<Target> {
  const content = `${own.dir}/content`;
  await rm(content, { recursive: true, force: true });
  const names = changes.filter(({ after }) => after !== null).map(({ name }) => name);
  await checkOut(own, tree, names, content);
  return { own, top, content, hasModes: own.repository.settings.get('core.filemode') !== 'false' };
}

export interface WrittenChanges {
  /** Paths that the disk did not hold as expected. */
  readonly changed: readonly string[];
  /** In their order; a path that held the new content already is not among them. */
  readonly written: readonly Difference[];
  /** The path at which the system refused, with its error; null = it refused none. */
  readonly obstacle: string | null;
}

/** Writes the paths until one cannot be written. */
export async function writeChanges(target: Target, changes: readonly Difference[]): Promise<WrittenChanges> {
  const changed: string[] = [];
  const gone = new Set(changes.filter(({ after }) => after === null).map(({ name }) => name));
  for (const change of changes) {
    // A folder comes in the place of a file that goes.
    const takesPlace = change.before === null && listFolders(change.name).some((folder) => gone.has(folder));
    if (takesPlace) continue;
    const found = await reportObstacle(change.name, () => compareDisk(target, change));
    if (typeof found === 'object') return { changed: [], written: [], ...found };
    if (found === 'other') changed.push(readableName(change.name));
  }
  const written: Difference[] = [];
  if (changed.length > 0) return { changed, written, obstacle: null };
  // What goes makes room for what comes: a file in the place of a folder, or the other way about.
  const ordered = [...changes.filter(({ after }) => after === null), ...changes.filter(({ after }) => after !== null)];
  for (const change of ordered) {
    const done = await reportObstacle(change.name, () => writeOne(target, change));
    if (typeof done === 'object') return { changed: [], written, ...done };
    if (done === 'other') return { changed: [readableName(change.name)], written, obstacle: null };
    if (done === 'written') written.push(change);
  }
  return { changed, written, obstacle: null };
}

/**
 * Puts back what was written. A path that was changed again stays as it is. Returns the paths that could not be put back,
 * with the errors of the system.
 * @param target with the content from before
 */
export async function undoChanges(
  target: Target,
  written: readonly Difference[],
): Promise<{ readonly changed: readonly string[]; readonly obstacles: readonly string[] }> {
  const back = written.map(({ name, before, after }) => ({ name, before: after, after: before }));
  const changed: string[] = [];
  const obstacles: string[] = [];
  for (const change of [...back.filter(({ after }) => after === null), ...back.filter(({ after }) => after !== null)]) {
    const done = await reportObstacle(change.name, () => writeOne(target, change));
    if (typeof done === 'object') obstacles.push(done.obstacle);
    else if (done === 'other') changed.push(readableName(change.name));
  }
  return { changed, obstacles };
}

/** Implements `Worktrees.write`. */
export async function writeMerge(own: OwnGit, merge: MergeToWrite, log: Logger): Promise<Written> {
  const { from, tree, is_resumed = false } = merge;
  const prepared = await explainFailure('the merge cannot be written', async () => {
    const changes = await compareTrees(own, from, tree);
    return { changes, target: await createTarget(own, tree, changes) };
  }).catch((error: unknown) => {
    // Nothing is written yet, but for what the process that had begun it may have written.
    if (is_resumed || !(error instanceof WorktreeError)) throw error;
    return error.message;
  });
  if (typeof prepared === 'string') return { changed_meanwhile: [], obstacle: prepared };
  const { changes, target } = prepared;
  const { changed, written, obstacle } = await writeChanges(target, changes);
  const problem = obstacle ?? changed[0];
  if (problem !== undefined) await undoMerge(target, from, { written: is_resumed ? changes : written, problem, log });
  await rm(target.content, { recursive: true, force: true });
  return { changed_meanwhile: changed, obstacle };
}

/** Half a merge must not stay: what was written goes back, unless it has been changed again. Throws `WorktreeError`. */
async function undoMerge(
  { own }: Target,
  from: string,
  {
    written,
    problem,
    log,
  }: { readonly written: readonly Difference[]; readonly problem: string; readonly log: Logger },
): Promise<void> {
  if (written.length === 0) return;
  const back = written.map(({ name, before }) => ({ name, before: null, after: before }));
  const undone = await createTarget(own, from, back)
    .then((target) => undoChanges(target, written))
    .catch((error: unknown) => {
      throw new WorktreeError(`${problem}, and cannot be undone: ${readErrorMessage(error)}`);
    });
  if (undone.changed.length > 0) log.warn({ paths: undone.changed }, 'files were changed while a merge was undone');
  if (undone.obstacles.length > 0) throw new WorktreeError(`${problem}, and cannot be undone: ${undone.obstacles[0]}`);
}

/** An error of the system, or of a git command, as text beside the path. */
async function reportObstacle<T>(name: string, act: () => Promise<T>): Promise<T | { readonly obstacle: string }> {
  try {
    return await act();
  } catch (error) {
    if (!isSystemError(error) && !(error instanceof WorktreeError)) throw error;
    return { obstacle: `${readableName(name)} cannot be written: ${'code' in error ? error.code : error.message}` };
  }
}

async function writeOne(target: Target, change: Difference): Promise<'written' | 'same' | 'other'> {
  const shown = `${target.top}/${readableName(change.name)}`;
  return runExclusive(shown, async () => {
    const folder = await openParent(target.top, change.name, change.after !== null);
    if (folder === 'other') return 'other';
    if (folder === null) return change.before === null ? 'same' : compareMissing(change);
    try {
      const path = folder.path(lastPart(change.name));
      const now = await compareAt(target, change, path);
      if (now !== 'before') return now === 'after' ? 'same' : 'other';
      if (change.after !== null) return await replaceAt(target, change, change.after, folder);
      await unlink(path);
      await dropEmptyFolders(target.top, change.name);
      return 'written';
    } finally {
      await folder.handle.close();
    }
  });
}

function compareMissing(change: Difference): 'same' | 'other' {
  if (change.after === null) return 'same';
  return 'other';
}

/** The same after a restart, so that what a process left half written is found by the one that finishes the merge. */
function nameTemporary({ own }: Target, name: string): string {
  return `.metis-${lastPart(own.dir)}-${createHash('sha256').update(name).digest('hex').slice(0, 16)}.tmp`;
}

/** What the disk holds at a path: the content before, the one after, or another. Removes what a process left half written. */
async function compareDisk(target: Target, change: Difference): Promise<'before' | 'after' | 'other'> {
  const folder = await openParent(target.top, change.name, false);
  if (folder === 'other') return 'other';
  if (folder === null) {
    if (change.before === null) return 'before';
    return change.after === null ? 'after' : 'other';
  }
  try {
    await rm(folder.path(nameTemporary(target, change.name)), { force: true });
    return await compareAt(target, change, folder.path(lastPart(change.name)));
  } finally {
    await folder.handle.close();
  }
}

interface DiskEntry {
  readonly mode: string;
  readonly data: Buffer;
}

async function compareAt(target: Target, change: Difference, path: Buffer): Promise<'before' | 'after' | 'other'> {
  const entry = await readEntry(path);
  if (entry === 'folder') {
    // The files in it go first, and it with them.
    return change.before === null ? 'before' : 'other';
  }
  if (await isEntry(target, change.name, entry, change.before)) return 'before';
  if (await isEntry(target, change.name, entry, change.after)) return 'after';
  return 'other';
}

async function readEntry(path: Buffer): Promise<DiskEntry | 'folder' | null> {
  const found = await lstat(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return null;
    throw error;
  });
  if (found === null) return null;
  if (found.isSymbolicLink()) return { mode: LINK_MODE, data: await readlink(path, { encoding: 'buffer' }) };
  if (found.isDirectory()) return 'folder';
  if (!found.isFile() || found.size > MAX_INPUT_BYTES) return { mode: '', data: Buffer.alloc(0) };
  // A FIFO that has taken its place would block without O_NONBLOCK.
  const handle = await open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  try {
    return { mode: (found.mode & 0o100) === 0 ? '100644' : '100755', data: await handle.readFile() };
  } finally {
    await handle.close();
  }
}

async function isEntry(
  { own, hasModes }: Target,
  name: string,
  entry: DiskEntry | null,
  wanted: Entry | null,
): Promise<boolean> {
  if (entry === null || wanted === null) return entry === wanted;
  const isLink = wanted.mode === LINK_MODE;
  if (isLink !== (entry.mode === LINK_MODE)) return false;
  if (!isLink && hasModes && entry.mode !== wanted.mode) return false;
  if (hashBlob(own.repository.object_format, entry.data) === wanted.oid) return true;
  if (isLink || entry.mode === '') return false;
  // Line ends, encodings and `$Id$` may be stored in another form than they have on the disk.
  const text = readableName(name);
  if (byteName(text) !== name) return false;
  const { out } = await own.run(['hash-object', '--stdin', `--path=${text}`], { input: entry.data });
  return out.toString('utf8').trim() === wanted.oid;
}

function hashBlob(format: string, data: Buffer): string {
  const hash = createHash(format === 'sha256' ? 'sha256' : 'sha1');
  return hash.update(`blob ${data.length}\0`).update(data).digest('hex');
}

function lastPart(name: string): string {
  return name.slice(name.lastIndexOf('/') + 1);
}

interface OpenFolder {
  readonly handle: FileHandle;
  path(name: string): Buffer;
}

/** Opens the folder of a path, following no link; null where it is missing, 'other' where a link or a file is in its place. */
async function openParent(top: string, name: string, create: boolean): Promise<OpenFolder | 'other' | null> {
  const flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW;
  let at = Buffer.from(top, 'utf8').toString('latin1');
  let handle = await open(top, flags);
  for (const segment of name.split('/').slice(0, -1)) {
    const next = Buffer.from(`${LINUX ? `/proc/self/fd/${handle.fd}` : at}/${segment}`, 'latin1');
    const inner = await openBelow(next, flags, create);
    await handle.close();
    if (inner === null || inner === 'other') return inner;
    handle = inner;
    at = `${at}/${segment}`;
  }
  const base = LINUX ? `/proc/self/fd/${handle.fd}` : at;
  return { handle, path: (last) => Buffer.from(`${base}/${last}`, 'latin1') };
}

async function openBelow(path: Buffer, flags: number, create: boolean): Promise<FileHandle | 'other' | null> {
  try {
    return await open(path, flags);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ELOOP' || code === 'ENOTDIR') return 'other';
    if (code !== 'ENOENT') throw error;
    if (!create) return null;
    await mkdir(path).catch((failure: NodeJS.ErrnoException) => {
      if (failure.code !== 'EEXIST') throw failure;
    });
    return openBelow(path, flags, false);
  }
}

/** 'other' where a folder with files is in the place. */
async function replaceAt(
  target: Target,
  { name }: Difference,
  entry: Entry,
  folder: OpenFolder,
): Promise<'written' | 'other'> {
  const source = Buffer.from(`${Buffer.from(target.content, 'utf8').toString('latin1')}/${name}`, 'latin1');
  const last = folder.path(lastPart(name));
  const temporary = folder.path(nameTemporary(target, name));
  await rm(temporary, { force: true });
  try {
    if (entry.mode === LINK_MODE) await symlink(await readlink(source, { encoding: 'buffer' }), temporary);
    else await copyContent(source, temporary, { entry, last, hasModes: target.hasModes });
    if ((await readEntry(last)) === 'folder') await rmdir(last);
    await rename(temporary, last);
    return 'written';
  } catch (error) {
    await rm(temporary, { force: true });
    if ((error as NodeJS.ErrnoException).code === 'ENOTEMPTY') return 'other';
    throw error;
  }
}

async function copyContent(
  source: Buffer,
  temporary: Buffer,
  { entry, last, hasModes }: { readonly entry: Entry; readonly last: Buffer; readonly hasModes: boolean },
): Promise<void> {
  const before = await lstat(last).catch(() => null);
  const handle = await open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o666);
  try {
    await handle.writeFile(await readFile(source));
    let mode = (before?.isFile() ? before.mode : (await handle.stat()).mode) & 0o777;
    if (hasModes) mode = entry.mode === '100755' ? mode | ((mode & 0o444) >> 2) : mode & ~0o111;
    await handle.chmod(mode);
  } finally {
    await handle.close();
  }
}

/** The folders above a path, the innermost first. */
function listFolders(name: string): string[] {
  const segments = name.split('/').slice(0, -1);
  return segments.map((_, i) => segments.slice(0, segments.length - i).join('/'));
}

/** Folders that a removed path leaves empty go, as git lets them go. */
async function dropEmptyFolders(top: string, name: string): Promise<void> {
  for (const empty of listFolders(name)) {
    const folder = await openParent(top, empty, false);
    if (folder === null || folder === 'other') return;
    const isRemoved = await rmdir(folder.path(lastPart(empty))).then(
      () => true,
      () => false,
    );
    await folder.handle.close();
    if (!isRemoved) return;
  }
}
