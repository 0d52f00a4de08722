// Finding the server of a door's process, or starting one inside it (19 §5).

import type { ServerAddress } from '#client/request.ts';
import { sleep, systemClock, type Timer } from '#protocol/clock.ts';
import { StartupError } from '#protocol/errors.ts';
import { createServer, type RunningServer } from '../compose.ts';
import type { ConfigFlags } from '../config.ts';
import type { CommandContext } from '../context.ts';
import { startLog } from '../log.ts';
import { getConfiguredServer, loadSettings, type Settings } from '../start.ts';
import { type FoundServer, findServer } from './find-server.ts';
import { writeServerFile } from './server-file.ts';

export interface AttachFlags extends ConfigFlags {
  /** The one to ask, wherever it is. */
  readonly server?: string;
  readonly token?: string;
}

export interface Attachment {
  /** Where the server is at the moment; a request that finds nobody there has it found again. */
  readonly server: ServerAddress;
  /** From now on a server that is lost is not searched for. */
  leave(): void;
  /** Takes the server down that runs inside this process. */
  close(): Promise<void>;
}

const SEARCH_MS = 10_000;
/** For a server of its own, which somebody starts again. */
const RETURN_MS = 600_000;
const PAUSE_MS = 100;

/** Throws `StartupError` where no server answers and none can be started. */
export async function attach(context: CommandContext, flags: AttachFlags): Promise<Attachment> {
  const alive = keepAlive();
  try {
    return await findOrStart(context, flags, alive);
  } catch (error) {
    alive.cancel();
    throw error;
  }
}

/** While a door is open its process lives, whatever its timers and sockets do. */
function keepAlive(): Timer {
  const timer = setInterval(() => {}, 2 ** 30);
  return { cancel: () => clearInterval(timer) };
}

async function findOrStart(context: CommandContext, flags: AttachFlags, alive: Timer): Promise<Attachment> {
  const { env } = context;
  if (flags.server !== undefined) {
    const server = { baseUrl: flags.server, token: flags.token ?? env.METIS_TOKEN ?? null };
    return { server, leave: () => {}, close: async () => alive.cancel() };
  }
  const loaded = loadSettings(context, flags);
  if (!loaded.ok) throw new StartupError('config_invalid', loaded.error);
  const settings = loaded.value;
  const configured = getConfiguredServer(context, settings, flags);
  let own: { readonly server: RunningServer; readonly forget: () => void } | null = null;
  let closed = false;

  async function start(): Promise<FoundServer> {
    const started = await startOwnServer(context, settings);
    own = started;
    return { baseUrl: started.url, embedded: true };
  }
  async function find(mayStart: boolean): Promise<FoundServer> {
    const deadline = systemClock.monotonic() + (mayStart ? SEARCH_MS : RETURN_MS);
    for (;;) {
      const known = await findServer(settings, configured, flags.data !== undefined);
      if (known !== null) return known;
      if (mayStart && !closed) {
        try {
          return await start();
        } catch (error) {
          // Another process was faster, and will say where it answers.
          if (!(error instanceof StartupError && error.code === 'database_in_use')) throw error;
        }
      }
      if (closed || systemClock.monotonic() > deadline)
        throw new StartupError('server_not_found', [
          `no server answers for ${settings.config.storage.db_path}; name its address with --server`,
        ]);
      await sleep(systemClock, PAUSE_MS);
    }
  }

  let place = await find(true);
  let again: Promise<void> | null = null;
  return {
    server: {
      get baseUrl() {
        return place.baseUrl;
      },
      token: configured.token ?? null,
      // A server of its own is waited for: whoever runs it starts it again.
      lost: () => {
        again ??= find(place.embedded)
          .then((next) => {
            place = next;
          })
          .finally(() => {
            again = null;
          });
        return again;
      },
    },
    leave: () => {
      closed = true;
    },
    async close() {
      closed = true;
      await again?.catch(() => {});
      own?.forget();
      await own?.server.close();
      alive.cancel();
    },
  };
}

async function startOwnServer(context: CommandContext, settings: Settings) {
  const { config, credentials, envFile, dataDir } = settings;
  const server = await createServer({
    config: { ...config, server: { ...config.server, host: '127.0.0.1', port: 0, rate_limit_rpm: null } },
    credentials,
    log: startLog(context, settings),
    packageDir: context.packageDir,
    version: context.version,
    env: context.env,
    dataDir,
    keysFile: envFile.path,
  });
  try {
    const { url } = await server.listen();
    return { server, url, forget: writeServerFile(dataDir, { url, embedded: true }) };
  } catch (error) {
    await server.close();
    throw error;
  }
}
