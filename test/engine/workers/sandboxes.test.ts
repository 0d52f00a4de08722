// What a worker with sandboxes can reach, and what no trick reaches (13 §4, §3.4).
import fs from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { silentLogger } from '#core/ports/logger.ts';
import type { PathUse, WorkspaceFiles } from '#core/ports/workspace.ts';
import { ToolError } from '#protocol/tool.ts';
import { SandboxSchema } from '#protocol/worker-definition.ts';
import { createWorkerLibrary } from '#tools/workspace/worker-files.ts';
import { createWorkspaces } from '#tools/workspace/workspaces.ts';
import { tempFolder } from '../../support/engine.ts';
import { type Parsed, startServer } from '../../support/http.ts';
import { call, planner, scenario, worker } from '../../support/scenario.ts';

const BOXES = {
  input: { name: 'input', path: 'data', allowed_suffixes: ['.md', '.txt'], max_bytes: 100 },
  out: { name: 'out', path: 'results', mode: 'rw', max_bytes: 50 },
};

let base: string;
let root: string;
let files: WorkspaceFiles;
beforeEach(async () => {
  base = tempFolder();
  root = path.join(base, 'workspace');
  for (const folder of ['workspace/data/deep', 'workspace/results', 'workspace/other', 'outside'])
    fs.mkdirSync(path.join(base, folder), { recursive: true });
  fs.writeFileSync(path.join(root, 'data/a.md'), 'inside');
  fs.writeFileSync(path.join(root, 'data/b.exe'), 'program');
  fs.writeFileSync(path.join(root, 'other/x.md'), 'other');
  fs.writeFileSync(path.join(base, 'outside/secret.md'), 'secret');
  const library = createWorkerLibrary(silentLogger);
  const workspaces = createWorkspaces({ globalRoutingPath: '', globalSkillsPath: '', library, log: silentLogger });
  files = workspaces.sandboxes(
    root,
    Object.values(BOXES).map((box) => SandboxSchema.parse(box)),
  );
});
let before: string;
const disk = () =>
  fs
    .readdirSync(base, { recursive: true, withFileTypes: true })
    .map((entry) => {
      const name = path.join(entry.parentPath, entry.name);
      return `${name}: ${entry.isFile() ? fs.readFileSync(name, 'utf8') : entry.isSymbolicLink() ? fs.readlinkSync(name) : ''}`;
    })
    .sort()
    .join('\n');
const refusal = async (given: string, use: PathUse) => {
  try {
    await files.resolve(given, use);
    return null;
  } catch (error) {
    if (!(error instanceof ToolError)) throw error;
    return `${error.error_class} ${error.message}`;
  }
};

