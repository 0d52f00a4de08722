import { describe, expect, it, onTestFinished } from 'vitest';
import { cancelTurn } from '#core/engine/control-turn.ts';
import { drain } from '#core/engine/lifecycle.ts';
import { defaultConfig } from '#protocol/config.ts';
import { toolText } from '#protocol/tool.ts';
import { startEngine } from '../support/engine.ts';
import { at, gate } from '../support/moments.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { storedEvents, turnOf } from '../support/stored.ts';
import { tool } from '../support/tools.ts';
import { until } from '../support/until.ts';

describe('a cancel', () => {
  // Promise 01.15: A cancel between an answer and its tools closes every call.
  it('between an answer and its tools closes every call', async () => {
    const t = await startEngine({
      scenario: scenario(planner({ tool_calls: [call('list_files', {}), call('list_files', {})] })),
    });
    const session = await t.session();
    at(
      t,
      (e) => e.type === 'llm.call_completed',
      () => void cancelTurn(t.engine, session.id, t.events.find((e) => e.type === 'turn.started')!.turn_id!, null),
    );
    const turn = await t.run(session, 'go');
    expect(turn).toMatchObject({ status: 'cancelled', tool_call_count: 2 });
    expect(t.typesOf(session.id).slice(-3)).toEqual(['tool.failed', 'tool.failed', 'turn.cancelled']);
  });

  it('of a planner whose worker was interrupted ends the worker too', async () => {
    const wait = gate();
    const slow = tool('slow', { execute: () => wait.opened.then(() => toolText('late')) });
    onTestFinished(wait.open);
    const t = await startEngine({
      tools: [slow],
      scenario: scenario(
        planner({ tool_calls: [delegate('job'), call('slow', {})] }),
        worker('job', { text: 'part', tool_calls: [call('list_files', {})], delay_ms: 20 }),
      ),
    });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    const begun = await t.event('llm.call_started', (e) => e.actor === 'worker');
    await until(() => t.adapter.requests.some((r) => r.caller.is_worker));
    const drained = drain(t.engine);
    await t.event('llm.call_completed', (e) => e.actor === 'worker');
    await until(() => t.engine.locks.activeTurns().length === 1);
    await cancelTurn(t.engine, session.id, turnId, null);
    wait.open();
    await drained;
    const events = await storedEvents(t, session.id);
    expect((await turnOf(t, session.id, turnId)).status).toBe('cancelled');
    expect((await turnOf(t, begun.session_id, begun.turn_id!)).status).toBe('cancelled');
    expect(events.at(-1)).toMatchObject({ type: 'turn.cancelled', session_id: session.id });
  });
});

describe('a worker of a worker', () => {
  it('ends first when its own caller is cancelled, and the planner reads of one direct cancel', async () => {
    const t = await startEngine({
      config: { delegation: { ...defaultConfig('/tmp').delegation, delegate_depth: 2 } },
      scenario: scenario(
        planner({ tool_calls: [delegate('outer', { tier: 'balanced' })] }, { text: 'told' }),
        worker('outer', { tool_calls: [delegate('inner')] }),
        worker('inner', { hang: true }),
      ),
    });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    await t.event('llm.call_started', (e) => e.payload.model === 'anthropic:claude-haiku-4-5');
    const outer = t.events.filter((e) => e.type === 'turn.started')[1]!;
    await cancelTurn(t.engine, outer.session_id, outer.turn_id!, null);
    expect((await t.ended(turnId)).output).toBe('told');
    const who = (id: string) => (id === session.id ? 'P' : id === outer.session_id ? 'W' : 'V');
    const from = t.events.findIndex((e) => e.type === 'llm.call_failed');
    expect(t.events.slice(from, from + 9).map((e) => `${who(e.session_id)} ${e.type}`)).toEqual([
      'V llm.call_failed',
      'V turn.cancelled',
      'V session.ended',
      'W delegate.failed',
      'W tool.failed',
      'W turn.cancelled',
      'W session.ended',
      'P delegate.failed',
      'P tool.completed',
    ]);
    expect(t.events.filter((e) => e.type === 'delegate.failed').map((e) => e.payload)).toEqual([
      expect.objectContaining({ cancel_scope: 'planner' }),
      expect.objectContaining({ cancel_scope: 'worker' }),
    ]);
  });
});
