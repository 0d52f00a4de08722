// `GET /analytics/quality` over HTTP: what was learned of a workspace, beside its cost (07 §7.3).
import fs from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { expect, test } from 'vitest';
import { signFingerprint } from '#core/policy/learning/fingerprint.ts';
import { createIdGenerator } from '#protocol/ids.ts';
import { selectNewest } from '#store/read/patterns.ts';
import { startBrowserServer } from '../browser/server.ts';
import { startServer, type TestServer } from '../support/http.ts';

const usage = { input_tokens: 1000, output_tokens: 100 };
const answers = { version: 1, strict: false, rules: [], fallback: { text: 'done', usage } };
const ask = (server: TestServer, workspace = server.workspace) =>
  server.call('GET', `/analytics/quality?workspace_path=${encodeURIComponent(workspace)}`);

async function turns(server: TestServer, model: string, n: number) {
  const session = await server.session({ initial_active_model: model });
  for (let i = 0; i < n; i += 1) {
    const { id } = await server.run(session, i === 0 ? 'fix the bug' : 'write docs');
    await server.event('eval.completed', (e) => e.turn_id === id);
  }
}

// Promise 07.20: the report over HTTP, of one workspace.
test('a shape that a cheaper model does as well is told with its saving a day, after enough turns and not before', async () => {
  const server = await startServer({ scenario: answers, learning: {} });
  const empty = {
    shapes: 0,
    turns: 0,
    scored_turns: 0,
    saving_per_day_usd: '0',
    comparisons_total: 0,
    comparisons: [],
  };
  expect(await ask(server)).toMatchObject({ status: 200, body: { warnings: [], data: empty } });
  await turns(server, 'sonnet', 8);
  expect((await ask(server)).body.data).toMatchObject({ shapes: 2, turns: 8, scored_turns: 8, comparisons: [] });
  await turns(server, 'haiku', 8);
  const early = (await ask(server)).body.data;
  expect(early).toMatchObject({ saving_per_day_usd: '0', comparisons_total: 2 });
  expect(early.comparisons.map(({ verdict }: { verdict: string }) => verdict)).toEqual(['undecided', 'undecided']);

  await turns(server, 'sonnet', 18);
  await turns(server, 'haiku', 18);
  const { body } = await ask(server);
  expect(body.data).toMatchObject({ turns: 52, scored_turns: 52, saving_per_day_usd: '0.010285714285' });
  expect(body.data.comparisons[0]).toMatchObject({
    intent_tags: ['doc'],
    verdict: 'as_good',
    difference: 0,
    dearer: {
      model: 'anthropic:claude-sonnet-4-6',
      tier: 'balanced',
      turns: 24,
      score_mean: 1,
      avg_cost_usd: '0.0045',
    },
    cheaper: { model: 'anthropic:claude-haiku-4-5', tier: 'fast', turns: 24, scored_turns: 24, avg_cost_usd: '0.0015' },
    saving_per_turn_usd: '0.003',
    saving_per_day_usd: '0.010285714285',
  });
  expect(Date.parse(body.window.end) - Date.parse(body.window.start)).toBe(7 * 86_400_000);

  const other = path.join(server.folder, 'other');
  fs.mkdirSync(other);
  expect((await ask(server, other)).body.data).toEqual(empty);
  expect(await ask(server, '/nowhere/at/all')).toMatchObject({ status: 404, body: { error: { code: 'not_found' } } });
  expect((await server.call('GET', '/analytics/quality')).status).toBe(400);
});

// Promise 07.20: ten thousand shapes hold up nobody.
test('of ten thousand shapes the hundred that save most are told while others are answered, and pages come by their index', async () => {
  const shapes = 10_000;
  const server = await startBrowserServer({ scenario: answers });
  const { client, workspace } = server;
  const models = (await client.listModels()).models.filter((model) => model.configured);
  const [cheap, dear] = [
    models.find(({ tier }) => tier === 'fast')!.id,
    models.find(({ tier }) => tier === 'deep')!.id,
  ];
  const db = new Database(path.join(workspace, '..', 'data', 'metis.db'));
  try {
    fill(db, workspace, { shapes, cheap, dear });
    const plan = db
      .prepare<[string, string, number], { detail: string }>(`EXPLAIN QUERY PLAN ${selectNewest('')}`)
      .all(workspace, '~', 50);
    expect(plan.map(({ detail }) => detail)).toEqual([expect.stringContaining('INDEX pattern_fingerprints_newest')]);
  } finally {
    db.close();
  }
  const answered: string[] = [];
  const [{ data }] = await Promise.all([
    client.getQuality({ workspace_path: workspace }).finally(() => answered.push('report')),
    ...['first', 'second'].map((name) => client.listModels().finally(() => answered.push(name))),
  ]);
  expect(answered.at(-1)).toBe('report');
  expect(data).toMatchObject({ shapes, comparisons_total: shapes });
  expect(data.comparisons).toHaveLength(100);
  const savings = data.comparisons.map(({ saving_per_turn_usd }) => Number(saving_per_turn_usd));
  expect(savings).toEqual(savings.toSorted((a, b) => b - a));
  const found = new Set<string>();
  for (let cursor: string | null | undefined; cursor !== null; ) {
    const page = await client.listPatterns({ workspace_path: workspace, limit: 200, ...(cursor && { cursor }) });
    for (const { fingerprint_id } of page.patterns) found.add(fingerprint_id);
    cursor = page.next_cursor;
  }
  expect(found.size).toBe(shapes);
});

/** Every shape ran on both models; the later, the more the cheap one saves. */
function fill(
  db: Database.Database,
  workspace: string,
  { shapes, cheap, dear }: { readonly shapes: number; readonly cheap: string; readonly dear: string },
): void {
  const ids = createIdGenerator(() => Date.now(), Math.random);
  const fingerprint = db.prepare('INSERT INTO pattern_fingerprints VALUES (?, ?, ?, ?, ?)');
  const outcome = db.prepare('INSERT INTO pattern_outcomes VALUES (?, ?, 0, ?, 1, 30, ?, 9e3, ?, ?, 30, 0, 0)');
  const turn = db.prepare('INSERT INTO pattern_turns VALUES (?, ?, ?, 0, 1, 0, 1, ?)');
  db.pragma('foreign_keys = OFF');
  db.transaction(() => {
    for (let n = 0; n < shapes; n += 1) {
      const id = ids.next();
      const { structural_json, structural_sig } = signFingerprint({
        file_extensions: [`.e${n}`],
        file_path_buckets: [],
        tool_names: [],
        side_effect_classes: [],
        has_images: false,
        has_tool_calls_in_history: false,
        estimated_input_tokens_bucket: 0,
        intent_tags: ['debug'],
        workspace_hash: 'w',
      });
      fingerprint.run(id, workspace, structural_json, structural_sig, n);
      for (const model of [cheap, dear]) {
        outcome.run(id, model, 30, (model === cheap ? 1 : 2 + n) * 30_000_000, 'A', n);
        turn.run(ids.turn(), id, model, Date.now());
      }
    }
  })();
}