describe('a path that leads out of its sandbox', () => {
  beforeEach(() => {
    fs.symlinkSync(path.join(base, 'outside/secret.md'), path.join(root, 'data/link.md'));
    fs.symlinkSync('../other/x.md', path.join(root, 'data/sideways.md'));
    fs.symlinkSync(path.join(base, 'outside'), path.join(root, 'data/dir'));
    fs.symlinkSync(path.join(base, 'outside/none.md'), path.join(root, 'results/dangling.md'));
    fs.symlinkSync('../results', path.join(root, 'data/loop'));
    fs.symlinkSync('b.exe', path.join(root, 'data/innocent.md'));
    before = disk();
  });
  afterEach(() => expect(disk()).toBe(before));

  // Promise 13.5: no path leaves a sandbox: dots, links, other spellings, absolute ones; the error names the sandboxes and no other folder.
  it.each([
    'input/../other/x.md',
    'input/link.md',
    'input/sideways.md',
    'input/dir/secret.md',
    'input/deep/../../other/x.md',
    'input/..\\other\\x.md',
    '/etc/passwd',
    '~/x.md',
    'C:/x.md',
    'c:\\x.md',
    '',
    'input/\0a.md',
    '//etc/passwd',
  ])('%j is refused as an escape, which names the sandboxes and no other folder', async (given) => {
    const told = await refusal(given, 'read');
    expect(told).toMatch(/^permission_denied path_escape: .*input, out$/);
    expect(told).not.toContain(base);
  });

  it.each(['other/x.md', 'INPUT/a.md', 'ｉｎｐｕｔ/a.md', 'data/a.md', '.', 'in\u200bput/a.md', '../data/a.md'])(
    '%j names no sandbox',
    async (given) => {
      expect(await refusal(given, 'read')).toMatch(/^permission_denied (unknown_sandbox|path_escape): .*input, out$/);
    },
  );

  // Promise 13.6: a suffix holds for the name and for what it leads to.
  it.each([
    'input/b.exe',
    'input/innocent.md',
    'input/a.md.exe',
    'input/.md',
    'input/a.ｍｄ',
    'input/a.md\u200b',
    'input/deep',
  ])('%j has not one of the suffixes, or hides another', async (given) => {
    expect(await refusal(given, 'read')).toMatch(/^permission_denied suffix_not_allowed: 'input' holds \.md, \.txt$/);
  });

  // Promise 13.6: a dangling link creates nothing outside; what is only read is not written.
  it('is not created through a dangling link, and nothing is written where only reading is allowed', async () => {
    expect(await refusal('out/dangling.md', 'write')).toMatch(/path_escape/);
    expect(await refusal('input/new.md', 'write')).toBe(
      "permission_denied read_only_sandbox: 'input' is only read; write to out",
    );
    expect(await refusal('input/loop/new.md', 'write')).toMatch(/read_only_sandbox/);
  });

  it('is not listed either: escaping links and other suffixes are left out, folders of links not entered', async () => {
    const top = await files.resolve('input', 'list');
    const shown: string[] = [];
    for (const entry of await files.entries(top)) if ((await files.below(top, entry)) !== null) shown.push(entry.name);
    // A link within the sandbox to what it may not hold is no way to see that it is there.
    expect(shown.sort()).toEqual(['a.md', 'deep']);
  });
});

describe('a path in its sandbox', () => {
  // Promise 13.5: a path may go up inside its sandbox.
  it('may go up inside it, and is shown from its sandbox on', async () => {
    expect(await files.resolve('input/deep/../a.md', 'read')).toMatchObject({
      given: 'input/a.md',
      relative: 'data/a.md',
    });
    expect(await files.resolve('./input//a.md', 'read')).toMatchObject({ given: 'input/a.md' });
    expect(await files.resolve('input\\a.md', 'read')).toMatchObject({ given: 'input/a.md' });
    expect((await files.entries(await files.resolve('.', 'list'))).map(({ name }) => name)).toEqual(['input', 'out']);
  });

  // Promise 13.6: suffixes and sizes hold, by whatever name.
  it('holds files up to its size, for reading and for writing', async () => {
    fs.writeFileSync(path.join(root, 'data/large.md'), 'x'.repeat(101));
    const large = await files.resolve('input/large.md', 'read');
    await expect(files.readFile(large)).rejects.toThrow(
      "file_too_large: input/large.md has 101 bytes, at most 100 are allowed in 'input'",
    );
    await expect(async () => {
      for await (const _ of files.chunks(large));
    }).rejects.toThrow(/^file_too_large/);
    const made = await files.resolve('out/sub/x.md', 'write');
    await expect(files.write(made, 'x'.repeat(51))).rejects.toThrow(/^file_too_large/);
    expect(fs.readdirSync(path.join(root, 'results'))).toEqual([]);
    await files.write(made, 'x'.repeat(50));
    expect(fs.readFileSync(path.join(root, 'results/sub/x.md'), 'utf8')).toHaveLength(50);
  });

  // Promise 13.6: a file swapped for a link between check and use is refused.
  it('that is swapped for a link between its check and its use is refused', async () => {
    const reading = await files.resolve('input/a.md', 'read');
    fs.rmSync(path.join(root, 'data/a.md'));
    fs.symlinkSync(path.join(base, 'outside/secret.md'), path.join(root, 'data/a.md'));
    await expect(files.readFile(reading)).rejects.toThrow(/escapes/);
    const writing = await files.resolve('out/sub/b.md', 'write');
    fs.symlinkSync(path.join(base, 'outside'), path.join(root, 'results/sub'));
    await expect(files.write(writing, 'x')).rejects.toThrow(/escapes/);
    expect(fs.readdirSync(path.join(base, 'outside'))).toEqual(['secret.md']);
  });
});

