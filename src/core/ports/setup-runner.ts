// Runs the setup command of a worktree, sandboxed and limited as the shell (20 §2.2).
import type { SessionId } from '#protocol/ids.ts';

export interface SetupRun {
  readonly session_id: SessionId;
  /** The worker's tree. */
  readonly root: string;
  readonly command: string;
  /** Ends the command when it aborts. */
  readonly signal: AbortSignal;
}

export interface SetupRunner {
  /** Why the command failed, with the end of its output; null = it exited with 0. Throws the reason of the signal. */
  run(run: SetupRun): Promise<string | null>;
}
