// Where the definitions of a workspace lie, and which file is whose (13 §3.1).
import { statSync } from 'node:fs';
import { realpath } from 'node:fs/promises';
import { errnoOf, isMissing, listDirectory, problemOf } from '../descriptors.ts';
import type { SaidOnce } from '../said-once.ts';

/** In the order of rank. */
export const PLACES = [
  { folder: '.metis/workers', endings: ['.yaml', '.json'], form: 'definition' },
  { folder: 'workers', endings: ['.yaml', '.json'], form: 'definition' },
  { folder: '.claude/agents', endings: ['.md'], form: 'agent' },
] as const;
/** Files of one folder that are looked at. */
const MAX_FILES = 5000;
/** Folders of agents below their own. */
const MAX_DEPTH = 8;

export type Place = (typeof PLACES)[number];

/** The files of one name in the place of the highest rank that has one; more than one is a fault of theirs. */
export interface Located {
  readonly name: string;
  readonly place: Place;
  /** Paths below the folder, in byte order. */
  readonly files: readonly string[];
  /** Real path of the folder. */
  readonly directory: string;
}

/** By name. @param nameOf the name of an agent, which its file says */
export async function locateAll(
  root: string,
  log: SaidOnce,
  nameOf: (path: string, stem: string) => Promise<string>,
): Promise<ReadonlyMap<string, Located>> {
  const found = new Map<string, Located>();
  for (const place of PLACES.toReversed()) {
    const directory = await folderInside(root, place.folder, log);
    if (directory === null) continue;
    const files = await filesOf(directory, place, log);
    const here = new Map<string, string[]>();
    for (const file of files) {
      const ending = place.endings.find((e) => file.endsWith(e) && file.length > e.length);
      if (ending === undefined) continue;
      const stem = file.slice(file.lastIndexOf('/') + 1, -ending.length);
      const name = place.form === 'agent' ? await nameOf(`${directory}/${file}`, stem) : stem;
      here.set(name, [...(here.get(name) ?? []), file]);
    }
    for (const [name, files] of here) found.set(name, { name, place, files, directory });
  }
  return found;
}

/** Real path of a folder of the workspace; null when it is missing, or a link takes it elsewhere. */
export async function folderInside(root: string, folder: string, log: SaidOnce): Promise<string | null> {
  const path = `${root}/${folder}`;
  if (isMissing(path)) return null;
  const real = await realpath(path).catch(() => null);
  if (real?.startsWith(root === '/' ? '/' : `${root}/`)) return real;
  log.say(
    'warn',
    path,
    { workspace: root, folder },
    'a folder of worker definitions is ignored: it leads out of the workspace',
  );
  return null;
}

async function filesOf(directory: string, place: Place, log: SaidOnce): Promise<readonly string[]> {
  const names: string[] = [];
  // Agents may lie in folders of the folder; links to folders are not followed.
  const folders = [{ path: '', depth: 0 }];
  for (const { path, depth } of folders) {
    const entries = await entriesOf(`${directory}/${path}`.replace(/\/$/, ''), log);
    for (const { name, kind } of entries) {
      if (name.startsWith('.')) continue;
      if (kind !== 'directory') names.push(`${path}${name}`);
      else if (place.form === 'agent' && depth < MAX_DEPTH && folders.length < MAX_FILES)
        folders.push({ path: `${path}${name}/`, depth: depth + 1 });
    }
    if (names.length > MAX_FILES) break;
  }
  names.sort((a, b) => (a < b ? -1 : 1));
  if (names.length > MAX_FILES) {
    const fields = { path: directory, files: names.length };
    log.say('warn', directory, fields, `${place.folder} has more than ${MAX_FILES} files; the first by name are read`);
  }
  return names.slice(0, MAX_FILES);
}

async function entriesOf(directory: string, log: SaidOnce) {
  return listDirectory(directory).catch((error: unknown) => {
    if (errnoOf(error) !== 'ENOTDIR')
      log.say('warn', directory, { path: directory, problem: problemOf(error) }, 'a folder of workers cannot be read');
    return [];
  });
}

/** Changes whenever the content may have changed, its coming and going included. */
export function stampOf(path: string): string {
  try {
    const stat = statSync(path, { throwIfNoEntry: false });
    return stat === undefined ? '' : `${stat.mtimeMs} ${stat.ctimeMs} ${stat.size} ${stat.ino}`;
  } catch (error) {
    return errnoOf(error) ?? 'unknown';
  }
}
