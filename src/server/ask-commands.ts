// The commands that ask a running server, each with its flags and its help (17 §2).
import { setTimeout } from 'node:timers/promises';
import { type Command, Option } from 'commander';
import type { CostFlags } from '#cli/cost.ts';
import { COST_GROUPS_HELP } from '#cli/cost-groups.ts';
import type { EventsFlags } from '#cli/events.ts';
import type { ModelsFlags } from '#cli/models.ts';
import type { SessionsFlags } from '#cli/sessions.ts';
import type { ServerFlags } from '#cli/terminal.ts';
import type { TrustFlags } from '#cli/trust.ts';
import type { WhatIfFlags } from '#cli/what-if.ts';
import type { WorkersFlags } from '#cli/worker-definitions.ts';
import type { PruneFlags } from '#cli/worktrees.ts';
import type { ServerAddress } from '#client/request.ts';
import type { ReconcileFlags } from './commands/reconcile.ts';
import type { NewTokenFlags } from './commands/token.ts';
import type { CommandContext } from './context.ts';
import {
  createCommand,
  createNumberParser,
  parsePercent,
  parseServerUrl,
  parseSessionId,
  parseSince,
  parseUsd,
  ROLES,
  withServerFlags,
} from './flags.ts';

type WorkersCommandFlags = ServerFlags & WorkersFlags;
type Finish = (code: Promise<number>) => Promise<void>;
type Ask = (flags: ServerFlags, body: (server: ServerAddress) => Promise<number>) => Promise<void>;

