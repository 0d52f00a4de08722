// The tool `workers`: a planner lists, waits for, steers, concludes and cancels the workers that it runs in the background (20 §9).
import { describe, expect, it, vi } from 'vitest';
import { answerConfirmation } from '#core/engine/answer-approval.ts';
import { drain } from '#core/engine/lifecycle.ts';
import type { ToolFactory } from '#core/ports/tool-port.ts';
import { orAbort } from '#protocol/abort.ts';
import type { AnyEvent } from '#protocol/event.ts';
import { joinText } from '#protocol/message.ts';
import { toolText } from '#protocol/tool.ts';
import { type EngineOptions, startEngine, type TestEngine } from '../support/engine.ts';
import { manualClock } from '../support/manual-clock.ts';
import { gate, restart } from '../support/moments.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { tool } from '../support/tools.ts';
import { until } from '../support/until.ts';

const background = (task: string) => delegate(task, { background: true });
const workers = (action: string, rest = {}) => call('workers', { action, ...rest });
const ofType = (t: TestEngine, ...types: string[]) => (t.events as AnyEvent[]).filter((e) => types.includes(e.type));
/** A tool that holds each worker until its gate opens. */
function heldTools<Name extends string>(...names: readonly Name[]) {
  const doors = Object.fromEntries(names.map((name) => [name, gate()])) as Record<Name, ReturnType<typeof gate>>;
  const tools: ToolFactory[] = names.map((name) =>
    tool(name, { execute: (_input, { signal }) => orAbort(doors[name].opened, signal).then(() => toolText('ok')) }),
  );
  return { doors, tools };
}
/** Texts of the planner's tool results, in order, without prices. */
const results = (t: TestEngine) =>
  (t.adapter.requests.findLast((r) => !r.caller.is_worker)?.messages ?? [])
    .flatMap((m) => m.content)
    .flatMap((b) =>
      b.type === 'tool_result' ? [joinText(b.content).replace(/\[worker \S+; continuing[^\n]*\]\n?/g, '')] : [],
    )
    .map((text) => text.trim());
const users = (t: TestEngine) =>
  t.adapter.requests
    .findLast((r) => !r.caller.is_worker)!
    .messages.filter((m) => m.role === 'user')
    .map((m) => joinText(m.content));
const workerIds = (t: TestEngine) => ofType(t, 'delegate.started').map((e) => e.payload.worker_session_id as string);
const TWO = [
  ...worker('task one', { tool_calls: [call('one', {})] }, { text: 'one is done' }),
  ...worker('task two', { tool_calls: [call('two', {})] }, { text: 'two is done' }),
];
const START = { tool_calls: [background('task one'), background('task two')] };

