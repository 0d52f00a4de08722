// Workers that a session makes for itself: proposed by a model, seen whole by a person, gone with the session (13 §3.4, §6.3, §7.5).
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { tempFolder } from '../../support/engine.ts';
import { type Parsed, startServer, type TestServer } from '../../support/http.ts';
import { call, planner, scenario, worker } from '../../support/scenario.ts';
import { textOf } from '../../support/stored.ts';

const config = { workers: { dynamic: true, allow_approve_all: true, planner_allow_workers: ['*'] } as never };
const SPEC = { name: 'x', instructions: 'You count.\nCarefully.', description: 'Counts.' };
const CREATE = call('worker_create', SPEC);
const CALL = call('worker_call', { worker: 'x', input: 'count it' });
const of = (t: TestServer, type: string) => t.events.filter((e) => e.type === type).map((e) => e.payload as Parsed);
const rows = (t: TestServer) => t.db.db.prepare('SELECT * FROM worker_definitions ORDER BY name').all() as Parsed[];
const asked = async (t: TestServer) => (await t.event('tool.confirmation_requested')).payload as Parsed;
const answer = (t: TestServer, { confirmation_request_id: id }: Parsed, body: object) =>
  t.call('POST', `/confirmations/${id}`, body);
async function results(t: TestServer, id: string): Promise<string[]> {
  const { messages } = (await t.call('GET', `/sessions/${id}/messages`)).body;
  return messages.filter((m: Parsed) => m.role === 'tool').map((m: Parsed) => textOf(m.content[0]));
}
const playing = (...calls: object[]) => ({
  config,
  scenario: scenario(planner({ tool_calls: calls }, { text: 'end' }), worker('count it', { text: 'seven' })),
});

describe('create and call in one answer of the model', () => {
  // Promise 13.20: create and call in one answer work in order.
  // Promise 13.21: the prompt holds the complete YAML, byte for byte the row.
  it('works in order: the worker is made first, then called, and a person has seen the whole of it', async () => {
    const t = await startServer(playing(CREATE, CALL));
    const session = await t.session();
    const turn = await t.submit(session, 'go');
    const question = await asked(t);
    expect(question).toMatchObject({
      rule: 'worker.create',
      tool_name: 'worker_create',
      modifiable: true,
      allowed_scopes: ['once', 'identical'],
      payload: {
        ...SPEC,
        yaml: expect.stringContaining('You count.'),
        path: expect.stringContaining(`${session.id}/x.yaml`),
      },
    });
    expect(of(t, 'tool.called')).toEqual([]);
    await answer(t, question, { decision: 'approve' });
    expect((await t.ended(turn)).status).toBe('completed');
    const [row] = rows(t);
    expect(row).toMatchObject({
      name: 'x',
      root_session_id: session.id,
      yaml: question.payload.yaml,
      edited_by_user: 0,
    });
    expect(fs.readFileSync(row.path, 'utf8')).toBe(row.yaml);
    const [made, called] = await results(t, session.id);
    expect(JSON.parse(made!)).toMatchObject({ name: 'x', digest: row.digest, edited_by_user: false });
    expect(called).toBe('seven');
    const worked = t.adapter.requests.find((r) => r.caller.is_worker)!;
    expect(worked.system_prompt).toMatch(/^You count\.\nCarefully\./);
    expect(of(t, 'delegate.started')).toMatchObject([
      { entry: 'worker_call', worker_name: 'x', worker_origin: 'session' },
    ]);
    const order = t.events.map((e) => e.type).filter((type) => /^(worker|delegate)\./.test(type));
    expect(order).toEqual(['worker.created', 'delegate.started', 'delegate.completed']);
    expect(fs.existsSync(path.join(t.workspace, '.metis/workers'))).toBe(false);
    expect((await t.call('GET', `/workers?workspace_path=${t.workspace}`)).body.workers).toEqual([]);
    const shown = await t.call('GET', `/workers/x?workspace_path=${t.workspace}&session_id=${session.id}`);
    expect(shown.body).toMatchObject({ origin: 'session', yaml: row.yaml, root_session_id: session.id, valid: true });
  });

  // Promise 13.20: reversed or denied there is nothing to call, no row and no file.
  it('in the other order, or denied, there is nothing to call: no row, no file', async () => {
    const first = await startServer(playing(CALL, CREATE));
    const one = await first.session({ approval_mode: 'approve_all' });
    await first.run(one, 'go');
    expect(of(first, 'tool.failed')).toMatchObject([{ error_class: 'not_found' }]);
    expect(rows(first)).toHaveLength(1);
    const second = await startServer(playing(CREATE, CALL));
    const turn = await second.submit(await second.session(), 'go');
    await answer(second, await asked(second), { decision: 'reject', reason: 'no more' });
    await second.ended(turn);
    expect(of(second, 'tool.failed').map((p) => p.error_class)).toEqual(['user_denied', 'not_found']);
    expect(rows(second)).toEqual([]);
    expect(fs.existsSync(second.config.workers.generated_dir)).toBe(false);
  });
});

