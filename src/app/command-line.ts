// The command line of `metis` (17 §2): reads it and hands over to one command.
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { Command, CommanderError, InvalidArgumentError, Option } from 'commander';
import type { CostFlags } from '../cli/cost.ts';
import type { EventsFlags } from '../cli/events.ts';
import type { SessionsFlags } from '../cli/sessions.ts';
import { sinceTime } from '../cli/since.ts';
import type { ServerFlags } from '../cli/terminal.ts';
import type { PruneFlags } from './commands/prune.ts';
import type { ConfigFlags } from './config.ts';
import type { CommandContext } from './context.ts';

const EXIT_BUG = 1;
const EXIT_USAGE = 2;

const packageDir = path.resolve(import.meta.dirname, '../..');
const { version } = JSON.parse(fs.readFileSync(path.join(packageDir, 'package.json'), 'utf8')) as { version: string };

let stop: ((signal: NodeJS.Signals) => void) | null = null;
const stopped = new Promise<NodeJS.Signals>((resolve) => {
  stop = resolve;
});
// `metis doctor | head -1`: who stops reading has read enough, which is no fault.
const outputClosed = new Promise<void>((resolve) => {
  for (const output of [process.stdout, process.stderr]) {
    output.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code !== 'EPIPE') throw error;
      if (output === process.stdout) resolve();
    });
  }
});
const context: CommandContext = {
  env: process.env,
  cwd: process.cwd(),
  home: os.homedir(),
  packageDir,
  version,
  stdout: process.stdout,
  stderr: process.stderr,
  outputClosed,
  stopSignal() {
    let seen = false;
    for (const signal of ['SIGINT', 'SIGTERM'] as const) {
      process.on(signal, () => {
        if (seen) process.exit(EXIT_BUG);
        seen = true;
        stop?.(signal);
      });
    }
    return stopped;
  },
};

const program = new Command('metis')
  .description('A session server for planner and worker LLM agents.')
  .version(version)
  .exitOverride()
  .showSuggestionAfterError(true)
  .enablePositionalOptions();

/** The flags of every command that loads the configuration. */
function withConfigFlags(command: Command): Command {
  return command
    .addOption(new Option('--host <host>', 'address to bind'))
    .addOption(new Option('--port <port>', 'port to bind; 0 picks a free one'))
    .addOption(new Option('--data <dir>', 'data folder instead of ~/.metis'))
    .addOption(new Option('--config <file>', 'configuration file instead of the shipped and the personal one'))
    .addOption(
      new Option('--set <key=value>', 'set one configuration key; may be repeated').argParser(
        (pair: string, before: string[] = []) => [...before, pair],
      ),
    );
}
/** The address of a server as somebody types it, with or without `http://`. */
function serverUrl(text: string): string {
  const url = /^[a-z][a-z0-9+.-]*:\/\//i.test(text) ? text : `http://${text}`;
  if (!URL.canParse(url) || !['http:', 'https:'].includes(new URL(url).protocol))
    throw new InvalidArgumentError('It must be an address like 127.0.0.1:8420 or http://127.0.0.1:8420.');
  return url;
}
function wholeNumber(least: number, most: number): (text: string) => number {
  return (text) => {
    if (!/^\d{1,9}$/.test(text) || Number(text) < least || Number(text) > most)
      throw new InvalidArgumentError(`It must be a whole number from ${least} to ${most}.`);
    return Number(text);
  };
}
/** The flags of every command that asks a running server. */
function withServerFlags(command: Command): Command {
  return command
    .addOption(
      new Option('--server <url>', 'address of the server').default('http://127.0.0.1:8420').argParser(serverUrl),
    )
    .addOption(new Option('--token <token>', 'access token; METIS_TOKEN when left out'))
    .addOption(new Option('--json', 'the answer as JSON'));
}
function serverOf(flags: ServerFlags) {
  return { baseUrl: flags.server, token: flags.token ?? context.env.METIS_TOKEN ?? null };
}
function command(name: string, description: string, example: string): Command {
  return new Command(name).description(description).addHelpText('after', `\nExample:\n  $ ${example}`).exitOverride();
}
// A command's parts are loaded when it runs: `--help` needs none of them.
const finish = async (code: Promise<number>) => {
  process.exitCode = await code;
};

