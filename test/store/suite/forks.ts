// What a fork begins with, before and after the session that holds it is purged (21 §4).
import { expect, test } from 'vitest';
import type { SessionRecord } from '#protocol/session.ts';
import { callCompleted } from '../../support/drafts.ts';
import { assistantMessage } from '../../support/records.ts';
import { endTurn, storedSession, storedTurn } from './nouns.ts';
import type { OpenStore, World } from './world.ts';

/** An ended turn with an answer; the answer. */
async function answeredTurn(world: World, session: SessionRecord, text: string) {
  const turn = await storedTurn(world, session, `${text}?`);
  const message = assistantMessage(world, turn, [{ type: 'text', text }]);
  await world.journal.commit({
    writes: [{ kind: 'message.insert', message }],
    emit: [callCompleted(world, session, turn)],
  });
  await endTurn(world, turn);
  return message;
}

const forkOf = (
  world: World,
  from: Pick<SessionRecord, 'id'>,
  at: { readonly id: SessionRecord['forked_from_message_id'] },
) => storedSession(world, { forked_from_session_id: from.id, forked_from_message_id: at.id });

export function forkSuite(open: OpenStore): void {
  test('a purge copies the prefix into forks of the same owner alone, and the others are listed before', async () => {
    const world = await open();
    const origin = await storedSession(world, { owner: 'A' });
    const cut = await answeredTurn(world, origin, 'one');
    const point = { forked_from_session_id: origin.id, forked_from_message_id: cut.id };
    const own = await storedSession(world, { ...point, owner: 'A' });
    const foreign = await storedSession(world, { ...point, owner: 'B' });
    const nameless = await storedSession(world, { ...point, owner: null });
    const answer = await answeredTurn(world, foreign, 'two');
    const below = await storedSession(world, {
      forked_from_session_id: foreign.id,
      forked_from_message_id: answer.id,
      owner: 'A',
    });
    const { sessions, messages } = world.store;
    expect(await sessions.foreignForks(origin.id)).toEqual([foreign.id, nameless.id, below.id]);
    expect((await messages.prefix(foreign.id)).length).toBe(2);
    // While one is open, nothing is deleted.
    await expect(world.journal.purge(origin.id)).rejects.toMatchObject({ code: 'fork_open' });
    expect((await messages.prefix(foreign.id)).length).toBe(2);
    const end = { kind: 'session.end', disposition: 'completed', at: world.time.now } as const;
    for (const { id } of [foreign, nameless, below])
      await world.journal.commit({ writes: [{ ...end, session_id: id }], emit: [] });
    await world.journal.purge(origin.id);
    const { store } = await world.reopen();
    const lengths = [own, foreign, nameless].map(async ({ id }) => (await store.messages.prefix(id)).length);
    expect(await Promise.all(lengths)).toEqual([2, 0, 0]);
  });

  // Promise 21.6: both databases copy the prefix into the forks in the purge's own transaction.
  test('a fork has the messages and checkpoints up to its point, also after purges of those that held them', async () => {
    const world = await open();
    const origin = await storedSession(world);
    const first = await answeredTurn(world, origin, 'one');
    const checkpoint = {
      id: world.ids.next(),
      session_id: origin.id,
      kind: 'elide',
      message_ids: [first.id],
      tokens_before: 2,
      tokens_after: 1,
      created_at: world.time.now,
    } as const;
    await world.journal.commit({ writes: [{ kind: 'checkpoint.insert', checkpoint }], emit: [] });
    const second = await answeredTurn(world, origin, 'two');
    await answeredTurn(world, origin, 'three');

    const early = await forkOf(world, origin, first);
    const fork = await forkOf(world, origin, second);
    const own = await answeredTurn(world, fork, 'own');
    const below = await forkOf(world, fork, own);
    const all = [early, fork, below];
    const read = ({ store: { messages } }: World) =>
      Promise.all(
        all.map(async ({ id }) => ({
          messages: await messages.prefix(id),
          checkpoints: await messages.prefixCheckpoints(id),
        })),
      );
    const texts = (prefix: { readonly messages: readonly { readonly content: readonly unknown[] }[] }) =>
      prefix.messages.map(({ content }) => (content[0] as { text: string }).text);
    const before = await read(world);
    const whole = ['one?', 'one', 'two?', 'two'];
    expect(before.map(texts)).toEqual([whole.slice(0, 2), whole, [...whole, 'own?', 'own']]);
    expect(before.map(({ checkpoints }) => checkpoints.length)).toEqual([0, 1, 1]);

    const calls = await world.count('ledger_calls');
    await world.journal.purge(origin.id);
    const reopened = await world.reopen();
    expect(await read(reopened)).toEqual(before);
    // Of messages that are copies.
    const cut = await forkOf(reopened, fork, first);
    expect(await reopened.store.messages.prefix(cut.id)).toEqual(before[0]!.messages);
    await reopened.journal.purge(fork.id);
    const last = await reopened.reopen();
    expect(await last.store.messages.prefix(below.id)).toEqual(before[2]!.messages);
    expect(await last.store.messages.prefixCheckpoints(below.id)).toEqual(before[2]!.checkpoints);
    expect(await last.store.messages.prefix(cut.id)).toEqual(before[0]!.messages);
    expect(await last.count('ledger_calls')).toBe(calls);
    for (const { id } of [early, below, cut]) await last.journal.purge(id);
    expect([await last.count('fork_messages'), await last.count('fork_checkpoints')]).toEqual([0, 0]);
  });

  test('a fork that is stored while its original is purged is whole, or is refused', async () => {
    const world = await open();
    for (let n = 0; n < 12; n += 1) {
      const origin = await storedSession(world);
      const answer = await answeredTurn(world, origin, 'one');
      const purge = () => world.journal.purge(origin.id);
      const store = () => forkOf(world, origin, answer);
      const work = n % 2 === 0 ? { purged: purge(), stored: store() } : { stored: store(), purged: purge() };
      const [stored, purged] = await Promise.allSettled([work.stored, work.purged]);
      expect(purged.status).toBe('fulfilled');
      if (stored.status === 'rejected') expect(stored.reason).toMatchObject({ code: 'session_ended' });
      else expect(await world.store.messages.prefix(stored.value.id)).toHaveLength(2);
    }
  });
}