const DEFINITION =
  'instructions: x\nsandboxes:\n  input: { path: data, allowed_suffixes: [.md], max_bytes: 1000 }\n  out: { path: results, mode: rw }\n';
const config = (rest: object = {}) => ({
  workers: { planner_allow_workers: ['*'], allow_approve_all: true, ...rest } as never,
});
const of = (t: { events: { type: string; payload: unknown }[] }, type: string) =>
  t.events.filter((e) => e.type === type).map((e) => e.payload as Parsed);

describe('the file tools of a worker', () => {
  it('work on its sandboxes alone and show its paths', async () => {
    const t = await startServer({
      config: config(),
      files: { 'workers/w.yaml': DEFINITION, 'data/a.md': 'needle', 'data/b.exe': 'needle', 'other.md': 'needle' },
      scenario: scenario(
        planner({ tool_calls: [call('w', { input: 'task' })] }, { text: 'end' }),
        worker(
          'task',
          {
            tool_calls: [
              call('list_files', {}),
              call('list_files', { path: 'input' }),
              call('grep', { pattern: 'needle' }),
              call('read_file', { path: 'input/a.md' }),
              call('write_file', { path: 'out/b.txt', content: 'made' }),
              call('read_file', { path: 'other.md' }),
              call('write_file', { path: 'input/c.md', content: 'no' }),
            ],
          },
          { text: 'ok' },
        ),
      ),
    });
    await t.run(await t.session({ approval_mode: 'approve_all' }), 'go');
    const child = (await t.call('GET', '/sessions?include_workers=true')).body.sessions.find(
      (s: Parsed) => s.is_worker,
    );
    const { messages } = (await t.call('GET', `/sessions/${child.id}/messages`)).body;
    const texts = messages.filter((m: Parsed) => m.role === 'tool').map((m: Parsed) => m.content[0].content[0].text);
    expect(texts).toEqual([
      'input/\nout/',
      'a.md',
      '1 match(es)\ninput/a.md:1: needle',
      'needle',
      'Wrote 4 bytes to out/b.txt',
      "unknown_sandbox: 'other.md' must begin with input, out",
      "read_only_sandbox: 'input' is only read; write to out",
    ]);
    expect(fs.readFileSync(path.join(t.workspace, 'results/b.txt'), 'utf8')).toBe('made');
    expect(fs.existsSync(path.join(t.workspace, 'data/c.md'))).toBe(false);
    expect(of(t, 'delegate.completed')[0].changed_files).toEqual([{ path: 'results/b.txt', change: 'created' }]);
    const prompt = t.adapter.requests.find((r) => r.caller.is_worker)!.system_prompt;
    expect(prompt).toContain('- input (read only, .md, at most 1000 bytes a file)\n- out (read and write, all files,');
  });

  // Promise 13.36: file tools come with sandboxes, delegate never.
  it('are there as its sandboxes allow, whatever its list of tools says', async () => {
    const t = await startServer({
      config: config(),
      files: { 'workers/w.yaml': 'instructions: x\nsandboxes: { in: { path: . } }\ntools: ["write_*", delegate]' },
      scenario: scenario(
        planner({ tool_calls: [call('w', { input: 'task' })] }, { text: 'end' }),
        worker('task', { text: 'ok' }),
      ),
    });
    await t.run(await t.session(), 'go');
    const worked = t.adapter.requests.find((r) => r.caller.is_worker)!;
    expect(worked.tools.map(({ name }) => name)).toEqual(['_request_context', 'grep', 'list_files', 'read_file']);
  });

  it('a missing folder to read from fails the call; one to write to is made', async () => {
    const t = await startServer({
      config: config(),
      files: { 'workers/w.yaml': DEFINITION },
      scenario: scenario(planner({ tool_calls: [call('w', { input: 'task' })] }, { text: 'end' })),
    });
    await t.run(await t.session(), 'go');
    expect(of(t, 'tool.failed')).toMatchObject([
      { error_class: 'execution_error', error_message: "sandbox_unavailable: 'input': does not exist" },
    ]);
    expect(t.rows()).toMatchObject({ sessions: 1, delegations: 0 });
  });

  // Promise 13.35: an agent reads with and without the name of its sandbox.
  it('an agent of .claude/agents may leave the name of its one sandbox out', async () => {
    const t = await startServer({
      config: config(),
      files: { '.claude/agents/r.md': '---\ntools: Read\n---\nRead.', 'src/a.ts': 'code' },
      scenario: scenario(
        planner({ tool_calls: [call('r', { input: 'task' })] }, { text: 'end' }),
        worker(
          'task',
          { tool_calls: [call('read_file', { path: 'src/a.ts' }), call('read_file', { path: 'workspace/src/a.ts' })] },
          { text: 'ok' },
        ),
      ),
    });
    await t.run(await t.session(), 'go');
    expect(of(t, 'tool.completed').filter((p) => p.success)).toHaveLength(3);
  });
});

