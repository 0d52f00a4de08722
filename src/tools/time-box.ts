// Runs synchronous work that depends on somebody else's text, and breaks it off when it takes too long.
import vm from 'node:vm';

/** Processor time; far above what a sensible schema takes, short enough for everybody else to wait. */
const LIMIT_MS = 100;

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
    for (let clockMs = LIMIT_MS; ; clockMs *= 2) {
      const before = processorMs();
      try {
        return script.runInContext(context, { timeout: clockMs }) as T;
      } catch (error) {
        // It is of the other context's `Error` class.
        if ((error as { code?: unknown }).code !== 'ERR_SCRIPT_EXECUTION_TIMEOUT') throw error;
        // The two clocks do not tick together.
        if (processorMs() - before >= 0.9 * LIMIT_MS) throw new OutOfTime(`takes longer than ${LIMIT_MS} ms`);
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
