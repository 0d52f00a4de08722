// Stop means stop: what is cancelled, in which order it is reported, and that the session goes on (04 §9, 02 §10.5-6).
import { describe, expect, it } from 'vitest';
import { cancelTurn } from '#core/engine/control-turn.ts';
import { endSession } from '#core/engine/manage-session.ts';
import type { ToolResultBlock } from '#protocol/message.ts';
import { startEngine, type TestEngine } from '../support/engine.ts';
import { startServer } from '../support/http.ts';
import { manualClock } from '../support/manual-clock.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { resultsOf, textOf } from '../support/stored.ts';
import { until } from '../support/until.ts';

/** Every tool use of a complete message is answered exactly once, in order. */
async function pairing(t: TestEngine, sessionId: string) {
  const history = await t.engine.store.messages.history(sessionId as never);
  const asked = history
    .filter((m) => m.role === 'assistant' && m.metadata.status === 'complete')
    .flatMap((m) => m.content.filter((b) => b.type === 'tool_use').map((b) => b.id));
  const answered = history.filter((m) => m.role === 'tool').map((m) => (m.content[0] as ToolResultBlock).tool_use_id);
  expect(answered).toEqual(asked);
}

describe('cancelling a planner', () => {
  const jobs = ['a', 'b', 'c', 'd'];
  const hanging = scenario(
    planner({ tool_calls: jobs.map((j) => delegate(`job-${j}`)) }),
    ...jobs.map((j) => worker(`job-${j}`, { hang: true })),
    [{ match: { turn: 2 }, respond: { text: 'fresh start' } }],
  );

  // Promise 02.12: A cancelled planner ends its workers and waiting calls first and itself last.
  // Promise 04.12: Cancelling a planner ends every worker and waiting call first; the session goes on.
  it('ends three workers and one waiting call first, and its own turn last', async () => {
    const t = await startEngine({ scenario: hanging, config: { tools: { max_concurrent_per_session: 3 } } });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    const started = new Set<string>();
    await t.event('llm.call_started', (e) => {
      if (e.session_id !== session.id) started.add(e.session_id);
      return started.size === 3;
    });
    await cancelTurn(t.engine, session.id, turnId, 'changed my mind');
    const turn = await t.ended(turnId);
    expect(turn).toMatchObject({ status: 'cancelled', cancel_reason: 'user_cancel' });
    const of = (type: string) => t.events.filter((e) => e.type === type);
    expect(of('turn.cancelled')).toHaveLength(4);
    expect(of('delegate.failed').map((e) => e.payload)).toEqual(
      Array(3).fill(expect.objectContaining({ failure_mode: 'cancelled_by_user', cancel_scope: 'planner' })),
    );
    expect(of('tool.failed').filter((e) => e.session_id === session.id)).toHaveLength(4);
    expect(of('tool.called').filter((e) => e.session_id === session.id)).toHaveLength(3);
    expect(of('delegate.completed')).toHaveLength(0);
    const last = t.events.at(-1)!;
    expect([last.type, last.session_id]).toEqual(['turn.cancelled', session.id]);
    expect(last.payload).toMatchObject({ reason: 'user_cancel', reason_detail: 'changed my mind' });
    for (const e of of('session.ended')) expect(e.payload).toMatchObject({ disposition: 'cancelled' });
    await pairing(t, session.id);
    const after = await t.run(session, 'again');
    expect(after).toMatchObject({ status: 'completed', output: 'fresh start' });
  });

  it('is reported once however often it is asked for', async () => {
    const t = await startEngine({ scenario: hanging });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    await t.event('llm.call_started', (e) => e.session_id !== session.id);
    await cancelTurn(t.engine, session.id, turnId, null);
    await cancelTurn(t.engine, session.id, turnId, 'again');
    await t.ended(turnId);
    expect(t.events.filter((e) => e.type === 'turn.cancelled' && e.session_id === session.id)).toHaveLength(1);
    await expect(cancelTurn(t.engine, session.id, turnId, null)).rejects.toMatchObject({
      code: 'turn_already_completed',
    });
  });

  it('leaves a worker that had already finished as it is', async () => {
    const t = await startEngine({
      scenario: scenario(
        planner({ tool_calls: [delegate('quick'), delegate('slow')] }),
        worker('quick', { text: 'finished' }),
        worker('slow', { hang: true }),
      ),
    });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    await t.event('tool.completed');
    await cancelTurn(t.engine, session.id, turnId, null);
    await t.ended(turnId);
    const history = await t.engine.store.messages.history(session.id);
    const results = history.filter((m) => m.role === 'tool').map((m) => m.content[0] as ToolResultBlock);
    expect(results.map((r) => r.is_error)).toEqual([false, true]);
    expect(textOf(results[0]!)).toBe('finished');
    await pairing(t, session.id);
  });
});

