// What SQLite's store keeps decoded: it is what the rows say, and it is bounded (01 §11.1).
import { inspect } from 'node:util';
import { expect, test } from 'vitest';
import type { Write } from '#core/ports/journal-writer.ts';
import type { Store } from '#core/ports/store-reader.ts';
import type { SessionId } from '#protocol/ids.ts';
import type { StoredMessage } from '#protocol/message.ts';
import { toPusd } from '#protocol/money.ts';
import { createHistoryCache, MESSAGE_BYTES, NO_CACHES } from '#store/read/caches.ts';
import { createStore } from '#store/read/store.ts';
import { createReadDatabase } from '#store/sqlite/connection/reads.ts';
import { outcome, turnRecord, userMessage } from '../../support/records.ts';
import { storedSession } from '../suite/nouns.ts';
import { openWorld } from './world.ts';

test('the kept histories stay below their bound, the least recently used goes first', () => {
  const world = openWorld();
  let made = 0;
  const of = (session_id: string) =>
    ({
      ...userMessage(world, { session_id, id: 't', user_message_id: `m${++made}` } as never),
      session_id,
    }) as StoredMessage;
  const cache = createHistoryCache(3 * MESSAGE_BYTES + 100);
  cache.put('a', [of('a')], 40);
  cache.put('b', [of('b')], 40);
  expect(cache.get('a')).toHaveLength(1);
  cache.append(of('a'), 30);
  expect(cache.get('b')).toBeNull();
  const [first, second] = cache.get('a')!;
  expect(second).toBeDefined();
  // A read may have found it before its commit was answered.
  cache.append(second!, 0);
  cache.append(first!, 0);
  expect(cache.get('a')).toEqual([first, second]);
  cache.append(of('never read'), 10);
  expect(cache.get('never read')).toBeNull();
  cache.put('huge', [of('huge')], 2 * MESSAGE_BYTES + 101);
  expect(cache.get('huge')).toBeNull();
});

test('histories of short messages are bounded by what their messages take, not by their texts alone', () => {
  const world = openWorld();
  const cache = createHistoryCache(10 * MESSAGE_BYTES);
  for (let i = 0; i < 20; i += 1) cache.put(`${i}`, [userMessage(world, { session_id: `${i}` } as never)], 1);
  expect(Array.from({ length: 20 }, (_, i) => cache.get(`${i}`) !== null).filter(Boolean)).toHaveLength(9);
});

test('what is kept of a session is its row, after every change and after one that was rolled back', async () => {
  const world = openWorld();
  const session = await storedSession(world, { active_model: 'openai:x', max_cost_pusd: toPusd('1') });
  const { id } = session;
  const read = async ({ sessions, turns, messages }: Pick<Store, 'sessions' | 'turns' | 'messages'>) => ({
    record: await sessions.record(id),
    limit: await sessions.limit(id),
    turn: await turns.open(id),
    checkpoints: await messages.checkpoints(id),
  });
  const uncached = createStore(createReadDatabase(world.handle.db), NO_CACHES);
  const kept = () => read(world.store);
  const asRead = () => read(uncached);
  expect(await kept()).toEqual(await asRead());
  const seen = new Set([inspect(await asRead(), { depth: null })]);
  async function change(...writes: Write[]): Promise<void> {
    world.time.now += 1000;
    await world.journal.commit({ writes, emit: [] });
    expect(await kept(), writes[0]!.kind).toEqual(await asRead());
    seen.add(inspect(await asRead(), { depth: null }));
  }
  const at = () => world.time.now + 1000;
  const changes: (() => Write)[] = [
    () => ({ kind: 'session.set_model', session_id: id, model: 'openai:y', at: at() }),
    () => ({ kind: 'session.queue_model', session_id: id, pending: { model: 'openai:z' }, at: at() }),
    () => ({ kind: 'session.set_limit', session_id: id, max_cost_pusd: toPusd('2'), at: at() }),
    () => ({ kind: 'session.set_on_reached', session_id: id, on_reached: 'stop', at: at() }),
    () => ({ kind: 'session.warned', session_id: id, limit_pusd: toPusd('2') }),
    () => ({ kind: 'session.set_policy_version', session_id: id, version: 'b'.repeat(64) }),
  ];
  for (const make of changes) await change(make());
  const turn = turnRecord(world, session, { started_at: at() });
  await change({ kind: 'turn.insert', turn });
  await change({
    kind: 'checkpoint.insert',
    checkpoint: {
      ...{ id: world.ids.next(), session_id: id, kind: 'elide', message_ids: [turn.user_message_id] },
      ...{ tokens_before: 9, tokens_after: 1, created_at: at() },
    },
  });
  const ended: Write = {
    kind: 'turn.end',
    turn_id: turn.id,
    session_id: id,
    outcome: outcome(world, { ended_at: at() }),
    unread_inputs: 0,
  };
  const nobody: Write = { kind: 'session.set_model', session_id: 'sess_none' as SessionId, model: null, at: at() };
  await expect(world.journal.commit({ writes: [ended, nobody], emit: [] })).rejects.toThrow('no session');
  expect(await kept()).toEqual(await asRead());
  await change(ended);
  expect((await kept()).record).toMatchObject({
    turn_count: 1,
    active_model: 'openai:z',
    pending_active_model: null,
  });
  await change({ kind: 'session.end', session_id: id, disposition: 'completed', at: at() });
  // Each of them changed something: nothing above compared a row with itself.
  expect(seen.size).toBe(changes.length + 5);
  await world.journal.purge(id);
  expect(await world.store.sessions.record(id)).toBeNull();
  expect(await kept()).toEqual(await asRead());
});
