// Asking before acting: prompts, answers, what is remembered, and who may be remembered for (09 §5, §6).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { answerConfirmation, type ConfirmationAnswer } from '#core/engine/answer-approval.ts';
import { cancelTurn } from '#core/engine/control-turn.ts';
import { silentLogger } from '#core/ports/logger.ts';
import type { ToolFactory } from '#core/ports/tool-port.ts';
import { toolText } from '#protocol/tool.ts';
import { startEngine, type TestEngine } from '../support/engine.ts';
import { manualClock } from '../support/manual-clock.ts';
import { failOnce, writes } from '../support/moments.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { resultsOf, textOf } from '../support/stored.ts';
import { until } from '../support/until.ts';

const write = (p: string, content = 'new') => call('write_file', { path: p, content });
const approve = { decision: 'approve', scope: 'once', reason: null, modified_input: null } as const;

async function prompt(t: TestEngine, n = 1) {
  let seen = 0;
  const asked = await t.event('tool.confirmation_requested', () => ++seen === n);
  return asked.payload as {
    confirmation_request_id: string;
    projected_modifications: string[];
    is_worker: boolean;
    root_session_id: string;
  };
}
const answer = (t: TestEngine, id: string, over: Partial<ConfirmationAnswer> = {}) =>
  answerConfirmation(t.engine, id, { ...approve, ...over });
const trustFile = (t: TestEngine) => path.join(t.workspace, '.metis/trust.yaml');

/** Changes each of a list of files. */
const touch: ToolFactory = () => ({
  definition: {
    name: 'touch',
    description: 'touch',
    input_schema: {
      type: 'object',
      additionalProperties: false,
      properties: { path: { type: 'string' }, paths: { type: 'array', items: { type: 'string' } } },
    },
    side_effects: 'write',
    requires_workspace: true,
    path_fields: ['path', 'paths'],
    timeout_seconds: null,
  },
  execute: async () => toolText('touched'),
  cancel: async () => false,
});

describe('an approval', () => {
  // Promise 09.6: A write waits for its approval by the id of its event; a second answer conflicts.
  it('holds the call until it is approved with the id of its event', async () => {
    const t = await startEngine({ scenario: scenario(planner({ tool_calls: [write('a.txt')] }, { text: 'written' })) });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    const asked = await prompt(t);
    expect(asked.projected_modifications).toEqual(['a.txt']);
    expect(fs.existsSync(path.join(t.workspace, 'a.txt'))).toBe(false);
    expect(await answer(t, asked.confirmation_request_id)).toMatchObject({ applied: true, scope: 'once' });
    await t.ended(turnId);
    expect(fs.readFileSync(path.join(t.workspace, 'a.txt'), 'utf8')).toBe('new');
    expect(t.typesOf(session.id).filter((type) => type.startsWith('tool.'))).toEqual([
      'tool.confirmation_requested',
      'tool.confirmation_resolved',
      'tool.called',
      'tool.completed',
    ]);
    expect(await answer(t, asked.confirmation_request_id)).toMatchObject({ applied: false });
    await expect(answer(t, asked.confirmation_request_id, { decision: 'reject' })).rejects.toMatchObject({
      code: 'confirmation_already_resolved',
      details: { decision: 'approve' },
    });
    await expect(answer(t, '01JZZZZZZZZZZZZZZZZZZZZZZZ')).rejects.toMatchObject({
      code: 'not_found',
      details: { resource: 'confirmation' },
    });
  });

  // Promise 09.7: A reason of a rejection reaches the model.
  it('rejected with a reason tells the model why', async () => {
    const t = await startEngine({ scenario: scenario(planner({ tool_calls: [write('a.txt')] }, { text: 'fine' })) });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    await answer(t, (await prompt(t)).confirmation_request_id, { decision: 'reject', reason: 'wrong file' });
    expect((await t.ended(turnId)).status).toBe('completed');
    const [result] = await resultsOf(t, session.id);
    expect(textOf(result!)).toBe('User denied this operation. Reason: wrong file');
    expect(t.events.find((e) => e.type === 'tool.failed')!.payload).toMatchObject({ error_class: 'user_denied' });
  });

  // Promise 09.7: An unanswered prompt times out and a late answer conflicts.
  it('left alone times out, and a late answer changes nothing', async () => {
    const clock = manualClock();
    const t = await startEngine({
      clock,
      scenario: scenario(planner({ tool_calls: [write('a.txt')] }, { text: 'fine' })),
      config: { tool_confirmation: { timeout_seconds: 1 } },
    });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    const asked = await prompt(t);
    await new Promise(setImmediate);
    clock.advance(1000);
    await t.ended(turnId);
    expect(t.events.find((e) => e.type === 'tool.confirmation_resolved')!.payload).toMatchObject({
      decision: 'timeout',
      scope: null,
      resolved_by: 'policy',
    });
    const [result] = await resultsOf(t, session.id);
    expect(textOf(result!)).toBe('Confirmation timed out after 1s; the tool did not run.');
    await expect(answer(t, asked.confirmation_request_id)).rejects.toMatchObject({
      code: 'confirmation_already_resolved',
      details: { decision: 'timeout' },
    });
  });

  it('of a cancelled turn is closed before the turn is', async () => {
    const t = await startEngine({ scenario: scenario(planner({ tool_calls: [write('a.txt')] })) });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    const asked = await prompt(t);
    await cancelTurn(t.engine, session.id, turnId, null);
    await t.ended(turnId);
    expect(t.typesOf(session.id).slice(-3)).toEqual(['tool.confirmation_resolved', 'tool.failed', 'turn.cancelled']);
    expect(t.events.find((e) => e.type === 'tool.confirmation_resolved')).toMatchObject({
      actor: 'system',
      payload: { decision: 'cancelled', scope: null },
    });
    await expect(answer(t, asked.confirmation_request_id)).rejects.toMatchObject({
      code: 'confirmation_already_resolved',
    });
  });

  // Promise 13.33: Two answers at once: one is applied.
  it('answered by two people at once is applied once', async () => {
    const t = await startEngine({ scenario: scenario(planner({ tool_calls: [write('a.txt')] }, { text: 'ok' })) });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    const id = (await prompt(t)).confirmation_request_id;
    const both = await Promise.allSettled([answer(t, id), answer(t, id, { decision: 'reject' })]);
    expect(both.filter((b) => b.status === 'fulfilled')).toHaveLength(1);
    await t.ended(turnId);
    expect(t.events.filter((e) => e.type === 'tool.confirmation_resolved')).toHaveLength(1);
  });
});

