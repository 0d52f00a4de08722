// The bill before it runs: one question for all delegations of a message, with a row each (21 §1).
import { describe, expect, it } from 'vitest';
import { answerConfirmation, type ConfirmationAnswer } from '#core/engine/answer-approval.ts';
import { recover, resumeAll } from '#core/engine/lifecycle.ts';
import type { SessionInput } from '#core/engine/session/session-records.ts';
import type { PayloadOf } from '#protocol/event.ts';
import { type EngineOptions, startEngine, type TestEngine } from '../support/engine.ts';
import { delegate, planner, scenario, worker } from '../support/scenario.ts';
import { resultsOf, textOf } from '../support/stored.ts';

const TASKS = ['one', 'two', 'three', 'four', 'five'];
const usage = { input_tokens: 400, output_tokens: 20 };
const five = scenario(
  planner({ tool_calls: TASKS.map((task) => delegate(`task ${task}`)), usage }, { text: 'done', usage }),
  ...TASKS.map((task) => worker(`task ${task}`, { text: `result ${task}`, usage })),
);

const start = (rest: Partial<EngineOptions> = {}) => startEngine({ scenario: five, learning: {}, ...rest });
const limits: Partial<SessionInput> = { confirm_above_usd: '0.0001', approval_mode: 'interactive' };

async function askedBill(t: TestEngine) {
  const { payload } = await t.event('tool.confirmation_requested');
  return payload as PayloadOf<'tool.confirmation_requested'>;
}
const answerBill = (t: TestEngine, id: string, given: Partial<ConfirmationAnswer>) =>
  answerConfirmation(t.engine, id, {
    decision: 'approve',
    scope: 'once',
    reason: null,
    modified_input: null,
    ...given,
  });
const count = (t: TestEngine, type: string) => t.events.filter((event) => event.type === type).length;
const readResults = async (t: TestEngine, session: string) => (await resultsOf(t, session)).map(textOf);
const listModels = (t: TestEngine, session: string) =>
  t.events
    .filter((event) => event.type === 'llm.call_completed' && event.session_id !== session)
    .map(({ payload }) => (payload as PayloadOf<'llm.call_completed'>).model);

