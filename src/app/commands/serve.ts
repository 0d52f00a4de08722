// `metis serve`: the server, until a signal ends it.
import { isLoopback, servedNames } from '../../http/origin.ts';
import { systemClock } from '../../kernel/clock.ts';
import { StartupError } from '../../kernel/errors.ts';
import { createServer } from '../compose.ts';
import type { ConfigFlags } from '../config.ts';
import { type CommandContext, refuse } from '../context.ts';
import { loadSettings, startLog } from '../start.ts';

const SHUTDOWN_LIMIT_MS = 30_000;

/** Exit code: 0 after an orderly stop, 1 when it could not start or did not stop in time. */
export async function serve(context: CommandContext, flags: ConfigFlags): Promise<number> {
  const settings = loadSettings(context, flags);
  if (!settings.ok) return refuse(context, settings.error);
  const { config, credentials, envFile, dataDir } = settings.value;
  const log = startLog(context, settings.value);
  // A library's warning is a line like any other.
  process.removeAllListeners('warning');
  process.on('warning', (warning) => log.warn({ err: warning }, 'a library warns'));
  if (envFile.problem !== null) log.error({ path: envFile.path }, envFile.problem);
  for (const remark of envFile.remarks) log.warn({ path: envFile.path }, remark);

  const signal = context.stopSignal();
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
      reportsOnThread: true,
    });
    try {
      const { url } = await server.listen();
      context.stdout.write(`Metis ${context.version} listens on ${url}, data in ${dataDir}\n`);
      if (!isLoopback(config.server.host)) {
        context.stdout.write(
          `It serves requests to ${servedNames(config.server).join(', ')} and answers 403 to any other name or address; ` +
            'add the ones it is reached by to server.allowed_hosts, for example --set \'server.allowed_hosts=["192.168.1.5"]\'.\n',
        );
      }
      if (server.notice !== null) context.stdout.write(`${server.notice}\n`);
      log.info({ signal: await signal }, 'stopping');
      systemClock.after(SHUTDOWN_LIMIT_MS, () => process.exit(1));
    } finally {
      await server.close();
    }
    return 0;
  } catch (error) {
    if (error instanceof StartupError) return refuse(context, error.problems);
    throw error;
  }
}
