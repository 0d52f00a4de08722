// What a server keeps its data in: a file of its own, or a database that nodes share (16 §12).
import type { Config } from '../../domain/config.ts';
import type { Clock } from '../../kernel/clock.ts';
import type { IdGenerator } from '../../kernel/ids.ts';
import type { Analytics } from '../../ports/analytics.ts';
import type { DayLimit } from '../../ports/day-limit.ts';
import type { Journal } from '../../ports/journal.ts';
import type { LiveBus } from '../../ports/live-bus.ts';
import type { Logger } from '../../ports/log.ts';
import type { Notices } from '../../ports/notices.ts';
import type { PriceVersions } from '../../ports/price-versions.ts';
import type { Store } from '../../ports/store.ts';
import type { Trees } from '../../ports/trees.ts';

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
