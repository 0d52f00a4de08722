// A shutdown starts nothing any more: what waits for its place goes on with the next process (04 §13).
import { describe, expect, it } from 'vitest';
import { answerConfirmation } from '#core/engine/answer-approval.ts';
import { drain, recover } from '#core/engine/lifecycle.ts';
import { toolText } from '#protocol/tool.ts';
import { startEngine, type TestEngine } from '../support/engine.ts';
import { gate, restart, turns } from '../support/moments.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { storedEvents, turnOf } from '../support/stored.ts';
import { tool } from '../support/tools.ts';
import { until } from '../support/until.ts';

const usage = { input_tokens: 1000, output_tokens: 100 };
const called = (t: TestEngine) =>
  t.events.filter((e) => e.type === 'tool.called').map((e) => (e.payload as { tool_name: string }).tool_name);

describe('a drain', () => {
  it('starts no call whose place becomes free meanwhile; the next process does, and repeats none', async () => {
    const wait = gate();
    const ran: string[] = [];
    const runs = (name: string, before: Promise<void>) =>
      tool(name, {
        side_effects: 'read',
        execute: async () => {
          await before;
          ran.push(name);
          return toolText(name);
        },
      });
    const options = {
      tools: [runs('slow', wait.opened), runs('queued', Promise.resolve())],
      config: { tools: { max_concurrent_per_session: 1 } },
      scenario: scenario(planner({ tool_calls: [call('slow', {}), call('queued', {})] }, { text: 'end' })),
    };
    const first = await startEngine(options);
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    await first.event('tool.called');
    await turns(20);
    const drained = drain(first.engine);
    wait.open();
    await drained;
    expect([called(first), ran]).toEqual([['slow'], ['slow']]);
    expect((await first.engine.store.turns.view(session.id, turnId))!.status).toBe('interrupted');

    const second = await restart(first, options);
    expect(await second.ended(turnId)).toMatchObject({ status: 'completed', output: 'end', tool_call_count: 2 });
    expect([called(second), ran]).toEqual([['queued'], ['slow', 'queued']]);
  });
});

describe('a drain that came to its end', () => {
  // Promise 01.30: a client's cut-off calls are looked for behind the place of the last orderly stop.
  it('leaves the place before which the next start looks for no cut-off call of a client', async () => {
    const options = { scenario: scenario(planner({ text: 'one', usage }, { text: 'two', usage })) };
    const first = await startEngine(options);
    await first.run(await first.session(), 'go');
    await drain(first.engine);
    const newest = await first.engine.store.events.newestId();
    const { engine } = await restart(first, options);
    const since: string[] = [];
    const openGatewayCalls = async (id: string) => {
      since.push(id);
      return [];
    };
    const events = { ...engine.store.events, openGatewayCalls };
    await recover({ ...engine, store: { ...engine.store, events } });
    expect(since).toEqual([newest]);
  });
});

describe('a drain that meets an open approval', () => {
  it('waits for nobody, also for a worker, and lets what runs beside it finish', async () => {
    const wait = gate();
    const slow = tool('slow', {
      side_effects: 'read',
      execute: async () => {
        await wait.opened;
        return toolText('slow');
      },
    });
    const write = call('write_file', { path: 'a', content: '1' });
    const options = {
      tools: [slow],
      config: { shutdown: { drain_seconds: 3600 } },
      scenario: scenario(
        planner({ tool_calls: [delegate('the job'), call('slow', {})] }, { text: 'end' }),
        worker('the job', { tool_calls: [write] }, { text: 'done' }),
      ),
    };
    const first = await startEngine(options);
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    await until(() => called(first).includes('slow') && first.engine.approvals.size > 0);
    const drained = drain(first.engine);
    await until(() => first.engine.approvals.size === 0);
    wait.open();
    await drained;
    expect((await turnOf(first, session.id, turnId)).status).toBe('interrupted');

    const second = await restart(first, options);
    const asked = await second.event('tool.confirmation_requested');
    await until(() => second.engine.approvals.size > 0);
    await answerConfirmation(second.engine, asked.payload.confirmation_request_id as string, {
      decision: 'approve',
      scope: 'once',
      reason: null,
      modified_input: null,
    });
    expect(await second.ended(turnId)).toMatchObject({ status: 'completed', output: 'end', tool_call_count: 2 });
    expect(called(second)).toEqual(['write_file']);
  });
});

describe('a drain that cuts', () => {
  it('counts the call it cut once, as the ledger has it', async () => {
    const said = scenario(
      planner({ text: 'a long answer in many pieces', chunk_chars: 2, chunk_delay_ms: 20, usage }),
      [{ match: {}, times: 'inf', respond: { text: 'short', usage } }],
    );
    const config = { shutdown: { drain_seconds: 0 } };
    const first = await startEngine({ scenario: said, config });
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    await until(() => first.deltas.some((d) => d.delta.type === 'text.delta'));
    await drain(first.engine);
    const short = scenario([{ match: {}, times: 'inf', respond: { text: 'short', usage } }]);
    const second = await restart(first, { scenario: short, config });
    const turn = await second.ended(turnId);
    expect(turn).toMatchObject({ status: 'completed', output: 'short', llm_call_count: 2 });
    const events = await storedEvents(second, session.id);
    const done = events.find((e) => e.type === 'turn.completed')!;
    expect(done.payload).toMatchObject({ llm_call_count: 2, total_cost_usd: turn.total_cost_usd });
    expect(events.filter((e) => e.type === 'llm.call_started').map((e) => e.payload.call_index)).toEqual([1, 2]);
  });

  it('leaves open approvals and queued tools to the next process', async () => {
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
    await until(() => first.engine.approvals.size > 0);
    await drain(first.engine);
    expect((await turnOf(first, session.id, turnId)).status).toBe('interrupted');
    expect(first.engine.approvals.size).toBe(0);
    const second = await restart(first, { scenario: said, config });
    const asked = await second.event('tool.confirmation_requested');
    await until(() => second.engine.approvals.size > 0);
    await answerConfirmation(second.engine, asked.payload.confirmation_request_id as string, {
      decision: 'approve',
      scope: 'once',
      reason: null,
      modified_input: null,
    });
    expect(await second.ended(turnId)).toMatchObject({ status: 'completed', tool_call_count: 2 });
    const called = (await storedEvents(second, session.id)).filter((e) => e.type === 'tool.called');
    expect(called.map((e) => e.payload.tool_name)).toEqual(['list_files', 'write_file']);
  });
});