describe('cancelling one worker', () => {
  // Promise 04.13: Cancelling one worker is a failure the planner reads.
  it('is a failure the planner reads; its turn and the sibling go on', async () => {
    const t = await startEngine({
      scenario: scenario(
        planner({ tool_calls: [delegate('stuck'), delegate('fine')] }, { text: 'one of two' }),
        worker('stuck', { hang: true }),
        worker('fine', { text: 'done' }),
      ),
    });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    await t.event('delegate.started');
    await t.event('delegate.started', (e) => e !== t.events.find((x) => x.type === 'delegate.started'));
    // Which of the two starts first is for the disk to say; ids are in block order.
    const [stuck] = t.events
      .flatMap((e) =>
        e.type === 'delegate.started' ? [e.payload as Record<'tool_use_id' | 'worker_session_id', string>] : [],
      )
      .sort((x, y) => (x.tool_use_id < y.tool_use_id ? -1 : 1));
    const w = stuck!.worker_session_id;
    const begun = await t.event('llm.call_started', (e) => e.session_id === w);
    await cancelTurn(t.engine, w, begun.turn_id!, null);
    const turn = await t.ended(turnId);
    expect(turn).toMatchObject({ status: 'completed', output: 'one of two' });
    const failed = t.events.find((e) => e.type === 'delegate.failed')!;
    expect(failed.payload).toMatchObject({
      failure_mode: 'cancelled_by_user',
      cancel_scope: 'worker',
      error_message: expect.stringMatching(/^worker cancelled directly/),
    });
    const [result] = (await resultsOf(t, session.id)).map(textOf);
    expect(JSON.parse(result!).error).toMatch(
      /^cancelled_by_user: .* by the user, .* do not start the same work again/,
    );
  });
});

describe('a worker that takes too long', () => {
  const slow = (seconds: number) =>
    scenario(
      planner({ tool_calls: [delegate('slow', { timeout_seconds: seconds })] }, { text: 'too slow' }),
      worker(
        'slow',
        { text: 'thinking', tool_calls: [call('list_files', {})], usage: { input_tokens: 1000, output_tokens: 100 } },
        { hang: true },
      ),
    );

  // Promise 02.15: A worker that timed out after a paid call reports that cost.
  // Promise 04.14: A worker is ended at its time limit with what it spent.
  it('is ended at its limit with what it spent, and the planner goes on', async () => {
    const clock = manualClock();
    const t = await startEngine({ scenario: slow(5), clock });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    await t.event(
      'llm.call_started',
      (e) => e.session_id !== session.id && (e.payload as { call_index: number }).call_index === 2,
    );
    clock.advance(5000);
    const turn = await t.ended(turnId);
    expect(turn).toMatchObject({ status: 'completed', output: 'too slow' });
    expect(t.events.find((e) => e.type === 'delegate.failed')!.payload).toMatchObject({
      failure_mode: 'timeout',
      error_message: 'timeout: worker exceeded 5s',
      worker_total_cost_usd: '0.0015',
    });
    expect(t.events.find((e) => e.type === 'turn.cancelled')!.payload).toMatchObject({ reason: 'timeout' });
    expect(t.events.find((e) => e.type === 'session.ended')!.payload).toMatchObject({ disposition: 'failed' });
  });
});

