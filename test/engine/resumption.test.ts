import { describe, expect, it } from 'vitest';
import { recover, resumeAll } from '#core/engine/lifecycle.ts';
import { waitForTurn } from '#core/engine/submit-work.ts';
import { defaultConfig } from '#protocol/config.ts';
import type { TurnId } from '#protocol/ids.ts';
import { startEngine } from '../support/engine.ts';
import { manualClock, START } from '../support/manual-clock.ts';
import { restart, writes } from '../support/moments.ts';
import { delegate, planner, scenario, worker } from '../support/scenario.ts';
import { storedEvents, turnOf } from '../support/stored.ts';
import { until } from '../support/until.ts';

const usage = { input_tokens: 1000, output_tokens: 100 };

describe('resumption', () => {
  it('is waited for by who waits for the turn', async () => {
    const said = (hang: boolean) => scenario(planner(hang ? { hang: true } : { text: 'all', usage }));
    const first = await startEngine({ scenario: said(true) });
    const session = await first.session();
    const turn_id = await first.submit(session, 'go');
    await first.event('llm.call_started');
    first.abandon();
    const second = await startEngine({ scenario: said(false), folder: first.folder });
    await recover(second.engine);
    const turn = { session_id: session.id, turn_id: turn_id as TurnId };
    let over = false;
    const waiting = waitForTurn(second.engine, turn, 60_000, new AbortController().signal).then(() => {
      over = true;
    });
    await second.engine.store.turns.record(session.id, turn_id);
    expect(over).toBe(false);
    // It is looked at again when it is stored as taken up and is not seen to run yet.
    const { journal, store } = second.engine;
    const { commit } = journal;
    const { record } = store.turns;
    let looks = 0;
    store.turns.record = async (...which) => {
      const found = await record(...which);
      if (found?.status === 'in_flight') looks += 1;
      return found;
    };
    journal.commit = async (batch) => {
      const events = await commit(batch);
      if (writes(batch, 'turn.resume')) await until(() => looks > 0);
      return events;
    };
    await resumeAll(second.engine);
    await waiting;
    expect(await second.engine.store.turns.record(session.id, turn_id)).toMatchObject({ status: 'completed' });
  });

  it('finds a worker of a worker again', async () => {
    const said = (hang: boolean) =>
      scenario(
        planner({ tool_calls: [delegate('outer', { tier: 'balanced' })], usage }, { text: 'all', usage }),
        worker('outer', { tool_calls: [delegate('inner')], usage }, { text: 'out', usage }),
        worker('inner', hang ? { hang: true } : { text: 'in', usage }),
      );
    const config = { delegation: { ...defaultConfig('/tmp').delegation, delegate_depth: 2 } };
    const first = await startEngine({ scenario: said(true), config });
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    await first.event('llm.call_started', (e) => e.payload.model === 'anthropic:claude-haiku-4-5');
    const second = await restart(first, { scenario: said(false), config });
    expect(await second.ended(turnId)).toMatchObject({ status: 'completed', output: 'all' });
    expect(second.rows()).toMatchObject({ sessions: 3, delegations: 2, llm_calls: 5 });
    const events = await storedEvents(second, session.id);
    const once = (type: string) => events.filter((e) => e.type === type).length;
    expect([once('delegate.started'), once('delegate.completed'), once('tool.called'), once('turn.resumed')]).toEqual([
      2, 2, 2, 3,
    ]);
  });

  it('goes on in the middle of repairing an answer', async () => {
    const schema = { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] };
    const said = scenario(
      planner({ tool_calls: [delegate('job', { output_schema: schema })], usage }, { text: 'all', usage }),
      [
        { match: { role: 'worker', turn: 1 }, respond: { text: 'hello', usage } },
        { match: { role: 'worker', turn: 2 }, respond: { text: '{"n":"x"}', usage } },
        { match: { role: 'worker', turn: 3 }, respond: { text: '{"n":1}', usage } },
      ],
    );
    for (const [when, turn] of [
      ['turn.completed', 1],
      ['llm.call_started', 2],
      ['turn.started', 2],
      ['turn.completed', 2],
      ['turn.completed', 3],
    ] as const) {
      const first = await startEngine({ scenario: said });
      const session = await first.session();
      const turnId = await first.submit(session, 'go');
      let seen = 0;
      await first.event(when, (e) => e.actor === 'worker' && ++seen === turn);
      const second = await restart(first, { scenario: said });
      expect(await second.ended(turnId), `${when} ${turn}`).toMatchObject({ status: 'completed', output: 'all' });
      const events = await storedEvents(second, session.id);
      expect(events.find((e) => e.type === 'delegate.completed')?.payload, `${when} ${turn}`).toMatchObject({
        turn_count: 3,
        llm_call_count: 3,
      });
      await second.close();
    }
  });

  it('a resumed turn still has its deadline', async () => {
    const said = scenario([{ match: {}, times: 'inf', respond: { hang: true } }]);
    const config = { turn: { max_llm_calls: 50, max_output_tokens: 4096, timeout_seconds: 3 } };
    const first = await startEngine({ scenario: said, config, clock: manualClock() });
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    await first.event('llm.call_started');
    const clock = manualClock(START + 60_000);
    const second = await restart(first, { scenario: said, config, clock });
    await second.event('llm.call_started');
    clock.advance(3000);
    await second.ended(turnId);
    expect(await turnOf(second, session.id, turnId)).toMatchObject({ status: 'cancelled', cancel_reason: 'timeout' });
  });
});
