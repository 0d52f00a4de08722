// Runs the command of a check, sandboxed and limited as the shell (20 §10).
import type { Check } from '#protocol/check.ts';
import type { CheckFolder } from './worktrees.ts';

export interface CheckRun {
  readonly folder: CheckFolder;
  readonly check: Pick<Check, 'command' | 'timeout_seconds'>;
  /** In the environment of every process of the command, so that they are found after a crash. */
  readonly marker: string;
  /** Ends the command when it aborts. */
  readonly signal: AbortSignal;
  /** Called with the leader of the process group, once the command runs. */
  onStarted(processGroup: number): Promise<void>;
}

export interface CheckEnd {
  /** Null where a signal or the time limit ended it. */
  readonly exit_code: number | null;
  /** At most the last 16 KiB. */
  readonly output: string;
  readonly wall_time_seconds: number;
}

export interface CheckRunner {
  /** Resolves when the whole process group has ended. Throws `ToolError` where the command cannot be started. */
  run(run: CheckRun): Promise<CheckEnd>;
  /** Kills what an earlier process left of commands with these markers. Returns how many process groups there were. */
  killLeft(markers: readonly string[]): Promise<number>;
}
