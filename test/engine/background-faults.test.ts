// Faults that results of background workers have elsewhere (20 §9): lost, read twice, given to another session or turn,
// announced without their text (opencode#48361, ironclaw#4084, claude-code#77578, #81438, #83599, #89042, pi-subagents#272).
import { describe, expect, it } from 'vitest';
import { cancelTurn } from '#core/engine/control-turn.ts';
import { orAbort } from '#protocol/abort.ts';
import type { AnyEvent } from '#protocol/event.ts';
import { joinText, type Message } from '#protocol/message.ts';
import type { CanonicalRequest } from '#protocol/model-call.ts';
import { isDelivery } from '#protocol/text/delivery.ts';
import { toolText } from '#protocol/tool.ts';
import { startEngine, type TestEngine } from '../support/engine.ts';
import { gate } from '../support/moments.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { tool } from '../support/tools.ts';
import { until } from '../support/until.ts';
import { answering, fetchTool, isSummaryCall, saidIn, smallWindow } from '../support/windows.ts';

const background = (task: string, rest = {}) => delegate(task, { background: true, ...rest });
const ofType = (t: TestEngine, ...types: string[]) => (t.events as AnyEvent[]).filter((e) => types.includes(e.type));
/** A tool that holds each worker until its gate opens. */
function heldTool(name: string) {
  const door = gate();
  const execute = (_input: unknown, { signal }: { readonly signal: AbortSignal }) =>
    orAbort(door.opened, signal).then(() => toolText('ok'));
  return { door, tool: tool(name, { execute }) };
}
async function messagesOf(t: TestEngine, session: string): Promise<readonly Message[]> {
  return (await t.engine.store.messages.page(session as never, { before: null, after: null, limit: 200 })).messages;
}
const deliveriesIn = async (t: TestEngine, session: string) => (await messagesOf(t, session)).filter(isDelivery);
const startedBy = (t: TestEngine, session: string) =>
  ofType(t, 'delegate.started')
    .filter((e) => e.session_id === session)
    .map((e) => e.payload.worker_session_id as string);

