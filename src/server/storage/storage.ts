// What a server keeps its data in: a file of its own, or a database that nodes share (16 §12).

import type { Analytics } from '#core/ports/analytics.ts';
import type { DayLimit } from '#core/ports/day-limit.ts';
import type { Journal } from '#core/ports/journal.ts';
import type { LiveBus } from '#core/ports/live-bus.ts';
import type { Logger } from '#core/ports/log.ts';
import type { Notices } from '#core/ports/notices.ts';
import type { PriceVersions } from '#core/ports/price-versions.ts';
import type { Store } from '#core/ports/store.ts';
import type { Trees } from '#core/ports/trees.ts';
import type { Clock } from '#protocol/clock.ts';
import type { Config } from '#protocol/config.ts';
import type { IdGenerator } from '#protocol/ids.ts';

export interface StorageOptions {
  readonly config: Config;
  readonly packageDir: string;
  /** Absolute; made where it is missing. */
  readonly dataDir: string;
  /** Workspace of the gateway's sessions, which have no files. */
  readonly gatewayFolder: string;
  /** Of the package. */
  readonly version: string;
  readonly ids: IdGenerator;
  readonly clock: Clock;
  readonly log: Logger;
  /** What is stored of the server's own making is not checked once more. */
  readonly trusted: boolean;
  /** Reports run on a thread of their own, for which the package must be built; else on this one, in slices. */
  readonly reportsOnThread: boolean;
  /** Who outside is told of what. */
  readonly noticed: ReadonlyMap<string, ReadonlySet<string>>;
  /** Of what must be alike on all nodes and is no key of the configuration: registry, prices. */
  readonly alike: readonly unknown[];
  /** Ends the wait for a database that is not there, with its reason. */
  readonly leave?: AbortSignal;
}

export interface Storage {
  readonly bus: LiveBus;
  readonly journal: Journal;
  readonly store: Store;
  readonly analytics: Analytics;
  readonly priceVersions: PriceVersions;
  readonly trees: Trees;
  /** Null = nobody else spends of the limits of a day. */
  readonly dayLimit: DayLimit | null;
  /** Null = nobody else tells receivers what happens. */
  readonly notices: Notices | null;
  /** What to throw for `cause`: a fault of the storage as the one line that says it, anything else as it is. */
  fault(cause: unknown): unknown;
  close(): Promise<void>;
}
