// The engine of a test: everything real (SQLite file, workspace, tools, journal) but the model's words.
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { onTestFinished } from 'vitest';
import { createEngine } from '#core/engine/create-engine.ts';
import { drain } from '#core/engine/lifecycle.ts';
import { createSession } from '#core/engine/manage-session.ts';
import type { SessionInput } from '#core/engine/session/session-records.ts';
import type { Engine } from '#core/engine/state/engine.ts';
import { submitTurn, type TurnSubmission } from '#core/engine/submit-work.ts';
import { createLearning, type LearningLoop } from '#core/learning/learning-loop.ts';
import type { PriceTable } from '#core/policy/pricing/price-table.ts';
import { createModelRegistry, parseRegistry } from '#core/policy/registry/model-registry.ts';
import type { Tokenizer } from '#core/ports/body-parser.ts';
import type { PublishedEvent } from '#core/ports/live-bus.ts';
import { type Logger, silentLogger } from '#core/ports/logger.ts';
import type { ProviderAdapter } from '#core/ports/provider.ts';
import type { DayLimit } from '#core/ports/shared-limit.ts';
import type { ToolFactory } from '#core/ports/tool-port.ts';
import type { Workspaces } from '#core/ports/workspace.ts';
import { parseScenario, type Scenario } from '#models/scripted/scenario.ts';
import { createScriptedAdapter, type ScriptedAdapter } from '#models/scripted/scripted-adapter.ts';
import { type Clock, systemClock } from '#protocol/clock.ts';
import { type Config, defaultConfig } from '#protocol/config.ts';
import type { Delta } from '#protocol/delta.ts';
import type { AnyEvent, EventType } from '#protocol/event.ts';
import { createIdGenerator } from '#protocol/ids.ts';
import type { Session } from '#protocol/session.ts';
import type { Turn } from '#protocol/turn.ts';
import { startMcp } from '#server/compose-mcp.ts';
import { createCredentials } from '#server/credentials.ts';
import { createOwnTrees } from '#server/storage/storage.ts';
import { createBus } from '#store/bus/memory/local-bus.ts';
import { createStore } from '#store/read/store.ts';
import { newestId } from '#store/sqlite/connection/id-seed.ts';
import { openDatabase, type SqliteStoreHandle } from '#store/sqlite/connection/open.ts';
import { createReadDatabase } from '#store/sqlite/connection/reads.ts';
import { createJournal } from '#store/sqlite/write/journal.ts';
import { builtinTools } from '#tools/builtin/builtin-tools.ts';
import { createCheckRunner } from '#tools/sandbox/check-runner.ts';
import { createSetupRunner } from '#tools/sandbox/setup-runner.ts';
import { schemaCompiler } from '#tools/schema-compiler.ts';
import { createToolRegistry, createToolSet } from '#tools/tool-registry.ts';
import { createTemporaryFolders } from '#tools/workspace/temporary-folders.ts';
import { createWorkerLibrary } from '#tools/workspace/worker-files.ts';
import { createWorkspaces } from '#tools/workspace/workspaces.ts';
import { createWorktrees } from '#tools/worktree/worktrees.ts';
import { newDatabase } from './new-database.ts';
import { priceTableA } from './prices.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');
const REGISTRY = path.join(import.meta.dirname, 'registry.yaml');

/** A partial configuration, merged section by section over the defaults. */
export type ConfigOver = { readonly [K in keyof Config]?: Partial<Config[K]> };

export interface EngineOptions {
  /** Scenario of the scripted provider (11.11), as an object. */
  readonly scenario: unknown;
  readonly config?: ConfigOver;
  readonly registry?: string;
  /** Adapters of the registry that can be called, all of them played by the scripted one; `scripted` alone unless told. */
  readonly served?: ReadonlySet<string>;
  /** Stands in for the scripted provider; `script` makes one for a scenario. */
  readonly provider?: (script: (scenario: Scenario) => ScriptedAdapter) => ProviderAdapter;
  readonly prices?: PriceTable;
  readonly clock?: Clock;
  readonly random?: () => number;
  readonly log?: Logger;
  readonly files?: Readonly<Record<string, string>>;
  readonly tools?: readonly ToolFactory[];
  /** For the MCP servers of `config.mcp_servers`; this process's unless told. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** Values that no command of a check gets, and variables that its environment has beside PATH. */
  readonly secrets?: readonly string[];
  readonly commandEnv?: Readonly<Record<string, string>>;
  /** Read each workspace file once: parallel work is then ordered by its scripted delays alone, never by the disk. */
  readonly still?: boolean;
  /** The engine learns from its turns (12), of a workspace at most so many outcomes; not alone = as a node of a cluster. */
  readonly learning?: { readonly maxOutcomes?: number; readonly alone?: boolean };
  /** Other nodes that spend of the limits of a day. */
  readonly dayLimit?: DayLimit;
  readonly tokenizer?: Tokenizer;
  /** Folder of an earlier engine: the same database and workspace again. */
  readonly folder?: string;
}