describe('a worker that is made again', () => {
  const REFINED = call('worker_create', { ...SPEC, instructions: 'You weigh.' });
  const again = (...steps: object[]) => ({
    config,
    scenario: scenario(
      planner(...steps.map((step) => ({ tool_calls: [step] })), { text: 'end' }),
      worker('count it', { text: 'seven' }, { text: 'eight' }),
    ),
  });

  // Promise 13.46: A session refines a worker that it made: created, run, replaced and run again.
  it('by the session that made it is replaced: created, run, refined and run again', async () => {
    const t = await startServer(again(CREATE, CALL, REFINED, CALL));
    const session = await t.session({ approval_mode: 'approve_all' });
    expect((await t.run(session, 'go')).status).toBe('completed');
    const told = t.adapter.requests.filter((r) => r.caller.is_worker).map((r) => r.system_prompt!.split('\n')[0]);
    expect(told).toEqual(['You count.', 'You weigh.']);
    const [first, second] = of(t, 'worker.created');
    expect([first.replaces_digest, second.replaces_digest]).toEqual([null, first.digest]);
    expect(rows(t)).toMatchObject([{ name: 'x', digest: second.digest, yaml: expect.stringContaining('You weigh.') }]);
    expect(fs.readFileSync(rows(t)[0].path, 'utf8')).toBe(rows(t)[0].yaml);
    const made = (await results(t, session.id)).flatMap((text) => (text.startsWith('{') ? [JSON.parse(text)] : []));
    expect(made.map(({ replaced }) => replaced)).toEqual([false, true]);
  });

  // Promise 13.46: A locked or kept worker stays as it is.
  it('stays as it is where a person has locked or kept it, or another session of the tree asks', async () => {
    const locked = await startServer(again(CREATE, REFINED));
    const turn = await locked.submit(await locked.session(), 'go');
    const yaml = 'name: x\ninstructions: You count.\nlocked: true\n';
    await answer(locked, await asked(locked), { decision: 'modify', modified_yaml: yaml });
    await locked.ended(turn);
    expect(of(locked, 'tool.input_invalid')[0].validation_errors[0]).toContain('worker_exists');

    const kept = await startServer(again(CREATE, REFINED));
    const session = await kept.session();
    const second = await kept.submit(session, 'go');
    const question = await asked(kept);
    const keep = { workspace_path: kept.workspace, yaml: question.payload.yaml };
    await answer(kept, question, { decision: 'approve' });
    const created = await kept.event('worker.created');
    expect(created.session_id).toBe(session.id);
    const refining = (
      await kept.event('tool.confirmation_requested', (e) => e.payload.tool_use_id !== question.tool_use_id)
    ).payload as Parsed;
    await kept.call('POST', '/workers', keep);
    await answer(kept, refining, { decision: 'approve' });
    await kept.ended(second);
    expect(of(kept, 'tool.failed')).toMatchObject([{ error_class: 'validation_error' }]);
    for (const t of [locked, kept])
      expect(rows(t)).toMatchObject([{ name: 'x', yaml: expect.stringContaining('You count.') }]);
  });

  // Promise 13.46: A worker of another session of the tree is not replaced.
  it('by another session of the tree is refused', async () => {
    const t = await startServer({
      config,
      files: { 'workers/lead.yaml': 'instructions: You lead.\ntools: [worker_create]' },
      scenario: scenario(
        planner({ tool_calls: [CREATE, call('lead', { input: 'refine it' })] }, { text: 'end' }),
        worker('refine it', { tool_calls: [REFINED] }, { text: 'tried' }),
      ),
    });
    await t.run(await t.session({ approval_mode: 'approve_all' }), 'go');
    expect(of(t, 'tool.input_invalid')[0].validation_errors[0]).toContain('worker_exists');
    expect(rows(t)).toMatchObject([{ name: 'x', yaml: expect.stringContaining('You count.') }]);
  });
});

