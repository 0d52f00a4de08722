// What the routes are given: the engine, the reports, and the state of the HTTP server itself.
import type { Engine } from '#core/engine/create-engine.ts';
import type { ServerCounts } from '#core/engine/manage-session.ts';
import type { Analytics } from '#core/ports/analytics.ts';
import type { PriceVersions } from '#core/ports/price-versions.ts';
import type { TurnId } from '#protocol/ids.ts';
import type { TokenCheck } from './auth.ts';
import type { DashboardFile } from './dashboard-file.ts';
import type { Owners, Patience } from './forward/patience.ts';
import type { Reach } from './forward/reach.ts';
import type { Idempotency } from './idempotency.ts';
import type { StreamHub } from './stream/hub.ts';

/** What is going on at this moment. */
export interface MetricGauges {
  readonly active_sessions: number;
  readonly active_workers: number;
  readonly active_turns: number;
  readonly active_streams: number;
  readonly unreachable_nodes: number;
}

export interface HttpDeps {
  readonly engine: Engine;
  readonly analytics: Analytics;
  readonly priceVersions: PriceVersions;
  /** Who follows traces: told of a submission's headers before its turn begins, and when it does not come to one. */
  readonly traces: {
    incoming(turnId: TurnId, headers: Readonly<Record<string, unknown>>): void;
    forget(turnId: TurnId): void;
  };
  /** The text of `/metrics`. */
  readonly metrics: (now: MetricGauges) => string;
  /** Version of the package. */
  readonly version: string;
  /** What is served at `/`; nothing where the package was not built. */
  readonly dashboard?: readonly DashboardFile[];
  /** What answers at `/mcp`: the request, its token, its parsed body; absent = nothing does. */
  readonly mcp?: ((request: Request, token: string | null, body: unknown) => Promise<Response>) | undefined;
  /** True from the signal to go down on: every request is refused. */
  readonly draining: () => boolean;
  /** With owners of trees that cannot be reached; as 16 §5.3 says unless told. */
  readonly patience?: Patience;
}

export interface RouteDeps extends HttpDeps {
  readonly hub: StreamHub;
  readonly tokens: TokenCheck;
  readonly idempotency: Idempotency;
  readonly owners: Owners;
  readonly reach: Reach;
  /** What is open, or what was when the database answered last: a probe is answered without it. */
  readonly counts: () => Promise<ServerCounts>;
  /** The same moment twice: in Unix milliseconds, and on the clock that is never set. */
  readonly started: { readonly at: number; readonly monotonic: number };
  readonly turnBodyLimit: number;
  readonly gatewayBodyLimit: number;
  /** The contract, made when somebody asks for it: what makes it knows every route. */
  readonly documents: {
    openApi(version: string): Promise<string>;
    events(): Promise<string>;
    /** The first of them for people, with the Content-Security-Policy it is read under. */
    page(version: string): Promise<{ readonly page: string; readonly policy: string }>;
  };
  /** Aborts when the server closes: ends every wait. */
  readonly closing: AbortSignal;
}
