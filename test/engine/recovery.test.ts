// A crash in the middle: what is done again, what never is, and that no worker exists twice (04 §13, 01 §11.5).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { resumeTurn } from '#core/engine/control-turn.ts';
import { drain, recover } from '#core/engine/lifecycle.ts';
import type { ToolResultBlock } from '#protocol/message.ts';
import { startEngine, type TestEngine } from '../support/engine.ts';
import { restart } from '../support/moments.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { storedEvents } from '../support/stored.ts';
import { until } from '../support/until.ts';

const usage = { input_tokens: 1000, output_tokens: 100 };
const auto = { tool_confirmation: { per_tool: { shell: 'auto', write_file: 'auto', delegate: 'auto' } } } as const;

const modelCalls = (t: TestEngine, isWorker: boolean) =>
  t.adapter.requests.filter((r) => r.caller.is_worker === isWorker).length;

describe('after a worker finished', () => {
  const said = scenario(
    planner({ tool_calls: [delegate('the job')], usage }, { text: 'all done', usage, delay_ms: 30 }),
    worker('the job', { text: 'worked', usage }),
  );

  // Promise 04.19: After a crash behind a finished worker, its model is not asked again and totals are those of an uninterrupted run.
  it("the planner goes on without asking the worker's model again, and nothing is reported twice", async () => {
    const first = await startEngine({ scenario: said });
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    await first.event('delegate.completed');

    const second = await restart(first, { scenario: said });
    const turn = await second.ended(turnId);
    expect(turn).toMatchObject({ status: 'completed', output: 'all done' });
    expect(modelCalls(second, true)).toBe(0);
    const types = (await storedEvents(second, session.id)).map((e) => e.type);
    for (const once of ['delegate.started', 'delegate.completed', 'turn.started', 'turn.completed', 'route.decided'])
      expect(types.filter((type, i) => type === once && i >= 0).length, once).toBe(once.startsWith('delegate') ? 1 : 2);
    const plain = await startEngine({ scenario: said });
    const other = await plain.session();
    const uninterrupted = await plain.run(other, 'go');
    expect(turn.total_cost_usd).toBe(uninterrupted.total_cost_usd);
    expect((await second.engine.store.sessions.view(session.id))!.workers_cost_usd).toBe(
      (await plain.engine.store.sessions.view(other.id))!.workers_cost_usd,
    );
  });
});

