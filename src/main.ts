#!/usr/bin/env node
// The `metis` command: reads the command line and hands over to one command.
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { Command, CommanderError, Option } from 'commander';
import type { ConfigFlags } from './app/config.ts';
import type { CommandContext } from './app/context.ts';

const EXIT_BUG = 1;
const EXIT_USAGE = 2;

const packageDir = path.resolve(import.meta.dirname, '..');
const { version } = JSON.parse(fs.readFileSync(path.join(packageDir, 'package.json'), 'utf8')) as { version: string };

let stop: ((signal: NodeJS.Signals) => void) | null = null;
const stopped = new Promise<NodeJS.Signals>((resolve) => {
  stop = resolve;
});
const context: CommandContext = {
  env: process.env,
  cwd: process.cwd(),
  home: os.homedir(),
  packageDir,
  version,
  stdout: process.stdout,
  stderr: process.stderr,
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
function command(name: string, description: string, example: string): Command {
  return new Command(name).description(description).addHelpText('after', `\nExample:\n  $ ${example}`).exitOverride();
}
// A command's parts are loaded when it runs: `--help` needs none of them.
const finish = async (code: Promise<number>) => {
  process.exitCode = await code;
};

program.addCommand(
  withConfigFlags(command('serve', 'Run the server.', 'metis serve --port 9000 --data ./data')).action(
    (flags: ConfigFlags) => finish(import('./app/commands/serve.ts').then(({ serve }) => serve(context, flags))),
  ),
);
program.addCommand(
  command('demo', 'Watch a planner hand work to three workers; needs no key and no network.', 'metis demo --keep')
    .option('--keep', 'leave the server running afterwards')
    .addOption(
      new Option('--provider <name>', 'use real models instead of scripted ones').choices(['anthropic', 'openai']),
    )
    .action((flags: { keep?: boolean; provider?: string }) =>
      finish(import('./app/commands/demo.ts').then(({ demo }) => demo(context, flags))),
    ),
);
program.addCommand(
  withConfigFlags(
    command('doctor', 'Check data folder, keys, prices and port, and say what to do.', 'metis doctor'),
  ).action((flags: ConfigFlags) =>
    finish(import('./app/commands/doctor.ts').then(({ doctor }) => doctor(context, flags))),
  ),
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
        finish(import('./app/commands/config-check.ts').then(({ checkConfig }) => checkConfig(context, flags))),
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
