// Flags that several commands share, and the parsers of their values.
import { Command, InvalidArgumentError, Option } from 'commander';
import { parseSinceTime } from '#cli/since-time.ts';
import { SESSION_ID_PATTERN } from '#protocol/ids.ts';
import { fromPusd, toPusd, USD_LIMIT_PATTERN, ZERO_PUSD } from '#protocol/money.ts';
import type { Role } from '#protocol/people/person.ts';
import { hideQuotedCredentials } from './url.ts';

/** Of a token. Not read from the schema: help loads no library for it. */
export const ROLES = ['viewer', 'member', 'admin'] as const satisfies readonly Role[];

/** Creates a command with examples in its help. */
export function createCommand(name: string, description: string, ...examples: readonly string[]): Command {
  const title = examples.length === 1 ? 'Example' : 'Examples';
  const command: Command = new Command(name);
  return command
    .configureOutput({ outputError: (text, write) => write(composeUsageError(command, text)) })
    .description(description)
    .addHelpText('after', `\n${title}:\n${examples.map((example) => `  $ ${example}`).join('\n')}`)
    .exitOverride();
}

/** What is wrong, in the form of every other message, and where the right arguments are shown. */
export function composeUsageError(command: Command, text: string): string {
  const names = [];
  for (let at: Command | null = command; at?.parent != null; at = at.parent) names.unshift(at.name());
  const sentence = hideQuotedCredentials(text)
    .replace(INVALID_CHOICE, 'error: the $1 must be one of $2\n')
    .replace(/^error: /, 'metis: ');
  return `${sentence}${['metis', 'help', ...names].join(' ')} shows what it takes\n`;
}

const INVALID_CHOICE =
  /^error: command-argument value '.*' is invalid for argument '(.+)'\. Allowed choices are (.+)\.\n$/s;

/** Adds the flags of commands that load the configuration. */
export function withConfigFlags(command: Command, { address = false } = {}): Command {
  // Every command takes the same flags, so that one set of them works for all.
  for (const option of [
    new Option('--host <host>', 'address to bind'),
    new Option('--port <port>', 'port to bind; 0 picks a free one'),
  ])
    command.addOption(option.hideHelp(!address));
  return command
    .addOption(new Option('--data <dir>', 'data folder; default: ~/.metis'))
    .addOption(new Option('--config <file>', 'configuration file, in place of ~/.metis/server.yaml'))
    .addOption(
      new Option('--set <key=value>', 'set one configuration key; may be repeated').argParser(
        (pair: string, before: string[] = []) => [...before, pair],
      ),
    );
}

/** Adds the flags of commands that also use the address to bind. */
export function withAddressFlags(command: Command): Command {
  return withConfigFlags(command, { address: true });
}

/** The flag of commands that use a running server; without it, the server of the data folder (19 §5). */
export function createServerOption(): Option {
  const text = 'address of the server; else the one of the data folder, or the configured one';
  return new Option('--server <url>', text).argParser(parseServerUrl);
}

/** Adds the flags of commands that use a running server. */
export function withServerFlags(command: Command): Command {
  return command
    .addOption(createServerOption())
    .addOption(new Option('--token <token>', 'access token of the server; default: METIS_TOKEN'))
    .addOption(new Option('--data <dir>', 'data folder of the server; default: ~/.metis'))
    .addOption(new Option('--json', 'print the answer as JSON'));
}

/** Adds the flags of commands that serve a protocol and find or start a server. */
export function withDoorFlags(command: Command): Command {
  return withConfigFlags(command)
    .addOption(
      new Option('--server <url>', 'address of the server; else the one of the data folder, or a new one').argParser(
        parseServerUrl,
      ),
    )
    .addOption(new Option('--token <token>', 'access token of the server; default: METIS_TOKEN'));
}

/** The address of a server as typed, with or without `http://`. */
export function parseServerUrl(text: string): string {
  const url = /^[a-z][a-z0-9+.-]*:\/\//i.test(text) ? text : `http://${text}`;
  if (!URL.canParse(url) || !['http:', 'https:'].includes(new URL(url).protocol))
    throw new InvalidArgumentError('It must be an address like 127.0.0.1:8420 or http://127.0.0.1:8420.');
  const { username, password } = new URL(url);
  if (username !== '' || password !== '')
    throw new InvalidArgumentError(
      'It must not contain a user or password; set the token with --token or METIS_TOKEN.',
    );
  return url;
}

export function createNumberParser(least: number, most: number): (text: string) => number {
  return (text) => {
    if (!/^\d{1,9}$/.test(text) || Number(text) < least || Number(text) > most)
      throw new InvalidArgumentError(`It must be a whole number from ${least} to ${most}.`);
    return Number(text);
  };
}

/** Rejects any other text: a report for an unknown id would show $0. */
export function parseSessionId(text: string): string {
  if (!SESSION_ID_PATTERN.test(text))
    throw new InvalidArgumentError('It must be the id of a session; metis sessions lists them.');
  return text;
}

/** Rejects a blank text. */
export function parseWords(text: string): string {
  if (text.trim() === '') throw new InvalidArgumentError('It must not be blank.');
  return text;
}

/** An amount above 0, also with a dollar sign before it. */
export function parseUsd(text: string): string {
  const given = text.replace(/^\$/, '');
  const amount = USD_LIMIT_PATTERN.test(given) ? toPusd(given) : ZERO_PUSD;
  if (amount === ZERO_PUSD) throw new InvalidArgumentError('It must be an amount in US dollars above 0, like 0.50.');
  return fromPusd(amount);
}

const WHOLE_PERCENT = 100;

/** A share in percent, as millionths. */
export function parsePercent(text: string): bigint {
  const given = text.replace(/ ?%$/, '');
  if (!/^\d{1,3}(\.\d{1,4})?$/.test(given) || Number(given) > WHOLE_PERCENT)
    throw new InvalidArgumentError('It must be a percentage from 0 to 100 with at most 4 fraction digits, like 0.1.');
  return toPusd(given) / PUSD_PER_MILLIONTH;
}
/** A percent is ten thousand millionths. */
const PUSD_PER_MILLIONTH = 100_000_000n;

export function parseSince(text: string): string {
  if (parseSinceTime(text) === null)
    throw new InvalidArgumentError('It must be like 24h, 7d, 2w, 2026-01-31, an RFC 3339 time, or all.');
  return text;
}

const POLICY = /^(.+)-planner-(.+)-worker$/;

/** Model ids or aliases; null = as configured. */
export interface Policy {
  readonly planner: string | null;
  readonly worker: string | null;
}

/** @param text like `sonnet-planner-haiku-worker`; null = not a policy */
export function parsePolicy(text: string): { readonly planner: string; readonly worker: string } | null {
  const [, planner, worker] = POLICY.exec(text) ?? [];
  if (planner === undefined || worker === undefined) return null;
  return { planner, worker };
}
