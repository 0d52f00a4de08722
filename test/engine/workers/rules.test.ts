// The rules of a definition, and the three ways to approve (13 §7, 09 §5.2).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { type Parsed, startServer, type TestServer } from '../../support/http.ts';
import { call, planner, scenario, worker } from '../../support/scenario.ts';
import { trustFile } from '../../support/trusted.ts';

const config = { workers: { planner_allow_workers: ['*'], allow_approve_all: true } as never };
const SHELL = call('shell', { command: 'echo x' });
const of = (t: TestServer, type: string) => t.events.filter((e) => e.type === type).map((e) => e.payload as Parsed);
const trust = (t: TestServer, text: string) => {
  fs.mkdirSync(path.join(t.workspace, '.metis'), { recursive: true });
  fs.writeFileSync(path.join(t.workspace, '.metis/trust.yaml'), `schema_version: 1\n${text}\n`);
};
/** A planner that calls `w` once, which makes these calls. */
const playing = (definition: string, ...calls: object[]) => ({
  config,
  files: { 'workers/w.yaml': `instructions: x\n${definition}`, 'data/keep': '' },
  scenario: scenario(
    planner({ tool_calls: [call('w', { input: 'task' })] }, { text: 'end' }),
    worker('task', { tool_calls: calls }, { text: 'ok' }),
  ),
});
const OUT = 'sandboxes: { out: { path: data, mode: rw } }\n';
const WRITE = call('write_file', { path: 'out/a.txt', content: 'hello' });

describe('a rule', () => {
  // Promise 13.36: an empty rule frees nothing.
  it('that leaves open what is required frees nothing: shell prompts as without it', async () => {
    const t = await startServer(playing('tools: [shell]\ntool_rules: { shell: {} }', SHELL));
    const turn = await t.submit(await t.session(), 'go');
    const { confirmation_request_id: id } = (await t.event('tool.confirmation_requested')).payload as Parsed;
    expect((await t.call('POST', `/confirmations/${id}`, { decision: 'reject' })).body.applied).toBe(true);
    await t.ended(turn);
    expect(of(t, 'tool.failed')).toMatchObject([{ error_class: 'user_denied' }]);
  });

  // Promise 13.28: a rule that asks beats always_allow, always_deny beats a rule.
  it('that asks beats always_allow; always_deny beats one that does not ask; one that forbids takes the tool away', async () => {
    const asks = await startServer(
      playing('tools: [shell]\ntool_rules: { shell: { approval_required: true } }', SHELL),
    );
    trust(asks, 'always_allow: [shell]');
    await asks.run(await asks.session({ approval_mode: 'strict' }), 'go');
    expect(of(asks, 'tool.failed')[0].error_message).toMatch(/^Strict mode: tool 'shell'/);

    const denied = await startServer(
      playing('tools: [shell]\ntool_rules: { shell: { approval_required: false } }', SHELL),
    );
    await trustFile(denied, 'workers/w.yaml');
    trust(denied, 'always_deny: [shell]');
    await denied.run(await denied.session(), 'go');
    expect(of(denied, 'tool.failed')).toMatchObject([
      { error_class: 'user_denied', error_message: 'Denied by policy.' },
    ]);

    const gone = await startServer(playing('tools: [shell]\ntool_rules: { shell: { allowed: false } }', SHELL));
    await gone.run(await gone.session(), 'go');
    expect(of(gone, 'tool.failed')).toMatchObject([{ error_class: 'not_found' }]);
  });

  it('of a group covers its tools, and a person is shown path, size and beginning', async () => {
    const t = await startServer(playing(`${OUT}tool_rules: { sandbox.write: { approval_required: true } }`, WRITE));
    const turn = await t.submit(await t.session(), 'go');
    const asked = (await t.event('tool.confirmation_requested')).payload as Parsed;
    expect(asked).toMatchObject({
      rule: 'sandbox.write',
      worker_name: 'w',
      is_worker: true,
      payload: { path: 'out/a.txt', bytes: 5, excerpt: 'hello' },
    });
    await t.call('POST', `/confirmations/${asked.confirmation_request_id}`, { decision: 'approve' });
    await t.ended(turn);
    expect(fs.readFileSync(path.join(t.workspace, 'data/a.txt'), 'utf8')).toBe('hello');
  });
});

describe('strict', () => {
  // Promise 13.27: strict refuses what would be asked and runs what a rule frees.
  it('refuses what would be asked, and runs what a rule frees', async () => {
    const one = await startServer(playing(OUT, WRITE));
    await one.run(await one.session({ approval_mode: 'strict' }), 'go');
    expect(of(one, 'tool.failed')[0].error_message).toContain('Strict mode');
    const two = await startServer(playing(`${OUT}tool_rules: { sandbox.write: { approval_required: false } }`, WRITE));
    await trustFile(two, 'workers/w.yaml');
    await two.run(await two.session({ approval_mode: 'strict' }), 'go');
    expect(of(two, 'tool.failed')).toEqual([]);
    expect(of(two, 'tool.confirmation_requested')).toEqual([]);
  });
});