describe('the same answer', () => {
  const said = scenario(planner({ tool_calls: [write('a.txt')] }, { text: 'ok' }));

  for (const scope of ['once', 'always'] as const)
    it(`given twice at once with scope ${scope} is applied once, and the second time nothing happens`, async () => {
      const t = await startEngine({ scenario: said });
      const turnId = await t.submit(await t.session(), 'go');
      const id = (await prompt(t)).confirmation_request_id;
      const both = await Promise.all([answer(t, id, { scope }), answer(t, id, { scope })]);
      expect(both.map((reply) => reply.applied).sort()).toEqual([false, true]);
      expect(both.map((reply) => [reply.decision, reply.scope])).toEqual(Array(2).fill(['approve', scope]));
      expect((await t.ended(turnId)).status).toBe('completed');
      expect(t.events.filter((e) => e.type === 'tool.confirmation_resolved')).toHaveLength(1);
    });

  it('is taken when the first of two could not be stored, and no rule is left of that one', async () => {
    const t = await startEngine({ scenario: said });
    const turnId = await t.submit(await t.session(), 'go');
    const id = (await prompt(t)).confirmation_request_id;
    failOnce(t, (batch) => writes(batch, 'confirmation.resolve'));
    const [first, second] = await Promise.allSettled([answer(t, id, { scope: 'always' }), answer(t, id)]);
    expect(first).toMatchObject({ status: 'rejected', reason: { message: 'disk full' } });
    expect(second).toMatchObject({ status: 'fulfilled', value: { applied: true, scope: 'once' } });
    expect(fs.existsSync(trustFile(t))).toBe(false);
    expect((await t.ended(turnId)).status).toBe('completed');
  });
});

describe('an edited input', () => {
  // Promise 13.29: An edited input outside the workspace is refused and the prompt stays open; a valid one runs as edited.
  it('runs as edited, tells the model, and leaves the stored call as it was', async () => {
    const t = await startEngine({ scenario: scenario(planner({ tool_calls: [write('a.txt')] }, { text: 'ok' })) });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    const id = (await prompt(t)).confirmation_request_id;
    await expect(
      answer(t, id, { decision: 'modify', modified_input: { path: '../out.txt', content: 'x' } }),
    ).rejects.toMatchObject({ code: 'invalid_modified_input' });
    await expect(answer(t, id, { decision: 'modify', modified_input: { path: 5 } })).rejects.toMatchObject({
      code: 'invalid_modified_input',
      message: 'modified_input.content: is required',
    });
    await answer(t, id, { decision: 'modify', modified_input: { path: 'b.txt', content: 'edited' } });
    await t.ended(turnId);
    expect(fs.readFileSync(path.join(t.workspace, 'b.txt'), 'utf8')).toBe('edited');
    expect(fs.existsSync(path.join(t.workspace, 'a.txt'))).toBe(false);
    const [result] = await resultsOf(t, session.id);
    expect(textOf(result!)).toMatch(/^\[input edited by user before execution\] \{"path":"b.txt","content":"edited"\}/);
    const asked = (await t.engine.store.messages.history(session.id)).find((m) => m.role === 'assistant')!;
    expect(asked.content).toContainEqual(expect.objectContaining({ input: { path: 'a.txt', content: 'new' } }));
  });
});

