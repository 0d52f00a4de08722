// Every command of `metis` with its flags, its help and an example (17 §2). A command's parts are loaded when it runs.
import { Argument, Command, Option } from 'commander';
import type { CostFlags } from '#cli/cost.ts';
import type { EventsFlags } from '#cli/events.ts';
import type { SessionsFlags } from '#cli/sessions.ts';
import type { ServerFlags } from '#cli/terminal.ts';
import type { ServerAddress } from '#client/request.ts';
import { completionScript, SHELLS, type Shell } from './commands/completion.ts';
import type { DoctorFlags } from './commands/doctor.ts';
import type { McpFlags } from './commands/mcp.ts';
import type { PruneFlags } from './commands/prune.ts';
import type { RunCommandFlags } from './commands/run.ts';
import type { ConfigFlags } from './config.ts';
import type { CommandContext } from './context.ts';
import type { AttachFlags } from './door/attach.ts';
import {
  createCommand,
  createNumberParser,
  createServerOption,
  parseSessionId,
  parseSince,
  parseUsd,
  parseWords,
  withAddressFlags,
  withConfigFlags,
  withDoorFlags,
  withServerFlags,
} from './flags.ts';
import { createBenchmarkCommand, createDemoCommand } from './trial-commands.ts';
import { createTrustCommand, createWorkersCommand } from './workers-commands.ts';

const BEGINNING = `
Begin with:
  $ metis demo                       a planner and workers at work; needs no key
  $ metis run "what is this about?"  one task in this folder, answered on stdout
  $ metis serve                      the server that the other commands ask
  $ metis help run                   what a command takes, with an example`;