describe('what a person changes before it is made', () => {
  // Promise 13.22: the YAML of a person is what is made, a broken one leaves the question open.
  it('is what is made: the YAML may set anything, a broken one leaves the question open, another name is told', async () => {
    const t = await startServer(playing(CREATE, CALL));
    const session = await t.session();
    const turn = await t.submit(session, 'go');
    const question = await asked(t);
    const bad = await answer(t, question, { decision: 'modify', modified_yaml: 'name: x\nmodle: y' });
    expect(bad).toMatchObject({ status: 400, body: { error: { code: 'invalid_modified_input' } } });
    expect(bad.body.error.message).toMatch(/modified_yaml/);
    const yaml = 'name: y\ninstructions: You weigh.\nsandboxes: { in: { path: . } }\ntools: [shell]\nlocked: true\n';
    expect((await answer(t, question, { decision: 'modify', modified_yaml: yaml })).body.applied).toBe(true);
    await t.ended(turn);
    expect(rows(t)).toMatchObject([{ name: 'y', edited_by_user: 1, yaml: expect.stringContaining('You weigh.') }]);
    const [made, called] = await results(t, session.id);
    expect(made).toMatch(/^\[input edited by user before execution\] /);
    expect(JSON.parse(made!.split('\n').slice(1).join('\n'))).toMatchObject({
      name: 'y',
      requested_name: 'x',
      edited_by_user: true,
    });
    expect(called).toMatch(/no worker 'x' to call: created in this session: y/);
  });
});

describe('a proposal', () => {
  // Promise 13.23: taken and reserved names and foreign tools are refused without a question.
  it.each([
    ['the name of a worker of the project', { ...SPEC, name: 'Taken' }, 'name: worker_exists'],
    ['the name of a tool', { ...SPEC, name: 'Shell' }, 'name: "Shell" is the name of a tool'],
    ['a reserved name', { ...SPEC, name: 'mcp__x' }, 'name: "mcp__x" is a reserved name'],
    ['a name that is a path', { ...SPEC, name: '../x' }, 'name: must match pattern'],
    ['blank instructions', { ...SPEC, instructions: ' ' }, 'instructions: must not be blank'],
    ['an unknown model', { ...SPEC, model: 'nope' }, 'model: "nope" is neither'],
    ['a tool that its creator has not', { ...SPEC, tools: ['hammer'] }, 'tools: "hammer" is not one of your own tools'],
    ['a schema that is not there', { ...SPEC, output_schema_ref: 'none' }, 'output_schema_ref: names no file'],
    ['sandboxes', { ...SPEC, sandboxes: {} }, 'sandboxes: is not a known property'],
  ])('with %s is refused without a question', async (_, spec, problem) => {
    const t = await startServer({
      ...playing(call('worker_create', spec)),
      files: { 'workers/taken.yaml': 'instructions: x' },
    });
    await t.run(await t.session(), 'go');
    expect(of(t, 'tool.input_invalid')[0].validation_errors.join('\n')).toContain(problem);
    expect(of(t, 'tool.confirmation_requested')).toEqual([]);
    expect(rows(t)).toEqual([]);
  });

  // Promise 13.21: a copy that cannot be written is a warning.
  it('may be made where the copy for people cannot be written: that is a warning', async () => {
    const t = await startServer(playing(CREATE, CALL));
    fs.writeFileSync(t.config.workers.generated_dir, 'in the way');
    const session = await t.session({ approval_mode: 'approve_all' });
    await t.run(session, 'go');
    expect((await results(t, session.id))[1]).toBe('seven');
  });

  it('needs workers.dynamic: without it there are no such tools', async () => {
    const t = await startServer({ ...playing(CREATE), config: {} });
    await t.run(await t.session(), 'go');
    expect(t.adapter.requests[0]!.tools.filter(({ name }) => name.startsWith('worker_'))).toEqual([]);
    expect(of(t, 'tool.failed')).toMatchObject([{ error_class: 'not_found' }]);
  });
});