program.addCommand(
  withConfigFlags(command('serve', 'Run the server.', 'metis serve --port 9000 --data ./data')).action(
    (flags: ConfigFlags) => finish(import('./commands/serve.ts').then(({ serve }) => serve(context, flags))),
  ),
);
program.addCommand(
  command('demo', 'Watch a planner hand work to three workers; needs no key and no network.', 'metis demo --keep')
    .option('--keep', 'leave the server running afterwards')
    .addOption(
      new Option('--provider <name>', 'use real models instead of scripted ones').choices(['anthropic', 'openai']),
    )
    .action((flags: { keep?: boolean; provider?: string }) =>
      finish(import('./commands/demo.ts').then(({ demo }) => demo(context, flags))),
    ),
);
program.addCommand(
  withConfigFlags(
    command('doctor', 'Check data folder, keys, prices and port, and say what to do.', 'metis doctor'),
  ).action((flags: ConfigFlags) => finish(import('./commands/doctor.ts').then(({ doctor }) => doctor(context, flags)))),
);
program.addCommand(
  new Command('config')
    .description('Work on the configuration.')
    .exitOverride()
    .addCommand(
      withConfigFlags(
        command(
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
  withServerFlags(
    command('sessions', 'List the sessions of a running server, newest first.', 'metis sessions --status running'),
  )
    .addOption(new Option('--limit <n>', 'how many at most').default(20).argParser(wholeNumber(1, 100_000)))
    .addOption(new Option('--status <status...>', 'only these').choices(['idle', 'running', 'interrupted', 'ended']))
    .option('--workers', "the workers' sessions too")
    .action((flags: ServerFlags & SessionsFlags) =>
      finish(import('../cli/sessions.ts').then(({ listSessions }) => listSessions(context, serverOf(flags), flags))),
    ),
);
program.addCommand(
  withServerFlags(
    command('cost', 'Show what model calls cost.', 'metis cost --group-by day,model --since 30d').addHelpText(
      'after',
      `
Groups: model, provider, session, parent_session, root_session, is_worker, day, hour, delegation_tier, worker_name,
workspace; two are separated by a comma, none gives the total alone.`,
    ),
  )
    .option('--group-by <dimensions>', 'one or two groups', 'model')
    .addOption(
      new Option('--since <when>', '24h, 7d, 2w, a day like 2026-01-31, a time, or all')
        .default('7d')
        .argParser((text) => {
          if (sinceTime(text) === null)
            throw new InvalidArgumentError('It must be like 24h, 7d, 2w, 2026-01-31, an RFC 3339 time, or all.');
          return text;
        }),
    )
    .option('--session <id>', "one planner's session with its workers")
    .action((flags: ServerFlags & CostFlags) =>
      finish(import('../cli/cost.ts').then(({ showCost }) => showCost(context, serverOf(flags), flags))),
    ),
);
program.addCommand(
  withServerFlags(
    command('events', 'Print the events of a session.', 'metis events sess_01JZ... --follow --workers')
      .argument('<session>', 'its id; metis sessions lists them')
      .option('--follow', 'go on with what happens, also over a restart of the server, until the session ends')
      .option('--workers', 'the events of its workers too'),
  ).action((session: string, flags: ServerFlags & EventsFlags) => {
    const stopped = new AbortController();
    // Ctrl-C and a reader that left end the following, and nothing else.
    void Promise.race([context.stopSignal(), context.outputClosed]).then(() => stopped.abort());
    return finish(
      import('../cli/events.ts').then(({ showEvents }) =>
        showEvents(context, serverOf(flags), session, { ...flags, signal: stopped.signal }),
      ),
    );
  }),
);
program.addCommand(
  new Command('routing')
    .description('Ask a running server about its routing.')
    .exitOverride()
    .addCommand(
      withServerFlags(
        command('check', 'Say whether a routing file is valid.', 'metis routing check .metis/routing.yaml').argument(
          '<file>',
          'the file to check; it is not loaded',
        ),
      ).action((file: string, flags: ServerFlags) =>
        finish(
          import('../cli/routing.ts').then(({ checkRouting }) => checkRouting(context, serverOf(flags), file, flags)),
        ),
      ),
    )
    .addCommand(
      withServerFlags(
        command(
          'explain',
          'Show which model a message would get and why; runs and stores nothing.',
          'metis routing explain "say hello" --workspace .',
        )
          .argument('<text>', 'the message')
          .option('--workspace <dir>', "the session's workspace; the current folder when left out")
          .option('--model <model>', 'id or alias the session is set to'),
      ).action((text: string, flags: ServerFlags & { workspace?: string; model?: string }) =>
        finish(
          import('../cli/routing.ts').then(({ explainRoute }) => explainRoute(context, serverOf(flags), text, flags)),
        ),
      ),
    ),
);
program.addCommand(
  withConfigFlags(
    command('backup', 'Copy the database to a new file, also while a server runs.', 'metis backup metis-monday.db'),
  )
    .argument('<file>', 'the copy; must not exist')
    .action((file: string, flags: ConfigFlags) =>
      finish(import('./commands/backup.ts').then(({ backup }) => backup(context, flags, file))),
    ),
);
program.addCommand(
  withConfigFlags(command('prune', 'Delete old events; costs and messages stay.', 'metis prune --days 30 --dry-run'))
    .addOption(
      new Option('--days <n>', 'age from which events go; trace.retention_days when left out').argParser(
        wholeNumber(1, 36_500),
      ),
    )
    .option('--dry-run', 'count, and change nothing')
    .addOption(
      new Option('--server <url>', 'address of the server that holds the file, if not the configured one').argParser(
        serverUrl,
      ),
    )
    .addOption(new Option('--token <token>', 'its access token; METIS_TOKEN when left out'))
    .action((flags: PruneFlags) => finish(import('./commands/prune.ts').then(({ prune }) => prune(context, flags)))),
);
program.addCommand(
  new Command('rollups')
    .description('Work on the cost sums of the database.')
    .exitOverride()
    .addCommand(
      withConfigFlags(command('verify', 'Compare sums, ledger and events.', 'metis rollups verify')).action(
        (flags: ConfigFlags) =>
          finish(import('./commands/rollups.ts').then(({ verifyRollups }) => verifyRollups(context, flags))),
      ),
    )
    .addCommand(
      withConfigFlags(
        command('rebuild', 'Make the sums again from the ledger; no server may run.', 'metis rollups rebuild'),
      ).action((flags: ConfigFlags) =>
        finish(import('./commands/rollups.ts').then(({ rebuild }) => rebuild(context, flags))),
      ),
    ),
);

try {
  await program.parseAsync();
} catch (error) {
  if (error instanceof CommanderError) process.exitCode = error.exitCode === 0 ? 0 : EXIT_USAGE;
  else {
    process.stderr.write(`metis: unexpected failure: ${error instanceof Error ? error.message : String(error)}\n`);
    process.exitCode = EXIT_BUG;
  }
}