/** `sessions`, `cost`, `reconcile`, `models`, `events`, `conclude` and `routing`. */
export function addQueryCommands(program: Command, context: CommandContext, ask: Ask, finish: Finish): void {
  program.addCommand(
    withServerFlags(
      createCommand(
        'sessions',
        'List the sessions of a running server, newest first.',
        'metis sessions --status running',
      ),
    )
      .addOption(
        new Option('--limit <n>', 'maximum number of sessions').default(20).argParser(createNumberParser(1, 100_000)),
      )
      .addOption(
        new Option('--status <status...>', 'only sessions of these statuses').choices([
          'idle',
          'running',
          'interrupted',
          'ended',
        ]),
      )
      .option('--failed', 'only open sessions whose newest turn failed')
      .option('--workers', 'include sessions of workers')
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
        'metis cost --verified --group-by check',
      ).addHelpText('after', COST_GROUPS_HELP),
    )
      .option('--group-by <dimensions>', 'one or two groups, separated by a comma', 'model')
      .addOption(
        new Option('--since <when>', 'start: 24h, 7d, 2w, a day like 2026-01-31, a time, or all')
          .default('7d')
          .argParser(parseSince),
      )
      .addOption(new Option('--session <id>', 'only this session and its workers').argParser(parseSessionId))
      .addOption(new Option('--verified', 'what results cost that a check has passed').conflicts('session'))
      .action((flags: ServerFlags & CostFlags & { readonly verified?: true }) =>
        ask(flags, async (server) =>
          flags.verified
            ? (await import('#cli/verified-cost.ts')).showVerifiedCost(context, server, flags)
            : (await import('#cli/cost.ts')).showCost(context, server, flags),
        ),
      ),
  );
  program.addCommand(createReconcileCommand(context, finish));
  program.addCommand(
    withServerFlags(
      createCommand(
        'models',
        'List the models that can be used, with their names and prices.',
        'metis models',
        'metis models --all',
      ),
    )
      .option('--all', 'include models whose provider has no key')
      .action((flags: ServerFlags & ModelsFlags) =>
        ask(flags, async (server) => (await import('#cli/models.ts')).listModels(context, server, flags)),
      ),
  );
  program.addCommand(
    withServerFlags(
      createCommand('events', 'Print the events of a session.', 'metis events sess_01JZ... --follow --workers')
        .argument('<session>', 'id of the session; metis sessions lists them')
        .option('--follow', 'print new events until the session ends; survives a server restart')
        .option('--workers', 'include events of workers'),
    ).action((session: string, flags: ServerFlags & EventsFlags) => {
      const stopped = new AbortController();
      // Ctrl-C and a closed output end the stream, and nothing else.
      void Promise.race([context.stopSignal(), context.outputClosed]).then(() => stopped.abort());
      return ask(flags, async (server) =>
        (await import('#cli/events.ts')).showEvents(context, server, session, { ...flags, signal: stopped.signal }),
      );
    }),
  );
  program.addCommand(
    withServerFlags(
      createCommand(
        'conclude',
        'Let the running turn of a session answer with what it has.',
        'metis conclude sess_01JZ...',
      ).argument('<session>', 'id of the session, of a worker too'),
    ).action((session: string, flags: ServerFlags) =>
      ask(flags, async (server) => (await import('#cli/conclude.ts')).concludeSession(context, server, session, flags)),
    ),
  );
  program.addCommand(
    createCommand(
      'routing',
      'Check routing rules, explain which model a message would get, and set a default.',
      'metis routing explain "say hello"',
    )
      .addCommand(
        withServerFlags(
          createCommand(
            'check',
            'Check whether a routing file is valid.',
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
            'Show which model a message would get, and why; starts no turn.',
            'metis routing explain "say hello" --workspace .',
          )
            .argument('<text>', 'the message')
            .option('--workspace <dir>', "the session's workspace; default: the current folder")
            .option('--model <model>', 'model of the session, id or alias'),
        ).action((text: string, flags: ServerFlags & { workspace?: string; model?: string }) =>
          ask(flags, async (server) => (await import('#cli/routing.ts')).explainRoute(context, server, text, flags)),
        ),
      )
      .addCommand(
        withServerFlags(
          createCommand(
            'use',
            'Write the default model of a workspace into its .metis/routing.yaml.',
            'metis routing use haiku --workspace .',
          )
            .argument('<model>', 'id or alias, with or without an effort')
            .option('--workspace <dir>', 'the workspace; default: the current folder')
            .option('--dry-run', 'print the text that the file would have; write nothing'),
        ).action((model: string, flags: ServerFlags & { workspace?: string; dryRun?: boolean }) =>
          ask(flags, async (server) =>
            (await import('#cli/routing.ts')).setDefaultModel(context, server, model, flags),
          ),
        ),
      )
      .addCommand(createWhatIfCommand(context, ask)),
  );
}

/** `metis routing what-if` (21 §2). */
function createWhatIfCommand(context: CommandContext, ask: Ask): Command {
  return withServerFlags(
    createCommand(
      'what-if',
      'Show what the same work would have cost under another routing file or on other models.',
      'metis routing what-if routing.yaml --since 30d',
      'metis routing what-if --model opus=sonnet --model sonnet=haiku',
    )
      .argument('[file]', 'a routing file in place of those in force; it is not loaded')
      .addOption(
        new Option('--model <from=to>', 'a model with the one in its place; repeat it for several').argParser(
          (pair: string, others: readonly string[] = []) => [...others, pair],
        ),
      )
      .addOption(
        new Option('--since <when>', 'start: 24h, 7d, 2w, a day like 2026-01-31, a time, or all')
          .default('7d')
          .argParser(parseSince),
      )
      .option('--workspace <dir>', 'only work in this workspace')
      .addHelpText(
        'after',
        `
Each stored decision is made again, and each call of a changed one is priced at
today's prices with its recorded tokens; another model would have written other
texts. Exit code: 0, 1 when it would have cost more even at its lowest.`,
      ),
  ).action((file: string | undefined, flags: ServerFlags & WhatIfFlags) =>
    ask(flags, async (server) => (await import('#cli/what-if.ts')).showWhatIf(context, server, file ?? null, flags)),
  );
}

