// Runs checks as the shell runs commands: same sandbox, same environment, without credentials (20 §10.2).
import { readdir, readFile } from 'node:fs/promises';
import { utf8Tail } from '#core/policy/tools/tool-output.ts';
import type { CheckEnd, CheckRunner } from '#core/ports/check-runner.ts';
import { CHECK_MARKER } from '#protocol/check.ts';
import type { Clock } from '#protocol/clock.ts';
import { TreeLost } from '#protocol/journal-batch.ts';
import { ToolError } from '#protocol/tool.ts';
import type { Sandbox } from './bubblewrap.ts';
import { signalGroup, startCommand } from './command.ts';

/** Bytes kept of the output of a check. */
const MAX_OUTPUT = 16 * 1024;

export interface CheckRunnerOptions {
  /** The whole environment of every command. */
  readonly env: Readonly<Record<string, string>>;
  /** Values that no check gets, whatever the configuration passes on. */
  readonly secrets: readonly string[];
  /** Null = commands run as the server does. */
  readonly sandbox: Sandbox | null;
  readonly clock: Clock;
}

export function createCheckRunner({ env, secrets, sandbox, clock }: CheckRunnerOptions): CheckRunner {
  const isSecret = (value: string) => secrets.some((secret) => secret !== '' && value.includes(secret));
  const clean = Object.fromEntries(Object.entries(env).filter(([, value]) => !isSecret(value)));
  return {
    async run({ folder: { root, temporary }, check, marker, signal, onStarted }) {
      const plain = ['/bin/sh', '-c', check.command];
      const argv = (await sandbox?.(root, plain, temporary)) ?? plain;
      signal.throwIfAborted();
      const folders = { TMPDIR: temporary, TMP: temporary, TEMP: temporary };
      const started = startCommand({ argv, cwd: root, env: { ...clean, ...folders, [CHECK_MARKER]: marker }, clock });
      const begun = clock.monotonic();
      let isOver = false;
      const expiry = clock.after(check.timeout_seconds * 1000, () => {
        isOver = true;
        void started.stop();
      });
      // The next node of a lost session tree must not find the command still running (16 §4.4).
      const onAbort = () =>
        void started.stop(signal.reason instanceof TreeLost ? signal.reason.patience_ms : undefined);
      signal.addEventListener('abort', onAbort, { once: true });
      try {
        if (started.pid !== undefined) await onStarted(started.pid);
        const { code, output } = await started.ended.catch(() => {
          throw new ToolError('execution_error', 'the command could not be started');
        });
        const note = isOver ? `\n[stopped after ${check.timeout_seconds} s]` : '';
        const kept = cutTail(output);
        const wall_time_seconds = Math.max(0, clock.monotonic() - begun) / 1000;
        return { exit_code: isOver ? null : code, output: `${kept}${note}`, wall_time_seconds } satisfies CheckEnd;
      } finally {
        expiry.cancel();
        signal.removeEventListener('abort', onAbort);
        await started.stop(0);
        // A daemon has left the group of its command.
        await killMarked([marker]);
      }
    },

    killLeft: killMarked,
  };
}

/** Kills the process groups of checks by the variable in their environment. Returns their number. */
async function killMarked(markers: readonly string[]): Promise<number> {
  if (markers.length === 0) return 0;
  const wanted = new Set(markers.map((marker) => `${CHECK_MARKER}=${marker}`));
  const groups = new Set<number>();
  for (const name of await readdir('/proc').catch(() => [])) {
    if (!/^\d+$/.test(name)) continue;
    const environment = await readFile(`/proc/${name}/environ`, 'latin1').catch(() => '');
    if (!environment.split('\0').some((entry) => wanted.has(entry))) continue;
    const group = readGroup(await readFile(`/proc/${name}/stat`, 'latin1').catch(() => ''));
    if (group !== null) groups.add(group);
  }
  for (const group of groups) signalGroup(group, 'SIGKILL');
  return groups.size;
}

/** The process group of a line of `/proc/<pid>/stat`, whose second field is a name with any characters. */
function readGroup(stat: string): number | null {
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const group = Number(fields[2]);
  return Number.isInteger(group) && group > 1 ? group : null;
}

function cutTail(output: string): string {
  const bytes = Buffer.from(output, 'utf8');
  if (bytes.length <= MAX_OUTPUT) return output;
  return utf8Tail(bytes.subarray(bytes.length - MAX_OUTPUT)).toString('utf8');
}
