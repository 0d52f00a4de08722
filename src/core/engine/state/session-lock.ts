// Who runs a turn in which session: one at a time, reserved without an await between test and set (05 §3.2 step 2).

import type { Logger } from '#core/ports/log.ts';
import { type Cancelled, createScope } from '#protocol/abort.ts';
import type { SessionId, TurnId } from '#protocol/ids.ts';
import type { SessionRecord } from '#protocol/session.ts';

/** A turn that runs in this process. */
export interface ActiveTurn {
  readonly session_id: SessionId;
  readonly root_session_id: SessionId;
  readonly turn_id: TurnId;
  /** Aborted with a `Cancelled`. */
  readonly scope: AbortController;
  /** Resolves when the terminal event is stored, or when the turn was put down, or its tree lost. Never rejects. */
  readonly done: Promise<void>;
}

type LockedSession = Pick<SessionRecord, 'id' | 'root_session_id'>;

export interface SessionLocks {
  /**
   * Takes the session's lock for a turn to be, or returns what holds it: `turn` is null while it is being admitted.
   * @param turnId null when the session is being ended
   */
  reserve(
    sessionId: SessionId,
    turnId: TurnId | null,
  ):
    | { readonly held: true; readonly turn_id: TurnId | null; readonly turn: ActiveTurn | null }
    | { readonly held: false };
  /** Gives a reservation back without a turn. */
  release(sessionId: SessionId): void;
  /** Resolves when a reservation of the session has become a turn or was given back. */
  decided(sessionId: SessionId): Promise<void>;
  /** Starts a turn under the reservation; the lock is free again when `body` has settled. */
  start(session: LockedSession, turnId: TurnId, scope: AbortController, body: () => Promise<void>): ActiveTurn;
  turn(turnId: string): ActiveTurn | null;
  isHeld(sessionId: SessionId): boolean;
  /** Every turn that runs now. */
  active(): readonly ActiveTurn[];
  /** Resolves when no lock is held: nothing runs, and nothing is being admitted, resumed or ended. */
  idle(): Promise<void>;
}

export function createSessionLocks(log: Logger): SessionLocks {
  const held = new Map<string, { readonly turn_id: TurnId | null; readonly turn: ActiveTurn | null }>();
  const byTurn = new Map<string, ActiveTurn>();
  const waiting = new Map<string, (() => void)[]>();

  function decide(sessionId: string): void {
    const wakes = waiting.get(sessionId) ?? [];
    waiting.delete(sessionId);
    for (const wake of wakes) wake();
  }

  function decided(sessionId: string): Promise<void> {
    if (held.get(sessionId)?.turn !== null) return Promise.resolve();
    return new Promise((resolve) => {
      waiting.set(sessionId, [...(waiting.get(sessionId) ?? []), resolve]);
    });
  }

  return {
    reserve(sessionId, turnId) {
      const holder = held.get(sessionId);
      if (holder !== undefined) return { held: true, ...holder };
      held.set(sessionId, { turn_id: turnId, turn: null });
      return { held: false };
    },
    release(sessionId) {
      held.delete(sessionId);
      decide(sessionId);
    },
    decided,
    start({ id: sessionId, root_session_id }, turnId, scope, body) {
      const done = body()
        .catch((error: unknown) => {
          log.error({ session_id: sessionId, turn_id: turnId, err: error }, 'a turn ended without its terminal event');
        })
        .finally(() => {
          held.delete(sessionId);
          byTurn.delete(turnId);
        });
      const turn: ActiveTurn = { session_id: sessionId, root_session_id, turn_id: turnId, scope, done };
      held.set(sessionId, { turn_id: turnId, turn });
      byTurn.set(turnId, turn);
      decide(sessionId);
      return turn;
    },
    turn: (turnId) => byTurn.get(turnId) ?? null,
    isHeld: (sessionId) => held.has(sessionId),
    active: () => [...byTurn.values()],
    async idle() {
      while (held.size > 0) await Promise.all([...held].map(([id, { turn }]) => turn?.done ?? decided(id)));
    },
  };
}

/** Takes the session's lock however long that takes: what runs is cancelled, what is being admitted is waited for first. */
export function takeOver(
  locks: SessionLocks,
  sessionId: SessionId,
  turnId: TurnId | null,
  reason: Cancelled,
): Promise<void> {
  return takeWhenFree(locks, sessionId, turnId, (turn) => cancelScope(turn.scope, reason));
}

/**
 * Takes the session's lock as soon as nobody else holds it.
 * @param meanwhile called for a turn that runs and is waited for
 */
export async function takeWhenFree(
  locks: SessionLocks,
  sessionId: SessionId,
  turnId: TurnId | null,
  meanwhile: (turn: ActiveTurn) => void = () => {},
): Promise<void> {
  for (;;) {
    const lock = locks.reserve(sessionId, turnId);
    if (!lock.held) return;
    if (lock.turn !== null) meanwhile(lock.turn);
    await (lock.turn?.done ?? locks.decided(sessionId));
  }
}

/** Aborts once; a second cancel changes nothing. */
export function cancelScope(scope: AbortController, reason: Cancelled): void {
  if (!scope.signal.aborted) scope.abort(reason);
}

/** A scope that ends with its parent, and alone when asked. `detach` when it is done: a long turn spawns many children. */
export function childScope(parent: AbortSignal): { readonly scope: AbortController; detach(): void } {
  const scope = createScope();
  const onAbort = () => scope.abort(parent.reason);
  if (parent.aborted) onAbort();
  else parent.addEventListener('abort', onAbort, { once: true });
  return { scope, detach: () => parent.removeEventListener('abort', onAbort) };
}