describe('cancelling in mid-stream', () => {
  const streaming = scenario(
    planner({
      text: 'a long answer that is never finished',
      tool_calls: [call('write_file', { path: 'x', content: 'y' })],
      chunk_chars: 4,
      chunk_delay_ms: 30,
    }),
    [{ match: { turn: 2 }, respond: { text: 'next' } }],
  );

  it('stores the partial answer as cancelled with its cost, and never sends it again', async () => {
    const t = await startEngine({ scenario: streaming });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    await until(() => t.deltas.some((d) => d.delta.type === 'text.delta'));
    await cancelTurn(t.engine, session.id, turnId, null);
    const turn = await t.ended(turnId);
    expect(turn.status).toBe('cancelled');
    expect(turn.total_cost_usd).not.toBe('0');
    const completed = t.events.find((e) => e.type === 'llm.call_completed')!;
    expect(completed.payload).toMatchObject({ stop_reason: 'cancelled', error_class: 'cancelled' });
    const stored = (await t.engine.store.messages.history(session.id)).at(-1)!;
    expect([stored.role, stored.metadata.status]).toEqual(['assistant', 'cancelled']);
    expect(t.events.some((e) => e.type.startsWith('tool.'))).toBe(false);
    const closings = t.deltas.filter((d) => d.delta.type === 'message.complete');
    expect(closings).toHaveLength(1);
    await t.run(session, 'go on');
    expect(t.adapter.requests.at(-1)!.messages.map((m) => m.role)).toEqual(['user', 'user']);
  });

  it('a call cut before its first word costs nothing', async () => {
    const t = await startEngine({ scenario: scenario(planner({ hang: true })) });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    await t.event('llm.call_started');
    await cancelTurn(t.engine, session.id, turnId, null);
    await t.ended(turnId);
    expect(t.typesOf(session.id).slice(-2)).toEqual(['llm.call_failed', 'turn.cancelled']);
    expect(t.rows().llm_calls).toBe(0);
  });
});

describe('cancelling running tools', () => {
  // Promise 09.13: Cancelling a running command ends it before the turn is reported cancelled.
  it('ends the process and answers every call', async () => {
    const t = await startEngine({
      config: { tool_confirmation: { per_tool: { shell: 'auto', delegate: 'auto' } } },
      scenario: scenario(
        planner({ tool_calls: [call('shell', { command: 'echo started; sleep 60' }), call('list_files', {})] }),
        [{ match: { turn: 2 }, respond: { text: 'next' } }],
      ),
    });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    await t.event('tool.completed');
    await t.event('tool.called', (e) => (e.payload as { tool_name: string }).tool_name === 'shell');
    await cancelTurn(t.engine, session.id, turnId, null);
    await t.ended(turnId);
    expect(t.typesOf(session.id).slice(-2)).toEqual(['tool.failed', 'turn.cancelled']);
    await pairing(t, session.id);
    const next = await t.run(session, 'go on');
    expect(next.status).toBe('completed');
  });
});

describe('cancelling two tools at once', () => {
  // Promise 01.15: Cancelling two running tools answers both calls with an error, and the next request pairs every call.
  it('gives both an error result, and the next request pairs every call', async () => {
    const t = await startEngine({
      config: { tool_confirmation: { per_tool: { shell: 'auto', delegate: 'auto' } } },
      scenario: scenario(
        planner({ tool_calls: [call('shell', { command: 'sleep 60' }), call('shell', { command: 'sleep 61' })] }),
        [{ match: { turn: 2 }, respond: { text: 'next' } }],
      ),
    });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    let started = 0;
    await t.event('tool.called', () => ++started === 2);
    await cancelTurn(t.engine, session.id, turnId, null);
    expect((await t.ended(turnId)).status).toBe('cancelled');
    const results = (await t.engine.store.messages.history(session.id))
      .filter((m) => m.role === 'tool')
      .map((m) => m.content[0] as ToolResultBlock);
    expect(results.map((r) => r.is_error)).toEqual([true, true]);
    await t.run(session, 'go on');
    await pairing(t, session.id);
    const sent = t.adapter.requests.at(-1)!.messages;
    expect(sent.map((m) => m.role)).toEqual(['user', 'assistant', 'tool', 'tool', 'user']);
  });

  // Promise 01.15: A stream cut inside a tool call is stored as cancelled, dispatches nothing and is never sent again.
  it('a stream cut inside a tool call dispatches nothing and is not sent again', async () => {
    const t = await startEngine({
      scenario: scenario(
        planner({
          tool_calls: [call('write_file', { path: 'x', content: 'a long text that takes a while to say' })],
          chunk_chars: 4,
          chunk_delay_ms: 20,
        }),
        [{ match: { turn: 2 }, respond: { text: 'next' } }],
      ),
    });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    await until(() => t.deltas.some((d) => d.delta.type === 'tool.use_input_delta'));
    await cancelTurn(t.engine, session.id, turnId, null);
    await t.ended(turnId);
    const kinds = t.deltas.map((d) => d.delta.type).filter((type) => type !== 'tool.use_input_delta');
    expect(kinds.slice(-3)).toEqual(['tool.use_start', 'tool.use_end', 'message.complete']);
    const stored = (await t.engine.store.messages.history(session.id)).at(-1)!;
    expect(stored.metadata.status).toBe('cancelled');
    expect(t.events.some((e) => e.type.startsWith('tool.'))).toBe(false);
    expect(t.db.db.prepare('SELECT status FROM tool_calls').pluck().all()).toEqual(['cancelled']);
    await t.run(session, 'go on');
    expect(t.adapter.requests.at(-1)!.messages.map((m) => m.role)).toEqual(['user', 'user']);
  });
});

