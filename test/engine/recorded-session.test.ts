// A recorded session: where its workspace began, and what each of its model calls adds (21 §3).
import { describe, expect, it, vi } from 'vitest';
import { purgeSession } from '#core/engine/fork-session.ts';
import { endSession } from '#core/engine/manage-session.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { tool } from '../support/tools.ts';
import { git, startInRepository } from '../support/worktrees.ts';

vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

describe('a recorded session', () => {
  it('notes its workspace as a commit, and stores of each call what the one before it does not hold', async () => {
    const t = await startInRepository(
      { 'a.txt': 'one\n' },
      {
        tools: [tool('peek')],
        scenario: scenario(
          planner({ tool_calls: [delegate('look around')] }, { text: 'done' }),
          worker('look around', { tool_calls: [call('peek', {})] }, { text: 'seen' }),
        ),
      },
    );
    const session = await t.session({ record_case: true });
    const ref = `refs/metis/${session.id}/base`;
    expect(git(t.workspace, 'ls-tree', '-r', '--name-only', ref).split('\n')).toContain('a.txt');
    await t.run(session, 'go');
    const { cases } = t.engine.store;
    expect(await cases.start(session.id)).toMatchObject({ kind: 'snapshot', ref, prefix: '' });
    const { rows } = await cases.calls(session.id, null, 100);
    const added = rows.map(({ call }) => [
      call.is_worker,
      call.head !== null,
      call.same_messages,
      call.messages.length,
    ]);
    expect(added).toEqual([
      [false, true, 0, 1],
      [true, true, 0, 1],
      [true, false, 1, 2],
      [false, false, 1, 2],
    ]);
    expect(rows.at(-1)!.call.answer).toMatchObject({
      stop_reason: 'end_turn',
      content: [{ type: 'text', text: 'done' }],
    });

    await endSession(t.engine, session.id);
    await purgeSession(t.engine, session.id);
    expect(git(t.workspace, 'for-each-ref', 'refs/metis')).toBe('');
    expect(t.db.db.prepare('SELECT count(*) AS n FROM case_calls').get()).toEqual({ n: 0 });
  });

  it('stores nothing of a session that is not recorded', async () => {
    const t = await startInRepository({ 'a.txt': 'one\n' }, { scenario: scenario(planner({ text: 'done' })) });
    const session = await t.session();
    await t.run(session, 'go');
    expect(await t.engine.store.cases.start(session.id)).toBeNull();
    expect(git(t.workspace, 'for-each-ref', 'refs/metis')).toBe('');
    expect(t.db.db.prepare('SELECT count(*) AS n FROM case_calls').get()).toEqual({ n: 0 });
  });
});
