// Outages as a fold over call outcomes (03 §11, Acceptance 17 and 18).
import { describe, expect, it } from 'vitest';
import {
  type Availability,
  describeAvailability,
  emptyAvailability,
  expire,
  findOutage,
  recordOutcome,
  snapshot,
} from '#core/policy/registry/availability.ts';
import type { ErrorClass } from '#protocol/scalars.ts';
import { GPT, HAIKU, OPUS, REGISTRY_TEXT, registryOf, SONNET } from './world.ts';

const registry = registryOf();

/** One call each, `[seconds, error class or null]`, all of one model. */
function callsOf(calls: readonly (readonly [number, ErrorClass | null])[], model = OPUS, from = emptyAvailability()) {
  let state: Availability = from;
  const transitions: unknown[] = [];
  for (const [seconds, error_class] of calls) {
    const failure = error_class === null ? null : { error_class, error_detail: null };
    const next = recordOutcome(state, { model: registry.get(model)!, failure }, seconds * 1000, registry);
    state = next.state;
    transitions.push(...next.transitions);
  }
  return { state, transitions };
}
const times = (n: number, error: ErrorClass | null, step: number) =>
  Array.from({ length: n }, (_, i) => [i * step, error] as const);
const stateOf = (state: Availability, model: string, seconds: number) =>
  describeAvailability(snapshot(state, seconds * 1000), registry.get(model)!);

describe('a model', () => {
  // Promise 03.17: five counted failures in a row within two minutes take one model out, not its siblings.
  it.each<ErrorClass>(['rate_limit', 'server_error', 'network', 'other'])(
    'is out after five %s failures within 119 s, its siblings are not',
    (error) => {
      const { state, transitions } = callsOf(times(5, error, 119 / 4));
      expect(stateOf(state, OPUS, 119)).toBe('model_unavailable');
      expect(stateOf(state, SONNET, 119)).toBe('healthy');
      expect(transitions).toEqual([
        {
          kind: 'unavailable',
          provider: 'anthropic',
          scope: 'model_specific',
          models: [OPUS],
          trigger_reason: '5_consecutive_failures',
        },
      ]);
    },
  );

  // Promise 03.17: slow failures, broken runs and cancels take nothing out.
  it.each<[string, readonly (readonly [number, ErrorClass | null])[]]>([
    ['five failures over ten minutes', times(5, 'server_error', 150)],
    ['five failures over 121 s', times(5, 'server_error', 121 / 4)],
    ['four failures', times(4, 'server_error', 1)],
    ['four failures, a success and four more', [...times(4, 'server_error', 1), [5, null], ...times(4, 'other', 6)]],
    ['ten cancels', times(10, 'cancelled', 1)],
    ['ten context overflows', times(10, 'context_overflow', 1)],
    ['ten invalid requests', times(10, 'invalid_request', 1)],
  ])('stays healthy after %s', (_, calls) => {
    const { state, transitions } = callsOf(calls);
    expect(stateOf(state, OPUS, calls.at(-1)![0])).toBe('healthy');
    expect(transitions).toEqual([]);
  });

  it('does not lose its run of failures to an outcome that says nothing', () => {
    const { state } = callsOf([...times(4, 'network', 1), [5, 'cancelled'], [6, 'network']]);
    expect(stateOf(state, OPUS, 6)).toBe('model_unavailable');
  });

  it('is out once and no longer, however many calls of running turns still fail', () => {
    const { state, transitions } = callsOf(times(20, 'server_error', 1));
    expect(transitions).toHaveLength(1);
    expect(stateOf(state, OPUS, 304)).toBe('healthy');
  });

  it('is healthy after 300 s with exactly one recovery, and its count starts from zero', () => {
    const { state } = callsOf(times(5, 'server_error', 1));
    expect(stateOf(state, OPUS, 303.999)).toBe('model_unavailable');
    expect(expire(state, 303_999).transitions).toEqual([]);
    expect(stateOf(state, OPUS, 304)).toBe('healthy');
    const healed = expire(state, 310_000);
    expect(healed.transitions).toEqual([
      { kind: 'recovered', provider: 'anthropic', scope: 'model_specific', models: [OPUS], downtime_seconds: 300 },
    ]);
    expect(expire(healed.state, 320_000).transitions).toEqual([]);
    const again = callsOf([[305, 'server_error']], OPUS, healed.state);
    expect(stateOf(again.state, OPUS, 306)).toBe('healthy');
  });

  it('recovers with a success, told at the next query', () => {
    const { state } = callsOf([...times(5, 'server_error', 1), [10, null]]);
    expect(stateOf(state, OPUS, 10)).toBe('healthy');
    expect(expire(state, 20_000).transitions).toMatchObject([{ models: [OPUS], downtime_seconds: 6 }]);
  });
});