describe('the tool workers', () => {
  it('reads the rows of the workers once where it waits for all of them', async () => {
    const { doors, tools } = heldTools('one', 'two');
    const t = await startEngine({
      tools,
      scenario: scenario(planner(START, { tool_calls: [workers('wait', { for: 'all' })] }, { text: 'all read' }), TWO),
    });
    const session = await t.session();
    const read = vi.spyOn(t.engine.store.delegations, 'ofTurn');
    const turnId = await t.submit(session, 'go');
    await until(() => ofType(t, 'tool.called').some(({ payload }) => payload.tool_name === 'workers'));
    for (const door of Object.values(doors)) door.open();
    expect(await t.ended(turnId)).toMatchObject({ status: 'completed' });
    expect(results(t).join(' ')).toMatch(/one is done.*two is done/s);
    expect(read).toHaveBeenCalledTimes(1);
  });

  // Promise 20.19: `workers wait any` returns the first; a result read by `wait` is not delivered again.
  it('waits for the first that ends, with its result, which is not delivered again', async () => {
    const { doors, tools } = heldTools('one', 'two');
    const t = await startEngine({
      tools,
      scenario: scenario(
        planner(
          START,
          { tool_calls: [workers('wait', { for: 'any' })] },
          { text: 'one is left' },
          { text: 'all read' },
        ),
        TWO,
      ),
    });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    await t.event('tool.called', (e) => e.payload.tool_name === 'workers');
    const [one, two] = workerIds(t);
    doors.two.open();
    await until(() => results(t).length === 3);
    expect(results(t)[2]).toBe(`[worker ${two} completed]\ntwo is done\n[worker ${one} running]`);
    doors.one.open();
    expect(await t.ended(turnId)).toMatchObject({ status: 'completed', output: 'all read', unread_inputs: 0 });
    expect(users(t)).toHaveLength(2);
    expect(users(t)[1]).toContain(`[worker ${one} completed]\none is done`);
    const delivered = ofType(t, 'delegate.delivered');
    expect(delivered.map((e) => e.payload.worker_session_id)).toEqual([two, one]);
    const message = await t.engine.store.messages.get(delivered[0]!.payload.message_id as string);
    expect(message!.role).toBe('tool');
    expect(JSON.stringify(message!.content)).toContain('two is done');
  });

  it('waits for all, and two waits at once read no result twice', async () => {
    const { doors, tools } = heldTools('one', 'two');
    const t = await startEngine({
      tools,
      scenario: scenario(
        planner(
          START,
          { tool_calls: [workers('wait', { for: 'all' }), workers('wait', { for: 'all' })] },
          { text: 'all read' },
        ),
        TWO,
      ),
    });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    await until(() => ofType(t, 'tool.called').filter((e) => e.payload.tool_name === 'workers').length === 2);
    doors.one.open();
    doors.two.open();
    expect(await t.ended(turnId)).toMatchObject({ status: 'completed', output: 'all read', llm_call_count: 3 });
    const read = results(t).slice(2).join('\n');
    expect(read.match(/ is done/g)).toHaveLength(2);
    expect(ofType(t, 'delegate.delivered')).toHaveLength(2);
    expect(users(t)).toHaveLength(1);
  });

  it('waits for the workers that calls beside it start, and not for those behind it', async () => {
    const t = await startEngine({
      scenario: scenario(
        planner(
          { tool_calls: [...START.tool_calls, workers('wait', { for: 'all' })] },
          { tool_calls: [workers('wait', { for: 'all', seconds: 1 }), background('task three')] },
          { text: 'all read' },
          { text: 'all read' },
        ),
        ...['one', 'two', 'three'].map((n) => worker(`task ${n}`, { text: `${n} is done` })),
      ),
    });
    const turnId = await t.submit(await t.session(), 'go');
    expect(await t.ended(turnId)).toMatchObject({ status: 'completed', output: 'all read', unread_inputs: 0 });
    const [one, two] = workerIds(t);
    expect(results(t)[2]).toMatch(
      new RegExp(`^\\[worker ${one} completed\\]\none is done\n+\\[worker ${two} completed`),
    );
    expect(results(t)[3]).not.toContain('three');
    expect(ofType(t, 'delegate.delivered')).toHaveLength(3);
  });

  it('waits for a worker whose start is to be approved, over a stop of the server too', async () => {
    const options: EngineOptions = {
      config: { tool_confirmation: { per_tool: { delegate: 'prompt' } } },
      scenario: scenario(
        planner({ tool_calls: [background('task one'), workers('wait', { for: 'all' })] }, { text: 'all read' }),
        worker('task one', { text: 'one is done' }),
      ),
    };
    const first = await startEngine(options);
    const turnId = await first.submit(await first.session(), 'go');
    await first.event('tool.confirmation_requested');
    await drain(first.engine);
    const t = await restart(first, options);
    const id = await until(() => [...t.engine.approvals.keys()][0]);
    await answerConfirmation(t.engine, id, { decision: 'approve', scope: 'once', reason: null, modified_input: null });
    expect(await t.ended(turnId)).toMatchObject({ status: 'completed', output: 'all read', llm_call_count: 2 });
    expect(results(t)[1]).toContain('one is done');
  });

  it('does not wait beside a call that is refused', async () => {
    const t = await startEngine({
      scenario: scenario(planner({ tool_calls: [background(''), workers('wait', { for: 'any' })] }, { text: 'none' })),
    });
    const turnId = await t.submit(await t.session(), 'go');
    expect(await t.ended(turnId)).toMatchObject({ status: 'completed', output: 'none' });
    expect(results(t)[1]).toBe('[no worker of this turn runs in the background]');
  });

  it('announces a result that no answer can hold, which comes whole as a message', async () => {
    const long = '\u6f22'.repeat(90_000);
    const t = await startEngine({
      scenario: scenario(
        planner(
          { tool_calls: [background('task one')] },
          { tool_calls: [workers('wait', { for: 'all' })] },
          { text: 'read' },
        ),
        worker('task one', { text: long }),
      ),
    });
    const turnId = await t.submit(await t.session(), 'go');
    expect(await t.ended(turnId)).toMatchObject({ status: 'completed', unread_inputs: 0 });
    const [one] = workerIds(t);
    expect(results(t)[1]).toBe(`[worker ${one} has ended; its result follows as a message]`);
    expect(users(t)[1]).toContain(`[worker ${one} completed]\n${long}\n`);
  });

  it('refuses a blank message, which no provider takes', async () => {
    const t = await startEngine({
      scenario: scenario(
        planner(
          { tool_calls: [workers('message', { id: 'sess_01M8ETM8R3KA6359FJV3V44C0S', text: ' \n' })] },
          { text: 'well' },
        ),
      ),
    });
    await t.ended(await t.submit(await t.session(), 'go'));
    expect(results(t)).toEqual(['text: must not be blank']);
  });

  it('stops waiting when a person steers the turn, and after its seconds', async () => {
    const { doors, tools } = heldTools('one', 'two');
    const clock = manualClock();
    const t = await startEngine({
      clock,
      tools,
      scenario: scenario(
        planner(
          START,
          { tool_calls: [workers('wait', { for: 'all' })] },
          { tool_calls: [workers('wait', { for: 'all', seconds: 60 })] },
          { text: 'I go on' },
          { text: 'one' },
          { text: 'two' },
        ),
        TWO,
      ),
    });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    const waits = () => ofType(t, 'tool.called').filter((e) => e.payload.tool_name === 'workers').length;
    await until(() => waits() === 1);
    await t.submit(session, 'how far are you?', { if_busy: 'steer' });
    await until(() => waits() === 2);
    const [one, two] = workerIds(t);
    expect(results(t)[2]).toBe(
      `[worker ${one} running]\n[worker ${two} running]\n[the wait ended: a message for you has come]`,
    );
    expect(users(t).at(-1)).toBe('how far are you?');
    await until(() => {
      clock.advance(60_000);
      return results(t).length === 4;
    });
    expect(results(t)[3]).toContain('[the wait ended after 60 s]');
    doors.one.open();
    doors.two.open();
    expect(await t.ended(turnId)).toMatchObject({ status: 'completed', unread_inputs: 0 });
  });

  it('lists, steers, concludes and cancels own workers, and no other', async () => {
    const { doors, tools } = heldTools('one', 'two');
    const first = await startEngine({
      tools,
      scenario: scenario(planner(START, { tool_calls: [workers('wait', { for: 'any' })] }), TWO),
    });
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    await first.event('tool.called', (e) => e.payload.tool_name === 'workers');
    await until(() => ofType(first, 'tool.called').some((e) => e.payload.tool_name === 'two'));
    const [one, two] = workerIds(first);
    const other = 'sess_01ARZ3NDEKTSV4RRFFQ69G5FAV';
    const again = heldTools('one', 'two');
    const t = await restart(first, {
      tools: again.tools,
      scenario: scenario(
        // The wait that was cut off is made again, and ends when the turn is steered.
        planner(
          { text: 'before the restart' },
          { text: 'before the restart' },
          {
            tool_calls: [
              workers('list'),
              workers('message', { id: one, text: 'be brief' }),
              workers('conclude', { id: one }),
              workers('cancel', { id: two }),
              workers('cancel', { id: other }),
              workers('message', { id: one }),
              workers('wait', { for: 'all', ids: [other] }),
            ],
          },
          { tool_calls: [workers('wait', { for: 'all' })] },
          { text: 'all read' },
          { text: 'all read' },
        ),
        [{ match: { role: 'worker' }, times: 'inf', respond: { text: 'half of it' } }],
      ),
    });
    doors.one.open();
    await until(() => ofType(t, 'turn.resumed').length === 3);
    await t.submit(session, 'stop them', { if_busy: 'steer' });
    await until(() => results(t).length >= 9);
    again.doors.one.open();
    expect(await t.ended(turnId)).toMatchObject({ status: 'completed', output: 'all read', unread_inputs: 0 });
    const [, , , list, message, conclude, cancel, ...errors] = results(t);
    expect(JSON.parse(list!)).toMatchObject([
      { id: one, task: 'task one' },
      { id: two, task: 'task two' },
    ]);
    expect(message).toBe(`[steered worker ${one}]`);
    expect(conclude).toBe(`[worker ${one} is to answer with what it has]`);
    expect(cancel).toBe(`[worker ${two} is being cancelled]`);
    expect(errors.slice(0, 3)).toEqual([
      `this turn started no background worker ${other}; list names those it has`,
      'text: is required for message',
      `this turn started no background worker ${other}; list names those it has`,
    ]);
    expect(ofType(t, 'turn.completed').find((e) => e.session_id === one)!.payload.concluded).toBe(true);
    expect(ofType(t, 'delegate.failed').map((e) => [e.payload.worker_session_id, e.payload.failure_mode])).toEqual([
      [two, 'cancelled_by_user'],
    ]);
  });

  it('that had read a result before the process died has read it once', async () => {
    const { doors, tools } = heldTools('one', 'two');
    const options = {
      tools: [...tools, tool('slow', { execute: () => new Promise<never>(() => {}) })],
      scenario: scenario(
        planner(START, { tool_calls: [workers('wait', { for: 'any' }), call('slow', {})] }, { text: 'read' }),
        TWO,
      ),
    };
    const first = await startEngine(options);
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    await first.event('tool.called', (e) => e.payload.tool_name === 'slow');
    doors.one.open();
    // The wait has its result, the message that holds it is not stored: another tool of the message still runs.
    await first.event(
      'tool.completed',
      (e) =>
        (e.payload.output_size_bytes as number) > 80 &&
        e.session_id === session.id &&
        ofType(first, 'delegate.completed').length === 1,
    );
    expect(ofType(first, 'delegate.delivered')).toHaveLength(0);
    const t = await restart(first, {
      tools: [tool('slow'), tool('two'), tool('one')],
      scenario: scenario(
        [{ match: { role: 'planner' }, times: 'inf', respond: { text: 'read' } }],
        [{ match: { role: 'worker' }, times: 'inf', respond: { text: 'two is done' } }],
      ),
    });
    expect(await t.ended(turnId)).toMatchObject({ status: 'completed', unread_inputs: 0 });
    const [one, two] = workerIds(first);
    expect(
      ofType(t, 'delegate.delivered')
        .map((e) => e.payload.worker_session_id)
        .sort(),
    ).toEqual([one, two].sort());
    const texts = [...results(t), ...users(t)].join('\n');
    expect(texts.match(/one is done/g)).toHaveLength(1);
    expect(texts.match(/two is done/g)).toHaveLength(1);
  });
});
