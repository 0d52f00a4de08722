// Conclude: a running turn answers with what it has, in one last model call that may use no tool (20 §3).
import { describe, expect, it } from 'vitest';
import { cancelTurn, concludeTurn } from '#core/engine/control-turn.ts';
import type { AnyEvent } from '#protocol/event.ts';
import { joinText } from '#protocol/message.ts';
import { toolText } from '#protocol/tool.ts';
import { startEngine, type TestEngine } from '../support/engine.ts';
import { manualClock } from '../support/manual-clock.ts';
import { at, gate, restart } from '../support/moments.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { tool } from '../support/tools.ts';
import { until } from '../support/until.ts';

const STOP = '[Stop here: answer now with what you have.]';
const slowTool = () => {
  const door = gate();
  const began: string[] = [];
  const slow = tool('slow', {
    execute: (_input, { tool_use_id }) => {
      began.push(tool_use_id);
      return door.opened.then(() => toolText('ok'));
    },
  });
  return { door, slow, began };
};
/** Roles and texts of a request's messages. */
const said = (t: TestEngine, n = -1) =>
  t.adapter.requests
    .at(n)!
    .messages.map((m) => (m.role === 'assistant' ? 'assistant' : `${m.role} ${joinText(m.content)}`.trim()));
const terminators = (t: TestEngine) =>
  (t.events as AnyEvent[]).filter((e) => e.type === 'turn.completed').map((e) => e.payload.concluded);

