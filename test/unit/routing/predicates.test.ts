// Rule conditions (03 §6.3, Acceptance 21).
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { decideRoute } from '#core/policy/routing/chain.ts';
import { mergePolicies, parsePolicyFile } from '#core/policy/routing/policy-file.ts';
import { collectFacts, compilePredicate, fileScope, MATCH_LIMIT } from '#core/policy/routing/rules.ts';
import { toPusd } from '#protocol/money.ts';
import type { TurnContext } from '#protocol/route.ts';
import { envOf, registryOf, turn } from './world.ts';

function holds(when: unknown, over: Partial<TurnContext> = {}): boolean {
  const errors: string[] = [];
  const predicate = compilePredicate(when, 'when', errors);
  expect(errors).toEqual([]);
  return predicate(collectFacts(turn(over)));
}

describe('a predicate', () => {
  it.each<[unknown, Partial<TurnContext>, boolean]>([
    [{ message_matches: 'b.r' }, { user_message_text: 'foo bar' }, true],
    [{ message_matches: 'BAR' }, { user_message_text: 'foo bar' }, false],
    [{ message_matches: '(?i)BAR' }, { user_message_text: 'foo bar' }, true],
    [{ message_matches: '^bar' }, { user_message_text: 'foo bar' }, false],
    [{ message_matches: 'z' }, { user_message_text: `${'a'.repeat(MATCH_LIMIT - 1)}z` }, true],
    [{ message_matches: 'z' }, { user_message_text: `${'a'.repeat(MATCH_LIMIT)}z` }, false],
    [{ message_contains_any: ['x', 'ReFactor'] }, { user_message_text: 'please REFACTOR' }, true],
    [{ message_contains_any: ['Z'] }, { user_message_text: `${'a'.repeat(MATCH_LIMIT - 1)}z` }, true],
    [{ message_contains_any: ['z'] }, { user_message_text: `${'a'.repeat(MATCH_LIMIT)}z` }, false],
    [{ message_contains_any: ['a.c'] }, { user_message_text: 'abc' }, false],
    [{ estimated_input_tokens_gt: 100 }, { estimated_input_tokens: 100 }, false],
    [{ estimated_input_tokens_gt: 100 }, { estimated_input_tokens: 101 }, true],
    [{ estimated_input_tokens_lt: 100 }, { estimated_input_tokens: 100 }, false],
    [{ estimated_input_tokens_lt: 100 }, { estimated_input_tokens: 99 }, true],
    [{ has_images: true }, { message_has_images: true }, true],
    [{ has_images: true }, { message_has_images: false, has_images: true }, false],
    [{ has_images: false }, { message_has_images: false, has_images: true }, true],
    [{ cost_today_exceeds_usd: 0.3 }, { cost_today_pusd: toPusd('0.3') }, false],
    [{ cost_today_exceeds_usd: 0.3 }, { cost_today_pusd: toPusd('0.300000000001') }, true],
    [{ cost_today_exceeds_usd: 5 }, { cost_today_pusd: toPusd('4.999999999999') }, false],
    [{ cost_today_exceeds_usd: 1e-13 }, { cost_today_pusd: toPusd('0') }, false],
    [{ cost_today_exceeds_usd: 1e-13 }, { cost_today_pusd: toPusd('0.000000000001') }, true],
    [{ cost_today_exceeds_usd: -1e-13 }, { cost_today_pusd: toPusd('0') }, true],
    [{ cost_today_exceeds_usd: -0 }, { cost_today_pusd: toPusd('0') }, false],
    [{ cost_today_exceeds_usd: Number.MAX_VALUE }, { cost_today_pusd: toPusd('9007199254740993') }, false],
    [{ any_of: [{ has_images: true }, { message_matches: 'hello' }] }, {}, true],
    [{ any_of: [{ has_images: true }, { message_matches: 'x' }] }, {}, false],
    [{ all_of: [{ has_images: false }, { message_matches: 'hello' }] }, {}, true],
    [{ all_of: [{ has_images: true }, { message_matches: 'hello' }] }, {}, false],
    [{ not: { has_images: true } }, {}, true],
    [{ has_images: false, message_matches: 'hello' }, {}, true],
    [{ has_images: false, message_matches: 'x' }, {}, false],
    [{ not: { has_images: false, message_matches: 'x' } }, {}, true],
  ])('%j with %o is %s', (when, over, expected) => {
    expect(holds(when, over)).toBe(expected);
  });

  it.each<[unknown, string]>([
    [null, 'when: must be a mapping'],
    [{}, 'when: must be a mapping'],
    [[], 'when: must be a mapping'],
    [{ foo: 1, bar: 2 }, 'when: unknown predicate key(s) [foo, bar]'],
    [{ toString: 1 }, 'when: unknown predicate key(s) [toString]'],
    [{ message_matches: '(' }, 'when.message_matches: Invalid regular expression'],
    [{ message_matches: 1 }, 'when.message_matches: must be'],
    [{ message_contains_any: [] }, 'when.message_contains_any: must be'],
    [{ message_contains_any: [1] }, 'when.message_contains_any: must be'],
    [{ estimated_input_tokens_gt: true }, 'when.estimated_input_tokens_gt: must be an integer'],
    [{ estimated_input_tokens_lt: 1.5 }, 'when.estimated_input_tokens_lt: must be an integer'],
    [{ has_images: 1 }, 'when.has_images: must be true or false'],
    [{ cost_today_exceeds_usd: '1' }, 'when.cost_today_exceeds_usd: must be a number'],
    [{ cost_today_exceeds_usd: Number.POSITIVE_INFINITY }, 'when.cost_today_exceeds_usd: must be a number'],
    [{ any_of: [] }, 'when.any_of: must be a list'],
    [{ all_of: { has_images: true } }, 'when.all_of: must be a list'],
    [{ any_of: [{ has_images: true }, { not: { foo: 1 } }] }, 'when.any_of[1].not: unknown predicate key(s) [foo]'],
  ])('%j is refused with its path', (when, start) => {
    const errors: string[] = [];
    compilePredicate(when, 'when', errors);
    expect(errors).toHaveLength(1);
    expect(errors[0]).toContain(start);
  });

  it('with all the words a file may hold is asked at once, however long the message', () => {
    const text = 'aaab'.repeat(500_000);
    const worst = [
      Array.from({ length: 3333 }, (_, i) => String(i).padStart(3, 'x').slice(0, 3)),
      [`b${'a'.repeat(9999)}`],
      Array.from({ length: 5 }, (_, i) => `${i}${'a'.repeat(1999)}`),
    ];
    for (const words of worst) {
      const from = process.cpuUsage();
      expect(holds({ not: { message_contains_any: words } }, { user_message_text: text })).toBe(true);
      expect(process.cpuUsage(from).user / 1000).toBeLessThan(200);
    }
  });

  it('is refused when it nests without end', () => {
    let when: unknown = { has_images: true };
    for (let i = 0; i < 40; i++) when = { not: when };
    const errors: string[] = [];
    compilePredicate(when, 'when', errors);
    expect(errors).toHaveLength(1);
    expect(errors[0]).toContain('nested deeper than 32');
  });
});

