// Waits for what no event announces: asks over and over, and gives up with what it waited for.
const ROUNDS = 200;
const PAUSE_MS = 5;

/**
 * Resolves with the first answer of `reached` that is not false, null or undefined.
 * The first rounds are turns of the event loop, so that nothing of this process passes unseen; then it pauses.
 * @param seconds how long it asks before it throws
 */
export async function until<T>(reached: () => T | Promise<T>, seconds = 15): Promise<Reached<T>> {
  const deadline = performance.now() + seconds * 1000;
  for (let round = 0; ; round++) {
    const answer = await reached();
    if (answer !== false && answer !== null && answer !== undefined) return answer as Reached<T>;
    if (performance.now() > deadline) throw new Error(`not reached in ${seconds} seconds: ${reached}`);
    await new Promise<void>((resolve) => {
      if (round < ROUNDS) setImmediate(resolve);
      else setTimeout(resolve, PAUSE_MS);
    });
  }
}
type Reached<T> = Exclude<T, false | null | undefined>;
