// Memory over the calls of a session: what the next call sees of a write, and what workers do not (10 §1, §3, §4).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { type EngineOptions, startEngine, type TestEngine } from '../support/engine.ts';
import { restart, writes } from '../support/moments.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { resultsOf, storedEvents, textOf } from '../support/stored.ts';
import { until } from '../support/until.ts';

const auto = { memory_add: 'auto', memory_replace: 'auto', memory_consolidate: 'auto', delegate: 'auto' } as const;
const config = { tool_confirmation: { per_tool: auto } };
const start = (over: Pick<EngineOptions, 'scenario' | 'files' | 'log'>) => startEngine({ config, ...over });
const add = (entry: string, file = 'MEMORY.md') => call('memory_add', { file, entry });
const updates = (t: TestEngine) =>
  t.events.filter((e) => e.type === 'memory.updated').map((e) => e.payload as Readonly<Record<string, unknown>>);
const memory = (t: TestEngine, file = 'MEMORY.md') => fs.readFileSync(path.join(t.workspace, '.metis', file), 'utf8');

describe('memory', () => {
  // Promise 10.4: a memory write is in the next call of the same turn, the stable bytes unchanged.
  it('that a call writes is in the next call of the same turn, behind stable text of the same bytes', async () => {
    const t = await start({
      scenario: scenario(planner({ tool_calls: [add('- tabs')] }, { text: 'noted' })),
    });
    const session = await t.session();
    await t.run(session, 'go');
    const [first, second] = t.adapter.requests;
    expect(first?.system_prompt_volatile).toBeNull();
    expect(second?.system_prompt_volatile).toBe('## Workspace memory (MEMORY.md)\n- tabs');
    expect(second?.system_prompt).toBe(first?.system_prompt);
    const [event] = t.events.filter((e) => e.type === 'memory.updated');
    expect(event).toMatchObject({ session_id: session.id, actor: 'agent', sensitivity: 'private' });
    const answer = t.events.find((e) => e.type === 'llm.call_completed');
    expect(event?.parent_event_id).toBe(answer?.id);
    expect(t.events.find((e) => e.type === 'tool.completed')?.payload).toMatchObject({
      files_modified: ['.metis/MEMORY.md'],
    });
  });

  // Promise 10.5: two writes of one message both stand in the file, and their events chain.
  it('that two calls of one message write holds both entries, and their events chain', async () => {
    const t = await start({
      scenario: scenario(planner({ tool_calls: [add('- one'), add('- two')] }, { text: 'noted' })),
    });
    await t.run(await t.session(), 'go');
    expect(memory(t).split('\n').sort()).toEqual(['', '- one', '- two']);
    const [first, second, ...more] = updates(t);
    expect(more).toEqual([]);
    expect(second?.before_hash).toBe(first?.after_hash);
  });

  // Promise 10.7: a replacement that fits not exactly once fails; an emptied file leaves the prompt; the same content has no event.
  it('that is emptied leaves the prompt; a write that fails or changes nothing has no event', async () => {
    const t = await start({
      files: { '.metis/MEMORY.md': 'a a\n' },
      scenario: scenario(
        planner(
          { tool_calls: [call('memory_replace', { file: 'MEMORY.md', old: 'a', new: 'b' })] },
          { tool_calls: [call('memory_replace', { file: 'MEMORY.md', old: 'c', new: 'b' })] },
          { tool_calls: [call('memory_replace', { file: 'MEMORY.md', old: '', new: 'b' })] },
          { tool_calls: [call('memory_consolidate', { file: 'MEMORY.md', content: '' })] },
          { tool_calls: [call('memory_consolidate', { file: 'MEMORY.md', content: '' })] },
          { text: 'done' },
        ),
      ),
    });
    const session = await t.session();
    await t.run(session, 'go');
    expect((await resultsOf(t, session.id)).map(textOf)).toEqual([
      'replace source appears 2 times in MEMORY.md; must be unique',
      'replace source not found in MEMORY.md',
      'replace source must be non-empty',
      'consolidated MEMORY.md: 4 → 0 bytes',
      'consolidated MEMORY.md: 0 → 0 bytes',
    ]);
    expect(updates(t)).toHaveLength(1);
    expect(t.adapter.requests.map((r) => r.system_prompt_volatile !== null)).toEqual([
      true,
      true,
      true,
      true,
      false,
      false,
    ]);
  });

  // Promise 10.8: a file edited over its cap is shown in part, refuses additions, and is shortened by the session.
  it('that a person let outgrow its cap is shown in part, warned about once, and shortened by a session', async () => {
    const warnings: string[] = [];
    const log = { debug() {}, info() {}, error() {}, warn: (_: object, m: string) => void warnings.push(m) };
    const logger = { ...log, child: () => logger } as unknown as NonNullable<EngineOptions['log']>;
    const t = await start({
      log: logger,
      files: { '.metis/USER.md': 'u'.repeat(10_000) },
      scenario: scenario(
        planner(
          { tool_calls: [add('- more', 'USER.md')] },
          { tool_calls: [call('memory_consolidate', { file: 'USER.md', content: 'u'.repeat(1000) })] },
          { text: 'tidy' },
        ),
      ),
    });
    const session = await t.session();
    expect(await t.run(session, 'go')).toMatchObject({ status: 'completed', output: 'tidy' });
    const marker = '\n[truncated: file exceeds its 3072-byte cap]';
    expect(t.adapter.requests.map((r) => r.system_prompt_volatile)).toEqual([
      `## User context (USER.md)\n${'u'.repeat(3072)}${marker}`,
      `## User context (USER.md)\n${'u'.repeat(3072)}${marker}`,
      `## User context (USER.md)\n${'u'.repeat(1000)}`,
    ]);
    expect((await resultsOf(t, session.id)).map(textOf)).toEqual([
      'USER.md write rejected: 10008 bytes exceeds hard cap 3072; consolidate before adding more',
      'consolidated USER.md: 10000 → 1000 bytes',
    ]);
    expect(warnings).toEqual(['a memory file exceeds its cap and is shown in part: shorten it']);
  });
});

