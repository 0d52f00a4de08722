// The composition root: builds every part of a server in the order of its start, and takes it down again (05 §4).
import path from 'node:path';
import { createBus } from '../bus/memory/bus.ts';
import type { Config } from '../domain/config.ts';
import type { ModelEntry } from '../domain/model.ts';
import { createEngine, type Engine } from '../engine/create-engine.ts';
import { drain } from '../engine/drain.ts';
import { recover, resumeAll } from '../engine/recover.ts';
import type { HttpApp } from '../http/app.ts';
import { createHttpServer } from '../http/server.ts';
import { type Clock, systemClock } from '../kernel/clock.ts';
import { StartupError } from '../kernel/errors.ts';
import { createIdGenerator, type IdGenerator } from '../kernel/ids.ts';
import type { PriceTable } from '../policy/pricing/price-table.ts';
import { staleRates } from '../policy/pricing/versions.ts';
import { createModelRegistry, type ModelRegistry } from '../policy/registry/registry.ts';
import type { Journal } from '../ports/journal.ts';
import type { Logger } from '../ports/log.ts';
import type { Providers } from '../ports/provider.ts';
import { databaseFault, openDatabase } from '../store/sqlite/connection/open.ts';
import { newestId } from '../store/sqlite/read/id-seed.ts';
import { createPriceVersionReader } from '../store/sqlite/read/price-version-reader.ts';
import { createStore } from '../store/sqlite/read/store.ts';
import { createAnalytics } from '../store/sqlite/report/analytics.ts';
import { createThreadedAnalytics, type ThreadedAnalytics } from '../store/sqlite/report/threaded-analytics.ts';
import { createJournal } from '../store/sqlite/write/journal.ts';
import { builtinTools } from '../tool/builtin/builtin.ts';
import { shellEnvironment } from '../tool/process/shell-env.ts';
import { createToolRegistry } from '../tool/registry.ts';
import { schemaCompiler } from '../tool/schema.ts';
import { createToolSet } from '../tool/tool-set.ts';
import { createWorkspaces } from '../workspace/workspaces.ts';
import type { Credentials } from './credentials.ts';
import { startMcp } from './mcp.ts';
import { loadPrices } from './prices.ts';
import { startProviders } from './providers.ts';
import { checkDefaultModel, checkRoutingFile } from './routing-file.ts';

export interface ServerOptions {
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
  readonly fetch?: typeof fetch;
  /** Reports run on a thread of their own, for which the package must be built; else on this one, in slices. */
  readonly reportsOnThread?: boolean;
}

export interface RunningServer {
  readonly engine: Engine;
  readonly registry: ModelRegistry;
  readonly providers: Providers;
  readonly prices: PriceTable;
  /** What to tell a person whose server has no real model; null = it has one. */
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
  const { file, providers, notice } = startProviders({
    registryPath: config.registry.path,
    packageDir,
    scenario: options.scenario ?? null,
    credentials: options.credentials,
    envFile: options.keysFile,
    record: config.providers.record,
    replay: config.providers.replay,
    ...(options.fetch ? { fetch: options.fetch } : {}),
    clock,
    random,
    ids,
    log,
  });
  const registry = createModelRegistry(file, new Set(providers.keys()));
  const byDefault = checkDefaultModel(config.routing.global_default_model, registry);
  if (byDefault.errors.length > 0) throw new StartupError('config_invalid', byDefault.errors);
  for (const line of byDefault.warnings) log.warn({}, line);
  const prices = loadPrices(config.pricing, packageDir);
  for (const warning of warnings(file.models, prices, config, clock.now())) log.warn({}, warning);

