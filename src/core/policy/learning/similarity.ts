// How alike two shapes are (12 §12.2), over numbers instead of names: a workspace holds thousands of them.
import { EFFECT_CLASSES, type Fingerprint, INTENTS } from '#protocol/learning/pattern.ts';

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

/** @param learn false: names not seen yet get numbers of their own that nobody else has, and are not kept */
export function shapeOf(fingerprint: Fingerprint, names: Names, learn: boolean): Shape {
  let unknown = -1;
  const number = (name: string): number => {
    const known = names.get(name);
    if (known !== undefined) return known;
    if (!learn) return unknown--;
    names.set(name, names.size);
    return names.size - 1;
  };
  const numbers = (list: readonly string[]) => list.map(number).sort((a, b) => a - b);
  return {
    intents: bits(INTENTS, fingerprint.intent_tags),
    effects: bits(EFFECT_CLASSES, fingerprint.side_effect_classes),
    token_bucket: fingerprint.estimated_input_tokens_bucket,
    images: fingerprint.has_images,
    extensions: numbers(fingerprint.file_extensions),
    tools: numbers(fingerprint.tool_names),
    buckets: numbers(fingerprint.file_path_buckets),
  };
}

/**
 * 0..1 without the noise of adding fractions, so that a limit means what it says.
 * @param atLeast below it 0 may be answered at once
 */
export function similarity(a: Shape, b: Shape, atLeast = 0): number {
  const cheap =
    0.3 * overlapOfBits(a.intents, b.intents) +
    0.1 * overlapOfBits(a.effects, b.effects) +
    (a.token_bucket === b.token_bucket ? 0.1 : 0) +
    (a.images === b.images ? 0.05 : 0);
  if (cheap + 0.45 < atLeast - 1e-6) return 0;
  const lists =
    0.2 * overlap(a.extensions, b.extensions) + 0.15 * overlap(a.tools, b.tools) + 0.1 * overlap(a.buckets, b.buckets);
  return Math.round((cheap + lists) * 1e9) / 1e9;
}

function bits<T>(all: readonly T[], some: readonly T[]): number {
  return all.reduce((sum, one, i) => (some.includes(one) ? sum | (1 << i) : sum), 0);
}

function overlapOfBits(a: number, b: number): number {
  return a === b ? 1 : count(a & b) / count(a | b);
}
function count(value: number): number {
  let n = 0;
  for (let rest = value; rest !== 0; rest &= rest - 1) n += 1;
  return n;
}

/** Jaccard: shared over all; two empty lists are alike. */
function overlap(a: readonly number[], b: readonly number[]): number {
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
