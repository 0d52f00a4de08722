// Runs the setup command of a new worktree as the shell runs commands: same sandbox, same environment (20 §2.2).
import type { SetupRunner } from '#core/ports/setup-runner.ts';
import type { TemporaryFolders } from '#core/ports/workspace.ts';
import type { Clock } from '#protocol/clock.ts';
import { TreeLost } from '#protocol/journal-batch.ts';
import { ToolError } from '#protocol/tool.ts';
import type { Sandbox } from './bubblewrap.ts';
import { startCommand } from './command.ts';

const MAX_SECONDS = 120;
/** Of the end of its output, in an error. */
const MAX_SHOWN = 1000;

export interface SetupRunnerOptions {
  /** The whole environment of the command. */
  readonly env: Readonly<Record<string, string>>;
  /** Null = commands run as the server does. */
  readonly sandbox: Sandbox | null;
  readonly temporary: Pick<TemporaryFolders, 'open'>;
  readonly clock: Clock;
}

export function createSetupRunner({ env, sandbox, temporary, clock }: SetupRunnerOptions): SetupRunner {
  return {
    async run({ session_id, root, command, signal }) {
      const plain = ['/bin/sh', '-c', command];
      const own = await temporary.open(session_id);
      let started: ReturnType<typeof startCommand>;
      try {
        const argv = (await sandbox?.(root, plain, own)) ?? plain;
        signal.throwIfAborted();
        started = startCommand({ argv, cwd: root, env: { ...env, TMPDIR: own, TMP: own, TEMP: own }, clock });
      } catch (error) {
        if (error instanceof ToolError) return error.message;
        throw error;
      }
      let isLate = false;
      const expiry = clock.after(MAX_SECONDS * 1000, () => {
        isLate = true;
        void started.stop();
      });
      const onAbort = () =>
        void started.stop(signal.reason instanceof TreeLost ? signal.reason.patience_ms : undefined);
      signal.addEventListener('abort', onAbort, { once: true });
      try {
        const end = await started.ended.catch(() => null);
        signal.throwIfAborted();
        if (end === null) return 'it could not be started';
        if (end.code === 0 && !isLate) return null;
        const shown = end.output.trim().slice(-MAX_SHOWN);
        return [describeEnd(end, isLate), shown].filter((part) => part !== '').join('\n');
      } finally {
        expiry.cancel();
        signal.removeEventListener('abort', onAbort);
      }
    },
  };
}

function describeEnd(
  { code, signal }: { readonly code: number | null; readonly signal: string | null },
  isLate: boolean,
) {
  if (isLate) return `it was stopped after ${MAX_SECONDS} s`;
  return code === null ? `it ended by ${signal}` : `exit code ${code}`;
}
