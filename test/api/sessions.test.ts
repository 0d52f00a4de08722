// Sessions over HTTP: opening, listing, changing, ending, purging.
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { type Parsed, startServer, type TestServer } from '../support/http.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';

const create = (server: TestServer, body: object = {}) =>
  server.call('POST', '/sessions', { workspace_path: server.workspace, ...body });
const ids = (answer: { body: Parsed }) => answer.body.sessions.map((s: Parsed) => s.id);

describe('POST /sessions', () => {
  // Promise 05.1: POST /sessions answers 201 with id, Location and a session.created event.
  test('answers 201 with the session, its Location, and a session.created event', async () => {
    const server = await startServer();
    const answer = await create(server, { initial_active_model: 'opus' });
    expect(answer.status).toBe(201);
    expect(answer.body.id).toMatch(/^sess_[0-9A-HJKMNP-TV-Z]{26}$/);
    expect(answer.headers.get('location')).toBe(`/sessions/${answer.body.id}`);
    expect(answer.body.active_model).toBe('anthropic:claude-opus-4-7');
    const events = await server.call('GET', `/sessions/${answer.body.id}/events`);
    expect(events.body.events.map((e: Parsed) => e.type)).toEqual(['session.created']);
    expect((await server.call('GET', `/sessions/${answer.body.id}`)).body).toEqual(answer.body);
  });

  // Promise 05.2: bad form, missing workspace, a file and an unknown model are told apart.
  test('tells a bad form, a missing workspace, a file and an unknown model apart', async () => {
    const server = await startServer({ files: { 'a.txt': 'x' } });
    const code = async (body: unknown) => {
      const { status, body: answer } = await server.call('POST', '/sessions', body);
      return [status, answer.error.code, answer.error.details?.resource ?? null];
    };
    expect(await code({})).toEqual([400, 'validation_error', null]);
    expect(await code({ workspace_path: path.join(server.workspace, 'a.txt') })).toEqual([
      404,
      'not_found',
      'workspace',
    ]);
    expect(await code({ workspace_path: '/no/such/folder' })).toEqual([404, 'not_found', 'workspace']);
    for (const model of ['nope', 'claude-opus']) {
      const body = { workspace_path: server.workspace, initial_active_model: model };
      expect(await code(body)).toEqual([400, 'model_not_configured', null]);
    }
    const number = await create(server, { max_cost_usd: 0.5 });
    expect([number.status, number.body.error.details.issues[0].path]).toEqual([400, 'max_cost_usd']);
    expect((await server.call('GET', '/sessions')).body.sessions).toEqual([]);
  });

  test('repeats of unknown names no more than helps to find them', async () => {
    const server = await startServer();
    const huge = 'm'.repeat(800_000);
    const { session_id } = (await create(server)).body;
    const turns = `/sessions/${session_id}/turns`;
    for (const [method, at, body] of [
      ['POST', '/sessions', { workspace_path: server.workspace, initial_active_model: huge }],
      ['PATCH', `/sessions/${session_id}`, { active_model: huge }],
      ['POST', turns, { content: 'hi', per_message_override: huge }],
      ['POST', turns, { content: `@${huge} hi` }],
      ['GET', `/sessions?status=${'"'.repeat(800)}`, undefined],
      ['GET', `/sessions?status=${'x,'.repeat(2000)}x`, undefined],
    ] as const) {
      const answer = await server.call(method, at, body);
      expect(answer.status, at).toBe(400);
      expect(JSON.stringify(answer.body).length, `${method} ${at.slice(0, 40)}`).toBeLessThan(2000);
    }
  });

  test('keeps to the workspace roots', async () => {
    const server = await startServer();
    const inside = path.join(server.folder, 'roots', 'one');
    fs.mkdirSync(inside, { recursive: true });
    server.config.server.workspace_roots.push(path.join(server.folder, 'roots'));
    const outside = await create(server);
    expect([outside.status, outside.body.error.code]).toEqual([403, 'workspace_not_allowed']);
    expect((await create(server, { workspace_path: inside })).status).toBe(201);
  });
});