describe("during a worker's second call", () => {
  const said = (hang: boolean) =>
    scenario(
      planner({ tool_calls: [delegate('the job')], usage }, { text: 'all done', usage }),
      worker(
        'the job',
        { tool_calls: [call('list_files', {})], usage },
        hang ? { hang: true } : { text: 'worked', usage },
      ),
    );

  // Promise 04.20: A crash in a worker's second call repeats that call alone.
  it('repeats that call alone, in the same worker', async () => {
    const first = await startEngine({ scenario: said(true) });
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    await first.event('llm.call_started', (e) => e.actor === 'worker' && e.payload.call_index === 2);

    const second = await restart(first, { scenario: said(false) });
    expect(await second.ended(turnId)).toMatchObject({ status: 'completed', output: 'all done' });
    expect(second.adapter.requests.map((r) => [r.caller.is_worker, r.caller.call_index])).toEqual([
      [true, 2],
      [false, 2],
    ]);
    expect(second.rows()).toMatchObject({ sessions: 2, delegations: 1, llm_calls: 4 });
    const events = await storedEvents(second, session.id);
    expect(events.filter((e) => e.type === 'llm.call_failed').map((e) => e.payload.error_class)).toEqual(['other']);
    expect(events.filter((e) => e.type === 'turn.resumed')).toHaveLength(2);
    expect(events.filter((e) => e.type === 'session.created')).toHaveLength(2);
  });

  // Promise 04.20: Mode hold waits for the resume call.
  it('waits in mode hold until it is asked to go on', async () => {
    const config = { recovery: { on_start: 'hold' } } as const;
    const first = await startEngine({ scenario: said(true), config });
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    await first.event('llm.call_started', (e) => e.actor === 'worker' && e.payload.call_index === 2);

    const second = await restart(first, { scenario: said(false), config });
    expect((await second.engine.store.sessions.view(session.id))!).toMatchObject({
      status: 'interrupted',
      current_turn_status: 'interrupted',
    });
    expect(second.adapter.requests).toHaveLength(0);
    expect(await resumeTurn(second.engine, session.id, turnId)).toEqual({ turn_id: turnId, resumed: true });
    expect((await second.ended(turnId)).status).toBe('completed');
    await expect(resumeTurn(second.engine, session.id, turnId)).rejects.toMatchObject({ code: 'turn_not_interrupted' });
  });

  it('a new message ends what was held, workers included', async () => {
    const config = { recovery: { on_start: 'hold' } } as const;
    const first = await startEngine({ scenario: said(true), config });
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    await first.event('llm.call_started', (e) => e.actor === 'worker' && e.payload.call_index === 2);

    const again = scenario([{ match: { turn: 2 }, respond: { text: 'fresh' } }]);
    const second = await restart(first, { scenario: again, config });
    await expect(second.submit(session, '@nope x')).rejects.toMatchObject({ code: 'unknown_alias' });
    expect((await second.engine.store.turns.view(session.id, turnId))!.status).toBe('interrupted');
    expect((await second.run(session, 'new')).output).toBe('fresh');
    expect((await second.engine.store.turns.view(session.id, turnId))!).toMatchObject({
      status: 'cancelled',
      cancel_reason: 'shutdown',
    });
    const events = await storedEvents(second, session.id);
    const closing = events.filter((e) => ['turn.cancelled', 'session.ended', 'delegate.failed'].includes(e.type));
    expect(closing.map((e) => `${e.actor === 'worker' ? 'W' : 'P'} ${e.type}`)).toEqual([
      'W turn.cancelled',
      'W session.ended',
      'P delegate.failed',
      'P turn.cancelled',
    ]);
  });

  // Promise 04.20: Mode cancel ends everything before anything listens.
  it('in mode cancel everything is ended before anything listens, and a second recovery writes nothing', async () => {
    const config = { recovery: { on_start: 'cancel' } } as const;
    const first = await startEngine({ scenario: said(true), config });
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    await first.event('llm.call_started', (e) => e.actor === 'worker' && e.payload.call_index === 2);

    const second = await restart(first, { scenario: said(false), config });
    expect((await second.engine.store.turns.view(session.id, turnId))!).toMatchObject({
      status: 'cancelled',
      cancel_reason: 'shutdown',
    });
    const [delegation] = (
      await second.engine.store.delegations.list(session.id, { recursive: false, after: null, limit: 10 })
    ).rows;
    expect(delegation).toMatchObject({ status: 'failed', error_message: 'worker_error: server restarted' });
    expect(second.adapter.requests).toHaveLength(0);
    const history = await second.engine.store.messages.history(session.id);
    expect((history.at(-1)!.content[0] as ToolResultBlock).is_error).toBe(true);
    const before = second.rows();
    await recover(second.engine);
    expect(second.rows()).toEqual(before);
  });
});

