// The composition root: builds every part of a server in the order of its start, and takes it down again (05 §4).

import fs from 'node:fs';
import path from 'node:path';
import { createEngine, type Engine } from '#core/engine/create-engine.ts';
import { createTreeWork, drain, recover, resumeAll } from '#core/engine/lifecycle.ts';
import { createLearning } from '#core/learning/learning-loop.ts';
import { describeStaleRates, type PriceTable } from '#core/policy/pricing/price-table.ts';
import { createModelRegistry, type ModelRegistry } from '#core/policy/registry/model-registry.ts';
import type { Logger } from '#core/ports/logger.ts';
import type { Providers } from '#core/ports/provider.ts';
import type { DashboardFile, HttpApp } from '#http/http-app.ts';
import { createHttpServer } from '#http/http-server.ts';
import { createHttpClient } from '#models/http/http-client.ts';
import type { Send } from '#models/http/provider-http.ts';
import { createRelays } from '#models/relay/gateway-relay.ts';
import { type Clock, systemClock } from '#protocol/clock.ts';
import type { Config } from '#protocol/config.ts';
import { StartupError } from '#protocol/errors.ts';
import { createIdGenerator, type IdGenerator } from '#protocol/ids.ts';
import type { ModelEntry } from '#protocol/model.ts';
import { sha256Hex } from '#protocol/text/canonical-json.ts';
import { builtinTools } from '#tools/builtin/builtin-tools.ts';
import { shellEnvironment } from '#tools/sandbox/command.ts';
import { schemaCompiler } from '#tools/schema-compiler.ts';
import { createToolRegistry, createToolSet } from '#tools/tool-registry.ts';
import { createWorkerLibrary } from '#tools/workspace/worker-files.ts';
import { createWorkspaces } from '#tools/workspace/workspaces.ts';
import { createMcpDoor, startMcp } from './compose-mcp.ts';
import type { Credentials } from './credentials.ts';
import {
  checkDefaultModels,
  checkRoutingFile,
  loadPrices,
  startProviders,
  startThreads,
  storePrices,
} from './models.ts';
import { mapEventTypes, resolveReceiverKeys, startNotify } from './notify.ts';
import { openEmbedded, type Storage, type StorageOptions } from './storage/storage.ts';
import { createCallTargets } from './telemetry/call-facts.ts';
import { createMetrics } from './telemetry/metrics.ts';
import { startTelemetry } from './telemetry/telemetry.ts';
import { createTraceRelay } from './telemetry/trace-relay.ts';

const MEDIA_TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
};

/** None where the package was not built: then the server has its interface and no page. */
function readDashboard(packageDir: string): readonly DashboardFile[] {
  const folder = path.join(packageDir, 'dist', 'dashboard');
  const page = path.join(folder, 'index.html');
  if (!fs.existsSync(page)) return [];
  const assets = path.join(folder, 'assets');
  return [
    readDashboardFile('/', page),
    ...fs.readdirSync(assets).map((name) => readDashboardFile(`/assets/${name}`, path.join(assets, name))),
  ];
}

function readDashboardFile(url: string, file: string): DashboardFile {
  const body = fs.readFileSync(file);
  const mediaType = MEDIA_TYPES[path.extname(file)] ?? 'application/octet-stream';
  return { path: url, mediaType, body, etag: `"${sha256Hex(body).slice(0, 32)}"` };
}

/** Connections that wait to be taken; the system lowers it to what it allows. Node's 511 is too few for a crowd that comes back at once. */
const BACKLOG = 4096;

/** Throws `StartupError('address_in_use' | 'address_unusable')`. */
async function listen(http: HttpApp, { host, port }: Config['server']): Promise<{ readonly url: string }> {
  try {
    await http.listen({ host, port, backlog: BACKLOG });
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    if (code === 'EADDRINUSE') {
      throw new StartupError('address_in_use', [
        `port ${port} on ${host} is taken; stop what listens there or choose another with --port`,
      ]);
    }
    if (code === 'EACCES' || code === 'EADDRNOTAVAIL' || code === 'ENOTFOUND') {
      throw new StartupError('address_unusable', [
        `${host}:${port} cannot be bound (${code}); check --host and --port`,
      ]);
    }
    throw cause;
  }
  const address = http.server.address();
  // The configured port may be 0: then the system chose.
  const bound = typeof address === 'object' && address !== null ? address.port : port;
  return { url: `http://${host.includes(':') ? `[${host}]` : host}:${bound}` };
}

