// Caches the sessions and turns that commits refer to; an entry is valid until the end of its session or turn is written.

import { listConditions, turnRefusal } from '#core/policy/journal/conditions.ts';
import type { PreparedBatch, SessionStamp } from '#core/policy/journal/prepare.ts';
import { SYSTEM_SESSION } from '#protocol/event.ts';
import { JournalConflict } from '#protocol/journal-batch.ts';
import type { TurnStatus } from '#protocol/turn.ts';
import { STAMP, type StampRow } from '#store/read/sessions.ts';
import type { Tx } from '#store/write/transaction.ts';
import { ENDED_TURN } from '#store/write/turns.ts';
import type { PoolTx } from '../connection/pool.ts';

/** Maximum entries, as many as a busy node has open; others are looked up again. */
const MAX_KEPT = 4096;

export interface LiveSessions {
  /** The root of a cached session; null for others. */
  findRoot(session: string): string | null;
  forget(session: string): void;
  /** Drops a session that other nodes may change from now on. */
  forgetTree(root: string): void;
  /** The entries that one transaction found; cached after its commit. */
  begin(): Findings;
}

export interface Findings {
  /** Sends the lookups; a check throws `JournalConflict('turn_closed' | 'session_ended')` (02 §3.5). */
  guard(batch: PreparedBatch, tx: Tx): void;
  /** The sessions of a batch whose stamps are not cached, including those it creates. */
  unknown(batch: PreparedBatch): readonly string[];
  /** Reads them. */
  lookUp(batch: PreparedBatch, tx: PoolTx): Promise<void>;
  /** Null for a session that is not there. */
  stampOf(session: string): SessionStamp | null;
  /** Whether a person may have submitted the turn: false only for a turn that this node stored without one. */
  mayHaveSubmitter(turn: string): boolean;
  keep(): void;
}

export function createLiveSessions(): LiveSessions {
  const live = new Map<string, SessionStamp>();
  const openTurns = new Set<string>();
  /** Of the open turns, those that no person submitted. */
  const openUnsubmitted = new Set<string>();

  function keepSession(id: string, stamp: SessionStamp): void {
    if (live.size >= MAX_KEPT) live.delete(live.keys().next().value ?? '');
    live.set(id, stamp);
  }
  function keepTurn(id: string): void {
    if (openTurns.size >= MAX_KEPT) forgetTurns();
    openTurns.add(id);
  }
  function forgetTurns(): void {
    openTurns.clear();
    openUnsubmitted.clear();
  }

  function begin(): Findings {
    const sessions = new Map<string, SessionStamp>();
    const turns = new Set<string>();
    /** Turns that this transaction inserts: there is nothing to look up. */
    const made = new Set<string>();
    /** Turns that no person submitted, if this transaction inserts or ends them. */
    const unsubmitted = new Set<string>();
    const ended = new Set<string>();

    function guard(batch: PreparedBatch, tx: Tx): void {
      const needed = listConditions(batch);
      for (const write of batch.writes) {
        if (write.kind !== 'turn.insert') continue;
        made.add(write.turn.id);
        if (write.turn.submitted_by === null) unsubmitted.add(write.turn.id);
      }
      for (const turn of needed.turns) {
        if ((openTurns.has(turn) || made.has(turn)) && !ended.has(turn)) continue;
        tx.run(ENDED_TURN, [turn], ({ rows }) => {
          const status = rows[0]?.status as TurnStatus | undefined;
          if (status !== undefined) throw turnRefusal(turn, status);
          turns.add(turn);
        });
      }
      for (const session of needed.sessions) {
        if (live.has(session) && !ended.has(session)) continue;
        tx.run(STAMP, [session], ({ rows }) => {
          if (rows[0]?.ended === 1) throw new JournalConflict('session_ended', `session ${session} has ended`);
        });
      }
      for (const write of batch.writes) {
        if (write.kind === 'turn.end') end(write.turn_id);
        else if (write.kind === 'session.end') end(write.session_id);
        else if (write.kind === 'session.set_ownership') dropStamps(write.session_id);
      }
    }
    function dropStamps(root: string): void {
      for (const stamps of [live, sessions])
        for (const [id, stamp] of stamps) if (stamp.root_session_id === root) stamps.delete(id);
    }
    /** Runs before the writes, so that the following batches look these up again. */
    function end(id: string): void {
      ended.add(id);
      openTurns.delete(id);
      live.delete(id);
      // The call that ended the turn is charged in the same transaction.
      if (openUnsubmitted.delete(id)) unsubmitted.add(id);
    }

    function unknown({ emit }: PreparedBatch): readonly string[] {
      const wanted = new Set<string>();
      for (const item of emit) {
        if (item.kind === 'event' && item.draft.session_id !== SYSTEM_SESSION) wanted.add(item.draft.session_id);
      }
      return [...wanted].filter((id) => !live.has(id) && !sessions.has(id));
    }
    async function lookUp(batch: PreparedBatch, tx: PoolTx): Promise<void> {
      const ids = unknown(batch);
      const found = await Promise.all(ids.map((id) => tx.send<StampRow>(STAMP, [id])));
      for (const [i, { rows }] of found.entries()) {
        const [row] = rows;
        if (row === undefined) continue;
        const { ended: hasEnded, ...stamp } = row;
        sessions.set(ids[i]!, { ...stamp, is_worker: row.is_worker === 1 });
        if (hasEnded === 1) ended.add(ids[i]!);
      }
    }

    return {
      guard,
      unknown,
      lookUp,
      stampOf: (session) => live.get(session) ?? sessions.get(session) ?? null,
      mayHaveSubmitter: (turn) => !openUnsubmitted.has(turn) && !unsubmitted.has(turn),
      keep() {
        for (const [id, stamp] of sessions) if (!ended.has(id)) keepSession(id, stamp);
        for (const id of [...turns, ...made]) if (!ended.has(id)) keepTurn(id);
        for (const id of unsubmitted) if (openTurns.has(id)) openUnsubmitted.add(id);
      },
    };
  }
  return {
    findRoot: (session) => live.get(session)?.root_session_id ?? null,
    forget: (session) => void live.delete(session),
    forgetTree(root) {
      for (const [id, stamp] of live) if (stamp.root_session_id === root) live.delete(id);
      // Turns do not name their tree, so those of other trees are dropped too and looked up again.
      forgetTurns();
    },
    begin,
  };
}
