// Steering: what is said to a running turn is stored at once and read at its next step boundary (20 §4).
import { describe, expect, it } from 'vitest';
import { cancelTurn } from '#core/engine/control-turn.ts';
import { joinText } from '#protocol/message.ts';
import { toolText } from '#protocol/tool.ts';
import { startEngine, type TestEngine } from '../support/engine.ts';
import { at, gate, restart } from '../support/moments.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { tool } from '../support/tools.ts';

const slowTool = () => {
  const door = gate();
  return { door, slow: tool('slow', { execute: () => door.opened.then(() => toolText('ok')) }) };
};
const steer = (t: TestEngine, session: Parameters<TestEngine['submit']>[0], text: string) =>
  t.submit(session, text, { if_busy: 'steer' });
/** Roles and texts of the newest request's messages. */
const said = (t: TestEngine) =>
  t.adapter.requests.at(-1)!.messages.map((m) => (m.role === 'user' ? `user ${joinText(m.content)}` : m.role));
const steered = (t: TestEngine) => t.events.filter((e) => e.type === 'turn.steered');

describe('a message for a running turn', () => {
  // Promise 20.8: Said while a tool runs, the next request ends with the tool results and then the message.
  it('that comes while a tool runs stands behind its result in the next request', async () => {
    const { door, slow } = slowTool();
    const t = await startEngine({
      tools: [slow],
      scenario: scenario(planner({ tool_calls: [call('slow', {})] }, { text: 'as you wish' }), [
        { match: { turn: 2 }, respond: { text: 'the second turn' } },
      ]),
    });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    await t.event('tool.called');
    expect(await steer(t, session, 'faster')).toBe(turnId);
    expect(await steer(t, session, 'and shorter')).toBe(turnId);
    expect(await t.engine.store.turns.view(session.id, turnId)).toMatchObject({
      unread_inputs: 2,
      inputs: [{ text: 'faster' }, { text: 'and shorter' }],
    });
    door.open();
    const turn = await t.ended(turnId);
    expect(turn).toMatchObject({ status: 'completed', output: 'as you wish', unread_inputs: 0, inputs: [] });
    expect(said(t)).toEqual(['user go', 'assistant', 'tool', 'user faster', 'user and shorter']);
    const order = t.typesOf(session.id);
    const at = order.indexOf('turn.steered');
    expect(order.slice(at - 1, at + 3)).toEqual(['tool.completed', 'turn.steered', 'turn.steered', 'llm.call_started']);
    const [first, second] = steered(t);
    const started = t.events.findLast((e) => e.type === 'llm.call_started')!;
    expect(started.parent_event_id).toBe(second!.id);
    const { messages } = await t.engine.store.messages.page(session.id, { before: null, after: null, limit: 50 });
    expect(
      messages
        .filter((m) => m.role === 'user')
        .map((m) => m.id)
        .slice(1),
    ).toEqual([
      (first!.payload as { message_id: string }).message_id,
      (second!.payload as { message_id: string }).message_id,
    ]);
    // It began no turn: the next one is the second.
    expect(await t.run(session, 'more')).toMatchObject({ output: 'the second turn' });
  });

  it('that comes while an answer is cut off in a tool call is read behind the result of that call', async () => {
    const t = await startEngine({
      tools: [tool('quick')],
      scenario: scenario(
        planner(
          { text: 'let me look', chunk_chars: 1, tool_calls: [call('quick', {})], stop_reason: 'max_tokens' },
          { text: 'as you wish' },
        ),
      ),
    });
    const session = await t.session();
    let sent: Promise<unknown> | null = null;
    at(
      t,
      (e) => e.type === 'llm.call_started',
      () => {
        sent = steer(t, session, 'shorter');
      },
    );
    const turnId = await t.submit(session, 'go');
    expect(await t.ended(turnId)).toMatchObject({ status: 'completed', output: 'as you wish' });
    await sent;
    expect(said(t)).toEqual(['user go', 'assistant', 'tool', 'user shorter']);
    expect((await t.event('tool.failed')).payload.error_message).toBe(
      'Tool call not executed: the answer that holds it was cut off.',
    );
  });

  // Promise 20.8: Said while the last answer streams, one more step.
  it('that comes while the last answer streams makes one more step of it', async () => {
    const t = await startEngine({
      scenario: scenario(planner({ text: 'finished', chunk_chars: 1 }, { text: 'one thing more' })),
    });
    const session = await t.session();
    let joined: Promise<string> | null = null;
    at(
      t,
      (e) => e.type === 'llm.call_started',
      () => {
        joined = steer(t, session, 'wait');
      },
    );
    const turnId = await t.submit(session, 'go');
    const turn = await t.ended(turnId);
    expect(await joined).toBe(turnId);
    expect(turn).toMatchObject({ status: 'completed', output: 'one thing more', llm_call_count: 2, unread_inputs: 0 });
    expect(said(t)).toEqual(['user go', 'assistant', 'user wait']);
  });

  it('is never lost to the end of its turn, at whatever moment it comes: it is read, or begins a turn', async () => {
    for (let hops = 0; hops < 24; hops++) {
      const t = await startEngine({ scenario: scenario([{ match: {}, times: 'inf', respond: { text: 'ok' } }]) });
      const session = await t.session();
      let joined: Promise<string> | null = null;
      at(
        t,
        (e) => e.type === 'llm.call_started',
        () => {
          const later = (n: number): void => {
            if (n > 0) setImmediate(() => later(n - 1));
            else joined = steer(t, session, 'and this');
          };
          later(hops);
        },
      );
      await t.ended(await t.submit(session, 'go'));
      await t.event('turn.completed');
      while (joined === null) await new Promise(setImmediate);
      const turn = await t.ended(await joined);
      expect(turn).toMatchObject({ status: 'completed', unread_inputs: 0 });
      expect(said(t).at(-1)).toBe('user and this');
      await t.close();
    }
  });

  it('is there after a crash before the boundary, and is read once', async () => {
    const { slow } = slowTool();
    const first = await startEngine({
      tools: [slow],
      scenario: scenario(planner({ tool_calls: [call('slow', {})] })),
    });
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    await first.event('tool.called');
    await steer(first, session, 'after the crash');
    const second = await restart(first, {
      tools: [tool('slow')],
      scenario: scenario([{ match: { call: 2 }, respond: { text: 'heard' } }]),
    });
    expect(await second.ended(turnId)).toMatchObject({ output: 'heard', unread_inputs: 0 });
    expect(said(second)).toEqual(['user go', 'assistant', 'tool', 'user after the crash']);
    expect(steered(second)).toHaveLength(1);
  });

  // Promise 20.8: A worker can be steered, a turn of its own is still 409.
  it('joins a worker too, on which a turn of its own is still refused', async () => {
    const { door, slow } = slowTool();
    const t = await startEngine({
      tools: [slow],
      scenario: scenario(
        planner({ tool_calls: [delegate('look around')] }, { text: 'done' }),
        worker('look around', { tool_calls: [call('slow', {})] }, { text: 'seen' }),
      ),
    });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    const { session_id } = await t.event('tool.called', (e) => e.payload.tool_name === 'slow');
    await expect(t.submit(session_id, 'you')).rejects.toMatchObject({ code: 'session_is_worker' });
    await expect(t.submit(session_id, 'you', { if_busy: 'interrupt' })).rejects.toMatchObject({
      code: 'session_is_worker',
    });
    await steer(t, session_id, 'look up as well');
    door.open();
    expect(await t.ended(turnId)).toMatchObject({ status: 'completed', output: 'done' });
    const request = t.adapter.requests.find((r) => joinText(r.messages.at(-1)!.content) === 'look up as well');
    expect(request?.caller.is_worker).toBe(true);
    expect(steered(t)).toMatchObject([{ session_id, actor: 'worker' }]);
    await expect(steer(t, session_id, 'too late')).rejects.toMatchObject({ code: 'session_already_ended' });
  });

  // Promise 20.9: A cancelled turn with two waiting inputs counts them and shows their texts.
  it('is given back by a turn that is cancelled: counted by its end, its text readable', async () => {
    const { door, slow } = slowTool();
    const t = await startEngine({ tools: [slow], scenario: scenario(planner({ tool_calls: [call('slow', {})] })) });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    await t.event('tool.called');
    await steer(t, session, 'one');
    await steer(t, session, 'two');
    await cancelTurn(t.engine, session.id, turnId, null);
    door.open();
    expect(await t.ended(turnId)).toMatchObject({
      status: 'cancelled',
      unread_inputs: 2,
      inputs: [{ text: 'one' }, { text: 'two' }],
    });
    expect((await t.event('turn.cancelled')).payload).toMatchObject({ unread_inputs: 2 });
    expect(steered(t)).toEqual([]);
  });

  it('is given back where a limit lets nobody answer it', async () => {
    const t = await startEngine({
      config: { turn: { max_llm_calls: 1, max_output_tokens: 100, timeout_seconds: null } },
      scenario: scenario(planner({ text: 'all I may say' })),
    });
    const session = await t.session();
    at(
      t,
      (e) => e.type === 'llm.call_started',
      () => void steer(t, session, 'more'),
    );
    const turnId = await t.submit(session, 'go');
    expect(await t.ended(turnId)).toMatchObject({ stop_reason: 'end_turn', unread_inputs: 1, llm_call_count: 1 });
  });

  it('begins an ordinary turn where none is open', async () => {
    const t = await startEngine({ scenario: scenario(planner({ text: 'hello' })) });
    const session = await t.session();
    expect(await t.run(session, 'hi', { if_busy: 'steer' })).toMatchObject({ output: 'hello' });
    expect(steered(t)).toEqual([]);
  });

  it('must be text of at most 20,000 characters, without a model of its own, and at most 20 wait', async () => {
    const { door, slow } = slowTool();
    const t = await startEngine({ tools: [slow], scenario: scenario(planner({ tool_calls: [call('slow', {})] })) });
    const session = await t.session();
    await t.submit(session, 'go');
    await t.event('tool.called');
    const pixel = { kind: 'base64', data: 'R0lGODlhAQABAAAAACw=' } as const;
    const image = { type: 'image', source: pixel, media_type: 'image/gif' } as const;
    const refused = async (content: Parameters<TestEngine['submit']>[1], path: string, over = {}) =>
      expect(t.submit(session, content, { if_busy: 'steer', ...over })).rejects.toMatchObject({
        code: 'validation_error',
        details: { issues: [{ path }] },
      });
    await refused([image], 'content');
    await refused('x'.repeat(20_001), 'content');
    await refused('faster', 'per_message_override', { per_message_override: 'haiku' });
    await refused('@haiku faster', 'per_message_override');
    const sent = await Promise.allSettled(Array.from({ length: 25 }, (_, i) => steer(t, session, `n${i}`)));
    expect(sent.filter(({ status }) => status === 'fulfilled')).toHaveLength(20);
    for (const one of sent) if (one.status === 'rejected') expect(one.reason.code).toBe('turn_in_flight');
    door.open();
  });
});
