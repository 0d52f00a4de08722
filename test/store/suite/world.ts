// What a store is held against: its ports, and what a test must see and do beside them.

import type { Journal } from '#core/ports/journal-writer.ts';
import type { LiveBus, Published } from '#core/ports/live-bus.ts';
import { type Logger, silentLogger } from '#core/ports/logger.ts';
import type { Store } from '#core/ports/store-reader.ts';
import type { AnyEvent } from '#protocol/event.ts';
import type { IdGenerator } from '#protocol/ids.ts';

export interface LogLine {
  readonly level: 'warn' | 'error';
  readonly fields: Readonly<Record<string, unknown>>;
  readonly message: string;
}

/** One open database. Its SQL is what every store understands, with `?` for values. */
export interface World {
  /** Several nodes may write: what is promised of the whole database is then promised of each tree (16 §12). */
  readonly several: boolean;
  readonly journal: Journal;
  readonly store: Store;
  readonly bus: LiveBus;
  readonly ids: IdGenerator;
  /** Unix milliseconds; set it to move the time. */
  readonly time: { now: number };
  readonly published: Published[];
  readonly logged: LogLine[];
  /** Rows of a query, integers as bigint. */
  rows(sql: string, ...values: unknown[]): Promise<Record<string, unknown>[]>;
  /** Ids of the events in the order in which their rows, or their transactions, were written. */
  eventsAsWritten(): Promise<string[]>;
  count(table: string): Promise<number>;
  /** Writes past the journal: what another version, or a feature to come, would have written. */
  execute(sql: string, ...values: unknown[]): Promise<void>;
  /** From now on an event with this word in its payload fails its whole transaction, as a full disk does. */
  failOn(word: string): Promise<void>;
  /** By `table.column`: the types of the values that each money column holds. */
  moneyTypes(): Promise<Record<string, string[]>>;
  /** What a rollup and the ledger disagree about. */
  differences(): Promise<readonly string[]>;
  rebuildRollups(): Promise<void>;
  close(): Promise<void>;
  /** The same database, opened again; the clock goes on, unless `start` sets it (Unix ms). */
  reopen(start?: number): Promise<World>;
}

/** Opens an empty database; the test that asked for it closes it. */
export type OpenStore = () => Promise<World>;

export const NOON = Date.parse('2026-05-08T12:00:00.000Z');

/** How a driver says that a key is taken. */
export const TAKEN = /UNIQUE|duplicate key/;

export function recordingLogger(lines: LogLine[]): Logger {
  const log: Logger = {
    ...silentLogger,
    warn: (fields, message) => lines.push({ level: 'warn', fields, message }),
    error: (fields, message) => lines.push({ level: 'error', fields, message }),
    child: () => log,
  };
  return log;
}

export function publishedEvents(world: World): AnyEvent[] {
  return world.published.flatMap((item) => (item.kind === 'event' ? [item.event as AnyEvent] : []));
}
