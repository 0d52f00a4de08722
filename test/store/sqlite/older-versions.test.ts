// A database of every released version opens in this one with all it held.
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { gunzipSync } from 'node:zlib';
import Database from 'better-sqlite3';
import { expect, test } from 'vitest';
import type { SessionId } from '#protocol/ids.ts';
import { toPusd } from '#protocol/money.ts';
import { canonicalJson, sha256Hex } from '#protocol/text/canonical-json.ts';
import { verifySqliteRollups } from '#store/sqlite/write/sqlite-maintenance.ts';
import { openWorld, tempFolder } from './world.ts';

const FIXTURES = resolve(import.meta.dirname, '../../fixtures');
const versions = readdirSync(FIXTURES).flatMap((name) => /^(.*)\.db\.gz$/.exec(name)?.[1] ?? []);

/** What the version's own `npm run gen:database` read out of its file. */
interface Held {
  readonly sessions: readonly {
    readonly id: SessionId;
    readonly cost_pusd: string;
    readonly messages: readonly { readonly id: string; readonly role: string; readonly content: string }[];
  }[];
  readonly open_turns: readonly { readonly id: string; readonly session_id: string }[];
  readonly open_delegations: readonly string[];
}

test('there is a database of each release', () => {
  const changes = readFileSync(resolve(FIXTURES, '../../CHANGELOG.md'), 'utf8');
  const released = [...changes.matchAll(/^## \[(\d+\.\d+\.\d+)\]/gm)].map(([, version]) => version);
  expect(released[0]).toBe(JSON.parse(readFileSync(resolve(FIXTURES, '../../package.json'), 'utf8')).version);
  expect(versions.sort()).toEqual(['0.1.0', ...released].sort());
});

test.each(versions)('%s: messages, costs and open turns are those it was left with', async (version) => {
  const held = JSON.parse(readFileSync(join(FIXTURES, `${version}.json`), 'utf8')) as Held;
  const file = join(tempFolder(), 'metis.db');
  writeFileSync(file, gunzipSync(readFileSync(join(FIXTURES, `${version}.db.gz`))));
  const before = new Database(file, { readonly: true });
  const views = { llm_calls: 'llm_calls', rollup_session_hour: 'session_hours', events: 'events' };
  const money = Object.entries(views).map(([table, view]) => {
    const columns = before.pragma(`table_info(${table})`) as { readonly name: string }[];
    const rows = (name: string) => `SELECT ${columns.map((c) => c.name).join(', ')} FROM ${name} ORDER BY 1, 2, 3`;
    return { view: rows(view), rows: before.prepare(rows(table)).all() };
  });
  before.close();
  const { store, handle } = openWorld(file);
  for (const { view, rows } of money) {
    expect(rows).not.toEqual([]);
    expect(handle.reader.prepare(view).all()).toEqual(rows);
  }

  const found: Held['sessions'][number][] = [];
  for (const { id } of held.sessions) {
    const history = await store.messages.history(id);
    const messages = history.map((m) => ({ id: m.id, role: m.role, content: sha256Hex(canonicalJson(m.content)) }));
    const view = await store.sessions.view(id);
    found.push({ id, cost_pusd: toPusd(view!.cost_so_far_usd).toString(), messages });
  }
  expect(found).toEqual(held.sessions);
  expect(held.sessions.some(({ cost_pusd }) => cost_pusd !== '0')).toBe(true);

  const open = await store.turns.allOpen();
  const byId = (a: { id: string }, b: { id: string }) => (a.id < b.id ? -1 : 1);
  expect(open.map(({ id, session_id }) => ({ id, session_id })).sort(byId)).toEqual(held.open_turns);
  expect((await store.delegations.allOpen()).map((d) => d.tool_use_id)).toEqual(held.open_delegations);
  expect(held.open_turns).toHaveLength(2);
  expect(verifySqliteRollups(handle.reader)).toEqual([]);
});

// Promise 12.28: an outcome of before is summed again over its turns, those of workers and top-level ones apart.
test('0.2.0: what was learned is split by the kind of session, to the last picodollar', () => {
  const file = join(tempFolder(), 'metis.db');
  writeFileSync(file, gunzipSync(readFileSync(join(FIXTURES, '0.2.0.db.gz'))));
  const before = new Database(file);
  before.exec(`
    INSERT INTO pattern_fingerprints VALUES ('f', '/w', '{}', 'sig', 1);
    INSERT INTO pattern_outcomes SELECT 'f', 'm', count(*), 0.5, count(*), 1, 1.0, 'v', 7 FROM turns;
    INSERT INTO pattern_turns (turn_id, session_id, workspace_path, fingerprint_id, primary_model, score, recorded_at)
    SELECT id, session_id, '/w', 'f', 'm', 0.5, 7 FROM turns;`);
  const expected = before
    .prepare(
      `SELECT s.is_worker, count(*) AS n,
        CAST(sum((SELECT coalesce(sum(c.cost_pusd), 0) FROM llm_calls c WHERE c.turn_id = t.id)) AS TEXT) AS cost
      FROM turns t JOIN sessions s ON s.id = t.session_id GROUP BY s.is_worker ORDER BY s.is_worker`,
    )
    .all() as { readonly is_worker: number; readonly n: number; readonly cost: string }[];
  before.close();
  expect(expected.map(({ is_worker }) => is_worker)).toEqual([0, 1]);
  const { handle } = openWorld(file);
  const kept = handle.db
    .prepare(
      `SELECT is_worker, sample_size AS n, cost_count, CAST(sum_cost_pusd AS TEXT) AS cost, success_score_mean AS mean,
        (SELECT count(*) FROM pattern_turns p WHERE p.is_worker = o.is_worker AND p.has_cost = 1) AS turns
      FROM pattern_outcomes o ORDER BY is_worker`,
    )
    .all();
  expect(kept).toEqual(expected.map((one) => ({ ...one, cost_count: one.n, turns: one.n, mean: 0.5 })));
});
