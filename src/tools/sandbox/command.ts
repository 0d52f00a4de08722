// One command as a process group of its own: what it prints, how it ended, and how to end all of it (09 §9.3, §13).
import { spawn } from 'node:child_process';
import { MAX_OUTPUT_BYTES } from '#core/policy/tools/tool-output.ts';
import type { Clock } from '#protocol/clock.ts';
import { createOutputWindow } from '../builtin/output-window.ts';
import { signalGroup } from './group.ts';

const GRACE_MS = 5000;
const DRAIN_MS = 1000;
// A process has two outputs and Node two pipes for them, which would lose the order: the shell joins them first.
const JOINED = ['-c', 'exec "$@" 2>&1', 'sh'];

export interface CommandEnd {
  /** Exit status; null when a signal ended it. */
  readonly code: number | null;
  readonly signal: string | null;
  /** Both outputs in the order they were written, the middle left out beyond 256 KiB. */
  readonly output: string;
}

export interface RunningCommand {
  /** Resolves when nothing of the group is left. Rejects when the command could not be started. */
  readonly ended: Promise<CommandEnd>;
  /**
   * SIGTERM to the group, SIGKILL after 5 s; resolves when it is gone, false when it was gone before.
   * @param withinMs where it must be gone sooner
   */
  stop(withinMs?: number): Promise<boolean>;
}

/** Starts `argv` with closed input. */
export function startCommand({
  argv,
  cwd,
  env,
  clock,
}: {
  readonly argv: readonly string[];
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
  readonly clock: Clock;
}): RunningCommand {
  const child = spawn('/bin/sh', [...JOINED, ...argv], {
    cwd,
    env,
    detached: true,
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const window = createOutputWindow(MAX_OUTPUT_BYTES / 2);
  child.stdout.on('data', (data: Buffer) => window.push(data));
  let over = false;

  const ended = new Promise<CommandEnd>((resolve, reject) => {
    child.once('error', (error) => {
      over = true;
      reject(error);
    });
    child.once('exit', (code, signal) => {
      const finish = () => {
        if (over) return;
        over = true;
        drain.cancel();
        // Whatever it left in the background would outlive the call.
        signalGroup(child.pid, 'SIGKILL');
        child.stdout.destroy();
        resolve({ code, signal, output: window.text() });
      };
      const drain = clock.after(DRAIN_MS, finish);
      if (child.stdout.closed) finish();
      else child.stdout.once('close', finish);
    });
  });
  return {
    ended,
    async stop(withinMs = GRACE_MS) {
      if (over) return false;
      signalGroup(child.pid, 'SIGTERM');
      const kill = clock.after(Math.min(GRACE_MS, withinMs), () => signalGroup(child.pid, 'SIGKILL'));
      await ended.catch(() => {});
      kill.cancel();
      return true;
    },
  };
}
