// The worker library on disk: a cached definition is valid while its files are unchanged (13 §3).

import { realpathSync } from 'node:fs';
import { lstat, mkdir, realpath, rm, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { parseAgentName } from '#core/policy/workers/agent-file.ts';
import { MAX_WORKER_BYTES } from '#core/policy/workers/read-definition.ts';
import type { Logger } from '#core/ports/logger.ts';
import type { WorkerLibrary, WorkspaceFiles } from '#core/ports/workspace.ts';
import { AppError } from '#protocol/errors.ts';
import { compareText } from '#protocol/text/compare-text.ts';
import { ToolError } from '#protocol/tool.ts';
import type { FoundWorker } from '#protocol/worker-definition.ts';
import {
  describeProblem,
  errorCode,
  folderPrefix,
  NotRegular,
  readStart,
  replaceFile,
  runExclusive,
  SwappedPath,
} from './descriptors.ts';
import {
  completeWorker,
  fileStamp,
  type Located,
  loadWorker,
  locateAll,
  PLACES,
  readInside,
  readSource,
} from './load-worker.ts';
import { createOnceLogger } from './once-logger.ts';

/** Files that are read at a time: enough to keep the disk busy. */
const AT_ONCE = 32;
/** Workspaces whose definitions are kept. */
const MAX_ROOTS = 64;
/** Files whose names are kept, over all workspaces. */
const MAX_NAMES = 20_000;

interface Kept {
  /** Of every file that was looked for, found or not. */
  readonly stamps: ReadonlyMap<string, string>;
  /** Real paths, in lower case, of those that are there: a link's target is as much a part of the worker. */
  readonly reals: ReadonlySet<string>;
  readonly found: FoundWorker;
}

export function createWorkerLibrary(log: Logger): WorkerLibrary {
  const once = createOnceLogger(log);
  const roots = new Map<string, Map<string, Kept>>();

  function cachedWorkers(root: string): Map<string, Kept> {
    const kept = roots.get(root) ?? new Map<string, Kept>();
    roots.delete(root);
    for (const oldest of roots.keys()) if (roots.size >= MAX_ROOTS) roots.delete(oldest);
    roots.set(root, kept);
    return kept;
  }

  const names = new Map<string, { readonly stamp: string; readonly name: string }>();
  const locate = (root: string) => locateAll(root, once, (path, stem) => readAgentName(root, path, stem));

  /** Of an agent's file, read again when it changed. */
  async function readAgentName(root: string, path: string, stem: string): Promise<string> {
    const stamp = fileStamp(path);
    const known = names.get(path);
    if (known?.stamp === stamp) return known.name;
    const text = await readInside(root, path);
    const name = parseAgentName(text.ok ? text.value.text : '', stem);
    names.delete(path);
    for (const oldest of names.keys()) if (names.size >= MAX_NAMES) names.delete(oldest);
    names.set(path, { stamp, name });
    return name;
  }

  async function loadCached(root: string, kept: Map<string, Kept>, located: Located): Promise<FoundWorker> {
    const key = `${located.place.folder}/${located.files.join('/')}`;
    const known = kept.get(key);
    if (known && [...known.stamps].every(([path, stamp]) => fileStamp(path) === stamp)) return known.found;
    // Taken before reading: a change in the meantime invalidates the entry.
    const stamps = new Map<string, string>();
    const found = await loadWorker(root, located, { log: once, onLookup: (path) => stamps.set(path, fileStamp(path)) });
    const there = [...stamps].filter(([, stamp]) => stamp !== '').map(([path]) => path);
    kept.set(key, { stamps, reals: new Set(there.flatMap(findRealPath)), found });
    return found;
  }

  return {
    async find(root, name) {
      const located = (await locate(root)).get(name);
      if (located === undefined) return null;
      return loadCached(root, cachedWorkers(root), located);
    },
    readText: (root, path) => readSource(root, path),
    change: (root, fn) => runExclusive(`${root}\0workers`, fn),
    complete: (root, definition) => completeWorker(root, definition, once),
    save: async (root, name, yaml) => {
      const located = (await locate(root)).get(name);
      const own = located?.place.form === 'definition' ? located : null;
      const path = `${own?.place.folder ?? PLACES[0].folder}/${name}.yaml`;
      const target = await resolveTarget(root, own === null ? `${root}/${path}` : `${own.directory}/${name}.yaml`);
      await runExclusive(target, async () => {
        const relative = target.slice(folderPrefix(root).length);
        await reportWriteErrors(path, async () =>
          replaceFile(root, relative, yaml(await readText(target)), { sync: true }),
        );
        if (own !== null) await rm(`${own.directory}/${name}.json`, { force: true });
      });
      return path;
    },
    remove: async (root, name) => {
      const located = (await locate(root)).get(name);
      for (const file of located?.files ?? [])
        await reportWriteErrors(`${located!.place.folder}/${file}`, () =>
          rm(`${located!.directory}/${file}`, { force: true }),
        );
    },
    keepCopy: async (path, yaml) => {
      await mkdir(dirname(path), { recursive: true, mode: 0o700 });
      await writeFile(path, yaml, { mode: 0o600 });
    },
    dropCopies: (folder) => rm(folder, { recursive: true, force: true }),
    async owns(root, absolute) {
      await this.list(root);
      const path = absolute.toLowerCase();
      for (const { stamps, reals } of cachedWorkers(root).values()) {
        if (reals.has(path)) return true;
        for (const looked of stamps.keys()) if (looked.toLowerCase() === path) return true;
      }
      return false;
    },
    names: async (root) => [...(await locate(root)).values()].sort(compareRank).map(({ name }) => name),
    async list(root) {
      const all = [...(await locate(root)).values()].sort((a, b) => compareText(a.name, b.name));
      const kept = cachedWorkers(root);
      const found: FoundWorker[] = [];
      for (let i = 0; i < all.length; i += AT_ONCE) {
        const some = all.slice(i, i + AT_ONCE).map((located) => loadCached(root, kept, located));
        found.push(...(await Promise.all(some)));
      }
      const there = new Set(all.map(({ place, files }) => `${place.folder}/${files.join('/')}`));
      for (const key of kept.keys()) if (!there.has(key)) kept.delete(key);
      return found;
    },
  };
}

/** The target of a link within the workspace; a link out of it or to nothing is removed. */
async function resolveTarget(root: string, path: string): Promise<string> {
  if (!(await lstat(path).catch(() => null))?.isSymbolicLink()) return path;
  const real = await realpath(path).catch(() => null);
  if (real?.startsWith(folderPrefix(root))) return real;
  await rm(path);
  return path;
}

/** Null = the file is missing or too large. */
async function readText(path: string): Promise<string | null> {
  const data = await readStart(path, MAX_WORKER_BYTES + 1);
  if (data === null || data.length > MAX_WORKER_BYTES) return null;
  return data.toString('utf8');
}

/** Reports errors of the system, or of a link in the path, to the caller, who can remove the obstacle. */
async function reportWriteErrors(path: string, act: () => Promise<void>): Promise<void> {
  try {
    await act();
  } catch (error) {
    const known = error instanceof SwappedPath || error instanceof NotRegular || errorCode(error) !== null;
    if (!known) throw error;
    const problem = errorCode(error) ?? `it ${describeProblem(error)}`;
    throw new AppError('worker_read_only', `${path} cannot be written: ${problem}; remove the obstacle and try again`);
  }
}

/** By folder; within a folder lower case first. */
function compareRank(a: Located, b: Located): number {
  return PLACES.indexOf(a.place) - PLACES.indexOf(b.place) || (a.name < b.name ? 1 : -1);
}

function findRealPath(path: string): readonly string[] {
  try {
    return [realpathSync.native(path).toLowerCase()];
  } catch {
    return [];
  }
}

// Write protection: file tools of a model cannot write worker definitions (13 §3.4).

const DEFINITION = /^(\.metis\/.+|workers\/[^/]+\.(yaml|json)|\.claude\/agents\/.+\.md)$/;
/** Each may be a link to another folder of the workspace, which is then protected too. */
const FOLDERS = [
  '.metis/workers',
  '.metis/prompts',
  '.metis/schemas',
  'workers',
  '.claude/agents',
  'prompts',
  'schemas',
];
/** Names that no link of a worker may have: the files behind it would be definitions, or parts of them. */
const HOLDER = /^(workers|prompts|schemas|\.claude(\/agents)?)$/;
const PROMPT = /^prompts\/([^/]+)\.[^./]+$/;

export function protectDefinitions(root: string, files: WorkspaceFiles, library: WorkerLibrary): WorkspaceFiles {
  return {
    ...files,
    async resolve(path, use) {
      const confined = await files.resolve(path, use);
      if (use !== 'write') return confined;
      const names = [confined.relative, ...(await findAliases(root, confined.absolute))].map(foldSpelling);
      if (names.some((name) => DEFINITION.test(name)) || (await isPartOfWorker(confined.absolute, names)))
        throw new ToolError(
          'permission_denied',
          `Path '${path.replace(/\p{Cc}/gu, '?')}' is protected: it is part of a worker's definition; worker_create makes a new worker`,
        );
      return confined;
    },
  };

  async function isPartOfWorker(absolute: string, names: readonly string[]): Promise<boolean> {
    const stems = names.flatMap((name) => PROMPT.exec(name)?.[1] ?? []);
    if (stems.length > 0 && (await library.names(root)).some((name) => stems.includes(name.toLowerCase()))) return true;
    return library.owns(root, absolute);
  }
}

/** Whether a path, relative to the workspace, is a folder of definitions, or leads to one. */
export function isDefinitionFolder(relative: string): boolean {
  return HOLDER.test(foldSpelling(relative));
}

/** What the path is called by way of a folder of definitions that is a link. */
async function findAliases(root: string, absolute: string): Promise<readonly string[]> {
  const found: string[] = [];
  for (const folder of FOLDERS) {
    const real = await realpath(`${root}/${folder}`).catch(() => null);
    if (real !== null && absolute.startsWith(`${real}/`)) found.push(`${folder}${absolute.slice(real.length)}`);
  }
  return found;
}

/** In the spelling that every file system takes for the same (09 §8). */
function foldSpelling(relative: string): string {
  return relative
    .normalize('NFKC')
    .replace(/[\p{Cf}\p{Mn}]/gu, '')
    .toLowerCase();
}
