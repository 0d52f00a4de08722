// Who changed which file, and writes that would undo somebody else's (20 §1).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { answerConfirmation } from '#core/engine/answer-approval.ts';
import type { WorkerChanges } from '#protocol/file-change.ts';
import { toolText } from '#protocol/tool.ts';
import { type ConfigOver, startEngine, type TestEngine } from '../support/engine.ts';
import { gate, restart } from '../support/moments.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { resultsOf, textOf, withoutWorkerLine } from '../support/stored.ts';
import { tool } from '../support/tools.ts';
import { until } from '../support/until.ts';

const config = {
  tool_confirmation: { per_tool: { delegate: 'auto', write_file: 'auto', edit_file: 'auto', shell: 'auto' } },
} satisfies ConfigOver;

const read = (file: string) => call('read_file', { path: file });
const write = (file: string, content: string) => call('write_file', { path: file, content });
const edit = (file: string, old: string, next: string) => call('edit_file', { path: file, old, new: next });
const step = (...tool_calls: unknown[]) => ({ tool_calls });

const closing = (t: TestEngine, type: 'delegate.completed' | 'delegate.failed' = 'delegate.completed') =>
  t.events.filter((e) => e.type === type).map((e) => e.payload as WorkerChanges);
const texts = async (t: TestEngine, session: { readonly id: string }) => (await resultsOf(t, session.id)).map(textOf);
const content = (t: TestEngine, file: string) => fs.readFileSync(path.join(t.workspace, file), 'utf8');

describe('changed files', () => {
  // Promise 20.1: Each worker's changed files are reported, and once what another changed behind its reading, in the planner's next request too.
  it('are reported of each worker, and once what another changed behind its reading', async () => {
    const third = gate();
    const second = gate();
    const hold = [third, second].map((door, i) =>
      tool(`hold_${i}`, { execute: () => door.opened.then(() => toolText('ok')) }),
    );
    const t = await startEngine({
      config,
      tools: hold,
      files: { 'b.ts': 'one two' },
      scenario: scenario(
        planner({ tool_calls: [delegate('first'), delegate('second'), delegate('third')] }, { text: 'ok' }),
        worker('first', step(write('src/a.ts', 'a')), { text: 'made' }),
        worker('second', step(call('hold_0', {})), step(read('b.ts')), step(write('b.ts', 'three two')), {
          text: 'said',
        }),
        worker(
          'third',
          step(read('b.ts')),
          step(call('hold_1', {})),
          step(edit('b.ts', 'two', '2')),
          step(read('b.ts')),
          step(edit('b.ts', 'two', '2')),
          { text: 'done' },
        ),
      ),
    });
    const session = await t.session();
    const turn = t.run(session, 'go');
    await t.event('tool.completed', (e) => e.payload.output_size_bytes === 7);
    third.open();
    await t.event('delegate.completed', (e) => (e.payload.changed_files as { path: string }[])[0]?.path === 'b.ts');
    second.open();
    await turn;

    const [a, b, c] = (await t.engine.store.delegations.list(session.id, { recursive: false, after: null, limit: 9 }))
      .rows;
    const report = (d: typeof a) => [d?.changed_files, d?.shell_used, d?.overlaps];
    expect(report(a)).toEqual([[{ path: 'src/a.ts', change: 'created' }], false, []]);
    expect(report(b)).toEqual([[{ path: 'b.ts', change: 'edited' }], false, []]);
    expect(report(c)).toEqual([[{ path: 'b.ts', change: 'edited' }], false, ['b.ts']]);
    expect(closing(t).map((p) => p.overlaps)).toEqual([[], [], ['b.ts']]);
    expect(content(t, 'b.ts')).toBe('three 2');
    const asked = t.adapter.requests
      .at(-1)!
      .messages.flatMap(({ content: [block] }) => (block?.type === 'tool_result' ? [block.content] : []))
      .map((blocks) => blocks.map((block) => (block.type === 'text' ? withoutWorkerLine(block.text) : '')));
    expect(asked).toEqual([
      ['made', '[changed 1 file: src/a.ts]'],
      ['said', '[changed 1 file: b.ts]'],
      ['done', '[changed 1 file: b.ts; also changed by another worker: b.ts]'],
    ]);
  });

  it('of a worker below count for the one above, also of a worker that failed, and a command says that there may be more', async () => {
    const t = await startEngine({
      config: { ...config, delegation: { delegate_depth: 2 } },
      scenario: scenario(
        planner({ tool_calls: [delegate('outer', { tier: 'balanced' }), delegate('broken')] }, { text: 'ok' }),
        [
          { match: { role: 'worker', model: '*sonnet*', call: 1 }, respond: { tool_calls: [delegate('inner')] } },
          { match: { role: 'worker', model: '*sonnet*', call: 2 }, respond: { text: 'outer done' } },
        ],
        worker('inner', step(write('deep.ts', '1'), call('shell', { command: 'touch x' })), { text: 'inner done' }),
        worker('broken', step(write('left.ts', '1')), { error: { error_class: 'invalid_request' } }),
      ),
    });
    const session = await t.session();
    await t.run(session, 'go');
    const made = [{ path: 'deep.ts', change: 'created' }];
    expect(closing(t).map((p) => [p.changed_files, p.shell_used])).toEqual([
      [made, true],
      [made, true],
    ]);
    expect(closing(t, 'delegate.failed')[0]).toMatchObject({
      changed_files: [{ path: 'left.ts', change: 'created' }],
      changed_files_truncated: false,
      shell_used: false,
      overlaps: [],
    });
    const [outer, broken] = await texts(t, session);
    expect(outer).toBe('outer done\n[changed 1 file: deep.ts]');
    expect(broken).toMatch(/^\{"error":.*\}\n\[changed 1 file: left\.ts\]$/);
  });

  it('survive a kill of the server in the middle of the worker', async () => {
    const door = gate();
    const hold = tool('hold', { side_effects: 'read', execute: () => door.opened.then(() => toolText('ok')) });
    const options = {
      config,
      tools: [hold],
      scenario: scenario(
        planner({ tool_calls: [delegate('job')] }, { text: 'ok' }),
        worker('job', step(write('kept.ts', '1')), step(call('hold', {})), { text: 'done' }),
      ),
    };
    const first = await startEngine(options);
    const session = await first.session();
    const turnId = await first.submit(session, 'go');
    await first.event('tool.called', (e) => e.payload.tool_name === 'hold');
    const rest = scenario([
      { match: { role: 'planner' }, respond: { text: 'ok' } },
      { match: { role: 'worker' }, respond: { text: 'done' } },
    ]);
    const again = restart(first, { ...options, scenario: rest });
    door.open();
    const second = await again;
    await second.ended(turnId);
    expect(closing(second)[0]).toMatchObject({ changed_files: [{ path: 'kept.ts', change: 'created' }] });
  });
});

