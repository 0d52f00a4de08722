// The only writer of durable state: one commit = one transaction, publication after it (00 §3, 02 §2).

import type { Transient } from '#protocol/delta.ts';
import type { Event } from '#protocol/event.ts';
import type { SessionId } from '#protocol/ids.ts';
import type { Batch } from '#protocol/journal-batch.ts';

// Parameters and errors; below the port, because the rules of a batch (`policy/journal`) speak of them too.
export type {
  Batch,
  ConfirmationRow,
  IdempotencyRow,
  ToolCallRow,
  TurnOutcome,
  Write,
} from '#protocol/journal-batch.ts';
export {
  EventValidationError,
  InvalidMessageError,
  JournalConflict,
  StorageFault,
  TreeLost,
  UnknownEventTypeError,
} from '#protocol/journal-batch.ts';

export interface PruneReport {
  readonly cutoff: number;
  readonly rows_deleted: number;
  readonly sessions_skipped: number;
  readonly oldest_kept: number | null;
}

export interface Journal {
  /**
   * Writes all of the batch or nothing. Resolves with the stamped events once they are durable and published.
   * Throws `UnknownEventTypeError`, `EventValidationError`, `InvalidMessageError`, `JournalConflict`, `StorageFault` or, in a
   * cluster, `TreeLost`.
   */
  commit(batch: Batch): Promise<readonly Event[]>;
  /** Publishes a delta in order with the commits; it is never stored. */
  publishDelta(event: Transient): void;
  /** Deletes the session and its descendants, never their cost facts. Returns how many sessions went (01 §7.4). */
  purge(sessionId: SessionId): Promise<number>;
  /** Deletes events older than `cutoff` (Unix ms), in slices (02 §6). */
  prune(cutoff: number, dryRun: boolean): Promise<PruneReport>;
  /** Stores a price version once; a known version with another hash throws. */
  savePriceVersion(row: {
    readonly version: string;
    readonly content_hash: string;
    readonly source: string;
    readonly models_json: string;
  }): Promise<void>;
}