describe('GET /sessions', () => {
  // Promise 05.5: 120 sessions in pages of 50, each once, limit clamped at 200.
  test('walks 120 sessions in pages, each once, newest first', async () => {
    const server = await startServer();
    for (let i = 0; i < 120; i += 1) await server.session();
    const pages: string[][] = [];
    let cursor: string | null = '';
    while (cursor !== null) {
      const page: Parsed = await server.call('GET', `/sessions?limit=50${cursor === '' ? '' : `&cursor=${cursor}`}`);
      pages.push(ids(page));
      cursor = page.body.next_cursor;
    }
    expect(pages.map((p) => p.length)).toEqual([50, 50, 20]);
    const all = pages.flat();
    expect(all).toEqual([...new Set(all)].sort().reverse());
    expect(ids(await server.call('GET', '/sessions?limit=999'))).toHaveLength(120);
    for (let i = 0; i < 100; i += 1) await server.session();
    expect(ids(await server.call('GET', '/sessions?limit=999'))).toHaveLength(200);
  });

  // Promise 05.4: a flag that is none is refused.
  // Promise 05.5: bad limits and foreign cursors are refused.
  test('a limit below 1 or no integer, a foreign or broken cursor are validation errors', async () => {
    const server = await startServer();
    for (let i = 0; i < 3; i += 1) await server.session();
    const { next_cursor } = (await server.call('GET', '/sessions?limit=2')).body;
    expect((await server.call('GET', `/sessions?limit=1&cursor=${next_cursor}`)).status).toBe(200);
    for (const query of [
      'limit=0',
      'limit=x',
      'limit=1.5',
      'cursor=nonsense',
      `status=idle&cursor=${next_cursor}`,
      'status=sleeping',
      'include_workers=maybe',
    ]) {
      const answer = await server.call('GET', `/sessions?${query}`);
      expect([query, answer.status, answer.body.error.code]).toEqual([query, 400, 'validation_error']);
    }
  });

  // Promise 05.27: a planner's workers, those that live, and its last model are shown; null and 0 before the first turn.
  test('tells how many workers a planner has, how many of them live, and its last model', async () => {
    const server = await startServer({
      scenario: scenario(
        planner({ tool_calls: [delegate('one'), delegate('hang about')] }),
        worker('one', { text: '1' }),
        worker('hang about', { hang: true }),
      ),
    });
    const session = (await create(server)).body;
    const shown = async () => {
      const [view] = (await server.call('GET', '/sessions')).body.sessions;
      return [view.active_model, view.last_model, view.worker_count, view.active_worker_count];
    };
    expect(await shown()).toEqual([null, null, 0, 0]);
    await server.submit(session, 'go');
    const opened = new Set<string>();
    await server.event('session.created', (e) => e.session_id !== session.id && opened.add(e.session_id).size === 2);
    await server.event('session.ended', (e) => opened.has(e.session_id));
    const { chosen_model } = (await server.event('route.decided', (e) => e.session_id === session.id)).payload;
    expect(await shown()).toEqual([null, chosen_model, 2, 1]);
    expect((await server.call('DELETE', `/sessions/${session.id}`)).status).toBe(200);
    expect(await shown()).toEqual([null, chosen_model, 2, 0]);
  });

  // Promise 04.21: A worker session takes no turn, no settings and no end.
  // Promise 05.4: workers are listed only when asked, with their parent fields; a flag that is none is refused.
  // Promise 05.12: delete, purge, submit and patch on a worker are session_is_worker.
  test('shows workers only when asked, and filters by status, workspace and parent', async () => {
    const server = await startServer({
      scenario: scenario(
        planner({ tool_calls: [delegate('one'), delegate('two')] }, { text: 'both done' }),
        worker('one', { text: '1' }),
        worker('two', { text: '2' }),
      ),
    });
    const session = await server.session();
    await server.run(session, 'go');
    expect(ids(await server.call('GET', '/sessions'))).toEqual([session.id]);
    const all = (await server.call('GET', '/sessions?include_workers=YES')).body.sessions;
    const workers = all.filter((s: Parsed) => s.id !== session.id);
    expect(workers).toHaveLength(2);
    for (const one of workers) {
      expect([one.is_worker, one.parent_session_id]).toEqual([true, session.id]);
      expect(one.parent_tool_use_id).toMatch(/^tu_/);
    }
    const children = await server.call('GET', `/sessions?parent_session_id=${session.id}`);
    expect(ids(children).sort()).toEqual(workers.map((s: Parsed) => s.id).sort());
    const listed = (await server.call('GET', `/sessions/${session.id}/workers`)).body;
    expect(listed.workers.map((w: Parsed) => w.worker_session_id).sort()).toEqual(ids(children).sort());
    expect(listed.next_cursor).toBe(null);
    expect(ids(await server.call('GET', '/sessions?status=ended&include_workers=true'))).toHaveLength(2);
    expect(ids(await server.call('GET', '/sessions?status=idle,running'))).toEqual([session.id]);
    const link = path.join(server.folder, 'link');
    fs.symlinkSync(server.workspace, link);
    expect(ids(await server.call('GET', `/sessions?workspace_path=${link}`))).toEqual([session.id]);
    expect(ids(await server.call('GET', '/sessions?workspace_path=/elsewhere'))).toEqual([]);

    const [one] = workers;
    for (const [method, url, body] of [
      ['DELETE', `/sessions/${one.id}`],
      ['DELETE', `/sessions/${one.id}?purge=true`],
      ['POST', `/sessions/${one.id}/turns`, { content: 'hi' }],
      ['PATCH', `/sessions/${one.id}`, { active_model: null }],
    ] as const) {
      const answer = await server.call(method, url, body);
      expect([method, answer.status, answer.body.error.code]).toEqual([method, 409, 'session_is_worker']);
    }
  });
});

