// Every command of `metis` with its flags, its help and an example (17 §2). A command's parts are loaded when it runs.
import { Argument, Command, InvalidArgumentError, Option } from 'commander';
import type { ServerFlags } from '#cli/terminal.ts';
import type { ServerAddress } from '#client/request.ts';
import {
  addQueryCommands,
  createAuditCommand,
  createTokenCommand,
  createTrustCommand,
  createWorkersCommand,
  createWorktreesCommand,
} from './ask-commands.ts';
import { createCaseCommand } from './cases/case-command.ts';
import type { BenchmarkFlags } from './commands/benchmark.ts';
import { completionScript, SHELLS, type Shell } from './commands/completion.ts';
import type { PruneFlags } from './commands/database.ts';
import type { DoctorFlags } from './commands/doctor.ts';
import type { ExperimentFlags } from './commands/experiment.ts';
import type { AttachFlags, McpFlags } from './commands/mcp-acp.ts';
import type { RunCommandFlags } from './commands/run-command.ts';
import type { UpdateFlags } from './commands/update.ts';
import type { ConfigFlags } from './config.ts';
import type { CommandContext } from './context.ts';
import { addCopyCommands } from './copy-commands.ts';
import {
  composeUsageError,
  createCommand,
  createNumberParser,
  createServerOption,
  parsePolicy,
  parseUsd,
  parseWords,
  withAddressFlags,
  withConfigFlags,
  withDoorFlags,
} from './flags.ts';

type Finish = (code: Promise<number>) => Promise<void>;

function createDemoCommand(context: CommandContext, finish: Finish): Command {
  return createCommand(
    'demo',
    'Show a planner that delegates to three workers; needs no key and no network.',
    'metis demo --keep',
    'metis demo --workers',
    'metis demo --worktrees',
    'metis demo --checked',
  )
    .option('--keep', 'keep the server running afterwards')
    .option('--workers', 'run the demo of named workers, which judge three pitch decks')
    .addOption(
      new Option(
        '--worktrees',
        'run the demo of four workers that edit one file at the same time; needs git',
      ).conflicts('workers'),
    )
    .addOption(
      new Option('--checked', 'run the demo of a worker whose claim a check refutes; needs git').conflicts([
        'workers',
        'worktrees',
      ]),
    )
    .addOption(
      new Option('--provider <name>', 'use real models instead of scripted ones').choices(['anthropic', 'openai']),
    )
    .action((flags: { keep?: boolean; provider?: string; workers?: boolean; worktrees?: boolean; checked?: boolean }) =>
      finish(import('./commands/demo.ts').then(({ demo }) => demo(context, flags))),
    );
}

function createBenchmarkCommand(context: CommandContext, finish: Finish): Command {
  return withConfigFlags(
    createCommand(
      'benchmark',
      'Run workloads with and without delegation, and compare their cost.',
      'metis benchmark examples/benchmark --scripted',
      'metis benchmark ./workloads --budget 2.00',
    )
      .argument('<folder>', 'a folder with a workload.yaml, or a folder of such folders')
      .option('--model <model>', "the planner's model, id or alias; default: the first of tier deep")
      .addOption(
        new Option(
          '--delegation-policy <policy>',
          'models of planner and workers: PLANNER-planner-WORKER-worker',
        ).argParser(parsePolicyFlag),
      )
      .addOption(
        new Option('--budget <usd>', 'limit of the cost of all runs together').default('1').argParser(parseUsd),
      )
      .option('--scripted', 'use the scripted scenario of each workload; needs no key')
      .option('--approve', 'approve every tool call, commands too; without it they are denied')
      .option('--json', 'print the result as JSON'),
  )
    .addHelpText(
      'after',
      `
Each run has its own copy of the workspace and its own data folder. It is not in
the reports of your server and does not count towards its daily limit. The check
of a workload runs code that models wrote, with your permissions.
Exit code: 0 every run passed, 1 otherwise, 130 interrupted.`,
    )
    .action((folder: string, flags: BenchmarkFlags) =>
      finish(import('./commands/benchmark.ts').then(({ benchmark }) => benchmark(context, flags, folder))),
    );
}

/** `metis experiment` (21 §5). */
function createExperimentCommand(context: CommandContext, finish: Finish): Command {
  return withConfigFlags(
    createCommand(
      'experiment',
      'Run arms of models on tasks with a check under one limit, and name the cheapest that solves them.',
      'metis experiment experiment.yaml',
    )
      .argument('<file>', 'tasks, arms and limit; see docs/what-if.md')
      .option('--json', 'print the result as JSON'),
  )
    .addHelpText(
      'after',
      `
Runs are sessions of the server of the data folder, each in a git worktree of
its own. Interrupted, the same command goes on where it was. The check of a task
runs code that models wrote, with your permissions.
Exit code: 0, 1 when a run was not run, 130 interrupted.`,
    )
    .action((file: string, flags: ExperimentFlags) =>
      finish(import('./commands/experiment.ts').then(({ experiment }) => experiment(context, flags, file))),
    );
}

