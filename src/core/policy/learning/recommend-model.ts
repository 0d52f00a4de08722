// Recommends the model that did best with turns of this shape (12 §12.4).

import {
  EFFECT_CLASSES,
  type Fingerprint,
  INTENTS,
  type PatternConfig,
  type PatternOutcome,
} from '#protocol/learned-pattern.ts';
import type { ModelEvidence, Recommendation, ScoreShare } from '#protocol/route.ts';
import { compareText } from '#protocol/text/compare-text.ts';

// Similarity of two shapes (12 §12.2), computed over numbers instead of names: a workspace has thousands of shapes.

/** A shape as it is compared. Lists hold numbers of names, ascending. */
export interface Shape {
  /** One bit each. */
  readonly intents: number;
  readonly effects: number;
  readonly token_bucket: number;
  readonly images: boolean;
  readonly extensions: readonly number[];
  readonly tools: readonly number[];
  readonly buckets: readonly number[];
}

/** Numbers of the names seen so far. Shapes are comparable if they use the same table. */
export type Names = Map<string, number>;

/** @param learn false: names not seen yet get unique numbers for this call alone */
export function toShape(fingerprint: Fingerprint, names: Names, learn: boolean): Shape {
  let unknown = -1;
  const numberName = (name: string): number => {
    const known = names.get(name);
    if (known !== undefined) return known;
    if (!learn) return unknown--;
    names.set(name, names.size);
    return names.size - 1;
  };
  const numberNames = (list: readonly string[]) => list.map(numberName).sort((a, b) => a - b);
  return {
    intents: toBits(INTENTS, fingerprint.intent_tags),
    effects: toBits(EFFECT_CLASSES, fingerprint.side_effect_classes),
    token_bucket: fingerprint.estimated_input_tokens_bucket,
    images: fingerprint.has_images,
    extensions: numberNames(fingerprint.file_extensions),
    tools: numberNames(fingerprint.tool_names),
    buckets: numberNames(fingerprint.file_path_buckets),
  };
}

/**
 * 0..1 without the rounding errors of adding fractions, so that a limit holds exactly.
 * @param atLeast below it 0 may be answered at once
 */
export function computeSimilarity(a: Shape, b: Shape, atLeast = 0): number {
  const cheap =
    0.3 * computeBitOverlap(a.intents, b.intents) +
    0.1 * computeBitOverlap(a.effects, b.effects) +
    0.1 * Number(a.token_bucket === b.token_bucket) +
    0.05 * Number(a.images === b.images);
  if (cheap + 0.45 < atLeast - 1e-6) return 0;
  const lists =
    0.2 * computeOverlap(a.extensions, b.extensions) +
    0.15 * computeOverlap(a.tools, b.tools) +
    0.1 * computeOverlap(a.buckets, b.buckets);
  return Math.round((cheap + lists) * 1e9) / 1e9;
}

function toBits<T>(all: readonly T[], some: readonly T[]): number {
  return all.reduce((bits, one, i) => bits | (Number(some.includes(one)) << i), 0);
}

function computeBitOverlap(a: number, b: number): number {
  if (a === b) return 1;
  return countBits(a & b) / countBits(a | b);
}
function countBits(value: number): number {
  let n = 0;
  for (let rest = value; rest !== 0; rest &= rest - 1) n += 1;
  return n;
}

/** Jaccard: shared over all; two empty lists are alike. */
function computeOverlap(a: readonly number[], b: readonly number[]): number {
  if (a.length === 0 && b.length === 0) return 1;
  let shared = 0;
  for (let i = 0, j = 0; i < a.length && j < b.length; ) {
    const difference = a[i]! - b[j]!;
    if (difference === 0) shared += 1;
    if (difference <= 0) i += 1;
    if (difference >= 0) j += 1;
  }
  return shared / (a.length + b.length - shared);
}

/** Number of nearest outcomes that are used. */
const NEAREST = 10;
const MIN_SIMILARITY = 0.75;
const MIN_SUCCESS = 0.5;
const PUSD = 1e12;

export interface Neighbour {
  readonly fingerprint_id: string;
  readonly shape: Shape;
  /** By model and kind of session. */
  readonly outcomes: ReadonlyMap<string, PatternOutcome>;
}
interface Near {
  readonly similarity: number;
  readonly fingerprint_id: string;
  readonly outcome: PatternOutcome;
}

/** Which outcomes advise. */
interface Advisers {
  /** A worker's turn is advised by turns of workers, a top-level turn by top-level ones. */
  readonly is_worker: boolean;
  /** Whether the registry of today has the model: outcomes of another are passed over. */
  readonly isKnown: (model: string) => boolean;
}

