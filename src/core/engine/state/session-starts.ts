// When sessions began by the monotonic clock: a wall clock that is set changes no duration while their process lives.
import type { Clock } from '#protocol/clock.ts';
import type { SessionId } from '#protocol/ids.ts';

/** Monotonic milliseconds by session, the oldest first. Forgotten with the session's end. */
export type SessionStarts = Map<SessionId, number>;

interface Timed {
  readonly starts: SessionStarts;
  readonly clock: Clock;
}

/** Of a session beyond it the wall clock is asked, as of one of an earlier process. */
const MAX_SESSIONS = 10_000;

export function noteStart({ starts, clock }: Timed, id: SessionId): void {
  starts.set(id, clock.monotonic());
  if (starts.size > MAX_SESSIONS) starts.delete(starts.keys().next().value!);
}

/** Seconds, never negative. @param createdAt wall time, asked where no other is left */
export function secondsSince({ starts, clock }: Timed, id: SessionId | null, createdAt: number): number {
  const began = id === null ? undefined : starts.get(id);
  const elapsed = began === undefined ? clock.now() - createdAt : clock.monotonic() - began;
  return Math.max(0, Math.round(elapsed)) / 1000;
}
