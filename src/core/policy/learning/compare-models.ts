// Which shapes of task a cheaper model does as well, and what that would have saved (07 §7.3). No model call, no float of money.
import type { ModelComparison, ShapeOnModels, SideOfComparison } from '#protocol/learned-pattern.ts';
import { fromPusd, toPusd } from '#protocol/money.ts';

/** How much worse "as good" may be at most, in score. */
const MARGIN = 0.1;
/** One-sided 95 %. */
const Z = 1.645;
/** Of the turns that are priced anew. */
export const WINDOW_DAYS = 7;

type Outcome = ShapeOnModels['outcomes'][number];
const RANK = { as_good: 0, undecided: 1, worse: 2 } as const;

/**
 * One row for every model that did turns of a shape in the window and has a cheaper one beside it: against that which does
 * as well and saves most, else against the one nearest to an answer. What saves most comes first.
 * @param tierOf null for a model without a tier; undefined for one that the registry of today does not have
 */
export function compareModels(
  shapes: readonly ShapeOnModels[],
  tierOf: (model: string) => SideOfComparison['tier'] | undefined,
): ModelComparison[] {
  const rows = shapes.flatMap(({ outcomes, ...shape }) => {
    const known = outcomes.filter(({ model }) => tierOf(model) !== undefined);
    return known
      .filter(({ recent_turns }) => recent_turns > 0)
      .flatMap((costlier) => {
        const found = known
          .filter((one) => computeSaving(one, costlier) > 0n)
          .map((one) => compareOutcomes(one, costlier));
        const [best] = found.sort(compareSavings);
        return best === undefined ? [] : [{ shape, ...best }];
      });
  });
  return rows.sort(compareSavings).map(({ shape, cheaper, costlier, saved, ...row }) => ({
    ...shape,
    ...row,
    dearer: toSide(costlier, tierOf),
    cheaper: toSide(cheaper, tierOf),
    saving_per_turn_usd: fromPusd(saved / countTurnPairs(cheaper, costlier)),
    saving_per_day_usd: fromPusd(computeDailySaving({ saved, cheaper, costlier })),
  }));
}

/** The first of comparisons that were made separately, in the order of a report. */
export function takeBest(comparisons: readonly ModelComparison[], limit: number): ModelComparison[] {
  const readSaving = ({ saving_per_day_usd }: ModelComparison) => toPusd(saving_per_day_usd);
  return comparisons
    .toSorted((a, b) => RANK[a.verdict] - RANK[b.verdict] || compareDescending(readSaving(a), readSaving(b)))
    .slice(0, limit);
}

interface Pair {
  readonly cheaper: Outcome;
  readonly costlier: Outcome;
  /** By the turn, times the turns of both: whole picodollars. */
  readonly saved: bigint;
}

function compareOutcomes(cheaper: Outcome, costlier: Outcome) {
  return { cheaper, costlier, saved: computeSaving(cheaper, costlier), ...judgePair(cheaper, costlier) };
}

/** Averages against each other without a fraction; more than 0 where `cheaper` is. */
function computeSaving(cheaper: Outcome, costlier: Outcome): bigint {
  return costlier.sum_cost_pusd * BigInt(cheaper.sample_size) - cheaper.sum_cost_pusd * BigInt(costlier.sample_size);
}
function countTurnPairs(cheaper: Outcome, costlier: Outcome): bigint {
  return BigInt(cheaper.sample_size) * BigInt(costlier.sample_size);
}
/** Rounded down. */
function computeDailySaving({ saved, cheaper, costlier }: Pair): bigint {
  return (saved * BigInt(costlier.recent_turns)) / (countTurnPairs(cheaper, costlier) * BigInt(WINDOW_DAYS));
}

/**
 * By the interval of Agresti and Caffo for the difference of two shares, which is honest with few turns: a score between 0
 * and 1 varies at most as much as one that is always one of both.
 */
function judgePair(cheaper: Outcome, costlier: Outcome): Pick<ModelComparison, 'verdict' | 'difference'> {
  if (cheaper.scored_turns === 0 || costlier.scored_turns === 0) return { verdict: 'undecided', difference: null };
  const [a, b] = [adjustShare(cheaper), adjustShare(costlier)];
  const spread = Z * Math.sqrt(a.variance + b.variance);
  const [low, high] = [a.share - b.share - spread, a.share - b.share + spread];
  const difference = cheaper.score_mean - costlier.score_mean;
  if (high < 0) return { difference, verdict: 'worse' };
  if (low >= -MARGIN) return { difference, verdict: 'as_good' };
  return { difference, verdict: 'undecided' };
}

function adjustShare({ score_mean, scored_turns }: Outcome) {
  const n = scored_turns + 2;
  const share = (score_mean * scored_turns + 1) / n;
  return { share, variance: (share * (1 - share)) / n };
}

function compareSavings(
  a: Pair & Pick<ModelComparison, 'verdict'>,
  b: Pair & Pick<ModelComparison, 'verdict'>,
): number {
  if (a.verdict !== b.verdict) return RANK[a.verdict] - RANK[b.verdict];
  return compareDescending(computeDailySaving(a), computeDailySaving(b));
}

function compareDescending(a: bigint, b: bigint): number {
  if (a === b) return 0;
  return a > b ? -1 : 1;
}

function toSide(outcome: Outcome, tierOf: (model: string) => SideOfComparison['tier'] | undefined): SideOfComparison {
  const { model, sample_size, scored_turns, score_mean, sum_cost_pusd, recent_turns } = outcome;
  return {
    model,
    tier: tierOf(model) ?? null,
    turns: sample_size,
    scored_turns,
    score_mean: scored_turns === 0 ? null : score_mean,
    avg_cost_usd: fromPusd(sum_cost_pusd / BigInt(sample_size)),
    recent_turns,
  };
}
