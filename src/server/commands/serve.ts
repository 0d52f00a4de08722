// `metis serve`: the server, until a signal ends it.
import fs from 'node:fs';
import { isLoopback, servedNames } from '#http/access.ts';
import { systemClock, type Timer } from '#protocol/clock.ts';
import { getDrainSeconds } from '#protocol/config.ts';
import { StartupError } from '#protocol/errors.ts';
import { createServer } from '../compose.ts';
import type { ConfigFlags } from '../config.ts';
import { type CommandContext, loadSettings, refuse, toClientUrl } from '../context.ts';
import { writeServerFile } from '../find-server.ts';
import { createLogOutput, startLog } from '../log.ts';
import { locateOrigins } from '../settings-report.ts';
import { canSandbox, isRoot, NO_SANDBOX, RUNS_AS_ROOT } from './doctor-checks.ts';
import { holdOutput } from './held-output.ts';

/** Added to the time that running calls have: what is still open then is ended with the process. */
const SHUTDOWN_LIMIT_MS = 20_000;
/** Levels of the log at which the server's own events are checked as well. */
const DEBUGGING: readonly string[] = ['debug', 'trace'];

/** Exit code: 0 after an orderly stop, 1 when it could not start or did not stop in time. */
export async function serve(context: CommandContext, flags: ConfigFlags): Promise<number> {
  const settings = loadSettings(context, flags);
  if (!settings.ok) return refuse(context, settings.error);
  const { config, credentials, envFile, dataDir } = settings.value;
  const output = holdOutput(context.logOutput ?? createLogOutput());
  const log = startLog(context, settings.value, output);
  const forgetOutput = context.onExit(output.release);
  // A library's warning is a line like any other.
  process.removeAllListeners('warning');
  process.on('warning', (warning) => log.warn({ err: warning }, 'a library warns'));
  if (envFile.problem !== null) log.error({ path: envFile.path }, envFile.problem);
  for (const remark of envFile.remarks) log.warn({ path: envFile.path }, remark);
  for (const text of settings.value.warnings) log.warn({}, text);

  // It may wait long for a database, and its log states the reason.
  if (config.database.url !== null) output.release();
  // A terminal that is closed sends SIGHUP as well; then there is no output any more.
  const hungUp = context.outputClosed.then((): NodeJS.Signals | Promise<never> =>
    context.stdout.isTTY === true ? 'SIGHUP' : new Promise(() => {}),
  );
  const terminal = watchTerminal(context);
  const signal = Promise.race([context.stopSignal(), hungUp, terminal.closed]);
  const leave = new AbortController();
  void signal.then(() => leave.abort());
  let forget = () => {};
  let limit: Timer | null = null;
  try {
    const server = await createServer({
      config,
      credentials,
      log,
      packageDir: context.packageDir,
      version: context.version,
      env: context.env,
      dataDir,
      keysFile: envFile.path,
      configFiles: settings.value.files,
      origins: locateOrigins(settings.value, context.env),
      reportsOnThread: true,
      trusted: !DEBUGGING.includes(config.log.level),
      leave: leave.signal,
    });
    try {
      context.onHangup(() => {
        // At a terminal that is gone this write fails, and ends the server.
        if (context.stdout.isTTY === true) context.stdout.write('Prices and models are read again.\n');
        terminal.checkSoon();
        server.reload().catch((err: unknown) => log.error({ err }, 'prices and models could not be read again'));
      });
      const { url } = await server.listen();
      forget = writeServerFile(dataDir, { url: toClientUrl(config.server.host, new URL(url).port), embedded: false });
      context.stdout.write(
        `Metis ${context.version} listens on ${url}, data in ${dataDir}; the dashboard is at ${url}/\n`,
      );
      output.release();
      if (!isLoopback(config.server.host)) {
        context.stdout.write(
          `It serves requests to ${servedNames(config.server).join(', ')} and answers 403 to any other name or address; ` +
            'add the ones it is reached by to server.allowed_hosts, for example --set \'server.allowed_hosts=["192.168.1.5"]\'.\n',
        );
      }
      if (server.notice !== null) context.stdout.write(`${server.notice}\n`);
      // It serves all the same: what needs no command works.
      if (config.tools.shell.sandbox === 'required' && !canSandbox(context.env)) {
        log.warn({}, `${NO_SANDBOX}; until then every command of the shell tool is refused`);
        context.stdout.write(`Every command of the shell tool will be refused: ${NO_SANDBOX}.\n`);
      }
      if (isRoot()) log.warn({}, RUNS_AS_ROOT);
      log.info({ signal: await signal }, 'stopping');
      limit = systemClock.after(getDrainSeconds(config) * 1000 + SHUTDOWN_LIMIT_MS, () => context.exit(1));
    } finally {
      forget();
      await server.close();
      limit?.cancel();
    }
    // What a library leaves running, as the next try for a collector that is away, would hold the process for seconds more.
    return context.exit(0);
  } catch (error) {
    // It waited for its database, and a connection that is being tried would hold the process for seconds more.
    if (error === leave.signal.reason) context.exit(0);
    output.release();
    if (error instanceof StartupError) return refuse(context, error.problems);
    throw error;
  } finally {
    forgetOutput();
  }
}

/** The kernel takes a terminal from its processes right after their SIGHUP. */
const TERMINAL_MS = 1000;

/**
 * Where the shell of a terminal ends before the terminal does, the shell's end sends the SIGHUP, output can still be written,
 * and the close that follows sends nothing. `checkSoon` finds out that the process has lost its terminal.
 */
function watchTerminal({ stdout }: CommandContext): { readonly closed: Promise<NodeJS.Signals>; checkSoon(): void } {
  const isAttached = stdout.isTTY === true && hasTerminal();
  let close = () => {};
  const closed = new Promise<NodeJS.Signals>((resolve) => {
    close = () => resolve('SIGHUP');
  });
  const check = () => {
    if (!hasTerminal()) close();
  };
  return { closed, checkSoon: () => void (isAttached && systemClock.after(TERMINAL_MS, check)) };
}

function hasTerminal(): boolean {
  try {
    fs.closeSync(fs.openSync('/dev/tty', 'r'));
    return true;
  } catch {
    return false;
  }
}