describe('a created worker', () => {
  // Promise 13.24: a created worker is there for its own tree until a person keeps it.
  it('is there for its own tree alone, until a person keeps it; then it is a tool of a new session', async () => {
    const t = await startServer({
      config,
      scenario: scenario(
        [
          { match: { role: 'planner', user_contains: 'make', call: 1 }, respond: { tool_calls: [CREATE] } },
          { match: { role: 'planner', user_contains: 'steal', call: 1 }, respond: { tool_calls: [CALL] } },
          {
            match: { role: 'planner', user_contains: 'kept', call: 1 },
            respond: { tool_calls: [call('x', { input: 'count it' })] },
          },
          { match: { role: 'planner' }, times: 'inf', respond: { text: 'end' } },
        ],
        worker('count it', { text: 'seven' }),
      ),
    });
    const maker = await t.session({ approval_mode: 'approve_all' });
    await t.run(maker, 'make');
    const thief = await t.session();
    await t.run(thief, 'steal');
    expect((await results(t, thief.id))[0]).toMatch(/no worker 'x' to call: this session has created none/);
    const where = `workspace_path=${t.workspace}&session_id=${maker.id}`;
    const { yaml } = (await t.call('GET', `/workers/x?${where}`)).body;
    expect((await t.call('PUT', '/workers/x', { workspace_path: t.workspace, yaml })).status).toBe(404);
    const kept = await t.call('POST', '/workers', { workspace_path: t.workspace, yaml });
    expect(kept).toMatchObject({ status: 201, body: { origin: 'project', path: '.metis/workers/x.yaml' } });
    const user = await t.session();
    await t.run(user, 'kept');
    expect((await results(t, user.id))[0]).toBe('seven');
    const [row] = rows(t);
    await t.call('DELETE', `/sessions/${maker.id}?purge=true`);
    expect(rows(t)).toEqual([]);
    expect(fs.existsSync(row.path)).toBe(false);
    expect((await t.call('GET', `/workers/x?workspace_path=${t.workspace}`)).status).toBe(200);
  });

  // Promise 13.34: a question about a worker that a crash cut is cancelled: no row, no file.
  it('asked for when the server died is not made: the question is cancelled, no row, no file', async () => {
    const t = await startServer(playing(CREATE));
    await t.submit(await t.session(), 'go');
    const question = await asked(t);
    t.abandon();
    const again = await startServer({
      ...playing(),
      config: { ...config, recovery: { on_start: 'cancel' } as never },
      folder: t.folder,
    });
    const { recover } = await import('#core/engine/lifecycle.ts');
    await recover(again.engine);
    expect((await again.call('GET', `/confirmations/${question.confirmation_request_id}`)).body.decision).toBe(
      'cancelled',
    );
    expect(rows(again)).toEqual([]);
    expect(fs.existsSync(again.config.workers.generated_dir)).toBe(false);
  });
});

