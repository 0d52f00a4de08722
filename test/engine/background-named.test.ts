// Named workers in the background: the tools of those in files, and `worker_call` for those that a session created (20 §9).
import { describe, expect, it } from 'vitest';
import { orAbort } from '#protocol/abort.ts';
import type { AnyEvent } from '#protocol/event.ts';
import { joinText } from '#protocol/message.ts';
import { toolText } from '#protocol/tool.ts';
import { type EngineOptions, startEngine, type TestEngine } from '../support/engine.ts';
import { gate, restart } from '../support/moments.ts';
import { call, planner, scenario, worker } from '../support/scenario.ts';
import { tool } from '../support/tools.ts';
import { until } from '../support/until.ts';
import { FREE_TOOLS, startInRepository, step } from '../support/worktrees.ts';

const CODER = 'instructions: code\ntier: fast\ntools: [hold]\nsandboxes: {all: {path: src, mode: rw}}\n';
const FILES = { 'src/a.txt': 'a\n', '.metis/workers/coder.yaml': CODER };
const config = {
  ...FREE_TOOLS,
  workers: { dynamic: true, allow_approve_all: true, planner_allow_workers: ['*'] } as never,
};
const coder = (input: string, rest = {}) => call('coder', { input, background: true, ...rest });
const ofType = (t: TestEngine, ...types: string[]) => (t.events as AnyEvent[]).filter((e) => types.includes(e.type));
/** A tool that holds each worker until its gate opens. */
function heldTool() {
  const door = gate();
  const execute = (_input: unknown, { signal }: { readonly signal: AbortSignal }) =>
    orAbort(door.opened, signal).then(() => toolText('ok'));
  return { door, hold: tool('hold', { execute }) };
}
/** Texts that came to the planner as messages, but for its first. */
const delivered = (t: TestEngine) =>
  t.adapter.requests
    .findLast((r) => !r.caller.is_worker)!
    .messages.filter(({ role }) => role === 'user')
    .slice(1)
    .map(({ content }) => joinText(content));

/** Texts of the results of the planner's calls, in order. */
const results = (t: TestEngine) =>
  t.adapter.requests
    .findLast((r) => !r.caller.is_worker)!
    .messages.flatMap(({ content }) => content)
    .flatMap((block) => (block.type === 'tool_result' ? [joinText(block.content)] : []));

describe('a named worker in the background', () => {
  it('answers its call at once, and its result comes as a message, after a restart too', async () => {
    const { door, hold } = heldTool();
    const options: EngineOptions = {
      config,
      files: FILES,
      tools: [hold],
      scenario: scenario(
        planner(step(coder('task one')), { text: 'under way' }, { text: 'read' }),
        worker('task one', step(call('hold', {})), { text: 'one is done' }),
      ),
    };
    const first = await startEngine(options);
    const session = await first.session({ approval_mode: 'approve_all' });
    const turnId = await first.submit(session, 'go');
    await until(() => ofType(first, 'tool.called').some(({ payload }) => payload.tool_name === 'hold'));
    await until(() => ofType(first, 'llm.call_completed').length === 3);
    const t = await restart(first, options);
    door.open();
    expect(await t.ended(turnId)).toMatchObject({ status: 'completed', output: 'read', unread_inputs: 0 });
    const [id] = ofType(first, 'delegate.started').map(({ payload }) => payload.worker_session_id);
    expect(results(t)).toEqual([`[worker ${id} runs in the background]`]);
    expect(delivered(t)).toEqual([expect.stringContaining(`[worker ${id} completed]\none is done\n`)]);
    expect(ofType(t, 'delegate.delivered')).toMatchObject([{ payload: { worker_session_id: id } }]);
    expect(ofType(first, 'delegate.started')).toMatchObject([
      { payload: { entry: 'worker_tool', worker_name: 'coder' } },
    ]);
  });

  it('may be one that the session created', async () => {
    const t = await startEngine({
      config,
      scenario: scenario(
        planner(
          step(call('worker_create', { name: 'x', instructions: 'You count.', description: 'Counts.' })),
          step(call('worker_call', { worker: 'x', input: 'count it', background: true })),
          { text: 'under way' },
          { text: 'read' },
        ),
        worker('count it', { text: 'seven' }),
      ),
    });
    const session = await t.session({ approval_mode: 'approve_all' });
    const turnId = await t.submit(session, 'go');
    expect(await t.ended(turnId)).toMatchObject({ status: 'completed', unread_inputs: 0 });
    const [id] = ofType(t, 'delegate.started').map(({ payload }) => payload.worker_session_id);
    expect(results(t)[1]).toBe(`[worker ${id} runs in the background]`);
    expect(delivered(t)).toEqual([expect.stringContaining(`[worker ${id} completed]\nseven`)]);
  });

  it('counts among the workers that may be open, and the call too many says so', async () => {
    const { door, hold } = heldTool();
    const t = await startEngine({
      config: { ...config, delegation: { max_background: 1 } },
      files: FILES,
      tools: [hold],
      scenario: scenario(
        planner(step(coder('task one'), coder('task one')), { text: 'under way' }, { text: 'read' }),
        worker('task one', step(call('hold', {})), { text: 'one is done' }),
      ),
    });
    const session = await t.session({ approval_mode: 'approve_all' });
    const turnId = await t.submit(session, 'go');
    await until(() => t.adapter.requests.filter((r) => !r.caller.is_worker).length === 2);
    const refused = /^1 workers of this turn run in the background already \(delegation\.max_background\)/;
    expect(results(t).filter((text) => refused.test(text))).toHaveLength(1);
    expect(ofType(t, 'delegate.started')).toHaveLength(1);
    door.open();
    expect(await t.ended(turnId)).toMatchObject({ status: 'completed', output: 'read', unread_inputs: 0 });
  });

  it('cannot be applied together with others, since its call ends before it', async () => {
    const t = await startInRepository(FILES, {
      config,
      scenario: scenario(
        planner(step(coder('task one', { isolation: 'worktree', apply: 'together' })), { text: 'refused' }),
      ),
    });
    const session = await t.session({ approval_mode: 'approve_all' });
    await t.run(session, 'go');
    expect(results(t)[0]).toMatch(/^background: excludes apply "together"/);
    expect(ofType(t, 'delegate.started')).toEqual([]);
  });

  it('does not start on a blank input, which no provider takes', async () => {
    const t = await startEngine({
      config,
      files: FILES,
      scenario: scenario(planner(step(coder(' \n'), call('coder', { input: ' ' })), { text: 'refused' })),
    });
    const session = await t.session({ approval_mode: 'approve_all' });
    await t.run(session, 'go');
    expect(results(t)).toEqual(['input: must not be blank', 'input: must not be blank']);
    expect(ofType(t, 'delegate.started')).toEqual([]);
  });
});
