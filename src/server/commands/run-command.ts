// `metis run "TASK"`: on the server that answers, else on one of its own that lives as long as the run (17 §2).
import fs from 'node:fs';
import path from 'node:path';
import { SHOW_CURSOR } from '#cli/live-tree.ts';
import { EXIT, type RunFlags, runTask } from '#cli/run-task.ts';
import { printMessage } from '#cli/terminal.ts';
import type { ServerAddress } from '#client/request.ts';
import { StartupError } from '#protocol/errors.ts';
import { isOwned } from '#store/sqlite/connection/database-file.ts';
import { createServer, type RunningServer } from '../compose.ts';
import type { ConfigFlags } from '../config.ts';
import { type CommandContext, getConfiguredServer, loadSettings, refuse, type Settings } from '../context.ts';
import { findServer } from '../find-server.ts';
import { createLogger } from '../log.ts';

export interface RunCommandFlags extends ConfigFlags, Omit<RunFlags, 'workspace'> {
  readonly workspace?: string;
  /** The one that the data folder names, else the configured address, when left out. */
  readonly server?: string;
  readonly token?: string;
}

/** Exit code: 0 completed, 1 failed, 2 usage, 3 cancelled, 4 budget exceeded, 5 a call was denied because it could not be approved. */
export async function run(context: CommandContext, flags: RunCommandFlags, task: string): Promise<number> {
  const leave = new AbortController();
  const interrupted = new Promise<void>((resolve) => {
    leave.signal.addEventListener('abort', () => resolve(), { once: true });
  });
  void Promise.race([context.stopSignal(EXIT.cancelled), context.outputClosed]).then(() => leave.abort());
  const interrupt = () => {
    if (leave.signal.aborted) context.exit(EXIT.cancelled);
    leave.abort();
  };
  const keep = context.onExit(() => {
    if (context.stderr.isTTY === true) context.stderr.write(SHOW_CURSOR);
  });
  const { env, cwd, stdin, stdout, stderr } = context;
  const { onQuitKey } = context;
  const terminal = { env, cwd, stdin, stdout, stderr, interrupted, interrupt, onQuitKey };
  const workspace = path.resolve(cwd, flags.workspace ?? '.');
  const at = (server: ServerAddress, more: Partial<RunFlags> = {}) =>
    runTask(terminal, server, task, { ...flags, ...more, workspace });
  try {
    return await withServerOf(context, flags, { approve: flags.approve ?? false, leave: leave.signal }, at);
  } catch (error) {
    if (error === leave.signal.reason) context.exit(EXIT.cancelled);
    throw error;
  } finally {
    keep();
  }
}

/** Runs `body` with the server that the flags name, else that of the data folder, else one of its own, unless that cannot start. */
export async function withServerOf(
  context: CommandContext,
  flags: ConfigFlags & { readonly server?: string; readonly token?: string },
  { approve, leave }: { readonly approve: boolean; readonly leave: AbortSignal },
  body: (server: ServerAddress) => Promise<number>,
): Promise<number> {
  if (flags.server !== undefined)
    return body({ baseUrl: flags.server, token: flags.token ?? context.env.METIS_TOKEN ?? null });
  const settings = loadSettings(context, flags);
  if (!settings.ok) return refuse(context, settings.error);
  const server = getConfiguredServer(context, settings.value, flags);
  const known = await findServer(settings.value, server, flags.data !== undefined);
  if (known !== null) return body({ ...server, baseUrl: known.baseUrl });
  const { db_path } = settings.value.config.storage;
  if (fs.existsSync(db_path) && isOwned(db_path)) {
    const found = `a server holds ${db_path}, but nothing answers at ${server.baseUrl}`;
    return refuse(context, [`${found}; name its address with --server`]);
  }
  const away = flags.data === undefined ? `at ${server.baseUrl}` : `for ${settings.value.dataDir}`;
  return withOwnServer(context, settings.value, { approve, away, leave }, body).catch((error: unknown) => {
    if (error instanceof StartupError) return refuse(context, error.problems);
    throw error;
  });
}

async function withOwnServer(
  context: CommandContext,
  settings: Settings,
  { approve, away, leave }: { readonly approve: boolean; readonly away: string; readonly leave: AbortSignal },
  body: (server: ServerAddress) => Promise<number>,
): Promise<number> {
  const { config, credentials, envFile, dataDir, given } = settings;
  config.server.host = '127.0.0.1';
  config.server.port = 0;
  config.server.rate_limit_rpm = null;
  // Turns that another server left open are not what this one was started for; in a cluster it may be the one node that lives.
  if (config.database.url === null) config.recovery.on_start = 'hold';
  // This process starts the server, so its flag decides.
  if (approve && !given.has('workers.allow_approve_all')) config.workers.allow_approve_all = true;
  const log = createLogger(
    given.has('log.level') ? config.log.level : 'error',
    () => [...credentials.secrets, ...config.server.auth_tokens],
    context.logOutput,
  );
  const { packageDir, version, env, stderr } = context;
  const server: RunningServer = await createServer({
    config,
    credentials,
    log,
    packageDir,
    version,
    env,
    dataDir,
    keysFile: envFile.path,
    leave,
  });
  try {
    const { url } = await server.listen();
    printMessage(stderr, `no server answers ${away}, so one runs for this task alone, data in ${dataDir}`);
    if (server.notice !== null) printMessage(stderr, server.notice);
    return await body({ baseUrl: url, token: config.server.auth_tokens[0] ?? null });
  } finally {
    await server.close();
  }
}
