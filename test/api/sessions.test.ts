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
    for (const model of ['nope', 'claude-opus-4-7']) {
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

describe('PATCH /sessions/{id}', () => {
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
