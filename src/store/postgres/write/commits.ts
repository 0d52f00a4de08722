// One transaction per flush, one numbered commit per tree; the outcome of a lost answer is always resolved (16 §3).

import type { PreparedBatch } from '#core/policy/journal/prepare.ts';
import { InvalidMessageError, JournalConflict, StorageFault } from '#core/ports/journal-writer.ts';
import type { Published } from '#core/ports/live-bus.ts';
import type { Logger } from '#core/ports/logger.ts';
import { type Clock, sleep } from '#protocol/clock.ts';
import { AppError } from '#protocol/errors.ts';
import type { Event } from '#protocol/event.ts';
import type { IdGenerator } from '#protocol/ids.ts';
import { TreeLost } from '#protocol/journal-batch.ts';
import type { Held, HeldTrees } from '#store/cluster/tree-claims.ts';
import { applyWrite } from '#store/write/appliers.ts';
import { createEffects, type Effects, type Tx } from '#store/write/transaction.ts';
import { MAX_AT_ONCE } from '../connection/at-once.ts';
import { isNothingChanged, isTransient, journalFault } from '../connection/faults.ts';
import type { OpenPool } from '../connection/open.ts';
import { type Collected, collectEvents, type Drawn, type Noticed, writeEvents } from './event-log.ts';
import { afterwards, fence, type Numbered, readOutcome } from './fence.ts';
import type { Findings, LiveSessions } from './live-sessions.ts';
import { createRecorder } from './record-statements.ts';

/** Pause between two attempts when the database did not answer. */
export const AGAIN_MS = 100;
/** Maximum attempts for a batch without a tree, which no lease ends. */
export const MAX_ATTEMPTS = 300;
const MAX_KEYED = 4096;

/** Skips rows that another node deletes at this moment, so that neither waits for the other. */
const DROP_EXPIRED_KEYS = `DELETE FROM idempotency_keys WHERE ctid IN (
  SELECT ctid FROM idempotency_keys WHERE expires_at <= ? FOR UPDATE SKIP LOCKED LIMIT 100)`;
/** Only top-level sessions change their workspace, and they are their trees. */
const SET_PLACE = 'UPDATE trees SET place = ? WHERE root_session_id = ?';

export interface QueuedBatch {
  readonly kind: 'batch';
  readonly batch: PreparedBatch;
  readonly drawn: Drawn[];
  readonly resolve: (events: readonly Event[]) => void;
  readonly reject: (error: unknown) => void;
}
/** The part of one lane that a transaction writes. */
export interface Part {
  readonly root: string;
  readonly batches: readonly QueuedBatch[];
  outcomes: readonly Outcome[];
  /** Null before the commit, and for batches without a tree. */
  commit: { readonly epoch: number; readonly seq: number } | null;
}
interface Outcome {
  readonly published: readonly Published[];
  readonly effects: Effects;
}
export type Written = Outcome & Pick<Part, 'commit'>;

/** A numbered commit, and the root's turn that is open after it. */
type Commit = Numbered & { readonly turn: string | null };

export interface CommitOptions {
  readonly pool: OpenPool;
  readonly trees: HeldTrees;
  readonly ids: IdGenerator;
  readonly clock: Clock;
  readonly log: Logger;
  /** Notices by external receiver. */
  readonly noticed?: Noticed;
}

interface Commits {
  /** The written batches; all others are rejected. */
  write(parts: readonly Part[]): Promise<ReadonlyMap<QueuedBatch, Written>>;
}

