// What the routes are given: the engine, the reports, and the state of the HTTP server itself.
import type { Engine } from '../engine/create-engine.ts';
import type { Analytics } from '../ports/analytics.ts';
import type { PriceVersions } from '../ports/price-versions.ts';
import type { TokenCheck } from './auth.ts';
import type { Idempotency } from './idempotency.ts';
import type { StreamHub } from './stream/hub.ts';

export interface HttpDeps {
  readonly engine: Engine;
  readonly analytics: Analytics;
  readonly priceVersions: PriceVersions;
  /** Version of the package. */
  readonly version: string;
  /** True from the signal to go down on: every request is refused. */
  readonly draining: () => boolean;
}

export interface RouteDeps extends HttpDeps {
  readonly hub: StreamHub;
  readonly tokens: TokenCheck;
  readonly idempotency: Idempotency;
  /** The same moment twice: in Unix milliseconds, and on the clock that is never set. */
  readonly started: { readonly at: number; readonly monotonic: number };
  readonly turnBodyLimit: number;
  /** The contract, made when somebody asks for it: what makes it knows every route. */
  readonly documents: {
    openApi(version: string): Promise<string>;
    events(): Promise<string>;
  };
  /** Aborts when the server closes: ends every wait. */
  readonly closing: AbortSignal;
}
