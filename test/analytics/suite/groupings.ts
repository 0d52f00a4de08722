// Every grouping of any set of calls equals the plain sum over the ledger.
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { averageLatency, ratio } from '#core/policy/analytics/cost-row.ts';
import type { PriceTable } from '#core/policy/pricing/price-table.ts';
import type { CallPricer } from '#core/ports/report-reader.ts';
import { DIMENSIONS as ALL_DIMENSIONS, type CostRow, type CostTotals, type Dimension } from '#protocol/analytics.ts';
import { fromPusd, sumPusd } from '#protocol/money.ts';
import type { Effort, Tier } from '#protocol/scalars.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { NO_TOKENS } from '#protocol/usage.ts';
import { NO_FILTER } from '#store/report/cost-sql.ts';
import { priceTableA, priceTableB } from '../../support/prices.ts';
import { HAIKU, NOW, OPUS, type OpenWorld, SONNET, type World } from '../world.ts';

const DAY = 86_400_000;
const START = Date.parse('2026-05-20T00:00:00Z');
const A = priceTableA();
const B = priceTableB();
const MODELS = [OPUS, SONNET, HAIKU, 'openai:gpt-5', 'ollama:llama-3.3-70b', 'nope:model'];

/** By `cost_kind` a call is in several groups (bills.ts). */
type KeyDimension = Exclude<Dimension, 'cost_kind'>;
const DIMENSIONS = ALL_DIMENSIONS.filter((dimension) => dimension !== 'cost_kind');

interface Fact {
  readonly [column: string]: string | bigint | null;
  readonly cost_pusd: bigint;
}
const num = (fact: Fact, column: string) => fact[column] as bigint;

/** Key columns of a fact, straight from the definition of each dimension. */
const KEY: Readonly<Record<KeyDimension, (fact: Fact, folded: boolean) => Partial<CostRow>>> = {
  model: (f) => ({ model: String(f.model), provider: String(f.provider) }),
  provider: (f) => ({ provider: String(f.provider) }),
  session: (f, folded) => ({ session_id: String(folded ? f.parent_key : f.session_id) }),
  parent_session: (f) => ({ parent_session_id: String(f.parent_session_id ?? f.session_id) }),
  root_session: (f) => ({ root_session_id: String(f.root_session_id) }),
  is_worker: (f) => ({ is_worker: f.parent_session_id === null ? 'planner' : 'worker' }),
  day: (f) => ({ bucket: new Date(Number(f.ts_ms)).toISOString().slice(0, 10) }),
  hour: (f) => ({ bucket: new Date(Number(f.ts_ms)).toISOString().slice(0, 13) }),
  delegation_tier: (f) => ({ delegation_tier: f.delegation_tier === '' ? null : String(f.delegation_tier) }),
  worker_name: (f) => ({ worker_name: f.worker_name === '' ? null : String(f.worker_name) }),
  workspace: (f) => ({ workspace_hash: String(f.workspace_hash) }),
  door: (f) => ({ door: String(f.door) as CostRow['door'] }),
  caller: (f) => ({ caller: f.caller === '' ? null : String(f.caller) }),
  owner: () => ({ owner: null }),
  effort: (f) => ({ effort: f.effort === '' ? null : ((f.effort as CostRow['effort']) ?? null) }),
};

function naive(facts: readonly Fact[]) {
  const sum = (column: string, of: readonly Fact[] = facts) =>
    of.reduce((total, fact) => total + num(fact, column), 0n);
  const timed = facts.filter((f) => f.cancelled === 0n && f.latency_ms !== null);
  const prompt = sum('input_tokens') + sum('cached_input_tokens') + sum('cache_creation_input_tokens');
  return {
    cost_usd: fromPusd(sum('cost_pusd')),
    input_tokens: Number(sum('input_tokens')),
    output_tokens: Number(sum('output_tokens')),
    cached_input_tokens: Number(sum('cached_input_tokens')),
    cache_creation_input_tokens: Number(sum('cache_creation_input_tokens')),
    cache_creation_1h_input_tokens: Number(sum('cache_creation_1h_input_tokens')),
    reasoning_tokens: Number(sum('reasoning_tokens')),
    avg_latency_ms: averageLatency(sum('latency_ms', timed), BigInt(timed.length)),
    call_count: facts.length,
    unpriced_call_count: facts.filter((f) => f.priced === 0n).length,
    fees_unpriced_call_count: 0,
    surcharge_unknown_call_count: 0,
    rounds_unknown_call_count: 0,
    hit_rate: ratio(sum('cached_input_tokens'), prompt),
    cache_write_share: ratio(sum('cache_creation_input_tokens'), prompt),
  };
}

