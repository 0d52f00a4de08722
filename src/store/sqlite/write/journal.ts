// The only writer: batches of one tick share a transaction; then publication (00 §3, 02 §2).
import { type PreparedBatch, prepareBatch } from '#core/policy/journal/prepare.ts';
import type { Journal } from '#core/ports/journal-writer.ts';
import type { LiveBus, Published } from '#core/ports/live-bus.ts';
import type { Logger } from '#core/ports/logger.ts';
import type { Clock } from '#protocol/clock.ts';
import { type Event, SYSTEM_SESSION } from '#protocol/event.ts';
import type { IdGenerator } from '#protocol/ids.ts';
import { savePriceVersion } from '#store/write/appliers.ts';
import type { Effects } from '#store/write/transaction.ts';
import type { SqliteStoreHandle } from '../connection/open.ts';
import { createTx } from '../connection/reads.ts';
import { journalFault } from './conflict.ts';
import { createEventLog } from './event-log.ts';
import { createLiveSessions, createLiveTurns } from './live-sessions.ts';
import { createPruner, createPurger } from './sqlite-maintenance.ts';
import { type Attempt, createTransaction, UNTRIED } from './transaction.ts';

export interface JournalOptions {
  readonly db: SqliteStoreHandle;
  readonly ids: IdGenerator;
  readonly clock: Clock;
  readonly bus: LiveBus;
  readonly log: Logger;
  /** Skips the check of event payloads against their schemas. */
  readonly trusted?: boolean;
}

/**
 * Limits the time of one transaction, which blocks the event loop; sockets are read and written between two of them.
 * With 256 the longest pause of 500 turns that begin at once was twice as long, and a turn cost the same.
 */
const MAX_BATCHES_PER_TRANSACTION = 32;

const DROP_EXPIRED_KEYS = 'DELETE FROM idempotency_keys WHERE expires_at <= ?';

/** The tree of a session that is not known. */
const ANY_TREE = '';

interface InQueue {
  /** Roots of the trees that it publishes something of. */
  readonly trees: readonly string[];
}
interface QueuedBatch extends Attempt, InQueue {
  readonly kind: 'batch';
  readonly resolve: (events: readonly Event[]) => void;
  readonly reject: (error: unknown) => void;
}
/** A task with a transaction of its own, in its place among the batches. */
interface QueuedTask extends InQueue {
  readonly kind: 'task';
  readonly run: () => void;
}
type QueuedDelta = Extract<Published, { readonly kind: 'transient' }> & InQueue;
type Queued = QueuedBatch | QueuedTask | QueuedDelta;