/** `metis reconcile`: what providers billed, beside the ledger (22 §6). */
function createReconcileCommand(context: CommandContext, finish: Finish): Command {
  return createCommand(
    'reconcile',
    'Compare what providers report that they billed with the ledger; changes nothing.',
    'metis reconcile cost.json usage.csv',
    'metis reconcile cost.csv --since 2026-11-01 --tolerance 0.5',
  )
    .argument('<file...>', 'exports of Anthropic, OpenAI or OpenRouter, JSON or CSV')
    .addOption(
      new Option(
        '--since <when>',
        'first day: 7d, 2w, or a day like 2026-01-31; default: that of the exports',
      ).argParser(parseSince),
    )
    .addOption(
      new Option('--tolerance <percent>', 'by how much a sum may differ')
        .default(parsePercent('0.1'), '0.1')
        .argParser(parsePercent),
    )
    .addOption(
      new Option('--server <url>', 'read the ledger of this server; else the one of the data folder').argParser(
        parseServerUrl,
      ),
    )
    .addOption(new Option('--token <token>', 'access token of the server; default: METIS_TOKEN'))
    .addOption(new Option('--data <dir>', 'read the ledger of this data folder; default: ~/.metis'))
    .addOption(new Option('--json', 'print the result as JSON'))
    .addHelpText(
      'after',
      `
Days are UTC. The command compares sums by day, model and class of tokens, and
those of a cost report by day and model, with fees apart. It names the likely
reason of each difference.
Exit code: 0 all sums agree, 1 some differ, 2 a file is no export or the ledger
cannot be read.`,
    )
    .action((files: string[], flags: ReconcileFlags) =>
      finish(import('./commands/reconcile.ts').then(({ reconcile }) => reconcile(context, flags, files))),
    );
}

/** `metis trust`: files of a workspace that extend what runs without approval (20 §11). */
export function createTrustCommand(context: CommandContext, ask: Ask): Command {
  const about = 'Trust a file that extends what runs without approval; without a file: list such files.';
  return withServerFlags(createCommand('trust', about, 'metis trust .metis/workers/tester.yaml'))
    .argument('[file]', 'the file; you see it and confirm')
    .option('--workspace <dir>', 'the workspace of the file; default: the current folder')
    .option('--remove', 'revoke the trust')
    .option('--sha256 <hex>', 'trust the file without a prompt if it has this SHA-256')
    .action((file: string | undefined, flags: ServerFlags & TrustFlags) =>
      ask(flags, async (server) => {
        const { changeTrust, listTrust } = await import('#cli/trust.ts');
        if (file === undefined) return listTrust(context, server, flags);
        return changeTrust(context, server, file, flags);
      }),
    );
}

/** `metis worktrees`: what is kept of worktrees, and `prune` (20 §2.7). */
export function createWorktreesCommand(context: CommandContext, ask: Ask): Command {
  const about = 'List what is kept of the worktrees of workers, with sizes.';
  return withServerFlags(createCommand('worktrees', about, 'metis worktrees', 'metis worktrees prune'))
    .action((flags: ServerFlags) =>
      ask(flags, async (server) => (await import('#cli/worktrees.ts')).listWorktrees(context, server, flags)),
    )
    .addCommand(
      withServerFlags(
        createCommand(
          'prune',
          'Free what is kept of workers that have ended; changes that were not applied stay.',
          'metis worktrees prune --all',
        ),
      )
        .option('--all', 'free changes that were not applied too: nothing can apply them afterwards')
        .action((_: unknown, prune: Command) => {
          // The flags that both commands have are parsed by the upper one.
          const flags = prune.optsWithGlobals<ServerFlags & PruneFlags>();
          return ask(flags, async (server) =>
            (await import('#cli/worktrees.ts')).pruneWorktrees(context, server, flags),
          );
        }),
    );
}