/** Rows as the definition has them, in no order, and without the columns that only some groupings show. */
function naiveRows(facts: readonly Fact[], groupBy: readonly KeyDimension[], folded: boolean): object[] {
  const groups = new Map<string, { key: object; facts: Fact[] }>();
  for (const fact of facts) {
    const key = Object.assign({}, ...groupBy.map((dimension) => KEY[dimension](fact, folded)));
    const id = JSON.stringify(key);
    const group: { key: object; facts: Fact[] } = groups.get(id) ?? { key, facts: [] };
    groups.set(id, group);
    group.facts.push(fact);
  }
  return [...groups.values()].map((group) => {
    const { hit_rate, cache_write_share, ...row } = naive(group.facts);
    return { ...group.key, ...row };
  });
}

const count = fc.integer({ min: 0, max: 50_000 });
/** Small, long, and at the very sizes that days keep apart. */
const prompt = fc.oneof(count, fc.integer({ min: 0, max: 600_000 }), fc.constantFrom(128_000, 200_000, 200_001));
const callArbitrary = fc.record({
  session: fc.nat({ max: 20 }),
  at: fc.integer({ min: START, max: START + 3 * DAY }),
  model: fc.constantFrom(...MODELS),
  prices: fc.constantFrom<PriceTable>(A, B),
  latency_ms: fc.integer({ min: 0, max: 9000 }),
  cancelled: fc.boolean(),
  effort: fc.constantFrom<Effort | null>('low', 'max', null),
  tokens: fc.record({
    input_tokens: prompt,
    output_tokens: count,
    cached_input_tokens: count,
    cache_creation_input_tokens: count,
    cache_creation_1h_input_tokens: count,
    reasoning_tokens: count,
  }),
});
const worldArbitrary = fc.record({
  /** Each worker hangs under one of the sessions before it. */
  workers: fc.array(
    fc.record({
      parent: fc.nat({ max: 20 }),
      tier: fc.constantFrom<Tier | null>('fast', 'balanced', 'deep', null),
      name: fc.constantFrom('scout', 'judge', null),
    }),
    { maxLength: 6 },
  ),
  calls: fc.array(callArbitrary, { minLength: 1, maxLength: 40 }),
  windows: fc.array(
    fc.uniqueArray(fc.integer({ min: START - DAY, max: START + 4 * DAY }), { minLength: 2, maxLength: 2 }),
    { minLength: 1, maxLength: 3 },
  ),
  pair: fc.uniqueArray(fc.constantFrom(...DIMENSIONS), { minLength: 2, maxLength: 2 }),
});

type Example = typeof worldArbitrary extends fc.Arbitrary<infer T> ? T : never;

async function fill(world: World, { workers, calls }: Example) {
  const sessions: SessionRecord[] = [
    await world.planner('a'.repeat(64)),
    await world.planner('b'.repeat(64), { door: 'gateway', caller: 'ci' }),
  ];
  for (const { parent, tier, name } of workers) {
    sessions.push(await world.worker(sessions[parent % sessions.length]!, { tier, name }));
  }
  await world.record(
    calls.map(({ session, cancelled, effort, ...call }) => ({
      ...call,
      session: sessions[session % sessions.length]!,
      over: { effort, ...(cancelled && { stop_reason: 'cancelled' as const, error_class: 'network' as const }) },
    })),
  );
}

async function factsIn(world: World, from: number, to: number): Promise<Fact[]> {
  const facts = await world.stored(
    'SELECT * FROM llm_calls WHERE ts_ms >= ? AND ts_ms < ? ORDER BY event_id',
    from,
    to,
  );
  return [...facts] as Fact[];
}

