// Where a delta is published while commits wait for their transaction (06 §1).
import path from 'node:path';
import { expect, test } from 'vitest';
import type { SessionRecord } from '#protocol/session.ts';
import { systemEvent, textDelta } from '../../support/drafts.ts';
import { newDatabase } from '../../support/new-database.ts';
import { sessionRecord } from '../../support/records.ts';
import { storedSession, storedTurn, storedWorker } from '../suite/nouns.ts';
import { openWorld, tempFolder } from './world.ts';

async function openJournal() {
  const file = path.join(tempFolder(), 'metis.db');
  newDatabase(file);
  const world = await openWorld(file);
  const labels = () =>
    world.published.map((item) =>
      item.kind === 'event'
        ? (item.event.payload as { policy_path?: string }).policy_path
        : (item.transient.delta.payload as { text?: string }).text,
    );
  return { world, labels };
}

const event = (label: string, { id }: Pick<SessionRecord, 'id'>) => systemEvent(label, { session_id: id });

test('a delta passes the commits of other trees, and none of its own', async () => {
  const { world, labels } = await openJournal();
  const [own, other] = [await storedSession(world), await storedSession(world)];
  await world.journal.commit({ emit: [event('known', own), event('known', other)] });
  const first = world.journal.commit({ emit: [event('other', other)] });
  world.journal.publishDelta(textDelta(own, 'passes'));
  expect(labels()).toEqual(['known', 'known', 'passes']);
  const second = world.journal.commit({ emit: [event('own', own)] });
  world.journal.publishDelta(textDelta(own, 'behind'));
  world.journal.publishDelta(textDelta(own, 'last'));
  world.journal.publishDelta(textDelta(other, 'of other'));
  expect(labels()).toEqual(['known', 'known', 'passes']);
  await Promise.all([first, second]);
  expect(labels()).toEqual(['known', 'known', 'passes', 'other', 'own', 'behind', 'last', 'of other']);
  world.journal.publishDelta(textDelta(own, 'at once'));
  expect(labels().at(-1)).toBe('at once');
});

test('a delta stays behind a commit of its tree that names another session, and behind the one that begins its tree', async () => {
  const { world, labels } = await openJournal();
  const root = sessionRecord(world);
  const insert = world.journal.commit({
    writes: [{ kind: 'session.insert', session: root }],
    emit: [event('begin', root)],
  });
  world.journal.publishDelta(textDelta(root, 'of the new one'));
  await insert;
  const worker = await storedWorker(world, root, await storedTurn(world, root));
  await world.journal.commit({ emit: [event('worker', worker)] });
  const commit = world.journal.commit({ emit: [event('root', root)] });
  world.journal.publishDelta(textDelta(worker, 'of the worker'));
  await commit;
  expect(labels()).toEqual(['begin', 'of the new one', 'worker', 'root', 'of the worker']);
});

test('a delta does not wait for what belongs to no tree, and waits for a task', async () => {
  const { world, labels } = await openJournal();
  const own = await storedSession(world);
  await world.journal.commit({ emit: [event('known', own)] });
  const system = world.journal.commit({ emit: [systemEvent('system')] });
  world.journal.publishDelta(textDelta(own, 'passes'));
  expect(labels()).toEqual(['known', 'passes']);
  const pruned = world.journal.prune(0, true);
  world.journal.publishDelta(textDelta(own, 'behind'));
  expect(labels()).toEqual(['known', 'passes']);
  await Promise.all([system, pruned]);
  await world.journal.commit({ emit: [event('end', own)] });
  expect(labels()).toEqual(['known', 'passes', 'system', 'behind', 'end']);
});
