// What worktrees are given: by the server's configuration, or by a file of the workspace that a person has trusted (20 §2.2, §11).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { listTrust, trustFile } from '#core/engine/manage-trust.ts';
import type { TestEngine } from '../support/engine.ts';
import { delegate, planner, scenario } from '../support/scenario.ts';
import {
  closings,
  FREE_TOOLS,
  git,
  isolated,
  leftovers,
  readFile,
  resultTexts,
  shell,
  startInRepository,
  step,
} from '../support/worktrees.ts';

const FILE = '.metis/server.yaml';
const job = (...calls: unknown[]) =>
  scenario(planner(step(...(calls.length > 0 ? calls : [isolated('job')])), { text: 'ok' }), [
    { match: { role: 'worker', call: 1 }, times: 'inf', respond: step(shell('cat .env made; echo $TMPDIR > where')) },
    { match: { role: 'worker' }, times: 'inf', respond: { text: 'done' } },
  ]);
const shellResults = (t: TestEngine) =>
  (t.db.db.prepare("SELECT result_json FROM tool_calls WHERE name = 'shell'").all() as { result_json: string }[]).map(
    ({ result_json }) => result_json,
  );
const run = async (t: TestEngine) => {
  const session = await t.session();
  await t.run(session, 'go');
  return resultTexts(t, session);
};

describe('a worktree', () => {
  it('gets copies of ignored files, and what the setup command makes in it once', async () => {
    const t = await startInRepository(
      { 'a.txt': 'a\n', '.gitignore': '.env\nmade\n' },
      {
        config: {
          ...FREE_TOOLS,
          delegation: { worktree_copy: ['.env'], worktree_setup: 'cat .env > made; echo "$PWD $TMPDIR" >> made' },
        },
        scenario: job(),
      },
    );
    fs.writeFileSync(path.join(t.workspace, '.env'), 'SECRET=1\n');
    await run(t);
    const [printed] = shellResults(t);
    expect(printed).toMatch(/SECRET=1\\nSECRET=1\\n\S*\/worktrees\/sess_\w+ \S*\/tmp\/sess_\w+\\n/);
    expect(fs.readdirSync(t.workspace).sort()).toEqual(['.env', '.git', '.gitignore', 'a.txt', 'where']);
    expect(leftovers(t)).toEqual([]);
  });

  it('whose setup command fails fails its delegation as worker_error, under auto too, and nothing is left', async () => {
    for (const isolation of ['worktree', 'auto'] as const) {
      const t = await startInRepository(
        { 'a.txt': 'a\n' },
        {
          config: { ...FREE_TOOLS, delegation: { isolation, worktree_setup: 'echo no network; exit 3' } },
          scenario: job(delegate('one'), delegate('two')),
        },
      );
      const texts = await run(t);
      for (const text of texts)
        expect(text).toMatch(/worker_error: delegation.worktree_setup failed: exit code 3\\nno network/);
      expect(closings(t)).toMatchObject([{ failure_mode: 'worker_error' }, { failure_mode: 'worker_error' }]);
      expect(leftovers(t)).toEqual([]);
      expect(git(t.workspace, 'for-each-ref', 'refs/metis')).toBe('');
      expect(fs.readdirSync(path.join(t.folder, 'tmp'))).toEqual([]);
    }
  });

  it("takes the keys of the workspace's file once a person has trusted its bytes, and not after a changed byte", async () => {
    const text = 'delegation:\n  worktree_copy: [.env]\n  worktree_setup: "echo set > made"\n';
    const files = { 'a.txt': 'a\n', '.gitignore': '.env\nmade\nwhere\n', [FILE]: text };
    const t = await startInRepository(files, {
      config: FREE_TOOLS,
      scenario: scenario(
        [
          { match: { role: 'planner', call: 1 }, times: 'inf', respond: step(isolated('job')) },
          { match: { role: 'planner', call: 2 }, times: 'inf', respond: { text: 'ok' } },
        ],
        job().rules as never,
      ),
    });
    fs.writeFileSync(path.join(t.workspace, '.env'), 'SECRET=1\n');
    const untrusted = `isolation: ${FILE} is not trusted. Read it, then run: metis trust ${FILE}`;
    expect(await run(t)).toEqual([untrusted]);
    expect(t.events.filter((e) => e.type === 'session.created')).toHaveLength(1);
    const [listed] = await listTrust(t.engine, t.workspace, null);
    expect(listed).toMatchObject({
      path: FILE,
      trusted: false,
      widens: [
        'worktrees get copies of ignored files: .env',
        'each worktree runs `echo set > made` without an approval',
      ],
    });
    await trustFile(t.engine, { workspace_path: t.workspace, path: FILE, sha256: listed!.sha256! });
    await run(t);
    expect(shellResults(t)[0]).toContain('SECRET=1\\nset\\n');
    fs.appendFileSync(path.join(t.workspace, FILE), '# one byte more\n');
    expect((await run(t))[0]).toBe(
      `isolation: ${FILE} has changed since it was trusted. Read it, then run: metis trust ${FILE}`,
    );
  });

  it('is refused where the file is not valid, and does without a file that requests what the server does', async () => {
    const files = { 'a.txt': 'a\n', [FILE]: 'delegation:\n  worktree_links: [../up]\n' };
    const t = await startInRepository(files, { config: FREE_TOOLS, scenario: job() });
    expect((await run(t))[0]).toMatch(
      /^isolation: .metis\/server.yaml is not valid: delegation.worktree_links.*must be a path/,
    );
    const same = 'server: {port: 1}\ndelegation:\n  worktree_links: [node_modules, .venv]\n  max_depth: 3\n';
    const u = await startInRepository({ [FILE]: same }, { config: FREE_TOOLS, scenario: job() });
    expect((await run(u))[0]).toMatch(/^done/);
    expect(readFile(u, 'where')).toMatch(/tmp\/sess_/);
  });
});
