// Named workers of a workspace over HTTP: what is found, what is wrong with it, what is read again (13 §3, §10).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { checkWorkers, listWorkers, printWorker } from '#cli/worker-definitions.ts';
import { tempFolder } from '../../support/engine.ts';
import { type Parsed, startServer, type TestServer } from '../../support/http.ts';

const list = async (server: TestServer, query = '') =>
  (await server.call('GET', `/workers?workspace_path=${server.workspace}${query}`)).body;
const one = (server: TestServer, name: string) =>
  server.call('GET', `/workers/${name}?workspace_path=${server.workspace}`);
const named = async (server: TestServer, name: string): Promise<Parsed> =>
  (await list(server)).workers.find((worker: Parsed) => worker.name === name);

describe('the workers of a workspace', () => {
  // Promise 13.1: an unknown key is told with its line, and disturbs no other worker.
  test('come from three folders, the first that has a name wins, an invalid one disturbs no other', async () => {
    const server = await startServer({
      files: {
        '.metis/workers/a.yaml': 'instructions: mine\nmodle: haiku\n',
        'workers/a.yaml': 'instructions: shadowed',
        'workers/b.json': '{"instructions": "b", "model": "haiku"}',
        '.claude/agents/c.md': '---\nname: c\ntools: Read\n---\nYou are c.',
        'workers/notes.txt': 'no worker',
      },
    });
    const { workers, next_cursor } = await list(server);
    expect(next_cursor).toBeNull();
    expect(workers.map((w: Parsed) => [w.name, w.valid, w.path, w.read_only])).toEqual([
      ['a', false, '.metis/workers/a.yaml', false],
      ['b', true, 'workers/b.json', false],
      ['c', true, '.claude/agents/c.md', true],
    ]);
    expect(workers[0].errors).toEqual([
      { path: 'modle', message: 'unknown key', file: '.metis/workers/a.yaml', line: 2 },
    ]);
    expect((await one(server, 'c')).body).toMatchObject({
      resolved_instructions: 'You are c.',
      instructions_source: 'inline',
      sandboxes: [{ name: 'workspace', path: '.', mode: 'ro' }],
    });
    expect(await one(server, 'nope')).toMatchObject({
      status: 404,
      body: { error: { details: { resource: 'worker' } } },
    });
    expect((await one(server, '..%2Fx')).status).toBe(400);
  });

  test('are paged by name', async () => {
    const files = Object.fromEntries(['c', 'a', 'b'].map((name) => [`workers/${name}.yaml`, 'instructions: x']));
    const server = await startServer({ files });
    const first = await list(server, '&limit=2');
    expect(first.workers.map((w: Parsed) => w.name)).toEqual(['a', 'b']);
    const second = await list(server, `&limit=2&cursor=${first.next_cursor}`);
    expect(second).toMatchObject({ workers: [{ name: 'c' }], next_cursor: null });
  });

  test('a workspace outside the roots has none to show', async () => {
    const outside = tempFolder();
    const server = await startServer({ config: { server: { workspace_roots: ['/nowhere'] } as never } });
    expect((await server.call('GET', `/workers?workspace_path=${outside}`)).body.error.code).toBe(
      'workspace_not_allowed',
    );
  });
});

