// `metis workers` on the command line: its three commands with their flags (17 §2).
import type { Command } from 'commander';
import type { ServerFlags } from '#cli/terminal.ts';
import type { TrustFlags } from '#cli/trust.ts';
import type { WorkersFlags } from '#cli/workers.ts';
import type { ServerAddress } from '#client/request.ts';
import type { CommandContext } from './context.ts';
import { createCommand, withServerFlags } from './flags.ts';

type WorkersCommandFlags = ServerFlags & WorkersFlags;
type Ask = (flags: ServerFlags, body: (server: ServerAddress) => Promise<number>) => Promise<void>;

/** `metis trust`: the files of a workspace that widen what runs without a question (20 §11). */
export function createTrustCommand(context: CommandContext, ask: Ask): Command {
  const about = 'Trust a file of a workspace that widens what runs without a question; lists them without a file.';
  return withServerFlags(createCommand('trust', about, 'metis trust .metis/workers/tester.yaml'))
    .argument('[file]', 'the file: it is shown, and you are asked')
    .option('--workspace <dir>', 'whose file; the current folder when left out')
    .option('--remove', 'take the trust back')
    .option('--sha256 <hex>', 'trust the file without a question if it has this SHA-256')
    .action((file: string | undefined, flags: ServerFlags & TrustFlags) =>
      ask(flags, async (server) => {
        const { changeTrust, listTrust } = await import('#cli/trust.ts');
        return file === undefined ? listTrust(context, server, flags) : changeTrust(context, server, file, flags);
      }),
    );
}

/** @param ask finds the server of a command of this program, and ends with the exit code of the body */
export function createWorkersCommand(context: CommandContext, ask: Ask): Command {
  const own = (name: string, description: string, example: string) =>
    withServerFlags(createCommand(name, description, example)).option(
      '--workspace <dir>',
      'whose workers; the current folder when left out',
    );
  const parts = () => import('#cli/workers.ts');
  const about = 'Ask a running server about the named workers of a workspace.';
  return createCommand('workers', about, 'metis workers list')
    .addCommand(
      own('list', 'List the workers and what each may touch.', 'metis workers list').action(
        (flags: WorkersCommandFlags) =>
          ask(flags, async (server) => (await parts()).listWorkers(context, server, flags)),
      ),
    )
    .addCommand(
      own('show', 'Print the definition of a worker; exits 1 if it cannot be called.', 'metis workers show evaluator')
        .argument('<name>', 'the worker')
        .action((name: string, flags: WorkersCommandFlags) =>
          ask(flags, async (server) => (await parts()).showWorker(context, server, name, flags)),
        ),
    )
    .addCommand(
      own(
        'check',
        'Print every problem of every definition; exits 1 if there is an error.',
        'metis workers check',
      ).action((flags: WorkersCommandFlags) =>
        ask(flags, async (server) => (await parts()).checkWorkers(context, server, flags)),
      ),
    );
}
