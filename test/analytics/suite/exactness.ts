// Money stays exact or the step fails as a whole.
import { describe, expect, it } from 'vitest';
import type { LlmCallCompleted } from '#protocol/event/turn-events.ts';
import { priceTableA } from '../../support/prices.ts';
import { type Call, HAIKU, NOW, type OpenWorld, type World } from '../world.ts';

const HOUR = 3_600_000;
/** As the databases say it. */
const OVERFLOW = /integer overflow|out of range/;

async function costing(world: World, amounts: readonly string[], workspace?: string): Promise<Call[]> {
  const session = await world.planner(workspace);
  return amounts.map((cost_usd) => ({ session, at: NOW - HOUR, model: HAIKU, over: { cost_usd } }));
}

const ROLLUPS = ['rollup_session_hour', 'rollup_parent_day', 'rollup_day', 'rollup_parent'];

const counts = (world: World) => Promise.all(['events', 'llm_calls', ...ROLLUPS].map((table) => world.count(table)));

export function exactnessSuite(openWorld: OpenWorld): void {
  describe('sums', () => {
    // Promise 07.3: Ten thousand tiny costs sum exactly.
    it('of ten thousand tiny costs are exact', async () => {
      const world = await openWorld();
      await world.record(
        await costing(
          world,
          Array.from({ length: 10_000 }, () => '0.0000001'),
        ),
      );
      expect((await world.none()).cost_usd).toBe('0.001');
      expect((await world.cost('group_by=model&pricing=stamped')).totals.call_count).toBe(10_000);
    });

    // Promise 01.12: A sum above 9007 dollars keeps its last digit.
    // Promise 07.3: The last digit survives where a double loses it.
    it('keep the last digit where a double would lose it', async () => {
      const world = await openWorld();
      await world.record(await costing(world, ['9007.199254740993', '0.000000000001']));
      expect((await world.none()).cost_usd).toBe('9007.199254740994');
      expect((await world.rows('group_by=session'))[0]?.cost_usd).toBe('9007.199254740994');
    });

    // Promise 07.3: A sum out of range is an explicit error.
    it('beyond the range of a column are an error, never a rounded or negative figure', async () => {
      const world = await openWorld();
      // Two trees in two workspaces, so that each rollup row is in range by itself.
      await world.record(await costing(world, ['5000000'], 'a'.repeat(64)));
      await world.record(await costing(world, ['5000000'], 'b'.repeat(64)));
      await expect(world.none()).rejects.toThrow(OVERFLOW);
      await expect(world.rows('group_by=model')).rejects.toThrow(OVERFLOW);
    });

    // Promise 01.28: A money column never holds a float; the batch fails as a whole.
    it('that would overflow a rollup row fail the batch, and no column ever holds a float', async () => {
      const world = await openWorld();
      const [first, second] = await costing(world, ['5000000', '5000000']);
      await world.record([first!]);
      const before = await counts(world);
      await expect(world.record([second!])).rejects.toThrow();
      expect(await counts(world)).toEqual(before);
      expect((await world.none()).cost_usd).toBe('5000000');
      for (const table of ['llm_calls', ...ROLLUPS]) {
        expect(await world.typesOf(table, 'cost_pusd')).toEqual(['integer']);
      }
    });
  });

  describe('the projection', () => {
    // Promise 07.4: An event id counts once.
    it('takes an event id once', async () => {
      const world = await openWorld();
      const session = await world.planner();
      const [event] = await world.record([
        { session, at: NOW - HOUR, model: HAIKU, prices: priceTableA(), tokens: { input_tokens: 7 } },
      ]);
      const before = await world.none();
      const stamp = {
        ...{
          parent_session_id: null,
          root_session_id: session.id,
          is_worker: false,
          workspace_hash: session.workspace_hash,
        },
        ...{ worker_name: '', delegated_by_model: '', delegation_tier: '', door: 'api', caller: '' },
        ...{ owner: '', share: 'read' },
      };
      const payload = event!.payload as LlmCallCompleted;
      const again = { id: event!.id, at: NOW - HOUR, session_id: session.id, turn_id: null, payload };
      // The one ignores it, the other refuses it.
      await world.project(again, stamp).catch(() => {});
      expect(await world.none()).toEqual(before);
      expect(await world.differences()).toEqual([]);
    });

    // Promise 07.4: A batch with an invalid second event leaves nothing behind.
    it('leaves no trace of a batch whose second event is invalid', async () => {
      const world = await openWorld();
      const [good, bad] = await costing(world, ['1', '1.0']);
      const before = await counts(world);
      await expect(world.record([good!, bad!])).rejects.toThrow('cost_usd');
      expect(await counts(world)).toEqual(before);
    });

    it('leaves no trace of a batch whose second event does not fit the ledger', async () => {
      const world = await openWorld();
      const calls = await costing(world, ['5000000', '5000000']);
      const before = await counts(world);
      await expect(world.record(calls)).rejects.toThrow();
      expect(await counts(world)).toEqual(before);
    });
  });

  describe('verifyRollups', () => {
    it('names a rollup row and a fact that were tampered with', async () => {
      const world = await openWorld();
      await world.record(await costing(world, ['1', '2']));
      expect(await world.differences()).toEqual([]);
      await world.execute('UPDATE rollup_session_hour SET calls = 3');
      expect(await world.differences()).toEqual([
        expect.stringContaining('rollup_session_hour lacks hour='),
        expect.stringContaining('calls=3'),
      ]);
      await world.execute('UPDATE rollup_session_hour SET calls = 2');
      await world.execute('DELETE FROM ledger_calls WHERE cost_pusd = 1000000000000');
      expect(await world.differences()).toContainEqual(expect.stringMatching(/^llm_calls lacks event /));
      await world.execute("UPDATE ledger_calls SET model = 'x:y'");
      expect(await world.differences()).toContainEqual(expect.stringMatching(/model is x:y, its event has/));
    });
  });
}
