// Concurrency slots of one session: first come, first served (09 §9.1).

export interface Slots {
  /** Resolves with the way to give the slot back; rejects with the signal's reason when it aborts while waiting. */
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
          resolve(release);
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