describe('a stale write', () => {
  // Promise 20.2: A write to a file that changed since it was read is refused until it is read again, also after a restart.
  it('is refused until the file is read again, and after a restart a file counts as unread', async () => {
    const say = (turn: number, ...calls: unknown[]) => [
      { match: { turn, call: 1 }, respond: { tool_calls: calls } },
      { match: { turn, call: 2 }, respond: { text: 'ok' } },
    ];
    const rules = scenario(
      say(1, read('a.txt')),
      say(2, edit('a.txt', 'mine', 'x')),
      say(3, write('a.txt', 'x')),
      say(4, read('a.txt')),
      say(5, edit('a.txt', 'theirs', 'ours')),
      say(6, write('a.txt', 'all ours')),
    );
    const t = await startEngine({ config, files: { 'a.txt': 'mine' }, scenario: rules });
    const session = await t.session();
    await t.run(session, 'read');
    fs.writeFileSync(path.join(t.workspace, 'a.txt'), 'mine, theirs');
    await t.run(session, 'edit');
    await t.run(session, 'write');
    const stale = 'changed since you read it: a.txt; read it again';
    expect((await texts(t, session)).slice(1)).toEqual([stale, stale]);
    expect(content(t, 'a.txt')).toBe('mine, theirs');
    await t.run(session, 'read');
    await t.run(session, 'edit');
    await t.run(session, 'write what it wrote itself');
    expect(content(t, 'a.txt')).toBe('all ours');

    const after = scenario(say(7, write('a.txt', 'again')), say(8, read('a.txt')), say(9, write('a.txt', 'again')));
    const next = await restart(t, { config, scenario: after });
    await next.run(session, 'write');
    expect((await texts(next, session)).at(-1)).toBe('you have not read it: a.txt; read it first');
    expect(content(next, 'a.txt')).toBe('all ours');
    await next.run(session, 'read');
    await next.run(session, 'write');
    expect(content(next, 'a.txt')).toBe('again');
  });

  it('is refused before anybody is asked, and so is an input that a person changed to one', async () => {
    const t = await startEngine({
      files: { 'a.txt': 'a', 'b.txt': 'b' },
      scenario: scenario(planner(step(write('a.txt', 'x')), step(write('new.txt', 'x')), { text: 'ok' })),
    });
    const session = await t.session();
    const turnId = await t.submit(session, 'go');
    const asked = (await t.event('tool.confirmation_requested')).payload;
    expect(asked.projected_modifications).toEqual(['new.txt']);
    expect(t.events.find((e) => e.type === 'tool.failed')?.payload).toMatchObject({
      error_class: 'execution_error',
      error_message: 'you have not read it: a.txt; read it first',
    });
    const id = asked.confirmation_request_id as string;
    await until(() => t.engine.approvals.get(id as never));
    const answer = { decision: 'modify', scope: 'once', reason: null } as const;
    await expect(
      answerConfirmation(t.engine, id, { ...answer, modified_input: { path: 'b.txt', content: 'x' } }),
    ).rejects.toMatchObject({ message: 'modified_input: you have not read it: b.txt; read it first' });
    await answerConfirmation(t.engine, id, { ...answer, modified_input: { path: 'c.txt', content: 'x' } });
    expect((await t.ended(turnId)).status).toBe('completed');
    expect(['a.txt', 'b.txt', 'c.txt'].map((file) => content(t, file))).toEqual(['a', 'b', 'x']);
  });

  it('is seen between two sessions of one workspace, each by its own reading', async () => {
    const by = (text: string, turn: number, ...calls: unknown[]) => [
      { match: { user_contains: text, turn, call: 1 }, respond: { tool_calls: calls } },
      { match: { user_contains: text, turn, call: 2 }, respond: { text: 'ok' } },
    ];
    const t = await startEngine({
      config,
      files: { 'a.txt': '0' },
      scenario: scenario(
        by('A1', 1, read('a.txt')),
        by('B1', 1, read('a.txt')),
        by('A2', 2, write('a.txt', 'A')),
        by('B2', 2, write('a.txt', 'B')),
      ),
    });
    const [a, b] = [await t.session(), await t.session()];
    await t.run(a, 'A1');
    await t.run(b, 'B1');
    await t.run(a, 'A2');
    await t.run(b, 'B2');
    expect((await texts(t, b)).at(-1)).toContain('changed since you read it');
    expect(content(t, 'a.txt')).toBe('A');
  });
});
