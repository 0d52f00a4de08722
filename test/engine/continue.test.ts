// Following up: a worker that goes on where an earlier one of the same session ended (20 §3).
import { describe, expect, it } from 'vitest';
import { purgeSession } from '#core/engine/fork-session.ts';
import { endSession } from '#core/engine/manage-session.ts';
import { submitDelegation, waitForDelegation } from '#core/engine/submit-work.ts';
import { parseScenario } from '#models/scripted/scenario.ts';
import type { ScriptedAdapter } from '#models/scripted/scripted-adapter.ts';
import { SubmitDelegationBody } from '#protocol/api/worker-bodies.ts';
import type { SessionId } from '#protocol/ids.ts';
import { joinText } from '#protocol/message.ts';
import type { Session } from '#protocol/session.ts';
import { toolText } from '#protocol/tool.ts';
import { must, startEngine, type TestEngine } from '../support/engine.ts';
import { failOnce, gate, restart, writes } from '../support/moments.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { tool } from '../support/tools.ts';
import { until } from '../support/until.ts';

const usage = { input_tokens: 1000, output_tokens: 100 };
const read = (rules: unknown) => must(parseScenario(JSON.stringify(rules), ''));
const NEVER = new AbortController().signal;

/** A worker that read something and answered `it is in a.ts`, by its session's id. */
async function ended(t: TestEngine, session: Session): Promise<SessionId> {
  await t.run(session, 'go');
  return (await t.event('delegate.completed')).payload.worker_session_id as SessionId;
}
const LOOK = planner({ tool_calls: [delegate('look around')] }, { text: 'done' });
const LOOKS = [
  ...LOOK,
  ...worker('Carry out', { text: 'reading', tool_calls: [call('peek', {})], usage }, { text: 'it is in a.ts', usage }),
];
async function submit(t: TestEngine, session: Session, body: Readonly<Record<string, unknown>>) {
  const receipt = await submitDelegation(t.engine, session.id, SubmitDelegationBody.parse({ tier: 'fast', ...body }));
  await waitForDelegation(t.engine, receipt.tool_use_id, 10_000, NEVER);
  return receipt.worker_session_id!;
}
const issues = (t: TestEngine, session: Session, body: Readonly<Record<string, unknown>>) =>
  submit(t, session, body).then(
    () => [],
    (error: { details?: { issues?: readonly { path: string; message: string }[] } }) => error.details?.issues,
  );
const requestsOf = (t: TestEngine, id: string) => t.adapter.requests.filter((r) => r.caller.session_id === id);

