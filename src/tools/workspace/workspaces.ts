// Everything the engine asks of a workspace folder, in one port (09 §5.1, §8, 10).
import { realpathSync } from 'node:fs';
import { realpath, stat } from 'node:fs/promises';
import { homedir } from 'node:os';
import type { Logger } from '#core/ports/log.ts';
import type { WorkerLibrary } from '#core/ports/worker-library.ts';
import type { Workspaces } from '#core/ports/workspace.ts';
import { isMissing } from './descriptors.ts';
import { readImage } from './images.ts';
import { readInstructions } from './instructions.ts';
import { changeMemory, memoryText } from './memory.ts';
import { createWorkspaceFiles } from './paths.ts';
import { readRoutingFile } from './routing-files.ts';
import { createSaidOnce } from './said-once.ts';
import { createSandboxFiles, openSandboxes } from './sandboxes.ts';
import { createSkills } from './skills.ts';
import { persistTrust, readTrust } from './trust.ts';
import { withoutDefinitions } from './workers/write-guard.ts';

/** @param paths absolute: the routing file and the skills folder that hold for every workspace */
export function createWorkspaces({
  globalRoutingPath,
  globalSkillsPath,
  library,
  dataFolder,
  log,
}: {
  readonly globalRoutingPath: string;
  readonly globalSkillsPath: string;
  readonly library: WorkerLibrary;
  /** The server's own, which no file tool shows or changes; it exists. */
  readonly dataFolder?: string;
  readonly log: Logger;
}): Workspaces {
  // Some files are read before every call of a model: the same complaint every time would say nothing new.
  const once = createSaidOnce(log);
  const skills = createSkills(globalSkillsPath, once);
  // A model must not write what a worker is made of.
  const hidden = dataFolder === undefined ? null : realpathSync(dataFolder);
  const guarded = (root: string) => withoutDefinitions(root, createWorkspaceFiles(root, hidden), library);
  const globalRoutingFile = async () => readRoutingFile(globalRoutingPath, await real(globalRoutingPath), log);

  return {
    realDirectory,
    files: guarded,
    sandboxes: (root, sandboxes) => createSandboxFiles(root, guarded(root), sandboxes),
    openSandboxes: (root, sandboxes) => openSandboxes(root, guarded(root), sandboxes),
    readTrust: (root) => readTrust(root, log),
    persistTrust: (root, change, store) => persistTrust(root, change, store, log),
    instructions: (root, names) => readInstructions(createWorkspaceFiles(root), names, log),
    memoryText: (root) => memoryText(createWorkspaceFiles(root), once),
    changeMemory: (root, change) => changeMemory(createWorkspaceFiles(root), change),
    skills: skills.list,
    skill: skills.load,
    skillFile: skills.file,
    readImage: (root, path) => readImage(createWorkspaceFiles(root, hidden), path),
    async routingFiles(root) {
      const path = `${root}/.metis/routing.yaml`;
      const [workspace, global] = await Promise.all([readRoutingFile(path, path, log), globalRoutingFile()]);
      return { workspace, global };
    },
    globalRoutingFile,
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
  return isDirectory ? found : null;
}

/** A person may keep the global file wherever a link says; a link inside a workspace is not followed. */
async function real(path: string): Promise<string> {
  return isMissing(path) ? path : realpath(path).catch(() => path);
}
