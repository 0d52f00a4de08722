// Questions to a database that may not answer, for probes that wait a second at most (05 §3.7).
import type { Engine } from '#core/engine/create-engine.ts';
import { type ServerCounts, serverCounts } from '#core/engine/manage-session.ts';
import type { Clock } from '#protocol/clock.ts';

/** Below the second after which a probe gives up. */
const PATIENCE_MS = 800;

/**
 * Asks one question at a time: a caller that comes while it is open waits for the same answer. Null where the answer failed or
 * did not come in time.
 */
export function createRecentAnswer<T>(
  clock: Clock,
  ask: () => Promise<T>,
): () => Promise<{ readonly value: T } | null> {
  let open: Promise<T> | null = null;
  return () => {
    open ??= ask().finally(() => {
      open = null;
    });
    const asked = open;
    return new Promise((resolve) => {
      const timer = clock.after(PATIENCE_MS, () => resolve(null));
      asked.then(
        (value) => {
          timer.cancel();
          resolve({ value });
        },
        () => {
          timer.cancel();
          resolve(null);
        },
      );
    });
  };
}

/** What is open; while the database does not answer, what it answered last. */
export function createRecentCounts(engine: Engine): () => Promise<ServerCounts> {
  const ask = createRecentAnswer(engine.clock, () => serverCounts(engine));
  let last: ServerCounts = { active_sessions: 0, active_workers: 0, active_turns: 0 };
  return async () => {
    last = (await ask())?.value ?? last;
    return last;
  };
}
