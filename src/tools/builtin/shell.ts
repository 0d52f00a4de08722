// shell: a command in the workspace (09 §12, §13).

import { createCutOutput } from '#core/policy/tools/tool-output.ts';
import type { ToolFactory } from '#core/ports/tool-port.ts';
import type { TemporaryFolders } from '#core/ports/workspace.ts';
import type { Clock } from '#protocol/clock.ts';
import { TreeLost } from '#protocol/journal-batch.ts';
import { ToolError } from '#protocol/tool.ts';
import type { Sandbox } from '../sandbox/bubblewrap.ts';
import { type CommandEnd, type RunningCommand, startCommand } from '../sandbox/command.ts';
import { defineTool, inputSchema } from './common.ts';

const definition = defineTool({
  name: 'shell',
  description:
    'Runs a command with /bin/sh -c in the workspace and returns its exit code and what it printed. It has no input, and what it leaves in the background is ended with it.',
  side_effects: 'execute',
  command_field: 'command',
  path_fields: [],
  input_schema: inputSchema(
    {
      command: { type: 'string', minLength: 1, description: 'The command line.' },
      timeout_seconds: {
        type: 'number',
        minimum: 1,
        maximum: 600,
        description: 'Seconds after which it is stopped. Lowers the limit of the server, never raises it.',
      },
    },
    ['command'],
  ),
});

export interface ShellOptions {
  /** The whole environment of every command. */
  readonly env: Readonly<Record<string, string>>;
  /** Null = commands run as the server does. */
  readonly sandbox: Sandbox | null;
  /** The folders of workers; null = none has its own. */
  readonly temporary?: Pick<TemporaryFolders, 'open'> | null;
  readonly clock: Clock;
}

/** The dispatcher's limit, which `timeout_seconds` may lower, ends a command through the signal. */
export function shell({ env, sandbox, temporary = null, clock }: ShellOptions): ToolFactory {
  return () => {
    let running: RunningCommand | null = null;
    return {
      definition,
      cancel: async () => (await running?.stop()) ?? false,
      async execute(input, context) {
        const command = input.command as string;
        const plain = ['/bin/sh', '-c', command];
        const own = context.is_worker && temporary !== null ? await temporary.open(context.session_id) : null;
        const argv = (await sandbox?.(context.workspace_path, plain, own)) ?? plain;
        context.signal.throwIfAborted();
        const started = start(argv, context.workspace_path, own);
        running = started;
        const onAbort = () => void started.stop(gracePeriod(context.signal));
        context.signal.addEventListener('abort', onAbort, { once: true });
        const end = await started.ended
          .catch(() => {
            throw new ToolError('execution_error', 'the command could not be started');
          })
          .finally(() => context.signal.removeEventListener('abort', onAbort));
        if (context.signal.aborted) throw new ToolError('cancelled', 'Tool call cancelled.', end.output || null);
        return createCutOutput(formatResult(command, end), { success: end.code === 0, command_executed: command });
      },
    };
  };

  function start(argv: readonly string[], cwd: string, own: string | null): RunningCommand {
    try {
      return startCommand({ argv, cwd, env: own === null ? env : withTemporary(env, own), clock });
    } catch (error) {
      // Too long for the system, or with a NUL in it.
      throw new ToolError(
        'execution_error',
        `the command cannot be run: ${error instanceof Error ? error.message : ''}`,
      );
    }
  }
}

/** The environment with a temporary folder of its own, by the names that programs look for. */
function withTemporary(env: Readonly<Record<string, string>>, folder: string): Readonly<Record<string, string>> {
  return { ...env, TMPDIR: folder, TMP: folder, TEMP: folder };
}

/** The next node of a lost session tree must not find its command still running (16 §4.4). */
function gracePeriod({ reason }: AbortSignal): number | undefined {
  if (reason instanceof TreeLost) return reason.patience_ms;
  return undefined;
}

function formatResult(command: string, { code, signal, output }: CommandEnd): string {
  return `$ ${command}\nexit_code=${signal === null ? code : `signal:${signal}`}\n\n${output}`;
}
