// What every verb of the engine works with: ports, pure tables, and the few things that live in memory only.
import type { RequestFacts } from '#core/policy/gateway/request-facts.ts';
import type { PriceTable } from '#core/policy/pricing/price-table.ts';
import type { Prompt } from '#core/policy/pricing/prompt-tokens.ts';
import type { ModelRegistry } from '#core/policy/registry/model-registry.ts';
import type { BodyParser, Tokenizer } from '#core/ports/body-parser.ts';
import type { Relays } from '#core/ports/gateway-relay.ts';
import type { Journal } from '#core/ports/journal-writer.ts';
import type { Recommender } from '#core/ports/learned-turns.ts';
import type { LiveBus } from '#core/ports/live-bus.ts';
import type { Logger } from '#core/ports/logger.ts';
import type { Providers } from '#core/ports/provider.ts';
import type { DayLimit } from '#core/ports/shared-limit.ts';
import type { Store } from '#core/ports/store-reader.ts';
import type { SchemaCompiler, ToolRegistry } from '#core/ports/tool-port.ts';
import type { Trees } from '#core/ports/tree-ownership.ts';
import type { WorkerLibrary, Workspaces } from '#core/ports/workspace.ts';
import type { Clock } from '#protocol/clock.ts';
import type { Config } from '#protocol/config.ts';
import type { IdGenerator, SessionId, TurnId } from '#protocol/ids.ts';
import { scrub, scrubSecrets } from '#protocol/text/scrub.ts';
import type { SessionLocks, TurnPlaces } from './concurrency.ts';
import type { OutsideRuns, Workers } from './delegation-runs.ts';
import type { FileLedger } from './file-ledger.ts';
import type { GatewayMemory } from './gateway-memory.ts';
import type { Budget, KnownPrompts, OpenApprovals, RouteMemory, SessionStarts } from './memory.ts';

export interface EngineDeps {
  readonly config: Config;
  readonly clock: Clock;
  readonly ids: IdGenerator;
  readonly log: Logger;
  readonly journal: Journal;
  readonly store: Store;
  readonly bus: LiveBus;
  readonly registry: ModelRegistry;
  readonly providers: Providers;
  readonly prices: PriceTable;
  /** Null = texts are bounded by their bytes. */
  readonly tokenizer: Tokenizer | null;
  /** Null = bodies of any size are parsed on the event loop. */
  readonly bodies: BodyParser<RequestFacts, Prompt> | null;
  readonly tools: ToolRegistry;
  readonly schemas: SchemaCompiler;
  readonly workspaces: Workspaces;
  readonly relays: Relays;
  /** Workspace of clients that name none; it need not exist. */
  readonly gatewayFolder: string;
  readonly library: WorkerLibrary;
  readonly recommender: Recommender | null;
  /** What other nodes spend of the limits of a day is watched there; null = no other spends of them. */
  readonly dayLimit: DayLimit | null;
  /** Values that must never leave in a text. */
  readonly secrets: readonly string[];
  readonly trees: Trees;
}

export interface Engine extends EngineDeps {
  readonly locks: SessionLocks;
  readonly places: TurnPlaces;
  readonly approvals: OpenApprovals;
  readonly routes: RouteMemory;
  readonly budget: Budget;
  readonly prompts: KnownPrompts;
  readonly gateway: GatewayMemory;
  readonly starts: SessionStarts;
  readonly workers: Workers;
  readonly files: FileLedger;
  /** Delegations that no turn waits for. */
  readonly outside: OutsideRuns;
  /** Sessions being ended: they take no further turn. */
  readonly ending: Set<SessionId>;
  /** Turns that ran when the last process died: only their resumption is a risk that counts (04 §13). */
  readonly crashed: Set<TurnId>;
  /** Models whose missing price was logged already. */
  readonly unpriced: Set<string>;
  /** Set once, by a shutdown: turns stop at their next step boundary. */
  readonly draining: { value: boolean };
}

/** A text fit for an event or a record. */
export function safeText(engine: Engine, text: string, workspace: string | null): string {
  return scrub(text, { secrets: engine.secrets, workspace });
}

/** A name, path or command fit for an event: without credentials, otherwise as it is. */
export function safeName(engine: Engine, name: string): string {
  return scrubSecrets(name, engine.secrets);
}
