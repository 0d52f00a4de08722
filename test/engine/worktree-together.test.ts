// Workers of one message whose changes are applied together: one merge, or none (20 §2.5).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { recover, resumeAll } from '#core/engine/lifecycle.ts';
import { applyKeptChanges } from '#core/engine/manage-worktrees.ts';
import { submitDelegation } from '#core/engine/submit-work.ts';
import { SubmitDelegationBody } from '#protocol/api/worker-bodies.ts';
import type { SessionId } from '#protocol/ids.ts';
import { toolText } from '#protocol/tool.ts';
import { startEngine } from '../support/engine.ts';
import { gate, restart } from '../support/moments.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { tool } from '../support/tools.ts';
import {
  closings,
  edit,
  FREE_TOOLS,
  git,
  isolated,
  leftovers,
  readFile,
  resultTexts,
  startInRepository,
  step,
  write,
} from '../support/worktrees.ts';

const joined = (task: string, over: object = {}) => isolated(task, { apply: 'together', ...over });

describe('workers that are applied together', () => {
  it('are merged in block order once the last has ended, so that none sees half of them', async () => {
    const seen: string[] = [];
    let look = () => {};
    const t = await startInRepository(
      { 'a.txt': '1\n2\n3\n4\n5\n', 'b.txt': 'b\n' },
      {
        // Fewer places than workers: one that waits for the others must not hold its own.
        config: { ...FREE_TOOLS, tools: { max_concurrent_per_session: 1 } },
        tools: [
          tool('look', {
            async execute() {
              look();
              return toolText('ok');
            },
          }),
        ],
        scenario: scenario(
          planner(step(joined('first'), joined('second'), joined('third'), delegate('alone')), { text: 'ok' }),
          worker('first', step(edit('a.txt', '1', 'one')), { text: 'did first' }),
          worker('second', step(edit('b.txt', 'b', 'B')), { text: 'did second' }),
          worker('third', step(call('look', {})), step(edit('a.txt', '5', 'five')), { text: 'did third' }),
          worker('alone', { text: 'did nothing' }),
        ),
      },
    );
    look = () => seen.push(readFile(t, 'a.txt') + readFile(t, 'b.txt'));
    const session = await t.session();
    await t.run(session, 'go');
    expect(seen).toEqual(['1\n2\n3\n4\n5\nb\n']);
    expect([readFile(t, 'a.txt'), readFile(t, 'b.txt')]).toEqual(['one\n2\n3\n4\nfive\n', 'B\n']);
    expect(closings(t).map(({ applied }) => applied)).toEqual(expect.arrayContaining([true, true, true, null]));
    expect((await resultTexts(t, session))[1]).toBe('did second\n[changed 1 file: b.txt]');
    expect(leftovers(t)).toEqual([]);
  });

  // Promise 20.14: Of three that are applied together one conflicts: nothing of the three is written, and the conflict names its worker.
  it('write nothing where one of them conflicts, which is named', async () => {
    const t = await startInRepository(
      { 'a.txt': 'one\n', 'b.txt': 'b\n' },
      {
        scenario: scenario(
          planner(step(joined('first'), joined('second'), joined('third')), { text: 'ok' }),
          worker('first', step(edit('a.txt', 'one', 'first')), { text: 'did first' }),
          worker('second', step(edit('a.txt', 'one', 'second')), { text: 'did second' }),
          worker('third', step(edit('b.txt', 'b', 'B')), { text: 'did third' }),
        ),
      },
    );
    const session = await t.session();
    await t.run(session, 'go');
    expect([readFile(t, 'a.txt'), readFile(t, 'b.txt')]).toEqual(['one\n', 'b\n']);
    const page = await t.engine.store.delegations.list(session.id, { recursive: false, after: null, limit: 9 });
    expect(page.rows.map(({ status, applied, conflicts }) => [status, applied, conflicts])).toEqual([
      ['completed', false, []],
      ['completed', false, ['a.txt']],
      ['completed', false, []],
    ]);
    const kept = page.rows.map((row) => `refs/metis/${row.worker_session_id}/result`);
    expect(await resultTexts(t, session)).toEqual([
      expect.stringContaining(`\n[changes not applied: another worker of this message conflicts; kept as ${kept[0]}]`),
      expect.stringMatching(/^did second\n.*\n\[changes not applied, conflicts in: a.txt; continue this worker/),
      `did third\n[changed 1 file: b.txt]\n[changes not applied: another worker of this message conflicts; kept as ${kept[2]}]`,
    ]);
    // A person applies one of them later, alone.
    expect(await applyKeptChanges(t.engine, page.rows[2]!.worker_session_id as SessionId)).toMatchObject({
      applied: true,
    });
    expect([readFile(t, 'a.txt'), readFile(t, 'b.txt')]).toEqual(['one\n', 'B\n']);
    expect(leftovers(t)).toEqual([]);
  });

  it('may be named workers: they are part of the one merge', async () => {
    const coder = (input: string) => call('coder', { input, isolation: 'worktree', apply: 'together' });
    const definition = 'instructions: code\ntier: fast\nsandboxes: {src: {path: ., mode: rw}}\n';
    const t = await startInRepository(
      { 'a.txt': 'one\n', 'b.txt': 'b\n', '.metis/workers/coder.yaml': definition },
      {
        config: { ...FREE_TOOLS, workers: { planner_allow_workers: ['*'], allow_approve_all: true } },
        scenario: scenario(
          planner(step(coder('first'), joined('second'), coder('third')), { text: 'ok' }),
          worker('first', step(edit('src/a.txt', 'one', 'first')), { text: 'did first' }),
          worker('second', step(edit('a.txt', 'one', 'second')), { text: 'did second' }),
          worker('third', step(edit('src/b.txt', 'b', 'B')), { text: 'did third' }),
        ),
      },
    );
    const session = await t.session({ approval_mode: 'approve_all' });
    await t.run(session, 'go');
    expect(closings(t).map(({ applied }) => applied)).toEqual([false, false, false]);
    expect([readFile(t, 'a.txt'), readFile(t, 'b.txt')]).toEqual(['one\n', 'b\n']);
  });

  it('do not wait for a call that was refused, and keep what a failed one did', async () => {
    const t = await startInRepository(
      { 'a.txt': 'one\n' },
      {
        scenario: scenario(
          planner(step(joined('first'), joined('failing'), joined('', {}), joined('second')), { text: 'ok' }),
          worker('first', step(edit('a.txt', 'one', 'first')), { text: 'did first' }),
          worker('second', step(write('b.txt', 'b')), { text: 'did second' }),
          worker('failing', step(write('half.txt', 'half')), { error: { error_class: 'other' } }),
        ),
      },
    );
    await t.run(await t.session(), 'go');
    expect(fs.readdirSync(t.workspace).sort()).toEqual(['.git', 'a.txt', 'b.txt']);
    expect(readFile(t, 'a.txt')).toBe('first\n');
    expect(closings(t).map(({ applied }) => applied)).toEqual([false, true, true]);
  });

  it('from outside a turn are refused, since no message joins them', async () => {
    const t = await startInRepository({ 'a.txt': 'a\n' }, { scenario: scenario() });
    const { id } = await t.session();
    const body = SubmitDelegationBody.parse({ tier: 'fast', task: 'job', isolation: 'worktree', apply: 'together' });
    await expect(submitDelegation(t.engine, id, body)).rejects.toThrow(/"together" joins the calls/);
  });

  it('are written whole after a restart between the stored merge and its last file, by one merge', async () => {
    const options = {
      scenario: scenario(
        planner(step(joined('first'), joined('second')), { text: 'ok' }),
        worker('first', step(edit('a.txt', 'one', 'first')), { text: 'did first' }),
        worker('second', step(write('b.txt', 'b')), { text: 'did second' }),
      ),
    };
    const t = await startInRepository({ 'a.txt': 'one\n' }, options);
    const stopped = gate();
    const killed = gate();
    Object.assign(t.engine.worktrees, {
      // The process dies here, with the first of two files written.
      write: async () => {
        fs.writeFileSync(path.join(t.workspace, 'a.txt'), 'first\n');
        stopped.open();
        await killed.opened;
        throw new Error('killed');
      },
    });
    const session = await t.session();
    await t.submit(session, 'go');
    await stopped.opened;
    t.abandon();
    killed.open();
    const u = await startEngine({ ...options, config: FREE_TOOLS, folder: t.folder });
    const mergeAll = vi.spyOn(u.engine.worktrees, 'mergeAll');
    await recover(u.engine);
    await resumeAll(u.engine);
    await u.event('turn.completed', (e) => e.session_id === session.id);
    expect([readFile(u, 'a.txt'), readFile(u, 'b.txt')]).toEqual(['first\n', 'b']);
    expect(closings(u).map(({ applied }) => applied)).toEqual([true, true]);
    expect(mergeAll).not.toHaveBeenCalled();
    expect(leftovers(u)).toEqual([]);
  });

  it('name their conflicts after a crash between the refused merge and the end of the worker', async () => {
    const options = {
      scenario: scenario(
        planner(step(joined('first'), joined('second')), { text: 'ok' }),
        worker('first', step(edit('a.txt', 'one', 'first')), { text: 'did first' }),
        worker('second', step(edit('a.txt', 'one', 'second')), { text: 'did second' }),
      ),
    };
    const t = await startInRepository({ 'a.txt': 'one\n' }, options);
    const stopped = gate();
    const killed = gate();
    const { commit } = t.engine.journal;
    Object.assign(t.engine.journal, {
      // The process dies here, with the refusal stored and no delegation ended.
      commit: async (batch: Parameters<typeof commit>[0]) => {
        if (!batch.writes?.some(({ kind }) => kind === 'delegation.end')) return commit(batch);
        stopped.open();
        await killed.opened;
        throw new Error('killed');
      },
    });
    const session = await t.session();
    await t.submit(session, 'go');
    await stopped.opened;
    t.abandon();
    killed.open();
    // What was refused stays refused, though the merge would succeed by now.
    fs.writeFileSync(path.join(t.workspace, 'a.txt'), 'second\n');
    const u = await startEngine({ ...options, config: FREE_TOOLS, folder: t.folder });
    await recover(u.engine);
    await resumeAll(u.engine);
    await u.event('turn.completed', (e) => e.session_id === session.id);
    expect(readFile(u, 'a.txt')).toBe('second\n');
    const page = await u.engine.store.delegations.list(session.id, { recursive: false, after: null, limit: 9 });
    expect(page.rows.map(({ applied, conflicts }) => [applied, conflicts])).toEqual([
      [false, []],
      [false, ['a.txt']],
    ]);
    expect((await resultTexts(u, session))[1]).toMatch(/\n\[changes not applied, conflicts in: a.txt; continue this/);
    expect(leftovers(u)).toEqual([]);
  });

  it('wait for each other over a restart that interrupts one of them', async () => {
    const reached = gate();
    let runs = 0;
    const options = {
      tools: [
        tool('stop', {
          execute: async (_input, { signal }) => {
            runs += 1;
            reached.open();
            if (runs > 1) return toolText('ok');
            return new Promise<never>((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
          },
        }),
      ],
      scenario: scenario(
        planner(step(joined('first'), joined('second')), { text: 'ok' }),
        worker('first', step(edit('a.txt', 'one', 'first')), { text: 'did first' }),
        worker('second', step(write('b.txt', 'b')), step(call('stop', {})), { text: 'did second' }),
      ),
    };
    const t = await startInRepository({ 'a.txt': 'one\n' }, options);
    const session = await t.session();
    await t.submit(session, 'go');
    await reached.opened;
    const u = await restart(t, { ...options, config: FREE_TOOLS });
    await u.event('turn.completed', (e) => e.session_id === session.id);
    expect([readFile(u, 'a.txt'), readFile(u, 'b.txt')]).toEqual(['first\n', 'b']);
    expect(closings(u).map(({ applied }) => applied)).toEqual([true, true]);
    expect(git(u.workspace, 'for-each-ref', 'refs/metis').trim().split('\n')).toHaveLength(4);
    expect(leftovers(u)).toEqual([]);
  });
});
