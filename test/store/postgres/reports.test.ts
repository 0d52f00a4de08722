// The same calls give the same reports on both databases (07 §9, 16 §9).
import { afterAll, describe, expect, test } from 'vitest';
import { parseCostQuery, parseSavingsQuery, parseTraceQuery } from '#core/policy/analytics/query.ts';
import type { Analytics } from '#core/ports/report-reader.ts';
import type { Result } from '#protocol/result.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { createAnalytics as onPostgres } from '#store/postgres/report/analytics.ts';
import { everywhere, groupsSql, whereIn } from '#store/report/cost-sql.ts';
import { createAnalytics as onSqlite } from '#store/sqlite/report/analytics.ts';
import { callCompleted } from '../../support/drafts.ts';
import { priceTableA, priceTableB } from '../../support/prices.ts';
import { postgresService } from '../../support/services.ts';
import { openWorld as openSqlite } from '../sqlite/world.ts';
import { storedSession, storedTurn, storedWorker } from '../suite/nouns.ts';
import { NOON, type World } from '../suite/world.ts';
import { dropSchemas, openWorld as openPostgres } from './world.ts';

const { url, missing } = await postgresService();
const HOUR = 3_600_000;
const MODELS = ['anthropic:claude-opus-4-7', 'anthropic:claude-haiku-4-5', 'openai:gpt-5', 'ollama:llama-3.3-70b'];
const COSTS = [
  'group_by=none',
  'group_by=model&order=cost',
  'group_by=session&limit=3',
  'group_by=session&include_workers=true',
  'group_by=parent_session&order=tokens',
  'group_by=day',
  'group_by=model,day&order=calls',
  'group_by=delegation_tier',
  'group_by=worker_name&include_workers=false',
];
const NOW = NOON + 100 * HOUR;

function valid<T>(parsed: Result<T, unknown>): T {
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.error));
  return parsed.value;
}

/** Two trees with workers, 48 calls over four days; ids differ between databases and are told by their place. */
async function filled(world: World): Promise<(text: string) => string> {
  const sessions: SessionRecord[] = [];
  for (const name of ['one', 'two']) {
    const planner = await storedSession(world, { workspace_hash: name.padEnd(64, '0') });
    const turn = await storedTurn(world, planner);
    sessions.push(
      planner,
      await storedWorker(world, planner, turn),
      await storedWorker(world, planner, turn, { worker_name: name }),
    );
  }
  for (let i = 0; i < 48; i++) {
    const session = sessions[i % sessions.length]!;
    world.time.now = NOON + i * 2 * HOUR;
    const over = {
      model: MODELS[i % MODELS.length]!,
      input_tokens: 100 * i,
      output_tokens: 7 * i,
      cached_input_tokens: i % 3 === 0 ? 250_000 : 0,
      cache_creation_input_tokens: 11,
      cost_usd: `0.0${10 + i}1`,
      priced: i % 7 !== 0,
      latency_ms: 13 * i,
      stop_reason: i % 5 === 0 ? ('cancelled' as const) : ('end_turn' as const),
    };
    await world.journal.commit({ emit: [callCompleted(world, session, null, over)] });
  }
  return (text) => sessions.reduce((left, { id }, i) => left.replaceAll(id, `session ${i}`), text);
}

async function answers(analytics: Analytics, named: (text: string) => string): Promise<unknown> {
  const found: Record<string, unknown> = {};
  const pricers = [null, priceTableA(), priceTableB()];
  for (const query of COSTS) {
    const raw = { from: 'all', ...Object.fromEntries(new URLSearchParams(query)) };
    for (const pricer of pricers) {
      found[`${query} ${pricer?.version}`] = await analytics.cost(valid(parseCostQuery(raw, NOW)).query, pricer);
    }
  }
  const { query: saved } = valid(parseSavingsQuery({ from: 'all' }, NOW));
  for (const baseline of ['planner', MODELS[0]!]) {
    found[`savings ${baseline}`] = await analytics.savings({ ...saved, baseline }, priceTableB());
  }
  const { query: traced } = valid(parseTraceQuery({ from: 'all' }, NOW));
  found.reliability = await analytics.reliability(traced);
  found.routing = await analytics.routing(traced);
  for (const reader of [null, { id: null }, { id: 'A' }])
    found[`quality ${reader?.id}`] = await analytics.quality({
      workspace_path: '/',
      since: 0,
      tiers: new Map(),
      reader,
    });
  return JSON.parse(named(JSON.stringify(found)));
}

describe.skipIf(url === null)(`reports on PostgreSQL${missing && `, skipped: ${missing}`}`, () => {
  afterAll(dropSchemas);
  test('are what they are on the embedded database: cost by every grouping and price, savings, reliability, routing', async () => {
    const sqlite = openSqlite();
    const postgres = await openPostgres(url!);
    const expected = await answers(onSqlite(sqlite.handle.reader), await filled(sqlite));
    expect(await answers(onPostgres(postgres.pool), await filled(postgres))).toEqual(expected);
    expect(await postgres.differences()).toEqual([]);
  });

  test('read the rows of a page alone, by their index, not the sums of every tree', async () => {
    const { pool } = await openPostgres(url!);
    const days = `SELECT i % 90 AS day, 'sess_' || CAST(i % 5000 AS text) AS parent FROM generate_series(1, 15000) AS n (i)`;
    const sums = ['calls', 'unpriced_calls', 'latency_sum', 'latency_n', 'input_tokens', 'cached_input_tokens'];
    sums.push('cache_creation_input_tokens', 'cache_creation_1h_input_tokens', 'output_tokens', 'reasoning_tokens');
    const ones = sums.map(() => '1').join(', ');
    await pool.send(
      `INSERT INTO rollup_parent_day (day, parent_key, is_worker, delegation_tier, worker_name, model, root_session_id,
        workspace_hash, provider, ${sums.join(', ')}, cost_pusd)
      SELECT day, parent, 0, '', '', 'm', parent, 'w', 'p', ${ones}, 1 FROM (${days}) AS d ON CONFLICT DO NOTHING`,
      [],
    );
    await pool.send('ANALYZE rollup_parent_day', []);
    const columns = [everywhere('parent_key')];
    const segments = [{ source: 'parent_days', from: 0, to: 90 }] as const;
    const parents = Array.from({ length: 101 }, (_, i) => `sess_${i}`);
    const page = groupsSql({ segments, billed: [] }, columns, whereIn({ sql: '', values: [] }, 'parent_key', parents));
    const { rows } = await pool.send<{ 'QUERY PLAN': string }>(`EXPLAIN ${page.sql}`, page.values);
    const plan = rows.map((row) => row['QUERY PLAN']).join('\n');
    expect(plan).toContain('rollup_parent_day_parent');
    expect(plan).not.toContain('Seq Scan on rollup_parent_day');
  });
});
