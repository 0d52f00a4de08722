// A routing decision as its event stores it: short, and read back with all seven entries (02 §9.3).
import { expect, test } from 'vitest';
import { packPayload, unpackPayload } from '#core/policy/journal/stored-payload.ts';
import { createNotEvaluated, withoutCandidate } from '#core/policy/routing/candidate.ts';
import { type PolicyEvaluation, SLOTS, type SlotName } from '#protocol/route.ts';

const PLACE = { session_id: 'sess_01KR3ZH48KGGGGGGGGGGGGGGGG', turn_id: null };

const skip = (policy: SlotName, reason: string) => withoutCandidate(policy, 'not_applicable', { reason });
const choose = (policy: SlotName): PolicyEvaluation => ({
  ...withoutCandidate(policy, 'deferred', { reason: 'a reason', candidate_model: 'a:b' }),
  verdict: 'chose',
});
const NOT_DELEGATED = skip('delegate_request', 'not in delegation re-entry');
const STICKY: readonly PolicyEvaluation[] = [
  skip('per_message_override', 'no @model in message'),
  choose('manual_sticky'),
  createNotEvaluated('rule', 'manual_sticky'),
  createNotEvaluated('pattern', 'manual_sticky'),
  NOT_DELEGATED,
  createNotEvaluated('workspace_default', 'manual_sticky'),
  createNotEvaluated('global_default', 'manual_sticky'),
];
const WORKER: readonly PolicyEvaluation[] = [
  choose('per_message_override'),
  createNotEvaluated('manual_sticky', 'per_message_override'),
  createNotEvaluated('rule', 'per_message_override'),
  skip('pattern', 'workers are not advised'),
  createNotEvaluated('delegate_request', 'per_message_override'),
  createNotEvaluated('workspace_default', 'per_message_override'),
  createNotEvaluated('global_default', 'per_message_override'),
];
const REFUSED = SLOTS.map((policy) => skip(policy, policy === 'delegate_request' ? NOT_DELEGATED.reason : 'nothing'));

function pack(chain: readonly PolicyEvaluation[]): string {
  const winner_index = chain.findIndex((entry) => entry.verdict === 'chose');
  const payload = { chosen_model: winner_index < 0 ? '' : 'a:b', winner_index, elapsed_ms: 1, facts: null, chain };
  return packPayload('route.decided', payload, PLACE);
}
const readChain = (stored: string | { readonly chain: readonly object[] }) =>
  unpackPayload(
    'route.decided',
    typeof stored === 'string' ? JSON.parse(stored) : { winner_index: 1, ...stored },
    PLACE,
  ).chain;

test.each([
  ['a model of the session', STICKY],
  ['a worker', WORKER],
  ['a refusal', REFUSED],
  ['the last slot', [...REFUSED.slice(0, 6), choose('global_default')]],
  ['another reason behind the winner', [...STICKY.slice(0, 4), skip('delegate_request', 'other'), ...STICKY.slice(5)]],
])('the chain of %s is read as it was', (_, chain) => {
  expect(readChain(pack(chain))).toStrictEqual(chain);
});

test('what nearly every turn says is not stored', () => {
  expect(JSON.parse(pack(STICKY)).chain).toEqual([
    {},
    { verdict: 'chose', candidate_model: 'a:b', reason: 'a reason' },
    { policy: 'delegate_request' },
  ]);
});

test('chains of earlier versions are read: whole ones, and those that end with their winner', () => {
  const named = STICKY.map(({ policy: _, ...entry }) => entry);
  expect(readChain({ chain: named })).toStrictEqual(STICKY);
  const cut = readChain({ chain: named.slice(0, 2) });
  expect(cut).toStrictEqual(
    STICKY.map((entry) => (entry === NOT_DELEGATED ? createNotEvaluated('delegate_request', 'manual_sticky') : entry)),
  );
});
