// How many top-level turns this node runs: a new one waits for room, what must go on never does (16 §5.4).
import type { Clock } from '#protocol/clock.ts';
import { AppError } from '#protocol/errors.ts';

export interface TurnPlaces {
  /** Turns that run, and those that are about to. */
  taken(): number;
  full(): boolean;
  /** At once, however full. @returns leaves again */
  enter(): () => void;
  /** In the order in which they came. Throws `server_busy` when there is no room in time. */
  wait(): Promise<() => void>;
}

const PATIENCE_MS = 30_000;

/** @param most null = no limit */
export function createTurnPlaces(most: number | null, clock: Clock): TurnPlaces {
  let taken = 0;
  const queue = new Set<() => void>();
  const full = () => most !== null && taken >= most;

  function enter(): () => void {
    taken += 1;
    let left = false;
    return () => {
      if (left) return;
      left = true;
      taken -= 1;
      if (full()) return;
      const [next] = queue;
      next?.();
    };
  }

  return {
    taken: () => taken,
    full,
    enter,
    async wait() {
      if (!full()) return enter();
      return new Promise((resolve, reject) => {
        const go = () => {
          timer.cancel();
          queue.delete(go);
          resolve(enter());
        };
        const timer = clock.after(PATIENCE_MS, () => {
          queue.delete(go);
          reject(
            new AppError(
              'server_busy',
              `${most} turns run here, and none ended within 30 s: cluster.max_turns; try again`,
            ),
          );
        });
        queue.add(go);
      });
    },
  };
}