describe('a turn that is concluded', () => {
  it('while a tool runs lets it end, starts no other, and makes one last call that may use none', async () => {
    const { door, slow, began } = slowTool();
    const t = await startEngine({
      tools: [slow],
      config: { tools: { max_concurrent_per_session: 1 } },
      scenario: scenario(planner({ tool_calls: [call('slow', {}), call('slow', {})] }, { text: 'all that I have' }), [
        { match: { turn: 2 }, respond: { text: 'the second turn' } },
      ]),
    });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    await t.event('tool.called');
    expect(await concludeTurn(t.engine, session.id, turnId)).toEqual({ turn_id: turnId, applied: true });
    expect(await concludeTurn(t.engine, session.id, turnId)).toEqual({ turn_id: turnId, applied: false });
    door.open();
    expect(await t.ended(turnId)).toMatchObject({
      status: 'completed',
      stop_reason: 'end_turn',
      output: 'all that I have',
    });
    expect(began).toHaveLength(1);
    expect(t.events.filter((e) => e.type === 'tool.failed').map((e) => e.payload)).toMatchObject([
      { error_class: 'cancelled', error_message: 'Tool call not started: the turn is to answer with what it has.' },
    ]);
    expect(said(t)).toEqual(['user go', 'assistant', 'tool', 'tool', `user ${STOP}`]);
    const [first, last] = t.adapter.requests;
    expect([first!.tool_choice, last!.tool_choice]).toEqual([undefined, 'none']);
    expect(last!.tools).toEqual(first!.tools);
    expect(terminators(t)).toEqual([true]);
    await expect(concludeTurn(t.engine, session.id, turnId)).rejects.toMatchObject({ code: 'turn_not_running' });
    // The next turn may use its tools again.
    expect(await t.run(session, 'more')).toMatchObject({ output: 'the second turn' });
    expect(t.adapter.requests.at(-1)!.tool_choice).toBeUndefined();
    expect(terminators(t)).toEqual([true, false]);
  });

  // Promise 20.18: concluded in its third tool cycle, a worker's tool ends, one call without tools follows, and it succeeds.
  it('in the third tool cycle of a worker makes the delegation the success that its answer is', async () => {
    const { door, slow } = slowTool();
    const t = await startEngine({
      tools: [slow, tool('quick')],
      scenario: scenario(
        planner({ tool_calls: [delegate('look around')] }, { text: 'done' }),
        worker(
          'look around',
          { tool_calls: [call('quick', {})] },
          { tool_calls: [call('quick', {})] },
          { tool_calls: [call('slow', {})] },
          { text: 'half of it' },
        ),
      ),
    });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    const { session_id, turn_id } = await t.event('tool.called', (e) => e.payload.tool_name === 'slow');
    expect(await concludeTurn(t.engine, session_id, turn_id!)).toMatchObject({ applied: true });
    door.open();
    expect(await t.ended(turnId)).toMatchObject({ status: 'completed', output: 'done' });
    expect((await t.event('delegate.completed')).payload).toMatchObject({ success: true, llm_call_count: 4 });
    const workers = t.adapter.requests.filter((r) => r.caller.is_worker);
    expect(workers.map((r) => r.tool_choice)).toEqual([undefined, undefined, undefined, 'none']);
    expect(joinText(workers.at(-1)!.messages.at(-1)!.content)).toBe(STOP);
    const ends = (t.events as AnyEvent[]).filter((e) => e.type === 'turn.completed');
    expect(ends.map((e) => [e.session_id === session_id, e.payload.concluded])).toEqual([
      [true, true],
      [false, false],
    ]);
  });

  // Promise 20.18: while an answer streams, that call ends first.
  it('while an answer streams lets that call end first, and starts none of its tools', async () => {
    const t = await startEngine({
      tools: [tool('quick')],
      scenario: scenario(
        planner({ text: 'let me look', chunk_chars: 1, tool_calls: [call('quick', {})] }, { text: 'what I have' }),
      ),
    });
    const session = await t.session();
    let concluded: Promise<unknown> | null = null;
    at(
      t,
      (e) => e.type === 'llm.call_started',
      () => {
        concluded = concludeTurn(t.engine, session.id, t.events.find((e) => e.turn_id !== null)!.turn_id!);
      },
    );
    const turnId = await t.submit(session, 'go');
    expect(await t.ended(turnId)).toMatchObject({ output: 'what I have', llm_call_count: 2, tool_call_count: 1 });
    expect(await concluded).toMatchObject({ applied: true });
    expect(t.events.filter((e) => e.type === 'tool.called')).toHaveLength(0);
    expect(terminators(t)).toEqual([true]);
  });

  // Promise 20.18: on a turn that ends by itself nothing happens.
  it('that ends by itself is not changed by it', async () => {
    const t = await startEngine({ scenario: scenario(planner({ text: 'finished', chunk_chars: 1 })) });
    const session = await t.session();
    at(
      t,
      (e) => e.type === 'llm.call_started',
      () => void concludeTurn(t.engine, session.id, t.events.find((e) => e.turn_id !== null)!.turn_id!),
    );
    const turnId = await t.submit(session, 'go');
    expect(await t.ended(turnId)).toMatchObject({ output: 'finished', llm_call_count: 1 });
    expect(t.adapter.requests).toHaveLength(1);
    expect(terminators(t)).toEqual([false]);
  });

  it('does not wait for an approval: the call that asks for it is not started', async () => {
    const { slow, began } = slowTool();
    const t = await startEngine({
      tools: [slow],
      config: { tool_confirmation: { per_tool: { slow: 'prompt' } } as never },
      scenario: scenario(planner({ tool_calls: [call('slow', {})] }, { text: 'without it' })),
    });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    await t.event('tool.confirmation_requested');
    await concludeTurn(t.engine, session.id, turnId);
    expect(await t.ended(turnId)).toMatchObject({ output: 'without it' });
    expect((await t.event('tool.confirmation_resolved')).payload).toMatchObject({ decision: 'cancelled' });
    expect(began).toHaveLength(0);
  });

  it('ends although its model calls a tool that it could not have, and reads no message that comes later', async () => {
    const { door, slow, began } = slowTool();
    const t = await startEngine({
      tools: [slow],
      scenario: scenario(
        planner({ tool_calls: [call('slow', {})] }, { text: 'nearly', tool_calls: [call('slow', {})] }),
      ),
    });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    await t.event('tool.called');
    await concludeTurn(t.engine, session.id, turnId);
    let steered: Promise<unknown> | null = null;
    at(
      t,
      (e) => e.type === 'llm.call_started' && e.payload.call_index === 2,
      () => {
        steered = t.submit(session, 'wait', { if_busy: 'steer' });
      },
    );
    door.open();
    expect(await t.ended(turnId)).toMatchObject({ status: 'completed', stop_reason: 'end_turn', output: 'nearly' });
    expect(await steered).toBe(turnId);
    expect((await t.event('turn.completed')).payload).toMatchObject({ concluded: true, unread_inputs: 1 });
    expect(began).toHaveLength(1);
  });

  it('reads a message that steers it before the one that stops it', async () => {
    const { door, slow } = slowTool();
    const t = await startEngine({
      tools: [slow],
      scenario: scenario(planner({ tool_calls: [call('slow', {})] }, { text: 'so be it' })),
    });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    await t.event('tool.called');
    await concludeTurn(t.engine, session.id, turnId);
    await t.submit(session, 'in German', { if_busy: 'steer' });
    door.open();
    expect(await t.ended(turnId)).toMatchObject({ output: 'so be it' });
    expect(said(t)).toEqual(['user go', 'assistant', 'tool', 'user in German', `user ${STOP}`]);
  });

  it('can still be cancelled, and then takes no conclusion any more', async () => {
    const { door, slow } = slowTool();
    const t = await startEngine({ tools: [slow], scenario: scenario(planner({ tool_calls: [call('slow', {})] })) });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    await t.event('tool.called');
    await concludeTurn(t.engine, session.id, turnId);
    await cancelTurn(t.engine, session.id, turnId, null);
    await expect(concludeTurn(t.engine, session.id, turnId)).rejects.toMatchObject({ code: 'turn_not_running' });
    door.open();
    expect(await t.ended(turnId)).toMatchObject({ status: 'cancelled' });
  });

  it('survives a crash before and behind the message that stops it', async () => {
    const { slow } = slowTool();
    const first = await startEngine({ tools: [slow], scenario: scenario(planner({ tool_calls: [call('slow', {})] })) });
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    await first.event('tool.called');
    await concludeTurn(first.engine, session.id, turnId);
    const hangs = scenario([{ match: { call: 2 }, respond: { hang: true } }]);
    const second = await restart(first, { tools: [tool('slow')], scenario: hangs });
    await until(() => second.adapter.requests.length === 1);
    const third = await restart(second, {
      tools: [tool('slow')],
      scenario: scenario([{ match: { call: 2 }, respond: { text: 'what I have' } }]),
    });
    expect(await third.ended(turnId)).toMatchObject({ status: 'completed', output: 'what I have' });
    for (const t of [second, third]) {
      expect(t.adapter.requests[0]!.tool_choice).toBe('none');
      expect(said(t).filter((line) => line === `user ${STOP}`)).toHaveLength(1);
      expect(said(t).at(-1)).toBe(`user ${STOP}`);
    }
    expect(terminators(third)).toEqual([true]);
  });

  it("is unknown, has ended or is another session's", async () => {
    const t = await startEngine({ scenario: scenario(planner({ text: 'ok' })) });
    const session = await t.session();
    const other = await t.session();
    const turnId = (await t.run(session, 'go')).id;
    await expect(concludeTurn(t.engine, session.id, turnId)).rejects.toMatchObject({ code: 'turn_not_running' });
    await expect(concludeTurn(t.engine, other.id, turnId)).rejects.toMatchObject({ code: 'not_found' });
    await expect(concludeTurn(t.engine, 'sess_none', turnId)).rejects.toMatchObject({ code: 'not_found' });
  });
});

