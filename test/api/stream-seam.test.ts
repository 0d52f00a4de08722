// The seam between replay and live: every event exactly once, in order, whatever happens meanwhile.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { Engine } from '#core/engine/state/engine.ts';
import { silentLogger } from '#core/ports/logger.ts';
import type { Store } from '#core/ports/store-reader.ts';
import type { Frame, Sink } from '#http/stream/frames.ts';
import { createStreamHub, type Member } from '#http/stream/hub.ts';
import { openSessionStream } from '#http/stream/session-stream.ts';
import { systemClock } from '#protocol/clock.ts';
import { draft } from '#protocol/event.ts';
import { NAMELESS_ADMIN } from '#protocol/people/person.ts';
import { startEngine, type TestEngine } from '../support/engine.ts';
import { startServer } from '../support/http.ts';

/** Commits one event of no consequence in this session. */
function emit(engine: Engine, sessionId: string, n: number): Promise<unknown> {
  const event = draft({
    type: 'memory.updated',
    session_id: sessionId,
    turn_id: null,
    parent: null,
    payload: {
      file: 'MEMORY.md',
      operation: 'add',
      before_hash: '0'.repeat(64),
      after_hash: '1'.repeat(64),
      before_size_bytes: n,
      after_size_bytes: n + 1,
    },
  });
  return engine.journal.commit({ emit: [event] });
}
const ids = (frames: readonly { event?: { id: string | null } }[]) => frames.flatMap((f) => f.event?.id ?? []);

/** The store with every read held up for some turns of the event loop, as drawn. */
function slowed(store: Store, delays: () => number): Store {
  const wait = async () => {
    for (let i = delays(); i > 0; i -= 1) await new Promise((resolve) => setImmediate(resolve));
  };
  const events = {
    ...store.events,
    listRaw: async (query: Parameters<Store['events']['listRaw']>[0]) => {
      await wait();
      const rows = await store.events.listRaw(query);
      await wait();
      return rows;
    },
  };
  const snapshot: Store['snapshot'] = async (...query) => {
    await wait();
    const found = await store.snapshot(...query);
    await wait();
    return found;
  };
  return { ...store, events, snapshot };
}

async function attachWhileEmitting(test: TestEngine, snapshot: boolean, delays: readonly number[], before: number) {
  const { engine } = test;
  const session = await test.session();
  for (let n = 0; n < before; n += 1) await emit(engine, session.id, n);
  const since = (await engine.store.events.newestId()) ?? '';
  for (let n = 0; n < before; n += 1) await emit(engine, session.id, n);
  let drawn = 0;
  const next = () => delays[drawn++ % delays.length] ?? 0;
  const bus = engine.bus;
  const store = slowed(engine.store, next);
  const hub = createStreamHub({
    store,
    bus,
    clock: systemClock,
    log: silentLogger,
    people: engine.people,
    maxConnections: 1,
  });
  const frames: Frame[] = [];
  const sink: Sink = {
    send: (frame) => frames.push(frame),
    backlog: () => 0,
    flush: async () => {
      for (let i = next(); i > 0; i -= 1) await new Promise((resolve) => setImmediate(resolve));
    },
    close: () => {},
    terminate: () => {},
  };
  const wanted = { types: null, include_worker_sessions: false, since: snapshot ? null : since, snapshot };
  const emitting = (async () => {
    for (let n = 0; n < 40; n += 1) {
      await emit(engine, session.id, n);
      for (let i = next(); i > 0; i -= 1) await new Promise((resolve) => setImmediate(resolve));
    }
  })();
  const stream = await openSessionStream(hub, session.id, { ...wanted, person: NAMELESS_ADMIN });
  await stream.run(sink);
  await emitting;
  await emit(engine, session.id, 999);
  hub.close();
  const sent = frames.filter((f) => f.type === 'event').map((f) => f.id);
  const shot = frames.find((f) => f.type === 'snapshot')?.id ?? since;
  const all = (await engine.store.events.list({ ...EVERYTHING, session_id: session.id, after: shot })).rows;
  return { sent, expected: all.map((event) => event.id) };
}
const EVERYTHING = { include_workers: false, types: null, until: null, limit: 100_000 };