describe('approve_all', () => {
  // Promise 13.27: approve_all needs permission and leaves both events.
  it('needs the permission of the server; then it approves, with both events', async () => {
    const closed = await startServer({ ...playing(OUT, WRITE), config: {} });
    const refused = await closed.call('POST', '/sessions', {
      workspace_path: closed.workspace,
      approval_mode: 'approve_all',
    });
    expect(refused).toMatchObject({ status: 403, body: { error: { code: 'approval_mode_not_allowed' } } });
    const t = await startServer(playing(OUT, WRITE));
    await t.run(await t.session({ approval_mode: 'approve_all' }), 'go');
    expect(of(t, 'tool.confirmation_requested')).toHaveLength(1);
    expect(of(t, 'tool.confirmation_resolved')).toMatchObject([{ decision: 'approve', resolved_by: 'policy' }]);
    expect(fs.existsSync(path.join(t.workspace, 'data/a.txt'))).toBe(true);
  });
});

describe('an answer for identical calls', () => {
  // Promise 13.26: an identical answer holds for the same call and definition alone.
  it('holds for the same call of a worker with the same definition, and for no other content or definition', async () => {
    const again = (name: string, task: string) => call(name, { input: task });
    const write = (content: string) => ({ tool_calls: [call('write_file', { path: 'out/a.txt', content })] });
    const read = { tool_calls: [call('read_file', { path: 'out/a.txt' })] };
    const t = await startServer({
      config,
      files: {
        'workers/w.yaml': `instructions: x\n${OUT}`,
        'workers/v.yaml': `instructions: y\n${OUT}`,
        'data/keep': '',
      },
      scenario: scenario(
        planner(
          { tool_calls: [again('w', 'first')] },
          { tool_calls: [again('w', 'second')] },
          { tool_calls: [again('w', 'third')] },
          { tool_calls: [again('v', 'fourth')] },
          { text: 'end' },
        ),
        worker('first', write('a'), { text: 'ok' }),
        worker('second', read, write('a'), { text: 'ok' }),
        worker('third', read, write('b'), { text: 'ok' }),
        worker('fourth', read, write('a'), { text: 'ok' }),
      ),
    });
    const turn = await t.submit(await t.session(), 'go');
    const asked = async (n: number) => {
      let seen = 0;
      await t.event('tool.confirmation_requested', () => ++seen === n);
      return of(t, 'tool.confirmation_requested')[n - 1];
    };
    const first = await asked(1);
    expect(first.allowed_scopes).toContain('identical');
    await t.call('POST', `/confirmations/${first.confirmation_request_id}`, {
      decision: 'approve',
      scope: 'identical',
    });
    for (const n of [2, 3]) {
      const { confirmation_request_id: id } = await asked(n);
      await t.call('POST', `/confirmations/${id}`, { decision: 'reject' });
    }
    await t.ended(turn);
    // Other content and another definition were asked about; the same call of a second worker was not.
    expect(of(t, 'tool.confirmation_requested')).toHaveLength(3);
    const results = t.events.filter((e) => e.type === 'tool.failed').map((e) => (e.payload as Parsed).error_class);
    expect(results).toEqual(['user_denied', 'user_denied']);
  });
});

describe('calling a worker', () => {
  it('asks nobody by default; worker.call: prompt asks a planner, and shows worker and input', async () => {
    const quiet = await startServer(playing(''));
    await quiet.run(await quiet.session(), 'go');
    expect(of(quiet, 'tool.confirmation_requested')).toEqual([]);
    const t = await startServer({
      ...playing(''),
      config: { ...config, tool_confirmation: { per_tool: { delegate: 'auto', 'worker.call': 'prompt' } } as never },
    });
    const turn = await t.submit(await t.session(), 'go');
    const asked = (await t.event('tool.confirmation_requested')).payload as Parsed;
    expect(asked).toMatchObject({ rule: 'worker.call', tool_name: 'w', payload: { worker: 'w', input: 'task' } });
    await t.call('POST', `/confirmations/${asked.confirmation_request_id}`, {
      decision: 'modify',
      modified_input: { input: 'task, edited' },
    });
    await t.ended(turn);
    expect(t.adapter.requests.find((r) => r.caller.is_worker)!.messages[0]!.content).toEqual([
      { type: 'text', text: 'task, edited' },
    ]);
  });
});
