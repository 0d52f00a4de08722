// What a call that was paid for leaves behind, whatever goes wrong around its storing: its cost, one outcome, no blame.
import { describe, expect, it } from 'vitest';
import { silentLogger } from '#core/ports/logger.ts';
import { toPusd } from '#protocol/money.ts';
import { type EngineOptions, startEngine, type TestEngine } from '../support/engine.ts';
import { at, emits, failOnce, writes } from '../support/moments.ts';
import { call, planner, scenario } from '../support/scenario.ts';

const usage = { input_tokens: 1000, output_tokens: 100 };
/** On opus: 15 and 75 USD a million. */
const COST = '0.0225';
const always = (respond: object) => scenario([{ match: {}, times: 'inf', respond }]);
const payloads = (t: TestEngine, type: string) =>
  t.events.filter((e) => e.type === type).map((e) => e.payload as Record<string, unknown>);
/** The amounts of these tests are set against the size of a request, most of which is tools. */
const small = {
  turn: { max_llm_calls: 50, max_output_tokens: 100, timeout_seconds: null },
  tools: { disabled: ['memory_*', 'skill_load'] },
} satisfies EngineOptions['config'];

describe('an answer that cannot be stored', () => {
  it('is recorded with its exact cost and a sentence in place of its content, and its turn fails', async () => {
    const t = await startEngine({ scenario: always({ text: 'poison', usage }) });
    const session = await t.session();
    failOnce(
      t,
      (batch) =>
        JSON.stringify(batch.writes ?? []).includes('poison') &&
        writes(batch, 'message.insert') &&
        emits(batch, 'llm.call_completed'),
      Number.POSITIVE_INFINITY,
    );
    const turn = await t.run(session, 'go');
    expect(turn).toMatchObject({ status: 'failed', error_code: 'internal_error', total_cost_usd: COST });
    expect(payloads(t, 'llm.call_completed')).toMatchObject([{ cost_usd: COST, error_class: 'other' }]);
    expect(payloads(t, 'llm.call_failed')).toEqual([]);
    expect(await t.engine.store.spend.sumTree(session.id)).toBe(toPusd(COST));
    const last = (await t.engine.store.messages.history(session.id)).at(-1)!;
    expect(last).toMatchObject({
      role: 'assistant',
      content: [{ type: 'text', text: 'The answer could not be stored.' }],
      metadata: { status: 'error' },
    });
  });

  it('counts against a limit', async () => {
    const t = await startEngine({ scenario: always({ text: 'lost', usage }), config: small });
    const session = await t.session({ initial_active_model: 'haiku', max_cost_usd: '0.008', on_reached: 'stop' });
    failOnce(t, (batch) => emits(batch, 'llm.call_completed'));
    await t.run(session, 'go');
    expect((await t.engine.store.sessions.view(session.id))!.budget).toMatchObject({ spent_usd: '0.0015' });
    expect(t.engine.budget.reserved.size).toBe(0);
  });
});

describe('a cost that cannot be stored', () => {
  it('stays reserved, so that a limit goes on counting it', async () => {
    const t = await startEngine({ scenario: always({ text: 'lost', usage }), config: small });
    const session = await t.session({ initial_active_model: 'haiku', max_cost_usd: '0.008', on_reached: 'stop' });
    failOnce(t, (batch) => emits(batch, 'llm.call_completed'), Number.POSITIVE_INFINITY);
    for (let i = 0; i < 10; i++) if ((await t.run(session, 'go').catch(() => null))?.status !== 'failed') break;
    const { budget } = (await t.engine.store.sessions.view(session.id))!;
    expect(budget).toMatchObject({ spent_usd: '0' });
    expect(t.engine.budget.reserved.get(`session:${session.id}`)).toBeGreaterThan(0n);
    expect(t.adapter.requests.length).toBeLessThan(10);
  });
});

