// Models, prices, health and pruning over HTTP.
import { describe, expect, test } from 'vitest';
import { type Parsed, startServer } from '../support/http.ts';
import { manualClock } from '../support/manual-clock.ts';
import { priceTableA, priceTableB } from '../support/prices.ts';

const DAY_MS = 86_400_000;

describe('GET /models', () => {
  test('lists the registry by id, with rates per million tokens as decimals', async () => {
    const server = await startServer();
    const { models } = (await server.call('GET', '/models')).body;
    const ids = models.map((m: Parsed) => m.id);
    expect(ids).toEqual([...ids].sort());
    expect(models.find((m: Parsed) => m.id === 'anthropic:claude-haiku-4-5')).toMatchObject({
      adapter: 'scripted',
      tier: 'fast',
      aliases: ['haiku'],
      availability: 'healthy',
      pricing: {
        input_per_mtok: '1',
        output_per_mtok: '5',
        cached_read_per_mtok: '0.1',
        cache_creation_per_mtok: '1.25',
        currency: 'USD',
        pricing_version: 'A',
      },
    });
  });
});

test('GET /models says which models can be used', async () => {
  const registry = `adapters: { scripted: { type: scripted }, locked: { type: openai } }
models:
  scripted:a: { capabilities: { max_context_tokens: 1000, max_output_tokens: 100 } }
  locked:b: { capabilities: { max_context_tokens: 1000, max_output_tokens: 100 } }
`;
  const { models } = (await (await startServer({ registry })).call('GET', '/models')).body;
  expect(models.map((m: Parsed) => [m.id, m.configured])).toEqual([
    ['locked:b', false],
    ['scripted:a', true],
  ]);
});

describe('GET /pricing', () => {
  test('shows the table in force and any that was, newest version first', async () => {
    const clock = manualClock();
    const server = await startServer({ clock, prices: priceTableB() });
    for (const table of [priceTableA(), priceTableB()]) {
      const { version, contentHash: content_hash, source, models } = table;
      await server.engine.journal.savePriceVersion({
        version,
        content_hash,
        source,
        models_json: JSON.stringify(models),
      });
      clock.advance(1000);
    }
    const now = (await server.call('GET', '/pricing')).body;
    expect(now).toMatchObject({ active_version: 'B', currency: 'USD', table: { pricing_version: 'B' } });
    expect(now.versions.map((v: Parsed) => [v.version, v.active])).toEqual([
      ['B', true],
      ['A', false],
    ]);
    const { table } = (await server.call('GET', '/pricing?version=A')).body;
    expect(table.pricing_version).toBe('A');
    expect(table.models['anthropic:claude-opus-4-7'].input_per_mtok_usd).toBe('15');
    const unknown = await server.call('GET', '/pricing?version=C');
    expect([unknown.status, unknown.body.error.details]).toEqual([404, { resource: 'pricing_version' }]);
  });
});

describe('health', () => {
  test('counts what is open, and readiness says no once the database cannot be written', async () => {
    const clock = manualClock();
    const server = await startServer({ clock });
    await server.session();
    clock.advance(1500);
    expect((await server.call('GET', '/healthz')).body).toMatchObject({
      status: 'ok',
      version: '0.0.0-test',
      uptime_seconds: 1.5,
      active_sessions: 1,
      active_workers: 0,
      active_turns: 0,
    });
    expect((await server.call('GET', '/readyz')).status).toBe(200);
    server.abandon();
    const unready = await server.call('GET', '/readyz');
    expect([unready.status, unready.body.error.code]).toEqual([503, 'storage_unavailable']);
  });
});

describe('POST /maintenance/prune', () => {
  test('a dry run counts what the real one deletes', async () => {
    const clock = manualClock();
    const server = await startServer({ clock });
    await server.session();
    clock.advance(10 * DAY_MS);
    await server.session();
    const dry = (await server.call('POST', '/maintenance/prune', { days: 5, dry_run: true })).body;
    expect(dry).toEqual({
      cutoff: new Date(clock.now() - 5 * DAY_MS).toISOString(),
      rows_deleted: 1,
      sessions_skipped: 0,
      oldest_kept_timestamp: new Date(clock.now()).toISOString(),
      dry_run: true,
    });
    expect(server.rows().events).toBe(2);
    expect((await server.call('POST', '/maintenance/prune', { days: 5 })).body).toEqual({ ...dry, dry_run: false });
    expect(server.rows().events).toBe(1);
    expect((await server.call('POST', '/maintenance/prune', { days: 0 })).status).toBe(400);
  });

  test('without a retention the days have to be named', async () => {
    const server = await startServer({ config: { trace: { retention_days: null } } });
    const answer = await server.call('POST', '/maintenance/prune');
    expect([answer.status, answer.body.error.details.issues[0].path]).toEqual([400, 'days']);
  });
});