describe('GET /sessions?q=', () => {
  test('finds sessions by their words, in pages, workers when asked, and refuses what is no search', async () => {
    const server = await startServer({
      scenario: scenario(
        [{ match: { user_contains: 'breaks' }, respond: { error: { error_class: 'auth', status: 401 } } }],
        planner({ tool_calls: [delegate('measure the login')] }, { text: 'done' }),
        worker('measure the login', { text: 'measured' }),
      ),
    });
    const login = await server.session();
    await server.submit(login, 'Speed up the LOGIN');
    await server.event('turn.completed', (e) => e.session_id === login.id);
    const broken = await server.session();
    await server.submit(broken, 'this breaks');
    await server.event('turn.failed', (e) => e.session_id === broken.id);
    const find = async (query: string) => ids(await server.call('GET', `/sessions?${query}`));
    expect(await find('q=login')).toEqual([login.id]);
    expect(await find('q=login&include_workers=true')).toHaveLength(2);
    expect(await find(`q=${broken.id.slice(-8)}`)).toEqual([broken.id]);
    expect(await find(`q=${encodeURIComponent(server.workspace)}&limit=1`)).toEqual([broken.id]);
    expect(await find('q=%25')).toEqual([]);
    expect(await find('failed=true')).toEqual([broken.id]);
    const { failure } = (await server.call('GET', `/sessions/${broken.id}`)).body;
    expect(failure).toMatchObject({ error_code: 'provider_error', error_class: 'auth', provider: 'anthropic' });
    for (const q of ['', '%20', 'x'.repeat(201), 'a%00b'])
      expect((await server.call('GET', `/sessions?q=${q}`)).body.error.code, q).toBe('validation_error');
  });
});