describe('a name', () => {
  // Promise 13.3: reserved names are refused.
  test.each(['shell', 'Delegate', 'mcp__x', '_x', 'Read_File', 'web_search'])(
    '%s is reserved and refused',
    async (name) => {
      const server = await startServer({ files: { [`workers/${name}.yaml`]: 'instructions: x' } });
      expect(await named(server, name)).toMatchObject({ valid: false, errors: [{ path: 'name' }] });
    },
  );

  // Promise 13.3: a name is no path and has a length.
  test.each(['a b', 'x'.repeat(65), 'a.b'])('%j of a file is no name of a worker', async (name) => {
    const server = await startServer({ files: { [`workers/${name}.yaml`]: 'instructions: x' } });
    expect((await named(server, name)).valid).toBe(false);
  });

  // Promise 13.3: two forms of one name in a folder are ambiguous.
  // Promise 13.40: of names that differ in case alone one is the worker, the error stands at the others.
  test('in two forms in one folder is ambiguous, and two that differ in case are not two', async () => {
    const server = await startServer({
      files: {
        'workers/a.yaml': 'instructions: x',
        'workers/a.json': '{"instructions": "x"}',
        'workers/B.yaml': 'instructions: x',
        'workers/b.yaml': 'instructions: x',
        'workers/GOOD.yaml': 'instructions: x',
        'workers/good.yaml': 'instructions: x\nlocked: true',
        '.metis/workers/FIRST.yaml': 'instructions: x',
        'workers/first.yaml': 'instructions: x',
        '.claude/agents/First.md': 'x',
      },
    });
    expect((await named(server, 'a')).errors[0].message).toMatch(/^ambiguous: a.json and a.yaml/);
    expect((await named(server, 'B')).errors[0].message).toBe(
      'differs from the worker "b" only in case; rename this one',
    );
    // The one that is there goes on: that of the first folder, or else the one in small letters.
    for (const [name, twins] of [
      ['b', ['B']],
      ['good', ['GOOD']],
      ['FIRST', ['first', 'First']],
    ] as const) {
      expect((await one(server, name)).body, name).toMatchObject({ valid: true, errors: [] });
      for (const twin of twins) expect((await one(server, twin)).body, twin).toMatchObject({ valid: false });
    }
  });
});

describe('what a definition refers to', () => {
  // Promise 13.4: a prompt template brings in files of its folder alone and knows nothing else.
  test('a prompt file is its prompt; a template brings in others of its folder and no other file', async () => {
    const server = await startServer({
      files: {
        'workers/a.yaml': 'description: d',
        'prompts/a.j2': 'Be kind.\n{{ file("rules.txt") }}',
        'prompts/rules.txt': 'No {{ jokes }}.',
        'workers/b.yaml': '{}',
        'prompts/b.j2': '{{ file("../secret") }}',
        secret: 'hidden',
        'workers/c.yaml': '{}',
        'prompts/c.jinja2': 'x {% if y %}',
        'workers/d.yaml': 'instructions: "{{ x }}"',
        'workers/e.yaml': 'description: d',
      },
    });
    expect((await one(server, 'a')).body).toMatchObject({
      valid: true,
      resolved_instructions: 'Be kind.\nNo {{ jokes }}.',
      instructions_source: 'prompts/a.j2',
      yaml: 'name: a\ndescription: d\n',
    });
    const b = await named(server, 'b');
    expect(b).toMatchObject({ valid: false, errors: [{ file: 'prompts/b.j2' }] });
    expect(JSON.stringify(b)).not.toContain('hidden');
    expect(JSON.stringify(b)).not.toContain(server.workspace);
    expect((await named(server, 'c')).errors[0].message).toMatch(/^unsupported_template_syntax/);
    expect((await one(server, 'd')).body.resolved_instructions).toBe('{{ x }}');
    expect((await named(server, 'e')).errors[0].path).toBe('instructions');
  });

  test('a schema must be there, and be one; models must be known; unknown workers and tools are odd, not wrong', async () => {
    const server = await startServer({
      files: {
        'workers/a.yaml':
          'instructions: x\noutput_schema_ref: answer\nmodel: nope\nallow_workers: [ghost]\ntools: [hammer, "mcp__*"]',
        'workers/b.yaml': 'instructions: x\noutput_schema_ref: list.json\nmodel: opus\n',
        'schemas/list.json': '{"type": "array"}',
        'workers/c.yaml': 'instructions: x\noutput_schema_ref: ../secret\n',
        'workers/d.yaml': 'instructions: x\noutput_schema_ref: ok\n',
        '.metis/schemas/ok.json': '{"type": "object"}',
      },
    });
    const a = await named(server, 'a');
    expect(a.errors.map((e: Parsed) => e.path)).toEqual(['output_schema_ref', 'model']);
    expect(a.warnings.map((w: Parsed) => w.message)).toEqual([
      'there is no worker "ghost"',
      'there is no tool "hammer"',
      'no MCP server has offered "mcp__*" so far; servers start with the first turn in the workspace',
    ]);
    expect((await named(server, 'b')).errors[0].message).toMatch(/object/);
    expect((await named(server, 'c')).valid).toBe(false);
    expect((await named(server, 'd')).valid).toBe(true);
  });

  // Promise 18.4: an agent of .claude/agents is a worker of the workspace.
  test('an agent of .claude/agents keeps its tools and its model; what is unknown is a warning', async () => {
    const server = await startServer({
      files: {
        '.claude/agents/sub/file.md':
          '---\nname: reviewer.v2\ndescription: Reviews.\ntools: Read, Grep, Task\nmodel: haiku\nmaxTurns: 3\ncolor: red\n---\nReview it.\n',
        '.claude/agents/all.md': 'Do anything.',
        '.claude/agents/writer.md':
          '---\ntools: [Write, Bash, mcp__fs__read]\nskills: [x]\nmodel: inherit\n---\nWrite.',
      },
    });
    const reviewer = await named(server, 'reviewer-v2');
    expect(reviewer).toMatchObject({ valid: true, tier: 'fast', model: null, tools: [], description: 'Reviews.' });
    expect(reviewer.sandboxes).toMatchObject([{ name: 'workspace', path: '.', mode: 'ro' }]);
    expect(reviewer.warnings.map((w: Parsed) => [w.path, w.line])).toEqual([
      ['name', 2],
      ['tools', 4],
      ['maxTurns', 6],
    ]);
    expect(await named(server, 'all')).toMatchObject({ tools: ['shell'], sandboxes: [{ mode: 'rw' }] });
    expect(await named(server, 'writer')).toMatchObject({
      valid: true,
      tools: ['mcp__fs__read', 'shell', 'skill_load'],
      tier: null,
      model: null,
    });
  });
});