describe('a cut call whose provider had counted', () => {
  // Promise 01.25: A call cut after its usage was known costs it; one cut before any byte costs nothing.
  // Promise 02.13: A cancelled stream with known usage is a completed call with its cost in the reports.
  it('costs what was counted, once; one refused before any byte costs nothing', async () => {
    const t = await startServer({
      scenario: scenario(
        planner({
          text: 'a text that is never finished by its model',
          chunk_chars: 4,
          chunk_delay_ms: 20,
          usage: { input_tokens: 100, output_tokens: 7 },
        }),
        [{ match: { turn: 2 }, respond: { hang: true } }],
      ),
    });
    const session = await t.session({ initial_active_model: 'haiku' });
    const first = await t.submit(session, 'go');
    await until(() => t.deltas.some((d) => d.delta.type === 'text.delta'));
    await cancelTurn(t.engine, session.id, first, null);
    await t.ended(first);
    expect(t.events.find((e) => e.type === 'llm.call_completed')!.payload).toMatchObject({
      stop_reason: 'cancelled',
      input_tokens: 100,
      output_tokens: 7,
      usage_estimated: false,
      cost_usd: '0.000135',
    });
    const second = await t.submit(session, 'again');
    await t.event('llm.call_started', (e) => e.turn_id === second);
    await cancelTurn(t.engine, session.id, second, null);
    await t.ended(second);
    const cost = await t.call('GET', `/analytics/cost?group_by=none&from=all&session=${session.id}`);
    expect(cost.body.data).toMatchObject({ cost_usd: '0.000135', call_count: 1 });
    expect((await t.engine.store.sessions.view(session.id))!.cost_so_far_usd).toBe('0.000135');
  });
});

describe('ending a session', () => {
  it('cancels what runs, then ends once', async () => {
    const t = await startEngine({
      scenario: scenario(planner({ tool_calls: [delegate('job')] }), worker('job', { hang: true })),
    });
    const session = await t.session();
    await t.submit(session, 'go');
    await t.event('llm.call_started', (e) => e.session_id !== session.id);
    await endSession(t.engine, session.id);
    const types = t.events.map((e) => `${e.session_id === session.id ? 'P' : 'W'} ${e.type}`);
    expect(types.slice(types.indexOf('W turn.cancelled'))).toEqual([
      'W turn.cancelled',
      'W session.ended',
      'P delegate.failed',
      'P tool.failed',
      'P turn.cancelled',
      'P session.ended',
    ]);
    await expect(endSession(t.engine, session.id)).rejects.toMatchObject({ code: 'session_already_ended' });
    await expect(t.submit(session, 'more')).rejects.toMatchObject({ code: 'session_already_ended' });
  });
});

describe('a turn with a deadline', () => {
  it('is cancelled for timeout, workers included', async () => {
    const clock = manualClock();
    const t = await startEngine({
      clock,
      config: { turn: { max_llm_calls: 50, max_output_tokens: 4096, timeout_seconds: 3 } },
      scenario: scenario(planner({ tool_calls: [delegate('job')] }), worker('job', { hang: true })),
    });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    await t.event('llm.call_started', (e) => e.session_id !== session.id);
    clock.advance(3000);
    const turn = await t.ended(turnId);
    expect(turn).toMatchObject({ status: 'cancelled', cancel_reason: 'timeout' });
    expect(
      t.events.filter((e) => e.type === 'turn.cancelled').map((e) => (e.payload as { reason: string }).reason),
    ).toEqual(['timeout', 'timeout']);
    expect(t.events.find((e) => e.type === 'delegate.failed')!.payload).toMatchObject({ cancel_scope: 'planner' });
  });
});
