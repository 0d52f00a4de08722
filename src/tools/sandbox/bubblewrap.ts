// The shell sandbox: bubblewrap with a writable workspace, everything else read-only (09 §12).
import { spawn } from 'node:child_process';
import { lstat, mkdir, readdir, readFile, realpath, writeFile } from 'node:fs/promises';
import { ToolError } from '#protocol/tool.ts';
import { findWorktreeId, readOrigin } from '../worktree/origin.ts';

// Files of the workspace that stay read-only: trust, routing and worker definitions (09 §12, 13 §3.4).

const MCP_FILE = '.mcp.json';
/** Maximum files of prompts and schemas; each costs every command a system call. */
const MAX_FILES = 20_000;
const AT_ONCE = 64;

type Found = 'missing' | 'folder' | 'file';

/**
 * Mount arguments that keep these files read-only. Missing folders are created first, since only existing paths can be
 * mounted. Throws `ToolError('execution_error')` if a mount cannot protect a path.
 * @param projectFiles whether the server starts the programs that `.mcp.json` names
 */
async function protectedFiles(workspace: string, projectFiles: boolean): Promise<readonly string[]> {
  const held = createProtection(workspace);
  const args = [...(await held.protect('.metis'))];
  for (const name of ['trust.yaml', 'routing.yaml']) await held.look(`.metis/${name}`);
  for (const name of ['prompts', 'schemas']) await held.inspectBelow(`.metis/${name}`);
  args.push(...(await held.protect('workers')));
  const own = await held.inspectDefinitions('workers', /\.(yaml|json)$/i);
  const kept = await held.inspectDefinitions('.metis/workers', /\.(yaml|json)$/i);
  // A project without workers may use folders of these names for other purposes.
  if (own || kept)
    for (const name of ['prompts', 'schemas']) {
      args.push(...(await held.protect(name)));
      await held.inspectBelow(name);
    }
  // Mounted on itself, so that it cannot be moved away with what is mounted in it.
  await held.protect('.claude');
  args.push('--bind', `${workspace}/.claude`, `${workspace}/.claude`);
  if ((await held.look('.claude')) === 'folder') args.push(...(await held.protect('.claude/agents')));
  await held.inspectDefinitions('.claude/agents', /\.md$/i, true);
  if (projectFiles) {
    await writeFile(`${workspace}/${MCP_FILE}`, '{ "mcpServers": {} }\n', { flag: 'wx' }).catch(() => {});
    if ((await held.look(MCP_FILE)) !== 'file') throw protectionError(MCP_FILE, 'is not a regular file');
    args.push(...bindReadOnly(workspace, MCP_FILE));
  }
  return args;
}

function createProtection(workspace: string) {
  /** A mount protects a path only: the target of a link or another hard link stays writable. */
  async function inspect(path: string): Promise<Found> {
    const found = await lstat(`${workspace}/${path}`).catch(() => null);
    if (found === null) return 'missing';
    if (found.isSymbolicLink()) throw protectionError(path, 'is a link; put what it leads to in its place');
    if (found.isFile() && found.nlink > 1)
      throw protectionError(path, 'has a second name (a hard link); put a copy in its place');
    if (found.isDirectory()) return 'folder';
    return 'file';
  }
  /** A link out of the workspace is not a worker, and commands cannot write its target. */
  async function leadsOut(path: string): Promise<boolean> {
    if (!(await lstat(`${workspace}/${path}`).catch(() => null))?.isSymbolicLink()) return false;
    const real = await realpath(`${workspace}/${path}`).catch(() => null);
    return real !== null && !real.startsWith(`${workspace}/`);
  }
  return {
    look: inspect,
    /** Makes the path read-only. A missing path becomes a folder, so that the command cannot create it. */
    async protect(path: string): Promise<readonly string[]> {
      await mkdir(`${workspace}/${path}`).catch(() => {});
      const found = await inspect(path);
      if (found === 'missing') throw protectionError(path, 'is missing and cannot be made');
      if (path === '.metis' && found !== 'folder') throw protectionError(path, 'is not a directory');
      return bindReadOnly(workspace, path);
    },
    /** Whether the folder has definitions; inspects each. */
    async inspectDefinitions(folder: string, ending: RegExp, recursive = false): Promise<boolean> {
      if ((await inspect(folder)) !== 'folder') return false;
      const found = (await listNames(`${workspace}/${folder}`, recursive)).filter((name) => ending.test(name));
      await forEachBatch(found, async (name) => {
        const path = `${folder}/${name}`;
        if (!(await leadsOut(path))) await inspect(path);
      });
      return found.length > 0;
    },
    /** Inspects files below the folder; links are followed within the folder only. */
    async inspectBelow(folder: string): Promise<void> {
      if ((await inspect(folder)) !== 'folder') return;
      const entries = await readdir(`${workspace}/${folder}`, { recursive: true, withFileTypes: true });
      if (entries.length > MAX_FILES) throw protectionError(folder, `has more than ${MAX_FILES} files`);
      const files = entries.filter((entry) => entry.isFile());
      await forEachBatch(files, async ({ parentPath, name }) => {
        await inspect(`${parentPath}/${name}`.slice(workspace.length + 1));
      });
    },
  };
}