  const database = openDatabase({
    path: config.storage.db_path,
    synchronous: config.storage.synchronous,
    migrationsDir: path.join(packageDir, 'migrations'),
    log,
  });
  try {
    const floor = newestId(database.db);
    if (floor !== null) ids.seed(floor);
    const bus = createBus(log);
    const journal = createJournal({ db: database, ids, clock, bus, log });
    const store = createStore(database);
    const secrets = [...options.credentials.secrets, ...config.server.auth_tokens];
    await keepPrices(journal, prices);
    const rules = checkRoutingFile(config.routing.global_path, registry);
    for (const line of rules?.errors ?? []) log.error({}, `${line}; none of the file's rules apply`);
    for (const line of rules?.warnings ?? []) log.warn({}, line);
    const builtin = createToolSet(
      builtinTools({
        shellEnv: shellEnvironment(options.env, config.tools.shell.env_passthrough),
        shell: config.tools.shell,
        dataFolder: options.dataDir,
        clock,
      }),
      { shipped: true },
    );
    const mcp = startMcp({ ...options, adapters: file.adapters, schemas: schemaCompiler, clock });
    const tools = createToolRegistry(builtin, mcp);
    const workspaces = createWorkspaces({
      globalRoutingPath: config.routing.global_path,
      globalSkillsPath: config.skills.global_dir,
      log,
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
      providers,
      prices,
      tools,
      schemas: schemaCompiler,
      workspaces,
      recommender: null,
      secrets,
    });
    const recovery = await recover(engine);
    if (recovery.ended + recovery.interrupted > 0) log.info({ ...recovery }, 'turns left open by the last run');
    const reports = options.reportsOnThread ? threadedReports(options) : null;
    let draining = false;
    const http = createHttpServer({
      engine,
      analytics: reports ?? createAnalytics(database.reader),
      priceVersions: createPriceVersionReader(database.reader),
      version,
      draining: () => draining,
    });
    await http.ready();

    let closing: Promise<void> | null = null;
    const close = async () => {
      draining = true;
      mcp?.hurry();
      await drain(engine);
      const mcpClosed = mcp?.close();
      await http.close();
      await Promise.all([...providers.values()].map((adapter) => adapter.close()));
      await reports?.close();
      await mcpClosed;
      database.close();
    };
    return {
      engine,
      registry,
      providers,
      prices,
      notice,
      listen: async () => {
        const bound = await listen(http, config.server);
        await resumeAll(engine);
        return bound;
      },
      close: () => {
        closing ??= close();
        return closing;
      },
    };
  } catch (error) {
    database.close();
    throw databaseFault(config.storage.db_path, error);
  }
}

function threadedReports({ config, packageDir, log }: ServerOptions): ThreadedAnalytics {
  // From source like this file, where Node itself runs TypeScript: a test runner may, on a Node that does not.
  const fromSource = import.meta.filename.endsWith('.ts') && process.features.typescript !== false;
  const [folder, ending] = fromSource ? ['src', 'ts'] : ['dist', 'js'];
  const program = path.join(packageDir, folder, 'store', 'sqlite', 'report', `analytics-thread.${ending}`);
  const { free_providers: freeProviders } = config.pricing;
  return createThreadedAnalytics(program, { path: config.storage.db_path, freeProviders }, log);
}

function warnings(models: readonly ModelEntry[], prices: PriceTable, config: Config, now: number): string[] {
  const unpriced = models.filter((model) => !prices.has(model.pricing_id)).map((model) => model.id);
  const stale = staleRates(prices.importedOn, now);
  return [
    ...(unpriced.length > 0 ? [`no price for ${unpriced.join(', ')}: their calls will be marked as unpriced`] : []),
    ...(stale === null ? [] : [stale]),
    ...(config.tool_confirmation.mode === 'approve_all'
      ? ['tool_confirmation.mode is approve_all: tools run without asking anybody']
      : []),
  ];
}

/** Stores the active table's rates, so that its calls can be explained for ever. */
async function keepPrices(journal: Journal, prices: PriceTable): Promise<void> {
  try {
    await journal.savePriceVersion({
      version: prices.version,
      content_hash: prices.contentHash,
      source: prices.source,
      models_json: JSON.stringify(prices.models),
    });
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new StartupError('pricing_version_conflict', [`pricing_version_conflict: ${reason}`]);
  }
}

async function listen(http: HttpApp, { host, port }: Config['server']): Promise<{ readonly url: string }> {
  try {
    await http.listen({ host, port });
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