describe('a worker that continues another one', () => {
  // Promise 20.7: its first request holds the first one's messages byte for byte and then the new task; cost lies on the new session.
  it('starts with its prompt, tools and messages, read and not copied, and then gets the new task', async () => {
    const t = await startEngine({
      tools: [tool('peek')],
      scenario: scenario(LOOKS, [{ match: { user_contains: 'fix it' }, respond: { text: 'fixed', usage } }]),
    });
    const session = await t.session();
    const first = await ended(t, session);
    const context = { mode: 'explicit', include: ['only there'] };
    const second = await submit(t, session, { task: 'fix it', continue: first, context });
    const before = requestsOf(t, first).at(-1)!;
    const after = requestsOf(t, second)[0]!;
    expect(JSON.stringify(after.messages.slice(0, before.messages.length))).toBe(JSON.stringify(before.messages));
    const [answer, task, ...rest] = after.messages.slice(before.messages.length);
    expect([answer!.role, joinText(answer!.content)]).toEqual(['assistant', 'it is in a.ts']);
    expect([task!.role, joinText(task!.content)]).toEqual([
      'user',
      '## Task\nfix it\n\n## Context\n1. inline note:\nonly there',
    ]);
    expect(rest).toEqual([]);
    const prompts = ({ system_prompt, system_prompt_volatile, tools }: typeof after) => [
      system_prompt,
      system_prompt_volatile,
      tools,
    ];
    expect(prompts(after)).toEqual(prompts(before));

    const view = (await t.engine.store.sessions.view(second))!;
    expect(view).toMatchObject({ continues_session_id: first, cost_so_far_usd: '0.0015', disposition: 'completed' });
    expect((await t.engine.store.sessions.view(first))!.cost_so_far_usd).toBe('0.003');
    const own = await t.engine.store.messages.page(second, { before: null, after: null, limit: 50 });
    expect(own.messages).toHaveLength(2);
    expect(t.events.filter((e) => e.type === 'delegate.started')).toHaveLength(2);
  });

  it('is called by its planner with the tool, and by none that did not open it', async () => {
    const first = await startEngine({ tools: [tool('peek')], scenario: scenario(LOOKS) });
    const session = await first.session();
    const other = await first.session();
    const id = await ended(first, session);
    const t = await restart(first, {
      tools: [tool('peek')],
      scenario: scenario(
        [{ match: { role: 'planner', call: 1 }, respond: { tool_calls: [delegate('fix it', { continue: id })] } }],
        [{ match: { role: 'worker' }, respond: { text: 'fixed' } }],
        [{ match: { role: 'planner', call: 2 }, times: 'inf', respond: { text: 'done' } }],
      ),
    });
    await t.run(session, 'go on');
    expect((await t.event('delegate.completed')).payload.worker_session_id).not.toBe(id);
    expect(
      requestsOf(t, (await t.event('delegate.completed')).payload.worker_session_id as string)[0]!.messages,
    ).toHaveLength(5);
    const unknown = 'sess_01ARZ3NDEKTSV4RRFFQ69G5FAV';
    expect(await issues(t, other, { task: 'x', continue: id })).toEqual([
      { path: 'continue', message: `this session has no worker ${id}` },
    ]);
    expect(await issues(t, session, { task: 'x', continue: unknown })).toHaveLength(1);
    expect(await issues(t, session, { task: 'x', continue: session.id })).toHaveLength(1);
    await endSession(t.engine, session.id);
    await purgeSession(t.engine, session.id);
    expect(await issues(t, other, { task: 'x', continue: id })).toHaveLength(1);
  });

  // Promise 20.7: the eleventh continuation of a chain is invalid input.
  it('may be continued in turn, up to the length of a chain, each with all that came before', async () => {
    const t = await startEngine({
      tools: [tool('peek')],
      scenario: scenario(LOOKS, [{ match: { user_contains: 'again' }, times: 'inf', respond: { text: 'yes' } }]),
    });
    const session = await t.session();
    let id = await ended(t, session);
    for (let n = 1; n <= 10; n++) {
      id = await submit(t, session, { task: `again ${n}`, continue: id });
      expect(requestsOf(t, id)[0]!.messages).toHaveLength(3 + 2 * n);
    }
    expect(await issues(t, session, { task: 'again 11', continue: id })).toEqual([
      {
        path: 'continue',
        message: `${id} is the last of 10 continuations (delegation.max_continuations); start a new worker`,
      },
    ]);
  });

  it('has no tool that the earlier one lacked, and fewer where the call says so', async () => {
    const t = await startEngine({
      tools: [tool('peek'), tool('poke')],
      scenario: scenario(
        planner({ tool_calls: [delegate('look around', { allowed_tools: ['peek', 'poke'] })] }, { text: 'done' }),
        worker('Carry out', { text: 'seen' }),
        [{ match: { user_contains: 'again' }, times: 'inf', respond: { text: 'yes' } }],
      ),
    });
    const session = await t.session();
    const first = await ended(t, session);
    const second = await submit(t, session, { task: 'again', continue: first, allowed_tools: ['peek', 'read_file'] });
    expect(requestsOf(t, second)[0]!.tools.map(({ name }) => name)).toEqual(['_request_context', 'peek']);
    expect((await t.engine.store.delegations.findByWorker(second))!.dropped_tools).toEqual(['read_file']);
    const third = await submit(t, session, { task: 'again', continue: second });
    expect(requestsOf(t, third)[0]!.tools.map(({ name }) => name)).toEqual(['_request_context', 'peek']);
  });

  it('goes on after a crash with the same messages, and is made once', async () => {
    const first = await startEngine({ tools: [tool('peek')], scenario: scenario(LOOKS) });
    const session = await first.session();
    const id = await ended(first, session);
    const again = delegate('fix it', { continue: id });
    const hangs = [
      { match: { role: 'planner', call: 1 }, respond: { tool_calls: [again] } },
      { match: { role: 'worker' }, respond: { tool_calls: [call('peek', {})] } },
      { match: { role: 'worker' }, respond: { hang: true } },
    ];
    const second = await restart(first, { tools: [tool('peek')], scenario: scenario(hangs) });
    const turnId = await second.submit(session, 'go on');
    const { session_id } = await second.event('tool.completed', (e) => e.session_id !== session.id);
    await until(() => requestsOf(second, session_id).at(-1)!.messages.length === 7);
    const before = requestsOf(second, session_id).at(-1)!;
    const third = await restart(second, {
      tools: [tool('peek')],
      scenario: scenario([
        { match: { role: 'worker' }, respond: { text: 'fixed' } },
        { match: { role: 'planner' }, respond: { text: 'done' } },
      ]),
    });
    expect(await third.ended(turnId)).toMatchObject({ status: 'completed', output: 'done' });
    const after = requestsOf(third, session_id)[0]!;
    expect(JSON.stringify(after.messages)).toBe(JSON.stringify(before.messages));
    expect(after.messages).toHaveLength(7);
    expect(third.rows().delegations).toBe(2);
  });

  it('that failed is continued from what it had', async () => {
    const t = await startEngine({
      tools: [tool('peek')],
      scenario: scenario(
        LOOK,
        worker('Carry out', { tool_calls: [call('peek', {})] }, { error: { error_class: 'invalid_request' } }),
        [{ match: { user_contains: 'again' }, respond: { text: 'better' } }],
      ),
    });
    const session = await t.session();
    await t.run(session, 'go');
    const first = (await t.event('delegate.failed')).payload.worker_session_id as SessionId;
    const second = await submit(t, session, { task: 'again', continue: first });
    expect(requestsOf(t, second)[0]!.messages.map(({ role }) => role)).toEqual(['user', 'assistant', 'tool', 'user']);
    expect((await t.engine.store.delegations.findByWorker(second))!.output).toBe('better');
  });

  // Promise 20.17: `continue` of a running worker steers it.
  it('that still runs is steered, and no delegation is made', async () => {
    const door = gate();
    const slow = tool('slow', { execute: () => door.opened.then(() => toolText('ok')) });
    const scripts: ScriptedAdapter[] = [];
    let script: (rules: unknown) => void = () => {};
    const t = await startEngine({
      tools: [slow],
      scenario: scenario([]),
      provider: (make) => {
        script = (rules) => scripts.push(make(read(rules)));
        const first = make(read(scenario([])));
        return { ...first, stream: (...call) => scripts.at(-1)!.stream(...call) };
      },
    });
    const session = await t.session();
    script(
      scenario([
        { match: { role: 'worker' }, respond: { tool_calls: [call('slow', {})] } },
        { match: { role: 'worker' }, respond: { text: 'both' } },
      ]),
    );
    const body = SubmitDelegationBody.parse({ tier: 'fast', task: 'dig' });
    const { worker_session_id: id, tool_use_id } = await submitDelegation(t.engine, session.id, body);
    await t.event('tool.called', (e) => e.payload.tool_name === 'slow');
    expect(await issues(t, session, { task: 'x', continue: id })).toMatchObject([{ path: 'continue' }]);
    const workers = scripts[0]!;
    script(scenario(planner({ tool_calls: [delegate('and there', { continue: id })] }, { text: 'told' })));
    expect(await t.run(session, 'go')).toMatchObject({ output: 'told' });
    const answer = scripts[1]!.requests.at(-1)!.messages.at(-1)!.content[0]!;
    expect(answer).toMatchObject({ content: [{ text: `[steered worker ${id}]` }] });
    scripts.push(workers);
    door.open();
    await waitForDelegation(t.engine, tool_use_id, 10_000, NEVER);
    expect(joinText(workers.requests.at(-1)!.messages.at(-1)!.content)).toBe('## Task\nand there');
    expect(t.rows().delegations).toBe(1);
  });

  // Promise 20.17: `history: summary` → the first request holds the summary, its call is booked on the new session.
  it('starts with a summary where the call asks for one, which is a call of the new session', async () => {
    const long = 'a long answer about a.ts '.repeat(200);
    const rules = scenario(
      [
        { match: { user_contains: 'User: Carry out' }, respond: { text: 'Looked at a.ts.', usage } },
        { match: { user_contains: 'fix it' }, respond: { text: 'fixed', usage } },
        { match: { user_contains: 'and more' }, respond: { text: 'more', usage } },
      ],
      LOOK,
      worker('Carry out', { text: 'reading', tool_calls: [call('peek', {})], usage }, { text: long, usage }),
    );
    const t = await startEngine({ tools: [tool('peek')], scenario: rules });
    const session = await t.session();
    const first = await ended(t, session);
    const second = await submit(t, session, { task: 'fix it', continue: first, history: 'summary' });
    const [summary, request, ...others] = requestsOf(t, second);
    expect(others).toEqual([]);
    expect([summary!.tools, summary!.caller.call_index, request!.caller.call_index]).toEqual([[], 1, 2]);
    expect(joinText(summary!.messages[0]!.content)).toContain(long.trim());
    const texts = request!.messages.map(({ role, content }) => [role, joinText(content)]);
    expect(texts).toEqual([
      ['user', '[Summary of earlier conversation]\nLooked at a.ts.'],
      ['user', '## Task\nfix it'],
    ]);
    expect(request!.system_prompt).toBe(requestsOf(t, first)[0]!.system_prompt);
    const booked = t.events.filter((e) => e.type === 'llm.call_completed' && e.session_id === second);
    expect(booked.map((e) => (e.payload as { purpose: string }).purpose)).toEqual(['compaction', 'turn']);
    expect(await t.engine.store.sessions.view(second)).toMatchObject({ cost_so_far_usd: '0.003' });
    // Whoever continues it goes on from the summary.
    const third = await submit(t, session, { task: 'and more', continue: second });
    expect(requestsOf(t, third)[0]!.messages.map(({ content }) => joinText(content))).toEqual([
      '[Summary of earlier conversation]\nLooked at a.ts.',
      '## Task\nfix it',
      'fixed',
      '## Task\nand more',
    ]);
  });

  it('starts with the messages where no summary can be had, and a summary of nothing is invalid input', async () => {
    const t = await startEngine({
      tools: [tool('peek')],
      scenario: scenario(
        [
          { match: { user_contains: 'User: Carry out' }, respond: { error: { error_class: 'invalid_request' } } },
          { match: { user_contains: 'fix it' }, respond: { text: 'fixed' } },
        ],
        LOOKS,
      ),
    });
    const session = await t.session();
    const first = await ended(t, session);
    const second = await submit(t, session, { task: 'fix it', continue: first, history: 'summary' });
    expect(requestsOf(t, second).map(({ messages }) => messages.length)).toEqual([1, 5]);
    expect((await t.engine.store.delegations.findByWorker(second))!.output).toBe('fixed');
    expect(await issues(t, session, { task: 'x', history: 'summary' })).toEqual([
      { path: 'history', message: 'needs `continue`: the id of a worker' },
    ]);
  });

  it('has one summary, whatever dies: one that was cut off is not paid again', async () => {
    const first = await startEngine({ tools: [tool('peek')], scenario: scenario(LOOKS) });
    const session = await first.session();
    const id = await ended(first, session);
    const asks = {
      match: { role: 'planner', call: 1 },
      respond: { tool_calls: [delegate('fix it', { continue: id, history: 'summary' })] },
    };
    const cut = { match: { user_contains: 'User: Carry out' }, respond: { hang: true } };
    const second = await restart(first, { tools: [tool('peek')], scenario: scenario([asks, cut]) });
    const turnId = await second.submit(session, 'go on');
    await second.event('llm.call_started', (e) => e.payload.purpose === 'compaction');
    const third = await restart(second, {
      tools: [tool('peek')],
      scenario: scenario([
        { match: { role: 'worker' }, respond: { text: 'fixed' } },
        { match: { role: 'planner' }, respond: { text: 'done' } },
      ]),
    });
    expect(await third.ended(turnId)).toMatchObject({ status: 'completed', output: 'done' });
    const [request, ...others] = third.adapter.requests.filter((r) => r.caller.is_worker);
    expect(others).toEqual([]);
    expect(request!.messages).toHaveLength(5);
  });

  // Promise 20.17: `continue` of a running worker steers it, once, whatever dies behind it.
  it('that still runs is steered once, also where the server dies before the result of the call is stored', async () => {
    const door = gate();
    const slow = tool('slow', { execute: () => door.opened.then(() => toolText('ok')) });
    const first = await startEngine({
      tools: [slow],
      scenario: scenario([{ match: { role: 'worker' }, respond: { tool_calls: [call('slow', {})] } }]),
    });
    const session = await first.session();
    const body = SubmitDelegationBody.parse({ tier: 'fast', task: 'dig' });
    const { worker_session_id: id, tool_use_id } = await submitDelegation(first.engine, session.id, body);
    await first.event('tool.called', (e) => e.payload.tool_name === 'slow');
    const steers = [{ match: { role: 'planner' }, respond: { tool_calls: [delegate('and there', { continue: id })] } }];
    const second = await restart(first, { tools: [slow], scenario: scenario(steers) });
    failOnce(second, (batch) => writes(batch, 'tool_call.settle'), 99);
    const { turns } = second.engine.store;
    const stored = async () => turns.inputs((await turns.open(id!))!.id);
    const turnId = await second.submit(session, 'go');
    await until(async () => (await stored()).length === 1);
    const third = await restart(second, {
      tools: [slow],
      scenario: scenario([
        { match: { role: 'planner' }, times: 'inf', respond: { text: 'told' } },
        { match: { role: 'worker' }, times: 'inf', respond: { text: 'both' } },
      ]),
    });
    expect(await third.ended(turnId)).toMatchObject({ output: 'told' });
    const results = (await third.engine.store.messages.history(session.id)).filter((m) => m.role === 'tool');
    expect(results[0]!.content[0]).toMatchObject({ content: [{ text: `[steered worker ${id}]` }], is_error: false });
    door.open();
    await waitForDelegation(third.engine, tool_use_id, 10_000, NEVER);
    const told = (await third.engine.store.messages.history(id!)).filter(
      (m) => joinText(m.content) === '## Task\nand there',
    );
    expect([told.length, third.rows().delegations]).toEqual([1, 1]);
  });
});
