// The parts of the engine: ports, pure tables, and its state in memory.
import type { RequestFacts } from '#core/policy/gateway/request-facts.ts';
import type { PriceTable } from '#core/policy/pricing/price-table.ts';
import type { Prompt } from '#core/policy/pricing/prompt-tokens.ts';
import type { ModelRegistry } from '#core/policy/registry/model-registry.ts';
import type { BodyParser, Tokenizer } from '#core/ports/body-parser.ts';
import type { CheckRunner } from '#core/ports/check-runner.ts';
import type { Relays } from '#core/ports/gateway-relay.ts';
import type { Journal } from '#core/ports/journal-writer.ts';
import type { Forecasts, Recommender } from '#core/ports/learned-turns.ts';
import type { LiveBus } from '#core/ports/live-bus.ts';
import type { Logger } from '#core/ports/logger.ts';
import type { Providers } from '#core/ports/provider.ts';
import type { SetupRunner } from '#core/ports/setup-runner.ts';
import type { DayLimit } from '#core/ports/shared-limit.ts';
import type { Store } from '#core/ports/store-reader.ts';
import type { SchemaCompiler, ToolRegistry } from '#core/ports/tool-port.ts';
import type { Trees } from '#core/ports/tree-ownership.ts';
import type { WorkerLibrary, Workspaces } from '#core/ports/workspace.ts';
import type { Worktrees } from '#core/ports/worktrees.ts';
import type { Clock } from '#protocol/clock.ts';
import type { Config } from '#protocol/config.ts';
import type { IdGenerator, SessionId, TurnId } from '#protocol/ids.ts';
import { scrub, scrubSecrets } from '#protocol/text/scrub.ts';
import type { ApplyGroups } from './apply-groups.ts';
import type { BackgroundGroups } from './background-groups.ts';
import type { SessionLocks, TurnPlaces } from './concurrency.ts';
import type { OutsideRuns, Workers } from './delegation-runs.ts';
import type { FileLedger } from './file-ledger.ts';
import type { GatewayMemory } from './gateway-memory.ts';
import type { Budget, KnownPrompts, OpenApprovals, RouteMemory, SessionStarts } from './memory.ts';
import type { People } from './people.ts';

/** The process: its settings, time, ids and log, and whether it stops. */
export interface Runtime {
  readonly config: Config;
  readonly clock: Clock;
  readonly ids: IdGenerator;
  readonly log: Logger;
  /** The tokens of this server. */
  readonly people: People;
  /** Values that must never leave in a text. */
  readonly secrets: readonly string[];
  /** Set once, by a shutdown: turns stop at their next step boundary. */
  readonly draining: { value: boolean };
}

/** The durable state: `journal` writes it, `store` reads it. */
export interface Storage {
  readonly journal: Journal;
  readonly store: Store;
}

/** The models, how they are reached, and what their tokens cost. */
export interface ModelCatalog {
  readonly registry: ModelRegistry;
  readonly providers: Providers;
  readonly prices: PriceTable;
  /** Null = texts are bounded by their bytes. */
  readonly tokenizer: Tokenizer | null;
  readonly prompts: KnownPrompts;
  /** Models whose missing price was logged already. */
  readonly unpriced: Set<string>;
}

/** Routing memory and the recommender. */
export interface RoutingState {
  readonly routes: RouteMemory;
  readonly recommender: Recommender | null;
}

/** What earlier work has cost (21 §1). */
export interface CostHistories {
  readonly forecasts: Forecasts | null;
}

/** Tools, named workers and output schemas. */
export interface Toolbox {
  readonly tools: ToolRegistry;
  readonly schemas: SchemaCompiler;
  readonly library: WorkerLibrary;
}

/** The files of workspaces, and which session has read or changed which. */
export interface WorkspaceAccess {
  readonly workspaces: Workspaces;
  readonly worktrees: Worktrees;
  readonly setups: SetupRunner;
  readonly checks: CheckRunner;
  readonly files: FileLedger;
}