function parsePolicyFlag(text: string): string {
  if (parsePolicy(text) === null)
    throw new InvalidArgumentError('It must name two models by id or alias, like sonnet-planner-haiku-worker.');
  return text;
}

/** Adds the flags of commands that write a list into the data folder. */
function withUpdateFlags(command: Command, from: string): Command {
  return withConfigFlags(command)
    .option('--from <place>', from)
    .option('--yes', 'write without a question; needed without a terminal')
    .addHelpText(
      'after',
      `
Exit code: 0 written, 1 wrong or unreadable, 2 not confirmed, 3 nothing would
change. A running server reads the new file at SIGHUP (kill -HUP PID).`,
    );
}

/** The data folder as it is named in front of a subcommand. */
function readDataFlag(command: Command | null): Pick<UpdateFlags, 'data'> {
  const { data } = command?.opts<UpdateFlags>() ?? {};
  return data === undefined ? {} : { data };
}

const BEGINNING = `
Begin with:
  $ metis demo                       show a planner with workers; needs no key
  $ metis run "what is this about?"  run one task in this folder
  $ metis serve                      run the server that other commands use
  $ metis help run                   show the arguments of a command`;

/** @param ended receives the exit code of the command. Throws `CommanderError` for arguments that cannot be parsed. */
export function createProgram(context: CommandContext, ended: (code: number) => void): Command {
  const finish = async (code: Promise<number>) => ended(await code);
  const ask = (flags: ServerFlags, body: (server: ServerAddress) => Promise<number>) =>
    finish(import('./context.ts').then(({ withServer }) => withServer(context, flags, body)));
  const program: Command = new Command('metis');
  program
    .description('A session server for planner and worker LLM agents.')
    .version(context.version, '-v, --version', 'print the version')
    .addHelpText('after', BEGINNING)
    .exitOverride()
    .configureOutput({ outputError: (text, write) => write(composeUsageError(program, text)) })
    .showSuggestionAfterError(true)
    .enablePositionalOptions();

  program.commandsGroup('Work:');
  program.addCommand(
    withConfigFlags(
      createCommand(
        'run',
        'Run one task: progress on stderr, the answer on stdout.',
        'metis run "Which tests are missing?" --workspace . --budget 0.50',
        'metis run "Write the changelog" --json > events.jsonl',
      )
        .addArgument(new Argument('<task>', 'the task, as one argument').argParser(parseWords))
        .option('--workspace <dir>', 'the folder to work in; default: the current folder')
        .option('--model <model>', "the planner's model, id or alias; default: chosen by routing")
        .option('--worker <name>', 'the named worker of the workspace that runs the task')
        .addOption(
          new Option('--budget <usd>', 'limit of the cost of the task with all its workers').argParser(parseUsd),
        )
        .addOption(new Option('--max-cost <usd>', 'the same as --budget').argParser(parseUsd).conflicts(['budget']))
        .option('--approve', 'approve every tool call; the server must allow it')
        .option('--case', 'record the session, so that metis case save can write it')
        .option('--json', 'print every event as a line of JSON instead of the answer')
        .addOption(createServerOption())
        .option('--token <token>', 'access token of the server; default: METIS_TOKEN'),
    )
      .addHelpText(
        'after',
        `
If no server answers and none was named, the command runs one for this task, on
the same data folder. Approvals are requested at the terminal; without one they
are denied. Ctrl-C cancels the task, a second Ctrl-C exits.
Exit code: 0 completed, 1 failed, 2 usage, 3 cancelled, 4 budget exceeded,
5 completed with denied calls.`,
      )
      .action((task: string, flags: RunCommandFlags) =>
        finish(import('./commands/run-command.ts').then(({ run }) => run(context, flags, task))),
      ),
  );
  program.addCommand(createCaseCommand(context, ask, finish));
  program.addCommand(createDemoCommand(context, finish));
  program.addCommand(createBenchmarkCommand(context, finish));
  program.addCommand(createExperimentCommand(context, finish));
  program.addCommand(
    withDoorFlags(
      createCommand('acp', 'Serve ACP on stdin and stdout, as the agent of an editor.', 'metis acp'),
    ).action((flags: AttachFlags) =>
      finish(import('./commands/mcp-acp.ts').then(({ serveAcp }) => serveAcp(context, flags))),
    ),
  );
  program.addCommand(
    withDoorFlags(
      createCommand(
        'mcp',
        'Serve MCP on stdin and stdout, so that any agent can delegate to workers.',
        'metis mcp --workspace . --budget 1.00',
      )
        .option('--workspace <dir>', 'the folder that workers work in; default: the current folder')
        .addOption(new Option('--budget <usd>', 'limit of the cost of all workers of this client').argParser(parseUsd)),
    ).action((flags: McpFlags) =>
      finish(import('./commands/mcp-acp.ts').then(({ serveMcp }) => serveMcp(context, flags))),
    ),
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

  program.commandsGroup('Query a running server:');
  addQueryCommands(program, context, ask, finish);
  program.addCommand(createWorkersCommand(context, ask));
  program.addCommand(createTrustCommand(context, ask));
  program.addCommand(createWorktreesCommand(context, ask));
  program.addCommand(createTokenCommand(context, ask, finish));
  program.addCommand(createAuditCommand(context, ask));

  program.commands
    .find((command) => command.name() === 'models')
    // Flags behind the name of the subcommand are its own, `--data` too.
    ?.enablePositionalOptions()
    .addCommand(
      withUpdateFlags(
        createCommand(
          'update',
          'Take models from a file or an address, after showing what changes.',
          'metis models update --from registry.yaml',
        ),
        'file or address of a registry',
      ).action((flags: UpdateFlags, command: Command) => {
        const all = { ...readDataFlag(command.parent), ...flags };
        return finish(import('./commands/update.ts').then(({ updateModels }) => updateModels(context, all)));
      }),
    );

  program.commandsGroup('Set up and maintain:');
  program.addCommand(
    withAddressFlags(
      createCommand(
        'doctor',
        'Check data folder, keys, prices and port, and suggest fixes.',
        'metis doctor',
        'metis doctor --online',
      ).option('--online', 'check every key by a free request to its provider'),
    ).action((flags: DoctorFlags) =>
      finish(import('./commands/doctor.ts').then(({ doctor }) => doctor(context, flags))),
    ),
  );
  program.addCommand(
    createCommand('config', 'Check the configuration.', 'metis config check').addCommand(
      withAddressFlags(
        createCommand(
          'check',
          'Check whether the server would accept its configuration.',
          'metis config check --config server.yaml',
        ),
      ).action((flags: ConfigFlags) =>
        finish(import('./commands/doctor.ts').then(({ checkConfig }) => checkConfig(context, flags))),
      ),
    ),
  );
  addCopyCommands(program, context, finish);
  program.addCommand(
    withConfigFlags(
      createCommand('prune', 'Delete old events; keeps costs and messages.', 'metis prune --days 30 --dry-run'),
    )
      .addOption(
        new Option('--days <n>', 'age of deleted events in days; default: trace.retention_days').argParser(
          createNumberParser(1, 36_500),
        ),
      )
      .option('--dry-run', 'count the events and delete none')
      .addOption(createServerOption())
      .addOption(new Option('--token <token>', 'access token of the server; default: METIS_TOKEN'))
      .action((flags: PruneFlags) =>
        finish(import('./commands/database.ts').then(({ prune }) => prune(context, flags))),
      ),
  );
  program.addCommand(
    createCommand('prices', 'Update the prices of models.', 'metis prices update --from prices.json').addCommand(
      withUpdateFlags(
        createCommand(
          'update',
          'Take prices from a file or an address, after showing what changes.',
          'metis prices update --from prices.json',
          'metis prices update --from https://example.com/prices.json --yes',
        ),
        'file or address of a price table; default: pricing.update_url',
      ).action((flags: UpdateFlags) =>
        finish(import('./commands/update.ts').then(({ updatePrices }) => updatePrices(context, flags))),
      ),
    ),
  );
  program.addCommand(
    createCommand('rollups', 'Verify or rebuild the cost totals of the database.', 'metis rollups verify')
      .addCommand(
        withConfigFlags(
          createCommand('verify', 'Compare the cost totals with the ledger and the events.', 'metis rollups verify'),
        ).action((flags: ConfigFlags) =>
          finish(import('./commands/database.ts').then(({ verifyRollups }) => verifyRollups(context, flags))),
        ),
      )
      .addCommand(
        withConfigFlags(
          createCommand(
            'rebuild',
            'Rebuild the cost totals; no server may have the database open.',
            'metis rollups rebuild',
          ),
        ).action((flags: ConfigFlags) =>
          finish(import('./commands/database.ts').then(({ rebuildCostSums }) => rebuildCostSums(context, flags))),
        ),
      ),
  );
  program.addCommand(
    createCommand(
      'completion',
      'Print a completion script for your shell.',
      'source <(metis completion bash)',
      'source <(metis completion zsh)',
      'metis completion fish > ~/.config/fish/completions/metis.fish',
    )
      .addArgument(new Argument('<shell>', 'your shell').choices(SHELLS))
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
    createCommand('help', 'Show the arguments and flags of a command.', 'metis help routing explain')
      .argument('[command...]', 'a command, and its subcommand')
      .action((names: string[]) => {
        let command = program;
        for (const name of names) {
          const found = command.commands.find((candidate) => candidate.name() === name);
          if (found === undefined) program.error(`error: unknown command '${names.join(' ')}'`);
          command = found;
        }
        command.outputHelp();
      }),
  );
}