const unordered = (rows: readonly object[]) => rows.map((row) => JSON.stringify(row)).sort();

function columnsOf(rows: readonly CostRow[]): object[] {
  return rows.map((row) => {
    const { hit_rate, cache_write_share, planner_cost_usd, worker_cost_usd, worker_call_count, workers, ...plain } =
      row;
    return plain;
  });
}

/** @param numRuns random worlds */
export function groupingsSuite(openWorld: OpenWorld, numRuns: number): void {
  // Promise 22.2: a grouping by effort sums exactly, on both databases.
  // Promise 07.5: Every grouping of random calls and windows equals a plain sum over the ledger, all with the same totals.
  it('equals a naive sum over the ledger for random trees, models, versions and windows, with the same totals', async () => {
    await fc.assert(
      fc.asyncProperty(worldArbitrary, async (example) => {
        const world = await openWorld();
        await fill(world, example);
        const groupings: (readonly KeyDimension[])[] = DIMENSIONS.map((dimension) => [dimension]);
        if (!example.pair.every((d) => d === 'day' || d === 'hour')) groupings.push(example.pair);
        for (const bounds of [...example.windows, [0, NOW]]) {
          const window = { from: Math.min(...bounds), to: Math.max(...bounds) };
          const range = `from=${new Date(window.from).toISOString()}&to=${new Date(window.to).toISOString()}`;
          for (const workers of ['', '&include_workers=true', '&include_workers=false']) {
            const facts = (await factsIn(world, window.from, window.to)).filter(
              (fact) => !workers.endsWith('false') || fact.is_worker === 0n,
            );
            const totals = naive(facts);
            expect((await world.cost(`group_by=none&${range}${workers}`)).data).toEqual(totals);
            for (const table of [LONG, AT_CLASSES, UNUSED]) {
              const repriced = facts.map((fact) => repricedCost(fact, table));
              expect(await world.none(`${range}${workers}`, table)).toMatchObject({
                cost_usd: fromPusd(sumPusd(repriced.map(({ cost }) => cost))),
                stamped_cost_usd: totals.cost_usd,
                missing_call_count: repriced.filter(({ priced }) => !priced).length,
              });
              const filter = { ...NO_FILTER, include_workers: workers.endsWith('false') ? false : null };
              for (const baseline of ['planner', OPUS]) {
                expect(await world.analytics.savings({ window, filter, baseline }, table)).toMatchObject(
                  naiveSavings(facts, baseline, table),
                );
              }
            }
            for (const groupBy of groupings) {
              const answer = await world.cost(`group_by=${groupBy.join(',')}&${range}${workers}`);
              expect(answer.totals).toEqual<CostTotals>(totals);
              const rows = answer.data as readonly CostRow[];
              expect(unordered(columnsOf(rows))).toEqual(
                unordered(naiveRows(facts, groupBy, workers.endsWith('true'))),
              );
              for (const row of rows) checkSplit(row);
              const query = `group_by=${groupBy.join(',')}&${range}${workers}`;
              expect(stampedColumns(await world.rows(query, KNOWS_NOTHING))).toEqual(rows);
              expect(await world.walk(query, 3)).toEqual(rows);
              expect(stampedColumns(await world.walk(query, 4, KNOWS_NOTHING))).toEqual(rows);
            }
          }
        }
      }),
      { numRuns },
    );
  }, 120_000);

  it('a model that is not priced does not send the savings of whole days to the ledger', async () => {
    const world = await openWorld();
    const session = await world.planner();
    const days = ['2026-06-01', '2026-06-02', '2026-06-03'].map((day) => Date.parse(`${day}T12:00:00Z`));
    await world.record(days.map((at) => ({ session, at, model: SONNET })));
    // What the daily sums have and the ledger has not.
    await world.execute('DELETE FROM ledger_calls WHERE ts_ms = ?', days[1]);
    const window = { from: 0, to: NOW };
    const rowsOf = async (baseline: string, table: PriceTable) =>
      (await world.analytics.savings({ window, filter: NO_FILTER, baseline }, table)).rows_total;
    expect(await rowsOf(OPUS, UNUSED)).toBe(3);
    expect(await rowsOf('openai:unused', UNUSED)).toBe(2);
    expect(await rowsOf(OPUS, AT_CLASSES.withOverlay('used', { [SONNET]: ODD_STEP }))).toBe(2);
  });

  /** B with dearer long prompts, at a threshold of its own for two models. */
  const LONG = B.withOverlay('long', {
    [SONNET]: { ...rate('3', '15'), long_context: [{ above_prompt_tokens: 40_000, ...rate('6', '22.5') }] },
    [HAIKU]: {
      ...rate('0.8', '4'),
      cache_write_1h_per_mtok_usd: '1.6',
      long_context: [
        { above_prompt_tokens: 20_000, ...rate('1', '5') },
        { above_prompt_tokens: 90_000, ...rate('2', '9') },
      ],
    },
  });
}

