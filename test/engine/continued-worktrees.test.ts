// Following up in a worktree: a worker whose changes were not applied goes on from their merge (20 §3).
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { applyKeptChanges } from '#core/engine/manage-worktrees.ts';
import { submitDelegation, waitForDelegation } from '#core/engine/submit-work.ts';
import { SubmitDelegationBody } from '#protocol/api/worker-bodies.ts';
import type { SessionId } from '#protocol/ids.ts';
import type { Session } from '#protocol/session.ts';
import { toolText } from '#protocol/tool.ts';
import { type ConfigOver, startEngine, type TestEngine, tempFolder } from '../support/engine.ts';
import { restart } from '../support/moments.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { resultsOf, textOf } from '../support/stored.ts';
import { tool } from '../support/tools.ts';
import { startInRepository } from '../support/worktrees.ts';

const config = {
  tool_confirmation: { per_tool: { delegate: 'auto', write_file: 'auto', edit_file: 'auto', shell: 'auto' } },
} satisfies ConfigOver;
const write = (file: string, content: string) => call('write_file', { path: file, content });
const edit = (file: string, old: string, next: string) => call('edit_file', { path: file, old, new: next });
const look = (file: string) => call('read_file', { path: file });
const step = (...tool_calls: unknown[]) => ({ tool_calls });
const isolated = (task: string, over: object = {}) => delegate(task, { isolation: 'worktree', ...over });

function git(cwd: string, ...args: string[]): string {
  const env = { PATH: process.env.PATH, HOME: cwd, GIT_CONFIG_NOSYSTEM: '1' };
  const user = ['-c', 'user.name=a', '-c', 'user.email=a@example.com'];
  return execFileSync('git', [...user, ...args], { cwd, env, encoding: 'utf8', stdio: ['pipe', 'pipe', 'pipe'] });
}
const NEVER = new AbortController().signal;
const read = (t: TestEngine, file: string) => fs.readFileSync(path.join(t.workspace, file), 'utf8');
const delegations = async (t: TestEngine, session: Session) =>
  (await t.engine.store.delegations.list(session.id, { recursive: false, after: null, limit: 50 })).rows;

const FIRST = 'one\ntwo\nthree\n';
const MARKED = 'one\n<<<<<<< workspace\nTWO of a\n=======\nTWO of b\n>>>>>>> worker\nthree\n';

/** The tools that save a file of the workspace and that note what a worker has in its tree. */
function saves(at: () => TestEngine, seen: string[]) {
  return [
    tool('save', {
      async execute() {
        fs.writeFileSync(path.join(at().workspace, 'a.txt'), 'one\nTWO of a\nthree\n');
        return toolText('ok');
      },
    }),
    ...['a.txt', 'b.txt'].map((file) =>
      tool(`note_${file[0]}`, {
        async execute(_, { workspace_path }) {
          seen.push(fs.readFileSync(path.join(workspace_path, file), 'utf8'));
          return toolText('ok');
        },
      }),
    ),
  ];
}

/** A worker whose change of `a.txt` met another one, and that added `b.txt`. */
async function conflicted(rules: readonly unknown[], seen: string[] = []) {
  const folder = tempFolder();
  const root = path.join(folder, 'workspace');
  fs.mkdirSync(root);
  fs.writeFileSync(path.join(root, 'a.txt'), FIRST);
  fs.writeFileSync(path.join(root, 'gone.txt'), 'gone\n');
  git(root, 'init', '-q', '-b', 'main');
  git(root, 'add', '-A');
  git(root, 'commit', '-q', '-m', 'first');
  const tools = saves(() => t, seen);
  const t: TestEngine = await startEngine({
    config,
    folder,
    tools,
    // The task of the first worker is in the prompt of those that continue it.
    scenario: scenario(
      rules,
      planner(step(isolated('change')), { text: 'ok' }),
      worker('change', step(edit('a.txt', 'two', 'TWO of b'), write('b.txt', 'new\n'), call('save', {})), {
        text: 'changed',
      }),
    ),
  });
  const session = await t.session();
  await t.run(session, 'go');
  const id = (await t.event('delegate.completed')).payload.worker_session_id as SessionId;
  expect((await delegations(t, session))[0]).toMatchObject({ applied: false, conflicts: ['a.txt'] });
  return { t, session, id, tools };
}
async function goOn(t: TestEngine, session: Session, body: object) {
  const receipt = await submitDelegation(t.engine, session.id, SubmitDelegationBody.parse({ tier: 'fast', ...body }));
  await waitForDelegation(t.engine, receipt.tool_use_id, 30_000, NEVER);
  const found = (await delegations(t, session)).find((one) => one.worker_session_id === receipt.worker_session_id);
  return found!;
}

