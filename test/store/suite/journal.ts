// The journal: atomic batches, one order for events and deltas (00 §3, 02 §2-§4).
import { describe, expect, test } from 'vitest';
import { EventValidationError, UnknownEventTypeError } from '#core/ports/journal-writer.ts';
import { draft, type EventDraft } from '#protocol/event.ts';
import { NO_CHANGES } from '#protocol/file-change.ts';
import { callCompleted, systemEvent, textDelta } from '../../support/drafts.ts';
import { sessionRecord, turnRecord } from '../../support/records.ts';
import { storedSession, storedTurn, storedWorker } from './nouns.ts';
import { type OpenStore, publishedEvents, TAKEN, type World } from './world.ts';

const labels = (world: World) =>
  world.published.map((item) =>
    item.kind === 'event'
      ? (item.event.payload as { policy_path?: string }).policy_path
      : (item.transient.delta.payload as { text?: string }).text,
  );

export function journalSuite(openWorld: OpenStore): void {
  describe('journal', () => {
    // Promise 02.2: only types of the catalog can be written.
    test('a draft of an unknown or a stream-only type is refused and nothing is stored', async () => {
      const world = await openWorld();
      for (const type of ['gateway.key_issued', 'text.delta', 'made.up', 'toString']) {
        const event = systemEvent('x', { type: type as EventDraft['type'] });
        await expect(world.journal.commit({ emit: [event] })).rejects.toThrow(UnknownEventTypeError);
      }
      expect(await world.count('events')).toBe(0);
    });

    test('a payload that breaks its schema is refused with every fault named, its row changes with it', async () => {
      const world = await openWorld();
      const session = sessionRecord(world);
      const event = systemEvent('x', {
        payload: { policy_path: 1, surplus: true } as unknown as EventDraft['payload'],
      });
      const refused = world.journal.commit({ writes: [{ kind: 'session.insert', session }], emit: [event] });
      await expect(refused).rejects.toThrow(EventValidationError);
      await expect(refused).rejects.toMatchObject({
        event_type: 'routing.policy_invalid',
        errors: expect.arrayContaining([
          expect.stringContaining('policy_path'),
          expect.stringContaining('errors'),
          expect.stringContaining('surplus'),
        ]),
      });
      expect(await world.count('sessions')).toBe(0);
      expect(world.published).toEqual([]);
    });

    // Promise 02.3: an event is delivered when, and only when, it is durable.
    test('a batch that fails stores and delivers nothing; a subscriber of one that commits already sees its rows', async () => {
      const world = await openWorld();
      const session = await storedSession(world);
      const seen: Promise<number>[] = [];
      world.bus.subscribe('reader', () => {
        seen.push(world.count('events'));
      });
      await expect(
        world.journal.commit({
          writes: [{ kind: 'session.insert', session }],
          emit: [systemEvent('lost')],
        }),
      ).rejects.toThrow(TAKEN);
      expect(await world.count('events')).toBe(0);
      expect(seen).toEqual([]);
      await world.journal.commit({ emit: [systemEvent('a'), systemEvent('b')] });
      expect(await Promise.all(seen)).toEqual([2]);
    });

    test('batches of one tick share a transaction, and one that is refused takes no other with it', async () => {
      const world = await openWorld();
      const session = await storedSession(world);
      const seen: Promise<number>[] = [];
      world.bus.subscribe('reader', () => {
        seen.push(world.count('events'));
      });
      const results = await Promise.allSettled([
        world.journal.commit({ emit: [systemEvent('first')] }),
        world.journal.commit({ writes: [{ kind: 'session.insert', session }], emit: [systemEvent('refused')] }),
        world.journal.commit({ writes: [{ kind: 'turn.insert', turn: turnRecord(world, session) }], emit: [] }),
        world.journal.commit({ emit: [systemEvent('last')] }),
      ]);
      expect(results.map((r) => r.status)).toEqual(['fulfilled', 'rejected', 'fulfilled', 'fulfilled']);
      expect(labels(world)).toEqual(['first', 'last']);
      expect(await world.count('turns')).toBe(1);
      // Delivery begins when all of them are durable.
      expect(await seen[0]).toBe(2);
    });

    test('when the transaction itself fails, every batch of it is refused and none is delivered', async () => {
      const world = await openWorld();
      await world.failOn('poison');
      const results = await Promise.allSettled(
        ['a', 'poison', 'c'].map((label) => world.journal.commit({ emit: [systemEvent(label)] })),
      );
      // Among several nodes each batch is tried again by itself (16 §3.3).
      const others = world.several ? 'fulfilled' : 'rejected';
      expect(results.map((r) => r.status)).toEqual([others, 'rejected', others]);
      const stored = world.several ? ['a', 'c'] : [];
      expect(labels(world)).toEqual(stored);
      expect(await world.count('events')).toBe(stored.length);
      await world.journal.commit({ emit: [systemEvent('later')] });
      expect(labels(world)).toEqual([...stored, 'later']);
    });

    test('a delta emitted after a commit was queued leaves after that commit, one emitted in between stays in between', async () => {
      const world = await openWorld();
      const session = await storedSession(world);
      const event = (label: string) => systemEvent(label, { session_id: session.id });
      await world.journal.commit({ emit: [event('known')] });
      world.journal.publishDelta(textDelta(session, 'at once'));
      expect(labels(world)).toEqual(['known', 'at once']);
      const first = world.journal.commit({ emit: [event('one'), textDelta(session, 'inside'), event('two')] });
      world.journal.publishDelta(textDelta(session, 'between'));
      const second = world.journal.commit({ emit: [event('three')] });
      world.journal.publishDelta(textDelta(session, 'after'));
      expect(labels(world)).toEqual(['known', 'at once']);
      await Promise.all([first, second]);
      const order = ['known', 'at once', 'one', 'inside', 'two', 'between', 'three', 'after'];
      expect(labels(world)).toEqual(order);
    });

    test('what a subscriber emits is delivered after what it was called with', async () => {
      const world = await openWorld();
      const session = await storedSession(world);
      let answered = false;
      const order: unknown[] = [];
      world.bus.subscribe('answers', (items) => {
        if (answered || items[0]?.kind !== 'event') return;
        answered = true;
        world.journal.publishDelta(textDelta(session, 'answer'));
      });
      world.bus.subscribe('late', (items) => order.push(...items.map((item) => item.kind)));
      await Promise.all([
        world.journal.commit({ emit: [systemEvent('one')] }),
        world.journal.commit({ emit: [systemEvent('two')] }),
      ]);
      await world.journal.commit({ emit: [systemEvent('three')] });
      expect(labels(world)).toEqual(['one', 'two', 'answer', 'three']);
      expect(order).toEqual(['event', 'event', 'transient', 'event']);
    });

    // Promise 02.4: delivery order is id order, and every parent comes first.
    test('10 000 events of 5 sessions, committed with awaits at random, arrive in id order with every parent before its child', async () => {
      const world = await openWorld();
      const sessions = await Promise.all(Array.from({ length: 5 }, () => storedSession(world)));
      let seed = 7;
      const random = () => {
        seed = (seed * 48271) % 2147483647;
        return seed / 2147483647;
      };
      await Promise.all(
        sessions.map(async (session) => {
          let parent: EventDraft['parent'] = null;
          for (let sent = 0; sent < 2000; ) {
            const n = 1 + Math.floor(random() * 20);
            const emit = Array.from(
              { length: Math.min(n, 2000 - sent) },
              (_, i): EventDraft => systemEvent('x', { session_id: session.id, parent: i === 0 ? parent : i - 1 }),
            );
            sent += emit.length;
            const events = await world.journal.commit({ emit });
            parent = events.at(-1)?.id ?? null;
            if (random() < 0.2) await new Promise((resolve) => setImmediate(resolve));
          }
        }),
      );
      const delivered = publishedEvents(world);
      expect(delivered).toHaveLength(10_000);
      const written = await world.eventsAsWritten();
      const orders = world.several ? sessions.map((session) => session.id) : [null];
      for (const of of orders) {
        const ids = delivered.filter((event) => of === null || event.session_id === of).map((event) => event.id);
        const own = new Set<string>(ids);
        expect(ids).toEqual([...ids].sort());
        expect(ids).toEqual(written.filter((id) => own.has(id)));
      }
      const known = new Set<string>();
      for (const { id, parent_event_id } of delivered) {
        if (parent_event_id !== null) expect(known.has(parent_event_id)).toBe(true);
        known.add(id);
      }
      expect(delivered.filter((event) => event.parent_event_id === null)).toHaveLength(5);
    });

    test('a numeric parent points at that place of the batch, transients counted; one that points forward is refused', async () => {
      const world = await openWorld();
      const session = await storedSession(world);
      const [a, b] = await world.journal.commit({
        emit: [textDelta(session, 'x'), systemEvent('a'), systemEvent('b', { parent: 1 })],
      });
      expect(b?.parent_event_id).toBe(a?.id);
      for (const parent of [0, 1, 2, 5, -1]) {
        const emit = [textDelta(session, 'x'), systemEvent('b', { parent })];
        await expect(world.journal.commit({ emit })).rejects.toThrow(EventValidationError);
      }
    });

    // Promise 02.5: events of a worker session bear the actor worker.
    test('every event of a worker session has actor worker, delegate.* of a planner has system; a draft may name another', async () => {
      const world = await openWorld();
      const planner = await storedSession(world);
      const turn = await storedTurn(world, planner);
      const worker = await storedWorker(world, planner, turn);
      const failed = (session_id: string, worker_session_id: typeof worker.id): EventDraft =>
        draft({
          type: 'delegate.failed',
          session_id,
          turn_id: null,
          parent: null,
          payload: {
            tool_use_id: world.ids.toolUse(),
            worker_session_id,
            failure_mode: 'timeout',
            error_message: '',
            worker_total_cost_usd: '0',
            pricing_version: '',
            turn_count: 0,
            llm_call_count: 0,
            tool_call_count: 0,
            input_tokens: 0,
            output_tokens: 0,
            wall_time_seconds: 0,
            model: null,
            insufficient_context_request: null,
            cancel_scope: null,
            tier: null,
            worker_name: null,
            ...NO_CHANGES,
          },
        });
      const events = await world.journal.commit({
        emit: [
          failed(planner.id, worker.id),
          failed(worker.id, worker.id),
          callCompleted(world, worker, null),
          systemEvent('x', { session_id: worker.id, actor: 'user' }),
          callCompleted(world, planner, null),
          systemEvent('x', { actor: 'user' }),
        ],
      });
      expect(events.map((event) => event.actor)).toEqual(['system', 'worker', 'worker', 'worker', 'agent', 'user']);
      expect((await world.rows('SELECT actor FROM events ORDER BY id')).map((row) => row.actor)).toEqual(
        events.map((event) => event.actor),
      );
    });

    test('an event of a session that does not exist is refused', async () => {
      const world = await openWorld();
      const event = systemEvent('x', { session_id: world.ids.session() });
      await expect(world.journal.commit({ emit: [event] })).rejects.toThrow(/no session/);
      expect(world.logged).toEqual([]);
    });
  });
}
