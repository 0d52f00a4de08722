// Money in the store: projected once, summed exactly, refused before it could overflow (01 §11.2, 07 §9).
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { LlmCallCompleted } from '#protocol/event/turn-events.ts';
import { draft } from '#protocol/event.ts';
import { fromPusd, toPusd } from '#protocol/money.ts';
import { callCompleted } from '../../support/drafts.ts';
import { MODEL } from '../../support/messages.ts';
import { endTurn, storedSession, storedTurn, storedWorker } from './nouns.ts';
import { NOON, type OpenStore } from './world.ts';

const HOUR = 3_600_000;
const RUNS = 25;

const inOneLine = (row: Record<string, unknown>) => Object.values(row).join(' ');

export function ledgerSuite(openWorld: OpenStore): void {
  describe('ledger', () => {
    test('a finished call gives one fact with its session’s stamp, in the transaction of its event', async () => {
      const world = await openWorld();
      const planner = await storedSession(world);
      const turn = await storedTurn(world, planner);
      const worker = await storedWorker(world, planner, turn, { worker_name: 'reviewer' });
      const [event] = await world.journal.commit({
        emit: [callCompleted(world, worker, null, { cost_usd: '0.000001' })],
      });
      expect(await world.rows('SELECT * FROM llm_calls')).toEqual([
        expect.objectContaining({
          event_id: event?.id,
          ts_ms: BigInt(NOON),
          session_id: worker.id,
          root_session_id: planner.id,
          parent_session_id: planner.id,
          parent_key: planner.id,
          is_worker: 1n,
          workspace_hash: planner.workspace_hash,
          delegation_tier: 'fast',
          worker_name: 'reviewer',
          delegated_by_model: MODEL,
          model: MODEL,
          input_tokens: 100n,
          output_tokens: 7n,
          cost_pusd: 1_000_000n,
        }),
      ]);
      expect(await world.rows('SELECT hour, calls, cost_pusd FROM rollup_session_hour')).toEqual([
        { hour: BigInt(Math.floor(NOON / HOUR)), calls: 1n, cost_pusd: 1_000_000n },
      ]);
      expect(await world.rows('SELECT parent_key, delegation_tier, calls FROM rollup_parent_day')).toEqual([
        { parent_key: planner.id, delegation_tier: 'fast', calls: 1n },
      ]);
    });

    test('a fact says by which door and for whom the call was made, its hour too; the session its last model', async () => {
      const world = await openWorld();
      const session = await storedSession(world, { door: 'gateway', caller: 'ci' });
      await world.journal.commit({ emit: [callCompleted(world, session, null, { purpose: 'gateway' })] });
      const stamped = { door: 'gateway', caller: 'ci' };
      expect(await world.rows('SELECT door, caller FROM llm_calls')).toEqual([stamped]);
      expect(await world.rows('SELECT door, caller FROM session_hours')).toEqual([stamped]);
      expect(await world.store.sessions.view(session.id)).toMatchObject({ door: 'gateway', last_model: MODEL });
    });

    // Promise 01.25: a cut call with known usage costs, a failed one does not.
    test('a call that was cut with known usage costs; one that failed does not', async () => {
      const world = await openWorld();
      const session = await storedSession(world);
      const failed = draft({
        type: 'llm.call_failed',
        session_id: session.id,
        turn_id: null,
        parent: null,
        payload: {
          model: MODEL,
          provider: 'anthropic',
          error_class: 'cancelled',
          error_message_redacted: '',
          retry_count: 0,
          latency_ms: 3,
          request_id: world.ids.request(),
          is_worker: false,
          parent_session_id: null,
          root_session_id: session.id,
        },
      });
      const cut = { stop_reason: 'cancelled', error_class: 'cancelled', cost_usd: '0.02' } as const;
      await world.journal.commit({ emit: [callCompleted(world, session, null, cut), failed] });
      expect((await world.store.sessions.view(session.id))?.cost_so_far_usd).toBe('0.02');
      expect(await world.rows('SELECT cancelled FROM llm_calls')).toEqual([{ cancelled: 1n }]);
    });

    // Promise 01.11: sums of the smallest costs are exact.
    test('four million calls of one token at $0.25 per million sum to exactly one dollar', async () => {
      const world = await openWorld();
      const session = await storedSession(world);
      for (let batch = 0; batch < 4; batch++) {
        const emit = Array.from({ length: 100 }, () => callCompleted(world, session, null, { cost_usd: '0.00000025' }));
        await world.journal.commit({ emit });
      }
      expect((await world.store.sessions.view(session.id))?.cost_so_far_usd).toBe('0.0001');
      const [sum] = await world.rows(`
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4000000)
    SELECT sum(cost_pusd) AS cost_pusd FROM (SELECT cost_pusd FROM llm_calls LIMIT 1) AS fact CROSS JOIN n`);
      expect(fromPusd(BigInt(String(sum?.cost_pusd)))).toBe('1');
    });

    // Promise 01.12: sums above $9007 keep their last digit.
    test('sums above $9007 keep their last digit in every read', async () => {
      const world = await openWorld();
      const planner = await storedSession(world);
      const turn = await storedTurn(world, planner);
      const worker = await storedWorker(world, planner, turn);
      await world.journal.commit({
        emit: [
          callCompleted(world, planner, turn, { cost_usd: '9007.199254740992' }),
          callCompleted(world, planner, turn, { cost_usd: '0.000000000001' }),
          callCompleted(world, worker, null, { cost_usd: '90071.992547409931' }),
        ],
      });
      expect(await world.store.sessions.view(planner.id)).toMatchObject({
        cost_so_far_usd: '9007.199254740993',
        workers_cost_usd: '90071.992547409931',
      });
      expect((await world.store.turns.view(planner.id, turn.id))?.total_cost_usd).toBe('9007.199254740993');
      const { rows } = await world.store.delegations.list(planner.id, { recursive: false, after: null, limit: 10 });
      expect(rows[0]?.usage_summary.cost_usd).toBe('90071.992547409931');
      expect(await world.store.spend.sumTree(planner.id)).toBe(toPusd('99079.191802150924'));
      expect(await world.store.spend.since(NOON)).toBe(toPusd('99079.191802150924'));
    });

    // Promise 21.8: both databases sum the runs of an experiment, with their workers, each once, and no other session.
    test('the money of an experiment is that of its runs and their workers, each once', async () => {
      const world = await openWorld();
      const experiment = { id: 'e'.repeat(64), max_cost_usd: '3', tiers: null, delegate: true };
      const runs = [await storedSession(world, { experiment }), await storedSession(world, { experiment })];
      const turn = await storedTurn(world, runs[0]!);
      const worker = await storedWorker(world, runs[0]!, turn, { experiment });
      const other = await storedSession(world, { experiment: { ...experiment, id: 'f'.repeat(64) } });
      const none = await storedSession(world);
      expect(await world.store.spend.sumExperiment(experiment.id)).toBe(0n);
      expect((await world.store.sessions.record(worker.id))?.experiment).toEqual(experiment);
      await world.journal.commit({
        emit: [
          callCompleted(world, runs[0]!, turn, { cost_usd: '0.000000000001' }),
          callCompleted(world, runs[1]!, null, { cost_usd: '0.2', model: 'scripted:deep', provider: 'scripted' }),
          callCompleted(world, worker, null, { cost_usd: '0.03' }),
          callCompleted(world, other, null, { cost_usd: '4' }),
          callCompleted(world, none, null, { cost_usd: '5' }),
        ],
      });
      expect(await world.store.spend.sumExperiment(experiment.id)).toBe(toPusd('0.230000000001'));
      // A purge takes no money out of it: that of a run, of its workers, and of each run once.
      await endTurn(world, turn, { status: 'failed' });
      await world.journal.purge(runs[0]!.id);
      expect(await world.store.spend.sumExperiment(experiment.id)).toBe(toPusd('0.230000000001'));
      expect(await world.store.sessions.record(runs[0]!.id)).toBeNull();
      expect((await world.store.sessions.limit(runs[1]!.id))?.experiment).toEqual(experiment);
      expect((await world.store.sessions.view(none.id))?.experiment).toBeNull();
    });

    test('a limit above $9007 is kept to its last digit', async () => {
      const world = await openWorld();
      const session = await storedSession(world, { max_cost_pusd: toPusd('9007199.254743') });
      expect((await world.store.sessions.record(session.id))?.max_cost_pusd).toBe(toPusd('9007199.254743'));
    });

    // Promise 01.28: a sum past 64 bits fails as a whole; money is never a REAL.
    // Promise 08.19: a cost beyond the money column is refused on storage, as a whole.
    test('a cost that would take a sum past 64 bits fails its batch as a whole, and no money column holds a REAL', async () => {
      const world = await openWorld();
      const session = await storedSession(world, { max_cost_pusd: toPusd('5') });
      const turn = await storedTurn(world, session);
      await world.journal.commit({ emit: [callCompleted(world, session, turn, { cost_usd: '9000000' })] });
      const classes = await world.moneyTypes();
      for (const cost_usd of ['9000000', '223372.036854775808', '10000000']) {
        await expect(
          world.journal.commit({ emit: [callCompleted(world, session, turn, { cost_usd })] }),
        ).rejects.toThrow();
      }
      expect(await world.count('events')).toBe(1);
      expect(await world.count('llm_calls')).toBe(1);
      expect(await world.differences()).toEqual([]);
      expect(await world.moneyTypes()).toEqual(classes);
      expect(Object.keys(classes)).toEqual(
        expect.arrayContaining(['rollup_parent_day.cost_pusd', 'rollup_day.cost_pusd', 'rollup_parent.cost_pusd']),
      );
      expect(Object.values(classes).flat()).not.toContain('real');
      // Up to the limit itself nothing is lost.
      await world.journal.commit({ emit: [callCompleted(world, session, turn, { cost_usd: '223372.036854775807' })] });
      expect((await world.store.sessions.view(session.id))?.cost_so_far_usd).toBe('9223372.036854775807');
      expect(world.logged.every((line) => line.level === 'error')).toBe(true);
    });

    test('spend since a moment takes whole days from the rollup and the first part of a day from the facts', async () => {
      const world = await openWorld();
      const session = await storedSession(world);
      const midnight = Date.parse('2026-05-09T00:00:00.000Z');
      for (const [at, cost_usd] of [
        [NOON, '1'],
        [midnight - 1, '2'],
        [midnight, '4'],
        [midnight + 30 * HOUR, '8'],
      ] as const) {
        world.time.now = at;
        await world.journal.commit({ emit: [callCompleted(world, session, null, { cost_usd })] });
      }
      const since = async (from: number) => fromPusd(await world.store.spend.since(from));
      expect(await since(NOON)).toBe('15');
      expect(await since(NOON + 1)).toBe('14');
      expect(await since(midnight)).toBe('12');
      expect(await since(midnight + 1)).toBe('8');
    });

    test('simulated calls are no spend of a day, and mark their session', async () => {
      const world = await openWorld();
      const [real, played] = [await storedSession(world), await storedSession(world)];
      world.time.now = NOON;
      await world.journal.commit({
        emit: [
          callCompleted(world, real, null, { cost_usd: '1' }),
          callCompleted(world, played, null, { cost_usd: '2', model: 'scripted:deep', provider: 'scripted' }),
        ],
      });
      expect(fromPusd(await world.store.spend.since(NOON))).toBe('1');
      expect(fromPusd(await world.store.spend.since(NOON - 24 * HOUR))).toBe('1');
      expect(await world.store.sessions.view(real.id)).toMatchObject({ has_simulated_calls: false });
      expect(await world.store.sessions.view(played.id)).toMatchObject({
        has_simulated_calls: true,
        cost_so_far_usd: '2',
      });
    });

    // Promise 19.9: a key's day begins with its first hour.
    test("a key's spend of a day begins with its first hour, and is of that key alone", async () => {
      const world = await openWorld();
      const ci = await storedSession(world, { door: 'gateway', caller: 'ci' });
      const other = await storedSession(world, { door: 'gateway', caller: 'cj' });
      const midnight = Date.parse('2026-05-09T00:00:00.000Z');
      for (const [at, session, cost_usd] of [
        [midnight - 1, ci, '1'],
        [midnight, ci, '2'],
        [midnight + HOUR - 1, ci, '4'],
        [midnight, other, '8'],
        [midnight + 5 * HOUR, ci, '16'],
      ] as const) {
        world.time.now = at;
        await world.journal.commit({ emit: [callCompleted(world, session, null, { cost_usd })] });
      }
      expect(fromPusd(await world.store.spend.sumCaller('ci', midnight))).toBe('22');
      expect(fromPusd(await world.store.spend.sumCaller('cj', midnight))).toBe('8');
    });

    // Promise 01.23: rollups can be made again from the ledger, row for row; pruning moves no cost.
    test('emptied rollups are rebuilt to identical rows, and pruning changes no cost', async () => {
      const world = await openWorld();
      const planner = await storedSession(world);
      const turn = await storedTurn(world, planner);
      const worker = await storedWorker(world, planner, turn);
      for (let i = 0; i < 30; i++) {
        world.time.now = NOON + i * 5 * HOUR;
        const over = {
          model: i % 2 ? 'openai:b' : MODEL,
          priced: i % 3 > 0,
          cost_usd: `0.00${i + 1}`.replace(/0$/, ''),
        };
        await world.journal.commit({ emit: [callCompleted(world, i % 4 ? worker : planner, null, over)] });
      }
      const tables = ['rollup_session_hour', 'rollup_parent_day', 'rollup_day', 'rollup_parent'];
      const rollups = () =>
        Promise.all(tables.map(async (table) => (await world.rows(`SELECT * FROM ${table}`)).map(inOneLine).sort()));
      const before = await rollups();
      const view = await world.store.sessions.view(planner.id);
      await world.journal.prune(world.time.now + 1, false);
      expect(await world.store.sessions.view(planner.id)).toEqual(view);
      for (const table of tables) await world.execute(`DELETE FROM ${table}`);
      expect(await world.differences()).not.toEqual([]);
      await world.rebuildRollups();
      expect(await rollups()).toEqual(before);
    });

    test('property: at every commit each rollup is the aggregate of the ledger, whatever is refused in between', {
      timeout: 60_000,
    }, async () => {
      const call = fc.record({
        who: fc.nat({ max: 3 }),
        model: fc.constantFrom('a:x', 'b:y'),
        hours: fc.nat({ max: 50 }),
        cost_usd: fc.bigInt({ min: 0n, max: 3n * 10n ** 18n }).map((pusd) => fromPusd(pusd)),
        priced: fc.boolean(),
        cancelled: fc.boolean(),
        tokens: fc.nat({ max: 2 ** 31 }),
        poison: fc.boolean(),
      });
      await fc.assert(
        fc.asyncProperty(
          fc.array(fc.array(call, { minLength: 1, maxLength: 4 }), { maxLength: 12 }),
          async (batches) => {
            const world = await openWorld();
            const planner = await storedSession(world);
            const turn = await storedTurn(world, planner);
            const sessions = [
              planner,
              await storedWorker(world, planner, turn),
              await storedWorker(world, planner, turn, { worker_name: 'w' }),
              await storedSession(world),
            ];
            const settled: PromiseSettledResult<unknown>[] = [];
            const atDelivery: Promise<readonly string[]>[] = [];
            world.bus.subscribe('verify', () => void atDelivery.push(world.differences()));
            for (let i = 0; i < batches.length; i += 2) {
              const commits = batches.slice(i, i + 2).map((calls) => {
                const emit = calls.map(({ who, model, cost_usd, priced, cancelled, tokens }) => {
                  const over: Partial<LlmCallCompleted> = {
                    model,
                    cost_usd,
                    priced,
                    stop_reason: cancelled ? 'cancelled' : 'end_turn',
                    cached_input_tokens: tokens,
                  };
                  return callCompleted(world, sessions[who] ?? planner, null, over);
                });
                world.time.now = NOON + (calls[0]?.hours ?? 0) * HOUR;
                const writes = calls[0]?.poison ? [{ kind: 'session.insert', session: planner } as const] : [];
                return world.journal.commit({ writes, emit });
              });
              settled.push(...(await Promise.allSettled(commits)));
              expect(await world.differences()).toEqual([]);
            }
            const accepted = settled.flatMap((r, i) => (r.status === 'fulfilled' ? (batches[i] ?? []) : []));
            expect(await world.count('llm_calls')).toBe(accepted.length);
            const total = accepted.reduce((sum, { cost_usd }) => sum + toPusd(cost_usd), 0n);
            const facts = (await world.rows('SELECT cost_pusd FROM llm_calls')).reduce(
              (sum, row) => sum + (row.cost_pusd as bigint),
              0n,
            );
            expect(facts).toBe(total);
            expect(Object.values(await world.moneyTypes()).flat()).not.toContain('real');
            expect((await Promise.all(atDelivery)).flat()).toEqual([]);
            await world.close();
          },
        ),
        { numRuns: RUNS },
      );
    });

    test('the newest call of a worker is the one stored last, also after a clock was set back', async () => {
      const world = await openWorld();
      const planner = await storedSession(world);
      const turn = await storedTurn(world, planner);
      const worker = await storedWorker(world, planner, turn);
      const first = { model: 'anthropic:claude-opus-4-7', pricing_version: 'A' };
      const second = { model: 'anthropic:claude-haiku-4-5', pricing_version: 'B' };
      await world.journal.commit({ emit: [callCompleted(world, worker, null, first)] });
      world.time.now -= 3_600_000;
      await world.journal.commit({ emit: [callCompleted(world, worker, null, second)] });
      expect(await world.store.delegations.usage(worker.id)).toMatchObject(second);
    });
  });
}
