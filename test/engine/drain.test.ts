// A shutdown starts nothing any more: what waits for its place goes on with the next process (04 §13).
import { describe, expect, it } from 'vitest';
import { toolText } from '../../src/domain/tool.ts';
import { drain } from '../../src/engine/drain.ts';
import { startEngine, type TestEngine } from '../support/engine.ts';
import { gate, restart, turns } from '../support/moments.ts';
import { call, planner, scenario } from '../support/scenario.ts';
import { tool } from '../support/tools.ts';

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
