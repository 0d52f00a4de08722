// `metis token` and `metis audit`: who may use a server, and what was done with its tokens (23 §2, §4).
import { type AuditList, createMetisClient, type NewTokenOrder, type Token } from '#client/client.ts';
import type { ServerAddress } from '#client/request.ts';
import { toJsonLine, toPrintable } from './printable-text.ts';
import { askServer, printMessage, type ServerFlags, type Terminal } from './terminal.ts';

type Json = Pick<ServerFlags, 'json'>;
type TokenTerminal = Terminal & { readonly stderr: NodeJS.WritableStream };

/** Prints the secret on stdout, once: it is stored nowhere. */
export async function orderToken(
  terminal: TokenTerminal,
  server: ServerAddress,
  order: NewTokenOrder,
  flags: Json,
): Promise<number> {
  return askServer(terminal, server, async () => {
    const made = await createMetisClient(server).createToken(order);
    printSecret(terminal, made, flags);
    return 0;
  });
}

export function printSecret(
  terminal: TokenTerminal,
  made: { readonly name: string; readonly secret: string },
  flags: Json,
) {
  if (flags.json) terminal.stdout.write(toJsonLine(made));
  else terminal.stdout.write(`${made.secret}\n`);
  printMessage(terminal.stderr, `this is the token of ${made.name}; it is shown this once`);
}

/** Prints a line for each token, revoked ones too. */
export async function listTokens(terminal: Terminal, server: ServerAddress, flags: Json): Promise<number> {
  return askServer(terminal, server, async () => {
    const { tokens } = await createMetisClient(server).listTokens();
    for (const token of tokens)
      terminal.stdout.write(flags.json ? toJsonLine(token) : `${toPrintable(describeToken(token))}\n`);
    if (tokens.length === 0 && !flags.json) terminal.stdout.write('no token has a name\n');
    return 0;
  });
}

export async function revokeToken(terminal: TokenTerminal, server: ServerAddress, name: string): Promise<number> {
  return askServer(terminal, server, async () => {
    const revoked = await createMetisClient(server).revokeToken(name);
    printMessage(terminal.stderr, `the token of ${revoked.name} is revoked; its running turns go on`);
    return 0;
  });
}

function describeToken(token: Token): string {
  const { name, role, origin, workspaces, daily_usd, monthly_usd, spent_today_usd, spent_this_month_usd } = token;
  const parts = [`${name} ${role}`];
  if (origin === 'file') parts.push('of the configuration');
  parts.push(`today $${spent_today_usd}${daily_usd === null ? '' : ` of $${daily_usd}`}`);
  parts.push(`this month $${spent_this_month_usd}${monthly_usd === null ? '' : ` of $${monthly_usd}`}`);
  if (workspaces !== null) parts.push(`in ${workspaces.join(' and ') || 'no workspace'}`);
  if (token.revoked_at !== null) parts.push(`revoked ${token.revoked_at}`);
  else if (token.expires_at !== null) parts.push(`expires ${token.expires_at}`);
  return parts.join(', ');
}

const PAGE = 200;
const FOLLOW_MS = 2000;

interface AuditFlags extends Json {
  readonly follow?: boolean;
  /** Ends `follow`. */
  readonly signal: AbortSignal;
  readonly sleep: (ms: number, signal: AbortSignal) => Promise<void>;
}

/** Prints the newest entries, oldest first; with `follow` those that come later too. */
export async function showAudit(terminal: Terminal, server: ServerAddress, flags: AuditFlags): Promise<number> {
  return askServer(terminal, server, async () => {
    const client = createMetisClient(server);
    for (let last = ''; ; ) {
      const { entries } = await client.listAudit({ limit: PAGE });
      const fresh = entries.filter(({ id }) => id > last).reverse();
      for (const entry of fresh)
        terminal.stdout.write(flags.json ? toJsonLine(entry) : `${toPrintable(describeEntry(entry))}\n`);
      last = fresh.at(-1)?.id ?? last;
      if (last === '' && !flags.json && !flags.follow) terminal.stdout.write('the audit has no entries\n');
      if (!flags.follow || flags.signal.aborted) return 0;
      await flags.sleep(FOLLOW_MS, flags.signal).catch(() => {});
      if (flags.signal.aborted) return 0;
    }
  });
}

function describeEntry({ at, actor, action, subject, details }: AuditList['entries'][number]): string {
  const who = actor === null ? '' : ` by ${actor.name}`;
  const more = Object.entries(details)
    .map(([name, value]) => `${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`)
    .join(' ');
  return [`${at} ${action}${who}`, subject, more].filter((part) => part !== null && part !== '').join(' ');
}