describe('the bill before it runs', () => {
  // Promise 21.9: delegations above the limit are one question with a row each.
  it('asks once for all delegations of a message, with a row each, and starts them all when approved', async () => {
    const t = await start();
    const session = await t.session(limits);
    const turn = await t.submit(session, 'do all five');
    const asked = await askedBill(t);
    const { rows, compared_usd, ceiling_usd, p90_usd } = asked.payload as never as PayloadOf<'delegate.priced'>;
    expect(asked).toMatchObject({ kind: 'delegations', modifiable: true, allowed_scopes: ['once'] });
    expect(rows.map(({ tool_use_id }) => tool_use_id)).toEqual(asked.tool_use_ids);
    expect(rows).toHaveLength(5);
    for (const row of rows)
      expect(row).toMatchObject({ worker: null, tier: 'fast', model: 'anthropic:claude-haiku-4-5', p90_usd: null });
    expect(p90_usd).toBe('0');
    expect(compared_usd).toBe(ceiling_usd);
    // Nothing has started.
    expect([count(t, 'delegate.started'), count(t, 'tool.called')]).toEqual([0, 0]);
    expect(t.rows().delegations).toBe(0);
    await answerBill(t, asked.confirmation_request_id, {});
    expect((await t.ended(turn)).status).toBe('completed');
    expect(count(t, 'tool.confirmation_requested')).toBe(1);
    expect(count(t, 'delegate.completed')).toBe(5);
    const priced = t.events.filter((event) => event.type === 'delegate.priced');
    expect(priced.map(({ payload }) => payload)).toMatchObject([
      { tool_use_ids: asked.tool_use_ids, compared_usd, answer: { decision: 'approve', modified_input: null } },
    ]);
    // The first call reserves what the row named, where a limit covers it.
    expect(rows[0]!.ceiling_usd).not.toBeNull();
  });

  // Promise 21.9: approved with another tier, all run on it.
  it('runs all on the tier of the answer', async () => {
    const t = await start();
    const session = await t.session(limits);
    const turn = await t.submit(session, 'do all five');
    const { confirmation_request_id: id } = await askedBill(t);
    const wrong = { decision: 'modify', modified_input: { tier: 'huge' } } as const;
    await expect(answerBill(t, id, wrong)).rejects.toMatchObject({ code: 'invalid_modified_input' });
    await expect(answerBill(t, id, { ...wrong, modified_input: { first: 6 } })).rejects.toMatchObject({
      code: 'invalid_modified_input',
    });
    await answerBill(t, id, { decision: 'modify', modified_input: { tier: 'balanced' } });
    await t.ended(turn);
    expect(listModels(t, session.id)).toEqual(Array(5).fill('anthropic:claude-sonnet-4-6'));
  });

  // Promise 21.9: the first two of five start; the others are three error results.
  it('starts the first ones in block order and answers the others', async () => {
    const t = await start();
    const session = await t.session(limits);
    const turn = await t.submit(session, 'do all five');
    const { confirmation_request_id: id } = await askedBill(t);
    await answerBill(t, id, { decision: 'modify', modified_input: { first: 2 } });
    await t.ended(turn);
    expect((await readResults(t, session.id)).map((text) => text.slice(0, 40))).toEqual([
      'result one',
      'result two',
      ...Array(3).fill('The user approved only the first 2 of 5 '),
    ]);
    expect((await resultsOf(t, session.id)).map(({ is_error }) => is_error)).toEqual([false, false, true, true, true]);
    expect(t.rows().delegations).toBe(2);
  });

  // Promise 21.9: rejected, there is no session and no call.
  it('opens no session and makes no call when rejected', async () => {
    const t = await start();
    const session = await t.session(limits);
    const turn = await t.submit(session, 'do all five');
    const { confirmation_request_id: id } = await askedBill(t);
    await answerBill(t, id, { decision: 'reject', reason: 'too much' });
    await t.ended(turn);
    expect(t.rows()).toMatchObject({ delegations: 0, sessions: 1 });
    expect(listModels(t, session.id)).toEqual([]);
    for (const text of await readResults(t, session.id)) expect(text).toContain('Reason: too much');
  });

  // Promise 21.9: without a person to ask, the approval mode decides.
  it.each([
    ['strict', 0],
    ['approve_all', 5],
  ] as const)('mode %s decides at once: %i workers', async (approval_mode, workers) => {
    const config = { workers: { allow_approve_all: true } };
    const t = await start({ config });
    const session = await t.session({ ...limits, approval_mode });
    await t.run(session, 'do all five');
    expect(count(t, 'delegate.completed')).toBe(workers);
    expect(t.events.find(({ type }) => type === 'tool.confirmation_resolved')?.payload).toMatchObject({
      resolved_by: 'policy',
    });
    expect(count(t, 'delegate.priced')).toBe(1);
  });

  // Promise 21.9: with both keys null there is no event and no question.
  it('does nothing where both limits are null, and asks nothing below them', async () => {
    const t = await start();
    const session = await t.session({ approval_mode: 'interactive' });
    await t.run(session, 'do all five');
    expect([count(t, 'delegate.priced'), count(t, 'tool.confirmation_requested')]).toEqual([0, 0]);
    const below = await start();
    const wide = await below.session({ approval_mode: 'interactive', confirm_above_workers: 5 });
    await below.run(wide, 'do all five');
    expect([count(below, 'delegate.priced'), count(below, 'tool.confirmation_requested')]).toEqual([1, 0]);
    const narrow = await start();
    await narrow.submit(
      await narrow.session({ approval_mode: 'interactive', confirm_above_workers: 4 }),
      'do all five',
    );
    expect((await askedBill(narrow)).kind).toBe('delegations');
  });

  it('asks again after a crash before the answer, and never for what was answered', async () => {
    const first = await start();
    const session = await first.session(limits);
    await first.submit(session, 'do all five');
    const before = await askedBill(first);
    first.abandon();
    const t = await start({ folder: first.folder });
    await recover(t.engine);
    await resumeAll(t.engine);
    const again = await askedBill(t);
    expect(again.tool_use_ids).toEqual(before.tool_use_ids);
    expect(again.confirmation_request_id).not.toBe(before.confirmation_request_id);
    expect(t.rows().delegations).toBe(0);
    await answerBill(t, again.confirmation_request_id, { decision: 'modify', modified_input: { first: 2 } });
    await t.event('delegate.priced');
    t.abandon();
    const last = await start({ folder: first.folder });
    await recover(last.engine);
    await resumeAll(last.engine);
    await last.event('turn.completed', (event) => event.session_id === session.id);
    expect(count(last, 'tool.confirmation_requested')).toBe(0);
    expect(last.rows().delegations).toBe(2);
  });
});
