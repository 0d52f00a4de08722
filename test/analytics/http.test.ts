// The analytics endpoints over real HTTP: parameters, envelopes, pages, price versions.
import { describe, expect, it } from 'vitest';
import {
  CostReportSchema,
  ReliabilityReportSchema,
  RoutingReportSchema,
  SavingsReportSchema,
} from '#protocol/analytics.ts';
import { startServer } from '../support/http.ts';
import { manualClock } from '../support/manual-clock.ts';
import { priceTableA, priceTableB } from '../support/prices.ts';
import { completed, HAIKU, NOW, OPUS, openWorld, type SqliteWorld } from './world.ts';

const A = priceTableA();
const REPORTS = {
  cost: CostReportSchema,
  savings: SavingsReportSchema,
  routing: RoutingReportSchema,
  reliability: ReliabilityReportSchema,
};

async function serve(world: SqliteWorld, prices = A) {
  world.close();
  return startServer({ folder: world.folder, clock: manualClock(NOW), prices });
}

async function planners(count: number): Promise<SqliteWorld> {
  const world = openWorld();
  for (let i = 0; i < count; i++) {
    const session = await world.planner();
    const tokens = { input_tokens: 1000 + Math.floor(i / 3) };
    await world.record([{ session, at: NOW - 60_000 - i, model: HAIKU, prices: A, tokens, latency_ms: 100 }]);
  }
  return world;
}

describe('an empty store', () => {
  // Promise 07.2: Every report of an empty store is answered, with zeros.
  it('is answered by every endpoint with zeros', async () => {
    const { call } = await serve(openWorld());
    for (const [name, schema] of Object.entries(REPORTS)) {
      const { status, body } = await call('GET', `/analytics/${name}?from=all`);
      expect(status).toBe(200);
      schema.parse(body);
      expect(body).toMatchObject({
        window: { start: '1970-01-01T00:00:00.000Z', end: '2026-06-10T12:00:00.000Z' },
        current_pricing_version: 'A',
        warnings: [],
      });
    }
    const cost = (await call('GET', '/analytics/cost')).body;
    expect(cost).toMatchObject({
      window: { start: '2026-06-03T12:00:00.000Z' },
      data: [],
      totals: { cost_usd: '0', hit_rate: null },
      next_cursor: null,
    });
    const none = (await call('GET', '/analytics/cost?group_by=none')).body;
    expect(none.data).toMatchObject({ cost_usd: '0', call_count: 0, avg_latency_ms: null, hit_rate: null });
    expect((await call('GET', '/analytics/routing')).body.data.wins_by_policy).toHaveLength(7);
  });
});

describe('a faulty parameter', () => {
  // Promise 07.9: A faulty parameter is refused by name, a limit too large is clamped.
  it('is a validation_error that names it', async () => {
    const { call } = await serve(await planners(1));
    const faulty: readonly [string, string][] = [
      ['cost?group_by=DROP%20TABLE', 'group_by'],
      ['cost?order=;', 'order'],
      ['cost?limit=0', 'limit'],
      ['cost?limit=x', 'limit'],
      ['cost?from=2026-05-01', 'from'],
      ['cost?from=2026-05-01T00:00:00Z&to=2026-05-01T00:00:00Z', 'from'],
      ['cost?from=2026-05-01T00:00:00', 'from'],
      ['cost?from=2026-05-01T00:00:00+02:00', 'from'],
      ['cost?include_workers=maybe', 'include_workers'],
      ['cost?session=a;b', 'session'],
      ['cost?pricing=nope', 'pricing'],
      ['cost?cursor=nope', 'cursor'],
      ['cost?model=a:b&model=a:b', 'model'],
      ['savings?baseline=does-not-exist', 'baseline'],
      ['routing?from=2026-05-01T00:00:00Z&to=2026-06-02T00:00:00Z', 'from'],
      ['reliability?from=2026-05-01T00:00:00Z&to=2026-06-02T00:00:00Z', 'from'],
    ];
    for (const [query, parameter] of faulty) {
      const { status, body } = await call('GET', `/analytics/${query}`);
      expect([query, status, body.error?.code]).toEqual([query, 400, 'validation_error']);
      expect(body.error.details.issues.map((issue: { path: string }) => issue.path)).toContain(parameter);
    }
    const clamped = await call('GET', '/analytics/cost?limit=999999&unknown=1');
    expect(clamped).toMatchObject({ status: 200, body: { warnings: ['unknown parameter ignored: unknown'] } });
  });
});

