// Workers whose changes the system does not let be written, and workspaces that are gone (20 §2.5, §2.7).
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import {
  applyKeptChanges,
  finishKeptChanges,
  listKeptWorktrees,
  pruneWorktrees,
  readChangedTexts,
  readChangesDiff,
} from '#core/engine/manage-worktrees.ts';
import { submitDelegation, waitForDelegation } from '#core/engine/submit-work.ts';
import { SubmitDelegationBody } from '#protocol/api/worker-bodies.ts';
import type { SessionId } from '#protocol/ids.ts';
import { toolText } from '#protocol/tool.ts';
import { startEngine, tempFolder } from '../support/engine.ts';
import { call, planner, scenario, worker } from '../support/scenario.ts';
import { tool } from '../support/tools.ts';
import {
  closings,
  edit,
  FREE_TOOLS,
  git,
  initRepository,
  isolated,
  leftovers,
  listLocks,
  makeKillableGit,
  readFile as read,
  shell,
  startInRepository,
  step,
  resultTexts as texts,
  write,
} from '../support/worktrees.ts';

const lock = (folder: string) =>
  process.getuid?.() === 0 ? execFileSync('chattr', ['+i', folder]) : fs.chmodSync(folder, 0o555);
const unlock = (folder: string) =>
  process.getuid?.() === 0 ? execFileSync('chattr', ['-i', folder]) : fs.chmodSync(folder, 0o755);
const files = { 'a.txt': 'a\n', 'z/z.txt': 'z\n', 'test.sh': 'grep -qx a2 a.txt\n' };
const test = { command: 'sh test.sh', timeout_seconds: 60, protect: [], paths: null };

