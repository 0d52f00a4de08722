// What a command gets from its process, and its first steps: keys file, configuration, credentials, the server to ask.
import type { Writable } from 'node:stream';
import type { DestinationStream } from 'pino';
import { toPrintable } from '#cli/printable-text.ts';
import type { ServerAddress } from '#client/request.ts';
import { bracketIpv6 } from '#http/access.ts';
import { err, ok, type Result } from '#protocol/result.ts';
import { type ConfigFlags, type LoadedConfig, loadConfig, resolveDataDirectory } from './config.ts';
import { type Credentials, createCredentials, type EnvFile, readEnvFile } from './credentials.ts';
import { findServer } from './find-server.ts';

export interface Output {
  write(text: string): unknown;
  readonly isTTY?: boolean | undefined;
  readonly columns?: number | undefined;
  readonly rows?: number | undefined;
}

export interface CommandContext {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly cwd: string;
  readonly home: string;
  /** The folder of the installed package: `config/`, `migrations/`, `examples/`. */
  readonly packageDir: string;
  readonly version: string;
  readonly stdin: NodeJS.ReadStream;
  readonly stdout: Output & Writable;
  readonly stderr: Output & NodeJS.WritableStream;
  /** Takes the lines of the log; the descriptor of stderr when absent. */
  readonly logOutput?: DestinationStream;
  /** Resolves when stdout is closed: later writes are lost. */
  readonly outputClosed: Promise<void>;
  /** Resolves with the first SIGINT or SIGTERM; the second ends the process, with this code or 1. npm's copy of a signal is none. */
  stopSignal(secondCode?: number): Promise<NodeJS.Signals>;
  /** Calls `work` at each SIGHUP, which then does not end the process. */
  onHangup(work: () => void): void;
  /** Calls `work` at each Ctrl-\ (SIGQUIT), which then does not end the process; the returned function takes it back. */
  onQuitKey(work: () => void): () => void;
  /** Runs `work` when the process ends, however it is ended from within; the returned function takes it back. */
  onExit(work: () => void): () => void;
  /** Ends the process on the spot. */
  exit(code: number): never;
}

/** One line per problem on stderr; the exit code of a command that could not start. */
export function refuse(context: CommandContext, problems: readonly string[]): number {
  for (const problem of problems) context.stderr.write(`metis: ${toPrintable(problem)}\n`);
  return 1;
}

export interface Settings extends LoadedConfig {
  readonly credentials: Credentials;
  readonly envFile: EnvFile;
}

/** Errors: one line per problem. */
export function loadSettings(context: CommandContext, flags: ConfigFlags): Result<Settings, string[]> {
  const envFile = readEnvFile(resolveDataDirectory({ flags, cwd: context.cwd, home: context.home }));
  // The environment wins over the file.
  const env = { ...envFile.values, ...context.env };
  const loaded = loadConfig({ env, flags, cwd: context.cwd, home: context.home, packageDir: context.packageDir });
  if (loaded.ok) return ok({ ...loaded.value, envFile, credentials: createCredentials(env) });
  return err(loaded.error);
}

/** Runs `body` with the server that the flags name, else that of the data folder, else the configured one; its exit code. */
export async function withServer(
  context: CommandContext,
  flags: { readonly server?: string; readonly token?: string; readonly data?: string },
  body: (server: ServerAddress) => Promise<number>,
): Promise<number> {
  const { server, token } = flags;
  // The configuration of this machine does not apply to a server of another one.
  if (server !== undefined) return body({ baseUrl: server, token: token ?? context.env.METIS_TOKEN ?? null });
  const { data } = flags;
  const settings = loadSettings(context, { ...(data !== undefined && { data }) });
  if (!settings.ok) return refuse(context, settings.error);
  const configured = getConfiguredServer(context, settings.value, flags);
  const found = await findServer(settings.value, configured, data !== undefined);
  if (found === null && data !== undefined) {
    const { dataDir } = settings.value;
    return refuse(context, [`no server answers for ${dataDir}; metis serve --data ${dataDir} starts one`]);
  }
  // If no server answers there, the request reports it.
  return body({ ...configured, baseUrl: found?.baseUrl ?? configured.baseUrl });
}

/** A server that is bound to all addresses is reached at the local one. */
const LOCAL_HOSTS: Readonly<Record<string, string>> = { '0.0.0.0': '127.0.0.1', '::': '[::1]', '[::]': '[::1]' };

/** URL on this machine of a server that is bound to this address. */
export function toClientUrl(host: string, port: number | string): string {
  return `http://${LOCAL_HOSTS[host] ?? bracketIpv6(host)}:${port}`;
}

/** Address and token of the server of this configuration. */
export function getConfiguredServer(
  { env }: CommandContext,
  { config }: Settings,
  flags: { readonly server?: string; readonly token?: string },
): ServerAddress {
  const { host, port, auth_tokens } = config.server;
  return {
    baseUrl: flags.server ?? toClientUrl(host, port),
    token: flags.token ?? env.METIS_TOKEN ?? auth_tokens[0] ?? null,
  };
}