describe('attaching while events are committed', () => {
  // Promise 06.5: the same under random delays.
  test('delivers each exactly once, ascending, with any delays of reads and clients', async () => {
    const engine = await startEngine({ scenario: { version: 1, rules: [] } });
    await fc.assert(
      fc.asyncProperty(
        fc.boolean(),
        fc.array(fc.integer({ min: 0, max: 6 }), { minLength: 1, maxLength: 24 }),
        fc.integer({ min: 0, max: 3 }),
        async (snapshot, delays, before) => {
          const { sent, expected } = await attachWhileEmitting(engine, snapshot, delays, before);
          expect(sent).toEqual(expected);
        },
      ),
      { numRuns: 60 },
    );
  });

  // Promise 06.5: 500 events during snapshot and replay arrive once each.
  test('500 events during a snapshot over a real socket arrive once each', async () => {
    const server = await startServer();
    const session = await server.session();
    for (let n = 0; n < 700; n += 1) await emit(server.engine, session.id, n);
    const writing = Promise.all(Array.from({ length: 500 }, (_, n) => emit(server.engine, session.id, n)));
    const shot = server.connect(`/sessions/${session.id}/stream?snapshot=true`);
    const replay = server.connect(`/sessions/${session.id}/stream?since=${server.events[10]?.id}`);
    await writing;
    await emit(server.engine, session.id, 12_345);
    const isLast = (e: { payload: { before_size_bytes: number } }) => e.payload.before_size_bytes === 12_345;
    await shot.event('memory.updated', isLast);
    await replay.event('memory.updated', isLast);
    const all = server.events.map((e) => e.id);
    const from = shot.frames.find((f) => f.type === 'snapshot').snapshot_at_event_id;
    expect(ids(shot.frames)).toEqual(all.filter((id) => id > from));
    expect(ids(replay.frames)).toEqual(all.slice(11));
  });
});

describe('a message that is stored while a stream catches up', () => {
  // Promise 06.18: a message that is stored while a stream catches up is told.
  test.each(['before the first page', 'during one'] as const)('is told once and whole: %s', async (when) => {
    const { engine, ...its } = await startEngine({
      scenario: { version: 1, rules: [{ match: {}, times: 'inf', respond: { text: 'ok' } }] },
    });
    const session = await its.session();
    let spoken = false;
    const speak = async () => {
      if (spoken) return;
      spoken = true;
      await its.run(session, 'meanwhile');
    };
    const listRaw: Store['events']['listRaw'] = async (query) => {
      const rows = await engine.store.events.listRaw(query);
      await speak();
      return rows;
    };
    const store = { ...engine.store, events: { ...engine.store.events, listRaw } };
    const hub = createStreamHub({
      store,
      bus: engine.bus,
      clock: systemClock,
      log: silentLogger,
      people: engine.people,
      maxConnections: 1,
    });
    const frames: Frame[] = [];
    const sink: Sink = {
      send: (frame) => frames.push(frame),
      backlog: () => 0,
      flush: async () => {},
      close: () => {},
      terminate: () => {},
    };
    const wanted = { types: null, include_worker_sessions: false, since: null, snapshot: true };
    const stream = await openSessionStream(hub, session.id, { ...wanted, person: NAMELESS_ADMIN });
    if (when === 'before the first page') await speak();
    await stream.run(sink);
    await its.run(session, 'later');
    hub.close();
    const events = frames.filter(({ type }) => type === 'event').map(({ text }) => JSON.parse(text).event);
    const told = events.filter(({ type }) => type === 'message.appended').map(({ payload }) => payload.message.content);
    expect(told).toEqual(['meanwhile', 'later'].map((text) => [{ type: 'text', text }]));
    expect(events.findIndex(({ type }) => type === 'message.appended')).toBeLessThan(
      events.findIndex(({ type }) => type === 'message.start'),
    );
  });
});

