// Who runs a turn in which session: one at a time, reserved without an await between test and set (05 §3.2 step 2).
import type { Cancelled } from '../kernel/abort.ts';
import type { SessionId, TurnId } from '../kernel/ids.ts';
import type { Logger } from '../ports/log.ts';

/** A turn that runs in this process. */
export interface ActiveTurn {
  readonly session_id: SessionId;
  readonly turn_id: TurnId;
  /** Aborted with a `Cancelled`. */
  readonly scope: AbortController;
  /** Resolves when the terminal event is stored, or when the turn was put down by a drain. Never rejects. */
  readonly done: Promise<void>;
}

export interface SessionLocks {
  /** Takes the session's lock for a turn to be, or returns what holds it: `turn` is null while it is being admitted. */
  reserve(
    sessionId: SessionId,
    turnId: TurnId,
  ): { readonly held: true; readonly turn_id: TurnId; readonly turn: ActiveTurn | null } | { readonly held: false };
  /** Gives a reservation back without a turn. */
  release(sessionId: SessionId): void;
  /** Starts a turn under the reservation; the lock is free again when `body` has settled. */
  start(sessionId: SessionId, turnId: TurnId, scope: AbortController, body: () => Promise<void>): ActiveTurn;
  turn(turnId: string): ActiveTurn | null;
  of(sessionId: string): ActiveTurn | null;
  /** Every turn that runs now. */
  active(): readonly ActiveTurn[];
}

export function createSessionLocks(log: Logger): SessionLocks {
  const held = new Map<string, { readonly turn_id: TurnId; readonly turn: ActiveTurn | null }>();
  const byTurn = new Map<string, ActiveTurn>();

  return {
    reserve(sessionId, turnId) {
      const holder = held.get(sessionId);
      if (holder !== undefined) return { held: true, ...holder };
      held.set(sessionId, { turn_id: turnId, turn: null });
      return { held: false };
    },
    release(sessionId) {
      held.delete(sessionId);
    },
    start(sessionId, turnId, scope, body) {
      const done = body()
        .catch((error: unknown) => {
          log.error({ session_id: sessionId, turn_id: turnId, err: error }, 'a turn ended without its terminal event');
        })
        .finally(() => {
          held.delete(sessionId);
          byTurn.delete(turnId);
        });
      const turn: ActiveTurn = { session_id: sessionId, turn_id: turnId, scope, done };
      held.set(sessionId, { turn_id: turnId, turn });
      byTurn.set(turnId, turn);
      return turn;
    },
    turn: (turnId) => byTurn.get(turnId) ?? null,
    of: (sessionId) => held.get(sessionId)?.turn ?? null,
    active: () => [...byTurn.values()],
  };
}

/** Aborts once; a second cancel changes nothing. */
export function cancelScope(scope: AbortController, reason: Cancelled): void {
  if (!scope.signal.aborted) scope.abort(reason);
}

/** A scope that ends with its parent, and alone when asked. `detach` when it is done: a long turn spawns many children. */
export function childScope(parent: AbortSignal): { readonly scope: AbortController; detach(): void } {
  const scope = new AbortController();
  const onAbort = () => scope.abort(parent.reason);
  if (parent.aborted) onAbort();
  else parent.addEventListener('abort', onAbort, { once: true });
  return { scope, detach: () => parent.removeEventListener('abort', onAbort) };
}