const leaf = fc.oneof(
  fc.record({ message_matches: fc.constantFrom('a', '^h', '(?i)L+', '[\\s\\S]*', 'x{2,}') }),
  fc.record({ message_contains_any: fc.array(fc.string({ minLength: 1 }), { minLength: 1, maxLength: 3 }) }),
  fc.record({ estimated_input_tokens_gt: fc.integer({ min: -5, max: 20_000 }) }),
  fc.record({ estimated_input_tokens_lt: fc.integer({ min: -5, max: 20_000 }) }),
  fc.record({ has_images: fc.boolean() }),
  fc.record({ cost_today_exceeds_usd: fc.double({ noNaN: true, noDefaultInfinity: true }) }),
);
const { when } = fc.letrec<{ when: unknown }>((tie) => ({
  when: fc.oneof(
    { depthSize: 'small', withCrossShrink: true },
    leaf,
    fc.record({ any_of: fc.array(tie('when'), { minLength: 1, maxLength: 4 }) }),
    fc.record({ all_of: fc.array(tie('when'), { minLength: 1, maxLength: 4 }) }),
    fc.record({ not: tie('when') }),
  ),
}));

/** The meaning of a condition, written a second time. */
function meaning(condition: unknown, ctx: TurnContext): boolean {
  const [key, operand] = Object.entries(condition as Record<string, unknown>)[0]!;
  if (key === 'any_of') return (operand as unknown[]).filter((part) => meaning(part, ctx)).length > 0;
  if (key === 'all_of') return (operand as unknown[]).filter((part) => !meaning(part, ctx)).length === 0;
  if (key === 'not') return !meaning(operand, ctx);
  return holds(condition, ctx);
}