describe('tools that had started', () => {
  // Promise 04.20: A command that was running is not run again.
  // Promise 09.20: After a restart a running command is not repeated.
  it('a command is not run again and its call says so; a read is', async () => {
    const said = scenario(
      planner(
        {
          tool_calls: [
            call('shell', { command: 'echo run >> log.txt; sleep 60' }),
            call('read_file', { path: 'a.txt' }),
          ],
        },
        { text: 'noted' },
      ),
    );
    const options = { scenario: said, config: auto, files: { 'a.txt': 'content of a' } };
    const first = await startEngine(options);
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    await first.event('tool.called', (e) => e.payload.tool_name === 'shell');
    const log = path.join(first.workspace, 'log.txt');
    await until(() => fs.existsSync(log) && fs.readFileSync(log, 'utf8') !== '');

    const second = await restart(first, options);
    expect((await second.ended(turnId)).output).toBe('noted');
    expect(fs.readFileSync(log, 'utf8')).toBe('run\n');
    const results = (await second.engine.store.messages.history(session.id))
      .filter((m) => m.role === 'tool')
      .map((m) => m.content[0] as ToolResultBlock);
    expect(results.map((r) => r.is_error)).toEqual([true, false]);
    expect(results[0]!.content).toEqual([
      { type: 'text', text: 'Tool call interrupted by a server restart; it may or may not have taken effect.' },
    ]);
    const called = (await storedEvents(second, session.id)).filter((e) => e.type === 'tool.called');
    expect(called).toHaveLength(2);
  });

  // Promise 09.20: After a restart an open prompt is closed and the call asks anew.
  it('an open approval is closed, and the call that waited for it asks anew', async () => {
    const said = scenario(planner({ tool_calls: [call('write_file', { path: 'x', content: 'y' })] }, { text: 'ok' }));
    const first = await startEngine({ scenario: said });
    const session = await first.session();
    await first.submit(session, 'go');
    const asked = await first.event('tool.confirmation_requested');

    const second = await restart(first, { scenario: said });
    const again = await second.event('tool.confirmation_requested');
    expect(again.payload.confirmation_request_id).not.toBe(asked.payload.confirmation_request_id);
    const old = await second.engine.store.confirmations.view(asked.payload.confirmation_request_id as string);
    expect(old!.decision).toBe('cancelled');
  });

  // Promise 09.2: A tool that is disabled over a restart is gone from the turn that goes on.
  it('a tool that was switched off meanwhile is gone from the turn that goes on', async () => {
    const said = scenario(planner({ tool_calls: [call('write_file', { path: 'x', content: 'y' })] }, { text: 'ok' }));
    const first = await startEngine({ scenario: said });
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    await first.event('tool.confirmation_requested');

    const second = await restart(first, { scenario: said, config: { tools: { disabled: ['write_*', 'shell'] } } });
    expect((await second.ended(turnId)).status).toBe('completed');
    expect(second.events.find((e) => e.type === 'tool.failed')?.payload).toMatchObject({ error_class: 'not_found' });
    const names = second.adapter.requests.at(-1)!.tools.map(({ name }) => name);
    expect(names.filter((name) => name.startsWith('write_') || name === 'shell')).toEqual([]);
    expect(names).toContain('edit_file');
  });

  // Promise 09.20: After too many crashes the turn is given up: its prompts cancelled, its command run once, every call answered, the next turn accepted.
  it('a turn that brought the server down too often is given up: every call is answered, and the next turn goes on', async () => {
    const command = 'echo run >> marks; echo $$ > pid.new; mv pid.new pid; sleep 60';
    const said = scenario(
      planner({ tool_calls: [call('shell', { command }), call('write_file', { path: 'x', content: 'y' })] }),
      [{ match: { turn: 2 }, respond: { text: 'next' } }],
    );
    const config = { tool_confirmation: { per_tool: { shell: 'auto' } } } as const;
    let t = await startEngine({ scenario: said, config });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    const pid = path.join(t.workspace, 'pid');
    await until(() => fs.existsSync(pid));
    const asked: string[] = [];
    for (let life = 1; life <= 4; life++) {
      const { payload } = await t.event('tool.confirmation_requested');
      asked.push(payload.confirmation_request_id as string);
      t = await restart(t, { scenario: said, config });
    }
    expect(new Set(asked).size).toBe(4);
    process.kill(-Number(fs.readFileSync(pid, 'utf8')), 'SIGKILL');
    expect((await t.engine.store.turns.view(session.id, turnId))!).toMatchObject({
      status: 'cancelled',
      cancel_reason: 'shutdown',
    });
    for (const id of asked) expect((await t.engine.store.confirmations.view(id))!.decision).toBe('cancelled');
    expect(fs.readFileSync(path.join(t.workspace, 'marks'), 'utf8')).toBe('run\n');
    expect(await t.run(session, 'go on')).toMatchObject({ status: 'completed', output: 'next' });
    const sent = t.adapter.requests.at(-1)!.messages;
    expect(sent.map((m) => m.role)).toEqual(['user', 'assistant', 'tool', 'tool', 'user']);
    expect(fs.existsSync(path.join(t.workspace, 'x'))).toBe(false);
  });
});