async function forEachBatch<T>(all: readonly T[], act: (one: T) => Promise<void>): Promise<void> {
  for (let i = 0; i < all.length; i += AT_ONCE) await Promise.all(all.slice(i, i + AT_ONCE).map(act));
}

function listNames(folder: string, recursive: boolean): Promise<readonly string[]> {
  return readdir(folder, { recursive }).catch(() => []);
}

function bindReadOnly(workspace: string, path: string): readonly string[] {
  return ['--ro-bind', `${workspace}/${path}`, `${workspace}/${path}`];
}

function protectionError(path: string, reason: string): ToolError {
  return new ToolError('execution_error', `the shell sandbox cannot protect ${path}: it ${reason}`);
}

interface SandboxOptions {
  /** Whether the command may use the network. */
  readonly network: boolean;
  /** The server's data folder, which the command must not see; null = none. */
  readonly dataFolder: string | null;
  /** Holds the worktrees of workers; absent or null = `worktrees` in the data folder. */
  readonly worktreesFolder?: string | null;
  /** The server starts the programs that a workspace's `.mcp.json` names: a command must not write there. */
  readonly projectFiles: boolean;
  readonly env: Readonly<Record<string, string>>;
}

/** Wraps a command line so that it runs in the sandbox. Throws `ToolError('execution_error')` if that is impossible. */
export type Sandbox = (
  workspace: string,
  argv: readonly string[],
  /** The temporary folder of a worker, which the command may write; absent = an empty one for this command alone. */
  temporary?: string | null,
) => Promise<readonly string[]>;

const MAX_SOCKETS = 200;
/** Permission bits of owner, group and others. */
const ANY_WRITE = 0o222;

export function createSandbox(options: SandboxOptions): Sandbox {
  const verified = new Set<string>();
  return async (workspace, argv, temporary = null) => {
    const prefix = await buildArguments(workspace, options, temporary);
    // Workers differ in their temporary folder alone.
    const key = prefix.filter((argument) => argument !== temporary).join('\0');
    if (!verified.has(key) && !(await canRun(prefix, options.env))) {
      throw new ToolError('execution_error', 'the shell sandbox is required but bubblewrap is not available');
    }
    verified.add(key);
    return [...prefix, ...argv];
  };
}

async function buildArguments(
  workspace: string,
  options: SandboxOptions,
  temporary: string | null,
): Promise<readonly string[]> {
  const hidden = options.dataFolder === null ? null : await realpath(options.dataFolder).catch(() => null);
  // A data folder inside the workspace must be covered after the workspace, one around it before.
  const [before, after, readOnly]: [string[], string[], string[]] = [[], [], []];
  if (hidden?.startsWith(`${workspace}/`)) after.push('--tmpfs', hidden);
  else if (hidden !== null) before.push('--tmpfs', hidden);
  if (hidden !== null && hidden !== workspace) readOnly.push('--remount-ro', hidden);
  const home = options.worktreesFolder ?? (hidden === null ? null : `${hidden}/worktrees`);
  const isElsewhere = home !== null && (hidden === null || !home.startsWith(`${hidden}/`));
  if (isElsewhere && workspace.startsWith(`${home}/`)) {
    before.push('--tmpfs', home);
    readOnly.push('--remount-ro', home);
  }
  const caller = await bindCaller(workspace, hidden, home);
  return [
    ...['bwrap', '--die-with-parent', '--cap-drop', 'ALL'],
    ...['--unshare-user', '--unshare-pid', '--unshare-ipc', '--unshare-uts'],
    ...(options.network ? [] : ['--unshare-net']),
    ...['--ro-bind', '/', '/', '--dev', '/dev', '--proc', '/proc', '--tmpfs', '/tmp'],
    ...(await bindKernelSettings()),
    ...hideServiceSockets(),
    ...(await hideOtherSockets(workspace)),
    // A caller's workspace that lies in the data folder is mounted over its cover, one around it under the cover.
    ...caller.under,
    ...before,
    ...caller.over,
    ...['--bind', workspace, workspace, ...(await protectedFiles(workspace, options.projectFiles))],
    ...caller.within,
    ...after,
    ...(temporary === null ? [] : ['--bind', temporary, temporary]),
    ...readOnly,
    ...(temporary === null ? ['--setenv', 'TMPDIR', '/tmp'] : []),
    ...['--chdir', workspace, '--'],
  ];
}

