// Finds shapes of turns that a cheaper model handles equally well, and the possible saving (07 §7.3). No model call, no float for money.
import type { ModelComparison, ShapeOnModels, SideOfComparison } from '#protocol/learned-pattern.ts';
import { fromPusd, type Pusd } from '#protocol/money.ts';

/** Maximum difference in score that counts as equally good. */
const MARGIN = 0.1;
/** One-sided 95 %. */
const Z = 1.645;
/** Days whose turns are repriced. */
export const WINDOW_DAYS = 7;

type Outcome = ShapeOnModels['outcomes'][number];
const RANK = { as_good: 0, undecided: 1, worse: 2 } as const;

/**
 * One row for each model with turns of a shape in the window and a cheaper alternative. The alternative is the one that is
 * equally good and saves most, else the one closest to a conclusion. Rows with the largest saving come first.
 * @param tierOf null for a model without a tier; undefined for one that the registry of today does not have
 */
export function compareModels(shapes: readonly ShapeOnModels[], tierOf: FindTier): Compared[] {
  const rows = shapes.flatMap(({ outcomes, ...shape }) => {
    const known = outcomes.filter(({ model }) => tierOf(model) !== undefined);
    return known
      .filter(({ recent_turns }) => recent_turns > 0)
      .flatMap((costlier) => {
        const found = known
          .filter((one) => computeSaving(one, costlier) > 0n)
          .map((one) => compareOutcomes(one, costlier));
        const [best] = found.sort(compareSavings);
        if (best === undefined) return [];
        return [{ shape, ...best }];
      });
  });
  return rows.sort(compareSavings);
}

/** The first of comparisons that were made separately, in the order of a report. */
export function takeBest(comparisons: readonly Compared[], limit: number): Compared[] {
  return comparisons.toSorted(compareSavings).slice(0, limit);
}

/** The comparison as a report has it. */
export function viewComparison(compared: Compared, tierOf: FindTier): ModelComparison {
  const { shape, cheaper, costlier, saved, saving_per_day, ...judgement } = compared;
  return {
    ...shape,
    ...judgement,
    dearer: toSide(costlier, tierOf),
    cheaper: toSide(cheaper, tierOf),
    saving_per_turn_usd: fromPusd(saved / countTurnPairs(cheaper, costlier)),
    saving_per_day_usd: fromPusd(saving_per_day),
  };
}

type FindTier = (model: string) => SideOfComparison['tier'] | undefined;

interface Pair {
  readonly cheaper: Outcome;
  readonly costlier: Outcome;
  /** Cost per turn multiplied by the number of turns of both models, so that it is whole picodollars. */
  readonly saved: bigint;
}

interface Judged extends Pair, Pick<ModelComparison, 'verdict' | 'difference'> {
  readonly saving_per_day: Pusd;
}

/** A shape with two of its models. */
export interface Compared extends Judged {
  readonly shape: Omit<ShapeOnModels, 'outcomes'>;
}

function compareOutcomes(cheaper: Outcome, costlier: Outcome): Judged {
  const pair = { cheaper, costlier, saved: computeSaving(cheaper, costlier) };
  return { ...pair, saving_per_day: computeDailySaving(pair), ...judgePair(cheaper, costlier) };
}

/** Difference of the averages without fractions; above 0 if `cheaper` is cheaper, 0 where one has no cost. */
function computeSaving(cheaper: Outcome, costlier: Outcome): bigint {
  return costlier.sum_cost_pusd * BigInt(cheaper.cost_count) - cheaper.sum_cost_pusd * BigInt(costlier.cost_count);
}
function countTurnPairs(cheaper: Outcome, costlier: Outcome): bigint {
  return BigInt(cheaper.cost_count) * BigInt(costlier.cost_count);
}
/** Rounded down. */
function computeDailySaving({ saved, cheaper, costlier }: Pair): Pusd {
  return ((saved * BigInt(costlier.recent_turns)) / (countTurnPairs(cheaper, costlier) * BigInt(WINDOW_DAYS))) as Pusd;
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

function compareSavings(a: Judged, b: Judged): number {
  if (a.verdict !== b.verdict) return RANK[a.verdict] - RANK[b.verdict];
  if (a.saving_per_day === b.saving_per_day) return 0;
  if (a.saving_per_day > b.saving_per_day) return -1;
  return 1;
}

function toSide(outcome: Outcome, tierOf: FindTier): SideOfComparison {
  const { model, sample_size, scored_turns, score_mean, sum_cost_pusd, cost_count, recent_turns } = outcome;
  return {
    model,
    tier: tierOf(model) ?? null,
    turns: sample_size,
    scored_turns,
    score_mean: scored_turns === 0 ? null : score_mean,
    avg_cost_usd: fromPusd(sum_cost_pusd / BigInt(cost_count)),
    recent_turns,
  };
}
