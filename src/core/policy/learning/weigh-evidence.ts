// Whether what is known of a model suffices to use it in place of the one that a turn would get (12 §12.4).
import type { Recommendation, ScoreShare } from '#protocol/route.ts';

/** Of the two-sided 90 % interval. */
const Z = 1.6448536269514722;
/** How far the lower bound of the pass rate may lie below the other model's. */
const MARGIN = 0.05;

interface Comparison {
  /** A model reference. */
  readonly candidate: string;
  /** The model reference that the turn would get otherwise; null = none. */
  readonly other: string | null;
  /** Whether the candidate costs less than the other, or may. */
  readonly is_cheaper: boolean;
}

export interface WeighedEvidence {
  readonly suffices: boolean;
  /** One sentence for people, without a period. */
  readonly statement: string;
}

/** Lower bound of a pass rate by the interval of Wilson, 0..1; 0 without scores. */
export function computePassRateBound(share: ScoreShare): number {
  return computePassRateInterval(share, Z).low;
}

/** The interval of Wilson, 0..1; all of it without scores. @param z of the normal distribution: 1.96 for 95 % */
export function computePassRateInterval(
  { count, mean }: ScoreShare,
  z: number,
): { readonly low: number; readonly high: number } {
  if (count === 0) return { low: 0, high: 1 };
  const z2 = z * z;
  const center = mean + z2 / (2 * count);
  const spread = z * Math.sqrt((mean * (1 - mean)) / count + z2 / (4 * count * count));
  const whole = 1 + z2 / count;
  return { low: Math.max(0, (center - spread) / whole), high: Math.min(1, (center + spread) / whole) };
}

/** A model that is not cheaper needs no more evidence than its recommendation; another model without scores counts as 1. */
export function weighEvidence(found: Recommendation, { candidate, other, is_cheaper }: Comparison): WeighedEvidence {
  const known = found.evidence.get(candidate);
  const share = pickShare(found, candidate);
  const bound = computePassRateBound(share);
  const expected = other === null ? NO_SCORES : pickShare(found, other);
  const expectedRate = expected.count === 0 ? 1 : expected.mean;
  const isEnough = share.count >= found.config.min_sample_size && bound >= expectedRate - MARGIN;
  const kind = found.config.evidence === 'any' ? 'scored' : 'checked or rated by a person';
  let statement = `${known?.turns ?? 0} turns like this one on ${candidate}, ${share.count} of them ${kind}`;
  if (share.count > 0) statement += `: pass rate ${formatShare(share.mean)}, at least ${formatShare(bound)}`;
  if (other !== null && other !== candidate) statement += `; ${other} ${describeOther(expected)}`;
  return { suffices: !is_cheaper || isEnough, statement };
}

const NO_SCORES: ScoreShare = { count: 0, mean: 0 };

function pickShare({ evidence, config }: Recommendation, model: string): ScoreShare {
  const known = evidence.get(model);
  if (known === undefined) return NO_SCORES;
  if (config.evidence === 'any') return known.scored;
  return known.verified;
}

function describeOther({ count, mean }: ScoreShare): string {
  if (count === 0) return 'has no such score and counts as 100 %';
  return `has ${formatShare(mean)} over ${count}`;
}

/** Rounded down, so that 100 % means all. */
function formatShare(share: number): string {
  return `${Math.floor(share * 100 + 1e-9)} %`;
}