describe('a worker', () => {
  const skill = '---\nname: deploy\ndescription: how to deploy\n---\nPush.';

  // Promise 10.9: a worker has block, memory and skills as they were, its task last, no memory tools, the bytes of its siblings.
  it('has the memory as it was when it began, the skills, and no tool to write memory with', async () => {
    const reads = { tool_calls: [call('list_files', {})] };
    const t = await start({
      files: { '.metis/MEMORY.md': '- old\n', '.metis/skills/deploy/SKILL.md': skill, 'note.txt': 'x' },
      scenario: scenario(
        planner(
          { text: 'a secret of the planner', tool_calls: [delegate('job-a'), delegate('job-b')] },
          { tool_calls: [add('- new'), delegate('job-c')] },
          { text: 'end' },
        ),
        worker('job-a', reads, { text: 'a' }),
        worker('job-b', reads, { text: 'b' }),
        worker('job-c', reads, { text: 'c' }),
      ),
    });
    const session = await t.session();
    await t.run(session, 'go');
    const of = (task: string) => t.adapter.requests.filter((r) => r.system_prompt_volatile?.includes(task));
    const [a, b] = [of('job-a'), of('job-b')];
    for (const request of [...a, ...b]) {
      expect(request.tools).toEqual(a[0]?.tools);
      expect(request.system_prompt).toBe(a[0]?.system_prompt);
      expect(JSON.stringify(request.messages)).not.toContain('secret');
    }
    const order = ['## Worker mode', '## Workspace memory (MEMORY.md)\n- old', '## Available skills', '- deploy: how'];
    const places = order.map((text) => a[0]!.system_prompt!.indexOf(text));
    expect(places.every((place, i) => place > (places[i - 1] ?? 0))).toBe(true);
    expect(a[0]?.system_prompt_volatile).toBe('## Task\njob-a');
    const names = a[0]!.tools.map((tool) => tool.name);
    expect(names).toEqual(expect.arrayContaining(['_request_context', 'skill_load', 'read_file']));
    expect(names.filter((name) => name === 'delegate' || name.startsWith('memory_'))).toEqual([]);
    expect(t.adapter.requests[0]!.tools.map((tool) => tool.name)).toContain('memory_add');
    // Beside the write of its planner.
    const c = of('job-c');
    expect(c).toHaveLength(2);
    expect(c[1]?.system_prompt).toBe(c[0]?.system_prompt);
    expect(updates(t)).toHaveLength(1);
  });

  it('that asks for a memory tool by name does not get it, and its delegation says so', async () => {
    const t = await start({
      scenario: scenario(
        planner({ tool_calls: [delegate('job', { allowed_tools: ['memory_add', 'read_file'] })] }, { text: 'end' }),
        worker('job', { tool_calls: [add('- sneaky')] }, { text: 'tried' }),
      ),
    });
    const session = await t.session();
    await t.run(session, 'go');
    expect(t.events.find((e) => e.type === 'delegate.started')?.payload).toMatchObject({
      dropped_tools: ['memory_add'],
    });
    expect(t.events.find((e) => e.type === 'tool.failed')?.payload).toMatchObject({ error_class: 'not_found' });
    expect(fs.existsSync(path.join(t.workspace, '.metis'))).toBe(false);
  });
});