describe('an edited list of paths', () => {
  it('that leaves the workspace is refused under the name of its own field', async () => {
    const t = await startEngine({
      tools: [touch],
      scenario: scenario(planner({ tool_calls: [call('touch', { paths: ['a.txt'] })] }, { text: 'ok' })),
    });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    const id = (await prompt(t)).confirmation_request_id;
    await expect(
      answer(t, id, { decision: 'modify', modified_input: { path: 'a.txt', paths: ['a.txt', '../b.txt'] } }),
    ).rejects.toMatchObject({ message: expect.stringMatching(/^modified_input\.paths: /) });
    await answer(t, id);
    await t.ended(turnId);
  });
});

describe('what is remembered', () => {
  // Promise 09.8: always for a planner is remembered, for workers too.
  it('"always" for a planner is written to trust.yaml and holds for workers too', async () => {
    const t = await startEngine({
      scenario: scenario(
        planner(
          { tool_calls: [write('a.txt')] },
          { tool_calls: [write('b.txt'), delegate('write c')] },
          { text: 'ok' },
        ),
        worker('write c', { tool_calls: [write('c.txt')] }, { text: 'done' }),
      ),
    });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    const asked = await prompt(t);
    expect(await answer(t, asked.confirmation_request_id, { scope: 'always' })).toMatchObject({ scope: 'always' });
    await t.ended(turnId);
    expect(fs.readFileSync(trustFile(t), 'utf8')).toContain('write_file');
    expect(t.events.filter((e) => e.type === 'tool.confirmation_requested')).toHaveLength(1);
    expect(fs.existsSync(path.join(t.workspace, 'c.txt'))).toBe(true);
  });

  // Promise 04.23: A worker's always holds once; trust.yaml is unchanged.
  // Promise 09.8: always for a worker holds once.
  it('"always" for a worker holds once and writes nothing', async () => {
    const t = await startEngine({
      files: { '.metis/trust.yaml': 'schema_version: 1\nalways_allow: [list_files]\n' },
      scenario: scenario(
        planner({ tool_calls: [delegate('write twice')] }, { text: 'ok' }),
        worker('write twice', { tool_calls: [write('a.txt')] }, { tool_calls: [write('b.txt')] }, { text: 'done' }),
      ),
    });
    const before = fs.readFileSync(trustFile(t), 'utf8');
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    const first = await prompt(t);
    expect(first).toMatchObject({ is_worker: true, root_session_id: session.id });
    expect(await answer(t, first.confirmation_request_id, { scope: 'always' })).toMatchObject({ scope: 'once' });
    const second = await prompt(t, 2);
    await answer(t, second.confirmation_request_id);
    await t.ended(turnId);
    expect(fs.readFileSync(trustFile(t), 'utf8')).toBe(before);
  });

  it('"identical" covers the same call in the whole tree, and no other content', async () => {
    const t = await startEngine({
      scenario: scenario(
        planner(
          { tool_calls: [write('a.txt')] },
          { tool_calls: [write('./a.txt')] },
          { tool_calls: [write('a.txt', 'other')] },
          { text: 'ok' },
        ),
      ),
    });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    expect(await answer(t, (await prompt(t)).confirmation_request_id, { scope: 'identical' })).toMatchObject({
      scope: 'identical',
    });
    await answer(t, (await prompt(t, 2)).confirmation_request_id);
    await t.ended(turnId);
    expect(t.events.filter((e) => e.type === 'tool.confirmation_requested')).toHaveLength(2);
    expect(t.events.filter((e) => e.type === 'tool.completed')).toHaveLength(3);
  });

  it('"identical" compares the real files of a list of paths, so a link turned elsewhere is asked about again', async () => {
    const t = await startEngine({
      tools: [touch],
      files: { 'a.txt': 'a', 'b.txt': 'b' },
      scenario: scenario(
        planner(
          { tool_calls: [call('touch', { paths: ['a.txt', 'link'] })] },
          { tool_calls: [call('touch', { paths: ['./a.txt', 'a.txt'] })] },
          { tool_calls: [call('touch', { paths: ['a.txt', 'link'] })] },
          { text: 'ok' },
        ),
      ),
    });
    const link = path.join(t.workspace, 'link');
    fs.symlinkSync('a.txt', link);
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    const first = await prompt(t);
    let completed = 0;
    t.engine.bus.subscribe('relink', (items) => {
      completed += items.filter((item) => item.kind === 'event' && item.event.type === 'tool.completed').length;
      if (completed !== 2) return;
      fs.rmSync(link);
      fs.symlinkSync('b.txt', link);
    });
    await answer(t, first.confirmation_request_id, { scope: 'identical' });
    await answer(t, (await prompt(t, 2)).confirmation_request_id);
    await t.ended(turnId);
    const asked = t.events.filter((e) => e.type === 'tool.confirmation_requested');
    const done = t.events.filter((e) => e.type === 'tool.completed');
    expect(asked).toHaveLength(2);
    expect(done).toHaveLength(3);
    expect(asked[1]!.id > done[1]!.id).toBe(true);
  });

  // Promise 09.9: A denied name is denied whatever its class.
  it('a denied name is denied whatever its class', async () => {
    const t = await startEngine({
      files: { '.metis/trust.yaml': 'schema_version: 1\nalways_deny: [read_file]\n', 'a.txt': 'x' },
      scenario: scenario(planner({ tool_calls: [call('read_file', { path: 'a.txt' })] }, { text: 'ok' })),
    });
    const session = await t.session();
    await t.run(session, 'go');
    const [result] = await resultsOf(t, session.id);
    expect(textOf(result!)).toBe('Denied by policy.');
  });

  // Promise 09.9: A broken trust file allows nothing and is not written over.
  it.each([
    ['no YAML', 'always_allow: [shell, write_file', 'YAML'],
    // What somebody meant to deny must not run because a letter is missing.
    [
      'a misspelt key',
      'always_allow: [write_file]\nalway_deny: [shell]\n',
      'alway_deny: unknown key; did you mean "always_deny"?',
    ],
  ])('a broken trust file (%s) is told, allows nothing and is not written over', async (_, broken, told) => {
    const warnings: unknown[] = [];
    const t = await startEngine({
      log: { ...silentLogger, warn: (fields) => void warnings.push(fields.problem) },
      files: { '.metis/trust.yaml': broken },
      scenario: scenario(planner({ tool_calls: [write('a.txt')] }, { text: 'ok' })),
    });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    expect(await answer(t, (await prompt(t)).confirmation_request_id, { scope: 'always' })).toMatchObject({
      scope: 'once',
    });
    await t.ended(turnId);
    expect(fs.readFileSync(trustFile(t), 'utf8')).toBe(broken);
    expect(warnings[0]).toContain(told);
  });
});