export function createJournal({ db: handle, ids, clock, bus, log, trusted = false }: JournalOptions): Journal {
  const { db, checkpoints } = handle;
  const { histories, sessions, idle, whole } = handle.caches;
  const live = createLiveSessions(db);
  const turns = createLiveTurns(db, live);
  const tx = createTx(db);
  const events = createEventLog(db, { tx, typeNumbers: handle.typeNumbers, ids, clock, sessions: live, turns });
  const writeTogether = createTransaction(db, {
    live,
    turns,
    step: { tx, clock, log, dropExpiredKeys: DROP_EXPIRED_KEYS },
    events,
    log,
  });
  const purgeTree = createPurger(db, tx);
  const pruneSlice = createPruner(db);

  const queue: Queued[] = [];
  /** Roots of trees of which something waits in the queue, with how many items do. */
  const waiting = new Map<string, number>();
  let scheduled = false;
  let delivering = false;

  function enqueue(item: Queued): void {
    queue.push(item);
    for (const root of item.trees) waiting.set(root, (waiting.get(root) ?? 0) + 1);
    schedule();
  }
  function schedule(): void {
    if (scheduled || delivering || queue.length === 0) return;
    scheduled = true;
    setImmediate(flush);
  }

  /** A commit or delta from within a subscriber is queued until the current delivery has ended. */
  function deliver(publish: () => void): void {
    delivering = true;
    try {
      publish();
    } finally {
      delivering = false;
      schedule();
    }
  }

  function flush(): void {
    scheduled = false;
    const items = queue.splice(0, lengthOfNextRun(queue));
    if (queue.length === 0) waiting.clear();
    else for (const { trees } of items) for (const root of trees) waiting.set(root, waiting.get(root)! - 1);
    const batches = items.filter((item) => item.kind === 'batch');
    writeTogether(batches);
    for (const { outcome } of batches) if (outcome.ok) keepCurrent(outcome.effects);
    if (batches.some(({ outcome }) => outcome.ok)) checkpoints.committed();
    deliver(() => {
      for (const item of items) {
        if (item.kind === 'transient') bus.publish([item]);
        else if (item.kind === 'task') item.run();
        else settleBatch(item);
      }
    });
  }

  /** Updates the caches of decoded rows after the commit and before publication. */
  function keepCurrent(effects: Effects): void {
    for (const { message, bytes } of effects.messages) histories.append(message, bytes);
    for (const { session_id, isOpen } of effects.turns) idle.set(session_id, !isOpen);
    for (const sessionId of effects.checkpointed) whole.set(sessionId, false);
    for (const sessionId of effects.ended) histories.drop(sessionId);
    for (const { id, values } of effects.sessions) {
      if (values === null) sessions.drop(id);
      else sessions.change(id, values);
    }
    for (const root of effects.trees) sessions.dropTree(root);
  }

  function settleBatch({ outcome, resolve, reject }: QueuedBatch): void {
    if (!outcome.ok) {
      reject(outcome.error);
      return;
    }
    if (outcome.published.length > 0) bus.publish(outcome.published);
    resolve(selectEvents(outcome.published));
  }

  /** A tree whose commit inserts its root is known by that. */
  function findTrees({ writes, emit }: PreparedBatch): readonly string[] {
    const trees = new Set<string>();
    for (const item of emit) {
      const { session_id } = item.kind === 'event' ? item.draft : item.transient;
      if (session_id !== SYSTEM_SESSION)
        trees.add(live.findRoot(session_id) ?? findInsertedRoot(writes, session_id) ?? ANY_TREE);
    }
    return [...trees];
  }

  /** Whether what is queued must be published before a delta of this tree. */
  function isAhead(root: string | null): boolean {
    if (queue.length === 0) return false;
    return root === null || (waiting.get(root) ?? 0) > 0 || (waiting.get(ANY_TREE) ?? 0) > 0;
  }

  function enqueueTask<T>(task: () => T): Promise<T> {
    return new Promise((resolve, reject) => {
      enqueue({
        kind: 'task',
        trees: [ANY_TREE],
        run: () => {
          try {
            resolve(db.transaction(task).immediate());
          } catch (error) {
            reject(journalFault(error));
          }
        },
      });
    });
  }

  return {
    // What the batch is refused for before it is queued rejects the promise too.
    commit: (batch) =>
      new Promise((resolve, reject) => {
        const prepared = prepareBatch(batch, trusted);
        const trees = findTrees(prepared);
        enqueue({ kind: 'batch', batch: prepared, trees, resolve, reject, outcome: UNTRIED });
      }),
    publishDelta(transient) {
      // Past the commits of other trees: a busy server always has some under way.
      const root = live.findRoot(transient.session_id);
      if (delivering || isAhead(root)) enqueue({ kind: 'transient', transient, trees: [root ?? ANY_TREE] });
      else deliver(() => bus.publish([{ kind: 'transient', transient }]));
    },
    async purge(sessionId) {
      const gone = await enqueueTask(() => purgeTree(sessionId));
      if (gone.length > 0) events.forgetKeys();
      for (const id of gone) {
        live.forget(id);
        histories.drop(id);
        sessions.drop(id);
        idle.set(id, false);
        whole.set(id, false);
      }
      return gone.length;
    },
    async prune(cutoff, dryRun) {
      let slice = await enqueueTask(() => pruneSlice(null, cutoff, dryRun));
      while (!slice.done) {
        const before = slice;
        slice = await enqueueTask(() => pruneSlice(before, cutoff, dryRun));
      }
      return slice.report;
    },
    savePriceVersion: (row) => enqueueTask(() => savePriceVersion(tx, row, clock.now())),
  };
}

function findInsertedRoot(writes: PreparedBatch['writes'], sessionId: string): string | null {
  for (const write of writes)
    if (write.kind === 'session.insert' && write.session.id === sessionId) return write.session.root_session_id;
  return null;
}

function selectEvents(published: readonly Published[]): readonly Event[] {
  return published.flatMap((item) => (item.kind === 'event' ? [item.event] : []));
}

/** Up to the first task inclusive, and never more batches than one transaction takes. */
function lengthOfNextRun(queue: readonly Queued[]): number {
  let batches = 0;
  for (let i = 0; i < queue.length; i++) {
    const kind = queue[i]?.kind;
    if (kind === 'task') return i + 1;
    if (kind === 'batch' && ++batches === MAX_BATCHES_PER_TRANSACTION) return i + 1;
  }
  return queue.length;
}
