// Where a turn, a worker or a prompt could be left behind: races, faults of the journal, crashes between two commits.
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { defaultConfig } from '../../src/domain/config.ts';
import type { AnyEvent } from '../../src/domain/event.ts';
import type { ToolResultBlock } from '../../src/domain/message.ts';
import { toolText } from '../../src/domain/tool.ts';
import { answerConfirmation } from '../../src/engine/answer-approval.ts';
import { cancelTurn } from '../../src/engine/cancel-turn.ts';
import { drain } from '../../src/engine/drain.ts';
import { endSession, purgeSession } from '../../src/engine/end-session.ts';
import { resumeTurn } from '../../src/engine/resume-turn.ts';
import { patchSession } from '../../src/engine/update-session.ts';
import type { ProviderAdapter } from '../../src/ports/provider.ts';
import { startEngine, type TestEngine } from '../support/engine.ts';
import { manualClock, START } from '../support/manual-clock.ts';
import { at, failOnce, gate, restart, turns, until, writes } from '../support/moments.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { tool } from '../support/tools.ts';

const usage = { input_tokens: 1000, output_tokens: 100 };
const hold = { recovery: { on_start: 'hold' } } as const;
const TERMINAL = ['turn.completed', 'turn.failed', 'turn.cancelled'];
const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';

async function stored(t: TestEngine, sessionId: string): Promise<AnyEvent[]> {
  const query = { session_id: sessionId, include_workers: true, types: null, after: null, until: null, limit: 10_000 };
  return [...(await t.engine.store.events.list(query)).rows];
}
const turnOf = async (t: TestEngine, sessionId: string, turnId: string) =>
  (await t.engine.store.turns.view(sessionId, turnId))!;
async function results(t: TestEngine, sessionId: string): Promise<ToolResultBlock[]> {
  const history = await t.engine.store.messages.history(sessionId as never);
  return history.filter((m) => m.role === 'tool').map((m) => m.content[0] as ToolResultBlock);
}
const textIn = (block: ToolResultBlock) => (block.content[0]?.type === 'text' ? block.content[0].text : '');
const lack = (summary = 'lost') =>
  call('_request_context', { summary, missing: [{ type: 'file', ref: 'a.txt', hint: 'read it' }] });

