// The cage of a command: bubblewrap around the workspace, everything else read-only (09 §12).
import { spawn } from 'node:child_process';
import { lstat, mkdir, realpath } from 'node:fs/promises';
import { ToolError } from '../../domain/tool.ts';

export interface SandboxOptions {
  /** Leaves the network reachable. */
  readonly network: boolean;
  /** The server's data folder, which the command must not see; null = none. */
  readonly dataFolder: string | null;
  readonly env: Readonly<Record<string, string>>;
}

/** Turns a command line into one that runs caged. Throws `ToolError('execution_error')` where that cannot work. */
export type Sandbox = (workspace: string, argv: readonly string[]) => Promise<readonly string[]>;

export function createSandbox(options: SandboxOptions): Sandbox {
  const proven = new Set<string>();
  return async (workspace, argv) => {
    await protectMetis(workspace);
    const prefix = await bubblewrap(workspace, options);
    const key = prefix.join('\0');
    if (!proven.has(key) && !(await works(prefix, options.env))) {
      throw new ToolError('execution_error', 'the shell sandbox is required but bubblewrap is not available');
    }
    proven.add(key);
    return [...prefix, ...argv];
  };
}

/** The folder must be there to be mounted read-only; otherwise the command could create it. */
async function protectMetis(workspace: string): Promise<void> {
  const path = `${workspace}/.metis`;
  await mkdir(path).catch(() => {});
  if (!(await lstat(path)).isDirectory()) {
    throw new ToolError('execution_error', 'the shell sandbox cannot protect .metis: it is not a directory');
  }
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
    ...sockets(),
    ...(inside ? [] : hide),
    ...['--bind', workspace, workspace, '--ro-bind', `${workspace}/.metis`, `${workspace}/.metis`],
    ...(inside ? hide : []),
    ...(hidden === null || hidden === workspace ? [] : ['--remount-ro', hidden]),
    ...['--setenv', 'TMPDIR', '/tmp', '--chdir', workspace, '--'],
  ];
}

/**
 * Sockets of the system's services (a container daemon's, for one) answer through a read-only mount too, so their folder
 * is empty but for what programs and names are found by.
 */
function sockets(): readonly string[] {
  const kept = ['/run/current-system', '/run/wrappers', '/run/systemd/resolve'];
  return ['--tmpfs', '/run', ...kept.flatMap((path) => ['--ro-bind-try', path, path])];
}

function works(prefix: readonly string[], env: Readonly<Record<string, string>>): Promise<boolean> {
  const [program = '', ...args] = prefix;
  return new Promise((resolve) => {
    const child = spawn(program, [...args, 'true'], { env, stdio: 'ignore' });
    child.once('error', () => resolve(false));
    child.once('exit', (code) => resolve(code === 0));
  });
}
