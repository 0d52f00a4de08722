// The commands that ask a running server, each with its flags and its help (17 §2).
import { type Command, Option } from 'commander';
import type { CostFlags } from '#cli/cost.ts';
import type { EventsFlags } from '#cli/events.ts';
import type { SessionsFlags } from '#cli/sessions.ts';
import type { ServerFlags } from '#cli/terminal.ts';
import type { TrustFlags } from '#cli/trust.ts';
import type { WorkersFlags } from '#cli/worker-definitions.ts';
import type { ServerAddress } from '#client/request.ts';
import type { CommandContext } from './context.ts';
import { createCommand, createNumberParser, parseSessionId, parseSince, withServerFlags } from './flags.ts';

type WorkersCommandFlags = ServerFlags & WorkersFlags;
type Ask = (flags: ServerFlags, body: (server: ServerAddress) => Promise<number>) => Promise<void>;

/** `sessions`, `cost`, `events` and `routing`. */
export function addQueryCommands(program: Command, context: CommandContext, ask: Ask): void {
  program.addCommand(
    withServerFlags(
      createCommand(
        'sessions',
        'List the sessions of a running server, newest first.',
        'metis sessions --status running',
      ),
    )
      .addOption(new Option('--limit <n>', 'how many at most').default(20).argParser(createNumberParser(1, 100_000)))
      .addOption(new Option('--status <status...>', 'only these').choices(['idle', 'running', 'interrupted', 'ended']))
      .option('--workers', "the workers' sessions too")
      .action((flags: ServerFlags & SessionsFlags) =>
        ask(flags, async (server) => (await import('#cli/sessions.ts')).listSessions(context, server, flags)),
      ),
  );
  program.addCommand(
    withServerFlags(
      createCommand(
        'cost',
        'Show what model calls cost.',
        'metis cost --group-by day,model --since 30d',
        'metis cost --session sess_01JZ... --group-by session',
      ).addHelpText(
        'after',
        `
Groups: model, provider, session, parent_session, root_session, is_worker, day,
hour, delegation_tier, worker_name, workspace; two are separated by a comma,
none gives the total alone.`,
      ),
    )
      .option('--group-by <dimensions>', 'one or two groups', 'model')
      .addOption(
        new Option('--since <when>', '24h, 7d, 2w, a day like 2026-01-31, a time, or all')
          .default('7d')
          .argParser(parseSince),
      )
      .addOption(new Option('--session <id>', "one planner's session with its workers").argParser(parseSessionId))
      .action((flags: ServerFlags & CostFlags) =>
        ask(flags, async (server) => (await import('#cli/cost.ts')).showCost(context, server, flags)),
      ),
  );
  program.addCommand(
    withServerFlags(
      createCommand('events', 'Print the events of a session.', 'metis events sess_01JZ... --follow --workers')
        .argument('<session>', 'its id; metis sessions lists them')
        .option('--follow', 'go on with what happens, also over a restart of the server, until the session ends')
        .option('--workers', 'the events of its workers too'),
    ).action((session: string, flags: ServerFlags & EventsFlags) => {
      const stopped = new AbortController();
      // Ctrl-C and a reader that left end the following, and nothing else.
      void Promise.race([context.stopSignal(), context.outputClosed]).then(() => stopped.abort());
      return ask(flags, async (server) =>
        (await import('#cli/events.ts')).showEvents(context, server, session, { ...flags, signal: stopped.signal }),
      );
    }),
  );
  program.addCommand(
    createCommand('routing', 'Ask a running server about its routing.', 'metis routing explain "say hello"')
      .addCommand(
        withServerFlags(
          createCommand(
            'check',
            'Say whether a routing file is valid.',
            'metis routing check .metis/routing.yaml',
          ).argument('<file>', 'the file to check; it is not loaded'),
        ).action((file: string, flags: ServerFlags) =>
          ask(flags, async (server) => (await import('#cli/routing.ts')).checkRouting(context, server, file, flags)),
        ),
      )
      .addCommand(
        withServerFlags(
          createCommand(
            'explain',
            'Show which model a message would get and why; runs and stores nothing.',
            'metis routing explain "say hello" --workspace .',
          )
            .argument('<text>', 'the message')
            .option('--workspace <dir>', "the session's workspace; the current folder when left out")
            .option('--model <model>', 'id or alias the session is set to'),
        ).action((text: string, flags: ServerFlags & { workspace?: string; model?: string }) =>
          ask(flags, async (server) => (await import('#cli/routing.ts')).explainRoute(context, server, text, flags)),
        ),
      ),
  );
}

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
  const parts = () => import('#cli/worker-definitions.ts');
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
