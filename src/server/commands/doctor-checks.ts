// Checks of `metis doctor`: keys at their providers, MCP servers, webhooks, the sandbox of the shell tool (17 §2).

import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import type { RegistryFile } from '#core/policy/registry/model-registry.ts';
import { WorktreeError } from '#core/ports/worktrees.ts';
import { checkKey, type KeyCheck } from '#models/adapters/key-check.ts';
import { createHttpClient } from '#models/http/http-client.ts';
import { systemClock } from '#protocol/clock.ts';
import type { Config } from '#protocol/config.ts';
import type { McpServerConfig } from '#protocol/mcp.ts';
import { shellEnvironment } from '#tools/sandbox/command.ts';
import { createGit } from '#tools/worktree/git.ts';
import { requireVersion } from '#tools/worktree/repository.ts';
import type { CommandContext, Settings } from '../context.ts';
import type { Credentials, Env } from '../credentials.ts';

interface KeyLine {
  readonly level: 'ok' | 'warning' | 'error';
  readonly text: string;
}

/** One line for each adapter that can be used. Throws `StartupError` for a proxy that is no address. */
export async function checkKeysOnline({ env }: CommandContext, { adapters }: RegistryFile, settings: Settings) {
  const { credentials } = settings;
  const send = createHttpClient(env);
  const lines = await Promise.all(
    [...adapters].map(async ([id, config]): Promise<KeyLine | null> => {
      const found = credentials.forAdapter(id, config);
      if (found === null) return null;
      const { secrets } = credentials;
      const check = await checkKey({ config, found, send, clock: systemClock, secrets });
      if (check === null) return null;
      return describeKeyCheck(id, check, {
        keyed: found.key !== null,
        variable: credentials.keyName(id, config),
        file: settings.envFile.path,
      });
    }),
  );
  return lines.filter((line) => line !== null);
}

interface KeyPlace {
  readonly keyed: boolean;
  readonly variable: string;
  readonly file: string;
}

const WITH_KEY = ['the key is accepted', 'the key is rejected'] as const;
const WITHOUT_KEY = ['it answers', 'a key is required'] as const;

function describeKeyCheck(id: string, { verdict, answer }: KeyCheck, { keyed, variable, file }: KeyPlace): KeyLine {
  const [accepted, rejected] = keyed ? WITH_KEY : WITHOUT_KEY;
  if (verdict === 'accepted') return { level: 'ok', text: `${id}: ${accepted}` };
  if (verdict === 'rejected') {
    const advice = `check ${variable} in the environment or in ${file}`;
    return { level: 'error', text: `${id}: ${rejected}: ${answer}; ${advice}` };
  }
  return {
    level: 'warning',
    text: `${id}: the key could not be checked: ${answer}`,
  };
}

interface McpLine {
  readonly usable: boolean;
  readonly text: string;
}

/** One line a server. Arguments, headers and what follows an address's host are not shown: they may hold secrets. */
export function checkMcpServers({ mcp, mcp_servers }: Config, searchPath: string | undefined): McpLine[] {
  const lines = Object.entries(mcp_servers).map(([name, server]) => describeMcpServer(name, server, searchPath ?? ''));
  if (mcp.project_files)
    lines.push({ usable: true, text: 'the .mcp.json of a workspace is read, and starts the programs it names' });
  return lines;
}

function describeMcpServer(name: string, { enabled, url, command = '' }: McpServerConfig, searchPath: string): McpLine {
  const about = `MCP server ${name}`;
  if (enabled === false) return { usable: true, text: `${about} is switched off` };
  if (url !== undefined) {
    if (!URL.canParse(url)) return { usable: true, text: `${about} at an address with variables` };
    return { usable: true, text: `${about} at ${new URL(url).origin}` };
  }
  if (command.includes('${')) return { usable: true, text: `${about} runs a command with variables` };
  if (canFindProgram(command, searchPath)) return { usable: true, text: `${about} runs ${command}` };
  return { usable: false, text: `${about}: ${command} is not there; install it or change mcp_servers.${name}.command` };
}

/** A relative path is resolved in each workspace, so it counts as found. */
function canFindProgram(command: string, searchPath: string): boolean {
  if (command.includes('/')) return !path.isAbsolute(command) || isProgram(command);
  return searchPath.split(path.delimiter).some((folder) => isProgram(path.join(folder, command)));
}

function isProgram(file: string): boolean {
  try {
    fs.accessSync(file, fs.constants.X_OK);
    return fs.statSync(file).isFile();
  } catch {
    return false;
  }
}

interface NotifyLine {
  readonly usable: boolean;
  readonly text: string;
}

/** One line a receiver. What follows an address's host is not shown: it may hold a secret. */
export function checkWebhooks({ notify }: Config, credentials: Credentials): NotifyLine[] {
  return notify.map(({ url, events, secret_env }, i) => {
    const about = `webhook to ${new URL(url).origin}`;
    const text = `${about}: ${events.join(', ')}`;
    if (secret_env === null) return { usable: true, text: `${text}; not signed` };
    if (credentials.secret(secret_env) !== null) return { usable: true, text: `${text}; signed with ${secret_env}` };
    const cure = `set it in the environment or in the data folder's .env, or remove notify.${i}.secret_env`;
    return { usable: false, text: `${about}: ${secret_env} is not set, so the server does not start; ${cure}` };
  });
}

const LIMIT_MS = 5000;

export const NO_SANDBOX =
  'tools.shell.sandbox is "required" but bwrap does not work here; install bubblewrap, allow unprivileged user namespaces, or set it to "off"';

/** Where the system allows no namespaces of one's own, bubblewrap is installed and works all the same not. */
export function canSandbox(env: Env): boolean {
  const cage = ['--unshare-user', '--unshare-pid', '--unshare-net', '--ro-bind', '/', '/', 'true'];
  return spawnSync('bwrap', cage, { env: shellEnvironment(env, []), timeout: LIMIT_MS }).status === 0;
}

export const RUNS_AS_ROOT =
  'the server runs as root, so a command of the shell tool that is approved can change this machine; run it as a user of its own';

/** Whether this process is the superuser of its system. */
export function isRoot(): boolean {
  return process.getuid?.() === 0;
}

// Worktrees of workers (20 §2).

/** The version of git where it will do for worktrees, else why not. */
export async function checkGitVersion(
  env: Readonly<Record<string, string | undefined>>,
): Promise<{ readonly version: string } | { readonly obstacle: string }> {
  try {
    return { version: await requireVersion(createGit(env), process.cwd()) };
  } catch (error) {
    if (error instanceof WorktreeError) return { obstacle: error.message };
    throw error;
  }
}
