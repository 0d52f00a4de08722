// Locks, slots and scopes of running turns. A session runs one turn; its lock is tested and taken without an await in between (05 §3.2 step 2).
import type { Logger } from '#core/ports/logger.ts';
import { Cancelled, cancelledBy, createScope } from '#protocol/abort.ts';
import type { Clock } from '#protocol/clock.ts';
import type { Config } from '#protocol/config.ts';
import { AppError } from '#protocol/errors.ts';
import type { SessionId, TurnId } from '#protocol/ids.ts';
import { TreeLost } from '#protocol/journal-batch.ts';
import type { SessionRecord } from '#protocol/session.ts';

/** A turn that runs in this process. */
export interface ActiveTurn {
  readonly session_id: SessionId;
  readonly root_session_id: SessionId;
  readonly turn_id: TurnId;
  /** Aborted with a `Cancelled`. */
  readonly scope: AbortController;
  /** Aborted to let the turn answer with what it has (20 §3). */
  readonly conclusion: AbortController;
  /** Resolves when the terminal event is stored, or when the turn was interrupted, or its tree lost. Never rejects. */
  readonly done: Promise<void>;
}

type StartedTurn = Pick<ActiveTurn, 'turn_id' | 'scope' | 'conclusion'>;
type LockedSession = Pick<SessionRecord, 'id' | 'root_session_id'>;

export interface SessionLocks {
  /**
   * Takes the session's lock for a new turn, or returns its holder: `turn` is null during its admission.
   * @param turnId null when the session is being ended
   */
  tryTake(
    sessionId: SessionId,
    turnId: TurnId | null,
  ):
    | { readonly held: true; readonly turn_id: TurnId | null; readonly turn: ActiveTurn | null }
    | { readonly held: false };
  /** Releases a lock that was taken and has no turn yet. */
  release(sessionId: SessionId): void;
  /** Resolves when the turn under the lock has started, or the lock was released. */
  whenDecided(sessionId: SessionId): Promise<void>;
  /** Starts a turn under the lock that the caller holds; the lock is released when `body` has settled. */
  start(session: LockedSession, turn: StartedTurn, body: () => Promise<void>): ActiveTurn;
  turn(turnId: string): ActiveTurn | null;
  isHeld(sessionId: SessionId): boolean;
  /** All running turns. */
  activeTurns(): readonly ActiveTurn[];
  /** Resolves when no lock is held: no turn runs, or is being admitted, resumed or ended. */
  whenIdle(): Promise<void>;
}

export function createSessionLocks(log: Logger): SessionLocks {
  const held = new Map<string, { readonly turn_id: TurnId | null; readonly turn: ActiveTurn | null }>();
  const byTurn = new Map<string, ActiveTurn>();
  const waiting = new Map<string, (() => void)[]>();

  function decide(sessionId: string): void {
    const resolvers = waiting.get(sessionId) ?? [];
    waiting.delete(sessionId);
    for (const resolve of resolvers) resolve();
  }

  function whenDecided(sessionId: string): Promise<void> {
    if (held.get(sessionId)?.turn !== null) return Promise.resolve();
    return new Promise((resolve) => {
      waiting.set(sessionId, [...(waiting.get(sessionId) ?? []), resolve]);
    });
  }

  return {
    tryTake(sessionId, turnId) {
      const holder = held.get(sessionId);
      if (holder !== undefined) return { held: true, ...holder };
      held.set(sessionId, { turn_id: turnId, turn: null });
      return { held: false };
    },
    release(sessionId) {
      held.delete(sessionId);
      decide(sessionId);
    },
    whenDecided,
    start({ id: sessionId, root_session_id }, { turn_id: turnId, scope, conclusion }, body) {
      const forgetTurn = () => {
        held.delete(sessionId);
        byTurn.delete(turnId);
      };
      const done = body().then(forgetTurn, (error: unknown) => {
        log.error({ session_id: sessionId, turn_id: turnId, err: error }, 'a turn ended without its terminal event');
        forgetTurn();
      });
      const turn: ActiveTurn = { session_id: sessionId, root_session_id, turn_id: turnId, scope, conclusion, done };
      held.set(sessionId, { turn_id: turnId, turn });
      byTurn.set(turnId, turn);
      decide(sessionId);
      return turn;
    },
    turn: (turnId) => byTurn.get(turnId) ?? null,
    isHeld: (sessionId) => held.has(sessionId),
    activeTurns: () => [...byTurn.values()],
    async whenIdle() {
      while (held.size > 0) await Promise.all([...held].map(([id, { turn }]) => turn?.done ?? whenDecided(id)));
    },
  };
}

/**
 * Takes the session's lock as soon as it is free.
 * @param meanwhile called for a running turn that is waited for
 */
export async function takeWhenFree(
  locks: SessionLocks,
  sessionId: SessionId,
  turnId: TurnId | null,
  meanwhile: (turn: ActiveTurn) => void = () => {},
): Promise<void> {
  for (;;) {
    const lock = locks.tryTake(sessionId, turnId);
    if (!lock.held) return;
    if (lock.turn !== null) meanwhile(lock.turn);
    await (lock.turn?.done ?? locks.whenDecided(sessionId));
  }
}

/** Aborts once; a second cancel changes nothing. */
export function cancelScope(scope: AbortController, reason: Cancelled): void {
  if (!scope.signal.aborted) scope.abort(reason);
}