export function createCommits({ pool, trees, ids, clock, log, noticed }: CommitOptions, live: LiveSessions): Commits {
  /** Sessions with a committed event or cost fact: their key exists, which saves one statement per commit. */
  const keyed = { events: new Set<string>(), facts: new Set<string>() };
  const forgetKeys = () => {
    keyed.events.clear();
    keyed.facts.clear();
  };

  /** Writes all batches together. If that fails, writes each alone, so that only the failing batch is rejected. */
  async function writeAll(parts: readonly Part[]): Promise<ReadonlyMap<QueuedBatch, Written>> {
    const written = new Map<QueuedBatch, Written>();
    const count = parts.reduce((sum, part) => sum + part.batches.length, 0);
    if (count === 0) return written;
    const takePart = (part: Part) => {
      const { batches, outcomes, commit } = part;
      for (const [i, item] of batches.entries()) written.set(item, { ...outcomes[i]!, commit });
    };
    try {
      await writeParts(parts);
      for (const part of parts) takePart(part);
      return written;
    } catch (error) {
      if (count === 1) {
        rejectBatch(parts[0]!.batches[0]!, parts[0]!.root, error);
        return written;
      }
    }
    for (const part of parts) {
      const { root, batches } = part;
      // It was stored by an attempt whose answer was lost.
      if (part.commit !== null) {
        takePart(part);
        continue;
      }
      for (const item of batches) {
        const alone: Part = { root, batches: [item], outcomes: [], commit: null };
        try {
          await writeParts([alone]);
          takePart(alone);
        } catch (error) {
          rejectBatch(item, root, error);
        }
      }
    }
    return written;
  }

  async function writeParts(parts: readonly Part[]): Promise<void> {
    const opened = parts.filter(isNew).map(({ root }) => trees.opening(root));
    try {
      await writeUntilKnown(parts);
    } finally {
      for (const known of opened) known();
    }
  }
  /** Retries until the outcome is known (16 §3.4). */
  async function writeUntilKnown(parts: readonly Part[]): Promise<void> {
    let open = [...parts];
    for (let attempt = 1; ; attempt += 1) {
      const numbered = new Map<Part, Commit>();
      for (const part of open) {
        const number = numberCommit(part);
        if (number !== null) numbered.set(part, number);
      }
      try {
        await attemptAt(open, numbered);
        for (const part of open) recordCommit(part, numbered.get(part));
        return;
      } catch (error) {
        // A session key that is missing after all may be the cause: all keys are looked up again.
        forgetKeys();
        if (!isTransient(error)) throw error;
        if (attempt === 1) log.warn({ err: error }, 'the database did not answer a commit; asked again until it does');
        if (attempt >= MAX_ATTEMPTS && numbered.size === 0) throw error;
      }
      open = await stillOpen(open, numbered);
      if (open.length === 0) return;
    }
  }

  /** The batches that are not stored; stored ones count as written. */
  async function stillOpen(parts: readonly Part[], numbered: ReadonlyMap<Part, Commit>): Promise<Part[]> {
    for (;;) {
      await sleep(clock, AGAIN_MS);
      const left: Part[] = [];
      try {
        for (const part of parts) {
          const number = numbered.get(part);
          const outcome =
            number === undefined ? await unnumberedOutcome(part) : await readOutcome(trees, number, pool.send);
          if (outcome === 'open') left.push(part);
          else if (outcome === 'committed') recordCommit(part, number);
          else {
            trees.lost(part.root);
            throw new TreeLost(part.root);
          }
        }
        return left;
      } catch (error) {
        if (!isTransient(error)) throw error;
      }
      // The tree was dropped meanwhile because the lease nearly ran out (16 §4.4).
      for (const part of parts) if (part.root !== '') requireHeld(part.root);
    }
  }
  /** A batch without a tree and without events may be written twice. */
  async function unnumberedOutcome({ batches }: Part): Promise<'committed' | 'open'> {
    const first = batches.flatMap((item) => item.drawn)[0];
    if (first === undefined) return 'open';
    const { rows } = await pool.send('SELECT 1 AS found FROM event_rows WHERE id = ?', [first.id]);
    if (rows.length > 0) return 'committed';
    return 'open';
  }

  function requireHeld(root: string): Held {
    const held = trees.get(root);
    if (held === null) throw new TreeLost(root);
    return held;
  }
  function numberCommit(part: Part): Commit | null {
    const { root, batches } = part;
    if (root === '') return null;
    const held = isNew(part) ? newTree(root, batches) : requireHeld(root);
    const { wanted, turn } = afterwards(
      held,
      batches.map(({ batch }) => batch),
    );
    return { held, seq: held.seq + 1, lastId: ids.next(), wanted, turn };
  }
  function newTree(root: string, batches: readonly QueuedBatch[]): Held {
    // A tree without a lease would be lost at once.
    if (!trees.valid()) throw new TreeLost(root);
    for (const { batch } of batches) {
      for (const change of batch.writes) {
        if (change.kind !== 'session.insert' || change.session.id !== root) continue;
        const place = trees.placeOf(change.session.workspace_path);
        return trees.get(root) ?? { root, epoch: 1, place, seq: 0, turn: null };
      }
    }
    return requireHeld(root);
  }
  function recordCommit(part: Part, number: Commit | undefined): void {
    if (number === undefined) return;
    const held = number.seq === 1 ? trees.adopt(number.held.root, number.held.place) : number.held;
    held.seq = number.seq;
    held.turn = number.turn;
    part.commit = { epoch: held.epoch, seq: held.seq };
  }

  async function attemptAt(parts: readonly Part[], numbered: ReadonlyMap<Part, Numbered>): Promise<void> {
    if (await writeAtOnce(parts, numbered)) return;
    const attempt = beginAttempt();
    await pool.transaction(async (tx) => {
      for (const number of numbered.values()) fence(trees, number, tx);
      for (const part of parts) {
        const outcomes: Outcome[] = [];
        for (const item of part.batches) {
          const effects = applyWrites(item, tx, attempt);
          await attempt.findings.lookUp(item.batch, tx);
          outcomes.push({ published: collectPublished(item, attempt), effects });
        }
        part.outcomes = outcomes;
      }
      writeEvents(attempt.collected, tx, keyed, noticed);
    });
    keepFindings(attempt);
  }

  /**
   * In one round trip, if no answer is needed before the commit. False = nothing was written: an answer is needed, or a
   * statement had nothing to change, whose reason a transaction that has the answers finds out.
   */
  async function writeAtOnce(parts: readonly Part[], numbered: ReadonlyMap<Part, Numbered>): Promise<boolean> {
    const attempt = beginAttempt();
    const recorder = createRecorder();
    const outcomes = new Map<Part, readonly Outcome[]>();
    for (const part of parts) {
      const tx = recorder.beginPart();
      const number = numbered.get(part);
      if (number !== undefined) fence(trees, number, tx);
      const written: Outcome[] = [];
      for (const item of part.batches) {
        const effects = applyWrites(item, tx, attempt);
        if (recorder.needsAnswer() || attempt.findings.unknown(item.batch).length > 0) return false;
        written.push({ published: collectPublished(item, attempt), effects });
      }
      outcomes.set(part, written);
    }
    writeEvents(attempt.collected, recorder.afterParts, keyed, noticed);
    const statements = recorder.listStatements();
    if (statements.length > MAX_AT_ONCE) return false;
    // Before the sending: it may be committed though its answer is lost.
    for (const [part, written] of outcomes) part.outcomes = written;
    try {
      await pool.atOnce(statements);
    } catch (error) {
      if (isNothingChanged(error)) return false;
      // The rows that the answers would have held are read again.
      for (const { root, outcomes } of parts) if (root !== '') outcomes[0]?.effects.trees.push(root);
      throw error;
    }
    keepFindings(attempt);
    return true;
  }

  interface Attempt {
    readonly findings: Findings;
    readonly collected: Collected;
  }
  function beginAttempt(): Attempt {
    const { typeNumbers } = pool;
    return { findings: live.begin(), collected: { typeNumbers, events: [], facts: [], rounds: [], owned: [] } };
  }
  function applyWrites({ batch }: QueuedBatch, tx: Tx, { findings }: Attempt): Effects {
    const effects = createEffects();
    findings.guard(batch, tx);
    const step = { tx, effects, clock, log, dropExpiredKeys: DROP_EXPIRED_KEYS };
    for (const change of batch.writes) {
      applyWrite(change, step);
      if (change.kind === 'session.set_workspace')
        tx.run(SET_PLACE, [trees.placeOf(change.workspace_path), change.session_id]);
    }
    return effects;
  }
  function collectPublished({ batch, drawn }: QueuedBatch, { findings, collected }: Attempt): readonly Published[] {
    return collectEvents(batch, drawn, findings, collected);
  }
  function keepFindings({ findings, collected }: Attempt): void {
    findings.keep();
    if (keyed.events.size > MAX_KEYED) forgetKeys();
    for (const { session_id } of collected.events) keyed.events.add(session_id);
    for (const { session_id } of collected.facts) keyed.facts.add(session_id);
  }

  function rejectBatch({ batch, reject }: QueuedBatch, root: string, cause: unknown): void {
    const error = journalFault(cause);
    if (
      !(
        error instanceof TreeLost ||
        error instanceof JournalConflict ||
        error instanceof InvalidMessageError ||
        error instanceof AppError
      )
    ) {
      const types = batch.emit.map((e) => (e.kind === 'event' ? e.draft.type : e.transient.delta.type));
      log.error({ err: error, writes: batch.writes.map((change) => change.kind), types }, 'commit failed');
    }
    // Work that cannot be stored now is resumed by the next sweep of any node that reaches the database (16 §4.4).
    const gaveUp = error instanceof StorageFault && trees.get(root) !== null;
    // Before the batch is rejected, so that the scopes of the tree are aborted by then.
    if (gaveUp || error instanceof TreeLost) trees.lost(root);
    reject(gaveUp ? new TreeLost(root) : error);
  }

  return { write: writeAll };
}

/** Whether the batch creates its tree. */
function isNew({ root, batches }: Part): boolean {
  return batches.some(({ batch }) =>
    batch.writes.some((change) => change.kind === 'session.insert' && change.session.id === root),
  );
}
