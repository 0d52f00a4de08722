// A batch that was refused is forgotten whole: also what the journal keeps in memory beside its rows (02 §2).
import { describe, expect, test } from 'vitest';
import type { Batch } from '#core/ports/journal-writer.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { callCompleted, systemEvent } from '../../support/drafts.ts';
import { sessionRecord, workerRecord } from '../../support/records.ts';
import { storedSession } from './nouns.ts';
import type { OpenStore, World } from './world.ts';

/** Stores the session and its first event, and then fails. */
const refused = (world: World, session: SessionRecord): Batch => ({
  writes: [{ kind: 'session.insert', session }],
  emit: [
    systemEvent('first', { session_id: session.id }),
    systemEvent('of nobody', { session_id: world.ids.session() }),
  ],
});

const countEvents = async (world: World, { id }: SessionRecord) =>
  Number(
    (
      await world.rows("SELECT count(*) AS n FROM events WHERE session_id = ? AND type = 'routing.policy_invalid'", id)
    )[0]?.n,
  );

export function rollbackSuite(openWorld: OpenStore): void {
  describe('rolled back', () => {
    for (const beside of ['alone', 'beside others', 'with its whole transaction'] as const)
      test(`a session whose insertion was rolled back (${beside}) takes no event, and is stamped anew when it comes back`, async () => {
        const world = await openWorld();
        const planner = await storedSession(world);
        const gone = sessionRecord(world, { workspace_hash: 'old' });
        const batches = [
          ...(beside === 'alone' ? [] : [{ emit: [systemEvent('a')] }]),
          beside === 'with its whole transaction'
            ? { ...refused(world, gone), emit: [systemEvent('first', { session_id: gone.id })] }
            : refused(world, gone),
          ...(beside === 'alone' ? [] : [{ emit: [systemEvent('poison')] }]),
        ];
        if (beside === 'with its whole transaction') await world.failOn('poison');
        const answers = await Promise.allSettled(batches.map((batch) => world.journal.commit(batch)));
        // By itself its event is one of a session that it does not make.
        const goesAlone = beside === 'with its whole transaction' && world.several;
        expect(answers[batches.length === 1 ? 0 : 1]!.status).toBe(goesAlone ? 'fulfilled' : 'rejected');
        if (goesAlone) return;
        expect(await world.count('sessions')).toBe(1);

        const late = world.journal.commit({ emit: [systemEvent('late', { session_id: gone.id })] });
        await expect(late).rejects.toThrow(/no session/);
        const back = workerRecord(world, planner, world.ids.toolUse(), { id: gone.id, workspace_hash: 'new' });
        const [event] = await world.journal.commit({
          writes: [{ kind: 'session.insert', session: back }],
          emit: [callCompleted(world, back, null)],
        });
        expect(event!.actor).toBe('worker');
        expect(await world.rows('SELECT workspace_hash, root_session_id FROM llm_calls')).toEqual([
          { workspace_hash: 'new', root_session_id: planner.id },
        ]);
      });

    test('events are those of their own sessions after the first one of a session was rolled back, or the session purged', async () => {
      const world = await openWorld();
      const { journal } = world;
      const gone = sessionRecord(world);
      await expect(journal.commit(refused(world, gone))).rejects.toThrow();
      const other = await storedSession(world);
      const say = (session: SessionRecord) =>
        journal.commit({ emit: [systemEvent('said', { session_id: session.id })] });
      await say(other);
      await journal.commit({ writes: [{ kind: 'session.insert', session: gone }], emit: [] });
      await say(gone);
      await say(other);
      expect(await countEvents(world, other)).toBe(2);
      expect(await countEvents(world, gone)).toBe(1);
      await journal.purge(gone.id);
      const last = await storedSession(world);
      await say(last);
      await say(other);
      expect(await countEvents(world, other)).toBe(3);
      expect(await countEvents(world, last)).toBe(1);
    });

    test('a session whose end was rolled back goes on; one that has ended stays ended', async () => {
      const world = await openWorld();
      const session = await storedSession(world);
      const end = {
        kind: 'session.end',
        session_id: session.id,
        disposition: 'completed',
        at: world.time.now,
      } as const;
      const own = systemEvent('own', { session_id: session.id });
      const nobody = systemEvent('of nobody', { session_id: world.ids.session() });
      await world.journal.commit({ emit: [own] });
      await expect(world.journal.commit({ writes: [end], emit: [own, nobody] })).rejects.toThrow(/no session/);
      await world.journal.commit({ emit: [own] });
      await world.journal.commit({ writes: [end], emit: [own] });
      await expect(world.journal.commit({ emit: [own] })).rejects.toMatchObject({ code: 'session_ended' });
    });

    test('a batch refused for itself keeps its own reason when the transaction fails behind it; the others are told that', async () => {
      const world = await openWorld();
      await world.failOn('poison');
      const batches = [
        { emit: [systemEvent('a')] },
        refused(world, sessionRecord(world)),
        { emit: [systemEvent('poison')] },
      ];
      const answers = await Promise.allSettled(batches.map((batch) => world.journal.commit(batch)));
      expect(answers.map((answer) => answer.status === 'rejected' && String(answer.reason.message))).toEqual([
        world.several ? false : 'disk full',
        expect.stringContaining('no session'),
        'disk full',
      ]);
      expect(await world.count('events')).toBe(world.several ? 1 : 0);
    });
  });
}
