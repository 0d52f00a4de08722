// The rounds of a measure: all sides in turn, and more of them while what they found is too far apart.
import { spread } from './stats.mjs';

/** A median that may be off by more than this part of itself is measured further. */
export const WIDE = 0.1;
/** At most so many times the rounds that were asked for ... */
const MOST_TIMES = 3;
/** ... and no new one after so long. */
const REPEAT_LIMIT_MS = 120_000;

/**
 * @param count rounds that are made in any case; the spread of a single one is unknown, so it is not repeated
 * @param now milliseconds
 * @returns a function that runs all sides in turn, so that a slow moment of the machine meets each:
 *   `{relay: [...], metis: [...]}`. Its `most` is how many rounds are asked for at most, where one takes long, and `times`
 *   multiplies their number, where one is short.
 */
export function createRounds({ count, now, note }) {
  return async (sides, { most = Number.POSITIVE_INFINITY, times = 1 } = {}) => {
    const names = Object.keys(sides);
    const results = Object.fromEntries(names.map((name) => [name, []]));
    const asked = Math.min(count * times, most);
    let done = 0;
    const once = async () => {
      for (const name of done % 2 === 0 ? names : names.toReversed()) results[name].push(await sides[name]());
      done += 1;
    };
    while (done < asked) await once();
    const end = now() + REPEAT_LIMIT_MS;
    while (count > 1 && done < asked * MOST_TIMES && now() < end && isWide(results)) await once();
    if (done > asked) note(`  ${done} rounds in place of ${asked}${isWide(results) ? ', and still far apart' : ''}`);
    return results;
  };
}

function isWide(results) {
  return Object.values(results)
    .flatMap(seriesIn)
    .some((values) => spread(values) > WIDE);
}

/** The figures of the rounds, each with its value in every round: a round's result is a figure or an object of them. */
function seriesIn(rounds) {
  if (typeof rounds[0] === 'number') return [rounds];
  return Object.values(rounds[0] ?? {}).flatMap((first, i) => {
    if (typeof first === 'number') return [rounds.map((round) => Object.values(round)[i])];
    return first === null ? [] : seriesIn(rounds.map((round) => Object.values(round)[i]));
  });
}
