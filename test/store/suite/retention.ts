// Purge and prune: what goes, what stays, and that no cost figure moves (01 §7.4, 02 §6).
import { describe, expect, test } from 'vitest';
import type { SessionId } from '#protocol/ids.ts';
import { callCompleted, systemEvent } from '../../support/drafts.ts';
import { confirmation, toolMessage } from '../../support/records.ts';
import { endTurn, storedSession, storedToolUse, storedTurn, storedWorker } from './nouns.ts';
import { NOON, type OpenStore, type World } from './world.ts';

const DAY = 86_400_000;

/** A planner with two workers, all with turns, calls, prompts, events and costs; every turn has ended. */
async function tree(world: World) {
  const planner = await storedSession(world);
  const turn = await storedTurn(world, planner);
  const workers = [await storedWorker(world, planner, turn), await storedWorker(world, planner, turn)];
  const turns = [turn];
  for (const worker of workers) turns.push(await storedTurn(world, worker));
  for (const [i, session] of [planner, ...workers].entries()) {
    const own = turns[i] ?? turn;
    const call = await storedToolUse(world, own);
    await world.journal.commit({
      writes: [
        { kind: 'message.insert', message: toolMessage(world, own, call.id) },
        { kind: 'confirmation.insert', confirmation: confirmation(world, own, planner.id) },
      ],
      emit: [callCompleted(world, session, own), systemEvent('x', { session_id: session.id, turn_id: own.id })],
    });
  }
  await world.journal.commit({
    writes: [
      {
        kind: 'idempotency.insert',
        row: {
          method: 'POST',
          path: `/sessions/${planner.id}/turns`,
          token_hash: '',
          key: 'k',
          session_id: planner.id,
          body_hash: 'h',
          status: 202,
          response_json: '{}',
          expires_at: world.time.now + DAY,
        },
      },
    ],
    emit: [],
  });
  await world.execute(
    "INSERT INTO worker_definitions VALUES (?, 'w', ?, 'tu', 'yaml', NULL, 'd', 0, 0)",
    planner.id,
    planner.id,
  );
  await world.execute(
    "INSERT INTO compaction_checkpoints VALUES (?, ?, 'elide', '[]', NULL, NULL, 2, 1, NULL, 0)",
    world.ids.next(),
    workers[0]?.id,
  );
  for (const own of turns.reverse()) await endTurn(world, own, CANCELLED);
  return { planner, workers, ids: [planner.id, ...workers.map((worker) => worker.id)] };
}

/** With a worker open a turn cannot complete. */
const CANCELLED = { status: 'cancelled', stop_reason: null, cancel_reason: 'user_cancel' } as const;

const CONTENT = [
  'sessions',
  'turns',
  'messages',
  'tool_calls',
  'delegations',
  'confirmations',
  'events',
  'event_sessions',
  'worker_definitions',
  'compaction_checkpoints',
  'idempotency_keys',
];
const MONEY = ['llm_calls', 'rollup_session_hour', 'rollup_parent_day', 'rollup_day', 'rollup_parent'];
async function dump(world: World, tables: readonly string[]) {
  const held: Record<string, unknown> = {};
  for (const table of tables) held[table] = await world.rows(`SELECT * FROM ${table}`);
  return held;
}