const usage = { input_tokens: 1000, output_tokens: 4000 };

describe('delegation.conclude_at', () => {
  const working = (respond: Readonly<Record<string, unknown>> = {}) =>
    scenario(planner({ tool_calls: [delegate('dig', respond)] }, { text: 'done' }), [
      { match: { role: 'worker', call: 1 }, respond: { tool_calls: [call('slow', {})], usage } },
      { match: { role: 'worker', call: 2 }, respond: { text: 'what I found' } },
    ]);

  // Promise 20.18: with conclude_at 0.8 and a timeout there is an answer instead of `timeout`.
  it("of a worker's time: an answer instead of a timeout", async () => {
    const time = manualClock();
    const { door, slow } = slowTool();
    const t = await startEngine({
      clock: time,
      tools: [slow],
      config: { delegation: { conclude_at: 0.8 } },
      scenario: working({ timeout_seconds: 10 }),
    });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    await t.event('tool.called', (e) => e.payload.tool_name === 'slow');
    time.advance(9_000);
    door.open();
    expect(await t.ended(turnId)).toMatchObject({ status: 'completed' });
    const workers = t.adapter.requests.filter((r) => r.caller.is_worker);
    expect(workers.map((r) => r.tool_choice)).toEqual([undefined, 'none']);
    expect((await t.event('delegate.completed')).payload).toMatchObject({ success: true });
    expect(terminators(t)).toEqual([true, false]);
  });

  it('of its tokens and of its own money, and of nothing without a limit', async () => {
    for (const [rest, tool_choice] of [
      // The first call takes 4,000 tokens and $0.021.
      [{ max_tokens: 5000 }, 'none'],
      [{ max_tokens: 10_000 }, undefined],
      [{ max_cost_usd: '0.026' }, 'none'],
      [{ max_cost_usd: '1' }, undefined],
      [{}, undefined],
    ] as const) {
      const t = await startEngine({
        tools: [tool('slow')],
        config: { delegation: { conclude_at: 0.8 }, turn: { max_output_tokens: 256 } },
        scenario: working(rest),
      });
      await t.run(await t.session(), 'go');
      const workers = t.adapter.requests.filter((r) => r.caller.is_worker);
      expect(
        workers.map((r) => r.tool_choice),
        JSON.stringify(rest),
      ).toEqual([undefined, tool_choice]);
      await t.close();
    }
  });

  it('asks for no repair of the answer that it made', async () => {
    const schema = { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] };
    const t = await startEngine({
      tools: [tool('slow')],
      config: { delegation: { conclude_at: 0.5 } },
      scenario: working({ max_tokens: 8000, output_schema: schema }),
    });
    await t.run(await t.session(), 'go');
    expect((await t.event('delegate.failed')).payload).toMatchObject({
      failure_mode: 'output_schema_validation_failed',
      turn_count: 1,
    });
  });
});
