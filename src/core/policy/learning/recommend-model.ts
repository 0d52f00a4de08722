// Which model did best with turns of this shape (12 §12.4).
import { EFFECT_CLASSES, type Fingerprint, INTENTS, type PatternOutcome } from '#protocol/learned-pattern.ts';
import type { Recommendation } from '#protocol/route.ts';
import type { PatternConfig } from '../routing/policy-file.ts';

// How alike two shapes are (12 §12.2), over numbers instead of names: a workspace holds thousands of them.

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

/** Names seen so far, each with its number; shapes are comparable when they were made with the same one. */
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
    (a.token_bucket === b.token_bucket ? 0.1 : 0) +
    (a.images === b.images ? 0.05 : 0);
  if (cheap + 0.45 < atLeast - 1e-6) return 0;
  const lists =
    0.2 * computeOverlap(a.extensions, b.extensions) +
    0.15 * computeOverlap(a.tools, b.tools) +
    0.1 * computeOverlap(a.buckets, b.buckets);
  return Math.round((cheap + lists) * 1e9) / 1e9;
}

function toBits<T>(all: readonly T[], some: readonly T[]): number {
  return all.reduce((sum, one, i) => (some.includes(one) ? sum | (1 << i) : sum), 0);
}

function computeBitOverlap(a: number, b: number): number {
  return a === b ? 1 : countBits(a & b) / countBits(a | b);
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

/** Nearest outcomes that are looked at. */
const NEAREST = 10;
const MIN_SIMILARITY = 0.75;
const MIN_SUCCESS = 0.5;
const PUSD = 1e12;

export interface Neighbour {
  readonly fingerprint_id: string;
  readonly shape: Shape;
  /** By model. */
  readonly outcomes: ReadonlyMap<string, PatternOutcome>;
}
interface Near {
  readonly similarity: number;
  readonly fingerprint_id: string;
  readonly outcome: PatternOutcome;
}

/**
 * Null without neighbours.
 * @param known whether the registry of today has the model: outcomes of another are passed over
 */
export function recommendModel(
  shape: Shape,
  patterns: Iterable<Neighbour>,
  { cost_weight, min_confidence, min_sample_size }: PatternConfig,
  known: (model: string) => boolean,
): Recommendation | null {
  const cluster = findNearest(shape, patterns, known);
  if (cluster.length === 0) return null;
  const models = groupByModel(cluster);
  const candidates = models.filter(({ quality }) => quality !== null);
  const costs = candidates.map(({ avg_cost_usd }) => avg_cost_usd);
  const [cheapest, costliest] = [Math.min(...costs), Math.max(...costs)];
  const scored = models
    .map(({ quality, ...model }) => {
      const efficiency = costliest > cheapest ? (costliest - model.avg_cost_usd) / (costliest - cheapest) : 0;
      const score = quality === null ? 0 : (1 - cost_weight) * quality + cost_weight * efficiency;
      return { ...model, score, success_score_mean: quality };
    })
    .sort((a, b) => b.score - a.score || (a.model < b.model ? -1 : 1));
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
  };
}

function computeConfidence(top: number, second: number | null): number {
  if (top <= 0) return 0;
  if (second === null) return 1;
  return (top - second) / top;
}

/** The first K by similarity, then id, then model; kept short while it is made, since thousands may be alike. */
function findNearest(shape: Shape, patterns: Iterable<Neighbour>, known: (model: string) => boolean): Near[] {
  const found: Near[] = [];
  for (const { fingerprint_id, shape: other, outcomes } of patterns) {
    const similar = computeSimilarity(shape, other, MIN_SIMILARITY);
    if (similar < MIN_SIMILARITY) continue;
    for (const outcome of outcomes.values()) {
      const near = { similarity: similar, fingerprint_id, outcome };
      const last = found[NEAREST - 1];
      if ((last !== undefined && compareNear(last, near) <= 0) || !known(outcome.model)) continue;
      const place = found.findIndex((one) => compareNear(near, one) < 0);
      found.splice(place === -1 ? found.length : place, 0, near);
      found.length = Math.min(found.length, NEAREST);
    }
  }
  return found;
}

function compareNear(a: Near, b: Near): number {
  if (a.similarity !== b.similarity) return b.similarity - a.similarity;
  if (a.fingerprint_id !== b.fingerprint_id) return a.fingerprint_id < b.fingerprint_id ? -1 : 1;
  return a.outcome.model < b.outcome.model ? -1 : 1;
}

function groupByModel(cluster: readonly Near[]) {
  const models = new Map<string, Near[]>();
  for (const near of cluster) models.set(near.outcome.model, [...(models.get(near.outcome.model) ?? []), near]);
  return [...models].map(([model, rows]) => {
    const sumOutcomes = (read: (outcome: PatternOutcome) => number) =>
      rows.reduce((total, row) => total + read(row.outcome), 0);
    const sample_size = sumOutcomes((o) => o.sample_size);
    const scored = sumOutcomes((o) => o.success_score_count);
    return {
      model,
      sample_size,
      quality: scored === 0 ? null : sumOutcomes((o) => o.success_score_mean * o.success_score_count) / scored,
      avg_cost_usd: sumOutcomes((o) => Number(o.sum_cost_pusd)) / PUSD / sample_size,
    };
  });
}