describe('impossible counts', () => {
  const lies = [9_000_000_000_000_000, 24_000_000_000_000];
  it.each(lies)('of %d prompt tokens are estimated with a warning, and every later call is booked', async (lie) => {
    const warnings: unknown[] = [];
    const log = { ...silentLogger, warn: (...said: unknown[]) => void warnings.push(said) };
    const t = await startEngine({
      scenario: always({ text: 'fine', usage: { input_tokens: lie, output_tokens: 100 } }),
      log,
    });
    const session = await t.session();
    for (let i = 0; i < 3; i++) expect(await t.run(session, 'go')).toMatchObject({ status: 'completed' });
    expect(warnings).toHaveLength(3);
    for (const payload of payloads(t, 'llm.call_completed')) {
      expect(payload).toMatchObject({ output_tokens: 100, usage_estimated: true });
      expect(payload.input_tokens).toBeLessThan(10_000);
    }
    const spent = await t.engine.store.spend.sumTree(session.id);
    expect(spent).toBeGreaterThan(toPusd('0.0225'));
    expect(spent).toBeLessThan(toPusd('1'));
  });

  it('of an answer are estimated beside a prompt that is believed, also where the call breaks off', async () => {
    const t = await startEngine({
      scenario: always({
        text: 'x'.repeat(400),
        usage: { input_tokens: 1000, output_tokens: 9_000_000_000_000_000, reasoning_tokens: 9_000_000_000_000_000 },
        error: { error_class: 'other', after_chunks: 5 },
      }),
    });
    expect(await t.run(await t.session(), 'go')).toMatchObject({ status: 'failed', error_code: 'provider_error' });
    const [call] = payloads(t, 'llm.call_completed');
    expect(call).toMatchObject({ usage_estimated: true, reasoning_tokens: 0 });
    expect(call!.output_tokens).toBeGreaterThan(0);
    expect(call!.output_tokens).toBeLessThan(200);
  });
});

describe('a fault of the journal', () => {
  it('says nothing about a provider, however often it comes', async () => {
    const t = await startEngine({ scenario: always({ text: 'fine', usage }) });
    const session = await t.session();
    // The whole answer, and what stands in for it.
    failOnce(t, (batch) => emits(batch, 'llm.call_completed'), 14);
    for (let i = 0; i < 7; i++) expect(await t.run(session, 'go')).toMatchObject({ status: 'failed' });
    expect(t.events.filter((e) => e.type === 'routing.provider_unavailable')).toEqual([]);
    expect(await t.run(session, 'go')).toMatchObject({ status: 'completed', output: 'fine' });
  });

  it('does not make one failure of a provider two, and loses no outage', async () => {
    const t = await startEngine({ scenario: always({ error: { error_class: 'other', after_chunks: 0 } }) });
    const session = await t.session();
    for (let i = 0; i < 3; i++) await t.run(session, 'go');
    failOnce(t, (batch) => emits(batch, 'llm.call_failed'));
    await t.run(session, 'go');
    expect(payloads(t, 'routing.provider_unavailable')).toEqual([]);
    failOnce(t, (batch) => emits(batch, 'llm.call_failed'));
    await t.run(session, 'go');
    expect(payloads(t, 'routing.provider_unavailable')).toHaveLength(1);
  });
});

describe('a read fault between an announcement and its call', () => {
  it('gives the call its outcome before the turn ends', async () => {
    const t = await startEngine({
      scenario: scenario(planner({ tool_calls: [call('list_files', {})], usage }, { text: 'never' })),
    });
    const session = await t.session();
    const { sessions } = t.engine.store;
    const { limit } = sessions;
    let calls = 0;
    at(
      t,
      (e) => e.type === 'llm.call_started' && ++calls === 2,
      () => {
        Object.assign(sessions, {
          limit: async () => {
            Object.assign(sessions, { limit });
            throw new Error('disk gone');
          },
        });
      },
    );
    expect(await t.run(session, 'go')).toMatchObject({ status: 'failed', error_code: 'internal_error' });
    const about = t.typesOf(session.id).filter((type) => type.startsWith('llm.') || type === 'turn.failed');
    expect(about).toEqual([
      'llm.call_started',
      'llm.call_completed',
      'llm.call_started',
      'llm.call_failed',
      'turn.failed',
    ]);
    expect(t.adapter.requests).toHaveLength(1);
  });
});

describe('a budget warning that cannot be stored', () => {
  it('fails no turn, and comes after the next settlement', async () => {
    const t = await startEngine({
      scenario: always({ text: 'ok', usage }),
      config: { ...small, budgets: { warn_ratio: 0.5 } },
    });
    const session = await t.session({ initial_active_model: 'haiku', max_cost_usd: '0.009', on_reached: 'stop' });
    failOnce(t, (batch) => emits(batch, 'budget.warning'));
    const warned: number[] = [];
    for (let i = 0; i < 5; i++) {
      expect(await t.run(session, 'go')).toMatchObject({ status: 'completed', output: 'ok' });
      warned.push(payloads(t, 'budget.warning').length);
    }
    expect(warned).toEqual([0, 0, 0, 1, 1]);
  });
});
