// What a command must not change although it lies in the workspace: trust, and who its workers are (09 §12, 13 §3.4).
import { lstat, mkdir, readdir, realpath, writeFile } from 'node:fs/promises';
import { ToolError } from '#protocol/tool.ts';

const MCP_FILE = '.mcp.json';
/** Files of prompts and schemas that are looked at; each costs every command a system call. */
const MAX_FILES = 20_000;
const AT_ONCE = 64;

type Found = 'missing' | 'folder' | 'file';

/**
 * The mounts that keep them. What is missing is made first, since only what is there can be mounted; throws
 * `ToolError('execution_error')` where no mount would help.
 * @param projectFiles whether the server starts the programs that `.mcp.json` names
 */
export async function protectedFiles(workspace: string, projectFiles: boolean): Promise<readonly string[]> {
  const held = holder(workspace);
  const args = [...(await held.taken('.metis'))];
  for (const name of ['trust.yaml', 'routing.yaml']) await held.look(`.metis/${name}`);
  for (const name of ['prompts', 'schemas']) await held.lookBelow(`.metis/${name}`);
  args.push(...(await held.taken('workers')));
  const own = await held.definitions('workers', /\.(yaml|json)$/i);
  const kept = await held.definitions('.metis/workers', /\.(yaml|json)$/i);
  // They are of no meaning to a project without workers, which may have folders of these names for something else.
  if (own || kept)
    for (const name of ['prompts', 'schemas']) {
      args.push(...(await held.taken(name)));
      await held.lookBelow(name);
    }
  // Mounted on itself, so that it cannot be moved away with what is mounted in it.
  await held.taken('.claude');
  args.push('--bind', `${workspace}/.claude`, `${workspace}/.claude`);
  if ((await held.look('.claude')) === 'folder') args.push(...(await held.taken('.claude/agents')));
  await held.definitions('.claude/agents', /\.md$/i, true);
  if (projectFiles) {
    await writeFile(`${workspace}/${MCP_FILE}`, '{ "mcpServers": {} }\n', { flag: 'wx' }).catch(() => {});
    if ((await held.look(MCP_FILE)) !== 'file') throw unprotected(MCP_FILE, 'is not a regular file');
    args.push(...readOnly(workspace, MCP_FILE));
  }
  return args;
}

function holder(workspace: string) {
  /** A mount holds a path: what a link leads to, or a file's second name, stays open. */
  async function look(path: string): Promise<Found> {
    const found = await lstat(`${workspace}/${path}`).catch(() => null);
    if (found === null) return 'missing';
    if (found.isSymbolicLink()) throw unprotected(path, 'is a link; put what it leads to in its place');
    if (found.isFile() && found.nlink > 1)
      throw unprotected(path, 'has a second name (a hard link); put a copy in its place');
    return found.isDirectory() ? 'folder' : 'file';
  }
  /** Such a link is no worker, and out of a command's reach. */
  async function leadsOut(path: string): Promise<boolean> {
    if (!(await lstat(`${workspace}/${path}`).catch(() => null))?.isSymbolicLink()) return false;
    const real = await realpath(`${workspace}/${path}`).catch(() => null);
    return real !== null && !real.startsWith(`${workspace}/`);
  }
  return {
    look,
    /** Read-only, whatever stands there; a folder where nothing does, else the command could make it. */
    async taken(path: string): Promise<readonly string[]> {
      await mkdir(`${workspace}/${path}`).catch(() => {});
      const found = await look(path);
      if (found === 'missing') throw unprotected(path, 'is missing and cannot be made');
      if (path === '.metis' && found !== 'folder') throw unprotected(path, 'is not a directory');
      return readOnly(workspace, path);
    },
    /** Whether the folder holds some. */
    async definitions(folder: string, ending: RegExp, recursive = false): Promise<boolean> {
      if ((await look(folder)) !== 'folder') return false;
      const found = (await names(`${workspace}/${folder}`, recursive)).filter((name) => ending.test(name));
      await eachOf(found, async (name) => {
        const path = `${folder}/${name}`;
        if (!(await leadsOut(path))) await look(path);
      });
      return found.length > 0;
    },
    /** Links in it are followed within it only: they need no look of their own. */
    async lookBelow(folder: string): Promise<void> {
      if ((await look(folder)) !== 'folder') return;
      const entries = await readdir(`${workspace}/${folder}`, { recursive: true, withFileTypes: true });
      if (entries.length > MAX_FILES) throw unprotected(folder, `has more than ${MAX_FILES} files`);
      const files = entries.filter((entry) => entry.isFile());
      await eachOf(files, async ({ parentPath, name }) => {
        await look(`${parentPath}/${name}`.slice(workspace.length + 1));
      });
    },
  };
}

async function eachOf<T>(all: readonly T[], act: (one: T) => Promise<void>): Promise<void> {
  for (let i = 0; i < all.length; i += AT_ONCE) await Promise.all(all.slice(i, i + AT_ONCE).map(act));
}

function names(folder: string, recursive: boolean): Promise<readonly string[]> {
  return readdir(folder, { recursive }).catch(() => []);
}

function readOnly(workspace: string, path: string): readonly string[] {
  return ['--ro-bind', `${workspace}/${path}`, `${workspace}/${path}`];
}

function unprotected(path: string, reason: string): ToolError {
  return new ToolError('execution_error', `the shell sandbox cannot protect ${path}: it ${reason}`);
}
