// The composition root: builds every part of a server in the order of its start, and takes it down again (05 §4).

import path from 'node:path';
import { createEngine, type Engine } from '#core/engine/create-engine.ts';
import { createTreeWork, drain, recover, removeTemporaryFolders, resumeAll } from '#core/engine/lifecycle.ts';
import { clearWorktrees } from '#core/engine/manage-worktrees.ts';
import { createLearning } from '#core/learning/learning-loop.ts';
import { createLivePrices, describeStaleRates, type PriceTable } from '#core/policy/pricing/price-table.ts';
import { createLiveRegistry, createModelRegistry, type ModelRegistry } from '#core/policy/registry/model-registry.ts';
import type { Logger } from '#core/ports/logger.ts';
import type { ProviderAdapter, Providers } from '#core/ports/provider.ts';
import { bracketIpv6 } from '#http/access.ts';
import type { HttpApp } from '#http/http-app.ts';
import { createHttpServer } from '#http/http-server.ts';
import { createHttpClient } from '#models/http/http-client.ts';
import type { Send } from '#models/http/provider-http.ts';
import { createRelays } from '#models/relay/gateway-relay.ts';
import { type Clock, systemClock } from '#protocol/clock.ts';
import type { Config } from '#protocol/config.ts';
import { StartupError } from '#protocol/errors.ts';
import { createIdGenerator, type IdGenerator } from '#protocol/ids.ts';
import type { ModelEntry } from '#protocol/model.ts';
import { builtinTools, createCommandSandbox } from '#tools/builtin/builtin-tools.ts';
import { createCheckRunner } from '#tools/sandbox/check-runner.ts';
import { shellEnvironment } from '#tools/sandbox/command.ts';
import { createSetupRunner } from '#tools/sandbox/setup-runner.ts';
import { schemaCompiler } from '#tools/schema-compiler.ts';
import { createToolRegistry, createToolSet } from '#tools/tool-registry.ts';
import { createTemporaryFolders } from '#tools/workspace/temporary-folders.ts';
import { createWorkerLibrary } from '#tools/workspace/worker-files.ts';
import { createWorkspaces } from '#tools/workspace/workspaces.ts';
import { createWorktrees } from '#tools/worktree/worktrees.ts';
import { createMcpDoor, startMcp } from './compose-mcp.ts';
import type { Credentials } from './credentials.ts';
import { listDashboard } from './dashboard-files.ts';
import {
  checkDefaultModels,
  checkRoutingFile,
  loadPrices,
  readRegistry,
  startProviders,
  startThreads,
  storePrices,
} from './models.ts';
import { mapEventTypes, resolveReceiverKeys, startNotify } from './notify.ts';
import { describeSettings } from './settings-report.ts';
import { findWorktreesFolder, openEmbedded, type Storage, type StorageOptions } from './storage/storage.ts';
import { createCallTargets } from './telemetry/call-facts.ts';
import { createMetrics } from './telemetry/metrics.ts';
import { createNodeMetrics, measureCommits } from './telemetry/node-metrics.ts';
import { startTelemetry } from './telemetry/telemetry.ts';
import { createTraceRelay } from './telemetry/trace-relay.ts';
import { makeSecret, requireTokens } from './tokens.ts';

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
  return { url: `http://${bracketIpv6(host)}:${bound}` };
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
  /** The configuration files that were read, and where each key that is not a default is set. */
  readonly configFiles?: readonly string[];
  readonly origins?: ReadonlyMap<string, string>;
  /** A scenario file: only the scripted provider serves, and it plays this. */
  readonly scenario?: string;
  readonly clock?: Clock;
  /** Uniform in [0, 1). */
  readonly random?: () => number;
  readonly ids?: IdGenerator;
  /** In place of every adapter, or of the network that leads to the providers. */
  readonly provider?: ProviderAdapter;
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
  /** Takes prices and models from their files again; a file with a fault changes nothing and is logged. */
  reload(): Promise<void>;
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
    dataDir: options.dataDir,
    packageDir,
    scenario: options.scenario ?? null,
    provider: options.provider ?? null,
    server: config.server,
    credentials: options.credentials,
    envFile: options.keysFile,
    ...config.providers,
    env: options.env,
    send,
    clock,
    random,
    ids,
    log,
    parser: threads.bodies,
  });
  const usable = new Set(providers.keys());
  const registry = createLiveRegistry(createModelRegistry(file, usable));
  const byDefault = checkDefaultModels(config, registry);
  if (byDefault.errors.length > 0) throw new StartupError('config_invalid', byDefault.errors);
  for (const line of byDefault.warnings) log.warn({}, line);
  const receivers = resolveReceiverKeys(config.notify, options.credentials);
  const prices = createLivePrices(loadPrices(config.pricing, packageDir, options));
  for (const warning of listWarnings(file.models, prices, config, clock.now())) log.warn({}, warning);

  const gatewayFolder = path.join(options.dataDir, 'gateway');
  const storage = await openStorage(options, {
    gatewayFolder,
    noticed: mapEventTypes(config.notify),
    ids,
    clock,
    alike: { registry: [[...file.adapters], file.models], prices: prices.contentHash },
  });
  const own = createNodeMetrics();
  try {
    const { bus, store, trees } = storage;
    const journal = measureCommits(storage.journal, own.meter, clock);
    const metrics = createMetrics(bus, registry.models.map(({ id }) => id).filter(registry.isConfigured), own);
    const relay = createTraceRelay(bus);
    const secrets = [...options.credentials.secrets, ...config.server.auth_tokens];
    const targetOf = createCallTargets(registry, options.credentials);
    const telemetry = await startTelemetry({ ...options, bus, relay, metrics, secrets, targetOf, clock });
    await storePrices(journal, prices);
    const rules = checkRoutingFile(config.routing.global_path, registry);
    for (const line of rules?.errors ?? []) log.error({}, `${line}; none of the file's rules apply`);
    for (const line of rules?.warnings ?? []) log.warn({}, line);
    const temporary = createTemporaryFolders(path.join(options.dataDir, 'tmp'), log);
    const commands = {
      shellEnv: shellEnvironment(options.env, config.tools.shell.env_passthrough),
      shell: config.tools.shell,
      dataFolder: options.dataDir,
      projectFiles: config.mcp.project_files,
      worktreesFolder: findWorktreesFolder(config, options.dataDir),
    };
    const builtin = createToolSet(builtinTools({ ...commands, temporary, clock }), { shipped: true });
    const sandbox = createCommandSandbox(commands);
    const mcp = startMcp({ ...options, adapters: file.adapters, schemas: schemaCompiler, clock, relay });
    const tools = createToolRegistry(builtin, mcp, config.tools.disabled);
    const library = createWorkerLibrary(log);
    const { worktreesFolder } = commands;
    const workspaces = createWorkspaces({
      temporary,
      globalRoutingPath: config.routing.global_path,
      globalSkillsPath: config.skills.global_dir,
      library,
      dataFolder: options.dataDir,
      ...(worktreesFolder !== null && { worktreesFolder }),
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
      hasModel: (id) => registry.findReference(id) !== null,
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
      worktrees: createWorktrees({
        folder: worktreesFolder,
        obstacle: 'cluster.worktree_root is not set: on several nodes worktrees lie below a shared root',
        links: config.delegation.worktree_links,
        ...(storage.lockWorkspace !== null && { lock: storage.lockWorkspace }),
        env: options.env,
        log,
      }),
      setups: createSetupRunner({ env: commands.shellEnv, sandbox, temporary, clock }),
      checks: createCheckRunner({ env: commands.shellEnv, secrets, sandbox, clock }),
      relays: telemetry?.wrapRelays(relays.relays) ?? relays.relays,
      gatewayFolder,
      library,
      recommender: learning.recommender,
      forecasts: learning.forecasts,
      dayLimit: storage.dayLimit,
      secrets,
      trees,
    });
    await requireTokens(engine);
    await learning.forecasts.load();
    // No other process writes: open turns are from the last run of this server.
    if (!trees.several) {
      await engine.worktrees.endStray();
      const recovery = await recover(engine);
      if (recovery.ended + recovery.interrupted > 0) log.info({ ...recovery }, 'turns left open by the last run');
    }
    await clearWorktrees(engine);
    await removeTemporaryFolders(engine);
    let draining = false;
    const mcpDoor = createMcpDoor(clock, version, config, trees);
    const http = createHttpServer({
      mcp: mcpDoor.fetch,
      engine,
      analytics: storage.analytics,
      priceVersions: storage.priceVersions,
      metrics: metrics.text,
      figures: storage.figures,
      meter: own.meter,
      settings: () => describeSettings({ ...options, adapters: file.adapters, secrets }),
      traces: relay,
      makeSecret,
      version,
      dashboard: listDashboard(packageDir),
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
      await learning.forecasts.close();
      await loop.close();
      await mcpClosed;
      await telemetry?.close();
      await closeThreads();
      await storage.close();
      own.close();
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
      reload: async () => {
        try {
          const next = loadPrices(config.pricing, packageDir, options);
          if (next.contentHash !== prices.contentHash || next.version !== prices.version) {
            // Before the first call is stamped with it (08 §3).
            await storePrices(journal, next);
            prices.replace(next);
            log.info({ pricing_version: next.version }, 'prices taken');
          }
          if (options.scenario !== undefined) return;
          const models = createModelRegistry(readRegistry(config.registry.path, packageDir, options.dataDir), usable);
          registry.replace({ ...models, adapters: file.adapters });
          log.info({ models: models.models.length }, 'models taken');
        } catch (error) {
          if (!(error instanceof StartupError)) throw error;
          for (const line of error.problems) log.error({}, `${line}; what was active stays active`);
        }
      },
      close: () => {
        closing ??= close();
        return closing;
      },
    };
  } catch (error) {
    own.close();
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
  const { database, cluster, tool_confirmation } = config;
  const warnings: string[] = [];
  const unpriced = models.filter((model) => !prices.has(model.pricing_id)).map((model) => model.id);
  if (unpriced.length > 0) warnings.push(`no price for ${unpriced.join(', ')}: their calls will be marked as unpriced`);
  const stale = describeStaleRates(prices.importedOn, now);
  if (stale !== null) warnings.push(stale);
  if (tool_confirmation.mode === 'approve_all')
    warnings.push('tool_confirmation.mode is approve_all: tools run without approval');
  if (database.url !== null && cluster.shared_roots.length === 0 && !cluster.local_workspaces)
    warnings.push('no workspace can be opened: cluster.shared_roots is empty and cluster.local_workspaces is off');
  return warnings;
}