describe('what a worker is made of', () => {
  const files = {
    'workers/w.yaml': 'output_schema_ref: s\nsandboxes: { all: { path: ., mode: rw } }\n',
    'prompts/w.j2': '{{ file("part.txt") }}',
    'prompts/part.txt': 'part',
    'schemas/s.json': '{"type":"object"}',
    '.claude/agents/a.md': 'agent',
    'prompts/free.txt': 'free',
  };
  const attempts = [
    'workers/w.yaml',
    'workers/new.yaml',
    'workers/w.json',
    'Workers/W.YAML',
    'workers/../workers/w.yaml',
    '.metis/workers/w.yaml',
    '.claude/agents/a.md',
    '.claude/agents/new.md',
    '.claude/agents/team/new.md',
    'prompts/w.j2',
    'prompts/w.jinja2',
    'prompts/W.md',
    'prompts/part.txt',
    'schemas/s.json',
    'schemas/s',
  ];

  // Promise 13.8: no file tool writes what a worker is made of.
  it('is written by no file tool, of a planner or of a worker whose sandbox holds it', async () => {
    const write = (prefix: string) =>
      attempts.map((given) => call('write_file', { path: `${prefix}${given}`, content: 'locked: false' }));
    const t = await startServer({
      config: config(),
      files,
      scenario: scenario(
        planner({ tool_calls: [...write(''), call('w', { input: 'task' })] }, { text: 'end' }),
        worker('task', { tool_calls: write('all/') }, { text: '{}' }),
      ),
    });
    before = JSON.stringify(Object.keys(files).map((name) => fs.readFileSync(path.join(t.workspace, name), 'utf8')));
    await t.run(await t.session({ approval_mode: 'approve_all' }), 'go');
    const failed = of(t, 'tool.failed');
    expect(failed).toHaveLength(2 * attempts.length);
    for (const { error_class, error_message } of failed) {
      expect(error_class).toBe('permission_denied');
      expect(error_message).toMatch(/is protected/);
    }
    expect(
      JSON.stringify(Object.keys(files).map((name) => fs.readFileSync(path.join(t.workspace, name), 'utf8'))),
    ).toBe(before);
    expect(fs.readdirSync(path.join(t.workspace, 'workers'))).toEqual(['w.yaml']);
    expect(fs.existsSync(path.join(t.workspace, 'Workers'))).toBe(false);
  });

  it('and nothing else of its folders is held back', async () => {
    const t = await startServer({
      config: config(),
      files,
      scenario: scenario(
        planner(
          {
            tool_calls: [
              call('write_file', { path: 'prompts/new.txt', content: 'x' }),
              call('write_file', { path: 'workers/readme.md', content: 'x' }),
            ],
          },
          { text: 'end' },
        ),
      ),
    });
    await t.run(await t.session({ approval_mode: 'approve_all' }), 'go');
    expect(of(t, 'tool.completed').map((p) => p.success)).toEqual([true, true]);
  });
});