describe('changes that cannot be written', () => {
  it.each([
    ['without a check', {}],
    ['with a check', { check: 'test' }],
  ])(
    '%s: nothing is left half written, the work is kept, and is applied once the obstacle is gone',
    async (_, over) => {
      const t = await startInRepository(files, {
        config: { ...FREE_TOOLS, checks: { test } },
        scenario: scenario(
          planner(step(isolated('job', over)), { text: 'ok' }),
          worker('job', step(shell('echo a2 > a.txt; echo z2 > z/z.txt')), { text: 'done' }),
        ),
      });
      const session = await t.session();
      const folder = path.join(t.workspace, 'z');
      lock(folder);
      try {
        await t.run(session, 'go');
        expect([read(t, 'a.txt'), read(t, 'z/z.txt')]).toEqual(['a\n', 'z\n']);
        expect(closings(t)).toMatchObject([{ applied: false, conflicts: [], changed_files: [{ path: 'a.txt' }, {}] }]);
        expect((await texts(t, session))[0]).toMatch(/z\/z\.txt cannot be written[\s\S]*; kept as refs\/metis\//);
        const id = closings(t)[0]!.worker_session_id as SessionId;
        expect(await t.engine.store.worktrees.get(id)).toMatchObject({ applied: false, merged_tree: null });
        await expect(applyKeptChanges(t.engine, id)).rejects.toMatchObject({
          code: 'validation_error',
          details: {
            issues: [{ path: 'worker_session_id', message: expect.stringContaining('z/z.txt cannot be written') }],
          },
        });
        expect(leftovers(t)).toEqual([]);
      } finally {
        unlock(folder);
      }
      const id = closings(t)[0]!.worker_session_id as SessionId;
      const both = await Promise.all([applyKeptChanges(t.engine, id), applyKeptChanges(t.engine, id)]);
      expect(both).toMatchObject([{ applied: true }, { applied: true }]);
      expect([read(t, 'a.txt'), read(t, 'z/z.txt')]).toEqual(['a2\n', 'z2\n']);
      expect([leftovers(t), listLocks(t.workspace)]).toEqual([[], []]);
    },
  );
});

it('changes that cannot be recorded are reported with the reason, kept, and applied once it is gone', async () => {
  const t = await startInRepository(files, {
    scenario: scenario(
      planner(step(isolated('job')), { text: 'ok' }),
      worker(
        'job',
        step(shell('echo new > a.txt; echo "*.u working-tree-encoding=UTF-16LE" > .gitattributes; printf abc > c.u')),
        {
          text: 'done',
        },
      ),
    ),
  });
  const session = await t.session();
  await t.run(session, 'go');
  const [closing] = closings(t);
  expect(closing).toMatchObject({ applied: false, conflicts: [], changed_files: [] });
  expect(closing!.apply_error).toContain('c.u');
  expect((await texts(t, session))[0]).toContain(
    `[changes not applied: ${closing!.apply_error!.replace(/\n/g, '?')}; kept in the folder of its worktree]`,
  );
  expect(read(t, 'a.txt')).toBe('a\n');
  const id = closing!.worker_session_id as SessionId;
  const { folder } = (await t.engine.store.worktrees.get(id))!;
  fs.rmSync(path.join(folder, 'c.u'));
  expect(await applyKeptChanges(t.engine, id)).toMatchObject({ applied: true, conflicts: [] });
  expect(read(t, 'a.txt')).toBe('new\n');
  expect(await t.engine.store.delegations.findByWorker(id)).toMatchObject({ applied: true, apply_error: null });
});

it('names that differ in their case alone are two, whatever the repository was configured for elsewhere', async () => {
  const t = await startInRepository(
    { readme: 'r\n', 'src/a.txt': 'a\n' },
    {
      scenario: scenario(
        planner(step(isolated('job')), { text: 'ok' }),
        worker(
          'job',
          step(shell('mv readme README; echo more >> README; mv src Src; echo n > Src/n.txt; echo F > f; echo f > F')),
          {
            text: 'done',
          },
        ),
      ),
    },
  );
  git(t.workspace, 'config', 'core.ignorecase', 'true');
  await t.run(await t.session(), 'go');
  expect(closings(t)).toMatchObject([{ applied: true, conflicts: [] }]);
  expect(fs.readdirSync(t.workspace).sort()).toEqual(['.git', 'F', 'README', 'Src', 'f']);
  expect([read(t, 'README'), read(t, 'Src/a.txt'), read(t, 'Src/n.txt')]).toEqual(['r\nmore\n', 'a\n', 'n\n']);
  expect([read(t, 'f'), read(t, 'F')]).toEqual(['F\n', 'f\n']);
});

describe('changes of what the workspace has in another form meanwhile', () => {
  const linkOut = (workspace: string) => {
    fs.renameSync(path.join(workspace, 'src'), path.join(workspace, '../moved'));
    fs.symlinkSync('../moved', path.join(workspace, 'src'));
  };
  const linkNowhere = (workspace: string) => {
    fs.rmSync(path.join(workspace, 'b.txt'));
    fs.symlinkSync('nowhere', path.join(workspace, 'b.txt'));
  };
  const linkNew = (workspace: string) => fs.symlinkSync('../elsewhere', path.join(workspace, 'new'));
  const makeFolder = (workspace: string) => {
    fs.rmSync(path.join(workspace, 'b.txt'));
    fs.mkdirSync(path.join(workspace, 'b.txt'));
    fs.writeFileSync(path.join(workspace, 'b.txt/in'), 'in\n');
  };
  async function changeMeanwhile(change: (workspace: string) => void) {
    const t = await startInRepository(
      { 'a.txt': 'a\n', 'b.txt': 'b\n', 'src/s.txt': 's\n' },
      {
        tools: [
          tool('change', {
            async execute() {
              change(t.workspace);
              return toolText('ok');
            },
          }),
        ],
        scenario: scenario(
          planner(step(isolated('job')), { text: 'ok' }),
          worker(
            'job',
            step(shell('mkdir new; for file in a.txt b.txt src/s.txt new/n.txt; do echo new > $file; done')),
            step(call('change', {})),
            {
              text: 'done',
            },
          ),
        ),
      },
    );
    const session = await t.session();
    await t.run(session, 'go');
    const closing = closings(t)[0]!;
    expect(closing).toMatchObject({ applied: false });
    expect(read(t, 'a.txt')).toBe('a\n');
    const { conflicts, apply_error, worker_session_id } = closing;
    return { t, conflicts, apply_error, id: worker_session_id as SessionId, text: (await texts(t, session))[0] };
  }

  it('a folder in the place of a file: they conflict in that file, and are kept', async () => {
    const { t, conflicts, id, text } = await changeMeanwhile(makeFolder);
    expect(conflicts).toEqual(['b.txt']);
    expect(text).toContain('conflicts in: b.txt; continue');
    expect(git(t.workspace, 'show', `refs/metis/${id}/result:b.txt`)).toBe('new\n');
  });

  it.each([
    ['a folder that a link leads out of', linkOut, 'src', 'src/s.txt'],
    ['a link without a target', linkNowhere, 'b.txt', 'b.txt'],
    ['a new link in the place of a new folder', linkNew, 'new', 'new/n.txt'],
  ])('%s: they are kept, with the reason, and applied once the link is gone', async (_, change, link, file) => {
    const { t, conflicts, apply_error, id, text } = await changeMeanwhile(change);
    expect(conflicts).toEqual([]);
    expect(apply_error).toContain(`${file} cannot be recorded: a link in the workspace leads out`);
    expect(text).toContain(`${file} cannot be recorded`);
    fs.rmSync(path.join(t.workspace, link));
    git(t.workspace, 'checkout', '-q', '--', '.');
    expect(await applyKeptChanges(t.engine, id)).toMatchObject({ applied: true, conflicts: [] });
    for (const name of ['a.txt', 'b.txt', 'src/s.txt', 'new/n.txt']) expect(read(t, name)).toBe('new\n');
  });

  it('a link that leads out from the beginning stays, whatever the worker makes of it', async () => {
    const folder = tempFolder();
    const root = path.join(folder, 'workspace');
    fs.mkdirSync(path.join(root, '.metis/workers'), { recursive: true });
    fs.writeFileSync(path.join(root, '.metis/workers/checker.yaml'), 'name: checker\ntier: fast\n');
    const links = { build: '../scratch', prompts: 'nowhere', agents: '../out' };
    for (const [name, target] of Object.entries(links)) fs.symlinkSync(target, path.join(root, name));
    initRepository(root, { 'a.txt': 'a\n' });
    const t = await startEngine({
      config: FREE_TOOLS,
      folder,
      scenario: scenario(
        planner(step(isolated('job')), { text: 'ok' }),
        worker(
          'job',
          step(
            shell(
              'rm build prompts agents; mkdir build prompts; echo x > build/f; echo x > prompts/checker.md; echo new > a.txt',
            ),
          ),
          { text: 'done' },
        ),
      ),
    });
    await t.run(await t.session(), 'go');
    expect(closings(t)).toMatchObject([{ applied: true, changed_files: [{ path: 'a.txt' }], apply_error: null }]);
    for (const [name, target] of Object.entries(links)) expect(fs.readlinkSync(path.join(root, name))).toBe(target);
  });
});

it('the changes of a worker below a worker are read after both have ended, and applied nowhere', async () => {
  const t = await startInRepository(files, {
    scenario: scenario(
      planner(step(isolated('outer', { tier: 'balanced' })), { text: 'ok' }),
      worker('outer', step(isolated('inner', { apply: 'never' })), { text: 'done' }),
      worker('inner', step(shell('echo a2 > a.txt')), { text: 'done' }),
    ),
    config: { ...FREE_TOOLS, delegation: { delegate_depth: 2 } },
  });
  await t.run(await t.session(), 'go');
  const ids = closings(t).map((one) => one.worker_session_id as SessionId);
  expect(ids).toHaveLength(2);
  const inner = closings(t).find((one) => one.changed_files.length === 1)!.worker_session_id as SessionId;
  expect((await readChangesDiff(t.engine, inner)).diff).toContain('+a2');
  expect((await readChangedTexts(t.engine, inner)).files).toMatchObject([{ path: 'a.txt', new_text: 'a2\n' }]);
  await expect(applyKeptChanges(t.engine, inner)).rejects.toMatchObject({ code: 'validation_error' });
  expect(read(t, 'a.txt')).toBe('a\n');
  expect(leftovers(t)).toEqual([]);
});

it('two requests that free the same worktrees report each once, and one whose refs are locked is still listed', async () => {
  const t = await startInRepository(files, {
    scenario: scenario(
      planner(step(isolated('one'), isolated('two')), { text: 'ok' }),
      worker('one', step(shell('echo 1 > one')), { text: 'done' }),
      worker('two', step(shell('echo 2 > two')), { text: 'done' }),
    ),
  });
  await t.run(await t.session(), 'go');
  const lockFile = path.join(t.workspace, '.git/packed-refs.lock');
  fs.writeFileSync(lockFile, '');
  expect(await pruneWorktrees(t.engine, { all: true })).toEqual({ worker_session_ids: [], freed_bytes: 0 });
  expect(await listKeptWorktrees(t.engine)).toHaveLength(2);
  fs.rmSync(lockFile);
  const [a, b] = await Promise.all([pruneWorktrees(t.engine, { all: true }), pruneWorktrees(t.engine, { all: true })]);
  expect([...a.worker_session_ids, ...b.worker_session_ids].sort()).toEqual(
    closings(t)
      .map((one) => one.worker_session_id)
      .sort(),
  );
  expect(git(t.workspace, 'for-each-ref', 'refs/metis')).toBe('');
  expect(leftovers(t)).toEqual([]);
});

it.each(['read-tree', 'checkout-index'])(
  'a git %s that is killed before a merge is written: it is refused, no start writes it, and it can be applied later',
  async (command) => {
    const killable = makeKillableGit(tempFolder());
    const t = await startInRepository(
      { 'a.txt': 'one\n' },
      {
        env: killable.env,
        scenario: scenario(
          planner(step(isolated('job')), { text: 'ok' }),
          worker('job', step(edit('a.txt', 'one', 'two'), write('new.txt', 'new')), { text: 'done' }),
        ),
      },
    );
    const { write: writeMerge } = t.engine.worktrees;
    Object.assign(t.engine.worktrees, {
      write: (...args: Parameters<typeof writeMerge>) => {
        killable.kill(command);
        return writeMerge(...args);
      },
    });
    await t.run(await t.session(), 'go');
    const [closed] = closings(t);
    expect(closed).toMatchObject({ applied: false, conflicts: [] });
    const id = closed!.worker_session_id as SessionId;
    expect(await t.engine.store.worktrees.get(id)).toMatchObject({ applied: false, merged_tree: null });
    await expect(applyKeptChanges(t.engine, id)).rejects.toThrow(`git ${command} was stopped by SIGKILL`);
    await finishKeptChanges(t.engine);
    expect([read(t, 'a.txt'), fs.existsSync(path.join(t.workspace, 'new.txt'))]).toEqual(['one\n', false]);
    Object.assign(t.engine.worktrees, { write: writeMerge });
    expect(await applyKeptChanges(t.engine, id)).toMatchObject({ applied: true, conflicts: [] });
    expect([read(t, 'a.txt'), read(t, 'new.txt')]).toEqual(['two\n', 'new']);
    expect([leftovers(t), listLocks(t.workspace)]).toEqual([[], []]);
  },
);

it.each(['update-index', 'diff-tree', 'merge-tree'])(
  'a git %s that is killed keeps the work, and a worker that continues begins with it',
  async (command) => {
    const killable = makeKillableGit(tempFolder());
    const t = await startInRepository(
      { 'a.txt': 'one\n' },
      {
        env: killable.env,
        scenario: scenario(
          worker('go on', { text: 'nothing to do' }),
          planner(step(isolated('job')), { text: 'ok' }),
          worker('job', step(edit('a.txt', 'one', 'two')), { text: 'done' }),
        ),
      },
    );
    const session = await t.session();
    const { recordResult } = t.engine.worktrees;
    Object.assign(t.engine.worktrees, {
      recordResult: (...args: Parameters<typeof recordResult>) => {
        // What is merged with an unchanged workspace needs no command.
        fs.writeFileSync(path.join(t.workspace, 'other.txt'), 'of a person\n');
        return recordResult(...args);
      },
    });
    killable.kill(command);
    await t.run(session, 'go');
    const id = closings(t)[0]!.worker_session_id;
    expect(closings(t)).toMatchObject([{ applied: false, conflicts: [] }]);
    expect(read(t, 'a.txt')).toBe('one\n');
    const body = SubmitDelegationBody.parse({ tier: 'fast', task: 'go on', continue: id });
    const { tool_use_id } = await submitDelegation(t.engine, session.id, body);
    await waitForDelegation(t.engine, tool_use_id, 30_000, new AbortController().signal);
    expect(closings(t)[1]).toMatchObject({ applied: true, changed_files: [{ path: 'a.txt', change: 'edited' }] });
    expect(read(t, 'a.txt')).toBe('two\n');
  },
);

it('a worker whose workspace nobody else changed takes at most 33 git commands', async () => {
  const folder = tempFolder();
  const count = `#!/bin/sh\necho "$*" >> ${folder}/commands\nPATH=\${PATH#*:} exec git "$@"\n`;
  fs.writeFileSync(path.join(folder, 'git'), count, { mode: 0o755 });
  const t = await startInRepository(
    { 'a.txt': 'one\n' },
    {
      env: { PATH: `${folder}:${process.env.PATH}`, HOME: folder },
      scenario: scenario(
        planner(step(isolated('job')), { text: 'ok' }),
        worker('job', step(edit('a.txt', 'one', 'two')), { text: 'done' }),
      ),
    },
  );
  await t.run(await t.session(), 'go');
  expect(closings(t)).toMatchObject([{ applied: true, changed_files: [{ path: 'a.txt', change: 'edited' }] }]);
  const commands = fs.readFileSync(path.join(folder, 'commands'), 'utf8').trimEnd().split('\n');
  expect(commands.filter((words) => words.includes('merge-tree'))).toEqual([]);
  expect(commands.length).toBeLessThanOrEqual(33);
});
