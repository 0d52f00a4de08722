// Runs synchronous work that depends on somebody else's text, and breaks it off when it takes too long.
import vm from 'node:vm';

/** Wall-clock time; far above what a sensible schema takes, short enough for everybody else to wait. */
const LIMIT_MS = 150;

export class OutOfTime extends Error {}

const script = new vm.Script('job()');
let context: vm.Context | null = null;

/**
 * The result of `work`, or whatever it throws. It must neither be async nor change anything that outlives it: it can
 * be broken off at any place.
 * @throws OutOfTime after 150 ms
 */
export function withinTime<T>(work: () => T): T {
  context ??= vm.createContext(Object.create(null));
  context.job = work;
  try {
    return script.runInContext(context, { timeout: LIMIT_MS }) as T;
  } catch (error) {
    // It is of the other context's `Error` class.
    if ((error as { code?: unknown }).code === 'ERR_SCRIPT_EXECUTION_TIMEOUT') {
      throw new OutOfTime(`takes longer than ${LIMIT_MS} ms`);
    }
    throw error;
  } finally {
    context.job = null;
  }
}