describe('a crash', () => {
  it('behind a request for context ends the worker with it', async () => {
    const said = scenario(
      planner({ tool_calls: [delegate('job')] }, { text: 'told' }),
      worker('job', { tool_calls: [call('list_files', {}), lack()] }),
    );
    const first = await startEngine({ scenario: said });
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    await first.event('tool.completed', (e) => e.actor === 'worker');
    const second = await restart(first, { scenario: said });
    await second.ended(turnId);
    expect(await turnOf(second, session.id, turnId)).toMatchObject({ status: 'completed', output: 'told' });
    const events = await stored(second, session.id);
    expect(events.find((e) => e.type === 'delegate.failed')?.payload).toMatchObject({
      failure_mode: 'insufficient_context',
    });
  });

  it("behind a worker's timeout is still a timeout for the planner", async () => {
    const said = scenario(
      planner({ tool_calls: [delegate('slow', { timeout_seconds: 5 })] }, { text: 'told' }),
      worker('slow', { hang: true }),
    );
    const clock = manualClock();
    const first = await startEngine({ scenario: said, clock });
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    await first.event('llm.call_started', (e) => e.actor === 'worker');
    clock.advance(5000);
    await first.event('turn.cancelled', (e) => e.actor === 'worker');
    const second = await restart(first, { scenario: said, clock: manualClock(START + 10_000) });
    await second.ended(turnId);
    expect((await turnOf(second, session.id, turnId)).status).toBe('completed');
    const events = await stored(second, session.id);
    expect(events.find((e) => e.type === 'delegate.failed')?.payload).toMatchObject({ failure_mode: 'timeout' });
  });

  it('costs a worker none of its time while the server is down', async () => {
    const said = scenario(planner({ tool_calls: [delegate('job')] }), worker('job', { hang: true }));
    const first = await startEngine({ scenario: said, clock: manualClock(), config: hold });
    const session = await first.session();
    await first.submit(session, 'go');
    const begun = await first.event('llm.call_started', (e) => e.actor === 'worker');
    const second = await restart(first, { scenario: said, clock: manualClock(START + 3_600_000), config: hold });
    const delegation = await second.engine.store.delegations.ofWorker(begun.session_id as never);
    expect(delegation).toMatchObject({ status: 'interrupted', active_seconds: 0 });
  });

  it('closes each open prompt under its own request', async () => {
    const said = scenario(
      planner({
        tool_calls: [call('write_file', { path: 'a', content: '1' }), call('write_file', { path: 'b', content: '2' })],
      }),
    );
    const first = await startEngine({ scenario: said, config: hold });
    const session = await first.session();
    await first.submit(session, 'go');
    await first.event('tool.confirmation_requested', (e) => (e.payload.input_summary as string).includes('"a"'));
    await first.event('tool.confirmation_requested', (e) => (e.payload.input_summary as string).includes('"b"'));
    const second = await restart(first, { scenario: said, config: hold });
    const events = await stored(second, session.id);
    const asked = new Map(
      events
        .filter((e) => e.type === 'tool.confirmation_requested')
        .map((e) => [e.payload.confirmation_request_id, e.id]),
    );
    const closed = events.filter((e) => e.type === 'tool.confirmation_resolved');
    expect(closed).toHaveLength(2);
    for (const e of closed) expect(e.parent_event_id).toBe(asked.get(e.payload.confirmation_request_id));
  });

  it('does not give a turn new workers to spend', async () => {
    const said = scenario(
      planner({ tool_calls: [delegate('one')] }, { tool_calls: [delegate('two')] }, { text: 'end' }),
      worker('one', { text: '1' }),
      worker('two', { text: '2' }),
    );
    const config = { delegation: { ...defaultConfig('/tmp').delegation, max_workers_per_turn: 1 } };
    const first = await startEngine({ scenario: said, config });
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    await first.event('delegate.completed');
    const second = await restart(first, { scenario: said, config });
    await second.ended(turnId);
    expect(second.rows().sessions).toBe(2);
  });

  it('behind which the model is gone fails the turn with what was settled', async () => {
    const said = scenario(
      planner({ tool_calls: [call('list_files', {}), delegate('job')] }),
      worker('job', { hang: true }),
    );
    const first = await startEngine({ scenario: said });
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    await first.event('tool.completed');
    await first.event('llm.call_started', (e) => e.actor === 'worker');
    const registry = fs
      .readFileSync(path.join(import.meta.dirname, '../support/registry.yaml'), 'utf8')
      .replace('anthropic:claude-opus-4-7', 'anthropic:claude-opus-9');
    const second = await restart(first, { scenario: said, registry });
    await second.ended(turnId);
    expect(await turnOf(second, session.id, turnId)).toMatchObject({
      status: 'failed',
      error_code: 'model_not_configured',
    });
    const events = await stored(second, session.id);
    expect(events.filter((e) => TERMINAL.includes(e.type)).map((e) => e.type)).toEqual([
      'turn.cancelled',
      'turn.failed',
    ]);
    expect((await results(second, session.id)).map((r) => r.is_error)).toEqual([false, true]);
  });

  it('never runs the input that a person had replaced', async () => {
    const ran: unknown[] = [];
    const wait = gate();
    const probe = tool('probe', {
      execute: async (input) => {
        ran.push(input);
        await wait.opened;
        return toolText('done');
      },
    });
    onTestFinished(wait.open);
    const said = scenario(planner({ tool_calls: [call('probe', { n: 1 })] }, { text: 'end' }));
    const config = { tool_confirmation: { per_tool: { probe: 'prompt' } } } as const;
    const first = await startEngine({ scenario: said, tools: [probe], config });
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    const asked = await first.event('tool.confirmation_requested');
    await until(() => first.engine.prompts.size > 0);
    await answerConfirmation(first.engine, asked.payload.confirmation_request_id as string, {
      decision: 'modify',
      scope: 'once',
      reason: null,
      modified_input: { n: 2 },
    });
    await first.event('tool.called');
    await until(() => ran.length > 0);
    const second = await restart(first, { scenario: said, tools: [probe], config });
    wait.open();
    await second.ended(turnId);
    expect(ran).not.toContainEqual({ n: 1 });
    expect((await turnOf(second, session.id, turnId)).status).toBe('completed');
  });

  it('before a worker began does not lose its images', async () => {
    const said = scenario(
      planner({
        tool_calls: [
          delegate('look', { context: { mode: 'explicit', include: [{ type: 'file', path: 'a.png' }] }, tier: 'deep' }),
        ],
      }),
      worker('look', { text: 'seen' }),
    );
    const first = await startEngine({ scenario: said });
    fs.writeFileSync(path.join(first.workspace, 'a.png'), Buffer.from(PIXEL, 'base64'));
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    await first.event('delegate.started');
    const second = await restart(first, { scenario: said });
    await second.event('llm.call_started', (e) => e.actor === 'worker');
    await second.ended(turnId);
    const request = second.adapter.requests.find((r) => r.caller.is_worker)!;
    expect(request.messages[0]!.content.map((b) => b.type)).toEqual(['text', 'image']);
    expect(turnId).toBeDefined();
  });

  it('with a prompt of an ended turn still open does not stop the next start', async () => {
    const said = scenario(planner({ tool_calls: [call('write_file', { path: 'a', content: '1' })] }));
    const first = await startEngine({ scenario: said });
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    await first.event('tool.confirmation_requested');
    await until(() => first.engine.prompts.size > 0);
    failOnce(first, (b) => writes(b, 'confirmation.resolve'));
    await cancelTurn(first.engine, session.id, turnId, null);
    await first.ended(turnId);
    const second = await restart(first, { scenario: said });
    expect(await second.engine.store.confirmations.allOpen()).toEqual([]);
  });
});

