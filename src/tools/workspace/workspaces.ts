// The `Workspaces` port: files, trust, memory, skills, instructions, images and routing files of a folder (09 §5.1, §8, 10).
import { realpathSync } from 'node:fs';
import { realpath, stat } from 'node:fs/promises';
import { homedir } from 'node:os';
import { resolve } from 'node:path';
import { faultOfSize, imageType, MAX_IMAGE_BYTES } from '#core/policy/context/image-blocks.ts';
import { OUTSIDE } from '#core/policy/parsing/text-limits.ts';
import { utf8Head } from '#core/policy/tools/tool-output.ts';
import type { Logger } from '#core/ports/logger.ts';
import type { WorkerLibrary, WorkspaceFiles, Workspaces } from '#core/ports/workspace.ts';
import { type Awaitable, continueWith, gatherAll } from '#protocol/async/awaitable.ts';
import type { ImageBlock } from '#protocol/message.ts';
import { ToolError } from '#protocol/tool.ts';
import { readLinkedFolders } from '../worktree/linked-files.ts';
import { createWorkspaceFiles } from './confined-files.ts';
import { describeProblem, isMissing, readStart } from './descriptors.ts';
import { changeMemory, memoryText } from './memory-files.ts';
import { createOnceLogger } from './once-logger.ts';
import { changeRoutingFile, findRoutingFile, readRoutingFile } from './routing-files.ts';
import { createSkills } from './skill-folders.ts';
import { persistTrust, readTrust } from './trust-yaml.ts';
import { protectDefinitions } from './worker-files.ts';
import { createSandboxFiles, openSandboxes } from './worker-sandboxes.ts';

// Instructions of the project for every agent: the first instruction file that exists (10 §2).

const MAX_INSTRUCTION_BYTES = 32 * 1024;

/** The first of `names` (workspace-relative) that is a readable file, cut at 32 KiB with a note; null when there is none. */
async function readInstructions(
  files: WorkspaceFiles,
  names: readonly string[],
  log: Logger,
): Promise<{ readonly path: string; readonly text: string } | null> {
  for (const name of names) {
    if (isMissing(resolve(files.root, name))) continue;
    try {
      const data = await readStart((await files.resolve(name, 'read')).absolute, MAX_INSTRUCTION_BYTES + 1);
      if (data === null) continue;
      const text = utf8Head(data, MAX_INSTRUCTION_BYTES).toString('utf8');
      if (data.length <= MAX_INSTRUCTION_BYTES) return { path: name, text };
      return { path: name, text: `${text}\n[truncated: ${name} exceeds ${MAX_INSTRUCTION_BYTES} bytes]` };
    } catch (error) {
      log.warn({ path: resolve(files.root, name), problem: describeProblem(error) }, 'an instruction file is ignored');
    }
  }
  return null;
}

// Images of the workspace, read once and kept as bytes (10 §8).

/** Null when the file is missing, outside, too large or no supported image. */
async function readImage(files: WorkspaceFiles, path: string): Promise<ImageBlock | null> {
  try {
    const data = await files.readFile(await files.resolve(path, 'read'), MAX_IMAGE_BYTES);
    const type = imageType(data);
    if (type === null || faultOfSize(data, type) !== null) return null;
    return { type: 'image', source: { kind: 'base64', data: data.toString('base64') }, media_type: type };
  } catch (error) {
    if (error instanceof ToolError) return null;
    throw error;
  }
}

const NO_FOLDERS: Workspaces['temporary'] = { remove: async () => {}, list: async () => [] };

/** @param paths absolute: the routing file and the skills folder that hold for every workspace */
export function createWorkspaces({
  globalRoutingPath,
  globalSkillsPath,
  library,
  dataFolder,
  worktreesFolder,
  temporary = NO_FOLDERS,
  log,
}: {
  readonly globalRoutingPath: string;
  readonly globalSkillsPath: string;
  readonly library: WorkerLibrary;
  /** The server's own, which no file tool shows or changes; it exists. */
  readonly dataFolder?: string;
  /** Real path of the folder that holds the worktrees of workers. */
  readonly worktreesFolder?: string;
  /** Absent = no worker has one. */
  readonly temporary?: Workspaces['temporary'];
  readonly log: Logger;
}): Workspaces {
  // Some files are read before every model call: each problem is logged once.
  const once = createOnceLogger(log);
  const skills = createSkills(globalSkillsPath, once);
  // A model must not write what a worker is made of.
  const hidden = dataFolder === undefined ? null : realpathSync(dataFolder);
  const createConfinedFiles = (root: string) => {
    const files = createWorkspaceFiles(root, hidden);
    if (worktreesFolder === undefined) return files;
    return readLinkedFolders(worktreesFolder, files, (folder) => createWorkspaceFiles(folder, hidden));
  };
  const createGuardedFiles = (root: string) => protectDefinitions(root, createConfinedFiles(root), library);
  const globalRoutingFile = () =>
    continueWith(real(globalRoutingPath), (path) => readRoutingFile(globalRoutingPath, path, log));

  return {
    temporary,
    realDirectory,
    files: createGuardedFiles,
    sandboxes: (root, sandboxes) => createSandboxFiles(root, createGuardedFiles(root), sandboxes),
    openSandboxes: (root, sandboxes) => openSandboxes(root, createGuardedFiles(root), sandboxes),
    readTrust: (root) => readTrust(root, log),
    persistTrust: (root, change, store) => persistTrust(root, change, store, log),
    instructions: (root, names) => readInstructions(createWorkspaceFiles(root), names, log),
    memoryText: (root) => memoryText(createWorkspaceFiles(root), once),
    changeMemory: (root, change) => changeMemory(createWorkspaceFiles(root), change),
    skills: skills.list,
    skill: skills.load,
    skillFile: skills.file,
    readImage: (root, path) => readImage(createWorkspaceFiles(root, hidden), path),
    routingFiles(root) {
      const path = findRoutingFile(root);
      const files = gatherAll([readRoutingFile(path, path, log), globalRoutingFile()]);
      return continueWith(files, ([workspace, global]) => ({ workspace, global }));
    },
    globalRoutingFile,
    changeRoutingFile,
  };
}

async function realDirectory(path: string): Promise<string | null> {
  const expanded = path === '~' || path.startsWith('~/') ? `${homedir()}${path.slice(1)}` : path;
  if (!expanded.startsWith('/') || expanded.includes('\0')) return null;
  const found = await real(expanded);
  const isDirectory = await stat(found).then(
    (s) => s.isDirectory(),
    () => false,
  );
  if (isDirectory) return found;
  return null;
}

/** The global file may be a link; a link inside a workspace is not followed. */
function real(path: string): Awaitable<string> {
  if (isMissing(path)) return path;
  return realpath(path).catch(() => path);
}

// The text of a workspace's `.mcp.json`, a file that other programs read too (09 §11, 18 §2).

const MCP_FILE = '.mcp.json';

/** One byte more than is allowed at most, so that a reader sees that it is too long. Null when there is none to read. */
export async function readMcpFile(root: string, log: Logger): Promise<string | null> {
  try {
    // A link in its place is refused: file tools may write what it leads to.
    return (await readStart(`${root}/${MCP_FILE}`, OUTSIDE.bytes + 1))?.toString('utf8') ?? null;
  } catch (error) {
    log.warn({ workspace: root }, `.mcp.json: ${describeProblem(error)}; it is ignored`);
    return null;
  }
}
