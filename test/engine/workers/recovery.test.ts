// A crash around a named call: approved bytes are not read again, and no worker runs on others (13 §5, 04 §13).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { answerConfirmation } from '#core/engine/answer-approval.ts';
import { drain } from '#core/engine/lifecycle.ts';
import { startEngine, type TestEngine } from '../../support/engine.ts';
import { manualClock } from '../../support/manual-clock.ts';
import { gate, restart } from '../../support/moments.ts';
import { call, planner, scenario, worker } from '../../support/scenario.ts';
import { until } from '../../support/until.ts';

const options = {
  config: { workers: { planner_allow_workers: ['*'] } as never, shutdown: { drain_seconds: 0 } as never },
  files: { 'workers/w.yaml': 'instructions: x', 'a.md': 'approved' },
  scenario: scenario(
    planner({ tool_calls: [call('w', { input: 'task', attachments: ['a.md'] })] }, { text: 'end' }),
    worker('task', { text: 'ok' }),
  ),
};
/** From now on the call of a worker waits on its way to the worker, until the door is opened. */
function heldAtTheDoor(t: TestEngine) {
  const door = gate();
  const { openSandboxes } = t.engine.workspaces;
  t.engine.workspaces.openSandboxes = async (...args) => {
    await door.opened;
    return openSandboxes(...args);
  };
  return door;
}
const results = async (t: TestEngine, id: string) =>
  (await t.engine.store.messages.history(id as never)).flatMap((m) =>
    m.role === 'tool' ? [JSON.stringify(m.content)] : [],
  );

describe('a call with attachments', () => {
  // Promise 13.37: a call with attachments that had started and has no worker is not made again.
  it('that had started and has no worker yet is not made again after a crash', async () => {
    const first = await startEngine(options);
    heldAtTheDoor(first);
    const session = await first.session();
    const turn = await first.submit(session, 'go');
    await first.event('tool.called');
    const second = await restart(first, { ...options, files: {} });
    expect((await second.ended(turn)).status).toBe('completed');
    expect((await results(second, session.id))[0]).toContain('interrupted by a server restart');
    expect(second.rows()).toMatchObject({ sessions: 1, delegations: 0 });
  });

  // Promise 13.37: a worker made before a restart gets the same bytes or fails with the name of the file.
  it.each([
    ['unchanged runs with what was attached', 'approved', '"ok"'],
    ['changed fails and names the file', 'swapped', 'workspace/a.md has changed since it was attached'],
    ['with one byte more fails', 'approved!', 'workspace/a.md has changed since it was attached'],
  ])('whose worker was made and never ran: the file %s', async (_, content, answer) => {
    const first = await startEngine(options);
    const door = heldAtTheDoor(first);
    const session = await first.session();
    const turn = await first.submit(session, 'go');
    await first.event('tool.called');
    const drained = drain(first.engine);
    await until(() => [...first.engine.locks.activeTurns()].every(({ scope }) => scope.signal.aborted));
    door.open();
    await drained;
    expect(first.rows()).toMatchObject({ sessions: 2, delegations: 1, turns: 1 });
    fs.writeFileSync(path.join(first.workspace, 'a.md'), content);
    const second = await restart(first, { ...options, files: {} });
    expect((await second.ended(turn)).status).toBe('completed');
    expect((await results(second, session.id))[0]).toContain(answer);
    const worked = second.adapter.requests.filter((r) => r.caller.is_worker);
    expect(worked.map((r) => JSON.stringify(r.messages[0]!.content)).join()).toEqual(
      content === 'approved' ? expect.stringContaining('approved') : '',
    );
  });
});

describe('the time of a named worker', () => {
  // Promise 13.30: a worker does not time out while its prompt is open.
  it('stands still while a person is asked', async () => {
    const time = manualClock();
    const t = await startEngine({
      clock: time,
      config: { workers: { planner_allow_workers: ['*'] } as never },
      files: {
        'workers/w.yaml':
          'instructions: x\ntimeout_seconds: 2\nsandboxes: { out: { path: out, mode: rw } }\ntool_rules: { sandbox.write: { approval_required: true, description: Kept for ever. } }\n',
      },
      scenario: scenario(
        planner({ tool_calls: [call('w', { input: 'task' })] }, { text: 'end' }),
        worker('task', { tool_calls: [call('write_file', { path: 'out/a.txt', content: '1' })] }, { text: 'ok' }),
      ),
    });
    const turn = await t.submit(await t.session(), 'go');
    await until(() => t.engine.approvals.size === 1);
    time.advance(3000);
    const [id] = t.engine.approvals.keys();
    expect((await t.engine.store.confirmations.view(id!))?.rule_description).toBe('Kept for ever.');
    await answerConfirmation(t.engine, id!, { decision: 'approve', scope: 'once', reason: null, modified_input: null });
    await t.ended(turn);
    expect(t.events.filter((e) => e.type === 'delegate.completed')).toHaveLength(1);
    expect(fs.readFileSync(path.join(t.workspace, 'out/a.txt'), 'utf8')).toBe('1');
  });
});