describe('the expressions of a file', () => {
  const SOURCES = [
    'a',
    '^h',
    'H',
    '(?i)L+',
    '[\\s\\S]*',
    'x{2,}',
    '(?s)a.b',
    'a.b',
    '(?m)^b',
    '^b',
    'b|^$',
    '(?ims)^B.$',
    '\\Qa',
  ];

  // Promise 03.21: the expressions of a file mean together what each means by itself.
  it('mean together what each means by itself', () => {
    const text = fc.string({
      unit: fc.constantFrom('a', 'b', 'h', 'l', 'x', 'L', 'Q', '\n', 'é', '😀'),
      maxLength: 12,
    });
    fc.assert(
      fc.property(fc.shuffledSubarray(SOURCES, { minLength: 1 }), text, (sources, user_message_text) => {
        const scope = fileScope();
        const errors: string[] = [];
        const all = sources.map((source) => compilePredicate({ message_matches: source }, 'when', errors, scope));
        const facts = collectFacts(turn({ user_message_text }));
        expect(errors).toEqual([]);
        expect(all.map((matches) => matches(facts))).toEqual(
          sources.map((source) => holds({ message_matches: source }, { user_message_text })),
        );
      }),
      { numRuns: 300 },
    );
  });

  // Promise 03.21: they are matched once for all the rules of a decision.
  it('are matched once for all the rules of a decision', () => {
    const { patterns, ...scope } = fileScope();
    let matched = 0;
    const counting = {
      add: patterns.add,
      match: (text: string) => {
        matched += 1;
        return patterns.match(text);
      },
    };
    const all = ['a', 'b', 'l+'].map((source) =>
      compilePredicate({ message_matches: source }, 'when', [], { ...scope, patterns: counting }),
    );
    const facts = collectFacts(turn({ user_message_text: 'hello' }));
    expect(all.map((matches) => matches(facts))).toEqual([false, false, true]);
    expect(matched).toBe(1);
  });
});

describe('random nestings of predicates', () => {
  const context = fc.record({
    user_message_text: fc.string({ unit: 'binary', maxLength: 60 }),
    estimated_input_tokens: fc.integer({ min: 1, max: 20_000 }),
    message_has_images: fc.boolean(),
    has_images: fc.boolean(),
    cost_today_pusd: fc.constantFrom('0', '0.000000000001', '12.5', '9007199254740993.000000000001').map(toPusd),
  });

  // Promise 03.21: any nesting of conditions gives an answer.
  it('never throw and mean what their parts mean', () => {
    fc.assert(
      fc.property(when, context, (condition, over) => {
        expect(holds(condition, over)).toBe(meaning(condition, turn(over)));
      }),
      { numRuns: 300 },
    );
  });

  // Promise 03.21: the same turn and policy give the same model and chain.
  it('decide the same route and chain for the same context and policy', () => {
    const registry = registryOf();
    const rules = fc.array(fc.record({ when, use: fc.constantFrom('opus', 'haiku', 'gpt', 'llama') }), {
      maxLength: 6,
    });
    fc.assert(
      fc.property(rules, context, (list, over) => {
        const route = () => {
          const parsed = parsePolicyFile(JSON.stringify({ rules: list }), 'global', registry);
          if (!parsed.ok) throw new Error(parsed.error.join('\n'));
          const policies = mergePolicies({ workspace: null, global: parsed.value, configDefault: null }, registry);
          return decideRoute(turn(over), { ...envOf({ registry }), policies });
        };
        expect(route()).toEqual(route());
      }),
      { numRuns: 200 },
    );
  });
});