describe('pages', () => {
  // Promise 07.10: Pages repeat nothing and are unmoved by calls made in between.
  it('of 10, 10 and 5 rows repeat nothing, and calls made in between change no page and no total', async () => {
    const { call, engine } = await serve(await planners(25));
    const query = '/analytics/cost?group_by=session&limit=10';
    const sessions: string[] = [];
    const sizes: number[] = [];
    const totals: unknown[] = [];
    const costs: number[] = [];
    for (let cursor: string | null = ''; cursor !== null; ) {
      const { status, body } = await call('GET', `${query}${cursor && `&cursor=${cursor}`}`);
      expect(status).toBe(200);
      sizes.push(body.data.length);
      totals.push(body.totals);
      sessions.push(...body.data.map((row: { session_id: string }) => row.session_id));
      costs.push(...body.data.map((row: { cost_usd: string }) => Math.round(Number(row.cost_usd) * 1e9)));
      cursor = body.next_cursor;
      const session = (await engine.store.sessions.record(sessions[0]!))!;
      const dear = { input_tokens: 9_000_000 };
      const event = completed(
        { session, at: NOW, model: OPUS, prices: A, tokens: dear },
        { ids: engine.ids, time: { now: NOW } },
      );
      await engine.journal.commit({ emit: [event] });
    }
    expect(sizes).toEqual([10, 10, 5]);
    expect(new Set(sessions).size).toBe(25);
    expect(costs).toEqual(costs.toSorted((a, b) => b - a));
    expect(new Set(totals.map((t) => JSON.stringify(t))).size).toBe(1);
    const sum = costs.reduce((a, b) => a + b, 0);
    expect(sum).toBe(Math.round(Number((totals[0] as { cost_usd: string }).cost_usd) * 1e9));
  });

  it('are refused to a cursor with another window or filter', async () => {
    const { call } = await serve(await planners(3));
    const first = (await call('GET', '/analytics/cost?group_by=session&limit=1')).body;
    for (const change of ['&to=2026-06-09T00:00:00Z', '&include_workers=false', '&order=calls']) {
      const answer = await call('GET', `/analytics/cost?group_by=session&limit=1&cursor=${first.next_cursor}${change}`);
      expect(answer).toMatchObject({ status: 400, body: { error: { details: { issues: [{ path: 'cursor' }] } } } });
    }
  });
});

describe('a start with another price table', () => {
  // Promise 07.11: Another price table changes the current version and savings, never what was stamped.
  it('changes the current version and savings, never what was stamped', async () => {
    const world = await planners(1);
    const first = await serve(world, A);
    await first.engine.journal.savePriceVersion({
      version: A.version,
      content_hash: A.contentHash,
      source: '',
      models_json: JSON.stringify(A.models),
    });
    const cost = (await first.call('GET', '/analytics/cost')).body;
    const savings = (await first.call('GET', '/analytics/savings?baseline=opus')).body;
    expect(savings.data).toMatchObject({ baseline_model: OPUS, actual_repriced_usd: '0.001' });
    await first.app.close();
    await first.close();

    const second = await startServer({ folder: world.folder, clock: manualClock(NOW), prices: priceTableB() });
    const later = (await second.call('GET', '/analytics/cost')).body;
    expect(later.data).toEqual(cost.data);
    expect([cost.current_pricing_version, later.current_pricing_version]).toEqual(['A', 'B']);
    const saved = (await second.call('GET', '/analytics/savings?baseline=opus')).body.data;
    expect(saved).toMatchObject({ actual_repriced_usd: '0.0008', actual_stamped_usd: '0.001' });

    const current = (await second.call('GET', '/analytics/cost?pricing=current')).body;
    expect(current).toMatchObject({ pricing_mode: 'repriced', repriced_version: 'B', totals: { cost_usd: '0.0008' } });
    const past = (await second.call('GET', '/analytics/cost?pricing=A')).body;
    expect(past).toMatchObject({
      pricing_mode: 'repriced',
      repriced_version: 'A',
      totals: { cost_usd: '0.001', stamped_cost_usd: '0.001', missing_call_count: 0 },
    });
    expect(later).not.toHaveProperty('pricing_mode');
  });

  it('tells that savings are partial when a call has no price', async () => {
    const world = await planners(1);
    const session = await world.planner();
    await world.record([{ session, at: NOW - 60_000, model: 'nope:model', prices: A }]);
    const { call } = await serve(world);
    const { body } = await call('GET', '/analytics/savings');
    expect(body.warnings).toEqual(['savings_partial']);
    expect(body.data).toMatchObject({ rows_total: 2, rows_missing_from_price_table: 1 });
  });
});

describe('a sum out of range', () => {
  it('is an internal_error', async () => {
    const world = openWorld();
    for (const workspace of ['a'.repeat(64), 'b'.repeat(64)]) {
      const session = await world.planner(workspace);
      await world.record([{ session, at: NOW - 60_000, model: HAIKU, over: { cost_usd: '5000000' } }]);
    }
    const { call } = await serve(world);
    const { status, body } = await call('GET', '/analytics/cost?group_by=none');
    expect([status, body.error.code]).toEqual([500, 'internal_error']);
  });
});