describe('resumption', () => {
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
    const events = await stored(second, session.id);
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
      const events = await stored(second, session.id);
      expect(events.find((e) => e.type === 'delegate.completed')?.payload, `${when} ${turn}`).toMatchObject({
        turn_count: 3,
        llm_call_count: 3,
      });
      await second.close();
    }
  });

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
    const events = await stored(second, session.id);
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
    expect((await stored(second, session.id)).filter((e) => e.type === 'turn.cancelled')).toHaveLength(2);
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
      await until(() => second.engine.locks.active().length === 0);
      const events = await stored(second, session.id);
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
    expect((await stored(second, session.id)).find((e) => e.type === 'delegate.failed')?.payload).toMatchObject({
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
    expect((await second.engine.store.delegations.ofWorker(begun.session_id as never))?.status).toBe('failed');
    expect((await second.engine.store.sessions.record(begun.session_id))?.ended_at).not.toBeNull();
    expect(second.engine.locks.reserve(begun.session_id as never, null).held).toBe(false);
    second.engine.locks.release(begun.session_id as never);
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
        expect((await stored(second, session.id)).slice(-5).map((e) => e.type)).toEqual([
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

  it('a worker whose planner has ended is ended at the start', async () => {
    const said = scenario(planner({ tool_calls: [delegate('job')] }), worker('job', { hang: true }));
    const first = await startEngine({ scenario: said });
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    const begun = await first.event('llm.call_started', (e) => e.actor === 'worker');
    first.db.db.prepare("UPDATE turns SET status = 'failed', ended_at = 1 WHERE id = ?").run(turnId);
    const second = await restart(first, { scenario: said });
    expect((await second.engine.store.sessions.view(begun.session_id))!.status).toBe('ended');
  });
});

describe('cancelling', () => {
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

  it('a worker that will not stop ends before its planner, and nothing follows', async () => {
    const clock = manualClock();
    const t = await startEngine({
      clock,
      scenario: scenario(planner({ tool_calls: [delegate('job')] }), worker('job', { hang: true })),
    });
    const scripted = t.engine.providers.get('scripted')!;
    const deaf: ProviderAdapter = {
      ...scripted,
      stream: (request, signal) =>
        scripted.stream(request, request.caller.is_worker ? new AbortController().signal : signal),
    };
    (t.engine.providers as Map<string, ProviderAdapter>).set('scripted', deaf);
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    await t.event('llm.call_started', (e) => e.actor === 'worker');
    await until(() => t.adapter.requests.some((r) => r.caller.is_worker));
    await cancelTurn(t.engine, session.id, turnId, null);
    clock.advance(30_000);
    await t.ended(turnId);
    await turns(50);
    const from = t.events.findIndex((e) => e.type === 'llm.call_failed');
    expect(t.events.slice(from).map((e) => `${e.actor === 'worker' ? 'W' : 'P'} ${e.type}`)).toEqual([
      'W llm.call_failed',
      'W turn.cancelled',
      'W session.ended',
      'P delegate.failed',
      'P tool.failed',
      'P turn.cancelled',
    ]);
  });

  it('a planner whose worker was put down ends the worker too', async () => {
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
    await until(() => t.engine.locks.active().length === 1);
    await cancelTurn(t.engine, session.id, turnId, null);
    wait.open();
    await drained;
    const events = await stored(t, session.id);
    expect((await turnOf(t, session.id, turnId)).status).toBe('cancelled');
    expect((await turnOf(t, begun.session_id, begun.turn_id!)).status).toBe('cancelled');
    expect(events.at(-1)).toMatchObject({ type: 'turn.cancelled', session_id: session.id });
  });

  it('ending a session waits for a turn that is being admitted', async () => {
    const t = await startEngine({ scenario: scenario([{ match: {}, times: 'inf', respond: { hang: true } }]) });
    const session = await t.session();
    const wait = gate();
    const real = t.engine.workspaces.memoryText;
    t.engine.workspaces.memoryText = async (root) => {
      await wait.opened;
      return real(root);
    };
    const submitted = t.submit(session, 'go').catch((error: unknown) => error);
    await turns(10);
    const ended = endSession(t.engine, session.id);
    await turns(10);
    wait.open();
    const outcome = await submitted;
    await ended;
    if (typeof outcome !== 'string') expect(outcome).toMatchObject({ code: 'session_already_ended' });
    expect(t.events.at(-1)!.type).toBe('session.ended');
    expect(await t.engine.store.turns.allOpen()).toEqual([]);
  });

  it('a turn submitted while its session ends leaves nothing open', async () => {
    for (let hops = 0; hops < 12; hops++) {
      const t = await startEngine({ scenario: scenario([{ match: {}, times: 'inf', respond: { hang: true } }]) });
      const session = await t.session();
      const submitted = t.submit(session, 'go').catch((error: unknown) => error);
      for (let i = 0; i < hops; i++) await Promise.resolve();
      const ended = endSession(t.engine, session.id).catch((error: unknown) => error);
      const outcome = await submitted;
      await ended;
      await turns(20);
      if (typeof outcome !== 'string') expect(outcome, `hops ${hops}`).toMatchObject({ code: 'session_already_ended' });
      expect(await t.engine.store.turns.allOpen(), `hops ${hops}`).toEqual([]);
      await t.close();
    }
  });

  it('three messages that interrupt at once are taken one after the other', async () => {
    const t = await startEngine({
      scenario: scenario([{ match: {}, times: 'inf', respond: { hang: true } }]),
      config: { shutdown: { drain_seconds: 0 } },
    });
    const session = await t.session();
    await t.submit(session, 'go');
    await t.event('llm.call_started');
    const all = await Promise.allSettled(
      ['a', 'b', 'c'].map((text) => t.submit(session, text, { if_busy: 'interrupt' })),
    );
    expect(all.map((one) => one.status)).toEqual(['fulfilled', 'fulfilled', 'fulfilled']);
    expect(await t.engine.store.turns.allOpen()).toHaveLength(1);
  });
});

describe('a fault', () => {
  it('while an answer is stored leaves the prompt open for another one', async () => {
    const t = await startEngine({
      scenario: scenario(planner({ tool_calls: [call('write_file', { path: 'a', content: '1' })] }, { text: 'end' })),
    });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    const asked = await t.event('tool.confirmation_requested');
    await until(() => t.engine.prompts.size > 0);
    failOnce(t, (b) => writes(b, 'confirmation.resolve'));
    const id = asked.payload.confirmation_request_id as string;
    const yes = { decision: 'approve', scope: 'once', reason: null, modified_input: null } as const;
    await expect(answerConfirmation(t.engine, id, yes)).rejects.toThrow('disk full');
    expect(await answerConfirmation(t.engine, id, yes)).toMatchObject({ applied: true });
    expect((await t.ended(turnId)).status).toBe('completed');
  });

  it('while an answer is stored does not make the turn deaf to its cancellation', async () => {
    const t = await startEngine({
      scenario: scenario(planner({ tool_calls: [call('write_file', { path: 'a', content: '1' })] }, { text: 'end' })),
    });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    const asked = await t.event('tool.confirmation_requested');
    await until(() => t.engine.prompts.size > 0);
    const { journal } = t.engine;
    const { commit } = journal;
    let done = false;
    journal.commit = async (batch) => {
      if (done || !writes(batch, 'confirmation.resolve')) return commit(batch);
      done = true;
      await cancelTurn(t.engine, session.id, turnId, null);
      await turns(5);
      throw new Error('disk full');
    };
    const id = asked.payload.confirmation_request_id as string;
    const yes = { decision: 'approve', scope: 'once', reason: null, modified_input: null } as const;
    await expect(answerConfirmation(t.engine, id, yes)).rejects.toThrow('disk full');
    await t.ended(turnId);
    expect((await turnOf(t, session.id, turnId)).status).toBe('cancelled');
  });

  it('while a refused delegation is stored leaves no running record', async () => {
    const t = await startEngine({
      scenario: scenario(planner({ tool_calls: [delegate('job')] }, { text: 'end' })),
      config: { delegation: { ...defaultConfig('/tmp').delegation, max_workers_per_turn: 0 } },
    });
    const session = await t.session();
    failOnce(t, (b) => writes(b, 'delegation.end'));
    await t.run(session, 'go');
    expect(await t.engine.store.delegations.allOpen()).toEqual([]);
  });

  it('in the confirmation counts as a refusal', async () => {
    const t = await startEngine({
      scenario: scenario(planner({ tool_calls: [call('write_file', { path: 'a', content: '1' })] }, { text: 'end' })),
    });
    t.engine.workspaces.readTrust = async () => {
      throw new Error('boom');
    };
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    await t.ended(turnId);
    expect(await turnOf(t, session.id, turnId)).toMatchObject({ status: 'completed', output: 'end' });
    expect(t.events.find((e) => e.type === 'tool.failed')?.payload).toMatchObject({ error_class: 'user_denied' });
  });

  it("in a tool's own check is that call's failure", async () => {
    const bad = tool('bad', {
      check: async () => {
        await turns(20);
        throw new Error('boom');
      },
    });
    const t = await startEngine({
      tools: [bad, tool('good')],
      scenario: scenario(planner({ tool_calls: [call('good', {}), call('bad', {})] }, { text: 'end' })),
    });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    await t.ended(turnId);
    expect(await turnOf(t, session.id, turnId)).toMatchObject({ status: 'completed', output: 'end' });
    expect((await results(t, session.id)).map(textIn)).toEqual(['ok', 'Tool execution failed.']);
  });

  it('of the journal in the middle of a batch still ends the turn, with the results there are', async () => {
    const t = await startEngine({
      tools: [tool('good'), tool('late', { execute: () => turns(20).then(() => toolText('late')) })],
      scenario: scenario(planner({ tool_calls: [call('good', {}), call('late', {})] }, { text: 'end' })),
    });
    const session = await t.session();
    let settles = 0;
    failOnce(t, (b) => writes(b, 'tool_call.settle') && ++settles > 1, 1);
    const turnId = await t.submit(session, 'go');
    await t.ended(turnId);
    expect(await turnOf(t, session.id, turnId)).toMatchObject({ status: 'failed', error_code: 'internal_error' });
    expect((await results(t, session.id)).map(textIn)).toEqual(['ok', 'Tool call not executed: the turn failed.']);
  });
});

describe('order', () => {
  it('the next call hangs on the last tool event, whatever was known first', async () => {
    const t = await startEngine({
      tools: [tool('good')],
      scenario: scenario(
        planner({ tool_calls: [call('good', {}), call('good', { n: 'x' }), call('nope', {})] }, { text: 'end' }),
      ),
    });
    const session = await t.session();
    await t.run(session, 'go');
    const ends = t.events.filter((e) => ['tool.completed', 'tool.failed', 'tool.input_invalid'].includes(e.type));
    const second = t.events.filter((e) => e.type === 'llm.call_started')[1]!;
    expect(second.parent_event_id).toBe(ends.at(-1)!.id);
  });

  it('a second, valid request for context counts though the first was not', async () => {
    const t = await startEngine({
      scenario: scenario(
        planner({ tool_calls: [delegate('job')] }, { text: 'told' }),
        worker('job', { tool_calls: [call('_request_context', { summary: '' }), lack()] }, { text: 'went on' }),
      ),
    });
    const session = await t.session();
    await t.run(session, 'go');
    expect(
      t.events.find((e) => e.type.startsWith('delegate.') && e.type !== 'delegate.started')?.payload,
    ).toMatchObject({
      failure_mode: 'insufficient_context',
    });
  });

  it('a model asked for while its turn ends is in force for the next one', async () => {
    for (let hops = 0; hops < 16; hops++) {
      const t = await startEngine({ scenario: scenario([{ match: {}, times: 'inf', respond: { text: 'x' } }]) });
      const session = await t.session();
      let patched: Promise<unknown> = Promise.resolve();
      at(
        t,
        (e) => e.type === 'llm.call_completed',
        () => {
          patched = (async () => {
            for (let i = 0; i < hops; i++) await Promise.resolve();
            await patchSession(t.engine, session.id, { active_model: 'haiku' });
          })();
        },
      );
      await t.run(session, 'one');
      await patched;
      await turns(5);
      expect((await t.run(session, 'two')).chosen_model, `hops ${hops}`).toBe('anthropic:claude-haiku-4-5');
      await t.close();
    }
  });

  it('32 calls at once leave no listener warning', async () => {
    const warnings: Error[] = [];
    const note = (w: Error) => void warnings.push(w);
    process.on('warning', note);
    const jobs = Array.from({ length: 32 }, (_, i) => `job-${i}-`);
    const t = await startEngine({
      config: { tools: { max_concurrent_per_session: 32 } },
      scenario: scenario(
        planner({ tool_calls: jobs.map((j) => delegate(j)) }, { text: 'end' }),
        ...jobs.map((j) => worker(j, { text: 'done' })),
      ),
    });
    const session = await t.session();
    expect((await t.run(session, 'go')).status).toBe('completed');
    await turns(5);
    process.off('warning', note);
    expect(warnings.map((w) => w.name)).toEqual([]);
    expect(t.engine.locks.active()).toEqual([]);
    expect(t.engine.prompts.size).toBe(0);
  });

  it('a call cut by a drain is counted once, as the ledger has it', async () => {
    const said = scenario(
      planner({ text: 'a long answer in many pieces', chunk_chars: 2, chunk_delay_ms: 20, usage }),
      [{ match: {}, times: 'inf', respond: { text: 'short', usage } }],
    );
    const config = { shutdown: { drain_seconds: 0 } };
    const first = await startEngine({ scenario: said, config });
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    while (!first.deltas.some((d) => d.delta.type === 'text.delta')) await new Promise(setImmediate);
    await drain(first.engine);
    const short = scenario([{ match: {}, times: 'inf', respond: { text: 'short', usage } }]);
    const second = await restart(first, { scenario: short, config });
    const turn = await second.ended(turnId);
    expect(turn).toMatchObject({ status: 'completed', output: 'short', llm_call_count: 2 });
    const events = await stored(second, session.id);
    const done = events.find((e) => e.type === 'turn.completed')!;
    expect(done.payload).toMatchObject({ llm_call_count: 2, total_cost_usd: turn.total_cost_usd });
    expect(events.filter((e) => e.type === 'llm.call_started').map((e) => e.payload.call_index)).toEqual([1, 2]);
  });

  it('open prompts and queued tools are put down by a drain and come back', async () => {
    const said = scenario(
      planner(
        { tool_calls: [call('write_file', { path: 'a', content: '1' }), call('list_files', {})] },
        { text: 'end' },
      ),
    );
    const config = { shutdown: { drain_seconds: 0 } };
    const first = await startEngine({ scenario: said, config });
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    await first.event('tool.confirmation_requested');
    await first.event('tool.completed');
    await until(() => first.engine.prompts.size > 0);
    await drain(first.engine);
    expect((await turnOf(first, session.id, turnId)).status).toBe('interrupted');
    expect(first.engine.prompts.size).toBe(0);
    const second = await restart(first, { scenario: said, config });
    const asked = await second.event('tool.confirmation_requested');
    await until(() => second.engine.prompts.size > 0);
    await answerConfirmation(second.engine, asked.payload.confirmation_request_id as string, {
      decision: 'approve',
      scope: 'once',
      reason: null,
      modified_input: null,
    });
    expect(await second.ended(turnId)).toMatchObject({ status: 'completed', tool_call_count: 2 });
    const called = (await stored(second, session.id)).filter((e) => e.type === 'tool.called');
    expect(called.map((e) => e.payload.tool_name)).toEqual(['list_files', 'write_file']);
  });
});

describe('a tree that waits for money', () => {
  const small = { turn: { max_llm_calls: 50, max_output_tokens: 100, timeout_seconds: null } };
  const spend = (input_tokens: number) => ({ input_tokens, output_tokens: 100 });

  it('takes a cancel that comes while it is put down', async () => {
    for (let hops = 0; hops < 8; hops++) {
      const t = await startEngine({
        config: small,
        scenario: scenario([
          { match: {}, times: 'inf', respond: { tool_calls: [call('list_files', {})], usage: spend(1500) } },
        ]),
      });
      const session = await t.session({ initial_active_model: 'haiku', max_cost_usd: '0.009' });
      at(
        t,
        (e) => e.type === 'budget.exceeded',
        () => {
          const { turn_id } = t.events.find((e) => e.type === 'turn.started')!;
          const later = (n: number): void => {
            if (n > 0) setImmediate(() => later(n - 1));
            else void cancelTurn(t.engine, session.id, turn_id!, null).catch(() => {});
          };
          later(hops);
        },
      );
      const turnId = await t.submit(session, 'go');
      await t.event('budget.exceeded');
      await t.ended(turnId);
      expect((await turnOf(t, session.id, turnId)).status, `hops ${hops}`).toBe('cancelled');
      await t.close();
    }
  });

  it('ends its waiting workers with its planner', async () => {
    const t = await startEngine({
      config: { ...small, shutdown: { drain_seconds: 0 } },
      scenario: scenario(
        planner({ tool_calls: [delegate('poor'), delegate('stuck')], usage: spend(100) }),
        [
          {
            match: { role: 'worker', user_contains: 'poor' },
            times: 'inf',
            respond: { tool_calls: [call('list_files', {})], usage: spend(1500) },
          },
        ],
        worker('stuck', { hang: true }),
      ),
    });
    const session = await t.session({ initial_active_model: 'sonnet', max_cost_usd: '0.03' });
    const turnId = await t.submit(session, 'go');
    await t.event('budget.exceeded');
    await until(async () => (await t.engine.store.turns.allOpen()).some((turn) => turn.status === 'interrupted'));
    await cancelTurn(t.engine, session.id, turnId, null);
    await t.ended(turnId);
    expect(await t.engine.store.turns.allOpen()).toEqual([]);
    expect(await t.engine.store.delegations.allOpen()).toEqual([]);
    expect(t.events.at(-1)).toMatchObject({ type: 'turn.cancelled', session_id: session.id });
    const failed = t.events.filter((e) => e.type === 'delegate.failed').map((e) => e.payload);
    expect(failed).toEqual(Array(2).fill(expect.objectContaining({ cancel_scope: 'planner' })));
    expect(t.events.filter((e) => e.type === 'tool.failed' && e.session_id === session.id)).toHaveLength(2);
  });
});

describe('two calls that settle together', () => {
  it('are followed by a call that hangs on the later event', async () => {
    for (let hops = 0; hops < 16; hops++) {
      const wait = gate();
      const a = tool('a', { execute: () => wait.opened.then(() => toolText('a')) });
      const b = tool('b', {
        check: async () => {
          await wait.opened;
          for (let i = 0; i < hops; i++) await Promise.resolve();
          return [{ path: '$', message: 'no' }];
        },
      });
      const t = await startEngine({
        tools: [a, b],
        scenario: scenario(planner({ tool_calls: [call('a', {}), call('b', {})] }, { text: 'end' })),
      });
      const session = await t.session();
      const turnId = await t.submit(session, 'go');
      await t.event('tool.called');
      await turns(10);
      wait.open();
      await t.ended(turnId);
      const ends = t.events.filter((e) => ['tool.completed', 'tool.input_invalid'].includes(e.type));
      const next = t.events.filter((e) => e.type === 'llm.call_started')[1]!;
      expect(next.parent_event_id, `hops ${hops}`).toBe(ends.at(-1)!.id);
      await t.close();
    }
  });
});

describe('a stream that does not hear its cancellation', () => {
  for (const open of ['text', 'tool'] as const)
    it(`is closed from what it had said (${open}), and what it says later is lost`, async () => {
      const clock = manualClock();
      const t = await startEngine({
        clock,
        scenario: scenario([
          {
            match: { turn: 1 },
            respond: {
              text: open === 'text' ? 'one two three four' : 'ab',
              tool_calls: open === 'text' ? [] : [call('write_file', { path: 'a', content: 'long enough' })],
              chunk_chars: 4,
              chunk_delay_ms: 10,
            },
          },
          { match: { turn: 2 }, respond: { text: 'next' } },
        ]),
      });
      const scripted = t.engine.providers.get('scripted')!;
      const deaf: ProviderAdapter = {
        ...scripted,
        stream: (request, signal) =>
          scripted.stream(request, request.caller.turn_index === 1 ? new AbortController().signal : signal),
      };
      (t.engine.providers as Map<string, ProviderAdapter>).set('scripted', deaf);
      const session = await t.session();
      const turnId = await t.submit(session, 'go');
      const heard = () => t.deltas.filter((d) => d.delta.type === 'text.delta' || d.delta.type.startsWith('tool.use'));
      while (heard().length < 3) {
        clock.next(10);
        await new Promise(setImmediate);
      }
      await cancelTurn(t.engine, session.id, turnId, null);
      const before = t.deltas.length;
      clock.advance(30_000);
      const turn = await t.ended(turnId);
      expect(turn).toMatchObject({ status: 'cancelled', llm_call_count: 1 });
      expect(turn.total_cost_usd).not.toBe('0');
      const types = t.typesOf(session.id);
      expect(types.slice(-2)).toEqual(['llm.call_completed', 'turn.cancelled']);
      const partial = (await t.engine.store.messages.history(session.id)).at(-1)!;
      expect([partial.role, partial.metadata.status]).toEqual(['assistant', 'cancelled']);
      expect(partial.metadata.usage).toMatchObject({ usage_estimated: true });
      for (let i = 0; i < 5; i++) {
        clock.advance(1000);
        await new Promise(setImmediate);
      }
      const late = t.deltas.slice(before).map((d) => d.delta.type);
      expect(late.filter((type) => type === 'message.complete')).toHaveLength(1);
      expect(late.at(-1)).toBe('message.complete');
      expect(t.events.at(-1)!.type).toBe('turn.cancelled');
      expect((await t.run(session, 'again')).output).toBe('next');
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

describe('a journal that comes back', () => {
  for (const way of ['a message', 'a cancel', 'an end'] as const)
    it(`lets ${way} close the turn that could not be ended without it`, async () => {
      const t = await startEngine({
        scenario: scenario([
          { match: { turn: 1 }, respond: { text: 'lost', delay_ms: 10 } },
          { match: { turn: 2 }, respond: { text: 'fresh' } },
        ]),
      });
      const session = await t.session();
      const turnId = await t.submit(session, 'go');
      await t.event('llm.call_started');
      const { journal } = t.engine;
      const { commit } = journal;
      journal.commit = async () => {
        throw new Error('disk full');
      };
      await t.engine.locks.turn(turnId)?.done;
      journal.commit = commit;
      if (way === 'a message') expect((await t.run(session, 'again')).output).toBe('fresh');
      else if (way === 'a cancel') await cancelTurn(t.engine, session.id, turnId, null);
      else await endSession(t.engine, session.id);
      expect((await turnOf(t, session.id, turnId)).status).toBe('cancelled');
      const of = (type: string) => t.events.filter((e) => e.turn_id === turnId && e.type === type);
      expect(of('llm.call_failed')).toHaveLength(1);
      expect(of('turn.cancelled')).toHaveLength(1);
    });
});
