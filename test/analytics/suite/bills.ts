// Calls with rounds, fees and surcharges in the ledger and its reports (08 §7, §12, 07 §4.2).
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { fromPusd } from '#protocol/money.ts';
import { buildPlainCost, NO_TOKENS, PLAIN_BILL, type Round } from '#protocol/usage.ts';
import { tableOf } from '../../support/prices.ts';
import { HAIKU, OPUS, type OpenWorld, type World } from '../world.ts';

const MAY = Date.parse('2026-05-20T10:30:00Z');
const DAY = 86_400_000;
const table = (version: string, more: object = {}) =>
  tableOf(
    JSON.stringify({
      pricing_version: version,
      models: {
        [OPUS]: { input_per_mtok_usd: '10', output_per_mtok_usd: '50', ...more },
        [HAIKU]: {
          input_per_mtok_usd: '1',
          output_per_mtok_usd: '5',
          long_context: [{ above_prompt_tokens: 100_000, input_per_mtok_usd: '2', output_per_mtok_usd: '10' }],
          ...more,
        },
      },
    }),
  );

function round(model: string, input_tokens: number, over: Partial<Round> = {}): Round {
  const { usage_estimated: _, ...none } = NO_TOKENS;
  return { ...none, kind: 'message', model, input_tokens, cost_usd: '0', priced: true, billed: true, ...over };
}

/** A plain call, three searches, a discount, two rounds below a step with an advice, and a call of several agents. */
async function fill(world: World): Promise<void> {
  const session = await world.planner();
  const breakdown = (tokens: string, fees: string, surcharge: string) => ({
    cost_breakdown: { tokens, fees, surcharge },
  });
  const calls = [
    { tokens: { input_tokens: 1000 }, over: { cost_usd: '0.001' } },
    {
      tokens: { input_tokens: 2000 },
      over: {
        cost_usd: '0.032',
        ...breakdown('0.002', '0.03', '0'),
        fees: [
          { tool: 'web_search', uses: 3, cost_usd: '0.03' },
          { tool: 'code_execution', uses: 1, cost_usd: null },
        ],
        fees_unpriced: true,
      },
    },
    {
      tokens: { input_tokens: 4000 },
      over: { cost_usd: '0.002', ...breakdown('0.004', '0', '-0.002'), service_tier: 'flex' },
    },
    {
      tokens: { input_tokens: 125_000 },
      over: {
        cost_usd: '0.17',
        rounds: [
          round(HAIKU, 60_000, { cost_usd: '0.06' }),
          round(OPUS, 5000, { kind: 'advisor_message', cost_usd: '0.05' }),
          round(HAIKU, 60_000, { cost_usd: '0.06' }),
          round(OPUS, 900, { billed: false }),
        ],
      },
    },
    {
      tokens: { input_tokens: 10 },
      over: { cost_usd: '0.00001', rounds_unknown: true, surcharge_unknown: true, speed: 'turbo' },
    },
  ];
  await world.record(
    calls.map(({ tokens, over }, at) => ({
      session,
      at: MAY + at * DAY,
      model: HAIKU,
      tokens: { ...NO_TOKENS, ...tokens },
      over,
    })),
  );
}