/** B with dearer long prompts at sizes that days keep apart: their sums can be priced. */
const AT_CLASSES = B.withOverlay('at-classes', {
  [SONNET]: { ...rate('3', '15'), long_context: [{ above_prompt_tokens: 200_000, ...rate('6', '22.5') }] },
  [OPUS]: { ...rate('5', '25'), long_context: [{ above_prompt_tokens: 128_000, ...rate('10', '37.5') }] },
});

/** With a model that no call has, whose prompts have a size that days do not keep apart. */
const ODD_STEP = { ...rate('1', '5'), long_context: [{ above_prompt_tokens: 100_000, ...rate('2', '9') }] };
const UNUSED = AT_CLASSES.withOverlay('unused', { 'openai:unused': ODD_STEP });

/** Both sides call by call (07 §5). */
function naiveSavings(facts: readonly Fact[], baseline: string, table: PriceTable) {
  const asked = facts.filter((fact) => baseline !== 'planner' || fact.is_worker === 1n);
  const sides = asked.map((fact) => ({
    own: repricedCost(fact, table),
    other: repricedCost({ ...fact, model: baseline === 'planner' ? fact.delegated_by_model! : baseline }, table),
  }));
  const known = sides.filter(({ own, other }) => own.priced && other.priced);
  return {
    actual_repriced_usd: fromPusd(sumPusd(known.map(({ own }) => own.cost))),
    baseline_repriced_usd: fromPusd(sumPusd(known.map(({ other }) => other.cost))),
    actual_stamped_usd: fromPusd(asked.reduce((sum, fact) => sum + fact.cost_pusd, 0n)),
    rows_total: asked.length,
    rows_missing_from_price_table: asked.length - known.length,
  };
}

function rate(input_per_mtok_usd: string, output_per_mtok_usd: string) {
  return { input_per_mtok_usd, output_per_mtok_usd };
}

/** Call by call, as the table prices a single one. */
function repricedCost(fact: Fact, table: PriceTable): { cost: bigint; priced: boolean } {
  const tokens = Object.fromEntries(Object.keys(NO_TOKENS).map((name) => [name, Number(fact[name])]));
  const { cost_pusd, priced } = table.cost(String(fact.model), { ...NO_TOKENS, ...tokens, usage_estimated: false });
  return { cost: priced ? cost_pusd : fact.cost_pusd, priced };
}

/** Under it every call keeps its stamped cost, so that both ways to an answer can be compared. */
const KNOWS_NOTHING: CallPricer = { version: 'none', source: 'none', models: {}, ratesFor: () => null };

function stampedColumns(rows: readonly CostRow[]): object[] {
  return rows.map(({ stamped_cost_usd, missing_call_count, ...row }) => row);
}

/** Planner and worker cost of a tree make its cost; folded workers are part of their row. */
function checkSplit(row: CostRow): void {
  if (row.planner_cost_usd === undefined || row.worker_cost_usd === undefined) return;
  const scaled = (usd: string) => Math.round(Number(usd) * 1e12);
  expect(scaled(row.planner_cost_usd) + scaled(row.worker_cost_usd)).toBe(scaled(row.cost_usd));
}
