import { describe, expect, it } from 'vitest';
import { endSession, patchSession } from '#core/engine/manage-session.ts';
import { startEngine } from '../support/engine.ts';
import { at, gate, turns } from '../support/moments.ts';
import { scenario } from '../support/scenario.ts';

describe('two at once', () => {
  it('ending a session waits for a turn that is being admitted', async () => {
    const t = await startEngine({ scenario: scenario([{ match: {}, times: 'inf', respond: { hang: true } }]) });
    const session = await t.session();
    const wait = gate();
    const real = t.engine.workspaces.memoryText;
    t.engine.workspaces.memoryText = async (root) => {
      await wait.opened;
      return real(root);
    };
    const submitted = t.submit(session, 'go').catch((error: unknown) => error);
    await turns(10);
    const ended = endSession(t.engine, session.id);
    await turns(10);
    wait.open();
    const outcome = await submitted;
    await ended;
    if (typeof outcome !== 'string') expect(outcome).toMatchObject({ code: 'session_already_ended' });
    expect(t.events.at(-1)!.type).toBe('session.ended');
    expect(await t.engine.store.turns.allOpen()).toEqual([]);
  });

  it('a turn submitted while its session ends leaves nothing open', async () => {
    for (let hops = 0; hops < 12; hops++) {
      const t = await startEngine({ scenario: scenario([{ match: {}, times: 'inf', respond: { hang: true } }]) });
      const session = await t.session();
      const submitted = t.submit(session, 'go').catch((error: unknown) => error);
      for (let i = 0; i < hops; i++) await Promise.resolve();
      const ended = endSession(t.engine, session.id).catch((error: unknown) => error);
      const outcome = await submitted;
      await ended;
      await turns(20);
      if (typeof outcome !== 'string') expect(outcome, `hops ${hops}`).toMatchObject({ code: 'session_already_ended' });
      expect(await t.engine.store.turns.allOpen(), `hops ${hops}`).toEqual([]);
      await t.close();
    }
  });

  it('three messages that interrupt at once are taken one after the other', async () => {
    const t = await startEngine({
      scenario: scenario([{ match: {}, times: 'inf', respond: { hang: true } }]),
      config: { shutdown: { drain_seconds: 0 } },
    });
    const session = await t.session();
    await t.submit(session, 'go');
    await t.event('llm.call_started');
    const all = await Promise.allSettled(
      ['a', 'b', 'c'].map((text) => t.submit(session, text, { if_busy: 'interrupt' })),
    );
    expect(all.map((one) => one.status)).toEqual(['fulfilled', 'fulfilled', 'fulfilled']);
    expect(await t.engine.store.turns.allOpen()).toHaveLength(1);
  });

  // Promise 01.20: A model asked for while a turn ends is in force for the next one.
  it('a model asked for while its turn ends is in force for the next one', async () => {
    for (let hops = 0; hops < 16; hops++) {
      const t = await startEngine({ scenario: scenario([{ match: {}, times: 'inf', respond: { text: 'x' } }]) });
      const session = await t.session();
      let patched: Promise<unknown> = Promise.resolve();
      at(
        t,
        (e) => e.type === 'llm.call_completed',
        () => {
          patched = (async () => {
            for (let i = 0; i < hops; i++) await Promise.resolve();
            await patchSession(t.engine, session.id, { active_model: 'haiku' });
          })();
        },
      );
      await t.run(session, 'one');
      await patched;
      await turns(5);
      expect((await t.run(session, 'two')).chosen_model, `hops ${hops}`).toBe('anthropic:claude-haiku-4-5');
      await t.close();
    }
  });
});

it('a message right behind the end of a turn begins the next one', async () => {
  const t = await startEngine({ scenario: scenario([{ match: {}, times: 'inf', respond: { text: 'done' } }]) });
  const session = await t.session();
  let next: Promise<string> | null = null;
  at(
    t,
    (e) => e.type === 'turn.completed',
    () => {
      next = t.submit(session, 'again');
    },
  );
  await t.run(session, 'go');
  expect(await t.ended(await next!)).toMatchObject({ status: 'completed' });
});