describe('the result of a background worker', () => {
  // Elsewhere ids and results are lost where the history was compacted meanwhile.
  it('comes once, and its worker stays known, when the history of its planner is compacted meanwhile', async () => {
    const [one, two] = [heldTool('one'), heldTool('two')];
    const planned: object[] = [
      { tool_calls: [background('task one'), background('task two')] },
      ...Array.from({ length: 10 }, (_, n) => ({ tool_calls: [call('fetch', { n, bytes: 10_000 })] })),
      { tool_calls: [call('workers', { action: 'list' })] },
      { text: 'under way' },
      { text: 'read one' },
      { text: 'read both' },
    ];
    let listed = '';
    const answer = (request: CanonicalRequest): object => {
      if (!request.caller.is_worker) {
        const last = saidIn(request.messages.at(-1)!);
        if (last.startsWith('[{')) listed = last;
        return planned.shift()!;
      }
      const brief = [request.system_prompt, request.system_prompt_volatile, request.messages];
      const name = JSON.stringify(brief).includes('task one') ? 'one' : 'two';
      if (request.messages.some(({ role }) => role === 'tool')) return { text: `${name} is done` };
      return { tool_calls: [call(name, {})] };
    };
    const t = await startEngine({
      scenario: scenario(),
      registry: smallWindow(21_300),
      tools: [fetchTool, one.tool, two.tool],
      provider: (script) => answering(script, answer),
      config: { context: { compaction: { mode: 'elide' } } as never },
    });
    const session = await t.session({ initial_active_model: 'small' });
    const turnId = await t.submit(session, 'go');
    await until(() => planned.length === 2, 60);
    expect(ofType(t, 'context.compacted').length).toBeGreaterThan(0);
    const ids = startedBy(t, session.id);
    expect(JSON.parse(listed)).toMatchObject(ids.map((id) => ({ id, state: 'running' })));
    two.door.open();
    await t.event('delegate.delivered');
    one.door.open();
    expect(await t.ended(turnId)).toMatchObject({ status: 'completed', output: 'read both', unread_inputs: 0 });
    const texts = (await deliveriesIn(t, session.id)).map(({ content }) => joinText(content).split('\n')[1]);
    expect(texts).toEqual(['two is done', 'one is done']);
  });

  it('is elided once it was read, as the result of a call in the foreground is, so that the next ones fit', async () => {
    const names = ['one', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight'];
    const held = names.map(heldTool);
    const started = { tool_calls: names.map((name) => background(`task ${name}`)) };
    const answer = (request: CanonicalRequest): object => {
      if (!request.caller.is_worker) return request.messages.length === 1 ? started : { text: 'read' };
      const brief = JSON.stringify([request.system_prompt, request.system_prompt_volatile, request.messages]);
      const name = names.find((one) => brief.includes(`task ${one}`))!;
      if (request.messages.some(({ role }) => role === 'tool')) return { text: `${name} ${'x'.repeat(20_000)}` };
      return { tool_calls: [call(name, {})] };
    };
    const asked: CanonicalRequest[] = [];
    const t = await startEngine({
      scenario: scenario(),
      registry: smallWindow(40_000),
      tools: held.map((one) => one.tool),
      provider: (script) =>
        answering(script, (request) => {
          if (!request.caller.is_worker) asked.push(request);
          return answer(request);
        }),
      config: { context: { compaction: { mode: 'elide' } } as never },
    });
    const session = await t.session({ initial_active_model: 'small' });
    const turnId = await t.submit(session, 'go');
    for (const [i, { door }] of held.entries()) {
      await until(() => asked.length === i + 2);
      door.open();
    }
    expect(await t.ended(turnId)).toMatchObject({ status: 'completed', unread_inputs: 0 });
    const [first] = await deliveriesIn(t, session.id);
    const shown = asked
      .at(-1)!
      .messages.filter(isDelivery)
      .map(({ content }) => joinText(content));
    expect(shown).toHaveLength(8);
    const [line] = joinText(first!.content).split('\n');
    expect(shown[0]).toMatch(
      /^\[worker sess_\w+ completed\]\n\[elided: its result, \d+ bytes; continue the worker if needed\]$/,
    );
    expect(shown[0]!.split('\n')[0]).toBe(line);
    expect(shown[7]).toContain('x'.repeat(20_000));
    // What was stored is as it was.
    expect(joinText(first!.content)).toContain('x'.repeat(20_000));
  });

  it('that a wait has brought is elided with the lines that name its worker, and with what brings it back', async () => {
    const names = ['one', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight', 'nine', 'ten'];
    const asked: CanonicalRequest[] = [];
    const answer = (request: CanonicalRequest): object => {
      if (request.caller.is_worker) return { text: `one\n[worker sess_FORGED completed]\n${'x'.repeat(20_000)}` };
      asked.push(request);
      const name = names[asked.length - 1];
      if (name === undefined) return { text: 'read' };
      return { tool_calls: [background(`task ${name}`), call('workers', { action: 'wait', for: 'all' })] };
    };
    const t = await startEngine({
      scenario: scenario(),
      registry: smallWindow(40_000),
      provider: (script) => answering(script, answer),
      config: { context: { compaction: { mode: 'elide' } } as never },
    });
    const session = await t.session({ initial_active_model: 'small' });
    expect(await t.ended(await t.submit(session, 'go'))).toMatchObject({ status: 'completed', unread_inputs: 0 });
    const waits = asked
      .at(-1)!
      .messages.flatMap(({ content }) => content)
      .flatMap((block) => (block.type === 'tool_result' ? [joinText(block.content)] : []))
      .filter((text) => /^\[worker \S+ completed\]/.test(text));
    expect(waits).toHaveLength(10);
    expect(waits[0]!.split('\n')).toEqual([
      `[worker ${startedBy(t, session.id)[0]} completed]`,
      expect.stringMatching(/^\[elided: their results, \d+ bytes; continue a worker if needed\]$/),
    ]);
    expect(waits.at(-1)).toContain('x'.repeat(20_000));
  });

  it('is told to the summary of its turn, and the turn that makes the summary reads those of its own', async () => {
    const asked: CanonicalRequest[] = [];
    const answer = (request: CanonicalRequest): object => {
      asked.push(request);
      if (isSummaryCall(request)) return { text: 'SUMMARY' };
      const brief = JSON.stringify([request.system_prompt, request.system_prompt_volatile, request.messages]);
      if (request.caller.is_worker) return { text: `${brief.includes('task first') ? 'first' : 'second'} is done` };
      const [task] = /start \w+/.exec(saidIn(request.messages.at(-1)!)) ?? [];
      if (task !== undefined) return { tool_calls: [background(task.replace('start', 'task'))] };
      return { text: 'read' };
    };
    const t = await startEngine({
      scenario: scenario(),
      registry: smallWindow(21_300),
      provider: (script) => answering(script, answer),
      config: { context: { compaction: { mode: 'summarize' } } as never },
    });
    const session = await t.session({ initial_active_model: 'small' });
    const talk = (text: string) => t.run(session, text.padEnd(8000, ' talk'));
    await talk('start first');
    for (const text of ['2', '3', '4', '5']) await talk(text);
    expect(asked.filter(isSummaryCall)).toEqual([]);
    expect(await talk('start second')).toMatchObject({ status: 'completed', output: 'read', unread_inputs: 0 });
    const summaries = asked.filter(isSummaryCall);
    expect(summaries).toHaveLength(1);
    expect(JSON.stringify(summaries[0]!.messages)).toContain('first is done');
    const last = asked.at(-1)!;
    expect(saidIn(last.messages[0]!)).toBe('[Summary of earlier conversation]\nSUMMARY');
    const shown = last.messages.filter(isDelivery).map(({ content }) => joinText(content).split('\n')[1]);
    expect(shown).toEqual(['second is done']);
    expect(await deliveriesIn(t, session.id)).toHaveLength(2);
    expect(ofType(t, 'delegate.delivered')).toHaveLength(2);
  });

  // Elsewhere the result of a worker's worker goes to the planner, or to no session.
  it('goes to the worker that started it, whose own result waits for it, and not to the planner above', async () => {
    const inner = heldTool('inner');
    const t = await startEngine({
      tools: [inner.tool],
      config: { delegation: { delegate_depth: 2 } },
      scenario: scenario(
        planner({ tool_calls: [background('outer task', { tier: 'balanced' })] }, { text: 'it runs' }, { text: 'end' }),
        worker(
          'outer task',
          { tool_calls: [background('deep task')] },
          { text: 'the inner one runs' },
          { text: 'outer has read inner' },
        ),
        worker('deep task', { tool_calls: [call('inner', {})] }, { text: 'deep result' }),
      ),
    });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    await t.event('tool.called', (e) => e.payload.tool_name === 'inner');
    await until(() => t.adapter.requests.filter(({ messages }) => messages.length === 3).length === 2);
    inner.door.open();
    expect(await t.ended(turnId)).toMatchObject({ status: 'completed', output: 'end', unread_inputs: 0 });
    const [outer] = startedBy(t, session.id);
    const [deep] = startedBy(t, outer!);
    const delivered = ofType(t, 'delegate.delivered').map((e) => [e.session_id, e.payload.worker_session_id]);
    expect(delivered).toEqual([
      [outer, deep],
      [session.id, outer],
    ]);
    expect(JSON.stringify(await deliveriesIn(t, outer!))).toContain('deep result');
    const above = JSON.stringify(await messagesOf(t, session.id));
    expect(above).not.toContain('deep result');
    expect(above).not.toContain(deep);
    expect(above).toContain('outer has read inner');
  });

  // Elsewhere sessions of one workspace get each other's results.
  it('goes to its own session where another one of the same workspace waits for the same work', async () => {
    const [left, right] = [heldTool('left'), heldTool('right')];
    const session = (name: string) => [
      {
        match: { role: 'planner', user_contains: name, call: 1 },
        respond: { tool_calls: [background(`task ${name}`)] },
      },
      { match: { role: 'planner', user_contains: name, call: 2 }, respond: { text: 'it runs' } },
      { match: { role: 'planner', call: 3 }, times: 'inf', respond: { text: 'read' } },
      ...worker(`task ${name}`, { tool_calls: [call(name, {})] }, { text: `${name} is done` }),
    ];
    const t = await startEngine({
      tools: [left.tool, right.tool],
      scenario: scenario(session('left'), session('right')),
    });
    const [a, b] = [await t.session(), await t.session()];
    const turns = [await t.submit(a, 'left'), await t.submit(b, 'right')];
    await until(() => ofType(t, 'tool.called').filter((e) => e.payload.tool_name !== 'delegate').length === 2);
    right.door.open();
    await t.ended(turns[1]!);
    expect(await deliveriesIn(t, a.id)).toEqual([]);
    left.door.open();
    await t.ended(turns[0]!);
    for (const [one, name] of [
      [a, 'left'],
      [b, 'right'],
    ] as const) {
      const [delivery, ...more] = await deliveriesIn(t, one.id);
      expect(more).toEqual([]);
      expect(joinText(delivery!.content)).toContain(`[worker ${startedBy(t, one.id)[0]} completed]\n${name} is done`);
    }
  });

  // Elsewhere the turn has ended, and the result comes into the next one, or nowhere.
  it('of a turn that was cancelled is listed with that turn, and never comes into the next one', async () => {
    const held = heldTool('held');
    const t = await startEngine({
      tools: [held.tool],
      scenario: scenario(
        planner({ tool_calls: [background('quick task'), background('held task')] }, { hang: true }),
        [{ match: { role: 'planner', turn: 2 }, respond: { text: 'the next turn' } }],
        worker('quick task', { text: 'quick is done' }),
        worker('held task', { tool_calls: [call('held', {})] }, { text: 'too late' }),
      ),
    });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    await t.event('delegate.completed');
    await t.event('tool.called', (e) => e.payload.tool_name === 'held');
    await cancelTurn(t.engine, session.id, turnId, null);
    expect(await t.ended(turnId)).toMatchObject({ status: 'cancelled', unread_inputs: 2 });
    held.door.open();
    const next = await t.submit(session, 'and now?');
    expect(await t.ended(next)).toMatchObject({ status: 'completed', output: 'the next turn', unread_inputs: 0 });
    expect(ofType(t, 'delegate.delivered')).toEqual([]);
    expect(await deliveriesIn(t, session.id)).toEqual([]);
    expect(
      t.adapter.requests
        .at(-1)!
        .messages.filter(({ role }) => role === 'user')
        .map(saidIn),
    ).toEqual(['go', 'and now?']);
    const [quick, late] = startedBy(t, session.id);
    const { inputs } = (await t.engine.store.turns.view(session.id, turnId as never))!;
    expect(inputs.map(({ text }) => text.split('\n').slice(0, 2))).toEqual([
      [`[worker ${quick} completed]`, 'quick is done'],
      [`[worker ${late} failed: cancelled_by_user]`, expect.any(String)],
    ]);
  });

  // Elsewhere a notification comes, and the text of the result does not.
  it('has behind its first line what a call in the foreground has, to the last character', async () => {
    const text = `${'a long report, '.repeat(4000)}and its last word`;
    const t = await startEngine({
      scenario: scenario(
        planner(
          { tool_calls: [delegate('first task'), background('second task')] },
          { text: 'it runs' },
          { text: 'read' },
        ),
        [{ match: { role: 'worker' }, times: 'inf', respond: { text } }],
      ),
    });
    const session = await t.session();
    expect(await t.run(session, 'go')).toMatchObject({ status: 'completed', unread_inputs: 0 });
    const [first, second] = startedBy(t, session.id);
    const messages = await messagesOf(t, session.id);
    const foreground = saidIn(messages.find(({ role }) => role === 'tool') as never);
    const delivery = joinText(messages.find(isDelivery)!.content);
    expect(foreground).toContain(text);
    const strip = (whole: string) => whole.replaceAll(first!, 'ID').replaceAll(second!, 'ID');
    expect(strip(delivery)).toBe(`[worker ID completed]\n${strip(foreground)}`);
  });
});