describe('a worker whose changes were not applied', () => {
  it('reads at its start which conflicts have no markers', async () => {
    const t = await startInRepository(
      { 'a.txt': 'a\n', 'b.txt': 'b\n', 'bin.dat': '\0one' },
      {
        tools: [
          tool('change', {
            async execute() {
              fs.rmSync(path.join(t.workspace, 'a.txt'));
              fs.writeFileSync(path.join(t.workspace, 'b.txt'), 'B\n');
              fs.writeFileSync(path.join(t.workspace, 'bin.dat'), '\0two');
              return toolText('ok');
            },
          }),
        ],
        scenario: scenario(
          worker('finish', { text: 'done' }),
          planner(step(isolated('change')), { text: 'ok' }),
          worker(
            'change',
            step(call('shell', { command: 'echo x > a.txt; echo x > b.txt; printf "\\\\0three" > bin.dat' })),
            step(call('change', {})),
            {
              text: 'changed',
            },
          ),
        ),
      },
    );
    const session = await t.session();
    await t.run(session, 'go');
    const [first] = await delegations(t, session);
    expect(first).toMatchObject({ applied: false, conflicts: ['a.txt', 'b.txt', 'bin.dat'] });
    const second = await goOn(t, session, { task: 'finish', continue: first!.worker_session_id });
    const history = await t.engine.store.messages.history(second.worker_session_id!);
    const texts = history.flatMap(({ content }) => content.map((block) => ('text' in block ? block.text : '')));
    expect(texts.filter((text) => text.includes('[without markers'))).toEqual([
      expect.stringContaining('conflict in: a.txt, bin.dat; one side'),
    ]);
    // Of the file with markers, which are left, the end reports the conflict.
    expect(second).toMatchObject({ applied: false, conflicts: ['b.txt'] });
  });

  // Promise 20.4: `continue` of a worker in conflict starts with the markers in its tree, and what it leaves is applied.
  it('goes on from the merge with its markers, where it worked, and what it leaves is applied', async () => {
    const seen: string[] = [];
    const resolve = step(look('a.txt'), call('note_a', {}), call('note_b', {}));
    const { t, session, id } = await conflicted(
      worker('resolve', resolve, step(write('a.txt', 'one\nTWO of both\nthree\n')), { text: 'resolved' }),
      seen,
    );
    expect(read(t, 'a.txt')).toBe('one\nTWO of a\nthree\n');
    // Without a word about isolation.
    const second = await goOn(t, session, { task: 'resolve', continue: id });
    expect(seen).toEqual([MARKED, 'new\n']);
    expect(second).toMatchObject({ status: 'completed', isolation: 'worktree', applied: true, conflicts: [] });
    expect(second.changed_files).toEqual([
      { path: 'a.txt', change: 'edited' },
      { path: 'b.txt', change: 'created' },
    ]);
    expect([read(t, 'a.txt'), read(t, 'b.txt')]).toEqual(['one\nTWO of both\nthree\n', 'new\n']);
    expect(git(t.workspace, 'status', '--porcelain')).toBe(' M a.txt\n?? b.txt\n');
  });

  it('is not applied while a marker is left in a file that had one, whoever continues it and however late', async () => {
    const { t, session, id } = await conflicted([
      ...worker('look on', step(look('a.txt')), { text: 'hm' }),
      ...worker('half', step(edit('a.txt', '<<<<<<< workspace\n', '')), { text: 'half done' }),
      ...worker('all of it', step(look('a.txt')), step(write('a.txt', 'one\nboth\nthree\n')), { text: 'done' }),
    ]);
    const second = await goOn(t, session, { task: 'look on', continue: id });
    expect(second).toMatchObject({ status: 'completed', applied: false, conflicts: ['a.txt'] });
    // The caller's workspace is as the second worker met it: its result merges cleanly, markers and all.
    const third = await goOn(t, session, { task: 'half', continue: second.worker_session_id });
    expect(third).toMatchObject({ status: 'completed', applied: false, conflicts: ['a.txt'] });
    expect(await applyKeptChanges(t.engine, third.worker_session_id!)).toMatchObject({ applied: false });
    expect(read(t, 'a.txt')).toBe('one\nTWO of a\nthree\n');
    const last = await goOn(t, session, { task: 'all of it', continue: third.worker_session_id });
    expect(last).toMatchObject({ applied: true, conflicts: [] });
    expect([read(t, 'a.txt'), read(t, 'b.txt')]).toEqual(['one\nboth\nthree\n', 'new\n']);
  });

  it('may leave lines like markers that the workspace had before, and files of its own with them', async () => {
    const { t, session, id } = await conflicted(
      worker(
        'resolve',
        step(look('a.txt')),
        step(write('a.txt', FIRST), write('how-to.md', 'Look for\n<<<<<<< workspace\n')),
        {
          text: 'ok',
        },
      ),
    );
    fs.writeFileSync(path.join(t.workspace, 'notes.md'), 'Title\n=======\n');
    expect(await goOn(t, session, { task: 'resolve', continue: id })).toMatchObject({ applied: true });
    expect(read(t, 'how-to.md')).toContain('<<<<<<<');
  });

  it('goes on from nothing of it in a shared workspace, and where it was applied since', async () => {
    const seen: string[] = [];
    const note = worker('look', step(call('note_a', {})), { text: 'seen' });
    const { t, session, id } = await conflicted([...note, ...note], seen);
    expect(await goOn(t, session, { task: 'look', continue: id, isolation: 'shared' })).toMatchObject({
      applied: null,
    });
    fs.writeFileSync(path.join(t.workspace, 'a.txt'), FIRST);
    expect(await applyKeptChanges(t.engine, id)).toMatchObject({ applied: true });
    expect(await goOn(t, session, { task: 'look', continue: id })).toMatchObject({ applied: true, changed_files: [] });
    expect(seen).toEqual(['one\nTWO of a\nthree\n', 'one\nTWO of b\nthree\n']);
  });

  it('is read of by its planner, which continues it, also when the server dies in the middle of it', async () => {
    const { t, session, id, tools } = await conflicted([
      { match: { role: 'planner', turn: 2, call: 1 }, respond: step(delegate('resolve', { continue: 'ID' })) },
    ]);
    expect(textOf((await resultsOf(t, session.id))[0]!)).toContain(
      '[changes not applied, conflicts in: a.txt; continue this worker to resolve them]',
    );
    const again = step(delegate('resolve', { continue: id }));
    const second = await restart(t, {
      config,
      tools,
      scenario: scenario([
        { match: { role: 'planner' }, respond: again },
        { match: { role: 'worker' }, respond: step(write('c.txt', 'c\n')) },
        { match: { role: 'worker' }, respond: { hang: true } },
      ]),
    });
    const turnId = await second.submit(session, 'go on');
    await second.event('tool.completed', (e) => e.session_id !== session.id);
    const third = await restart(second, {
      config,
      tools,
      scenario: scenario([
        { match: { role: 'worker' }, respond: step(edit('a.txt', MARKED.slice(4, -6), 'both\n')) },
        { match: { role: 'worker' }, respond: { text: 'resolved' } },
        { match: { role: 'planner' }, respond: { text: 'done' } },
      ]),
    });
    expect(await third.ended(turnId)).toMatchObject({ status: 'completed', output: 'done' });
    expect((await delegations(third, session)).at(-1)).toMatchObject({ applied: true, conflicts: [] });
    expect([read(third, 'a.txt'), read(third, 'c.txt')]).toEqual(['one\nboth\nthree\n', 'c\n']);
  });
});
