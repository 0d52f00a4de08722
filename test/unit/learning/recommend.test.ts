// Scoring of what earlier turns suggest, with the chapter's worked numbers (12 §12.4).
import { describe, expect, it } from 'vitest';
import { type Neighbour, recommendModel, toShape } from '#core/policy/learning/recommend-model.ts';
import { defaultConfig } from '#protocol/config.ts';
import type { Fingerprint, PatternOutcome } from '#protocol/learned-pattern.ts';
import { toPusd } from '#protocol/money.ts';

const SONNET = 'anthropic:sonnet';
const HAIKU = 'anthropic:haiku';
const config = defaultConfig('').pattern;
const SHAPE: Fingerprint = {
  file_extensions: [],
  file_path_buckets: [],
  tool_names: [],
  side_effect_classes: [],
  has_images: false,
  has_tool_calls_in_history: false,
  estimated_input_tokens_bucket: 0,
  intent_tags: ['debug'],
  workspace_hash: 'a',
};
const names = new Map();
const shape = toShape(SHAPE, names, true);

/** `each` = dollars a turn. */
function outcome(model: string, quality: number | null, each: string, samples = 6): PatternOutcome {
  return {
    model,
    is_worker: false,
    sample_size: samples,
    success_score_mean: quality ?? 0,
    success_score_count: quality === null ? 0 : samples,
    verified_mean: 0,
    verified_count: 0,
    cost_count: samples,
    sum_cost_pusd: (toPusd(each) * BigInt(samples)) as PatternOutcome['sum_cost_pusd'],
    sum_latency_ms: 0,
    last_updated_at: 0,
  };
}
function pattern(
  outcomes: readonly PatternOutcome[],
  over: Partial<Fingerprint> = {},
  fingerprint_id = '1',
): Neighbour {
  return {
    fingerprint_id,
    shape: toShape({ ...SHAPE, ...over }, names, true),
    outcomes: new Map(outcomes.map((one) => [one.model, one])),
  };
}
const ask = (patterns: readonly Neighbour[], over: Partial<typeof config> = {}, known = (_: string) => true) =>
  recommendModel(shape, patterns, { ...config, ...over }, { is_worker: false, isKnown: known });

describe('a recommendation', () => {
  const worked = [pattern([outcome(SONNET, 1, '0.010'), outcome(HAIKU, 0.87, '0.001')])];

  // Promise 12.3: the worked example, quality before cost.
  it('is sonnet at 0.950 before haiku at 0.8765, with confidence 0.077', () => {
    const found = ask(worked)!;
    expect(found.chosen_model).toBe(SONNET);
    expect(found.alternatives.map(({ model }) => model)).toEqual([SONNET, HAIKU]);
    expect(found.alternatives[0]!.score).toBeCloseTo(0.95, 9);
    expect(found.alternatives[1]!.score).toBeCloseTo(0.8765, 9);
    expect(found.confidence).toBeCloseTo(0.0774, 4);
    expect(found).toMatchObject({ sample_size: 6, k_cluster_size: 2 });
  });

  // Promise 12.3: only cost counts.
  it('is the cheapest with certainty when only cost counts', () => {
    expect(ask(worked, { cost_weight: 1 })).toMatchObject({ chosen_model: HAIKU, confidence: 1 });
  });

  it('is null when the best two are too close', () => {
    expect(ask(worked, { min_confidence: 0.08 })).toMatchObject({ chosen_model: null, sample_size: 6 });
  });

  // Promise 12.4: equal costs: pure quality.
  it('is pure quality where costs are equal', () => {
    const found = ask([pattern([outcome(SONNET, 0.8, '0.01'), outcome(HAIKU, 0.9, '0.01')])])!;
    expect(found.chosen_model).toBe(HAIKU);
    expect(found.alternatives.map(({ score }) => score)).toEqual([expect.closeTo(0.855, 9), expect.closeTo(0.76, 9)]);
  });

  // Promise 12.4: no scores, a bad score, the sample size.
  it.each([
    { of: 'no scored turn', quality: null, samples: 9, is: { chosen_model: null, confidence: 0 } },
    { of: 'a bad score', quality: 0.3, samples: 9, is: { chosen_model: null, confidence: 1 } },
    { of: 'a good score of five turns', quality: 0.9, samples: 5, is: { chosen_model: SONNET, confidence: 1 } },
    { of: 'a good score of four turns', quality: 0.9, samples: 4, is: { chosen_model: null, confidence: 1 } },
  ])('with one model and $of is $is', ({ quality, samples, is }) => {
    expect(ask([pattern([outcome(SONNET, quality, '0.01', samples)])])).toMatchObject(is);
  });

  it('never takes a model without scores for a bad one: it is shown and no candidate', () => {
    const found = ask([pattern([outcome(SONNET, 0.6, '0.01'), outcome(HAIKU, null, '0.001')])])!;
    expect(found).toMatchObject({ chosen_model: SONNET, confidence: 1 });
    expect(found.alternatives[1]).toEqual({ model: HAIKU, score: 0, sample_size: 6 });
  });

  it('looks at alike shapes only, and there is none without neighbours', () => {
    expect(ask([pattern([outcome(SONNET, 1, '0.01')], { intent_tags: ['refactor'] })])).toBeNull();
    expect(ask([])).toBeNull();
  });

  it('weighs the means of several shapes by their scored turns', () => {
    const near = pattern([outcome(SONNET, 1, '0.01', 1)], { file_extensions: ['.ts'] }, '2');
    const found = ask([pattern([outcome(SONNET, 0.6, '0.01', 3)]), near], { min_sample_size: 4, cost_weight: 0 })!;
    expect(found.alternatives).toEqual([{ model: SONNET, score: expect.closeTo(0.7, 9), sample_size: 4 }]);
  });

  it('takes the ten nearest outcomes, of equals those of the older shape', () => {
    const old = Array.from({ length: 10 }, (_, n) => pattern([outcome(SONNET, 0.9, '0.01', 1)], {}, `a${n}`));
    const young = Array.from({ length: 10 }, (_, n) => pattern([outcome(HAIKU, 1, '0.01', 1)], {}, `b${n}`));
    expect(ask([...young, ...old])).toMatchObject({ chosen_model: SONNET, sample_size: 10, k_cluster_size: 10 });
    const nearer = pattern([outcome(HAIKU, 1, '0.01', 9)], {}, 'c');
    const farther = old.map((one, n) => ({
      ...one,
      ...pattern([...one.outcomes.values()], { has_images: true }, `a${n}`),
    }));
    expect(ask([...farther, nearer])!.alternatives.map(({ model }) => model)).toContain(HAIKU);
  });

  it('passes over models that the registry no longer has', () => {
    expect(ask(worked, {}, (model) => model !== SONNET)).toMatchObject({ chosen_model: HAIKU, k_cluster_size: 1 });
    expect(ask(worked, {}, () => false)).toBeNull();
  });
});
