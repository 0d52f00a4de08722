// What a workspace of another tool brings along is used as it is, and read again only where it changed (18 §2, 13 §3.1).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { silentLogger } from '#core/ports/logger.ts';
import { createWorkerLibrary } from '#tools/workspace/worker-files.ts';
import { tempFolder } from '../../support/engine.ts';
import { startServer } from '../../support/http.ts';
import { call, planner, scenario, worker } from '../../support/scenario.ts';

const AGENT = '---\nname: y\ndescription: Reads code.\ntools: Read, Grep\nmodel: haiku\n---\nYou read code.\n';

describe('a workspace with only CLAUDE.md, a skill and an agent of .claude', () => {
  // Promise 18.4: a workspace with only CLAUDE.md, a skill and an agent of .claude: instructions in the prompt, skill in the index, agent a worker.
  it('has its instructions and its skill in the prompt, and its agent as a worker that can be called', async () => {
    const t = await startServer({
      config: { workers: { planner_allow_workers: ['*'] } as never },
      files: {
        'CLAUDE.md': 'Indent with tabs.',
        '.claude/skills/x/SKILL.md': '---\nname: x\ndescription: How releases are made.\n---\nTag it.\n',
        '.claude/agents/y.md': AGENT,
      },
      scenario: scenario(
        planner({ tool_calls: [call('y', { input: 'read a.ts' })] }, { text: 'done' }),
        worker('read a.ts', { text: 'it is empty' }),
      ),
    });
    const at = `workspace_path=${encodeURIComponent(t.workspace)}`;
    expect((await t.call('GET', `/workers?${at}`)).body.workers).toMatchObject([
      { name: 'y', valid: true, read_only: true, tier: 'fast', path: '.claude/agents/y.md', warnings: [] },
    ]);
    expect((await t.run(await t.session(), 'go')).status).toBe('completed');
    const [planning, working] = t.adapter.requests;
    expect(planning!.system_prompt).toContain('Indent with tabs.');
    expect(planning!.system_prompt).toMatch(/\bx\b.*How releases are made\./);
    expect(planning!.tools.map(({ name }) => name)).toContain('y');
    expect(working!.system_prompt).toMatch(/^You read code\./);
    expect(working!.model.id).toBe('anthropic:claude-haiku-4-5');
  });
});

describe('a definition that changes among many', () => {
  it('is seen at the next turn', async () => {
    const t = await startServer({
      config: { workers: { planner_allow_workers: ['*'] } as never },
      files: Object.fromEntries([1, 2, 3].map((i) => [`workers/w${i}.yaml`, `instructions: x\ndescription: old ${i}`])),
      scenario: scenario([{ match: {}, times: 'inf', respond: { text: 'ok' } }]),
    });
    const session = await t.session();
    await t.run(session, 'go');
    fs.writeFileSync(path.join(t.workspace, 'workers/w2.yaml'), 'instructions: x\ndescription: new 2');
    await t.run(session, 'go');
    const offered = t.adapter.requests.map((r) =>
      r.tools.filter(({ name }) => /^w\d$/.test(name)).map(({ description }) => description),
    );
    expect(offered).toEqual([
      ['old 1', 'old 2', 'old 3'],
      ['old 1', 'new 2', 'old 3'],
    ]);
  });

  it('is the only one that is read again, with its prompt and its schema; the others are the ones kept', async () => {
    const root = tempFolder();
    const write = (name: string, text: string) => {
      fs.mkdirSync(path.dirname(path.join(root, name)), { recursive: true });
      fs.writeFileSync(path.join(root, name), text);
    };
    for (let i = 0; i < 40; i++) write(`workers/w${i}.yaml`, `instructions: x\ndescription: number ${i}`);
    write('workers/p.yaml', 'tier: fast\noutput_schema_ref: s');
    write('prompts/p.md', 'Old.');
    write('schemas/s.json', '{"type":"object"}');
    const library = createWorkerLibrary(silentLogger);
    let before = new Map((await library.list(root)).map((found) => [found.name, found]));
    expect(before.size).toBe(41);
    for (const [file, text, name] of [
      ['workers/w7.yaml', 'instructions: y', 'w7'],
      ['prompts/p.md', 'New.', 'p'],
      ['schemas/s.json', '{"type":"object","required":[]}', 'p'],
      ['.metis/workers/w9.yaml', 'instructions: z', 'w9'],
    ]) {
      write(file!, text!);
      const after = new Map((await library.list(root)).map((found) => [found.name, found]));
      const read = [...after].filter(([key, found]) => before.get(key) !== found).map(([key]) => key);
      expect(read).toEqual([name]);
      before = after;
    }
    expect(before.get('p')).toMatchObject({ instructions: 'New.', output_schema: { required: [] } });
  });
});