describe('unattended modes', () => {
  const both = scenario(planner({ tool_calls: [write('a.txt'), call('list_files', {})] }, { text: 'ok' }));

  it('strict denies what would be asked, and reports it', async () => {
    const t = await startEngine({ scenario: both });
    const session = await t.session({ approval_mode: 'strict' });
    await t.run(session, 'go');
    const [denied, listed] = await resultsOf(t, session.id);
    expect(textOf(denied!)).toBe("Strict mode: tool 'write_file' not pre-approved");
    expect(listed!.is_error).toBe(false);
    expect(t.events.find((e) => e.type === 'tool.confirmation_resolved')!.payload).toMatchObject({
      decision: 'reject',
      resolved_by: 'policy',
    });
  });

  // Promise 13.27: strict denies what would prompt, approve_all needs permission.
  it('approve_all needs permission, and then leaves both events', async () => {
    const t = await startEngine({ scenario: both });
    await expect(t.session({ approval_mode: 'approve_all' })).rejects.toMatchObject({
      code: 'approval_mode_not_allowed',
    });
    const free = await startEngine({ scenario: both, config: { workers: { allow_approve_all: true } } });
    const session = await free.session({ approval_mode: 'approve_all' });
    await free.run(session, 'go');
    expect(fs.existsSync(path.join(free.workspace, 'a.txt'))).toBe(true);
    expect(free.events.filter((e) => e.type.startsWith('tool.confirmation')).map((e) => e.actor)).toEqual([
      'system',
      'system',
    ]);
  });
});

describe("a worker's clock", () => {
  // Promise 04.14: An open prompt does not use up a worker's time.
  it('stands still while a person is asked', async () => {
    const clock = manualClock();
    const t = await startEngine({
      clock,
      scenario: scenario(
        planner({ tool_calls: [delegate('write', { timeout_seconds: 2 })] }, { text: 'ok' }),
        worker('write', { tool_calls: [write('a.txt')] }, { text: 'done', delay_ms: 1500 }),
      ),
    });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    const asked = await prompt(t);
    clock.advance(60_000);
    await answer(t, asked.confirmation_request_id);
    await t.event(
      'llm.call_started',
      (e) => e.actor === 'worker' && (e.payload as { call_index: number }).call_index === 2,
    );
    await until(() => clock.pending(1600) > 0);
    clock.advance(1500);
    expect((await t.ended(turnId)).status).toBe('completed');
    expect(t.events.some((e) => e.type === 'delegate.completed')).toBe(true);
  });
});