/** Null without neighbours. */
export function recommendModel(
  shape: Shape,
  patterns: Iterable<Neighbour>,
  config: PatternConfig,
  advisers: Advisers,
): Recommendation | null {
  const { cost_weight, min_confidence, min_sample_size } = config;
  const cluster = findNearest(shape, patterns, advisers);
  if (cluster.length === 0) return null;
  const models = groupByModel(cluster);
  const candidates = models.filter(({ quality }) => quality !== null);
  const costs = candidates.flatMap(({ avg_cost_usd }) => avg_cost_usd ?? []);
  const [cheapest, costliest] = [Math.min(...costs), Math.max(...costs)];
  const scored = models
    .map(({ quality, ...model }) => {
      if (quality === null) return { ...model, score: 0, success_score_mean: null };
      const cost = model.avg_cost_usd ?? costliest;
      const efficiency = costliest > cheapest ? (costliest - cost) / (costliest - cheapest) : 0;
      const score = (1 - cost_weight) * quality + cost_weight * efficiency;
      return { ...model, score, success_score_mean: quality };
    })
    .sort((a, b) => b.score - a.score || compareText(a.model, b.model));
  const [top, second] = scored.filter(({ success_score_mean }) => success_score_mean !== null);
  const confidence = computeConfidence(top?.score ?? 0, second?.score ?? null);
  const good =
    top !== undefined &&
    confidence >= min_confidence &&
    top.sample_size >= min_sample_size &&
    top.success_score_mean! >= MIN_SUCCESS;
  return {
    chosen_model: good ? top.model : null,
    confidence,
    sample_size: top?.sample_size ?? 0,
    k_cluster_size: cluster.length,
    alternatives: scored.map(({ model, score, sample_size }) => ({ model, score, sample_size })),
    config,
    evidence: new Map(scored.map(({ model, evidence }) => [model, evidence])),
  };
}

function computeConfidence(top: number, second: number | null): number {
  if (top <= 0) return 0;
  if (second === null) return 1;
  return (top - second) / top;
}

/** The first K by similarity, then id, then model. The list is kept short while it is built, since thousands may be similar. */
function findNearest(shape: Shape, patterns: Iterable<Neighbour>, { is_worker, isKnown }: Advisers): Near[] {
  const found: Near[] = [];
  for (const { fingerprint_id, shape: other, outcomes } of patterns) {
    const similar = computeSimilarity(shape, other, MIN_SIMILARITY);
    if (similar < MIN_SIMILARITY) continue;
    for (const outcome of outcomes.values()) {
      if (outcome.is_worker !== is_worker) continue;
      const near = { similarity: similar, fingerprint_id, outcome };
      const last = found[NEAREST - 1];
      if ((last !== undefined && compareNear(last, near) <= 0) || !isKnown(outcome.model)) continue;
      const place = found.findIndex((one) => compareNear(near, one) < 0);
      found.splice(place === -1 ? found.length : place, 0, near);
      found.length = Math.min(found.length, NEAREST);
    }
  }
  return found;
}

function compareNear(a: Near, b: Near): number {
  if (a.similarity !== b.similarity) return b.similarity - a.similarity;
  const byId = compareText(a.fingerprint_id, b.fingerprint_id);
  if (byId !== 0) return byId;
  return compareText(a.outcome.model, b.outcome.model);
}

function groupByModel(cluster: readonly Near[]) {
  const models = new Map<string, Near[]>();
  for (const near of cluster) models.set(near.outcome.model, [...(models.get(near.outcome.model) ?? []), near]);
  return [...models].map(([model, rows]) => {
    const sumOutcomes = (read: (outcome: PatternOutcome) => number) =>
      rows.reduce((total, row) => total + read(row.outcome), 0);
    const sample_size = sumOutcomes((o) => o.sample_size);
    const costed = sumOutcomes((o) => o.cost_count);
    const evidence: ModelEvidence = {
      turns: sample_size,
      scored: joinShares(rows.map(({ outcome: o }) => ({ count: o.success_score_count, mean: o.success_score_mean }))),
      verified: joinShares(rows.map(({ outcome: o }) => ({ count: o.verified_count, mean: o.verified_mean }))),
    };
    return {
      model,
      sample_size,
      quality: evidence.scored.count === 0 ? null : evidence.scored.mean,
      /** Null where no turn shows what the work costs. */
      avg_cost_usd: costed === 0 ? null : sumOutcomes((o) => Number(o.sum_cost_pusd)) / PUSD / costed,
      evidence,
    };
  });
}

function joinShares(shares: readonly ScoreShare[]): ScoreShare {
  const count = shares.reduce((sum, share) => sum + share.count, 0);
  if (count === 0) return { count, mean: 0 };
  return { count, mean: shares.reduce((sum, share) => sum + share.mean * share.count, 0) / count };
}
