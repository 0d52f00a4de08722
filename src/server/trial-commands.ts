// Commands that work on copies, with a server of their own: `metis demo` and `metis benchmark` (17 §1, §6).
import { type Command, InvalidArgumentError, Option } from 'commander';
import type { BenchmarkFlags } from './commands/benchmark/benchmark.ts';
import { parsePolicy } from './commands/benchmark/policy.ts';
import type { CommandContext } from './context.ts';
import { createCommand, parseUsd, withConfigFlags } from './flags.ts';

type Finish = (code: Promise<number>) => Promise<void>;

export function createDemoCommand(context: CommandContext, finish: Finish): Command {
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

export function createBenchmarkCommand(context: CommandContext, finish: Finish): Command {
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
      finish(import('./commands/benchmark/benchmark.ts').then(({ benchmark }) => benchmark(context, flags, folder))),
    );
}

function parsePolicyFlag(text: string): string {
  if (parsePolicy(text) === null)
    throw new InvalidArgumentError('It must be like sonnet-planner-haiku-worker, with ids or aliases of models.');
  return text;
}
