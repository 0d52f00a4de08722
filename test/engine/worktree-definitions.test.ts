// What a worker in a worktree makes of the files that workers are made of: none of it reaches the workspace (13 §3.4, 20 §2.3).
import fs from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { startEngine, tempFolder } from '../support/engine.ts';
import { planner, scenario, worker } from '../support/scenario.ts';
import { closings, FREE_TOOLS, initRepository, isolated, readFile as read, shell, step } from '../support/worktrees.ts';

const CHECKER = 'name: checker\ndescription: Checks.\ntier: fast\n';

/** A worker that runs one command and changes a.txt, in a workspace with a named worker. */
async function runWorker(files: Readonly<Record<string, string>>, command: string) {
  const folder = tempFolder();
  const root = path.join(folder, 'workspace');
  fs.mkdirSync(path.join(root, '.metis/workers'), { recursive: true });
  fs.writeFileSync(path.join(root, '.metis/workers/checker.yaml'), CHECKER);
  initRepository(root, { 'a.txt': 'a\n', ...files });
  const t = await startEngine({
    config: FREE_TOOLS,
    folder,
    scenario: scenario(
      planner(step(isolated('job')), { text: 'ok' }),
      worker('job', step(shell(`${command}; echo new > a.txt`)), { text: 'done' }),
    ),
  });
  await t.run(await t.session(), 'go');
  expect(closings(t)).toMatchObject([{ applied: true }]);
  expect(read(t, 'a.txt')).toBe('new\n');
  return { t, paths: closings(t)[0]!.changed_files.map((file) => file.path) };
}

it.each([
  [
    'a link in the place of the folder',
    'rm -r prompts; mkdir mine; echo evil > mine/checker.md; ln -s mine prompts',
    ['a.txt', 'mine/checker.md'],
  ],
  ['a file in the place of the folder', 'rm -r prompts; echo evil > prompts', ['a.txt']],
  [
    'a folder in the place of the prompt',
    'rm prompts/checker.md; mkdir prompts/checker.md; echo evil > prompts/checker.md/f',
    ['a.txt'],
  ],
])('a prompt stays as it is: %s', async (_, command, changed) => {
  const { t, paths } = await runWorker({ 'prompts/checker.md': 'good\n' }, command);
  expect(paths).toEqual(changed);
  expect(fs.lstatSync(path.join(t.workspace, 'prompts')).isDirectory()).toBe(true);
  expect(read(t, 'prompts/checker.md')).toBe('good\n');
});

it('a file beside a protected one stays with it where their folder is replaced', async () => {
  const { t, paths } = await runWorker(
    { 'prompts/checker.md': 'good\n', 'prompts/notes.md': 'notes\n' },
    'rm -r prompts; echo evil > prompts',
  );
  expect(paths).toEqual(['a.txt']);
  expect([read(t, 'prompts/checker.md'), read(t, 'prompts/notes.md')]).toEqual(['good\n', 'notes\n']);
});

it('a definition stays as it is where a worker makes a folder of it', async () => {
  const { t, paths } = await runWorker(
    { 'workers/other.yaml': CHECKER.replace('checker', 'other') },
    'rm workers/other.yaml; mkdir workers/other.yaml; echo evil > workers/other.yaml/f',
  );
  expect(paths).toEqual(['a.txt']);
  expect(read(t, 'workers/other.yaml')).toContain('other');
});

it.each(['workers', 'prompts', 'schemas', '.claude', 'Prompts'])(
  'a new link named %s reaches no workspace',
  async (name) => {
    const { t, paths } = await runWorker(
      {},
      `mkdir mine; echo evil > mine/checker.md; ln -s mine ${name}; ln -s mine fine`,
    );
    expect(paths).toEqual(['a.txt', 'fine', 'mine/checker.md']);
    expect(fs.existsSync(path.join(t.workspace, name))).toBe(false);
  },
);
