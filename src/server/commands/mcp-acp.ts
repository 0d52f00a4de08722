// `metis mcp` and `metis acp`: MCP or ACP on stdin and stdout, on a server that is found or started inside (19 §3 to §5).

import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { Readable } from 'node:stream';
import { toPrintable } from '#cli/printable-text.ts';
import { createMetisClient } from '#client/client.ts';
import type { ServerAddress } from '#client/request.ts';
import { createRoot, makeClientRef } from '#mcp/root-session.ts';
import { sleep, systemClock, type Timer } from '#protocol/clock.ts';
import { StartupError } from '#protocol/errors.ts';
import { readErrorMessage } from '#protocol/text/error-message.ts';
import { createServer, type RunningServer } from '../compose.ts';
import type { ConfigFlags } from '../config.ts';
import { type CommandContext, getConfiguredServer, loadSettings, refuse, type Settings } from '../context.ts';
import { type FoundServer, findServer, writeServerFile } from '../find-server.ts';
import { startLog } from '../log.ts';
import { locateOrigins } from '../settings-report.ts';

export interface AttachFlags extends ConfigFlags {
  /** Address of the server to use. */
  readonly server?: string;
  readonly token?: string;
}

export interface Attachment {
  /** Where the server is at the moment; a request that fails there starts a new search. */
  readonly server: ServerAddress;
  /** From now on a server that is lost is not searched for. */
  leave(): void;
  /** Takes the server down that runs inside this process. */
  close(): Promise<void>;
}

const SEARCH_MS = 10_000;
/** For a server in a process of its own, which is started again from outside. */
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

/** Keeps the process running while a client is connected. */
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
  async function findOrStart(mayStart: boolean): Promise<FoundServer> {
    const deadline = systemClock.monotonic() + (mayStart ? SEARCH_MS : RETURN_MS);
    for (;;) {
      const known = await findServer(settings, configured, flags.data !== undefined);
      if (known !== null) return known;
      if (mayStart && !closed) {
        try {
          return await start();
        } catch (error) {
          // Another process was faster, and will write its address.
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

  let place = await findOrStart(true);
  let again: Promise<void> | null = null;
  return {
    server: {
      get baseUrl() {
        return place.baseUrl;
      },
      token: configured.token ?? null,
      // A server in a process of its own is waited for: it is started again from outside.
      lost: () => {
        again ??= findOrStart(place.embedded)
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
    configFiles: settings.files,
    origins: locateOrigins(settings, context.env),
  });
  try {
    const { url } = await server.listen();
    return { server, url, forget: writeServerFile(dataDir, { url, embedded: true }) };
  } catch (error) {
    await server.close();
    throw error;
  }
}

export interface McpFlags extends AttachFlags {
  readonly workspace?: string;
  readonly budget?: string;
}

/** Until stdin ends. Exit code: 0, or 1 when no server could be found or started. */
export async function serveMcp(context: CommandContext, flags: McpFlags): Promise<number> {
  try {
    const { server, leave, close } = await attach(context, flags);
    try {
      const [{ serveStdio, StdioServerTransport }, { mcpServer }] = await Promise.all([
        import('@modelcontextprotocol/server/stdio'),
        import('#mcp/mcp-server.ts'),
      ]);
      const world = { clock: systemClock, uuid: randomUUID };
      const workspace_path = path.resolve(context.cwd, flags.workspace ?? '.');
      const root = createRoot(world, server, {
        workspace_path,
        door: 'mcp',
        on_reached: 'stop',
        max_cost_usd: flags.budget ?? null,
        client_ref:
          context.env.CLAUDE_CODE_SESSION_ID ?? makeClientRef(server.token ?? null, workspace_path, world.uuid()),
      });
      const transport = new StdioServerTransport(context.stdin, context.stdout);
      const closeTransport = transport.close.bind(transport);
      // It closes by itself at the end of stdin, and at a line that is too long.
      const ended = new Promise<void>((resolve) => {
        transport.close = () => closeTransport().finally(resolve);
      });
      const handle = serveStdio(
        mcpServer(context.version, `${world.uuid()}${world.uuid()}`, () => root),
        {
          transport,
          onerror: (error) => context.stderr.write(`metis: ${toPrintable(summarizeError(error))}\n`),
        },
      );
      await Promise.race([ended, context.outputClosed, context.stopSignal()]);
      leave();
      await handle.close();
      await root.waitForBackground();
    } finally {
      await close();
    }
    return 0;
  } catch (error) {
    if (error instanceof StartupError) return refuse(context, error.problems);
    throw error;
  }
}

/** A schema error of the protocol fills a page, so it becomes one sentence. */
function summarizeError({ name, message }: Error): string {
  if (name === 'ZodError' || name === '$ZodError') return 'a line on stdin is no message of the protocol';
  return message.split('\n', 1)[0] ?? '';
}

/** Of a message from the editor; a larger one ends the agent. */
const MAX_FRAME_BYTES = 10 * 1024 * 1024;

/** Until stdin ends. Exit code: 0, or 1 when no server could be found or started. */
export async function serveAcp(context: CommandContext, flags: AttachFlags): Promise<number> {
  try {
    const { server, leave, close } = await attach(context, flags);
    try {
      const [{ ndJsonStream }, { createAgent }] = await Promise.all([
        import('@agentclientprotocol/sdk'),
        import('#acp/acp-agent.ts'),
      ]);
      const agent = createAgent({
        client: createMetisClient(server),
        version: context.version,
        uuid: randomUUID,
        clock: systemClock,
        onError: (error) => context.stderr.write(`metis: ${toPrintable(readErrorMessage(error))}\n`),
      });
      const output = new WritableStream<Uint8Array>({
        write: (chunk) => void context.stdout.write(Buffer.from(chunk).toString('utf8')),
      });
      const input = Readable.toWeb(context.stdin) as ReadableStream<Uint8Array>;
      const connection = agent.app.connect(ndJsonStream(output, input, { maxMessageBytes: MAX_FRAME_BYTES }));
      await Promise.race([connection.closed, context.outputClosed, context.stopSignal()]);
      leave();
      await agent.close();
      connection.close();
    } finally {
      await close();
    }
    return 0;
  } catch (error) {
    if (error instanceof StartupError) return refuse(context, error.problems);
    throw error;
  }
}
