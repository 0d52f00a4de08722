import { describe, expect, it } from 'vitest';
import { answerConfirmation } from '#core/engine/answer-approval.ts';
import { cancelTurn } from '#core/engine/control-turn.ts';
import { startEngine } from '../support/engine.ts';
import { failOnce, turns, writes } from '../support/moments.ts';
import { call, planner, scenario } from '../support/scenario.ts';
import { turnOf } from '../support/stored.ts';
import { until } from '../support/until.ts';

const yes = { decision: 'approve', scope: 'once', reason: null, modified_input: null } as const;

describe('a fault', () => {
  it('while an answer is stored leaves the approval open for another one', async () => {
    const t = await startEngine({
      scenario: scenario(planner({ tool_calls: [call('write_file', { path: 'a', content: '1' })] }, { text: 'end' })),
    });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    const asked = await t.event('tool.confirmation_requested');
    await until(() => t.engine.approvals.size > 0);
    failOnce(t, (b) => writes(b, 'confirmation.resolve'));
    const id = asked.payload.confirmation_request_id as string;
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
    await until(() => t.engine.approvals.size > 0);
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
    await expect(answerConfirmation(t.engine, id, yes)).rejects.toThrow('disk full');
    await t.ended(turnId);
    expect((await turnOf(t, session.id, turnId)).status).toBe('cancelled');
  });

  it('of the trust file counts as a refusal', async () => {
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
});
