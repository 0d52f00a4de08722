// The cage of a command: bubblewrap around the workspace, everything else read-only (09 §12).
import { spawn } from 'node:child_process';
import { lstat, readdir, readFile, realpath } from 'node:fs/promises';
import { ToolError } from '#protocol/tool.ts';
import { protectedFiles } from './protected-files.ts';

export interface SandboxOptions {
  /** Leaves the network reachable. */
  readonly network: boolean;
  /** The server's data folder, which the command must not see; null = none. */
  readonly dataFolder: string | null;
  /** The server starts the programs that a workspace's `.mcp.json` names: a command must not write there. */
  readonly projectFiles: boolean;
  readonly env: Readonly<Record<string, string>>;
}

/** Turns a command line into one that runs caged. Throws `ToolError('execution_error')` where that cannot work. */
export type Sandbox = (workspace: string, argv: readonly string[]) => Promise<readonly string[]>;

const MAX_SOCKETS = 200;
/** Permission bits of owner, group and others. */
const ANY_WRITE = 0o222;

export function createSandbox(options: SandboxOptions): Sandbox {
  const proven = new Set<string>();
  return async (workspace, argv) => {
    const prefix = await bubblewrap(workspace, options);
    const key = prefix.join('\0');
    if (!proven.has(key) && !(await works(prefix, options.env))) {
      throw new ToolError('execution_error', 'the shell sandbox is required but bubblewrap is not available');
    }
    proven.add(key);
    return [...prefix, ...argv];
  };
}

async function bubblewrap(workspace: string, options: SandboxOptions): Promise<readonly string[]> {
  const hidden = options.dataFolder === null ? null : await realpath(options.dataFolder).catch(() => null);
  const hide = hidden === null ? [] : ['--tmpfs', hidden];
  // A data folder inside the workspace must be covered after the workspace, one around it before.
  const inside = hidden?.startsWith(`${workspace}/`) ?? false;
  return [
    ...['bwrap', '--die-with-parent', '--cap-drop', 'ALL'],
    ...['--unshare-user', '--unshare-pid', '--unshare-ipc', '--unshare-uts'],
    ...(options.network ? [] : ['--unshare-net']),
    ...['--ro-bind', '/', '/', '--dev', '/dev', '--proc', '/proc', '--tmpfs', '/tmp'],
    ...(await kernelSettings()),
    ...serviceSockets(),
    ...(await otherSockets(workspace)),
    ...(inside ? [] : hide),
    ...['--bind', workspace, workspace, ...(await protectedFiles(workspace, options.projectFiles))],
    ...(inside ? hide : []),
    ...(hidden === null || hidden === workspace ? [] : ['--remount-ro', hidden]),
    ...['--setenv', 'TMPDIR', '/tmp', '--chdir', workspace, '--'],
  ];
}

/**
 * Files of /proc that configure the kernel, read-only. The kernel asks for no capability there: their owner is root, so a
 * command of a server that runs as root could write them. What belongs to a process stays as it is.
 */
async function kernelSettings(): Promise<readonly string[]> {
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
function serviceSockets(): readonly string[] {
  const kept = ['/run/current-system', '/run/wrappers', '/run/systemd/resolve'];
  return ['--tmpfs', '/run', ...kept.flatMap((path) => ['--ro-bind-try', path, path])];
}

/**
 * Sockets elsewhere, such as a container desktop's or a key agent's in somebody's home: nothing answers behind them. Those
 * of the workspace are its own.
 */
async function otherSockets(workspace: string): Promise<readonly string[]> {
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

function works(prefix: readonly string[], env: Readonly<Record<string, string>>): Promise<boolean> {
  const [program = '', ...args] = prefix;
  return new Promise((resolve) => {
    const child = spawn(program, [...args, 'true'], { env, stdio: 'ignore' });
    child.once('error', () => resolve(false));
    child.once('exit', (code) => resolve(code === 0));
  });
}
