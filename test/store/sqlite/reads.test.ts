// A read that fails rejects, also where SQLite throws at once: reads beside it keep their handlers (01 §11.1).
import { expect, test } from 'vitest';
import type { SessionId } from '#protocol/ids.ts';
import { storedSession } from '../suite/nouns.ts';
import { openWorld } from './world.ts';

test('every reader of a closed database rejects, and none throws or leaves a rejection behind', async () => {
  const world = openWorld();
  const { id } = await storedSession(world);
  const unknown = 'sess_00000000000000000000000001' as SessionId;
  world.handle.close();
  const unhandled: unknown[] = [];
  const note = (reason: unknown) => unhandled.push(reason);
  process.on('unhandledRejection', note);
  const { sessions, turns, messages, delegations } = world.store;
  const readers = [
    () => turns.open(id),
    () => messages.history(id),
    () => messages.checkpoints(id),
    () => sessions.record(unknown),
    () => sessions.view(id),
    () => delegations.usage(id),
  ];
  for (const read of readers) {
    // Called outside of an async function: it must not throw.
    const answer = read();
    await expect(answer, String(read)).rejects.toThrow('not open');
  }
  await new Promise((resolve) => setImmediate(resolve));
  process.off('unhandledRejection', note);
  expect(unhandled).toEqual([]);
});
