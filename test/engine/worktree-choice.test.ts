// Which workers get a worktree: by the call, the definition of a named worker, or `auto` (20 §2).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { startEngine, type TestEngine } from '../support/engine.ts';
import { call, delegate, planner, scenario } from '../support/scenario.ts';
import { closings, FREE_TOOLS, git, readFile, resultTexts, startInRepository, step } from '../support/worktrees.ts';

const per_tool = { ...FREE_TOOLS.tool_confirmation.per_tool, coder: 'auto', reader: 'auto', alone: 'auto' } as const;
const auto = { tool_confirmation: { per_tool }, delegation: { isolation: 'auto' } } as const;
const named = (name: string) => call(name, { input: name });
const done = [{ match: { role: 'worker' }, times: 'inf', respond: { text: 'done' } }];
const readers = { allowed_tools: ['read_file', 'grep'] };
const CODER = 'instructions: code\ntier: fast\nsandboxes: {all: {path: src, mode: rw}}\n';
const READER = 'instructions: read\ntier: fast\nsandboxes: {all: {path: src}}\n';

const WRITTEN = { path: 'new.txt', content: 'new' };

async function runAndList(t: TestEngine, over: object = {}) {
  const session = await t.session(over);
  await t.run(session, 'go');
  const page = await t.engine.store.delegations.list(session.id, { recursive: false, after: null, limit: 99 });
  return page.rows.map(({ isolation, status }) => `${isolation} ${status}`);
}
const repeat = (count: number, isolation: string) => Array.from({ length: count }, () => `${isolation} completed`);

describe('isolation "auto"', () => {
  // Promise 20.15: With `auto` two writing workers of one message get worktrees; one alone, two readers, and any outside a repository are shared, and the result reports it.
  it('gives worktrees where two of one message may write, and only where they can be had', async () => {
    const plan = () =>
      scenario(
        done,
        planner(
          step(delegate('writer 1'), delegate('writer 2')),
          step(delegate('alone'), delegate('reader 0', readers)),
          step(delegate('reader 1', readers), delegate('reader 2', readers)),
          { text: 'ok' },
        ),
      );
    const inside = await startInRepository({ 'a.txt': 'a\n' }, { config: auto, scenario: plan() });
    expect(await runAndList(inside)).toEqual([...repeat(2, 'worktree'), ...repeat(4, 'shared')]);
    const outside = await startEngine({ config: auto, scenario: plan() });
    expect(await runAndList(outside)).toEqual(repeat(6, 'shared'));
    for (const t of [inside, outside]) {
      const started = t.events.flatMap((e) =>
        e.type === 'delegate.started' ? [(e.payload as { isolation: string }).isolation] : [],
      );
      expect(started).toEqual(closings(t).map(({ isolation }) => isolation));
    }
  });

  it('counts a named worker as one that writes where its own tools write', async () => {
    const plan = scenario(
      done,
      planner(step(named('coder'), delegate('writer')), step(named('reader'), delegate('writer')), { text: 'ok' }),
    );
    const files = { 'src/a.txt': 'a\n', '.metis/workers/coder.yaml': CODER, '.metis/workers/reader.yaml': READER };
    const config = { ...auto, workers: { planner_allow_workers: ['*'] } };
    const t = await startInRepository(files, { config, scenario: plan });
    expect(await runAndList(t)).toEqual([...repeat(2, 'worktree'), ...repeat(2, 'shared')]);
  });

  it('is shared in silence where the worktree cannot be made after all', async () => {
    const t = await startInRepository(
      { 'a.txt': 'a\n' },
      {
        config: auto,
        scenario: scenario(
          [{ match: { role: 'worker', call: 1 }, times: 'inf', respond: step(call('write_file', WRITTEN)) }],
          done,
          planner(step(delegate('writer 1'), delegate('writer 2', { allowed_tools: ['shell'] })), { text: 'ok' }),
        ),
      },
    );
    fs.writeFileSync(path.join(t.workspace, 'huge.bin'), '');
    fs.truncateSync(path.join(t.workspace, 'huge.bin'), 600 * 1024 * 1024);
    expect(await runAndList(t)).toEqual(repeat(2, 'shared'));
    expect(readFile(t, 'new.txt')).toBe('new');
    expect(git(t.workspace, 'for-each-ref', 'refs/metis')).toBe('');
  });
});

describe('the isolation of a named worker', () => {
  it('is that of its definition, whatever the configuration says', async () => {
    const files = {
      'src/a.txt': 'a\n',
      '.metis/workers/coder.yaml': `${CODER}isolation: shared\n`,
      '.metis/workers/alone.yaml': `${CODER}isolation: worktree\n`,
    };
    const plan = scenario(done, planner(step(named('alone'), named('coder')), { text: 'ok' }));
    const config = { ...auto, workers: { planner_allow_workers: ['*'] } };
    const t = await startInRepository(files, { config, scenario: plan });
    expect(await runAndList(t)).toEqual(['worktree completed', 'shared completed']);
  });

  it('fails the call where no worktree can be had, and no worker starts', async () => {
    const files = { '.metis/workers/alone.yaml': `${READER}isolation: worktree\n` };
    const config = { ...auto, workers: { planner_allow_workers: ['*'] } };
    const t = await startEngine({ config, files, scenario: scenario(planner(step(named('alone')), { text: 'ok' })) });
    const session = await t.session();
    await t.run(session, 'go');
    expect((await resultTexts(t, session))[0]).toMatch(/^isolation: the workspace lies in no git work tree/);
    expect(t.events.filter((e) => e.type === 'session.created')).toHaveLength(1);
  });
});