/** A scope that is aborted with its parent, or alone. Call `detach` when it is no longer needed: a long turn creates many. */
export function createChildScope(parent: AbortSignal): { readonly scope: AbortController; detach(): void } {
  const scope = createScope();
  const onAbort = () => scope.abort(parent.reason);
  if (parent.aborted) onAbort();
  else parent.addEventListener('abort', onAbort, { once: true });
  return { scope, detach: () => parent.removeEventListener('abort', onAbort) };
}

// The number of top-level turns on this node: a new turn waits for a slot, a resumed one never does (16 §5.4).

export interface TurnPlaces {
  /** Turns that run or are about to run. */
  countTaken(): number;
  isFull(): boolean;
  /** Takes a slot at once, however full. @returns the release of the slot */
  enter(): () => void;
  /** In the order of arrival. Throws `server_busy` when no slot is free in time. */
  wait(): Promise<() => void>;
}

const PATIENCE_MS = 30_000;

/** @param most null = no limit */
export function createTurnPlaces(most: number | null, clock: Clock): TurnPlaces {
  let taken = 0;
  const queue = new Set<() => void>();
  const isFull = () => most !== null && taken >= most;

  function enter(): () => void {
    taken += 1;
    let left = false;
    return () => {
      if (left) return;
      left = true;
      taken -= 1;
      if (isFull()) return;
      const [next] = queue;
      next?.();
    };
  }

  return {
    countTaken: () => taken,
    isFull,
    enter,
    async wait() {
      if (!isFull()) return enter();
      return new Promise((resolve, reject) => {
        const proceed = () => {
          timer.cancel();
          queue.delete(proceed);
          resolve(enter());
        };
        const timer = clock.after(PATIENCE_MS, () => {
          queue.delete(proceed);
          reject(
            new AppError(
              'server_busy',
              `${most} turns run here, and none ended within 30 s: cluster.max_turns; try again`,
            ),
          );
        });
        queue.add(proceed);
      });
    },
  };
}

// Concurrency slots of one session: first come, first served (09 §9.1).

export interface Slots {
  /** Resolves with the release of the slot, which may be called twice; rejects with the signal's reason when it aborts while waiting. */
  take(signal: AbortSignal): Promise<() => void>;
}

export function createSlots(count: number): Slots {
  let free = count;
  const queue: (() => void)[] = [];

  function release() {
    free += 1;
    queue.shift()?.();
  }
  return {
    take(signal) {
      return new Promise((resolve, reject) => {
        const enter = () => {
          signal.removeEventListener('abort', leave);
          free -= 1;
          let held = true;
          resolve(() => {
            if (held) release();
            held = false;
          });
        };
        const leave = () => {
          const at = queue.indexOf(enter);
          if (at >= 0) queue.splice(at, 1);
          reject(signal.reason);
        };
        if (signal.aborted) return leave();
        if (free > 0) return enter();
        queue.push(enter);
        signal.addEventListener('abort', leave, { once: true });
      });
    },
  };
}

// A bounded wait for cancelled work: after the grace period it is abandoned (04 §9).

const GRACE_MS = 30_000;
/** Longer than the lease of a lost tree: its tools are killed by then. */
const LOST_MS = 2000;

/**
 * Settles like `work`. Once the signal has aborted, waits 30 s more and then rejects with the abort's reason.
 * @param about the fields of the log line for abandoned work
 */
export function withGrace<T>(
  { clock, log }: { readonly clock: Clock; readonly log: Logger },
  signal: AbortSignal,
  work: Promise<T>,
  about: { readonly session_id: string; readonly turn_id: string; readonly what: string },
): Promise<T> {
  return new Promise((resolve, reject) => {
    let stop = () => {};
    const onAbort = () => {
      const { reason } = signal;
      const patience = reason instanceof TreeLost ? Math.min(GRACE_MS, reason.patience_ms + LOST_MS) : GRACE_MS;
      const timer = clock.after(patience, () => {
        log.warn(about, `did not stop within ${patience / 1000} s of its cancellation; left behind`);
        reject(cancelledBy(signal));
      });
      stop = () => timer.cancel();
    };
    if (signal.aborted) onAbort();
    else signal.addEventListener('abort', onAbort, { once: true });
    const settle =
      <V>(how: (value: V) => void) =>
      (value: V) => {
        signal.removeEventListener('abort', onAbort);
        stop();
        how(value);
      };
    work.then(settle(resolve), settle(reject));
  });
}

// Interrupts a turn so that it can be resumed (04 §13).

/** Why work ends after a fault of the journal. */
export const FAULT = new Cancelled('shutdown', 'internal error');

export type InterruptReason = 'restart' | 'budget';

/** Thrown through a delegation whose worker was interrupted: the planner's call stays open and its turn is interrupted too. */
export class Interrupted extends Error {
  readonly reason: InterruptReason;
  constructor(reason: InterruptReason) {
    super(`interrupted: ${reason}`);
    this.name = 'Interrupted';
    this.reason = reason;
  }
}

/** Throws if another node owns the tree now: its work must neither run nor be stored here (16 §4.4). */
export function throwIfLost(signal: AbortSignal, thrown?: unknown): void {
  if (thrown instanceof TreeLost) throw thrown;
  if (signal.reason instanceof TreeLost) throw signal.reason;
}

interface Stopping {
  readonly draining: { readonly value: boolean };
  readonly config: Config;
}

/** Whether the process stops in a way that lets its turns resume after the next start. */
export function isHandOver({ draining, config }: Stopping, signal: AbortSignal): boolean {
  if (!draining.value || config.recovery.on_start === 'cancel') return false;
  return !signal.aborted || (signal.reason instanceof Cancelled && signal.reason.reason === 'shutdown');
}
