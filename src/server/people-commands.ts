// `metis token` and `metis audit` with their flags and their help (23 §2, §4).
import { type Command, Option } from 'commander';
import type { ServerFlags } from '#cli/terminal.ts';
import type { ServerAddress } from '#client/request.ts';
import { sleep, systemClock } from '#protocol/clock.ts';
import { RoleSchema } from '#protocol/people/person.ts';
import type { NewTokenFlags } from './commands/token.ts';
import type { CommandContext } from './context.ts';
import { createCommand, createNumberParser, parseUsd, withServerFlags } from './flags.ts';

type Finish = (code: Promise<number>) => Promise<void>;
type Ask = (flags: ServerFlags, body: (server: ServerAddress) => Promise<number>) => Promise<void>;

const MOST_DAYS = 36_500;

function parseDays(text: string): number {
  return createNumberParser(1, MOST_DAYS)(text.replace(/d$/, ''));
}

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
        .addOption(new Option('--role <role>', 'what it may do').choices(RoleSchema.options).makeOptionMandatory())
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
        sleep: (ms: number, signal: AbortSignal) => sleep(systemClock, ms, signal),
      };
      return ask(flags, async (server) => (await import('#cli/tokens.ts')).showAudit(context, server, follow));
    });
}