export function retentionSuite(openWorld: OpenStore): void {
  describe('retention', () => {
    // Promise 01.22: a purge takes a whole tree and leaves every cost figure.
    test('purging a planner with two workers leaves nothing of the three but their cost', async () => {
      const world = await openWorld();
      const kept = await storedSession(world);
      await world.journal.commit({ emit: [callCompleted(world, kept, null), systemEvent('keep')] });
      const before = await dump(world, CONTENT);
      const { planner, ids } = await tree(world);
      await world.store.messages.history(planner.id);
      const money = await dump(world, MONEY);
      expect(await world.journal.purge(planner.id)).toBe(3);
      expect(await dump(world, CONTENT)).toEqual(before);
      expect(await dump(world, MONEY)).toEqual(money);
      expect(await world.differences()).toEqual([]);
      expect(await world.store.messages.history(planner.id)).toEqual([]);
      for (const id of ids) {
        expect(await world.store.sessions.view(id)).toBeNull();
        await expect(world.journal.commit({ emit: [systemEvent('late', { session_id: id })] })).rejects.toThrow(
          /no session/,
        );
      }
      expect(await world.journal.purge(planner.id)).toBe(0);
    });

    // Promise 01.22: a worker alone is not purged.
    test('a worker alone is not purged, nor a session with a turn that runs', async () => {
      const world = await openWorld();
      const { workers } = await tree(world);
      await expect(world.journal.purge(workers[0]?.id ?? world.ids.session())).rejects.toMatchObject({
        code: 'session_is_worker',
      });
      const busy = await storedSession(world);
      await storedTurn(world, busy);
      await expect(world.journal.purge(busy.id)).rejects.toMatchObject({ code: 'turn_in_flight' });
      expect(await world.count('sessions')).toBe(4);
    });

    test('a purge keeps its place between the commits before and after it', async () => {
      const world = await openWorld();
      const session = await storedSession(world);
      const results = await Promise.allSettled([
        world.journal.commit({ emit: [systemEvent('before', { session_id: session.id })] }),
        world.journal.purge(session.id),
        world.journal.commit({ emit: [systemEvent('after', { session_id: session.id })] }),
      ]);
      expect(results.map((r) => r.status)).toEqual(['fulfilled', 'fulfilled', 'rejected']);
      expect(await world.count('events')).toBe(0);
    });

    async function oldAndNew(world: World) {
      const old = await storedSession(world);
      const busy = await storedSession(world);
      const turn = await storedTurn(world, busy);
      const emit = Array.from({ length: 40 }, () => systemEvent('x', { session_id: old.id }));
      await world.journal.commit({ emit: [...emit, systemEvent('system'), callCompleted(world, old, null)] });
      await world.journal.commit({ emit: [callCompleted(world, busy, turn), callCompleted(world, busy, turn)] });
      world.time.now = NOON + 10 * DAY;
      await world.journal.commit({ emit: [systemEvent('new'), systemEvent('new', { session_id: old.id })] });
      return { old, busy };
    }

    // Promise 02.11: pruning spares sessions with an open turn, a dry run counts the same, costs stay.
    test('pruning deletes old events but those of a session with an open turn; a dry run counts the same and does nothing', async () => {
      const world = await openWorld();
      const { old, busy } = await oldAndNew(world);
      const cutoff = NOON + DAY;
      const stored = await dump(world, ['events', 'meta', ...MONEY]);
      const dry = await world.journal.prune(cutoff, true);
      expect(dry).toEqual({ cutoff, rows_deleted: 42, sessions_skipped: 1, oldest_kept: NOON });
      expect(await dump(world, ['events', 'meta', ...MONEY])).toEqual(stored);

      const costs = [await world.store.sessions.view(old.id), await world.store.sessions.view(busy.id)];
      const greatest = await world.rows(
        'SELECT id, session_id FROM events WHERE timestamp_ms < ? AND session_id <> ? ORDER BY id DESC LIMIT 1',
        cutoff,
        busy.id,
      );
      expect(await world.journal.prune(cutoff, false)).toEqual(dry);
      expect(await world.count('events')).toBe(4);
      expect(await world.rows('SELECT DISTINCT session_id FROM events WHERE timestamp_ms < ?', cutoff)).toEqual([
        { session_id: busy.id },
      ]);
      expect(await world.store.events.prunedThrough(greatest[0]?.session_id as SessionId)).toBe(greatest[0]?.id);
      expect([await world.store.sessions.view(old.id), await world.store.sessions.view(busy.id)]).toEqual(costs);
      expect(await dump(world, MONEY)).toEqual(Object.fromEntries(MONEY.map((table) => [table, stored[table]])));
      expect(await world.journal.prune(cutoff, false)).toMatchObject({ rows_deleted: 0 });
      expect(await world.store.events.prunedThrough(greatest[0]?.session_id as SessionId)).toBe(greatest[0]?.id);
    });

    test('an ended worker of a tree with an open turn keeps its events until that turn has ended', async () => {
      const world = await openWorld();
      const planner = await storedSession(world);
      const turn = await storedTurn(world, planner);
      const worker = await storedWorker(world, planner, turn);
      await world.journal.commit({ emit: [systemEvent('x', { session_id: worker.id })] });
      expect(await world.journal.prune(NOON + 1, false)).toMatchObject({ rows_deleted: 0, sessions_skipped: 1 });
      await endTurn(world, turn, CANCELLED);
      expect(await world.journal.prune(NOON + 1, false)).toMatchObject({ rows_deleted: 1, sessions_skipped: 0 });
    });

    // Promise 02.11: an empty database prunes to nothing.
    test('pruning an empty database deletes nothing and knows no oldest event', async () => {
      const world = await openWorld();
      expect(await world.journal.prune(NOON, false)).toEqual({
        cutoff: NOON,
        rows_deleted: 0,
        sessions_skipped: 0,
        oldest_kept: null,
      });
      expect(await world.store.events.prunedThrough(world.ids.session())).toBeNull();
    });

    test('more rows than one slice are pruned in several transactions, and commits go between them', async () => {
      const world = await openWorld();
      for (let i = 0; i < 12; i++) {
        await world.journal.commit({ emit: Array.from({ length: 1000 }, () => systemEvent('x')) });
      }
      const leftAtCommit: Promise<number>[] = [];
      world.bus.subscribe('reader', () => {
        leftAtCommit.push(world.count('events'));
      });
      const pruning = world.journal.prune(NOON + 1, false);
      world.time.now = NOON + 1;
      const between = world.journal.commit({ emit: [systemEvent('new')] });
      expect((await pruning).rows_deleted).toBe(12_000);
      await between;
      const [left] = await Promise.all(leftAtCommit);
      // Where nodes write, it goes when it comes.
      if (!world.several) expect(left).toBe(7001);
      expect(await world.count('events')).toBe(1);
    });
  });
}