describe('a graceful stop', () => {
  // Promise 04.20: A graceful stop finishes the running call and the next start goes on behind it.
  it('lets the running call finish, starts no other, and the next start goes on behind it', async () => {
    const said = scenario(
      planner({ tool_calls: [call('list_files', {})], usage, delay_ms: 60 }, { text: 'end', usage }),
    );
    const first = await startEngine({ scenario: said });
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    await first.event('llm.call_started');
    await drain(first.engine);
    expect(first.typesOf(session.id).at(-1)).toBe('llm.call_completed');
    expect((await first.engine.store.turns.view(session.id, turnId))!.status).toBe('interrupted');

    const second = await restart(first, { scenario: said });
    expect(await second.ended(turnId)).toMatchObject({ status: 'completed', output: 'end', llm_call_count: 2 });
    expect(second.adapter.requests).toHaveLength(1);
  });

  it('aborts what outlasts the drain and leaves the turn to be resumed', async () => {
    const said = (hang: boolean) =>
      scenario(
        planner({ tool_calls: [delegate('the job')], usage }, { text: 'end', usage }),
        worker('the job', hang ? { hang: true } : { text: 'worked', usage }),
      );
    const config = { shutdown: { drain_seconds: 0 } };
    const first = await startEngine({ scenario: said(true), config });
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    await first.event('llm.call_started', (e) => e.actor === 'worker');
    await drain(first.engine);
    const types = first.events.map((e) => e.type);
    for (const terminal of ['turn.completed', 'turn.cancelled', 'turn.failed', 'delegate.failed', 'session.ended'])
      expect(types).not.toContain(terminal);

    const second = await restart(first, { scenario: said(false), config });
    expect(await second.ended(turnId)).toMatchObject({ status: 'completed', output: 'end' });
    expect(second.rows()).toMatchObject({ sessions: 2, delegations: 1 });
  });
});

describe('a turn that keeps crashing', () => {
  it('is ended after three attempts', async () => {
    const said = scenario([{ match: {}, times: 'inf', respond: { hang: true } }]);
    let t = await startEngine({ scenario: said });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    await t.event('llm.call_started');
    for (let attempt = 1; attempt <= 3; attempt++) {
      t = await restart(t, { scenario: said });
      await t.event('llm.call_started');
    }
    t = await restart(t, { scenario: said });
    expect((await t.engine.store.turns.view(session.id, turnId))!).toMatchObject({
      status: 'cancelled',
      cancel_reason: 'shutdown',
    });
    expect((await t.engine.store.sessions.view(session.id))!.status).toBe('idle');
  });
});

describe('clean restarts', () => {
  it('are no failed attempts: a long turn outlives any number of them', async () => {
    const said = scenario(
      ...[1, 2, 3, 4, 5].map((n) => [
        { match: { call: n }, respond: { tool_calls: [call('list_files', {})], usage, delay_ms: 20 } },
      ]),
      [{ match: { call: 6 }, respond: { text: 'end', usage } }],
    );
    let t = await startEngine({ scenario: said });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    for (let stop = 1; stop <= 5; stop++) {
      await t.event('llm.call_started');
      await drain(t.engine);
      t = await restart(t, { scenario: said });
    }
    expect(await t.ended(turnId)).toMatchObject({ status: 'completed', output: 'end' });
  });
});