export interface TestEngine {
  readonly engine: Engine;
  readonly adapter: ScriptedAdapter;
  /** Null unless it learns. */
  readonly loop: LearningLoop | null;
  readonly db: SqliteStoreHandle;
  readonly folder: string;
  readonly workspace: string;
  readonly config: Config;
  /** Every committed event so far, in order. */
  readonly events: PublishedEvent['event'][];
  readonly deltas: { readonly session_id: string; readonly delta: Delta }[];
  session(input?: Partial<SessionInput>): Promise<Session>;
  submit(
    session: Session | string,
    content: TurnSubmission['content'],
    rest?: Partial<TurnSubmission>,
  ): Promise<string>;
  /** Submits and waits for the terminal event. */
  run(session: Session, content: TurnSubmission['content'], rest?: Partial<TurnSubmission>): Promise<Turn>;
  /** The first event, past or to come, that matches. */
  event(type: EventType, match?: (event: AnyEvent) => boolean): Promise<AnyEvent>;
  ended(turnId: string): Promise<Turn>;
  typesOf(sessionId: string): string[];
  rows(): Readonly<Record<string, number>>;
  /** Lets go of the database as a killed process would: no drain, nothing written. */
  abandon(): void;
  close(): Promise<void>;
}

export function tempFolder(): string {
  const folder = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), 'metis-')));
  onTestFinished(() => fs.rmSync(folder, { recursive: true, force: true }));
  return folder;
}

export function must<T>(result: { ok: true; value: T } | { ok: false; error: unknown }): T {
  if (!result.ok) throw new Error(JSON.stringify(result.error));
  return result.value;
}

const TERMINAL = ['turn.completed', 'turn.failed', 'turn.cancelled'];