/** `ended` hears the exit code of the command that ran. Throws `CommanderError` for what cannot be parsed. */
export function createProgram(context: CommandContext, ended: (code: number) => void): Command {
  const finish = async (code: Promise<number>) => ended(await code);
  const ask = (flags: ServerFlags, body: (server: ServerAddress) => Promise<number>) =>
    finish(import('./start.ts').then(({ withServer: askWith }) => askWith(context, flags, body)));
  const program = new Command('metis')
    .description('A session server for planner and worker LLM agents.')
    .version(context.version, '-v, --version', 'the version')
    .addHelpText('after', BEGINNING)
    .exitOverride()
    .showSuggestionAfterError(true)
    .enablePositionalOptions();

  program.commandsGroup('Work:');
  program.addCommand(
    withConfigFlags(
      createCommand(
        'run',
        'Run one task and show it at work: the tree on stderr, the answer on stdout.',
        'metis run "Which tests are missing?" --workspace . --budget 0.50',
        'metis run "Write the changelog" --json > events.jsonl',
      )
        .addArgument(new Argument('<task>', 'what is to be done').argParser(parseWords))
        .option('--workspace <dir>', 'the folder to work in; the current one when left out')
        .option('--model <model>', "the planner's model, id or alias; routing decides when left out")
        .option('--worker <name>', 'the named worker of the workspace that does it')
        .addOption(new Option('--budget <usd>', 'the most it may cost with all its workers').argParser(parseUsd))
        .option('--approve', 'let every tool call pass without asking; the server must allow it')
        .option('--json', 'every event of the tree as a line of JSON on stdout instead of the answer')
        .addOption(createServerOption())
        .option('--token <token>', 'its access token; METIS_TOKEN when left out'),
    )
      .addHelpText(
        'after',
        `
Where no server answers and none was named, one runs for this task alone, on the
same data folder. What needs approval is asked at the terminal; without one it
is denied. Ctrl-C cancels, a second one leaves.
Exit code: 0 completed, 1 failed, 2 usage, 3 cancelled, 4 budget exceeded.`,
      )
      .action((task: string, flags: RunCommandFlags) =>
        finish(import('./commands/run.ts').then(({ run }) => run(context, flags, task))),
      ),
  );
  program.addCommand(createDemoCommand(context, finish));
  program.addCommand(createBenchmarkCommand(context, finish));
  program.addCommand(
    withDoorFlags(
      createCommand('acp', 'Speak ACP on stdin and stdout: Metis as the agent of an editor.', 'metis acp'),
    ).action((flags: AttachFlags) =>
      finish(import('./commands/acp.ts').then(({ serveAcp }) => serveAcp(context, flags))),
    ),
  );
  program.addCommand(
    withDoorFlags(
      createCommand(
        'mcp',
        'Speak MCP on stdin and stdout, so that any agent can delegate to workers.',
        'metis mcp --workspace . --budget 1.00',
      )
        .option('--workspace <dir>', 'the folder that workers work in; the current one when left out')
        .addOption(
          new Option('--budget <usd>', 'the most that all workers of this client may cost').argParser(parseUsd),
        ),
    ).action((flags: McpFlags) => finish(import('./commands/mcp.ts').then(({ serveMcp }) => serveMcp(context, flags)))),
  );
  program.addCommand(
    withAddressFlags(
      createCommand(
        'serve',
        'Run the server.',
        'metis serve --port 9000 --data ./data',
        'metis serve --set log.level=debug',
      ),
    ).action((flags: ConfigFlags) => finish(import('./commands/serve.ts').then(({ serve }) => serve(context, flags)))),
  );

  program.commandsGroup('Ask a running server:');
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
  program.addCommand(createWorkersCommand(context, ask));
  program.addCommand(createTrustCommand(context, ask));

  program.commandsGroup('Set up and look after:');
  program.addCommand(
    withAddressFlags(
      createCommand(
        'doctor',
        'Check data folder, keys, prices and port, and say what to do.',
        'metis doctor',
        'metis doctor --online',
      ).option('--online', 'try every key with its provider, by one request that costs nothing'),
    ).action((flags: DoctorFlags) =>
      finish(import('./commands/doctor.ts').then(({ doctor }) => doctor(context, flags))),
    ),
  );
  program.addCommand(
    createCommand('config', 'Work on the configuration.', 'metis config check').addCommand(
      withAddressFlags(
        createCommand(
          'check',
          'Say whether the server would accept its configuration.',
          'metis config check --config server.yaml',
        ),
      ).action((flags: ConfigFlags) =>
        finish(import('./commands/config-check.ts').then(({ checkConfig }) => checkConfig(context, flags))),
      ),
    ),
  );
  program.addCommand(
    withConfigFlags(
      createCommand(
        'backup',
        'Copy the database to a new file, also while a server runs.',
        'metis backup metis-monday.db',
      ),
    )
      .argument('<file>', 'the copy; must not exist')
      .action((file: string, flags: ConfigFlags) =>
        finish(import('./commands/backup.ts').then(({ backup }) => backup(context, flags, file))),
      ),
  );
  program.addCommand(
    withConfigFlags(
      createCommand('prune', 'Delete old events; costs and messages stay.', 'metis prune --days 30 --dry-run'),
    )
      .addOption(
        new Option('--days <n>', 'age from which events go; trace.retention_days when left out').argParser(
          createNumberParser(1, 36_500),
        ),
      )
      .option('--dry-run', 'count, and change nothing')
      .addOption(createServerOption())
      .addOption(new Option('--token <token>', 'its access token; METIS_TOKEN when left out'))
      .action((flags: PruneFlags) => finish(import('./commands/prune.ts').then(({ prune }) => prune(context, flags)))),
  );
  program.addCommand(
    createCommand('rollups', 'Work on the cost sums of the database.', 'metis rollups verify')
      .addCommand(
        withConfigFlags(createCommand('verify', 'Compare sums, ledger and events.', 'metis rollups verify')).action(
          (flags: ConfigFlags) =>
            finish(import('./commands/rollups.ts').then(({ verifyRollups }) => verifyRollups(context, flags))),
        ),
      )
      .addCommand(
        withConfigFlags(
          createCommand('rebuild', 'Make the sums again; no server may have the file.', 'metis rollups rebuild'),
        ).action((flags: ConfigFlags) =>
          finish(import('./commands/rollups.ts').then(({ rebuildCostSums: rebuild }) => rebuild(context, flags))),
        ),
      ),
  );
  program.addCommand(
    createCommand(
      'completion',
      'Print what makes the shell complete commands and flags.',
      'source <(metis completion bash)',
      'source <(metis completion zsh)',
      'metis completion fish > ~/.config/fish/completions/metis.fish',
    )
      .addArgument(new Argument('<shell>', 'which shell').choices(SHELLS))
      .action((shell: Shell) => {
        context.stdout.write(completionScript(program, shell));
      }),
  );
  return withHelp(program);
}

/** `metis help routing explain` is the help of that command. */
function withHelp(program: Command): Command {
  program.helpCommand(false);
  return program.addCommand(
    createCommand('help', 'Say what a command takes.', 'metis help routing explain')
      .argument('[command...]', 'the command and the one below it')
      .action((names: string[]) => {
        let asked = program;
        for (const name of names) {
          const found = asked.commands.find((candidate) => candidate.name() === name);
          if (found === undefined) program.error(`error: unknown command '${names.join(' ')}'`);
          asked = found;
        }
        asked.outputHelp();
      }),
  );
}
