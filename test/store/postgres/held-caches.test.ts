// What a node keeps of the trees that it holds follows its commits, whatever the order in which reads and commits are answered (16 §4.6).
import { expect, test } from 'vitest';
import type { StoredMessage } from '#protocol/message.ts';
import { createHeldCaches } from '#store/cluster/held-caches.ts';
import type { CachedSession } from '#store/read/caches.ts';
import type { Effects } from '#store/write/transaction.ts';

const NONE: Effects = { created: [], messages: [], turns: [], checkpointed: [], ended: [], sessions: [], trees: [] };
const BYTES = 10;
const MANY = 3000;

const session = (id: string, root = id) =>
  ({ record: { id, root_session_id: root, turn_count: 0 }, warned_pusd: null }) as unknown as CachedSession;
const message = (session_id: string, id: string) => ({ id, session_id }) as unknown as StoredMessage;
const written = (...messages: StoredMessage[]) => ({
  ...NONE,
  messages: messages.map((one) => ({ message: one, bytes: BYTES })),
});

function openCaches() {
  const held = new Set(['s', 'root']);
  return { held, ...createHeldCaches({ holds: (root) => held.has(root) }) };
}

test('an answer that a commit of its session overtook is not kept', () => {
  const { beginRead, following } = openCaches();
  const overtaken = [beginRead('s'), beginRead('s')];
  const ofAnother = beginRead('other');
  following.keepCurrent(written(message('s', 'm1')));
  expect(overtaken.map((isCurrent) => isCurrent())).toEqual([false, false]);
  expect(ofAnother()).toBe(true);
  const later = beginRead('s');
  expect(later()).toBe(true);
  following.keepCurrent({ ...NONE, turns: [{ session_id: 's', isOpen: true }] });
  expect(later()).toBe(false);
  const changes: Partial<Effects>[] = [
    { checkpointed: ['s'] },
    { sessions: [{ id: 's', values: { turn_count: 1 } }] },
    { trees: ['s'] },
  ];
  for (const change of changes) {
    const isCurrent = beginRead('s');
    following.keepCurrent({ ...NONE, ...change });
    expect(isCurrent(), JSON.stringify(change)).toBe(false);
  }
});

test('an answer that began before its tree was dropped is not kept', () => {
  const { beginRead, dropTree } = openCaches();
  const isCurrent = beginRead('s');
  dropTree('s');
  expect(isCurrent()).toBe(false);
});

test('a session is idle from the end of its turn until the next one begins, and only while its tree is held', () => {
  const { held, sessions, idle, following } = openCaches();
  const turn = (isOpen: boolean) => following.keepCurrent({ ...NONE, turns: [{ session_id: 's', isOpen }] });
  turn(false);
  // Its record names its tree.
  expect(idle.has('s')).toBe(false);
  sessions.put('s', session('s'));
  turn(false);
  expect(idle.has('s')).toBe(true);
  turn(true);
  expect(idle.has('s')).toBe(false);
  turn(false);
  held.delete('s');
  expect(idle.has('s')).toBe(false);
});

test('of a new session it is known that nothing is stored, until something is', () => {
  const { sessions, histories, idle, whole, following, dropTree } = openCaches();
  following.keepCurrent({
    ...NONE,
    created: [
      { id: 's', root: 's' },
      { id: 'worker', root: 'root' },
      { id: 'begun', root: 'root' },
    ],
    turns: [{ session_id: 'begun', isOpen: true }],
  });
  sessions.put('s', session('s'));
  expect([histories.get('s'), idle.has('s'), whole.has('s')]).toEqual([[], true, true]);
  sessions.put('begun', session('begun', 'root'));
  expect([histories.get('begun'), idle.has('begun'), whole.has('begun')]).toEqual([null, false, false]);
  // Another node may have written to it before the tree came back.
  dropTree('root');
  sessions.put('worker', session('worker', 'root'));
  expect([histories.get('worker'), idle.has('worker'), whole.has('worker')]).toEqual([null, false, false]);
});

test('what was known beside a record that was evicted does not outlive the loss of its tree', () => {
  const { sessions, histories, idle, whole, dropTree } = openCaches();
  sessions.put('s', session('s'));
  histories.put('s', [message('s', 'm1')], BYTES);
  idle.set('s', true);
  whole.set('s', true);
  for (let i = 0; i < MANY; i++) sessions.put(`w${i}`, session(`w${i}`, 'root'));
  expect(sessions.get('s')).toBeNull();
  dropTree('s');
  // Claimed again.
  sessions.put('s', session('s'));
  expect([histories.get('s'), idle.has('s'), whole.has('s')]).toEqual([null, false, false]);
});
