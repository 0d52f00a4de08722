// Workers in worktrees: isolated, merged when they end, and what a conflict leaves (20 §2).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { purgeSession } from '#core/engine/fork-session.ts';
import { recover, resumeAll } from '#core/engine/lifecycle.ts';
import {
  applyKeptChanges,
  listKeptWorktrees,
  pruneWorktrees,
  readChangesDiff,
  sweepWorktrees,
} from '#core/engine/manage-worktrees.ts';
import type { SessionId } from '#protocol/ids.ts';
import { toolText } from '#protocol/tool.ts';
import { startEngine, tempFolder } from '../support/engine.ts';
import { gate, restart } from '../support/moments.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { tool } from '../support/tools.ts';
import {
  closings,
  FREE_TOOLS as config,
  edit,
  git,
  initRepository,
  isolated,
  leftovers,
  readFile as read,
  shell,
  startInRepository,
  step,
  resultTexts as texts,
  write,
} from '../support/worktrees.ts';

describe('a worker in a worktree', () => {
  it('works on a copy of the workspace as it is now, whose changes are merged when it succeeds', async () => {
    const inside = gate();
    const seen: string[] = [];
    const t = await startInRepository(
      { 'a.txt': 'one\ntwo\nthree\n', 'b.txt': 'b\n' },
      {
        tools: [
          tool('look', {
            async execute(_input, { workspace_path }) {
              seen.push(workspace_path);
              inside.open();
              return toolText('ok');
            },
          }),
        ],
        scenario: scenario(
          planner(step(isolated('job')), { text: 'ok' }),
          worker(
            'job',
            step(call('look', {}), shell('cat a.txt > seen.txt; pwd; git status --short')),
            step(edit('a.txt', 'three', '3')),
            { text: 'done' },
          ),
        ),
      },
    );
    fs.writeFileSync(path.join(t.workspace, 'a.txt'), 'one, dirty\ntwo\nthree\n');
    const session = await t.session();
    const index = fs.readFileSync(path.join(t.workspace, '.git/index'));
    await t.run(session, 'go');
    expect(seen[0]).toMatch(/\/worktrees\/sess_\w+$/);
    expect(read(t, 'a.txt')).toBe('one, dirty\ntwo\n3\n');
    expect(read(t, 'seen.txt')).toBe('one, dirty\ntwo\nthree\n');
    expect(fs.readFileSync(path.join(t.workspace, '.git/index'))).toEqual(index);
    expect(closings(t)).toMatchObject([
      {
        isolation: 'worktree',
        applied: true,
        conflicts: [],
        shell_used: true,
        changed_files: [
          { path: 'a.txt', change: 'edited' },
          { path: 'seen.txt', change: 'created' },
        ],
      },
    ]);
    expect(t.events.find((e) => e.type === 'delegate.started')?.payload).toMatchObject({ isolation: 'worktree' });
    expect((await texts(t, session))[0]).toBe('done\n[changed 2 files: a.txt, seen.txt]');
    expect(leftovers(t)).toEqual([]);
    const view = await t.engine.store.delegations.list(session.id, { recursive: false, after: null, limit: 9 });
    expect(view.rows[0]).toMatchObject({ isolation: 'worktree', applied: true });
    const record = await t.engine.store.sessions.record(view.rows[0]!.worker_session_id!);
    expect([record?.workspace_path, record?.tree_path]).toEqual([t.workspace, seen[0]]);
  });

  // Promise 20.3: Four workers in worktrees edit different functions of one file in a dirty repository; all are applied, and what is the user's in the repository stays byte-equal.
  it('edits the file that three others edit at the same time, and all are applied', async () => {
    const lines = ['f1() { 1 }', '', '', '', 'f2() { 2 }', '', '', '', 'f3() { 3 }', '', '', '', 'f4() { 4 }', ''];
    const names = [1, 2, 3, 4];
    const t = await startInRepository(
      { 'f.ts': lines.join('\n') },
      {
        env: { ...process.env, GIT_DIR: '/nowhere', GIT_INDEX_FILE: '/nowhere/index' },
        scenario: scenario(
          planner(step(...names.map((n) => isolated(`task ${n}`))), { text: 'ok' }),
          ...names.map((n) =>
            worker(`task ${n}`, step(edit('f.ts', `{ ${n} }`, `{ ${n}${n} }`)), { text: `did ${n}` }),
          ),
        ),
      },
    );
    const dirty = [...lines, 'dirty', ''].join('\n');
    fs.writeFileSync(path.join(t.workspace, 'f.ts'), dirty);
    fs.writeFileSync(path.join(t.workspace, 'untracked'), 'u');
    git(t.workspace, 'stash', '-q');
    git(t.workspace, 'stash', 'apply', '-q');
    const readState = () => [
      ...['index', 'HEAD', 'config', 'refs/stash'].map((f) =>
        fs.readFileSync(path.join(t.workspace, '.git', f), 'hex'),
      ),
      git(t.workspace, 'for-each-ref', 'refs/heads'),
      fs.readdirSync(path.join(t.workspace, '.git/hooks')),
    ];
    const before = readState();
    await t.run(await t.session(), 'go');
    expect(read(t, 'f.ts')).toBe(dirty.replace(/\{ (\d) \}/g, '{ $1$1 }'));
    expect(closings(t).map(({ applied }) => applied)).toEqual([true, true, true, true]);
    expect(readState()).toEqual(before);
    expect(leftovers(t)).toEqual([]);
  });

  // Promise 20.4: Of two workers that changed the same line the second changes nothing; the planner reads the paths, and git the result.
  it('that changed the same line as another leaves the workspace as it is, and the planner reads the conflict', async () => {
    const t = await startInRepository(
      { 'a.txt': 'one\n', 'b.txt': 'b\n' },
      {
        scenario: scenario(
          planner(step(isolated('first'), isolated('second')), { text: 'ok' }),
          worker('first', step(edit('a.txt', 'one', 'first')), { text: 'did first' }),
          worker('second', step(edit('a.txt', 'one', 'second'), edit('b.txt', 'b', 'B')), {
            text: 'did second',
            delay_ms: 1500,
          }),
        ),
      },
    );
    const session = await t.session();
    await t.run(session, 'go');
    expect([read(t, 'a.txt'), read(t, 'b.txt')]).toEqual(['first\n', 'b\n']);
    const second = closings(t).find(({ applied }) => !applied)!;
    expect(second).toMatchObject({ applied: false, conflicts: ['a.txt'] });
    expect((await texts(t, session))[1]).toMatch(
      /^did second\n\[changed 2 files: a.txt, b.txt.*\]\n\[changes not applied, conflicts in: a.txt; continue this worker to resolve them\]$/,
    );
    expect(git(t.workspace, 'show', `refs/metis/${second.worker_session_id}/result:a.txt`)).toBe('second\n');
    expect(leftovers(t)).toEqual([]);
  });

  // Promise 20.5: Failed and timed-out workers change nothing in the workspace; their refs exist.
  it('that fails or times out changes nothing, and what it did is kept as a ref', async () => {
    const t = await startInRepository(
      { 'a.txt': 'one\n' },
      {
        scenario: scenario(
          planner(step(isolated('failing'), isolated('slow', { timeout_seconds: 2 })), { text: 'ok' }),
          worker('failing', step(write('new.txt', 'half')), { error: { error_class: 'other' } }),
          worker('slow', step(edit('a.txt', 'one', 'slow')), { text: 'late', delay_ms: 60_000 }),
        ),
      },
    );
    await t.run(await t.session(), 'go');
    expect(fs.readdirSync(t.workspace).sort()).toEqual(['.git', 'a.txt']);
    expect(read(t, 'a.txt')).toBe('one\n');
    const ends = closings(t);
    expect(ends.map(({ applied }) => applied)).toEqual([false, false]);
    const kept = ends.map(({ worker_session_id: id }) =>
      git(t.workspace, 'ls-tree', '--name-only', `refs/metis/${id}/result`),
    );
    expect(kept.sort()).toEqual(['a.txt\n', 'a.txt\nnew.txt\n']);
    expect(leftovers(t)).toEqual([]);
  });

  // Promise 20.6: A workspace outside a repository is refused as invalid input, without a session.
  it('claude-code#70456, #61232: is refused with the reason where none can be made, and never shared in silence', async () => {
    const t = await startEngine({
      config,
      files: { 'a.txt': 'a' },
      scenario: scenario(planner(step(isolated('job'), delegate('other', { apply: 'never' })), { text: 'ok' })),
    });
    const session = await t.session();
    await t.run(session, 'go');
    const [first, second] = await texts(t, session);
    expect(first).toMatch(/^isolation: the workspace lies in no git work tree/);
    expect(second).toBe('apply: needs isolation "worktree"');
    expect(t.events.filter((e) => e.type === 'session.created')).toHaveLength(1);
  });

  // Promise 20.14: With `never` nothing is written; a person applies it later, once.
  it('never applies what it was told to keep', async () => {
    const t = await startInRepository(
      { 'a.txt': 'one\n' },
      {
        scenario: scenario(
          planner(step(isolated('job', { apply: 'never' })), { text: 'ok' }),
          worker('job', step(edit('a.txt', 'one', 'two')), { text: 'done' }),
        ),
      },
    );
    const session = await t.session();
    await t.run(session, 'go');
    expect(read(t, 'a.txt')).toBe('one\n');
    const id = closings(t)[0]!.worker_session_id as SessionId;
    expect((await texts(t, session))[0]).toBe(
      `done\n[changed 1 file: a.txt]\n[changes not applied; kept as refs/metis/${id}/result]`,
    );
    // A person applies it later: once, whatever was applied meanwhile.
    expect((await readChangesDiff(t.engine, id)).diff).toContain('-one\n+two\n');
    fs.writeFileSync(path.join(t.workspace, 'b.txt'), 'mine');
    const applied = { worker_session_id: id, applied: true, conflicts: [] };
    expect(await applyKeptChanges(t.engine, id)).toEqual(applied);
    expect(read(t, 'a.txt')).toBe('two\n');
    fs.writeFileSync(path.join(t.workspace, 'a.txt'), 'three\n');
    expect(await applyKeptChanges(t.engine, id)).toEqual(applied);
    expect([read(t, 'a.txt'), read(t, 'b.txt')]).toEqual(['three\n', 'mine']);
    const page = await t.engine.store.delegations.list(session.id, { recursive: false, after: null, limit: 9 });
    expect(page.rows[0]).toMatchObject({ applied: true, status: 'completed' });
    expect(leftovers(t)).toEqual([]);
    await purgeSession(t.engine, session.id);
    expect(git(t.workspace, 'for-each-ref', 'refs/metis')).toBe('');
  });

  it('whose merge conflicts may be applied once the workspace allows it', async () => {
    const t = await startInRepository(
      { 'a.txt': 'one\n' },
      {
        tools: [
          tool('save', {
            async execute() {
              fs.writeFileSync(path.join(t.workspace, 'a.txt'), 'saved\n');
              return toolText('ok');
            },
          }),
        ],
        scenario: scenario(
          planner(step(isolated('job')), { text: 'ok' }),
          worker('job', step(edit('a.txt', 'one', 'two')), step(call('save', {})), { text: 'done' }),
        ),
      },
    );
    await t.run(await t.session(), 'go');
    const id = closings(t)[0]!.worker_session_id as SessionId;
    expect(await applyKeptChanges(t.engine, id)).toMatchObject({ applied: false, conflicts: ['a.txt'] });
    expect(read(t, 'a.txt')).toBe('saved\n');
    fs.writeFileSync(path.join(t.workspace, 'a.txt'), 'one\n');
    expect(await applyKeptChanges(t.engine, id)).toMatchObject({ applied: true, conflicts: [] });
    expect(read(t, 'a.txt')).toBe('two\n');
  });

  // Promise 20.14: A file that is saved between merge and write is merged again with its save; the fourth time in a row nothing is applied.
  it('is merged again with a file that is saved while it is written, and at the fourth time left alone', async () => {
    const t = await startInRepository(
      { 'a.txt': '1\n2\n3\n4\n5\n6\n7\n', 'b.txt': 'b\n' },
      {
        scenario: scenario(
          planner(step(isolated('first')), step(isolated('second')), { text: 'ok' }),
          worker('first', step(edit('a.txt', '7', 'seven')), { text: 'done' }),
          worker('second', step(edit('a.txt', 'seven', '7'), edit('b.txt', 'b', 'B')), { text: 'done' }),
        ),
      },
    );
    const { write } = t.engine.worktrees;
    let saves = 0;
    const save = () => {
      saves += 1;
      fs.writeFileSync(path.join(t.workspace, 'a.txt'), read(t, 'a.txt').replace(/^.*/, `save ${saves}`));
    };
    Object.assign(t.engine.worktrees, {
      write: (...args: Parameters<typeof write>) => {
        if (saves === 0 || closings(t).length === 1) save();
        return write(...args);
      },
    });
    await t.run(await t.session(), 'go');
    expect(closings(t)).toMatchObject([
      { applied: true, conflicts: [] },
      { applied: false, conflicts: ['a.txt'] },
    ]);
    expect(saves).toBe(5);
    expect([read(t, 'a.txt'), read(t, 'b.txt')]).toEqual(['save 5\n2\n3\n4\n5\n6\nseven\n', 'b\n']);
  });

  // Promise 20.5: A process that dies between the stored merge and the last file leaves a workspace that equals the merged tree after the restart.
  it('is finished after a restart between the stored merge and its last file, and never merged twice', async () => {
    const options = {
      scenario: scenario(
        planner(step(isolated('job')), { text: 'ok' }),
        worker('job', step(edit('a.txt', 'one', 'two'), write('b.txt', 'new')), { text: 'done' }),
      ),
    };
    const t = await startInRepository({ 'a.txt': 'one\n' }, options);
    const stopped = gate();
    const killed = gate();
    Object.assign(t.engine.worktrees, {
      // The process dies here, with the first of two files written.
      write: async () => {
        fs.writeFileSync(path.join(t.workspace, 'a.txt'), 'two\n');
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
    const u = await startEngine({ ...options, config, folder: t.folder });
    let merges = 0;
    const { merge } = u.engine.worktrees;
    Object.assign(u.engine.worktrees, {
      merge: (worktree: Parameters<typeof merge>[0]) => {
        merges += 1;
        return merge(worktree);
      },
    });
    await recover(u.engine);
    expect(await sweepWorktrees(u.engine)).toEqual([]);
    await resumeAll(u.engine);
    await u.event('turn.completed', (e) => e.session_id === session.id);
    expect([read(u, 'a.txt'), read(u, 'b.txt'), merges]).toEqual(['two\n', 'new', 0]);
    expect(closings(u)).toMatchObject([{ applied: true }]);
    expect(leftovers(u)).toEqual([]);
  });

  it('leaves nothing where its process dies before it is stored; a worker that is open keeps its folder', async () => {
    const inside = gate();
    const options = {
      tools: [
        tool('stay', {
          execute() {
            inside.open();
            return new Promise<never>(() => {});
          },
        }),
      ],
      scenario: scenario(planner(step(isolated('job')), { text: 'ok' }), worker('job', step(call('stay', {})))),
    };
    const t = await startInRepository({ 'a.txt': 'one\n' }, options);
    await t.submit(await t.session(), 'go');
    await inside.opened;
    const id = t.engine.ids.session();
    await t.engine.worktrees.create(id, t.workspace);
    t.abandon();
    const u = await startEngine({ ...options, config, folder: t.folder });
    await recover(u.engine);
    expect(await sweepWorktrees(u.engine)).toEqual([id]);
    expect(leftovers(u)).toHaveLength(3);
    expect(git(u.workspace, 'for-each-ref', `refs/metis/${id}`)).toBe('');
  });

  it('of a worker in a worktree begins with what that worker left, and a shared one works in the same tree', async () => {
    const t = await startInRepository(
      { 'a.txt': 'one\n' },
      {
        config: { ...config, delegation: { delegate_depth: 2 } },
        scenario: scenario(
          planner(step(isolated('outer', { tier: 'balanced' })), { text: 'ok' }),
          worker('outer', step(edit('a.txt', 'one', 'outer')), step(delegate('shared inner'), isolated('own inner')), {
            text: 'outer done',
          }),
          worker('shared inner', step(write('shared.txt', 'shared')), { text: 'shared done' }),
          worker('own inner', step(shell('cp a.txt copy.txt')), { text: 'own done' }),
        ),
      },
    );
    await t.run(await t.session(), 'go');
    expect([read(t, 'a.txt'), read(t, 'shared.txt'), read(t, 'copy.txt')]).toEqual(['outer\n', 'shared', 'outer\n']);
    expect(
      closings(t)
        .map(({ isolation, applied }) => `${isolation} ${applied}`)
        .sort(),
    ).toEqual(['shared null', 'worktree true', 'worktree true']);
    expect(leftovers(t)).toEqual([]);
  });

  // An absolute path to the planner's workspace in a task must not lead the worker out of its tree.
  it('claude-code#56137, agentic-dev-team#1609: cannot reach the caller by an absolute path, and does not see what another has half done', async () => {
    const half = gate();
    const done = gate();
    const folder = tempFolder();
    const root = path.join(folder, 'workspace');
    initRepository(root, { 'a.txt': 'one\n' });
    const t = await startEngine({
      config,
      folder,
      tools: [
        tool('half', {
          async execute() {
            half.open();
            await done.opened;
            return toolText('ok');
          },
        }),
        tool('wait_half', { execute: () => half.opened.then(() => toolText('ok')) }),
        tool('finish', {
          async execute() {
            done.open();
            return toolText('ok');
          },
        }),
      ],
      scenario: scenario(
        planner(step(isolated('first'), isolated('second')), { text: 'ok' }),
        worker('first', step(edit('a.txt', 'one', 'half')), step(call('half', {})), { text: 'first done' }),
        worker(
          'second',
          step(call('wait_half', {})),
          step(shell('cat a.txt'), write('x', 'x')),
          step(
            call('read_file', { path: `${root}/a.txt` }),
            edit(`${root}/a.txt`, 'one', 'evil'),
            write(`${root}/evil`, 'evil'),
          ),
          step(call('finish', {})),
          { text: 'second done' },
        ),
      ),
    });
    await t.run(await t.session(), 'go');
    const readResults = (name: string) =>
      t.db.db.prepare('SELECT result_json FROM tool_calls WHERE name = ? ORDER BY rowid').all(name) as {
        result_json: string;
      }[];
    expect(readResults('shell')[0]?.result_json).toContain('one');
    expect(readResults('shell')[0]?.result_json).not.toContain('half');
    for (const name of ['read_file', 'edit_file', 'write_file'])
      expect(readResults(name).at(-1)?.result_json, name).toContain('escapes');
    expect(fs.readdirSync(root).sort()).toEqual(['.git', 'a.txt', 'x']);
    expect(fs.readFileSync(path.join(root, 'a.txt'), 'utf8')).toBe('half\n');
  });

  it('goes on in its worktree after a restart, and is applied once', async () => {
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
        planner(step(isolated('job')), { text: 'ok' }),
        worker('job', step(edit('a.txt', 'one', 'two')), step(call('stop', {})), { text: 'done' }),
      ),
    };
    const t = await startInRepository({ 'a.txt': 'one\n' }, options);
    const session = await t.session();
    await t.submit(session, 'go');
    await reached.opened;
    const u = await restart(t, { ...options, config });
    await u.event('turn.completed', (e) => e.session_id === session.id);
    expect(read(u, 'a.txt')).toBe('two\n');
    expect(closings(u)).toMatchObject([{ applied: true, changed_files: [{ path: 'a.txt', change: 'edited' }] }]);
    expect(leftovers(u)).toEqual([]);
  });

  it('is listed with its sizes and freed on request: applied changes alone, the others with `all`', async () => {
    const t = await startInRepository(
      { 'a.txt': 'one\n' },
      {
        scenario: scenario(
          planner(step(isolated('applied'), isolated('kept', { apply: 'never' }), isolated('idle')), { text: 'ok' }),
          worker('applied', step(edit('a.txt', 'one', 'two')), { text: 'done' }),
          worker('kept', step(write('b.txt', 'b'.repeat(5000))), { text: 'done' }),
          worker('idle', { text: 'done' }),
        ),
      },
    );
    const session = await t.session();
    await t.run(session, 'go');
    const view = await t.engine.store.delegations.list(session.id, { recursive: false, after: null, limit: 9 });
    const [applied, kept, idle] = view.rows.map((row) => row.worker_session_id!);
    const listed = await listKeptWorktrees(t.engine);
    expect(listed.map(({ record: _, ...one }) => one)).toEqual(
      // The sessions of one message come to be in any order.
      [idle, kept, applied]
        .toSorted()
        .toReversed()
        .map((id) => ({
          worker_session_id: id,
          workspace_path: t.workspace,
          open: false,
          applied: id !== kept,
          changed: id !== idle,
          folder_bytes: 0,
          ref_bytes: expect.any(Number),
          created_at: expect.any(String),
        })),
    );
    const pruned = await pruneWorktrees(t.engine, { all: false });
    expect([...pruned.worker_session_ids].sort()).toEqual([applied, idle].sort());
    expect(pruned.freed_bytes).toBeGreaterThan(0);
    await expect(readChangesDiff(t.engine, applied!)).rejects.toThrow(
      /nothing is kept of the worktree .*: it was freed/,
    );
    expect(git(t.workspace, 'for-each-ref', '--format=%(refname)', 'refs/metis').trim().split('\n')).toEqual([
      `refs/metis/${kept}/base`,
      `refs/metis/${kept}/result`,
    ]);
    expect(await pruneWorktrees(t.engine, { all: true })).toMatchObject({ worker_session_ids: [kept] });
    expect(git(t.workspace, 'for-each-ref', 'refs/metis')).toBe('');
    await expect(applyKeptChanges(t.engine, kept!)).rejects.toThrow(/it was freed/);
    expect(await listKeptWorktrees(t.engine)).toEqual([]);
  });
});