describe('a provider', () => {
  // Promise 03.17: one refused key takes the whole provider out.
  it('is out at once after one auth failure, with all its models', () => {
    const { state, transitions } = callsOf([
      [1, 'auth'],
      [2, 'auth'],
    ]);
    for (const model of [OPUS, SONNET, HAIKU]) expect(stateOf(state, model, 2)).toBe('provider_unavailable');
    expect(stateOf(state, GPT, 2)).toBe('healthy');
    expect(transitions).toEqual([
      {
        kind: 'unavailable',
        provider: 'anthropic',
        scope: 'provider_wide',
        models: [OPUS, SONNET, HAIKU],
        trigger_reason: 'auth_error',
      },
    ]);
  });

  it('is healthy again after 300 s, or with the success of any of its models', () => {
    const { state } = callsOf([[1, 'auth']]);
    expect(expire(state, 301_000).transitions).toMatchObject([
      { scope: 'provider_wide', models: [OPUS, SONNET, HAIKU], downtime_seconds: 300 },
    ]);
    const healed = callsOf([[4, null]], HAIKU, state);
    expect(stateOf(healed.state, OPUS, 4)).toBe('healthy');
    expect(expire(healed.state, 5000).transitions).toMatchObject([{ scope: 'provider_wide', downtime_seconds: 3 }]);
  });

  it('and its models are told apart', () => {
    const { state } = callsOf([...times(5, 'server_error', 1), [5, 'auth']]);
    expect(stateOf(state, OPUS, 5)).toBe('provider_unavailable');
    expect(expire(state, 400_000).transitions).toHaveLength(2);
    const sibling = callsOf([[6, null]], SONNET, state);
    expect(stateOf(sibling.state, OPUS, 6)).toBe('model_unavailable');
  });
});

describe('what a failure concerns', () => {
  const TEXT = REGISTRY_TEXT.replace('adapters:', 'adapters:\n  other-key: { type: anthropic }').replace(
    `  ${HAIKU}:`,
    `  ${HAIKU}:\n    adapter: other-key`,
  );
  const two = registryOf(['anthropic', 'other-key'], TEXT);
  const outcomeOf = (id: string, error_class: ErrorClass, error_detail: string | null) => {
    const model = two.get(id) ?? { id, adapter: 'anthropic' };
    const { state, transitions } = recordOutcome(
      emptyAvailability(),
      { model, failure: { error_class, error_detail } },
      0,
      two,
    );
    const out = two.models.filter((one) => describeAvailability(snapshot(state, 0), one) !== 'healthy');
    return { state, out: out.map((one) => one.id), triggers: transitions.map(({ trigger_reason }) => trigger_reason) };
  };

  // Promise 03.24: a failure closes the models of its key, its model, or nothing.
  it.each<[ErrorClass, string | null, string[], string[]]>([
    ['auth', null, [OPUS, SONNET], ['auth_error']],
    ['auth', 'quota_exhausted', [OPUS, SONNET], ['quota_exhausted']],
    ['auth', 'model_denied', [OPUS], ['model_denied']],
    ['invalid_request', 'model_not_found', [OPUS], ['model_not_found']],
    ['auth', 'forbidden', [], []],
    ['auth', 'credit_too_low', [], []],
    ['invalid_request', 'not_found', [], []],
    ['invalid_request', 'content_refused', [], []],
  ])('%s %s: the models of that key, the model, or the request alone', (error_class, detail, out, triggers) => {
    expect(outcomeOf(OPUS, error_class, detail)).toMatchObject({ out, triggers });
  });

  it('is nothing that is kept, where the registry does not list the name', () => {
    for (const [error_class, detail] of [
      ['auth', 'model_denied'],
      ['server_error', null],
    ] as const)
      expect(outcomeOf('anthropic:made-up', error_class, detail).state).toEqual(emptyAvailability());
  });

  it('says for how long, and why', () => {
    const { state } = outcomeOf(OPUS, 'auth', 'model_denied');
    expect(findOutage(snapshot(state, 12_500), two.get(OPUS)!)).toEqual({
      trigger: 'model_denied',
      seconds_since: 12,
      seconds_left: 288,
    });
  });
});

it('no outcome changes a state that was handed out', () => {
  const before = callsOf(times(4, 'server_error', 1)).state;
  const copy = structuredClone(before);
  callsOf(
    [
      [5, 'server_error'],
      [6, 'auth'],
      [7, null],
    ],
    OPUS,
    before,
  );
  expect(before).toEqual(copy);
});
