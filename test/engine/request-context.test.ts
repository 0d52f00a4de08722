import { describe, expect, it } from 'vitest';
import { startEngine } from '../support/engine.ts';
import { restart } from '../support/moments.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { storedEvents, turnOf } from '../support/stored.ts';

const lack = (summary = 'lost') =>
  call('_request_context', { summary, missing: [{ type: 'file', ref: 'a.txt', hint: 'read it' }] });

describe('a request for context', () => {
  it('ends the worker, also when the process dies behind it', async () => {
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
    const events = await storedEvents(second, session.id);
    expect(events.find((e) => e.type === 'delegate.failed')?.payload).toMatchObject({
      failure_mode: 'insufficient_context',
    });
  });

  it('counts though the one before it was not valid', async () => {
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
});
