import { describe, expect, it } from 'vitest';
import { toolText } from '#protocol/tool.ts';
import { startEngine } from '../support/engine.ts';
import { gate, turns } from '../support/moments.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { resultsOf, textOf, turnOf } from '../support/stored.ts';
import { tool } from '../support/tools.ts';

describe('tool calls of one answer', () => {
  it("a fault in one tool's own check is that call's failure alone", async () => {
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
    expect((await resultsOf(t, session.id)).map(textOf)).toEqual(['ok', 'Tool execution failed.']);
  });

  it('are followed by a call that hangs on the last tool event, whatever was known first', async () => {
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

  it('leave no listener warning, 32 at once', async () => {
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
    expect(t.engine.locks.activeTurns()).toEqual([]);
    expect(t.engine.approvals.size).toBe(0);
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
