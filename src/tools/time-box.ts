// Runs synchronous work that depends on somebody else's text, and breaks it off when it takes too long.
import vm from 'node:vm';

/** Processor time; far above what a sensible schema takes, short enough for everybody else to wait. */
const LIMIT_MS = 100;
/** Of all attempts together, each of which everybody else waits for. */
const TOTAL_MS = 2 * LIMIT_MS;

export class OutOfTime extends Error {}

const script = new vm.Script('job()');
let context: vm.Context | null = null;

/**
 * The result of `work`, or whatever it throws. It must neither be async nor change anything that outlives it: it can
 * be broken off at any place, and begun again.
 * @throws OutOfTime after 100 ms of processor time
 */
export function withinTime<T>(work: () => T): T {
  context ??= vm.createContext(Object.create(null));
  context.job = work;
  try {
    // Only time on the clock can break work off. On a busy machine it passes without work being done: then more of it.
    let spentMs = 0;
    for (let clockMs = LIMIT_MS; ; ) {
      const before = processorMs();
      try {
        return script.runInContext(context, { timeout: Math.ceil(clockMs) }) as T;
      } catch (error) {
        // It is of the other context's `Error` class.
        if ((error as { code?: unknown }).code !== 'ERR_SCRIPT_EXECUTION_TIMEOUT') throw error;
        const tookMs = processorMs() - before;
        spentMs += tookMs;
        // The two clocks do not tick together.
        if (tookMs >= 0.9 * LIMIT_MS || spentMs >= TOTAL_MS) throw new OutOfTime(`takes longer than ${LIMIT_MS} ms`);
        // As much as the limit takes where the processor is shared as it was: with more, a processor that is free again
        // would work on for all of it.
        clockMs *= Math.min(2, LIMIT_MS / tookMs);
      }
    }
  } finally {
    context.job = null;
  }
}

function processorMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}
