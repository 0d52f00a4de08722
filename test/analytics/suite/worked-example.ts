// The worked example of the analytics chapter: eight calls under two price versions, every figure as it must be shown.
import { describe, expect, it } from 'vitest';
import type { CostRow } from '#protocol/analytics.ts';
import { NO_FILTER } from '#store/report/cost-sql.ts';
import { priceTableA, priceTableB } from '../../support/prices.ts';
import { type Call, HAIKU, NOW, OPUS, type OpenWorld, SONNET, type World } from '../world.ts';

const A = priceTableA();
const B = priceTableB();

interface Example {
  readonly world: World;
  readonly calls: readonly Call[];
  readonly names: ReadonlyMap<string, string>;
}

export function workedExampleSuite(openWorld: OpenWorld): void {
  async function prepare(): Promise<Example> {
    const world = await openWorld();
    const [p1, p2, p3] = [await world.planner(), await world.planner(), await world.planner()];
    const w1 = await world.worker(p1, { tier: 'fast', by: OPUS });
    const w2 = await world.worker(p1, { tier: 'balanced', by: OPUS });
    const w3 = await world.worker(p2, { tier: 'fast', by: SONNET });
    const call = (
      time: string,
      model: string,
      [input, output, cached, written, hour = 0]: [number, number, number, number, number?],
      rest: Pick<Call, 'session' | 'latency_ms'> & Partial<Call>,
    ): Call => ({
      at: Date.parse(`2026-${time}Z`),
      model,
      prices: A,
      tokens: {
        input_tokens: input,
        output_tokens: output,
        cached_input_tokens: cached,
        cache_creation_input_tokens: written,
        cache_creation_1h_input_tokens: hour,
      },
      ...rest,
    });
    const calls = [
      call('05-31T23:40:00', OPUS, [12000, 900, 0, 8000], { session: p1, latency_ms: 4000 }),
      call('05-31T23:41:00', HAIKU, [2500, 400, 0, 0], { session: w1, latency_ms: 900 }),
      call('05-31T23:42:00', HAIKU, [600, 250, 2300, 0], { session: w1, latency_ms: 700 }),
      call('05-31T23:59:59.999', SONNET, [4000, 1200, 0, 1500], { session: w2, latency_ms: 2000 }),
      call('06-01T00:00:00', OPUS, [700, 350, 20000, 0], { session: p1, latency_ms: 3000, prices: B }),
      call('06-01T00:10:00', SONNET, [9000, 800, 0, 3000, 1000], { session: p2, latency_ms: 2500, prices: B }),
      call('06-01T00:11:00', 'openai:gpt-5-mini', [7000, 333, 1024, 0], { session: w3, latency_ms: 800, prices: B }),
      call('06-01T01:30:00', 'openai:gpt-5', [1000, 77, 0, 0], { session: p3, latency_ms: 1200, prices: B }),
    ];
    const names = new Map(
      Object.entries({ P1: p1, P2: p2, P3: p3, W1: w1, W2: w2, W3: w3 }).map(([n, s]) => [s.id, n]),
    );
    return { world, calls, names };
  }

  const WINDOW = { from: 0, to: NOW };

  async function expectTable({ world, names }: Example): Promise<void> {
    const costs = async (query: string, key: keyof CostRow, pricer: typeof A | null = null) =>
      (await world.rows(query, pricer)).map((row) => [names.get(String(row[key])) ?? row[key], row.cost_usd]);
    const savings = (baseline: string) => world.analytics.savings({ window: WINDOW, filter: NO_FILTER, baseline }, B);

    expect(await world.none()).toMatchObject({
      cost_usd: '0.5189166',
      call_count: 8,
      input_tokens: 36800,
      output_tokens: 4310,
      cached_input_tokens: 23324,
      cache_creation_input_tokens: 12500,
      cache_creation_1h_input_tokens: 1000,
      avg_latency_ms: 1887.5,
      unpriced_call_count: 0,
    });
    const parents = await world.rows('group_by=parent_session');
    expect(
      parents.map((r) => [
        names.get(r.parent_session_id!),
        r.cost_usd,
        r.planner_cost_usd,
        r.worker_cost_usd,
        r.call_count,
        r.worker_call_count,
      ]),
    ).toEqual([
      ['P1', '0.461955', '0.41975', '0.042205', 5, 3],
      ['P2', '0.0549416', '0.0525', '0.0024416', 2, 1],
      ['P3', '0.00202', '0.00202', '0', 1, 0],
    ]);
    expect(await costs('group_by=session', 'session_id')).toEqual([
      ['P1', '0.41975'],
      ['P2', '0.0525'],
      ['W2', '0.035625'],
      ['W1', '0.00658'],
      ['W3', '0.0024416'],
      ['P3', '0.00202'],
    ]);
    const folded = await world.rows('group_by=session&include_workers=true');
    expect(folded.map((r) => [names.get(r.session_id!), r.cost_usd, r.call_count])).toEqual([
      ['P1', '0.461955', 5],
      ['P2', '0.0549416', 2],
      ['P3', '0.00202', 1],
    ]);
    expect(folded[0]?.workers?.map((w) => ({ ...w, worker_session_id: names.get(w.worker_session_id) }))).toEqual([
      {
        worker_session_id: 'W2',
        model: SONNET,
        cost_usd: '0.035625',
        input_tokens: 4000,
        output_tokens: 1200,
        call_count: 1,
      },
      {
        worker_session_id: 'W1',
        model: HAIKU,
        cost_usd: '0.00658',
        input_tokens: 3100,
        output_tokens: 650,
        call_count: 2,
      },
    ]);
    expect(folded[2]?.workers).toEqual([]);
    const planners = await world.cost('group_by=session&include_workers=false');
    expect(planners.totals.cost_usd).toBe('0.47427');
    expect(await costs('group_by=session&include_workers=false', 'session_id')).toEqual([
      ['P1', '0.41975'],
      ['P2', '0.0525'],
      ['P3', '0.00202'],
    ]);
    expect((await world.rows('group_by=is_worker')).map((r) => [r.is_worker, r.cost_usd, r.call_count])).toEqual([
      ['planner', '0.47427', 4],
      ['worker', '0.0446466', 4],
    ]);
    const models = await world.rows('group_by=model');
    expect(models.map((r) => [r.model, r.provider, r.cost_usd])).toEqual([
      [OPUS, 'anthropic', '0.41975'],
      [SONNET, 'anthropic', '0.088125'],
      [HAIKU, 'anthropic', '0.00658'],
      ['openai:gpt-5-mini', 'openai', '0.0024416'],
      ['openai:gpt-5', 'openai', '0.00202'],
    ]);
    expect(models[0]).toMatchObject({
      input_tokens: 12700,
      cached_input_tokens: 20000,
      cache_creation_input_tokens: 8000,
      hit_rate: 0.4914,
      cache_write_share: 0.19656,
    });
    expect((await world.rows('group_by=provider')).map((r) => [r.provider, r.cost_usd, r.avg_latency_ms])).toEqual([
      ['anthropic', '0.514455', 2183.333],
      ['openai', '0.0044616', 1000],
    ]);
    expect(await costs('group_by=day', 'bucket')).toEqual([
      ['2026-05-31', '0.439705'],
      ['2026-06-01', '0.0792116'],
    ]);
    expect(await costs('group_by=hour', 'bucket')).toEqual([
      ['2026-05-31T23', '0.439705'],
      ['2026-06-01T00', '0.0771916'],
      ['2026-06-01T01', '0.00202'],
    ]);
    expect(await costs('group_by=delegation_tier', 'delegation_tier')).toEqual([
      [null, '0.47427'],
      ['balanced', '0.035625'],
      ['fast', '0.0090216'],
    ]);
    expect(await world.none('', B)).toMatchObject({ cost_usd: '0.2526006', stamped_cost_usd: '0.5189166' });
    expect((await world.none('', A)).cost_usd).toBe('0.5664422');
    expect(await costs('group_by=parent_session', 'parent_session_id', B)).toEqual([
      ['P1', '0.195639'],
      ['P2', '0.0549416'],
      ['P3', '0.00202'],
    ]);
    expect(await savings(SONNET)).toEqual({
      baseline_model: SONNET,
      actual_repriced_usd: '0.2526006',
      baseline_repriced_usd: '0.2311722',
      savings_usd: '-0.0214284',
      savings_pct: -0.092695,
      actual_stamped_usd: '0.5189166',
      rows_total: 8,
      rows_missing_from_price_table: 0,
      simulated: { call_count: 0, cost_usd: '0', included: false },
    });
    expect(await savings(OPUS)).toMatchObject({
      baseline_repriced_usd: '0.385287',
      savings_usd: '0.1326864',
      savings_pct: 0.344383,
    });
    expect(await savings('planner')).toEqual({
      baseline_model: 'planner',
      actual_repriced_usd: '0.0433306',
      baseline_repriced_usd: '0.1185772',
      savings_usd: '0.0752466',
      savings_pct: 0.634579,
      actual_stamped_usd: '0.0446466',
      rows_total: 4,
      rows_missing_from_price_table: 0,
      simulated: { call_count: 0, cost_usd: '0', included: false },
    });
    const last = await world.cost('group_by=model&from=2026-05-31T23:59:59.999Z&to=2026-06-01T00:00:00Z');
    expect(last.totals).toMatchObject({ cost_usd: '0.035625', call_count: 1 });
    expect(last.data).toMatchObject([{ model: SONNET, cost_usd: '0.035625' }]);
  }

  describe('the worked example', () => {
    it('stamps each call with the cost of its version', async () => {
      const { world, calls } = await prepare();
      const events = await world.record(calls);
      expect(events.map((e) => (e.payload as { cost_usd: string }).cost_usd)).toEqual([
        '0.3975',
        '0.0045',
        '0.00208',
        '0.035625',
        '0.02225',
        '0.0525',
        '0.0024416',
        '0.00202',
      ]);
    });

    // Promise 07.1: The worked example gives every figure to the last digit when all calls arrive in one batch.
    it('holds when the calls are appended in one batch', async () => {
      const example = await prepare();
      await example.world.record(example.calls);
      await expectTable(example);
    });

    // Promise 07.1: The worked example holds when the calls arrive one by one.
    it('holds when the calls are appended one by one', async () => {
      const example = await prepare();
      for (const call of example.calls) await example.world.record([call]);
      await expectTable(example);
    });

    // Promise 01.23: Rebuilt rollups equal the ledger.
    // Promise 07.1: The worked example holds in reverse order and after the rollups were rebuilt.
    it('holds when the calls are appended in reverse order, and again after a rebuild', async () => {
      const example = await prepare();
      await example.world.record(example.calls.toReversed());
      await expectTable(example);
      const { world } = example;
      for (const table of ['rollup_parent_day', 'rollup_day', 'rollup_parent'])
        await world.execute(`UPDATE ${table} SET cost_pusd = cost_pusd + 1`);
      expect(await world.differences()).not.toEqual([]);
      await world.rebuildRollups();
      expect(await world.differences()).toEqual([]);
      await expectTable(example);
    });

    // Promise 07.16: A purge moves no figure, and the rollups still agree.
    it('holds after the planner and its workers were purged, and the rollups still agree', async () => {
      const example = await prepare();
      const { world, calls } = example;
      await world.record(calls);
      expect(await world.journal.purge(calls[0]!.session.id)).toBe(3);
      await expectTable(example);
      expect(await world.differences()).toEqual([]);
    });
  });
}
