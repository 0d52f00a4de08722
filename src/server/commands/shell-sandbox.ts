// Whether the cage that `tools.shell.sandbox: required` asks for works on this machine (09 §12).
import { spawnSync } from 'node:child_process';
import { shellEnvironment } from '#tools/sandbox/command.ts';
import type { Env } from '../credentials.ts';

const LIMIT_MS = 5000;

export const NO_SANDBOX =
  'tools.shell.sandbox is "required" but bwrap does not work here; install bubblewrap, allow unprivileged user namespaces, or set it to "off"';

/** Where the system allows no namespaces of one's own, bubblewrap is installed and works all the same not. */
export function canSandbox(env: Env): boolean {
  const cage = ['--unshare-user', '--unshare-pid', '--unshare-net', '--ro-bind', '/', '/', 'true'];
  return spawnSync('bwrap', cage, { env: shellEnvironment(env, []), timeout: LIMIT_MS }).status === 0;
}

export const RUNS_AS_ROOT =
  'the server runs as root, so a command of the shell tool that is approved can change this machine; run it as a user of its own';

/** Whether this process is the superuser of its system. */
export function isRoot(): boolean {
  return process.getuid?.() === 0;
}