interface ServerOptions {
  readonly config: Config;
  readonly credentials: Credentials;
  readonly log: Logger;
  readonly packageDir: string;
  readonly version: string;
  /** The server's environment, of which commands get a harmless part. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Hidden from sandboxed commands. */
  readonly dataDir: string;
  /** Where a person may put keys, for the warning about missing ones. */
  readonly keysFile: string;
  /** A scenario file: only the scripted provider serves, and it plays this. */
  readonly scenario?: string;
  readonly clock?: Clock;
  /** Uniform in [0, 1). */
  readonly random?: () => number;
  readonly ids?: IdGenerator;
  /** In place of the network that leads to the providers. */
  readonly send?: Send;
  /** What is stored of the server's own making is not checked once more. */
  readonly trusted?: boolean;
  /** Reports run on a thread of their own, for which the package must be built; else on this one, in slices. */
  readonly reportsOnThread?: boolean;
  /** Ends a start that waits for its database, with its reason. */
  readonly leave?: AbortSignal;
}

export interface RunningServer {
  readonly engine: Engine;
  readonly registry: ModelRegistry;
  readonly providers: Providers;
  readonly prices: PriceTable;
  /** A sentence for the user when the server has no real model; null = it has one. */
  readonly notice: string | null;
  /** Binds the configured address. Throws `StartupError('address_in_use' | 'address_unusable')`. */
  listen(): Promise<{ readonly url: string }>;
  /** Drains, then closes sockets, adapters and the database. Idempotent. */
  close(): Promise<void>;
}