describe('resuming', () => {
  // Promise 06.6: 20 000 missed events are delivered in order.
  test('20 000 events after the cursor are all delivered, in order', async () => {
    const server = await startServer();
    const session = await server.session();
    const since = server.events.at(-1)!.id;
    for (let round = 0; round < 20; round += 1) {
      await Promise.all(Array.from({ length: 1000 }, (_, n) => emit(server.engine, session.id, n)));
    }
    const client = server.connect(`/sessions/${session.id}/stream?since=${since}`);
    const last = server.events.at(-1)!.id;
    await client.frame((f) => f.event?.id === last);
    expect(ids(client.frames)).toHaveLength(20_000);
    expect(ids(client.frames)).toEqual(server.events.slice(1).map((e) => e.id));
  });

  test('a replayed event is the live one, field by field', async () => {
    const server = await startServer();
    const session = await server.session();
    const since = server.events.at(-1)!.id;
    const live = server.connect(`/sessions/${session.id}/stream?types=memory.updated`);
    await live.frame((f) => f.type === 'subscribe_ack');
    for (let n = 0; n < 5; n += 1) await emit(server.engine, session.id, n);
    const replay = server.connect(`/sessions/${session.id}/stream?since=${since}`);
    const last = server.events.at(-1)!.id;
    await live.frame((f) => f.event?.id === last);
    await replay.frame((f) => f.event?.id === last);
    const events = (frames: typeof live.frames) => frames.filter((f) => f.type === 'event');
    expect(events(replay.frames)).toEqual(events(live.frames));
    const stored = await server.call('GET', `/sessions/${session.id}/events?since=${since}`);
    expect(events(live.frames).map((f) => f.event)).toEqual(
      stored.body.events.map((e: object) => ({ ...e, transient: false })),
    );
  });

  // Promise 06.6: cursors below the prune mark or above the newest event are expired.
  test('a cursor below the prune mark or above the newest event is expired; a fresh one is not', async () => {
    const server = await startServer();
    const session = await server.session();
    for (let n = 0; n < 3; n += 1) await emit(server.engine, session.id, n);
    const [first, second] = [server.events[0]!.id, server.events[1]!.id];
    await server.engine.journal.prune(server.engine.clock.now() + 1000, false);
    await emit(server.engine, session.id, 9);
    const newest = server.events.at(-1)!.id;
    const above = `7${newest.slice(1)}`;
    for (const since of [first, second, above]) {
      const client = server.connect(`/sessions/${session.id}/stream?since=${since}`);
      const refusal = await client.frame((f) => f.type === 'subscribe_error');
      expect([since, refusal.code]).toEqual([since, 'cursor_expired']);
      const { code, reason } = await client.closed;
      expect([code, JSON.parse(reason).code]).toEqual([1008, 'cursor_expired']);
      const sse = await server.call('GET', `/sessions/${session.id}/events?since=${since}`, undefined, {
        accept: 'text/event-stream',
      });
      expect([sse.status, sse.body.error.code]).toEqual([409, 'cursor_expired']);
    }
    const mark = server.events[3]!.id;
    const fine = server.connect(`/sessions/${session.id}/stream?since=${mark}`);
    await fine.frame((f) => f.event?.id === newest);
    expect(ids(fine.frames)).toEqual([newest]);
  });

  // Promise 06.8: snapshot: true means no replay.
  test('with snapshot: true there is no replay, and later ids are above the snapshot', async () => {
    const server = await startServer();
    const session = await server.session();
    await emit(server.engine, session.id, 1);
    const since = server.events[0]!.id;
    const client = server.connect(`/sessions/${session.id}/stream?since=${since}&snapshot=true`);
    const shot = await client.frame((f) => f.type === 'snapshot');
    expect(shot.snapshot_at_event_id).toBe(server.events[1]!.id);
    expect(shot.session.id).toBe(session.id);
    await emit(server.engine, session.id, 2);
    await client.event('memory.updated');
    expect(ids(client.frames)).toEqual([server.events[2]!.id]);
  });
});

describe('a stream that fails', () => {
  test('is closed, and takes nothing from the others: neither this item, nor the rest of its batch', async () => {
    const test = await startEngine({ scenario: { version: 1, rules: [] } });
    const { engine } = test;
    const session = await test.session();
    const errors: string[] = [];
    const log = { ...silentLogger, error: (_fields: object, message: string) => errors.push(message) };
    const { store, bus, clock } = engine;
    const hub = createStreamHub({ store, bus, clock, log, people: engine.people, maxConnections: 3 });
    const seen: string[][] = [[], []];
    const ends: string[] = [];
    const sound = (n: number): Member => ({
      offer: (item) => seen[n]!.push(item.kind),
      gap: () => {},
      close: () => {},
    });
    const broken: Member = {
      offer() {
        throw new Error('boom');
      },
      gap: () => {},
      close(reason) {
        ends.push(reason);
        hub.leave(session.id, this);
      },
    };
    for (const member of [sound(0), broken, sound(1)]) await hub.join(session.id, member);
    let beats = 0;
    hub.connect({ sendHeartbeat: broken.offer as () => void, shutdown: broken.offer as () => void });
    hub.connect({ sendHeartbeat: () => ++beats, shutdown: () => ++beats });
    await Promise.all([emit(engine, session.id, 1), emit(engine, session.id, 2)]);
    expect(seen).toEqual([
      ['event', 'event'],
      ['event', 'event'],
    ]);
    expect(ends).toEqual(['internal_error']);
    hub.close();
    expect(beats).toBe(1);
    expect(errors).toEqual(['a stream failed', 'a stream failed']);
  });
});
