// When a cheaper model is as good, and what it saves (07 §7.3).
import { describe, expect, it } from 'vitest';
import { compareModels, viewComparison } from '#core/policy/learning/compare-models.ts';
import type { ShapeOnModels } from '#protocol/learned-pattern.ts';
import { fromPusd, type Pusd } from '#protocol/money.ts';

type Outcome = ShapeOnModels['outcomes'][number];
const outcome = (model: string, over: Partial<Outcome> = {}): Outcome => ({
  model,
  sample_size: 30,
  cost_count: over.sample_size ?? 30,
  sum_cost_pusd: (model === 'haiku' ? 30n : 90n) as Pusd,
  score_mean: 1,
  scored_turns: 30,
  recent_turns: 14,
  ...over,
});
const shape = (...outcomes: Outcome[]): ShapeOnModels => ({
  fingerprint_id: '01ARZ3NDEKTSV4RRFFQ69G5FAV',
  intent_tags: ['debug'],
  file_extensions: [],
  tool_names: [],
  estimated_input_tokens_bucket: 0,
  has_images: false,
  is_worker: false,
  outcomes,
});
const TIERS: Readonly<Record<string, 'fast' | 'balanced' | null>> = { haiku: 'fast', sonnet: 'balanced', local: null };
const tierOf = (model: string) => TIERS[model];
const compare = (...shapes: ShapeOnModels[]) =>
  compareModels(shapes, tierOf).map((compared) => viewComparison(compared, tierOf));
const verdict = (cheap: Partial<Outcome>, expensive: Partial<Outcome>) =>
  compare(shape(outcome('haiku', cheap), outcome('sonnet', expensive)))[0]!.verdict;
const scored = (scored_turns: number, score_mean = 1) => ({ scored_turns, score_mean });

describe('a cheaper model', () => {
  // Promise 07.18: as good from 21 clean turns of each, and the other verdicts.
  it('is as good from about twenty clean turns of each, and not before', () => {
    expect([5, 20, 21, 1000].map((n) => verdict(scored(n), scored(n)))).toEqual([
      'undecided',
      'undecided',
      'as_good',
      'as_good',
    ]);
  });

  // Promise 07.18: too few, surely worse, better.
  it.each([
    ['undecided', 'without a score', scored(0), scored(1000)],
    ['undecided', 'with a few failures more', scored(40, 0.9), scored(40, 0.97)],
    ['as_good', 'a little worse over many turns', scored(300, 0.93), scored(300, 0.95)],
    ['worse', 'clearly worse', scored(40, 0.5), scored(40, 0.95)],
    ['worse', 'a little but surely worse', scored(100_000, 0.95), scored(100_000, 0.98)],
    ['as_good', 'better', scored(40, 0.95), scored(40, 0.5)],
  ] as const)('gets the verdict %s: %s', (expected, _, cheap, expensive) => {
    expect(verdict(cheap, expensive)).toBe(expected);
  });
});

describe('what it saves', () => {
  // Promise 07.19: exact to the picodollar.
  it('is exact to the picodollar, rounded down, for the turns of seven days on the more expensive model', () => {
    const [row] = compare(
      shape(
        outcome('haiku', { sample_size: 3, sum_cost_pusd: 10n as Pusd }),
        outcome('sonnet', { sample_size: 7, sum_cost_pusd: 9_007_199_254_740_993_000n as Pusd, recent_turns: 21 }),
      ),
    );
    const saved = 9_007_199_254_740_993_000n * 3n - 10n * 7n;
    expect(row).toMatchObject({
      saving_per_turn_usd: fromPusd(saved / 21n),
      dearer: { model: 'sonnet', tier: 'balanced', turns: 7, recent_turns: 21 },
      cheaper: { model: 'haiku', tier: 'fast', avg_cost_usd: '0.000000000003' },
      difference: 0,
    });
    expect(row!.saving_per_day_usd).toBe(fromPusd((saved * 21n) / (21n * 7n)));
  });

  // Promise 07.19: of models that are gone nothing is told.
  it('is told only of models that the registry has, that cost less, and where the more expensive one ran of late', () => {
    expect(compare(shape(outcome('gone'), outcome('sonnet')), shape(outcome('haiku'), outcome('gone')))).toEqual([]);
    expect(compare(shape(outcome('haiku'), outcome('sonnet', { recent_turns: 0 })))).toEqual([]);
    expect(compare(shape(outcome('sonnet'), outcome('local')))).toEqual([]);
    expect(compare(shape(outcome('haiku'), outcome('local')))).toMatchObject([
      { dearer: { model: 'local', tier: null }, cheaper: { model: 'haiku' } },
    ]);
  });

  it('is one row a more expensive model: the cheaper one that is as good before one that is cheaper still, most first', () => {
    const cheapest = outcome('haiku', scored(2));
    const middle = outcome('local', { sum_cost_pusd: 60n as Pusd });
    const small = { ...shape(outcome('haiku'), outcome('sonnet', { recent_turns: 1 })), fingerprint_id: 'small' };
    const rows = compare(small, shape(cheapest, middle, outcome('sonnet')));
    expect(rows.map(({ dearer, cheaper, verdict }) => [dearer.model, cheaper.model, verdict])).toEqual([
      ['sonnet', 'local', 'as_good'],
      ['sonnet', 'haiku', 'as_good'],
      ['local', 'haiku', 'undecided'],
    ]);
  });
});