export function billsSuite(openWorld: OpenWorld): void {
  describe('calls that are billed for more than one sampling at the standard rates', () => {
    it('are a row and their rounds in the ledger; a plain call is neither', async () => {
      const world = await openWorld();
      await fill(world);
      const rows = await world.stored('SELECT fees_pusd, surcharge_pusd, bill_json FROM ledger_calls ORDER BY ts_ms');
      expect(rows[0]).toEqual({ fees_pusd: null, surcharge_pusd: null, bill_json: null });
      expect(rows[1]).toMatchObject({ fees_pusd: 30_000_000_000n, surcharge_pusd: 0n });
      expect(rows[2]).toEqual({ fees_pusd: 0n, surcharge_pusd: -2_000_000_000n, bill_json: '{"service_tier":"flex"}' });
      expect(
        await world.stored(
          'SELECT seq, kind, model, input_tokens, cost_pusd, billed FROM llm_call_rounds ORDER BY seq',
        ),
      ).toEqual([
        { seq: 0n, kind: 'message', model: HAIKU, input_tokens: 60_000n, cost_pusd: 60_000_000_000n, billed: 1n },
        { seq: 1n, kind: 'advisor_message', model: OPUS, input_tokens: 5000n, cost_pusd: 50_000_000_000n, billed: 1n },
        { seq: 2n, kind: 'message', model: HAIKU, input_tokens: 60_000n, cost_pusd: 60_000_000_000n, billed: 1n },
        { seq: 3n, kind: 'message', model: OPUS, input_tokens: 900n, cost_pusd: 0n, billed: 0n },
      ]);
      expect(await world.count('rollup_bill_hour')).toBe(4);
      expect(await world.differences()).toEqual([]);
      await world.rebuildRollups();
      expect(await world.differences()).toEqual([]);
    });

    it('are counted like unpriced calls, by reason, for whole days, hours and parts of an hour', async () => {
      const world = await openWorld();
      await fill(world);
      const counts = {
        call_count: 5,
        unpriced_call_count: 2,
        fees_unpriced_call_count: 1,
        surcharge_unknown_call_count: 1,
        rounds_unknown_call_count: 1,
        cost_usd: '0.20501',
      };
      expect(await world.none()).toMatchObject(counts);
      const ragged = `from=2026-05-20T10:15:00Z&to=2026-05-24T10:45:00Z`;
      expect(await world.none(`&${ragged}`)).toMatchObject(counts);
      expect(await world.rows('group_by=session')).toMatchObject([counts]);
      expect(await world.rows('group_by=parent_session')).toMatchObject([counts]);
      const part = await world.none('&from=2026-05-21T10:29:00Z&to=2026-05-21T10:31:00Z');
      expect(part).toMatchObject({ call_count: 1, fees_unpriced_call_count: 1, surcharge_unknown_call_count: 0 });
    });

    it('are split by the kind of cost, alone and with another dimension, and the kinds sum to the whole', async () => {
      const world = await openWorld();
      await fill(world);
      const kinds = [
        {
          cost_kind: 'tokens',
          cost_usd: '0.17701',
          call_count: 5,
          input_tokens: 132_010,
          rounds_unknown_call_count: 1,
        },
        { cost_kind: 'fees', cost_usd: '0.03', call_count: 0, fees_unpriced_call_count: 1, input_tokens: 0 },
        { cost_kind: 'surcharge', cost_usd: '-0.002', call_count: 0, surcharge_unknown_call_count: 1 },
      ];
      expect(await world.rows('group_by=cost_kind')).toMatchObject(kinds);
      expect(await world.walk('group_by=cost_kind', 1)).toMatchObject(kinds);
      const ragged = 'group_by=cost_kind&from=2026-05-20T10:15:00Z&to=2026-05-24T10:45:00Z';
      expect(await world.rows(ragged)).toMatchObject(kinds);
      expect(await world.rows('group_by=day,cost_kind')).toMatchObject([
        { bucket: '2026-05-20', cost_kind: 'tokens', cost_usd: '0.001' },
        { bucket: '2026-05-21', cost_kind: 'fees', cost_usd: '0.03' },
        { bucket: '2026-05-21', cost_kind: 'tokens', cost_usd: '0.002' },
        { bucket: '2026-05-22', cost_kind: 'tokens', cost_usd: '0.004' },
        { bucket: '2026-05-22', cost_kind: 'surcharge', cost_usd: '-0.002' },
        { bucket: '2026-05-23', cost_kind: 'tokens', cost_usd: '0.17' },
        { bucket: '2026-05-24', cost_kind: 'tokens', cost_usd: '0.00001' },
        { bucket: '2026-05-24', cost_kind: 'surcharge', cost_usd: '0' },
      ]);
    });

    it('are priced again by their rounds, fees and terms; what a version does not know keeps its stamped cost', async () => {
      const world = await openWorld();
      await fill(world);
      const whole = table('whole', {
        fees: { web_search: '20', code_execution: '1' },
        multipliers: { service_tier: { flex: '0.25' }, speed: { turbo: '3' } },
      });
      // 0.001; 0.002 + 0.06 + 0.001; 0.004 × 0.25; 0.06 + 0.05 + 0.06; 0.00001 × 3.
      expect(await world.none('', whole)).toMatchObject({
        cost_usd: '0.23503',
        stamped_cost_usd: '0.20501',
        missing_call_count: 0,
        unpriced_call_count: 0,
        rounds_unknown_call_count: 1,
      });
      expect(await world.rows('group_by=cost_kind', whole)).toMatchObject([
        { cost_kind: 'tokens', cost_usd: '0.17701', stamped_cost_usd: '0.17701' },
        { cost_kind: 'fees', cost_usd: '0.061', stamped_cost_usd: '0.03' },
        { cost_kind: 'surcharge', cost_usd: '-0.00298', stamped_cost_usd: '-0.002' },
      ]);
      // Without fees and multipliers three calls keep what they cost.
      expect(await world.none('', table('bare'))).toMatchObject({
        cost_usd: '0.20501',
        missing_call_count: 3,
        fees_unpriced_call_count: 1,
        surcharge_unknown_call_count: 1,
      });
    });

    it('save by their rounds too: rounds of another model keep their price', async () => {
      const world = await openWorld();
      await fill(world);
      const from = Date.parse('2026-05-23T00:00:00Z');
      const filter = {
        session: null,
        parent_session: null,
        model: null,
        provider: null,
        workspace_hash: null,
        delegation_tier: null,
        worker_name: null,
        door: null,
        caller: null,
        owner: null,
        include_workers: null,
        without_simulated: false,
      };
      const asked = { window: { from, to: from + DAY }, filter, baseline: OPUS };
      expect(await world.analytics.savings(asked, table('bare'))).toMatchObject({
        actual_repriced_usd: '0.17',
        baseline_repriced_usd: '1.25',
        rows_missing_from_price_table: 0,
      });
    });

    // Promise 22.6: random bills sum up to the digit, by kind of cost and in whole, on SQLite and on PostgreSQL.
    it('sum to the digit by kind of cost, whatever they are made of', async () => {
      const world = await openWorld();
      const session = await world.planner();
      const picodollars = fc.bigInt({ min: 0n, max: 9_000_000_000_000_000n });
      const some = fc.array(
        fc.record({
          tokens: picodollars,
          fees: fc.option(picodollars, { nil: 0n }),
          off: fc.integer({ min: -50, max: 300 }),
          rounds: fc.nat(4),
          at: fc.nat(40 * 24),
        }),
        { minLength: 150, maxLength: 150 },
      );
      const bills = fc.sample(some, 1)[0]!.map((one) => ({ ...one, surcharge: (one.tokens / 100n) * BigInt(one.off) }));
      await world.record(
        bills.map(({ tokens, fees, surcharge, rounds, at }) => ({
          session,
          at: MAY - 20 * DAY + at * 3_599_999,
          model: HAIKU,
          over: {
            cost_usd: fromPusd(tokens + fees + surcharge),
            cost_breakdown: { tokens: fromPusd(tokens), fees: fromPusd(fees), surcharge: fromPusd(surcharge) },
            fees: [{ tool: 'web_search', uses: 1, cost_usd: fromPusd(fees) }].filter(() => fees > 0n),
            service_tier: [null, 'flex'][Number(surcharge !== 0n)]!,
            rounds: Array.from({ length: rounds }, () => round(HAIKU, 7)),
          },
        })),
      );
      const sum = (part: 'tokens' | 'fees' | 'surcharge') => fromPusd(bills.reduce((all, one) => all + one[part], 0n));
      const whole = fromPusd(bills.reduce((all, one) => all + one.tokens + one.fees + one.surcharge, 0n));
      expect(await world.none()).toMatchObject({ cost_usd: whole, call_count: 150, unpriced_call_count: 0 });
      const kinds = await world.rows('group_by=cost_kind');
      expect(Object.fromEntries(kinds.map((row) => [row.cost_kind, row.cost_usd]))).toEqual({
        tokens: sum('tokens'),
        fees: sum('fees'),
        surcharge: sum('surcharge'),
      });
      expect(await world.differences()).toEqual([]);
    });

    it('leave the events of a plain call without a word more', async () => {
      const world = await openWorld();
      await fill(world);
      const [plain] = await world.stored('SELECT payload_json FROM event_rows WHERE payload_json LIKE \'%"0.001"%\'');
      const names = [...Object.keys(PLAIN_BILL), ...Object.keys(buildPlainCost('0')).slice(1)];
      for (const name of names) expect(String(plain!.payload_json)).not.toContain(`"${name}"`);
    });

    it('has the ledger by day and model: rounds count for their own model, fees for the asked one', async () => {
      const world = await openWorld();
      await fill(world);
      const window = { from: 0, to: MAY + 9 * DAY };
      const days = await world.analytics.ledgerDays({ window, provider: 'anthropic' });
      const row = (day: number, model: string) =>
        days.find((one) => one.day === new Date(MAY + day * DAY).toISOString().slice(0, 10) && one.model === model);
      expect(days.map(({ day, model }) => [day, model])).toEqual([
        ['2026-05-20', HAIKU],
        ['2026-05-21', HAIKU],
        ['2026-05-22', HAIKU],
        ['2026-05-23', HAIKU],
        ['2026-05-23', OPUS],
        ['2026-05-24', HAIKU],
      ]);
      expect(row(0, HAIKU)).toMatchObject({ call_count: 1, input_tokens: 1000, tokens_usd: '0.001', fees_usd: '0' });
      expect(row(1, HAIKU)).toMatchObject({ tokens_usd: '0.002', fees_usd: '0.03', fees_unpriced_call_count: 1 });
      expect(row(2, HAIKU)).toMatchObject({ tokens_usd: '0.002', surcharge_unknown_call_count: 0 });
      expect(row(3, HAIKU)).toMatchObject({ call_count: 1, input_tokens: 120_000, tokens_usd: '0.12' });
      expect(row(3, OPUS)).toMatchObject({ call_count: 0, input_tokens: 5000, tokens_usd: '0.05' });
      expect(row(4, HAIKU)).toMatchObject({ rounds_unknown_call_count: 1, surcharge_unknown_call_count: 1 });
      expect(await world.analytics.ledgerDays({ window, provider: 'openai' })).toEqual([]);
      expect(
        await world.analytics.ledgerDays({ window: { from: MAY + DAY, to: MAY + 2 * DAY }, provider: null }),
      ).toEqual([row(1, HAIKU)]);
    });
  });
}