/** Reserved money and limits. */
export interface Budgets {
  readonly budget: Budget;
  /** Watches other nodes' spend of the limits of a day; null = no other node spends. */
  readonly dayLimit: DayLimit | null;
}

/** The turns and sessions that are active in this process. */
export interface LiveSessions {
  readonly locks: SessionLocks;
  readonly places: TurnPlaces;
  readonly starts: SessionStarts;
  /** Sessions being ended: they accept no further turn. */
  readonly ending: Set<SessionId>;
  /** Turns that ran when the last process died: only their resumptions count as attempts (04 §13). */
  readonly crashed: Set<TurnId>;
}

/** Approvals that wait for an answer. */
export interface Approvals {
  readonly approvals: OpenApprovals;
}

/** Workers of turns, and delegations that no turn waits for. */
export interface Delegations {
  readonly workers: Workers;
  /** Delegations of one message that are applied together (20 §2.5). */
  readonly applyGroups: ApplyGroups;
  readonly outside: OutsideRuns;
  readonly background: BackgroundGroups;
}

/** Calls of the gateway and the providers behind them. */
export interface GatewayState {
  readonly gateway: GatewayMemory;
  readonly relays: Relays;
  /** Null = bodies of any size are parsed on the event loop. */
  readonly bodies: BodyParser<RequestFacts, Prompt> | null;
  /** Workspace of clients that name none; it need not exist. */
  readonly gatewayFolder: string;
}

/** Other nodes: live events reach them by the bus, session trees are claimed from them. */
export interface Cluster {
  readonly bus: LiveBus;
  readonly trees: Trees;
}

/** All parts: only the files at the top of this room take them together. */
export interface Engine
  extends Runtime,
    Storage,
    ModelCatalog,
    RoutingState,
    CostHistories,
    Toolbox,
    WorkspaceAccess,
    Budgets,
    LiveSessions,
    Approvals,
    Delegations,
    GatewayState,
    Cluster {}

/** All parts but those that the engine makes for itself and keeps in memory. */
export type EngineDeps = Omit<
  Engine,
  | keyof LiveSessions
  | keyof Approvals
  | keyof Delegations
  | 'people'
  | 'routes'
  | 'budget'
  | 'prompts'
  | 'gateway'
  | 'files'
  | 'unpriced'
  | 'draining'
>;

// Combinations of more than three parts that a folder takes, with the parts of the folders that it calls.

export type MoneyEngine = Runtime & Storage & ModelCatalog & Budgets & GatewayState;
export type ApprovalEngine = Runtime & Storage & WorkspaceAccess & Approvals;
export type DefinitionsEngine = Runtime & Storage & ModelCatalog & Toolbox;
export type RoutingEngine = Runtime & Storage & ModelCatalog & RoutingState & WorkspaceAccess;
export type SessionEngine = RoutingEngine & Toolbox;
export type AdmissionEngine = SessionEngine & CostHistories;
export type ToolCallEngine = ApprovalEngine & DefinitionsEngine & Budgets & Delegations;
export type ModelCallEngine = RoutingEngine & MoneyEngine & Cluster & CostHistories;
export type TurnEndEngine = DefinitionsEngine & Delegations & CostHistories;
export type TurnLoopEngine = ModelCallEngine & ToolCallEngine;
export type TurnEngine = TurnLoopEngine & LiveSessions;
/** A delegation runs its worker's turns. */
export type DelegationEngine = TurnEngine;
export type GatewayEngine = RoutingEngine & MoneyEngine & LiveSessions;
export type TreeEngine = WorkspaceAccess & Budgets & LiveSessions & Delegations & GatewayState;

/** A text fit for an event or a record: shortened, without credentials. */
export function safeText(engine: Pick<Runtime, 'secrets'>, text: string, workspace: string | null): string {
  return scrub(text, { secrets: engine.secrets, workspace });
}

/** A name, path or command fit for an event: without credentials, otherwise unchanged. */
export function safeName(engine: Pick<Runtime, 'secrets'>, name: string): string {
  return scrubSecrets(name, engine.secrets);
}
