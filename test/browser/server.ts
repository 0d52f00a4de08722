// A whole server for the browser, built as `metis serve` builds it, with the scripted provider and a folder of its own.
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { onTestFinished } from 'vitest';
import { createMetisClient, type MetisClient } from '#client/client.ts';
import { silentLogger } from '#core/ports/logger.ts';
import type { Clock } from '#protocol/clock.ts';
import { defaultConfig } from '#protocol/config.ts';
import { createServer, type RunningServer } from '#server/compose.ts';
import { createCredentials } from '#server/credentials.ts';
import { type ConfigOver, mergeConfig } from '../support/engine.ts';
import { ROOT } from '../support/real-server.ts';

const CAPABILITIES = { max_context_tokens: 200_000, max_output_tokens: 8192, supports_structured_output: true };
/** Real ids and their shipped prices, answered by the scripted adapter: their calls count as real ones (08 §5). */
export const REAL_MODELS = {
  adapters: { scripted: { type: 'scripted' } },
  models: {
    'anthropic:claude-opus-4-7': { adapter: 'scripted', tier: 'deep', capabilities: CAPABILITIES },
    'anthropic:claude-sonnet-4-6': { adapter: 'scripted', tier: 'balanced', capabilities: CAPABILITIES },
    'anthropic:claude-haiku-4-5': { adapter: 'scripted', tier: 'fast', capabilities: CAPABILITIES },
  },
};

export interface BrowserServer extends RunningServer {
  readonly url: string;
  readonly client: MetisClient;
  readonly workspace: string;
  /** Ends it and starts it anew on the same port and data, with another token where one is given. */
  restart(token?: string): Promise<BrowserServer>;
}

export interface BrowserServerOptions {
  /** What the models say, as an object; null: the shipped registry with its providers serves. */
  readonly scenario: unknown;
  /** Keys of providers, by variable. */
  readonly keys?: Readonly<Record<string, string>>;
  readonly config?: ConfigOver;
  readonly files?: Readonly<Record<string, string>>;
  readonly token?: string;
  /** Of the registry in place of the shipped one. */
  readonly registry?: object;
  /** The system's unless told: what was spent on earlier days is recorded with one that goes behind. */
  readonly clock?: Clock;
}

/** Closed with the test or the file, whichever starts it; nobody is asked before a tool runs unless `config` says so. */
export async function startBrowserServer(
  options: BrowserServerOptions,
  atEnd: (close: () => Promise<void>) => void = onTestFinished,
): Promise<BrowserServer> {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'metis-browser-'));
  const workspace = path.join(folder, 'workspace');
  fs.mkdirSync(workspace);
  for (const [name, text] of Object.entries(options.files ?? {})) {
    fs.mkdirSync(path.dirname(path.join(workspace, name)), { recursive: true });
    fs.writeFileSync(path.join(workspace, name), text);
  }
  const scenario = path.join(folder, 'scenario.json');
  fs.writeFileSync(scenario, JSON.stringify(options.scenario));
  let running: RunningServer | null = null;
  atEnd(async () => {
    await running?.close();
    fs.rmSync(folder, { recursive: true, force: true });
  });

  const start = async (port: number, token = options.token): Promise<BrowserServer> => {
    const dataDir = path.join(folder, 'data');
    const config = mergeConfig(defaultConfig(dataDir), {
      shutdown: { drain_seconds: 0 },
      tool_confirmation: { default: { none: 'auto', read: 'auto', write: 'auto', execute: 'auto', network: 'auto' } },
      ...options.config,
    });
    config.server.port = port;
    if (token !== undefined) config.server.auth_tokens = [token];
    config.registry.path = path.join(ROOT, 'config', 'registry.yaml');
    if (options.registry !== undefined) {
      config.registry.path = path.join(folder, 'registry.json');
      fs.writeFileSync(config.registry.path, JSON.stringify(options.registry));
    }
    const server = await createServer({
      config,
      credentials: createCredentials(options.keys ?? {}),
      log: silentLogger,
      packageDir: ROOT,
      version: '0.0.0-test',
      env: { PATH: process.env.PATH },
      dataDir,
      keysFile: path.join(folder, '.env'),
      ...(options.scenario === null ? {} : { scenario }),
      ...(options.clock === undefined ? {} : { clock: options.clock }),
    });
    running = server;
    const { url } = await server.listen();
    return {
      ...server,
      url,
      client: createMetisClient({ baseUrl: url, token: token ?? null }),
      workspace,
      restart: async (other = token) => {
        await server.close();
        return start(Number(new URL(url).port), other);
      },
    };
  };
  return start(0);
}