/** @param ask finds the server, runs the body with it and ends with the exit code of the body */
export function createWorkersCommand(context: CommandContext, ask: Ask): Command {
  const own = (name: string, description: string, example: string) =>
    withServerFlags(createCommand(name, description, example)).option(
      '--workspace <dir>',
      'the workspace of the workers; default: the current folder',
    );
  const parts = () => import('#cli/worker-definitions.ts');
  const about = 'List, show and check the named workers of a workspace.';
  return createCommand('workers', about, 'metis workers list')
    .addCommand(
      own('list', 'List the workers and the folders that each may use.', 'metis workers list').action(
        (flags: WorkersCommandFlags) =>
          ask(flags, async (server) => (await parts()).listWorkers(context, server, flags)),
      ),
    )
    .addCommand(
      own('show', 'Print the definition of a worker; exits 1 if it cannot be called.', 'metis workers show evaluator')
        .argument('<name>', 'name of the worker')
        .action((name: string, flags: WorkersCommandFlags) =>
          ask(flags, async (server) => (await parts()).printWorker(context, server, name, flags)),
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

const parseDays = (text: string) => createNumberParser(1, 36_500)(text.replace(/d$/, ''));

/** @param ask finds the server, runs the body with it and ends with the exit code of the body */
export function createTokenCommand(context: CommandContext, ask: Ask, finish: Finish): Command {
  const loadCommands = () => import('#cli/tokens.ts');
  return createCommand('token', 'Make, list and revoke the tokens of people.', 'metis token create ann --role member')
    .addCommand(
      withServerFlags(
        createCommand(
          'create',
          'Make a token and print it, once. With --data beside a stopped server: the first one.',
          'metis token create ann --role member --daily 5 --expires 90d',
          'metis token create root --role admin --data ./data',
        ),
      )
        .argument('<name>', 'name of the token; it is never given out again')
        .addOption(new Option('--role <role>', 'what it may do').choices(ROLES).makeOptionMandatory())
        .addOption(new Option('--daily <usd>', 'the most that it may spend in a day').argParser(parseUsd))
        .addOption(new Option('--monthly <usd>', 'the most that it may spend in a month').argParser(parseUsd))
        .addOption(new Option('--expires <days>', 'days after which it ends, like 90d').argParser(parseDays))
        .option('--workspace <dir...>', 'folders below which it may open workspaces')
        .action((name: string, flags: NewTokenFlags) =>
          finish(import('./commands/token.ts').then(({ makeToken }) => makeToken(context, name, flags))),
        ),
    )
    .addCommand(
      withServerFlags(createCommand('list', 'List the tokens with their limits and spend.', 'metis token list')).action(
        (flags: ServerFlags) => ask(flags, async (server) => (await loadCommands()).listTokens(context, server, flags)),
      ),
    )
    .addCommand(
      withServerFlags(createCommand('revoke', 'Revoke a token; its running turns go on.', 'metis token revoke ann'))
        .argument('<name>', 'name or id of the token')
        .action((name: string, flags: ServerFlags) =>
          ask(flags, async (server) => (await loadCommands()).revokeToken(context, server, name)),
        ),
    )
    .addCommand(
      createCommand(
        'hash',
        'Print the SHA-256 of the token on stdin, for server.tokens.',
        'metis token hash < token.txt',
      ).action(() => finish(import('./commands/token.ts').then(({ hashToken }) => hashToken(context)))),
    );
}

export function createAuditCommand(context: CommandContext, ask: Ask): Command {
  return withServerFlags(
    createCommand('audit', 'Print what was done with the rights of tokens.', 'metis audit --follow'),
  )
    .option('--follow', 'print new entries until the command is stopped')
    .action((flags: ServerFlags & { readonly follow?: boolean }) => {
      const stopped = new AbortController();
      void context.stopSignal().then(() => stopped.abort());
      const follow = {
        ...flags,
        signal: stopped.signal,
        // A timer of the system clock would let the process end.
        sleep: (ms: number, signal: AbortSignal) => setTimeout(ms, undefined, { signal }),
      };
      return ask(flags, async (server) => (await import('#cli/tokens.ts')).showAudit(context, server, follow));
    });
}