describe('a locked worker', () => {
  it('whose definition does not load may be locked: force alone changes it', async () => {
    const t = await startServer({ config, files: { 'workers/safe.yaml': 'instructions: a\nlocked: true\nnope: 1\n' } });
    const body = { workspace_path: t.workspace, definition: { instructions: 'new' } };
    expect((await t.call('PUT', '/workers/safe', body)).body.error.code).toBe('worker_locked');
    const removed = await t.call('DELETE', `/workers/safe?workspace_path=${t.workspace}`);
    expect(removed.body.error.code).toBe('worker_locked');
    expect((await t.call('PUT', '/workers/safe', { ...body, force: true })).status).toBe(200);
  });

  // Promise 13.25: a locked worker is changed by force alone, and running sessions keep theirs.
  // Promise 13.35: an agent file is read only.
  it('is changed over HTTP by force alone, and by no tool; running it works', async () => {
    const t = await startServer({
      config,
      files: { 'workers/safe.yaml': 'instructions: old\nlocked: true\n', '.claude/agents/ro.md': 'agent' },
      scenario: scenario(
        planner(
          {
            tool_calls: [
              call('worker_create', { ...SPEC, name: 'safe' }),
              call('write_file', { path: 'workers/safe.yaml', content: 'x' }),
            ],
          },
          { tool_calls: [call('safe', { input: 'count it' })] },
          { text: 'end' },
        ),
        worker('count it', { text: 'seven' }),
      ),
    });
    const session = await t.session({ approval_mode: 'approve_all' });
    await t.run(session, 'go');
    expect((await results(t, session.id))[2]).toBe('seven');
    const file = path.join(t.workspace, 'workers/safe.yaml');
    const body = { workspace_path: t.workspace, definition: { instructions: 'new', locked: true } };
    expect((await t.call('PUT', '/workers/safe', body)).body.error.code).toBe('worker_locked');
    expect((await t.call('DELETE', `/workers/safe?workspace_path=${t.workspace}`)).body.error.code).toBe(
      'worker_locked',
    );
    expect(
      (await t.call('POST', '/workers', { ...body, definition: { ...body.definition, name: 'SAFE' } })).body.error.code,
    ).toBe('worker_exists');
    expect(fs.readFileSync(file, 'utf8')).toBe('instructions: old\nlocked: true\n');
    const running = (await t.call('GET', '/sessions?include_workers=true')).body.sessions.find(
      (s: Parsed) => s.is_worker,
    );
    expect((await t.call('PUT', '/workers/safe', { ...body, force: true })).body.digest).not.toBe(
      running.worker_digest,
    );
    expect((await t.call('GET', `/sessions/${running.id}`)).body.worker_digest).toBe(running.worker_digest);
    expect(fs.readFileSync(file, 'utf8')).toBe('name: safe\ninstructions: new\nlocked: true\n');
    expect((await t.call('PUT', '/workers/ro', body)).body.error.code).toBe('worker_read_only');
    expect((await t.call('DELETE', `/workers/safe?workspace_path=${t.workspace}&force=true`)).status).toBe(204);
    expect(fs.existsSync(file)).toBe(false);
  });

  // Promise 13.41: locked and unlocked, a file keeps its comments, behind links of the workspace too.
  it('locked and unlocked over HTTP keeps the comments of its file, also behind links of the workspace', async () => {
    const text = '# Ask Anna.\ninstructions: old # for now\n';
    const t = await startServer({ files: { 'defs/a.yaml': text, 'texts/b.txt': text } });
    fs.symlinkSync('defs', path.join(t.workspace, 'workers'));
    fs.symlinkSync('../texts/b.txt', path.join(t.workspace, 'defs/b.yaml'));
    fs.symlinkSync('/etc/hostname', path.join(t.workspace, 'defs/c.yaml'));
    const put = (name: string, locked: boolean) => {
      const definition = { instructions: 'old', locked };
      return t.call('PUT', `/workers/${name}`, { workspace_path: t.workspace, definition, force: true });
    };
    for (const [name, file] of [
      ['a', 'defs/a.yaml'],
      ['b', 'texts/b.txt'],
    ] as const) {
      expect((await put(name, true)).body).toMatchObject({ valid: true, locked: true });
      expect(fs.readFileSync(path.join(t.workspace, file), 'utf8')).toBe(`${text}locked: true\n`);
      expect((await put(name, false)).body).toMatchObject({ valid: true, locked: false });
      expect(fs.readFileSync(path.join(t.workspace, file), 'utf8')).toBe(text);
    }
    // What a link leads to outside is left alone: a file takes its place.
    const hostname = fs.readFileSync('/etc/hostname', 'utf8');
    expect((await put('c', true)).body).toMatchObject({ valid: true, locked: true });
    expect(fs.lstatSync(path.join(t.workspace, 'defs/c.yaml')).isFile()).toBe(true);
    expect(fs.readFileSync('/etc/hostname', 'utf8')).toBe(hostname);
  });

  // Promise 13.41: a file that cannot be written is told by name.
  it('that cannot be written is told with its file, and nothing else is touched', async () => {
    const outside = tempFolder();
    const t = await startServer({ files: { 'defs/x.yaml/in': '', '.claude/keep': '' } });
    const at = (file: string) => path.join(t.workspace, file);
    const post = (name: string) =>
      t.call('POST', '/workers', { workspace_path: t.workspace, definition: { name, instructions: 'i' } });
    const refused = async (reply: ReturnType<typeof post>) => (await reply).body.error;
    const metis = at('.metis/workers');
    fs.mkdirSync(path.dirname(metis), { recursive: true });
    fs.symlinkSync(outside, metis);
    expect(await refused(post('x'))).toMatchObject({
      code: 'worker_read_only',
      message:
        '.metis/workers/x.yaml cannot be written: it is a link, or lies behind one; remove the obstacle and try again',
    });
    expect(fs.readdirSync(outside)).toEqual([]);
    fs.rmSync(metis);
    fs.writeFileSync(metis, '');
    expect((await refused(post('x'))).message).toContain('cannot be written: ENOTDIR');
    fs.rmSync(metis);
    fs.renameSync(at('defs'), metis);
    expect((await refused(post('x'))).message).toContain('cannot be written: it is not a regular file');
    execFileSync('mkfifo', [path.join(metis, 'pipe.yaml')]);
    const definition = { workspace_path: t.workspace, definition: { instructions: 'i' }, force: true };
    expect((await refused(t.call('PUT', '/workers/pipe', definition))).code).toBe('worker_read_only');
    expect((await t.call('DELETE', `/workers/pipe?workspace_path=${t.workspace}&force=true`)).status).toBe(204);
  });

  // Promise 13.2: a definition with a prompt file, fetched and put back, keeps its prompt in the file.
  it('a definition that is not valid, or renames, is refused with its problems, and nothing is written', async () => {
    const t = await startServer({ files: { 'workers/a.json': '{"description": "d"}', 'prompts/a.md': 'prompt' } });
    const put = (definition: object) => t.call('PUT', '/workers/a', { workspace_path: t.workspace, definition });
    expect((await put({ modle: 1 })).body.error).toMatchObject({
      code: 'validation_error',
      details: { issues: [{ path: 'definition.modle' }] },
    });
    expect((await put({ name: 'b', instructions: 'x' })).body.error.details.issues[0].path).toBe('definition.name');
    expect((await put({ model: 'nope' })).body.error.details.issues[0].path).toBe('definition.model');
    expect(fs.readdirSync(path.join(t.workspace, 'workers'))).toEqual(['a.json']);
    // What was fetched goes back as it was: the prompt stays in its file.
    const { definition } = (await t.call('GET', `/workers/a?workspace_path=${t.workspace}`)).body;
    expect((await put(definition)).status).toBe(200);
    expect(fs.readdirSync(path.join(t.workspace, 'workers'))).toEqual(['a.yaml']);
    expect(fs.readFileSync(path.join(t.workspace, 'workers/a.yaml'), 'utf8')).toBe('name: a\ndescription: d\n');
  });
});
