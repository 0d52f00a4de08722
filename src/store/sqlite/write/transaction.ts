// Batches in one transaction, each of which commits or fails by itself (00 §3).
import type Database from 'better-sqlite3';
import type { PreparedBatch } from '#core/policy/journal/prepare.ts';
import type { Published } from '#core/ports/live-bus.ts';
import type { Logger } from '#core/ports/logger.ts';
import { InvalidMessageError, JournalConflict } from '#protocol/journal-batch.ts';
import { applyWrite } from '#store/write/appliers.ts';
import { createEffects, type Effects, type Step } from '#store/write/transaction.ts';
import { journalFault } from './conflict.ts';
import type { EventLog } from './event-log.ts';
import type { LiveSessions, LiveTurns } from './live-sessions.ts';

/** A batch and its outcome. */
export interface Attempt {
  readonly batch: PreparedBatch;
  outcome:
    | { readonly ok: true; readonly published: readonly Published[]; readonly effects: Effects }
    | { readonly ok: false; readonly error: unknown };
}

export const UNTRIED: Attempt['outcome'] = { ok: false, error: null };

export interface TransactionParts {
  readonly live: LiveSessions;
  readonly turns: LiveTurns;
  readonly step: Omit<Step, 'effects'>;
  readonly events: EventLog;
  readonly log: Logger;
}

/** Returns the function that writes batches and sets the outcome of each; it never throws. */
export function createTransaction(
  db: Database.Database,
  { live, turns, step, events, log }: TransactionParts,
): (batches: readonly Attempt[]) => void {
  const begin = db.prepare('BEGIN IMMEDIATE');
  const commitAll = db.prepare('COMMIT');
  const rollbackAll = db.prepare('ROLLBACK');
  const savepoint = db.prepare('SAVEPOINT batch');
  const release = db.prepare('RELEASE batch');
  const rollbackTo = db.prepare('ROLLBACK TO batch');

  /**
   * Uses no savepoints: for each, SQLite copies every page that a batch changes, an eighth of a turn's processor
   * time with 16 sessions at work. False when one of several was refused: then none is written.
   */
  function writeAll(batches: readonly Attempt[]): boolean {
    try {
      for (const item of batches) writeAttempt(item);
      return true;
    } catch (error) {
      if (batches.length === 1) throw error;
      if (db.inTransaction) rollbackAll.run();
      for (const item of batches) {
        item.outcome = UNTRIED;
        forgetWritten(item);
      }
      return false;
    }
  }

  function writeAttempt(item: Attempt): void {
    const effects = createEffects();
    turns.guard(item.batch);
    const applied = { ...step, effects };
    for (const change of item.batch.writes) applyWrite(change, applied);
    item.outcome = { ok: true, published: events.append(item.batch.emit), effects };
    turns.settle(item.batch);
  }

  function writeUnderSavepoint(item: Attempt): void {
    savepoint.run();
    try {
      writeAttempt(item);
    } catch (error) {
      // A full disk ends the whole transaction by itself; then no batch of it was written.
      if (!db.inTransaction) throw error;
      rollbackTo.run();
      failAttempt(item, error);
    }
    release.run();
  }

  function failAttempt(item: Attempt, cause: unknown): void {
    // A batch that failed alone keeps its own reason when the rest of the transaction fails later.
    if (!item.outcome.ok && item.outcome.error !== null) return;
    forgetWritten(item);
    const error = journalFault(cause);
    if (!(error instanceof JournalConflict || error instanceof InvalidMessageError)) {
      const types = item.batch.emit.map((e) => (e.kind === 'event' ? e.draft.type : e.transient.delta.type));
      log.error({ err: error, writes: item.batch.writes.map((change) => change.kind), types }, 'commit failed');
    }
    item.outcome = { ok: false, error };
  }

  function forgetWritten({ batch }: Attempt): void {
    for (const change of batch.writes) {
      if (change.kind === 'session.insert') live.forget(change.session.id);
      else if (change.kind === 'turn.insert') turns.forget(change.turn.id);
    }
    events.forgetKeys();
  }

  return (batches) => {
    if (batches.length === 0) return;
    try {
      begin.run();
      if (!writeAll(batches)) {
        begin.run();
        for (const item of batches) writeUnderSavepoint(item);
      }
      commitAll.run();
    } catch (error) {
      if (db.inTransaction) rollbackAll.run();
      for (const item of batches) failAttempt(item, error);
    }
  };
}
