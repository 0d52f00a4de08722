import { describe, expect, it } from 'vitest';
import { cancelTurn, resumeTurn } from '#core/engine/control-turn.ts';
import { purgeSession } from '#core/engine/fork-session.ts';
import { endSession, patchSession } from '#core/engine/manage-session.ts';
import { startEngine } from '../support/engine.ts';
import { failOnce, restart } from '../support/moments.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { storedEvents, turnOf } from '../support/stored.ts';
import { until } from '../support/until.ts';

const hold = { recovery: { on_start: 'hold' } } as const;

describe('a held turn', () => {
  it('a message after a model change uses the model asked for', async () => {
    const said = scenario([
      { match: { turn: 1 }, respond: { hang: true } },
      { match: { turn: 2 }, respond: { text: 'new' } },
    ]);
    const first = await startEngine({ scenario: said, config: hold });
    const session = await first.session();
    await first.submit(session, 'go');
    await first.event('llm.call_started');
    const second = await restart(first, { scenario: said, config: hold });
    expect(await patchSession(second.engine, session.id, { active_model: 'haiku' })).toMatchObject({
      swap_queued: true,
    });
    const turn = await second.run(session, 'next');
    expect(turn.chosen_model).toBe('anthropic:claude-haiku-4-5');
  });

  it('a turn given up names its last message, and its started calls as parents', async () => {
    const said = scenario(planner({ tool_calls: [call('shell', { command: 'sleep 60' })] }), [
      { match: { turn: 2 }, respond: { text: 'new' } },
    ]);
    const config = { ...hold, tool_confirmation: { per_tool: { shell: 'auto' } } } as const;
    const first = await startEngine({ scenario: said, config });
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    const called = await first.event('tool.called');
    const second = await restart(first, { scenario: said, config });
    await second.run(session, 'next');
    const events = await storedEvents(second, session.id);
    expect(events.find((e) => e.type === 'tool.failed')?.parent_event_id).toBe(called.id);
    const history = await second.engine.store.messages.history(session.id);
    const asked = history.find((m) => m.role === 'assistant')!;
    expect((await turnOf(second, session.id, turnId)).final_message_id).toBe(asked.id);
  });

  it('two cancels of a held turn are one', async () => {
    const said = scenario(planner({ tool_calls: [delegate('job')] }), worker('job', { hang: true }));
    const first = await startEngine({ scenario: said, config: hold });
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    await first.event('llm.call_started', (e) => e.actor === 'worker');
    const second = await restart(first, { scenario: said, config: hold });
    const both = await Promise.allSettled([
      cancelTurn(second.engine, session.id, turnId, null),
      cancelTurn(second.engine, session.id, turnId, null),
    ]);
    for (const one of both)
      if (one.status === 'rejected') expect(one.reason).toMatchObject({ code: 'turn_already_completed' });
    expect((await storedEvents(second, session.id)).filter((e) => e.type === 'turn.cancelled')).toHaveLength(2);
  });

  it('a cancel beside a resume leaves one terminal event and no open call', async () => {
    for (const order of [0, 1]) {
      const said = scenario([{ match: {}, times: 'inf', respond: { hang: true } }]);
      const first = await startEngine({ scenario: said, config: hold });
      const session = await first.session();
      const turnId = await first.submit(session, 'go');
      await first.event('llm.call_started');
      const second = await restart(first, { scenario: said, config: hold });
      const cancel = () => cancelTurn(second.engine, session.id, turnId, null);
      const resume = () => resumeTurn(second.engine, session.id, turnId);
      await Promise.allSettled(order === 0 ? [cancel(), resume()] : [resume(), cancel()]);
      await until(() => second.engine.locks.activeTurns().length === 0);
      const events = await storedEvents(second, session.id);
      const count = (type: string) => events.filter((e) => e.type === type).length;
      expect(count('turn.cancelled'), `order ${order}`).toBe(1);
      expect(count('llm.call_failed'), `order ${order}`).toBe(count('llm.call_started'));
      expect(events.at(-1)!.type).toBe('turn.cancelled');
      await second.close();
    }
  });

  it('a held worker cancelled by itself is what the planner reads', async () => {
    const said = scenario(planner({ tool_calls: [delegate('job')] }, { text: 'told' }), worker('job', { hang: true }));
    const first = await startEngine({ scenario: said, config: hold });
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    const begun = await first.event('llm.call_started', (e) => e.actor === 'worker');
    const second = await restart(first, { scenario: said, config: hold });
    await cancelTurn(second.engine, begun.session_id, begun.turn_id!, null);
    await resumeTurn(second.engine, session.id, turnId);
    expect(await second.ended(turnId)).toMatchObject({ status: 'completed', output: 'told' });
    expect((await storedEvents(second, session.id)).find((e) => e.type === 'delegate.failed')?.payload).toMatchObject({
      failure_mode: 'cancelled_by_user',
      cancel_scope: 'worker',
    });
  });

  it('a worker that cannot be taken up again is a failed worker', async () => {
    const said = scenario(planner({ tool_calls: [delegate('job')] }, { text: 'told' }), worker('job', { hang: true }));
    const first = await startEngine({ scenario: said, config: hold });
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    const begun = await first.event('llm.call_started', (e) => e.actor === 'worker');
    const second = await restart(first, { scenario: said, config: hold });
    failOnce(second, (b) => b.writes?.some((w) => w.kind === 'turn.resume' && w.turn_id === begun.turn_id) ?? false);
    await resumeTurn(second.engine, session.id, turnId);
    await second.ended(turnId);
    expect((await second.engine.store.delegations.findByWorker(begun.session_id as never))?.status).toBe('failed');
    expect((await second.engine.store.sessions.record(begun.session_id))?.ended_at).not.toBeNull();
    expect(second.engine.locks.tryTake(begun.session_id as never, null).held).toBe(false);
    second.engine.locks.release(begun.session_id as never);
  });

  it('a held turn ends with its session, and can be purged', async () => {
    for (const purge of [false, true]) {
      const said = scenario(planner({ tool_calls: [delegate('job')] }), worker('job', { hang: true }));
      const first = await startEngine({ scenario: said, config: hold });
      const session = await first.session();
      await first.submit(session, 'go');
      await first.event('llm.call_started', (e) => e.actor === 'worker');
      const second = await restart(first, { scenario: said, config: hold });
      if (purge) {
        expect(await purgeSession(second.engine, session.id)).toMatchObject({ purged_session_count: 2 });
        expect(second.rows()).toMatchObject({ sessions: 0, turns: 0, events: 0, delegations: 0, messages: 0 });
      } else {
        await endSession(second.engine, session.id);
        expect((await storedEvents(second, session.id)).slice(-5).map((e) => e.type)).toEqual([
          'session.ended',
          'delegate.failed',
          'tool.failed',
          'turn.cancelled',
          'session.ended',
        ]);
      }
      await second.close();
    }
  });
});
