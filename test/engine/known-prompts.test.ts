// What a call teaches of its prompt, and the class in which a prompt is reserved (14 §2).
import { describe, expect, it } from 'vitest';
import { computeCeiling } from '#core/engine/money/call-price.ts';
import { parseScenario } from '#models/scripted/scenario.ts';
import type { SessionId } from '#protocol/ids.ts';
import { fromPusd } from '#protocol/money.ts';
import { must, startEngine } from '../support/engine.ts';
import { priceTableA } from '../support/prices.ts';
import { scenario } from '../support/scenario.ts';

const always = (respond: object) => scenario([{ match: {}, times: 'inf', respond }]);
const usage = { input_tokens: 1000, output_tokens: 10 };

describe('a call', () => {
  it('teaches what its prompt is counted as where a limit covers it, and nothing where none does', async () => {
    const t = await startEngine({ scenario: always({ text: 'ok', usage }) });
    await t.run(await t.session(), 'go');
    expect([t.engine.prompts.sessions.size, t.engine.prompts.heads.size]).toEqual([0, 0]);
    const capped = await t.session({ max_cost_usd: '5' });
    await t.run(capped, 'go');
    expect(t.engine.prompts.sessions.get(capped.id as SessionId)).toMatchObject([{ tokens: 1000, messages: 1 }]);
    expect(t.engine.prompts.heads.size).toBeGreaterThan(0);
  });

  it.each([
    ['whose counts are impossible', { text: 'ok', usage: { input_tokens: 9_000_000_000_000, output_tokens: 1 } }],
    ['that fails', { error: { error_class: 'auth', error_detail: 'no' } }],
    [
      'that breaks off',
      {
        text: 'a long answer',
        chunk_chars: 1,
        usage,
        error: { error_class: 'network', error_detail: 'gone', after_chunks: 5 },
      },
    ],
  ])('%s teaches nothing', async (_, respond) => {
    const t = await startEngine({ scenario: always(respond) });
    await t.run(await t.session({ max_cost_usd: '5' }), 'go');
    expect(t.events.some(({ type }) => type === 'llm.call_started')).toBe(true);
    expect([t.engine.prompts.sessions.size, t.engine.prompts.heads.size]).toEqual([0, 0]);
  });

  it.each([
    ['another priced model', 'claude-opus-4-7', 0],
    ['a dated name of the same', 'claude-haiku-4-5-20251001', 1],
  ])(
    'that %s answered teaches of the model that was asked only where it is that one',
    async (_, served_model, known) => {
      const t = await startEngine({
        scenario: always({ text: 'ok', usage }),
        provider: (script) => {
          const adapter = script(must(parseScenario(JSON.stringify(always({ text: 'ok', usage })), 'said')));
          return {
            ...adapter,
            stream: (request, signal, deliver) =>
              adapter.stream(request, signal, (event) =>
                deliver(event.type === 'message.complete' ? { ...event, served_model } : event),
              ),
          };
        },
      });
      await t.run(await t.session({ initial_active_model: 'haiku', max_cost_usd: '5' }), 'go');
      expect(t.engine.prompts.sessions.size).toBe(known);
    },
  );
});

describe('a reservation', () => {
  const registry = `
adapters:
  anthropic: { type: anthropic }
  plain: { type: anthropic, overhead_tokens: 1000, options: { prompt_cache: false } }
  always: { type: anthropic, overhead_tokens: 0, options: { cache_ttl: 1h } }
  openai: { type: openai }
  scripted: { type: scripted }
models:
  ${['anthropic', 'plain', 'always', 'openai', 'scripted']
    .map(
      (adapter) =>
        `${adapter}:m: { adapter: ${adapter}, pricing_id: "anthropic:claude-haiku-4-5", capabilities: { max_context_tokens: 100000, max_output_tokens: 4096 } }`,
    )
    .join('\n  ')}
`;
  it.each([
    // 44 bytes of text with their quotes and 56 around them, and what the provider adds; at 1, 1.25 and 2 dollars per million.
    ['anthropic', '5m', (1600 * 1.25) / 1e6],
    ['anthropic', '1h', (1600 * 2) / 1e6],
    ['always', '5m', (100 * 2) / 1e6],
    ['plain', '1h', 1100 / 1e6],
    ['openai', '1h', (1124 * 1.25) / 1e6],
    ['scripted', '1h', 100 / 1e6],
  ] as const)(
    'of an adapter %s with %s is in the class that its provider can bill',
    async (adapter, cache_ttl, usd) => {
      const t = await startEngine({ scenario: always({ text: 'ok' }), registry, prices: priceTableA() });
      const model = t.engine.registry.get(`${adapter}:m`)!;
      const most = await computeCeiling(t.engine, 'sess_1' as SessionId, model, {
        system_prompt: 'x'.repeat(42),
        system_prompt_volatile: null,
        messages: [],
        tools: [],
        output_schema: null,
        max_output_tokens: 100,
        cache_ttl,
      });
      expect(Number(fromPusd(most.price))).toBeCloseTo(usd + 500 / 1e6, 12);
    },
  );
});
