// The typed fastify instance of this server, what each route may configure, and what the routes are given.
import type {} from '@fastify/websocket';
import type {
  FastifyBaseLogger,
  FastifyInstance,
  FastifyRequest,
  RawReplyDefaultExpression,
  RawRequestDefaultExpression,
  RawServerDefault,
} from 'fastify';
import type { ZodTypeProvider } from 'fastify-type-provider-zod';
import type { Engine } from '#core/engine/create-engine.ts';
import type { ServerCounts } from '#core/engine/manage-session.ts';
import type { Meter, NodeFigures, StorageFigures, WaitingFigures } from '#core/ports/meter.ts';
import type { PriceVersions } from '#core/ports/price-versions.ts';
import type { Analytics } from '#core/ports/report-reader.ts';
import type { SettingsReport } from '#protocol/api/server-bodies.ts';
import type { ClientWire } from '#protocol/client-wire.ts';
import type { TurnId } from '#protocol/ids.ts';
import type { Person } from '#protocol/people/person.ts';
import type { Owners, Patience, Reach } from './forward/other-nodes.ts';
import type { StreamHub } from './stream/hub.ts';
import type { Idempotency } from './submissions.ts';

/** Fastify whose handlers see the types of their zod schemas. */
export type HttpApp = FastifyInstance<
  RawServerDefault,
  RawRequestDefaultExpression,
  RawReplyDefaultExpression,
  FastifyBaseLogger,
  ZodTypeProvider
>;

declare module 'fastify' {
  /** What a route asks of the gates (05 §1.2). */
  interface FastifyContextConfig {
    /** Where no token is needed: everywhere, or where the server listens for this machine only. */
    open?: 'everywhere' | 'on_loopback';
    /** No rate limit: the health routes. */
    unlimited?: boolean;
    /** Callers come with a key of the gateway, and are answered in their own wire. */
    gateway?: ClientWire;
    /** A call of a client, for a session that its headers name. */
    gateway_call?: boolean;
    /** Starts a turn. */
    turn?: boolean;
    /** Done twice it is as done once. PATCH, DELETE and what has an `Idempotency-Key` need not say so. */
    repeatable?: boolean;
    /** Takes WebSocket upgrades; a token may then come in the first frame. */
    upgrade?: boolean;
  }
  interface FastifyInstance {
    /** Current counts, for metrics. */
    gauges(): Promise<MetricGauges>;
  }
  interface FastifyRequest {
    /** SHA-256 (hex) of the caller's token; '' without one. */
    tokenHash: string;
    /** Who the request comes from. */
    person: Person;
    /** False only on an upgrade whose token is still to come by frame. */
    authorised: boolean;
  }
}

/** A file of the built dashboard. */
export interface DashboardFile {
  /** `/`, `/assets/…` with a hash of its content in the name, or `/assets/documents/NAME.md`. */
  readonly path: string;
  readonly mediaType: string;
  /** The tag is strong, quotes included. */
  read(): { readonly body: Buffer; readonly etag: string };
}

/** Current counts. */
export interface MetricGauges {
  readonly active_sessions: number;
  readonly active_workers: number;
  readonly active_turns: number;
  readonly active_streams: number;
  readonly unreachable_nodes: number;
  readonly storage: { readonly node: NodeFigures | null; readonly waiting: WaitingFigures };
}

export interface HttpDeps {
  readonly engine: Engine;
  readonly analytics: Analytics;
  readonly priceVersions: PriceVersions;
  /** Tracing receives a submission's headers before its turn starts, and learns when no turn is started. */
  readonly traces: {
    incoming(turnId: TurnId, headers: Readonly<Record<string, unknown>>): void;
    forget(turnId: TurnId): void;
  };
  /** The settings in force, without secrets. */
  readonly settings: () => SettingsReport;
  /** What the storage counts, for metrics; absent = nothing. */
  readonly figures?: StorageFigures;
  /** Counts what this node forwards; absent = nothing does. */
  readonly meter?: Meter;
  /** The text of `/metrics`. */
  readonly metrics: (now: MetricGauges) => string;
  /** A new secret of 256 bits for a token. */
  readonly makeSecret: () => string;
  /** Version of the package. */
  readonly version: string;
  /** What is served at `/`; nothing where the package was not built. */
  readonly dashboard?: readonly DashboardFile[];
  /** What answers at `/mcp`: the request, its token, its parsed body; absent = nothing does. */
  readonly mcp?: ((request: Request, token: string | null, body: unknown) => Promise<Response>) | undefined;
  /** True from the signal to go down on: every request is refused. */
  readonly draining: () => boolean;
  /** Timeouts of requests to the owner of a tree; default: 16 §5.3. */
  readonly patience?: Patience;
}

export interface RouteDeps extends HttpDeps {
  readonly hub: StreamHub;
  /** Records a token that was refused. */
  readonly noteRefusal: (request: FastifyRequest) => void;
  readonly idempotency: Idempotency;
  readonly owners: Owners;
  readonly reach: Reach;
  /** What is open, or what was when the database answered last: a probe is answered without it. */
  readonly counts: () => Promise<ServerCounts>;
  /** The same moment twice: in Unix milliseconds, and on the clock that is never set. */
  readonly started: { readonly at: number; readonly monotonic: number };
  readonly turnBodyLimit: number;
  readonly gatewayBodyLimit: number;
  /** The API documents, generated at the first request: their generator imports every route. */
  readonly documents: {
    openApi(version: string): Promise<string>;
    events(): Promise<string>;
    /** The first of them for people, with the Content-Security-Policy it is read under. */
    page(version: string): Promise<{ readonly page: string; readonly policy: string }>;
  };
  /** Aborts when the server closes: ends every wait. */
  readonly closing: AbortSignal;
}