describe('skills', () => {
  const text = (name: string, body: string, description = `about ${name}`) =>
    `---\nname: ${name}\ndescription: ${description}\n---\n${body}`;
  const load = (name: string, file?: string) => call('skill_load', { name, ...(file ? { file } : {}) });

  // Promise 10.13: a skill is loaded as often as asked for, by planner and worker, one event each; its files without, and none beside them.
  it('are loaded as often as asked for, by planner and worker, with one event each; files of them without', async () => {
    const t = await start({
      files: {
        '.metis/skills/deploy/SKILL.md': text('deploy', 'Push.'),
        '../skills/shared/SKILL.md': text('shared', 'Share.'),
        '../skills/shared/references/x.md': 'reference',
        '../skills/other/SKILL.md': text('other', 'Other.'),
      },
      scenario: scenario(
        planner(
          {
            tool_calls: [
              load('deploy'),
              load('deploy'),
              load('shared', 'references/x.md'),
              load('shared', '../other/SKILL.md'),
              load('nope'),
            ],
          },
          { tool_calls: [delegate('job')] },
          { text: 'end' },
        ),
        worker('job', { tool_calls: [load('shared')] }, { text: 'loaded' }),
      ),
    });
    const session = await t.session();
    await t.run(session, 'go');
    const body = '# Skill: deploy (source: workspace)\n\nPush.';
    expect((await resultsOf(t, session.id)).map(textOf).slice(0, 5)).toEqual([
      body,
      body,
      'reference',
      "Path '../other/SKILL.md' escapes workspace boundary",
      "no skill registered with name 'nope'",
    ]);
    const failed = t.events
      .filter((e) => e.type === 'tool.failed')
      .map((e) => (e.payload as { error_class: string }).error_class);
    expect(failed.sort()).toEqual(['execution_error', 'permission_denied']);
    const loaded = t.events.filter((e) => e.type === 'skill.loaded');
    expect(loaded.map((e) => e.payload)).toMatchObject([
      { skill_id: 'deploy', source: 'workspace', load_size_tokens: 1 },
      { skill_id: 'deploy', source: 'workspace' },
      { skill_id: 'shared', source: 'global' },
    ]);
    expect(
      new Set(loaded.map((e) => (e.payload as { triggered_by_tool_use_id: string }).triggered_by_tool_use_id)),
    ).toHaveProperty('size', 3);
    expect(loaded.filter((e) => e.session_id !== session.id)).toHaveLength(1);
    expect(JSON.stringify(loaded)).not.toContain('Push.');
  });

  it('are reported once by a call that is cut before its result is stored and runs again', async () => {
    const options = {
      config,
      files: { '.metis/skills/deploy/SKILL.md': text('deploy', 'Push.') },
      scenario: scenario(planner({ tool_calls: [load('deploy')] }, { text: 'end' })),
    };
    const first = await startEngine(options);
    const session = await first.session();
    const { journal } = first.engine;
    const { commit } = journal;
    let cut = false;
    journal.commit = (batch) => {
      cut ||= writes(batch, 'tool_call.settle');
      return cut ? new Promise(() => {}) : commit(batch);
    };
    const turnId = await first.submit(session, 'go');
    await until(() => cut);
    const second = await restart(first, options);
    expect((await second.ended(turnId)).status).toBe('completed');
    const events = await storedEvents(second, session.id);
    expect(events.filter((e) => e.type === 'skill.loaded')).toHaveLength(1);
    expect((await resultsOf(second, session.id)).map(textOf)).toEqual(['# Skill: deploy (source: workspace)\n\nPush.']);
  });

  // Promise 10.20: an edited skill is loaded as it is, the system bytes stay.
  it('are indexed when a session begins; a call reads the disk as it is, the system text stays', async () => {
    const t = await start({
      files: {
        '.metis/skills/deploy/SKILL.md': text('deploy', 'Push.'),
        '.metis/skills/gone/SKILL.md': text('gone', 'G'),
      },
      scenario: scenario([
        { match: { turn: 1, call: 1 }, respond: { tool_calls: [load('deploy')] } },
        { match: { turn: 2, call: 1 }, respond: { tool_calls: [load('deploy'), load('gone')] } },
        { match: {}, times: 'inf', respond: { text: 'read' } },
      ]),
    });
    const session = await t.session();
    await t.run(session, 'one');
    const file = path.join(t.workspace, '.metis/skills/deploy/SKILL.md');
    fs.writeFileSync(file, text('deploy', 'Tag, then push.', 'another text'));
    fs.rmSync(path.join(t.workspace, '.metis/skills/gone'), { recursive: true });
    await t.run(session, 'two');
    expect((await resultsOf(t, session.id)).map(textOf)).toEqual([
      '# Skill: deploy (source: workspace)\n\nPush.',
      '# Skill: deploy (source: workspace)\n\nTag, then push.',
      "skill 'gone' is no longer available",
    ]);
    expect(new Set(t.adapter.requests.map((r) => r.system_prompt)).size).toBe(1);
    expect(t.adapter.requests[0]?.system_prompt).toMatch(/\n- deploy: about deploy\n- gone: about gone$/);
    const next = await t.session();
    await t.run(next, 'three');
    expect(t.adapter.requests.at(-1)?.system_prompt).toMatch(/\n- deploy: another text$/);
  });

  it('of 1 MB cost one clear answer, and the turn goes on, also after a restart', async () => {
    const options = {
      config,
      files: { '.metis/skills/huge/SKILL.md': text('huge', 'x'.repeat(1_000_000)) },
      scenario: scenario([
        { match: { call: 1 }, times: 'inf', respond: { tool_calls: [load('huge')] } },
        { match: {}, times: 'inf', respond: { text: 'went on' } },
      ]),
    };
    const first = await startEngine(options);
    const session = await first.session();
    expect(await first.run(session, 'go')).toMatchObject({ status: 'completed', output: 'went on' });
    const second = await restart(first, options);
    expect(await second.run(session, 'go')).toMatchObject({ status: 'completed', output: 'went on' });
    const said =
      "skill 'huge' cannot be loaded: SKILL.md: has more than 262144 bytes; move parts of it to files beside it";
    expect((await resultsOf(second, session.id)).map(textOf)).toEqual([said, said]);
    expect(second.adapter.requests[0]?.system_prompt).not.toContain('Available skills');
  });

  it('are told of to nobody who has no tool to read them with', async () => {
    const t = await startEngine({
      config: { tools: { disabled: ['skill_*'] } } as never,
      files: { '.metis/skills/deploy/SKILL.md': text('deploy', 'Push.') },
      scenario: scenario(planner({ text: 'hello' })),
    });
    await t.run(await t.session(), 'go');
    expect(t.adapter.requests[0]?.system_prompt).not.toContain('Available skills');
  });
});