/** The caller's workspace of a worktree, read-only: its repository, and the folders that the worktree links to. */
async function bindCaller(
  workspace: string,
  dataFolder: string | null,
  home: string | null,
): Promise<{
  readonly under: readonly string[];
  readonly over: readonly string[];
  readonly within: readonly string[];
}> {
  const id = home === null ? null : findWorktreeId(home, workspace);
  const origin = id === null ? null : await readOrigin(`${home}/${id}.git`).catch(() => null);
  const paths = origin === null ? [] : [origin.repository, origin.root];
  const isAround = (path: string) =>
    dataFolder?.startsWith(`${path}/`) === true || home?.startsWith(`${path}/`) === true;
  const bind = (path: string) => ['--ro-bind-try', path, path];
  return {
    under: paths.filter(isAround).flatMap(bind),
    over: paths.filter((path) => !isAround(path)).flatMap(bind),
    // Cloned folders of the caller, which lie in the worktree.
    within: Object.values(origin?.links ?? {})
      .filter((path) => path.startsWith(`${workspace}/`))
      .flatMap(bind),
  };
}

/**
 * Files of /proc that configure the kernel, read-only. The kernel asks for no capability there: their owner is root, so a
 * command of a server that runs as root could write them. What belongs to a process stays as it is.
 */
async function bindKernelSettings(): Promise<readonly string[]> {
  if (process.getuid?.() !== 0) return [];
  const entries = await readdir('/proc', { withFileTypes: true }).catch(() => []);
  const shared: string[] = [];
  for (const entry of entries) {
    if (/^\d+$/.test(entry.name) || entry.isSymbolicLink()) continue;
    const path = `/proc/${entry.name}`;
    const mode = (await lstat(path).catch(() => null))?.mode ?? 0;
    if (entry.isDirectory() || (mode & ANY_WRITE) !== 0) shared.push('--ro-bind-try', path, path);
  }
  return shared;
}

/**
 * Sockets of the system's services (a container daemon's, for one) answer through a read-only mount too, so their folder
 * is empty but for what programs and names are found by.
 */
function hideServiceSockets(): readonly string[] {
  const kept = ['/run/current-system', '/run/wrappers', '/run/systemd/resolve'];
  return ['--tmpfs', '/run', ...kept.flatMap((path) => ['--ro-bind-try', path, path])];
}

/**
 * Covers other sockets, such as those of a container desktop or a key agent in a home folder. Sockets in the workspace
 * stay reachable.
 */
async function hideOtherSockets(workspace: string): Promise<readonly string[]> {
  const table = await readFile('/proc/net/unix', 'utf8').catch(() => '');
  const bound = new Set(table.split('\n').flatMap((line) => /^\S+: (?:\S+ +){6}(\/.*)$/.exec(line)?.[1] ?? []));
  const covered = new Set<string>();
  for (const path of bound) {
    const real = await realpath(path).catch(() => null);
    if (real === null || /^\/(tmp|run|proc|dev)\//.test(real) || real.startsWith(`${workspace}/`)) continue;
    if (
      await lstat(real).then(
        (stat) => stat.isSocket(),
        () => false,
      )
    )
      covered.add(real);
    if (covered.size === MAX_SOCKETS) break;
  }
  return [...covered].sort().flatMap((path) => ['--ro-bind-try', '/dev/null', path]);
}

function canRun(prefix: readonly string[], env: Readonly<Record<string, string>>): Promise<boolean> {
  const [program = '', ...args] = prefix;
  return new Promise((resolve) => {
    const child = spawn(program, [...args, 'true'], { env, stdio: 'ignore' });
    child.once('error', () => resolve(false));
    child.once('exit', (code) => resolve(code === 0));
  });
}