describe('agents in folders of .claude/agents', () => {
  // Promise 13.45: Agents in folders have the name in their head.
  test('are found under the name in their head, followed when it changes, and ambiguous when two have one', async () => {
    const agent = (name: string) => `---\nname: ${name}\ntools: Read\n---\nWork.`;
    const server = await startServer({
      files: { '.claude/agents/team/core/a.md': agent('lead'), '.claude/agents/b.md': agent('second') },
    });
    const shown = async () => (await list(server)).workers.map((w: Parsed) => [w.name, w.path, w.valid]);
    expect(await shown()).toEqual([
      ['lead', '.claude/agents/team/core/a.md', true],
      ['second', '.claude/agents/b.md', true],
    ]);
    fs.writeFileSync(path.join(server.workspace, '.claude/agents/b.md'), agent('lead'));
    expect(await shown()).toEqual([['lead', '.claude/agents/b.md', false]]);
    fs.writeFileSync(path.join(server.workspace, '.claude/agents/b.md'), agent('third-one'));
    expect(await shown()).toEqual([
      ['lead', '.claude/agents/team/core/a.md', true],
      ['third-one', '.claude/agents/b.md', true],
    ]);
  });
});

describe('a folder or file that a link takes out of the workspace', () => {
  test('gives no worker away', async () => {
    const outside = tempFolder();
    fs.writeFileSync(path.join(outside, 'x.yaml'), 'instructions: secret words');
    const server = await startServer({ files: { 'workers/a.yaml': 'instructions: x' } });
    fs.mkdirSync(path.join(server.workspace, '.metis'), { recursive: true });
    fs.symlinkSync(outside, path.join(server.workspace, '.metis/workers'));
    fs.symlinkSync(path.join(outside, 'x.yaml'), path.join(server.workspace, 'workers/y.yaml'));
    const { workers } = await list(server);
    expect(workers.map((w: Parsed) => [w.name, w.valid])).toEqual([
      ['a', true],
      ['y', false],
    ]);
    expect(JSON.stringify(workers)).not.toContain('secret words');
  });
});

describe('a file that changes', () => {
  test('is seen at once, without the others being read again', async () => {
    const text = (i: number) => `instructions: ${i} ${'x'.repeat(20_000)}\n`;
    const files = Object.fromEntries(Array.from({ length: 100 }, (_, i) => [`workers/w${i}.yaml`, text(i)]));
    const server = await startServer({ files });
    expect((await list(server, '&limit=200')).workers).toHaveLength(100);
    const before = bytesRead();
    fs.writeFileSync(path.join(server.workspace, 'workers/w7.yaml'), 'instructions: new\n');
    fs.rmSync(path.join(server.workspace, 'workers/w8.yaml'));
    const { workers } = await list(server, '&limit=200');
    const read = bytesRead() - before;
    expect(workers).toHaveLength(99);
    expect((await one(server, 'w7')).body.resolved_instructions).toBe('new');
    // All of them have 2 MB.
    expect(read).toBeLessThan(500_000);
  });

  test.skipIf(process.platform !== 'linux')('as its prompt and its schema do', async () => {
    const server = await startServer({ files: { 'workers/a.yaml': 'output_schema_ref: s', 'prompts/a.txt': 'one' } });
    expect((await named(server, 'a')).valid).toBe(false);
    fs.mkdirSync(path.join(server.workspace, 'schemas'));
    fs.writeFileSync(path.join(server.workspace, 'schemas/s.json'), '{"type": "object"}');
    fs.mkdirSync(path.join(server.workspace, '.metis/prompts'), { recursive: true });
    fs.writeFileSync(path.join(server.workspace, '.metis/prompts/a.txt'), 'two');
    expect((await one(server, 'a')).body).toMatchObject({ valid: true, resolved_instructions: 'two' });
  });
});

