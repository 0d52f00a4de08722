// Skills on disk: their folders and their content (10 §5).

import { realpath, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import {
  isSkillName,
  LARGE_BODY_TOKENS,
  MAX_SKILL_BYTES,
  type ReadSkill,
  readSkill,
} from '#core/policy/skills/skill-text.ts';
import type { DirectoryEntry, Workspaces } from '#core/ports/workspace.ts';
import type { Skill, SkillEntry } from '#protocol/prompt-parts.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import { sha256Hex } from '#protocol/text/canonical-json.ts';
import { compareText } from '#protocol/text/compare-text.ts';
import { ToolError } from '#protocol/tool.ts';
import { createWorkspaceFiles } from './confined-files.ts';
import { describeProblem, errorCode, isMissing, listDirectory, readStart } from './descriptors.ts';
import type { OnceLogger } from './once-logger.ts';

const MAX_FILE_BYTES = 64 * 1024;
/** Maximum folders of one root in the index. */
const MAX_FOLDERS = 1000;
/** Maximum roots with cached files. */
const MAX_ROOTS = 64;
const MAX_PROBLEM = 500;

interface Root {
  /** Real path. */
  readonly path: string;
  readonly source: Skill['source'];
}

/** A `SKILL.md` that lies where a skill may. */
interface Found {
  readonly file: string;
  /** Real path of the skill's folder. */
  readonly folder: string;
}

/** By the path of the file: what the index needs of it, null for a broken one, as long as the stamp is the same. */
type Kept = Map<string, { readonly stamp: string; readonly entry: SkillEntry | null }>;

export interface Skills {
  readonly list: Workspaces['skills'];
  readonly load: Workspaces['skill'];
  readonly file: Workspaces['skillFile'];
}

/** @param globalPath absolute; may be a link */
export function createSkills(globalPath: string, log: OnceLogger): Skills {
  const kept = new Map<string, Kept>();

  /** From the lowest rank to the highest. */
  async function findRoots(workspace: string): Promise<readonly Root[]> {
    const found: Root[] = [];
    if (!isMissing(globalPath)) {
      const path = await realpath(globalPath).catch(() => null);
      if (path !== null) found.push({ path, source: 'global' });
    }
    const files = createWorkspaceFiles(workspace);
    for (const folder of ['.claude/skills', '.metis/skills']) {
      if (isMissing(`${workspace}/${folder}`)) continue;
      // A link out of the workspace or to an unreadable path is ignored.
      const path = await files.resolve(folder, 'read').catch((error: unknown) => {
        const fields = { workspace, folder, problem: describeProblem(error) };
        log.log('warn', `${workspace}/${folder}`, fields, 'a folder of skills is ignored');
        return null;
      });
      if (path !== null) found.push({ path: path.absolute, source: 'workspace' });
    }
    return found;
  }

  async function readEntries(root: Root): Promise<readonly SkillEntry[]> {
    const before = kept.get(root.path);
    const now: Kept = new Map();
    for (const name of await folderNames(root, log)) {
      const found = await locateSkill(root, name);
      if (found === null) continue;
      const stamp = await fileStamp(found.file);
      const known = before?.get(found.file);
      if (known?.stamp === stamp) now.set(found.file, known);
      else {
        const skill = await readSkillFile(found.file, name, log);
        const entry = skill.ok ? { name, description: skill.value.description } : null;
        now.set(found.file, { stamp, entry });
      }
    }
    kept.delete(root.path);
    for (const oldest of kept.keys()) if (kept.size >= MAX_ROOTS) kept.delete(oldest);
    kept.set(root.path, now);
    return [...now.values()].flatMap(({ entry }) => entry ?? []);
  }

  /** The first valid skill in the order of rank; if all are invalid, throws the problem of the first. */
  async function findSkillFolder(workspace: string, name: string): Promise<{ skill: Skill; folder: string } | null> {
    if (!isSkillName(name)) return null;
    let fault: string | null = null;
    for (const root of (await findRoots(workspace)).toReversed()) {
      const found = await locateSkill(root, name);
      if (found === null) continue;
      const read = await readSkillFile(found.file, name, log);
      if (read.ok) return { skill: { ...read.value, source: root.source }, folder: found.folder };
      fault ??= read.error;
    }
    if (fault === null) return null;
    throw new ToolError('execution_error', `skill '${name}' cannot be loaded: SKILL.md: ${fault}`);
  }

  return {
    async list(workspace) {
      const byName = new Map<string, { readonly entry: SkillEntry; readonly root: Root }>();
      for (const root of await findRoots(workspace)) {
        for (const entry of await readEntries(root)) {
          const other = byName.get(entry.name);
          if (other !== undefined) {
            const fields = { skill: entry.name, used: root.path, instead_of: other.root.path };
            log.log('info', `${root.path}/${entry.name}`, fields, 'two skills have the same name');
          }
          byName.set(entry.name, { entry, root });
        }
      }
      // Names are ASCII, so code unit order is byte order.
      return [...byName.keys()].sort().map((name) => byName.get(name)!.entry);
    },
    async load(workspace, name) {
      const skill = (await findSkillFolder(workspace, name))?.skill ?? null;
      if (skill !== null && skill.estimated_body_tokens > LARGE_BODY_TOKENS) {
        const fields = { skill: name, estimated_body_tokens: skill.estimated_body_tokens };
        log.log('warn', `${workspace} ${name} ${skill.version}`, fields, 'a skill is large: shorten its SKILL.md');
      }
      return skill;
    },
    async file(workspace, name, path) {
      const found = await findSkillFolder(workspace, name);
      if (found === null) return null;
      const files = createWorkspaceFiles(found.folder);
      const confined = await files.resolve(path, 'read');
      const data = await files.readFile(confined, MAX_FILE_BYTES);
      try {
        return new TextDecoder('utf-8', { fatal: true }).decode(data);
      } catch {
        throw new ToolError('execution_error', `not valid UTF-8 text: ${confined.relative}`);
      }
    },
  };
}

/** Names in byte order, of what may be a skill's folder. */
async function folderNames(root: Root, log: OnceLogger): Promise<readonly string[]> {
  const entries = await listDirectory(root.path).catch((error: unknown): readonly DirectoryEntry[] => {
    const fields = { path: root.path, problem: describeProblem(error) };
    log.log('warn', root.path, fields, 'a folder of skills cannot be read');
    return [];
  });
  const names = entries
    .filter(({ name, kind }) => kind !== 'file' && !name.startsWith('.'))
    .map(({ name }) => name)
    .sort(compareText);
  if (names.length > MAX_FOLDERS) {
    const fields = { path: root.path, folders: names.length };
    log.log('warn', root.path, fields, `a folder of skills has more than ${MAX_FOLDERS}; the first by name are listed`);
  }
  return names.slice(0, MAX_FOLDERS);
}

/** Null where there is no `SKILL.md`, or where a link takes it, or its folder, out of the root. */
async function locateSkill(root: Root, name: string): Promise<Found | null> {
  const path = `${root.path}/${name}/SKILL.md`;
  if (isMissing(path)) return null;
  const file = await realpath(path).catch(() => null);
  const folder = await realpath(dirname(path)).catch(() => null);
  const inside = (real: string | null): real is string => real?.startsWith(`${root.path}/`) ?? false;
  if (inside(file) && inside(folder)) return { file, folder };
  return null;
}

async function fileStamp(file: string): Promise<string> {
  const { mtimeMs, size } = await stat(file).catch(() => ({ mtimeMs: 0, size: -1 }));
  return `${mtimeMs} ${size}`;
}

/** The skill, or the problems of its file, which are logged once for each content. */
async function readSkillFile(
  file: string,
  name: string,
  log: OnceLogger,
): Promise<Result<Omit<Skill, 'source'>, string>> {
  let about: string;
  let fault: string;
  try {
    // One byte above the limit detects larger files.
    const data = await readStart(file, MAX_SKILL_BYTES + 1);
    if (data === null) return err('is missing');
    const read = data.length > MAX_SKILL_BYTES ? tooLargeError() : parseSkill(data, name);
    if (read.ok) {
      const { skill, warnings } = read.value;
      for (const problem of warnings)
        log.log(
          'warn',
          `${file} ${sha256Hex(data)} ${problem}`,
          { path: file, problem },
          'a skill is read with a warning',
        );
      return ok(skill);
    }
    about = sha256Hex(data);
    fault = read.error.join('; ').slice(0, MAX_PROBLEM);
  } catch (error) {
    fault = errorCode(error) ?? describeProblem(error);
    about = fault;
  }
  log.log('warn', `${file} ${about}`, { path: file, problem: fault }, 'a skill is ignored: its SKILL.md is not valid');
  return err(fault);
}

function parseSkill(data: Buffer, name: string): Result<ReadSkill, readonly string[]> {
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(data);
  } catch {
    return err(['is not valid UTF-8 text']);
  }
  return readSkill(text, name);
}

function tooLargeError(): Result<never, readonly string[]> {
  return err([`has more than ${MAX_SKILL_BYTES} bytes; move parts of it to files beside it`]);
}
