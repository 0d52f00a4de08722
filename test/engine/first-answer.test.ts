// The first answer to a prompt is the answer, from the moment it is given: nothing that comes while it is stored counts (09 §6).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { answerConfirmation, type ConfirmationAnswer } from '#core/engine/answer-approval.ts';
import { startEngine, type TestEngine } from '../support/engine.ts';
import { manualClock } from '../support/manual-clock.ts';
import { gate, turns, writes } from '../support/moments.ts';
import { call, planner, scenario } from '../support/scenario.ts';
import { until } from '../support/until.ts';

const approve: ConfirmationAnswer = { decision: 'approve', scope: 'once', reason: null, modified_input: null };

async function asked() {
  const clock = manualClock();
  const t = await startEngine({
    clock,
    config: { tool_confirmation: { timeout_seconds: 60 } },
    scenario: scenario(planner({ tool_calls: [call('write_file', { path: 'a', content: 'asked' })] }, { text: 'end' })),
  });
  const session = await t.session();
  const turnId = await t.submit(session, 'go');
  await until(() => t.engine.approvals.size > 0);
  const [id] = [...t.engine.approvals.keys()];
  return { t, clock, turnId, id: id! };
}
const decisions = (t: TestEngine) =>
  t.events
    .filter((e) => e.type === 'tool.confirmation_resolved')
    .map((e) => (e.payload as { decision: string }).decision);
const written = (t: TestEngine, file: string) => {
  const at = path.join(t.workspace, file);
  return fs.existsSync(at) ? fs.readFileSync(at, 'utf8') : null;
};

describe('the first answer', () => {
  it('holds though the deadline passes while it is stored', async () => {
    const { t, clock, turnId, id } = await asked();
    const { journal } = t.engine;
    const { commit } = journal;
    let slow = true;
    journal.commit = async (batch) => {
      if (slow && writes(batch, 'confirmation.resolve')) {
        slow = false;
        clock.advance(60_000);
        await turns(20);
      }
      return commit(batch);
    };
    expect(await answerConfirmation(t.engine, id, approve)).toMatchObject({ applied: true });
    expect(await t.ended(turnId)).toMatchObject({ status: 'completed', output: 'end' });
    expect(decisions(t)).toEqual(['approve']);
    expect(written(t, 'a')).toBe('asked');
  });

  it('holds against a second one that would be remembered for ever: that leaves no line in trust.yaml', async () => {
    const { t, turnId, id } = await asked();
    const [first, second] = await Promise.allSettled([
      answerConfirmation(t.engine, id, approve),
      answerConfirmation(t.engine, id, { ...approve, decision: 'reject', scope: 'always' }),
    ]);
    expect(first).toMatchObject({ status: 'fulfilled', value: { applied: true } });
    expect(second).toMatchObject({ status: 'rejected', reason: { code: 'confirmation_already_resolved' } });
    await t.ended(turnId);
    expect(decisions(t)).toEqual(['approve']);
    expect(written(t, '.metis/trust.yaml')).toBeNull();
  });

  it('holds against an edit that was still being checked when it came', async () => {
    const { t, turnId, id } = await asked();
    const wait = gate();
    const real = t.engine.workspaces.persistTrust;
    t.engine.workspaces.persistTrust = async (...args) => {
      await wait.opened;
      return real(...args);
    };
    const edit = answerConfirmation(t.engine, id, {
      ...approve,
      decision: 'modify',
      modified_input: { path: 'a', content: 'edited' },
    }).catch((error: unknown) => error);
    const always = answerConfirmation(t.engine, id, { ...approve, scope: 'always' });
    await turns(20);
    wait.open();
    expect(await always).toMatchObject({ applied: true, scope: 'always' });
    expect(await edit).toMatchObject({ code: 'confirmation_already_resolved' });
    await t.ended(turnId);
    expect(decisions(t)).toEqual(['approve']);
    expect(written(t, 'a')).toBe('asked');
  });
});