/** By this process so far, the wire included. */
function bytesRead(): number {
  return Number(/rchar: (\d+)/.exec(fs.readFileSync('/proc/self/io', 'utf8'))![1]);
}

test('Skill in the tools of a definition, of an agent file too, is skill_load', async () => {
  const server = await startServer({
    files: {
      'workers/a.yaml': 'instructions: x\ntools: [Skill]',
      '.claude/agents/b.md': '---\nname: b\ntools: Read, Skill\n---\nRead it.\n',
    },
  });
  for (const name of ['a', 'b'])
    expect((await one(server, name)).body).toMatchObject({ valid: true, warnings: [], tools: ['skill_load'] });
});

describe('metis workers', () => {
  // Promise 13.40: show of a worker that cannot be called exits 1.
  // Promise 17.10: metis workers check prints every problem on a line and exits 1.
  test('lists, shows, and fails a check with every problem by file and line', async () => {
    const server = await startServer({
      files: {
        'workers/good.yaml': 'description: Helps.\nlocked: true\nsandboxes: { in: { path: . } }\ntools: [hammer]',
        'prompts/good.md': 'Be good.',
        'workers/bad.yaml': 'instructions: x\nmodle: 1\ntimeout_seconds: -1\n',
      },
    });
    const screen = () => {
      const written = { stdout: '', stderr: '' };
      const to = (name: 'stdout' | 'stderr') => ({
        write: (text: string) => {
          written[name] += text;
        },
      });
      return { written, env: {}, cwd: server.workspace, stdout: to('stdout'), stderr: to('stderr') };
    };
    const address = { baseUrl: server.base };
    const listed = screen();
    expect(await listWorkers(listed, address, {})).toBe(0);
    expect(listed.written.stdout).toMatch(/^good +locked +in:ro hammer +Helps\.$/m);
    const shown = screen();
    expect(await printWorker(shown, address, 'good', {})).toBe(0);
    expect(shown.written.stdout).toContain('# workers/good.yaml, locked\n');
    expect(shown.written.stdout).toContain('# instructions from prompts/good.md\nBe good.\n');
    for (const json of [false, true]) {
      const broken = screen();
      expect(await printWorker(broken, address, 'bad', { json })).toBe(1);
      expect(broken.written.stdout).toContain('unknown key');
    }
    const checked = screen();
    expect(await checkWorkers(checked, address, {})).toBe(1);
    expect(checked.written.stdout.split('\n')).toEqual([
      'error    workers/bad.yaml:2: modle: unknown key',
      'error    workers/bad.yaml:3: timeout_seconds: must be more than 0',
      'warning  workers/good.yaml: tools: there is no tool "hammer"',
      'ok       workers/good.yaml',
      '',
    ]);
    expect(checked.written.stderr).toBe('');
    fs.rmSync(path.join(server.workspace, 'workers/bad.yaml'));
    expect(await checkWorkers(screen(), address, {})).toBe(0);
    for (const file of ['main.agent', 'workers/judge.agent']) fs.writeFileSync(path.join(server.workspace, file), 'x');
    for (const ask of [listWorkers, checkWorkers]) {
      const noted = screen();
      expect(await ask(noted, address, {})).toBe(0);
      expect(noted.written.stderr).toContain(
        "metis: .agent files are another program's format and are not read: main.agent, workers/judge.agent;",
      );
    }
    const missing = screen();
    expect(await printWorker(missing, address, 'ghost', {})).toBe(1);
    expect(missing.written.stderr).toBe(
      'metis: no worker named ghost (metis workers list shows the workers of this folder)\n',
    );
  });
});
