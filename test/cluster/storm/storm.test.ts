// The storm: nodes die and rise while sessions work; afterwards every promise is held against the database (16.1 to 16.4).
import fs from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { silentLogger } from '#core/ports/logger.ts';
import { systemClock } from '#protocol/clock.ts';
import { openDatabase } from '#store/postgres/connection/open.ts';
import { verifyPostgresRollups } from '#store/postgres/write/postgres-maintenance.ts';
import { MIGRATIONS } from '../../store/postgres/world.ts';
import { type Account, accountOf, LOG } from '../../support/planned-work.ts';
import { natsService, postgresService } from '../../support/services.ts';
import { type Storm, storm } from './storm.ts';

const SECONDS = Number(process.env.STORM_SECONDS ?? 10);
const SESSIONS = Number(process.env.STORM_SESSIONS ?? 16);
const { url, missing } = await postgresService();
const nats = await natsService();

describe.skipIf(url === null)(`a storm of ${SECONDS} s${missing && `, skipped: ${missing}`}`, () => {
  let run: Storm;
  let account: Account;
  beforeAll(
    async () => {
      run = await storm({ database: url!, nats: nats.url, seconds: SECONDS, sessions: SESSIONS });
      account = await accountOf(run.nodes, run.work);
      const [takeovers] = await run.nodes.rows('SELECT coalesce(sum(owner_epoch - 1), 0) AS n FROM trees');
      const lines = {
        turns: run.turns.length,
        kills: run.kills,
        takeovers: Number(takeovers!.n),
        'calls paid': account.paid,
        'calls open at losses': run.openAtLosses,
        'calls paid twice': account.unpaid,
        'completed calls paid again': account.paidTwice.length,
        'events checked': run.subscribers.reduce((sum, { seen }) => sum + seen.length, 0),
        'connections broken': run.subscribers.reduce((sum, { breaks }) => sum + breaks, 0),
        'longest pause of a turn, s': (Math.max(...run.subscribers.map((s) => s.longestPause)) / 1000).toFixed(1),
        'quiet after, s': (run.quietAfter / 1000).toFixed(1),
      };
      const width = Math.max(...Object.keys(lines).map((name) => name.length));
      for (const [name, value] of Object.entries(lines))
        process.stdout.write(`| ${name.padEnd(width)} | ${String(value).padStart(8)} |\n`);
    },
    (SECONDS + 300) * 1000,
  );

  afterAll(() => run?.close());

  // Promise 16.1: a storm of kills: every turn has one end, a completed one, and afterwards nothing is wanted or owned.
  test('every turn has one end, a completed one, and nothing is wanted or owned any more', async () => {
    expect(run.kills).toBeGreaterThan(0);
    expect(run.turns.length).toBeGreaterThanOrEqual(SESSIONS);
    expect(account.turns).toEqual({ 'completed end_turn': run.turns.length });
    expect(account.unended).toEqual([]);
    expect(await run.nodes.rows('SELECT 1 FROM trees WHERE wanted OR owner_node IS NOT NULL')).toEqual([]);
  });

  // Promise 16.2: a storm: each stored answer is in the ledger once with its cost, rollups equal facts, and only calls open when their node was lost were asked again.
  test('each stored answer is paid once with its cost, and only calls that were open when their node was lost were asked again', async () => {
    expect(account.paidTwice).toEqual([]);
    expect(account.unpaid).toBeLessThanOrEqual(run.openAtLosses);
    const [answers] = await run.nodes.rows(
      "SELECT count(*) AS n FROM messages WHERE role = 'assistant' AND status = 'complete'",
    );
    expect(Number(answers!.n)).toBe(account.paid);
    const wrong = await run.nodes.rows(`
      SELECT model, input_tokens, output_tokens, cost_pusd FROM llm_calls
      WHERE cost_pusd <> CASE model
        WHEN 'anthropic:claude-opus-4-7' THEN input_tokens * 15000000 + output_tokens * 75000000
        WHEN 'anthropic:claude-haiku-4-5' THEN input_tokens * 1000000 + output_tokens * 5000000
        WHEN 'openai:gpt-5-mini' THEN input_tokens * 500000 + output_tokens * 2000000 END`);
    expect(wrong).toEqual([]);
    const pool = await openDatabase({
      url: run.nodes.schema.url,
      size: 2,
      synchronousCommit: 'on',
      log: silentLogger,
      migrationsDir: MIGRATIONS,
      clock: systemClock,
    });
    try {
      expect(await verifyPostgresRollups(pool)).toEqual([]);
    } finally {
      await pool.close();
    }
  });

  // Promise 16.2: a storm: one worker a call, no command twice, every call answered.
  test('one worker a call, no command twice, every tool call answered', async () => {
    expect(account.strayWorkers).toEqual([]);
    expect(await run.nodes.rows('SELECT id FROM tool_calls WHERE result_message_id IS NULL')).toEqual([]);
    for (let i = 0; i < SESSIONS; i++) {
      const file = path.join(run.nodes.root, `s${i}`, LOG);
      const lines = fs.existsSync(file) ? fs.readFileSync(file, 'utf8').split('\n').filter(Boolean) : [];
      expect(lines).toEqual([...new Set(lines)]);
    }
  });

  // Promise 16.3: a storm: each subscriber, reconnecting to any node, saw its tree's stored events ascending and once.
  test('each subscriber saw the stored events of its tree, ascending and once', async () => {
    const rows = await run.nodes.rows(
      'SELECT s.root_session_id AS root, e.id FROM events e JOIN sessions s ON s.id = e.session_id ORDER BY e.id',
    );
    const stored = new Map<string, string[]>();
    for (const { root, id } of rows) stored.set(root!, [...(stored.get(root!) ?? []), id!]);
    expect(run.subscribers.flatMap(({ faults }) => faults)).toEqual([]);
    for (const { session, since, seen } of run.subscribers) {
      // It heard the end of its last turn; what is learned of that comes behind, while the nodes go down.
      const until = seen.at(-1) ?? '';
      expect(seen).toEqual(stored.get(session)!.filter((id) => id > (since ?? '') && id <= until));
    }
  });

  // Promise 16.4: a storm with clocks an hour ahead and behind: ids rise with the commits of a tree, parents are smaller, no cursor expires.
  test('with clocks an hour apart, ids rise with the commits of each tree, and causes come first', async () => {
    const [noted] = await run.nodes.rows('SELECT count(*) AS n FROM storm_seq');
    expect(Number(noted!.n)).toBeGreaterThan(run.turns.length * 10);
    const disorder = await run.nodes.rows(`
      SELECT root, seq FROM (
        SELECT root, seq, min(event_id) AS low, lag(max(event_id)) OVER (PARTITION BY root ORDER BY seq) AS before
        FROM storm_seq GROUP BY root, seq) s WHERE before >= low`);
    expect(disorder).toEqual([]);
    expect(await run.nodes.rows('SELECT event_id FROM storm_seq WHERE parent >= event_id')).toEqual([]);
  });
});