describe('PATCH /sessions/{id}', () => {
  // Promise 05.14: a model change in mid-turn is queued, the last wins, null clears.
  test('queues a model during a turn, the last one wins, and null clears', async () => {
    const server = await startServer({
      scenario: scenario(
        planner({ tool_calls: [call('write_file', { path: 'a.txt', content: 'x' })] }, { text: 'one' }),
        [{ match: { turn: 2 }, respond: { text: 'two' } }],
      ),
    });
    const session = await server.session();
    const patch = (body: object) => server.call('PATCH', `/sessions/${session.id}`, body);
    const turn = await server.submit(session, 'go');
    const asked = await server.event('tool.confirmation_requested');
    expect((await patch({ active_model: 'sonnet' })).body).toMatchObject({
      active_model: 'anthropic:claude-sonnet-4-6',
      swap_queued: true,
      swap_queued_until_turn: turn,
    });
    expect((await patch({ active_model: 'haiku' })).body.active_model).toBe('anthropic:claude-haiku-4-5');
    const { confirmation_request_id } = asked.payload as { confirmation_request_id: string };
    await server.call('POST', `/confirmations/${confirmation_request_id}`, { decision: 'approve' });
    await server.ended(turn);
    await server.run(session, 'next');
    expect(server.adapter.requests.map((r) => r.model.id)).toEqual([
      'anthropic:claude-opus-4-7',
      'anthropic:claude-opus-4-7',
      'anthropic:claude-haiku-4-5',
    ]);
    expect((await patch({ active_model: null })).body).toMatchObject({ active_model: null, swap_queued: false });
    expect((await server.call('GET', `/sessions/${session.id}`)).body.active_model).toBe(null);
  });

  test('needs something to change, and knows its faults', async () => {
    const server = await startServer();
    const session = await server.session();
    const code = async (id: string, body: object) => {
      const answer = await server.call('PATCH', `/sessions/${id}`, body);
      return [answer.status, answer.body.error.code];
    };
    expect(await code(session.id, {})).toEqual([400, 'validation_error']);
    expect(await code(session.id, { max_cost_usd: '0' })).toEqual([400, 'validation_error']);
    expect(await code(session.id, { active_model: 'nope' })).toEqual([400, 'model_not_configured']);
    expect(await code('sess_01ARZ3NDEKTSV4RRFFQ69G5FAV', { active_model: null })).toEqual([404, 'not_found']);
    expect((await server.call('PATCH', `/sessions/${session.id}`, { max_cost_usd: '0.50' })).body).toMatchObject({
      max_cost_usd: '0.5',
      on_reached: 'pause',
    });
    await server.call('DELETE', `/sessions/${session.id}`);
    expect(await code(session.id, { active_model: null })).toEqual([409, 'session_already_ended']);
  });
});

describe('DELETE /sessions/{id}', () => {
  // Promise 05.16: delete ends worker, then planner turn, then session; purge removes every read and no cost.
  test('ends turn and workers first; purging removes all reads and no cost', async () => {
    const server = await startServer({
      scenario: scenario(planner({ tool_calls: [delegate('hang about')] }), worker('hang about', { hang: true })),
    });
    const session = await server.session();
    await server.submit(session, 'go');
    const child = await server.event('llm.call_started', (e) => e.session_id !== session.id);
    const ended = await server.call('DELETE', `/sessions/${session.id}`);
    expect([ended.status, ended.body.purged, ended.body.id]).toEqual([200, false, session.id]);
    const order = server.events
      .filter((e) => ['turn.cancelled', 'session.ended'].includes(e.type))
      .map((e) => [e.type, e.session_id === session.id ? 'planner' : 'worker']);
    expect(order).toEqual([
      ['turn.cancelled', 'worker'],
      ['session.ended', 'worker'],
      ['turn.cancelled', 'planner'],
      ['session.ended', 'planner'],
    ]);
    expect((await server.call('DELETE', `/sessions/${session.id}`)).body.error.code).toBe('session_already_ended');
    const spent = (await server.call('GET', '/analytics/cost?group_by=none')).body.data;
    const purged = await server.call('DELETE', `/sessions/${session.id}?purge=true`);
    expect([purged.status, purged.body.purged, purged.body.purged_session_count]).toEqual([200, true, 2]);
    for (const id of [session.id, child.session_id]) {
      for (const rest of ['', '/messages', '/events', '/turns', '/workers', '/stream']) {
        const answer = await server.call('GET', `/sessions/${id}${rest}`);
        expect([rest, answer.status]).toEqual([rest, 404]);
      }
    }
    expect((await server.call('GET', '/analytics/cost?group_by=none')).body.data).toEqual(spent);
  });
});