export async function startEngine(options: EngineOptions): Promise<TestEngine> {
  const folder = options.folder ?? tempFolder();
  const workspace = path.join(folder, 'workspace');
  fs.mkdirSync(workspace, { recursive: true });
  for (const [name, text] of Object.entries(options.files ?? {})) {
    fs.mkdirSync(path.dirname(path.join(workspace, name)), { recursive: true });
    fs.writeFileSync(path.join(workspace, name), text);
  }
  const config = mergeConfig(defaultConfig(folder), options.config ?? {});
  const clock = options.clock ?? systemClock;
  const log = options.log ?? silentLogger;
  const random = options.random ?? (options.clock ? () => 0.5 : Math.random);
  const ids = createIdGenerator(() => clock.now(), random);
  newDatabase(config.storage.db_path);
  const db = openDatabase({
    path: config.storage.db_path,
    synchronous: config.storage.synchronous,
    migrationsDir: path.join(ROOT, 'migrations'),
    log,
  });
  const newest = newestId(db.db);
  if (newest) ids.seed(newest);
  const bus = createBus(log);
  const events: PublishedEvent['event'][] = [];
  const deltas: TestEngine['deltas'] = [];
  const waiting = new Set<(event: AnyEvent) => void>();
  bus.subscribe('test', (items) => {
    for (const item of items) {
      if (item.kind === 'transient')
        deltas.push({ session_id: item.transient.session_id, delta: item.transient.delta });
      else {
        events.push(item.event);
        for (const wake of [...waiting]) wake(item.event as AnyEvent);
      }
    }
  });
  const script = (scenario: Scenario) =>
    createScriptedAdapter({
      name: 'scripted',
      scenario,
      clock,
      ids,
      log,
      random,
      secrets: [],
      limits: { total: 600, connect: 30, idle: 120 },
      maxRetries: 2,
    });
  const adapter = script(must(parseScenario(JSON.stringify(options.scenario), 'scenario')));
  const provider = options.provider?.(script) ?? adapter;
  const served = options.served ?? new Set(['scripted']);
  const library = createWorkerLibrary(log);
  const shellEnv = { PATH: process.env.PATH ?? '' };
  const temporary = createTemporaryFolders(path.join(folder, 'tmp'), log);
  const workspaces = createWorkspaces({
    temporary,
    globalRoutingPath: config.routing.global_path,
    globalSkillsPath: config.skills.global_dir,
    worktreesFolder: path.join(folder, 'worktrees'),
    library,
    log,
  });
  const mcp = startMcp({
    config,
    credentials: createCredentials({}),
    adapters: new Map(),
    env: options.env ?? process.env,
    schemas: schemaCompiler,
    version: '0.0.0',
    clock,
    log,
  });
  const registry = createModelRegistry(
    must(parseRegistry(options.registry ?? fs.readFileSync(REGISTRY, 'utf8'), REGISTRY)),
    served,
  );
  const journal = createJournal({ db, ids, clock, bus, log });
  const store = createStore(createReadDatabase(db.db), db.caches);
  const around = {
    store,
    journal,
    bus,
    ids,
    clock,
    log,
    alone: true,
    hasModel: (id: string) => registry.findReference(id) !== null,
  };
  const learning =
    options.learning && createLearning({ ...around, ...options.learning, evalDisabled: config.eval.disabled });
  const engine = createEngine({
    config,
    clock,
    ids,
    log,
    journal,
    store,
    bus,
    registry,
    providers: new Map([...served].map((name) => [name, provider])),
    prices: options.prices ?? priceTableA(),
    tokenizer: options.tokenizer ?? null,
    bodies: null,
    tools: createToolRegistry(
      createToolSet(
        [...builtinTools({ shellEnv, shell: config.tools.shell, temporary, clock }), ...(options.tools ?? [])],
        { shipped: true },
      ),
      mcp,
      config.tools.disabled,
    ),
    schemas: schemaCompiler,
    relays: new Map(),
    gatewayFolder: path.join(workspace, 'gateway'),
    worktrees: createWorktrees({
      folder: path.join(folder, 'worktrees'),
      links: config.delegation.worktree_links,
      env: options.env ?? process.env,
      log,
    }),
    setups: createSetupRunner({ env: shellEnv, sandbox: null, temporary, clock }),
    checks: createCheckRunner({
      env: { PATH: process.env.PATH ?? '', ...options.commandEnv },
      secrets: options.secrets ?? [],
      sandbox: null,
      clock,
    }),
    workspaces: options.still ? await readOnce(workspaces, workspace, config) : workspaces,
    library,
    recommender: learning?.recommender ?? null,
    forecasts: learning?.forecasts ?? null,
    dayLimit: options.dayLimit ?? null,
    secrets: [],
    trees: createOwnTrees({ version: '0.0.0-test', id: () => 'alone', open: async () => 0 }),
  });
  await learning?.forecasts.load();
  const loop = learning?.start() ?? null;
  let open = true;
  const abandon = () => {
    if (open) db.close();
    open = false;
  };
  const close = async () => {
    if (!open) return;
    mcp?.stopWaiting();
    await drain(engine);
    await learning?.forecasts.close();
    await loop?.close();
    abandon();
  };
  onTestFinished(async () => {
    await close();
    await mcp?.close();
  });

  const event: TestEngine['event'] = (type, match = () => true) => {
    const known = events.find((e) => e.type === type && match(e as AnyEvent));
    if (known) return Promise.resolve(known as AnyEvent);
    return new Promise((resolve) => {
      const wake = (e: AnyEvent) => {
        if (e.type !== type || !match(e)) return;
        waiting.delete(wake);
        resolve(e);
      };
      waiting.add(wake);
    });
  };
  const ended: TestEngine['ended'] = async (turnId) => {
    if (!events.some((e) => e.turn_id === turnId && TERMINAL.includes(e.type)))
      await new Promise<void>((resolve) => {
        const wake = (e: AnyEvent) => {
          if (e.turn_id !== turnId || !TERMINAL.includes(e.type)) return;
          waiting.delete(wake);
          resolve();
        };
        waiting.add(wake);
      });
    await engine.locks.turn(turnId)?.done;
    const sessionId = events.find((e) => e.turn_id === turnId)!.session_id;
    return (await engine.store.turns.view(sessionId, turnId))!;
  };
  const submit: TestEngine['submit'] = async (session, content, rest) =>
    (
      await submitTurn(engine, typeof session === 'string' ? session : session.id, {
        content,
        per_message_override: null,
        if_busy: 'reject',
        ...rest,
      })
    ).turn_id;

  return {
    engine,
    adapter,
    loop,
    db,
    folder,
    workspace,
    config,
    events,
    deltas,
    session: (input) =>
      createSession(engine, {
        workspace_path: workspace,
        initial_active_model: 'opus',
        max_cost_usd: null,
        on_reached: null,
        approval_mode: null,
        ...input,
      }),
    submit,
    run: async (session, content, rest) => ended(await submit(session, content, rest)),
    event,
    ended,
    typesOf: (sessionId) => events.filter((e) => e.session_id === sessionId).map((e) => e.type),
    rows: () =>
      Object.fromEntries(
        ['sessions', 'turns', 'messages', 'events', 'tool_calls', 'delegations', 'llm_calls', 'confirmations'].map(
          (table) => [table, (db.db.prepare(`SELECT count(*) AS n FROM ${table}`).get() as { n: number }).n],
        ),
      ),
    abandon,
    close,
  };
}

async function readOnce(real: Workspaces, root: string, config: Config): Promise<Workspaces> {
  const trust = await real.readTrust(root);
  const memory = await real.memoryText(root);
  const skills = await real.skills(root);
  const routing = await real.routingFiles(root);
  const instructions = await real.instructions(root, config.context.project_instruction_files);
  return {
    ...real,
    readTrust: async () => trust,
    memoryText: async () => memory,
    skills: async () => skills,
    routingFiles: async () => routing,
    instructions: async () => instructions,
  };
}

export function mergeConfig(base: Config, over: ConfigOver): Config {
  const merged: Record<string, unknown> = { ...base };
  for (const [section, keys] of Object.entries(over))
    merged[section] = { ...(base[section as keyof Config] as object), ...(keys as object) };
  return merged as Config;
}