/** Everything up to the point of listening. Throws `StartupError`; what was opened by then is closed again. */
export async function createServer(options: ServerOptions): Promise<RunningServer> {
  const { config, log, packageDir, version, clock = systemClock, random = Math.random } = options;
  const ids = options.ids ?? createIdGenerator(() => clock.now(), random);
  const send = options.send ?? createHttpClient(options.env);
  const { close: closeThreads, ...threads } = startThreads(packageDir, clock, log);
  const { file, providers, notice } = startProviders({
    registryPath: config.registry.path,
    packageDir,
    scenario: options.scenario ?? null,
    server: config.server,
    credentials: options.credentials,
    envFile: options.keysFile,
    record: config.providers.record,
    replay: config.providers.replay,
    env: options.env,
    send,
    clock,
    random,
    ids,
    log,
    parser: threads.bodies,
  });
  const registry = createModelRegistry(file, new Set(providers.keys()));
  const byDefault = checkDefaultModels(config, registry);
  if (byDefault.errors.length > 0) throw new StartupError('config_invalid', byDefault.errors);
  for (const line of byDefault.warnings) log.warn({}, line);
  const receivers = resolveReceiverKeys(config.notify, options.credentials);
  const prices = loadPrices(config.pricing, packageDir);
  for (const warning of listWarnings(file.models, prices, config, clock.now())) log.warn({}, warning);

  const gatewayFolder = path.join(options.dataDir, 'gateway');
  const storage = await openStorage(options, {
    gatewayFolder,
    noticed: mapEventTypes(receivers),
    ids,
    clock,
    alike: [[...file.adapters], file.models, prices.contentHash],
  });
  try {
    const { bus, journal, store, trees } = storage;
    const metrics = createMetrics(bus, registry.models.map(({ id }) => id).filter(registry.isConfigured));
    const relay = createTraceRelay(bus);
    const secrets = [...options.credentials.secrets, ...config.server.auth_tokens];
    const targetOf = createCallTargets(registry, options.credentials);
    const telemetry = await startTelemetry({ ...options, bus, relay, metrics, secrets, targetOf, clock });
    await storePrices(journal, prices);
    const rules = checkRoutingFile(config.routing.global_path, registry);
    for (const line of rules?.errors ?? []) log.error({}, `${line}; none of the file's rules apply`);
    for (const line of rules?.warnings ?? []) log.warn({}, line);
    const builtin = createToolSet(
      builtinTools({
        shellEnv: shellEnvironment(options.env, config.tools.shell.env_passthrough),
        shell: config.tools.shell,
        dataFolder: options.dataDir,
        projectFiles: config.mcp.project_files,
        clock,
      }),
      { shipped: true },
    );
    const mcp = startMcp({ ...options, adapters: file.adapters, schemas: schemaCompiler, clock, relay });
    const tools = createToolRegistry(builtin, mcp, config.tools.disabled);
    const library = createWorkerLibrary(log);
    const workspaces = createWorkspaces({
      globalRoutingPath: config.routing.global_path,
      globalSkillsPath: config.skills.global_dir,
      library,
      dataFolder: options.dataDir,
      log,
    });
    const learning = createLearning({
      store,
      journal,
      bus,
      ids,
      clock,
      log,
      evalDisabled: config.eval.disabled,
      alone: config.database.url === null,
      hasModel: (id) => registry.get(id) !== null,
    });
    const relays = createRelays({
      adapters: file.adapters,
      credentials: options.credentials,
      record: config.gateway.record,
      send,
      clock,
      log,
      parser: threads.bodies,
    });
    const engine = createEngine({
      config,
      clock,
      ids,
      log,
      journal,
      store,
      bus,
      registry,
      providers: telemetry?.wrapProviders(providers) ?? providers,
      prices,
      ...threads,
      tools,
      schemas: schemaCompiler,
      workspaces,
      relays: telemetry?.wrapRelays(relays.relays) ?? relays.relays,
      gatewayFolder,
      library,
      recommender: learning.recommender,
      dayLimit: storage.dayLimit,
      secrets,
      trees,
    });
    // No other process writes: open turns are from the last run of this server.
    if (!trees.several) {
      const recovery = await recover(engine);
      if (recovery.ended + recovery.interrupted > 0) log.info({ ...recovery }, 'turns left open by the last run');
    }
    let draining = false;
    const mcpDoor = createMcpDoor(clock, version, config, trees);
    const http = createHttpServer({
      mcp: mcpDoor.fetch,
      engine,
      analytics: storage.analytics,
      priceVersions: storage.priceVersions,
      metrics: metrics.text,
      traces: relay,
      version,
      dashboard: readDashboard(packageDir),
      draining: () => draining,
    });
    await http.ready();
    telemetry?.sendMetrics(() => http.gauges());
    const loop = learning.start();
    const notify = startNotify(receivers, {
      ...options,
      store,
      journal,
      bus,
      notices: storage.notices,
      clock,
      secrets,
    });
    let resuming = Promise.resolve();
    let closing: Promise<void> | null = null;
    const close = async () => {
      draining = true;
      trees.drain();
      mcp?.stopWaiting();
      await mcpDoor.close();
      await drain(engine);
      await resuming;
      const mcpClosed = mcp?.close();
      await http.close();
      await Promise.all([...providers.values()].map((adapter) => adapter.close()));
      await relays.flush();
      await notify?.close();
      await loop.close();
      await mcpClosed;
      await telemetry?.close();
      await closeThreads();
      await storage.close();
    };
    return {
      engine,
      registry,
      providers,
      prices,
      notice,
      listen: async () => {
        const bound = await listen(http, config.server);
        mcpDoor.setAddress(bound.url);
        await trees.join(bound, createTreeWork(engine));
        if (!trees.several) {
          resuming = resumeAll(engine).catch((err: unknown) => log.error({ err }, 'open turns could not be resumed'));
        }
        return bound;
      },
      close: () => {
        closing ??= close();
        return closing;
      },
    };
  } catch (error) {
    await storage.close();
    throw storage.fault(error);
  }
}

/** What only a cluster needs is loaded for one. */
async function openStorage(
  options: ServerOptions,
  parts: Pick<StorageOptions, 'ids' | 'clock' | 'alike' | 'gatewayFolder' | 'noticed'>,
): Promise<Storage> {
  const { trusted = false, reportsOnThread = false } = options;
  const storage = { ...options, ...parts, trusted, reportsOnThread };
  const { url } = options.config.database;
  if (url === null) return openEmbedded(storage);
  const { openCluster } = await import('./storage/cluster.ts');
  return openCluster({ ...storage, url });
}

function listWarnings(models: readonly ModelEntry[], prices: PriceTable, config: Config, now: number): string[] {
  const unpriced = models.filter((model) => !prices.has(model.pricing_id)).map((model) => model.id);
  const stale = describeStaleRates(prices.importedOn, now);
  return [
    ...(unpriced.length > 0 ? [`no price for ${unpriced.join(', ')}: their calls will be marked as unpriced`] : []),
    ...(stale === null ? [] : [stale]),
    ...(config.tool_confirmation.mode === 'approve_all'
      ? ['tool_confirmation.mode is approve_all: tools run without approval']
      : []),
    ...(config.database.url !== null && config.cluster.shared_roots.length === 0 && !config.cluster.local_workspaces
      ? ['no workspace can be opened: cluster.shared_roots is empty and cluster.local_workspaces is off']
      : []),
  ];
}
