// Every command of `metis` with its flags, its help and an example (17 §2). A command's parts are loaded when it runs.
import { Argument, Command, InvalidArgumentError, Option } from 'commander';
import type { ServerFlags } from '#cli/terminal.ts';
import type { ServerAddress } from '#client/request.ts';
import { addQueryCommands, createTrustCommand, createWorkersCommand } from './ask-commands.ts';
import type { BenchmarkFlags } from './commands/benchmark.ts';
import { completionScript, SHELLS, type Shell } from './commands/completion.ts';
import type { PruneFlags } from './commands/database.ts';
import type { DoctorFlags } from './commands/doctor.ts';
import type { AttachFlags, McpFlags } from './commands/mcp-acp.ts';
import type { RunCommandFlags } from './commands/run-command.ts';
import type { ConfigFlags } from './config.ts';
import type { CommandContext } from './context.ts';
import {
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
    'Watch a planner hand work to three workers; needs no key and no network.',
    'metis demo --keep',
    'metis demo --workers',
  )
    .option('--keep', 'leave the server running afterwards')
    .option('--workers', 'the job of named workers: three pitch decks, judged')
    .addOption(
      new Option('--provider <name>', 'use real models instead of scripted ones').choices(['anthropic', 'openai']),
    )
    .action((flags: { keep?: boolean; provider?: string; workers?: boolean }) =>
      finish(import('./commands/demo.ts').then(({ demo }) => demo(context, flags))),
    );
}

function createBenchmarkCommand(context: CommandContext, finish: Finish): Command {
  return withConfigFlags(
    createCommand(
      'benchmark',
      'Run workloads with delegation and by the planner alone, and compare their cost.',
      'metis benchmark examples/benchmark --scripted',
      'metis benchmark ./workloads --budget 2.00',
    )
      .argument('<folder>', 'a folder with a workload.yaml, or a folder of such folders')
      .option('--model <model>', "the planner's model, id or alias; the first of the tier deep when left out")
      .addOption(
        new Option(
          '--delegation-policy <policy>',
          'PLANNER-planner-WORKER-worker: the models of planner and workers',
        ).argParser(parsePolicyFlag),
      )
      .addOption(
        new Option('--budget <usd>', 'the most that all runs together may cost').default('1').argParser(parseUsd),
      )
      .option('--scripted', 'play the scenario of each workload; needs no key')
      .option('--approve', 'let every tool call pass, commands too; without it they are denied')
      .option('--json', 'the result as JSON'),
  )
    .addHelpText(
      'after',
      `
Each run has a copy of the workspace and a data folder of its own: it is not in
the reports of your server, nor under its limit of the day. The check of a
workload runs what models wrote, as you.
Exit code: 0 every run passed, 1 otherwise, 130 interrupted.`,
    )
    .action((folder: string, flags: BenchmarkFlags) =>
      finish(import('./commands/benchmark.ts').then(({ benchmark }) => benchmark(context, flags, folder))),
    );
}

function parsePolicyFlag(text: string): string {
  if (parsePolicy(text) === null)
    throw new InvalidArgumentError('It must be like sonnet-planner-haiku-worker, with ids or aliases of models.');
  return text;
}

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
    finish(import('./context.ts').then(({ withServer }) => withServer(context, flags, body)));
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
        finish(import('./commands/run-command.ts').then(({ run }) => run(context, flags, task))),
      ),
  );
  program.addCommand(createDemoCommand(context, finish));
  program.addCommand(createBenchmarkCommand(context, finish));
  program.addCommand(
    withDoorFlags(
      createCommand('acp', 'Speak ACP on stdin and stdout: Metis as the agent of an editor.', 'metis acp'),
    ).action((flags: AttachFlags) =>
      finish(import('./commands/mcp-acp.ts').then(({ serveAcp }) => serveAcp(context, flags))),
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

  program.commandsGroup('Ask a running server:');
  addQueryCommands(program, context, ask);
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
        finish(import('./commands/doctor.ts').then(({ checkConfig }) => checkConfig(context, flags))),
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
        finish(import('./commands/database.ts').then(({ backup }) => backup(context, flags, file))),
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
      .action((flags: PruneFlags) =>
        finish(import('./commands/database.ts').then(({ prune }) => prune(context, flags))),
      ),
  );
  program.addCommand(
    createCommand('rollups', 'Work on the cost sums of the database.', 'metis rollups verify')
      .addCommand(
        withConfigFlags(createCommand('verify', 'Compare sums, ledger and events.', 'metis rollups verify')).action(
          (flags: ConfigFlags) =>
            finish(import('./commands/database.ts').then(({ verifyRollups }) => verifyRollups(context, flags))),
        ),
      )
      .addCommand(
        withConfigFlags(
          createCommand('rebuild', 'Make the sums again; no server may have the file.', 'metis rollups rebuild'),
        ).action((flags: ConfigFlags) =>
          finish(import('./commands/database.ts').then(({ rebuildCostSums }) => rebuildCostSums(context, flags))),
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
