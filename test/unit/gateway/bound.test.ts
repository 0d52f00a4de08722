// The bound of an answer, in a field that its adapter knows (19 §2.5).
import { expect, it } from 'vitest';
import { buildSentBody } from '#core/engine/gateway/relay-call.ts';
import { findOutputBound } from '#core/policy/gateway/largest-bill.ts';
import { readRequestFacts } from '#core/policy/gateway/request-facts.ts';
import { must } from '../../support/engine.ts';

it('does not count in a field that the adapter is said not to know, beside which the known one is set', () => {
  const most = 8192;
  const model = { capabilities: { max_output_tokens: most } };
  const plain = { type: 'openai', options: {} };
  const old = { type: 'openai', options: { max_tokens_field: 'max_tokens' } } as const;
  const read = (field: string) => {
    const bytes = Buffer.from(JSON.stringify({ model: 'gpt-5', [field]: 7, messages: [] }));
    return { bytes, facts: must(readRequestFacts('chat', bytes)) };
  };
  const [completion, tokens] = [read('max_completion_tokens'), read('max_tokens')];
  expect([completion, tokens].map(({ facts }) => findOutputBound(facts, model, plain))).toEqual([7, 7]);
  expect([completion, tokens].map(({ facts }) => findOutputBound(facts, model, old))).toEqual([most, 7]);
  const lowered = ({ bytes, facts }: typeof tokens) => {
    const { pieces } = buildSentBody(bytes, facts, { model: null, output_tokens: 5 }, old);
    return JSON.parse(Buffer.concat(pieces).toString());
  };
  expect(lowered(completion)).toEqual({ model: 'gpt-5', max_completion_tokens: 7, max_tokens: 5, messages: [] });
  expect(lowered(tokens)).toEqual({ model: 'gpt-5', max_tokens: 5, messages: [] });
});
