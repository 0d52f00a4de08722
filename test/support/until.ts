// Waits for what no event announces: asks over and over, and gives up with what it waited for.
/** What is waited for comes late on a busy machine; only what never comes lasts so long. */
const LIMIT_SECONDS = 60;
const ROUNDS = 200;
const PAUSE_MS = 5;
/** Of a question that goes to another process, which works for its answer as this one does. */
const MAX_PAUSE_MS = 50;
const PATIENT_ROUNDS = 20;

/**
 * Resolves with the first answer of `reached` that is not false, null or undefined.
 * The first rounds are turns of the event loop, so that nothing of this process passes unseen; then it pauses, the longer
 * the longer it has asked where the answer is a promise: what is waited for comes sooner when nobody asks all the time.
 * @param seconds how long it asks before it throws
 */
export async function until<T>(reached: () => T | Promise<T>, seconds = LIMIT_SECONDS): Promise<Reached<T>> {
  const begun = performance.now();
  for (let round = 0; ; round++) {
    const asked = reached();
    const patient = asked instanceof Promise;
    const answer = await asked;
    if (answer !== false && answer !== null && answer !== undefined) return answer as Reached<T>;
    const elapsed = performance.now() - begun;
    if (elapsed > seconds * 1000) throw new Error(`not reached in ${seconds} seconds: ${reached}`);
    await new Promise<void>((resolve) => {
      if (round < (patient ? PATIENT_ROUNDS : ROUNDS)) setImmediate(resolve);
      else setTimeout(resolve, patient ? Math.min(MAX_PAUSE_MS, Math.max(PAUSE_MS, elapsed / 20)) : PAUSE_MS);
    });
  }
}
type Reached<T> = Exclude<T, false | null | undefined>;
