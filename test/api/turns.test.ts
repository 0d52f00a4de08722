// Turns, confirmations and history over HTTP.

import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import type { ToolFactory } from '#core/ports/tool-port.ts';
import { createHttpServer } from '#http/http-server.ts';
import { type ToolDefinition, toolText } from '#protocol/tool.ts';
import { createTraceRelay } from '#server/telemetry/trace-relay.ts';
import { createPriceVersionReader } from '#store/read/store.ts';
import { createReads } from '#store/sqlite/connection/reads.ts';
import { createAnalytics } from '#store/sqlite/report/analytics.ts';
import { type Parsed, startServer, type TestServer } from '../support/http.ts';
import { type ManualClock, manualClock } from '../support/manual-clock.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';

const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==';
const ANY_TURN = { version: 1, rules: [{ match: {}, times: 'inf', respond: { text: 'ok' } }] };
const HANGS = scenario(planner({ hang: true }));
const UNKNOWN = '01ARZ3NDEKTSV4RRFFQ69G5FAV';

const post = (server: TestServer, id: string, body: object, headers: Readonly<Record<string, string>> = {}) =>
  server.call('POST', `/sessions/${id}/turns`, body, headers);

/** Lets timers fire one after the other until the promise settles. */
async function passing<T>(clock: ManualClock, promise: Promise<T>): Promise<T> {
  let settled = false;
  const mark = () => {
    settled = true;
  };
  promise.then(mark, mark);
  while (!settled) {
    clock.next();
    await new Promise((resolve) => setImmediate(resolve));
  }
  return promise;
}

describe('submitting', () => {
  // Promise 05.6: the ids of the 202 are those of events and messages.
  test('answers 202 with the ids of every later event and message', async () => {
    const server = await startServer({ scenario: ANY_TURN });
    const session = await server.session();
    const answer = await post(server, session.id, { content: 'hello' });
    const { turn_id, user_message_id } = answer.body;
    expect(answer.status).toBe(202);
    expect(answer.headers.get('location')).toBe(`/sessions/${session.id}/turns/${turn_id}`);
    expect((await server.event('turn.started')).turn_id).toBe(turn_id);
    await server.ended(turn_id);
    const { messages } = (await server.call('GET', `/sessions/${session.id}/messages`)).body;
    expect(messages[0]).toMatchObject({ id: user_message_id, role: 'user', turn_id });
    const turn = await server.call('GET', `/sessions/${session.id}/turns/${turn_id}`);
    expect(turn.body).toMatchObject({ id: turn_id, status: 'completed', output: 'ok' });
    const { turns } = (await server.call('GET', `/sessions/${session.id}/turns`)).body;
    expect(turns).toEqual([turn.body]);
  });

  // Promise 04.21: A second turn is refused while one runs; workers take no turn and no settings.
  // Promise 05.7: of two concurrent submits one starts and the other names it.
  test('of two at once exactly one starts, the other names it', async () => {
    const server = await startServer({ scenario: HANGS });
    const session = await server.session();
    const answers = await Promise.all([
      post(server, session.id, { content: 'a' }),
      post(server, session.id, { content: 'b' }),
    ]);
    const [won, lost] = answers.sort((a, b) => a.status - b.status);
    expect([won!.status, lost!.status]).toEqual([202, 409]);
    expect(lost!.body.error).toMatchObject({
      code: 'turn_in_flight',
      details: { current_turn_id: won!.body.turn_id },
    });
  });

  // Promise 01.7: An unknown block in a message is refused and nothing is stored.
  // Promise 05.8: a bad message leaves no row and blocks nothing.
  test('a bad message changes nothing, and the next one is taken', async () => {
    const server = await startServer({ scenario: ANY_TURN });
    const session = await server.session();
    const rows = server.rows();
    for (const [content, code] of [
      [[], 'validation_error'],
      [[{ type: 'tool_use', id: 'tu_1', name: 'x', input: {} }], 'validation_error'],
      [[{ type: 'audio', data: '' }], 'validation_error'],
      ['   ', 'validation_error'],
      ['@haiku', 'override_missing_body'],
      ['@nope hi', 'unknown_alias'],
    ] as const) {
      const answer = await post(server, session.id, { content });
      expect([content, answer.status, answer.body.error.code]).toEqual([content, 400, code]);
    }
    expect(server.rows()).toEqual(rows);
    expect((await post(server, session.id, { content: 'hi' })).status).toBe(202);
  });

  // Promise 05.9: text and image reach the adapter in order.
  test('text and image reach the provider in order', async () => {
    const server = await startServer({ scenario: ANY_TURN });
    const session = await server.session();
    const image = { type: 'image', source: { kind: 'base64', data: PIXEL }, media_type: 'image/png' };
    const content = [{ type: 'text', text: 'what is this' }, image, { type: 'text', text: 'really' }];
    const { body } = await post(server, session.id, { content });
    await server.ended(body.turn_id);
    expect(server.adapter.requests[0]!.messages[0]!.content).toEqual(content);
  });

  test('half of a surrogate pair in a message is U+FFFD, so that every reader of JSON takes the answers', async () => {
    const server = await startServer({ scenario: scenario(planner({ text: 'ok' })) });
    const session = await server.session();
    const { turn_id } = (await post(server, session.id, { content: 'a \ud800 b \udc00 😀' })).body;
    await server.ended(turn_id);
    const { messages } = (await server.call('GET', `/sessions/${session.id}/messages`)).body;
    expect(messages[0].content).toEqual([{ type: 'text', text: 'a \uFFFD b \uFFFD 😀' }]);
    const listed = (await server.call('GET', '/sessions')).body;
    expect(listed.sessions[0].title).toBe('a \uFFFD b \uFFFD 😀');
    expect(JSON.stringify(listed)).not.toMatch(/\\ud[89a-f]/);
  });

  test('a NUL in what people and models write is U+FFFD wherever it is shown, and in no column of text', async () => {
    const said = scenario(planner({ tool_calls: [delegate('look\0here\nand there')] }), worker('here', { hang: true }));
    const server = await startServer({ scenario: said, files: { 'AGENTS.md': 'be\0brief' } });
    const session = await server.session();
    const { turn_id } = (await post(server, session.id, { content: 'he\0llo' })).body;
    const started = await server.event('llm.call_started', (event) => event.session_id !== session.id);
    const reason = { reason: 'no\0more' };
    await server.call('POST', `/sessions/${session.id}/turns/${turn_id}/cancel`, reason);
    await server.ended(turn_id);
    const { messages } = (await server.call('GET', `/sessions/${session.id}/messages`)).body;
    expect(messages[0].content).toEqual([{ type: 'text', text: 'he\uFFFDllo' }]);
    expect((await server.call('GET', `/sessions/${session.id}`)).body.title).toBe('he\uFFFDllo');
    expect((await server.call('GET', `/sessions/${started.session_id}`)).body).toMatchObject({
      title: 'look\uFFFDhere',
      task: 'look\uFFFDhere\nand there',
    });
    expect(server.adapter.requests[1]!.system_prompt_volatile).toContain('look\uFFFDhere');
    expect((await server.event('turn.cancelled', (event) => event.session_id === session.id)).payload).toMatchObject({
      reason_detail: 'no\uFFFDmore',
    });
    const tables = server.db.db.prepare("SELECT name FROM sqlite_master WHERE type = 'table'").pluck().all();
    const held = tables.flatMap((table) =>
      server.db.db
        .prepare(`SELECT * FROM ${table}`)
        .all()
        .flatMap((row) => Object.values(row as object)),
    );
    expect(held.filter((value) => typeof value === 'string' && value.includes('\0'))).toEqual([]);
  });

  test("a worker's session says what it was told to do, in the view and as its title", async () => {
    const task = 'Rename foo to bar.\nThen run the tests.';
    const said = scenario(
      planner({ tool_calls: [delegate(task)] }, { text: 'ok' }),
      worker('Rename', { text: 'done' }),
    );
    const server = await startServer({ scenario: said });
    const session = await server.session();
    await server.run(session, 'go');
    const { sessions } = (await server.call('GET', '/sessions?include_workers=true')).body;
    expect(sessions.map((s: Parsed) => [s.title, s.task])).toEqual([
      ['Rename foo to bar.', task],
      ['go', null],
    ]);
  });

  // Promise 05.24: an interrupting submit with a bad message leaves the running turn alone.
  test('an interrupting submit with a bad message leaves the running turn alone', async () => {
    const server = await startServer({ scenario: HANGS });
    const session = await server.session();
    const turn = await server.submit(session, 'go');
    await server.event('llm.call_started');
    for (const content of [[], '@nope hi']) {
      expect((await post(server, session.id, { content, if_busy: 'interrupt' })).status).toBe(400);
    }
    expect((await server.call('GET', `/sessions/${session.id}`)).body).toMatchObject({
      current_turn_id: turn,
      current_turn_status: 'in_flight',
    });
  });

  // Promise 05.10: all providers out: 503 with what was tried, one route.decided, session idle.
  test('with every provider out it is 503 with what was tried, and nothing but the decision is kept', async () => {
    const refused = { match: {}, times: 'inf', respond: { error: { error_class: 'auth' } } };
    const server = await startServer({ scenario: { version: 1, rules: [refused] } });
    const session = await server.session({ initial_active_model: null });
    expect((await server.run(session, 'one')).status).toBe('failed');
    const before = server.events.length;
    const rows = server.rows();
    const answer = await post(server, session.id, { content: 'two' });
    expect([answer.status, answer.body.error.code]).toEqual([503, 'routing_failed']);
    expect(answer.body.error.details.tried.length).toBeGreaterThan(0);
    expect(server.events.slice(before).map((e) => e.type)).toEqual(['route.decided']);
    expect(server.rows()).toEqual({ ...rows, events: rows.events! + 1 });
    expect((await server.call('GET', `/sessions/${session.id}`)).body.status).toBe('idle');
    expect((await server.call('GET', '/models')).body.models.map((m: Parsed) => m.availability)).toContain(
      'provider_unavailable',
    );
  });

  // Promise 05.10: a sticky text-only model with an image: 422.
  test('an explicit model that cannot take the message is 422, and no other is taken instead', async () => {
    const server = await startServer({ scenario: ANY_TURN });
    const textOnly = await server.session({ initial_active_model: 'gpt' });
    const image = { type: 'image', source: { kind: 'base64', data: PIXEL }, media_type: 'image/png' };
    const refused = await post(server, textOnly.id, { content: [image] });
    expect([refused.status, refused.body.error.code]).toEqual([422, 'explicit_model_rejected']);
    const types = (await server.call('GET', `/sessions/${textOnly.id}/events`)).body.events.map((e: Parsed) => e.type);
    expect(types).toEqual(['session.created', 'route.decided']);
    expect((await server.call('GET', `/sessions/${textOnly.id}`)).body.status).toBe('idle');
    expect((await server.call('GET', `/sessions/${textOnly.id}/messages`)).body.messages).toEqual([]);
  });

  // Promise 05.18: 0.1 and 0.2 are "0.3".
  test('costs are decimal strings that add up exactly', async () => {
    const server = await startServer({
      scenario: {
        version: 1,
        rules: [
          { match: { turn: 1 }, respond: { text: 'a', usage: { input_tokens: 0, output_tokens: 20_000 } } },
          { match: { turn: 2 }, respond: { text: 'b', usage: { input_tokens: 0, output_tokens: 40_000 } } },
        ],
      },
    });
    const session = await server.session({ initial_active_model: 'haiku' });
    await server.run(session, 'one');
    await server.run(session, 'two');
    const { turns } = (await server.call('GET', `/sessions/${session.id}/turns`)).body;
    expect(turns.map((t: Parsed) => t.total_cost_usd)).toEqual(['0.2', '0.1']);
    expect((await server.call('GET', `/sessions/${session.id}`)).body.cost_so_far_usd).toBe('0.3');
  });
});

describe('Prefer: wait', () => {
  test('answers with the finished turn, or with 202 when time is up', async () => {
    const server = await startServer({ scenario: ANY_TURN });
    const session = await server.session();
    const done = await post(server, session.id, { content: 'hi' }, { prefer: 'respond-async, wait=30' });
    expect([done.status, done.body.status, done.body.output]).toEqual([200, 'completed', 'ok']);

    const clock = manualClock();
    const slow = await startServer({ clock, scenario: HANGS });
    const other = await slow.session();
    const waiting = post(slow, other.id, { content: 'hi' }, { prefer: 'wait=5' });
    await slow.event('llm.call_started');
    const before = clock.now();
    expect((await passing(clock, waiting)).status).toBe(202);
    expect(clock.now() - before).toBe(5000);
    await slow.call('POST', `${(await waiting).headers.get('location')}/cancel`);
  });
});

describe('Idempotency-Key', () => {
  const key = { 'idempotency-key': 'key-1' };

  // Promise 05.17: an idempotency key replays the first answer, another body is 422.
  test('replays the first answer without a second effect, for sessions and turns', async () => {
    const server = await startServer({ scenario: ANY_TURN });
    const body = { workspace_path: server.workspace, initial_active_model: 'opus' };
    const first = await server.call('POST', '/sessions', body, key);
    const second = await server.call('POST', '/sessions', body, key);
    expect([second.status, second.body]).toEqual([201, first.body]);
    expect(second.headers.get('location')).toBe(first.headers.get('location'));
    expect([first, second].map((a) => a.headers.get('idempotency-replayed'))).toEqual([null, 'true']);

    const turn = await post(server, first.body.id, { content: 'hi' }, key);
    await server.ended(turn.body.turn_id);
    const again = await post(server, first.body.id, { content: 'hi' }, key);
    expect([again.status, again.body]).toEqual([202, turn.body]);
    expect(again.headers.get('idempotency-replayed')).toBe('true');
    const waited = await post(server, first.body.id, { content: 'hi' }, { ...key, prefer: 'wait=5' });
    expect([waited.status, waited.body.id]).toEqual([200, turn.body.turn_id]);
    expect(server.rows().turns).toBe(1);
    const other = await post(server, first.body.id, { content: 'ho' }, key);
    expect([other.status, other.body.error.code]).toEqual([422, 'idempotency_key_reused']);
  });

  test('an answer that was stored behind the look for it is replayed, and nothing is done twice', async () => {
    const server = await startServer({ scenario: ANY_TURN });
    // A second door to the same engine, which knows nothing of what runs behind the first.
    const door = createHttpServer({
      engine: server.engine,
      analytics: createAnalytics(server.db.reader),
      priceVersions: createPriceVersionReader(createReads(server.db.reader)),
      metrics: () => '',
      settings: () => ({ data_dir: '', keys_file: '', files: [], database: '', keys: [], settings: [] }),
      traces: createTraceRelay(server.engine.bus),
      version: '0.0.0-test',
      makeSecret: () => '',
      draining: () => false,
    });
    await door.listen({ host: '127.0.0.1', port: 0 });
    onTestFinished(() => door.close());
    const url = `http://127.0.0.1:${(door.server.address() as AddressInfo).port}/sessions`;
    const elsewhere = async (key: Readonly<Record<string, string>>, body: object) => {
      const headers = { ...key, 'content-type': 'application/json' };
      const response = await fetch(url, { method: 'POST', headers, body: JSON.stringify(body) });
      return { status: response.status, body: (await response.json()) as Parsed };
    };
    const { store } = server.engine;
    const look = store.idempotency.bind(store);
    const body = { workspace_path: server.workspace };
    for (const [name, then, expected] of [
      ['key-1', body, [201, null]],
      ['key-2', { ...body, approval_mode: 'strict' }, [422, 'idempotency_key_reused']],
    ] as const) {
      const key = { 'idempotency-key': name };
      let first: Awaited<ReturnType<typeof elsewhere>> | null = null;
      const slow = vi.spyOn(store, 'idempotency').mockImplementationOnce(async (...asked) => {
        const found = await look(...asked);
        first = await elsewhere(key, body);
        return found;
      });
      const second = await server.call('POST', '/sessions', then, key);
      slow.mockRestore();
      expect([second.status, second.body.error?.code ?? null]).toEqual(expected);
      expect(first!.status).toBe(201);
      if (second.status === 201) expect(second.body).toEqual(first!.body);
      expect(second.headers.get('idempotency-replayed')).toBe(second.status === 201 ? 'true' : null);
    }
    expect(server.rows().sessions).toBe(2);
  });

  test('while the first runs the second is told so; an error frees the key', async () => {
    let open = () => {};
    const gate = new Promise<void>((resolve) => {
      open = resolve;
    });
    const definition: ToolDefinition = {
      name: 'stubborn',
      description: 'ends when it likes',
      input_schema: { type: 'object' },
      side_effects: 'none',
      requires_workspace: false,
      path_fields: [],
      timeout_seconds: null,
    };
    const stubborn: ToolFactory = () => ({
      definition,
      execute: async () => {
        await gate;
        return toolText('done');
      },
      cancel: async () => false,
    });
    const server = await startServer({
      tools: [stubborn],
      scenario: scenario(planner({ tool_calls: [call('stubborn', {})] }), [
        { match: {}, times: 'inf', respond: { text: 'ok' } },
      ]),
    });
    const session = await server.session();
    const turnId = await server.submit(session, 'go');
    await server.event('tool.called');
    // The first request waits for the running turn's end; until then its key is taken.
    const body = { content: 'hi', if_busy: 'interrupt' };
    const first = post(server, session.id, body, key);
    const running = server.engine.locks.turn(turnId)!;
    if (!running.scope.signal.aborted) await once(running.scope.signal, 'abort');
    const second = await post(server, session.id, body, key);
    expect([second.status, second.body.error.code]).toEqual([409, 'idempotency_in_progress']);
    open();
    expect((await first).status).toBe(202);
    const free = { 'idempotency-key': 'key-2' };
    await server.ended((await first).body.turn_id);
    expect((await post(server, session.id, { content: '@nope x' }, free)).status).toBe(400);
    expect((await post(server, session.id, { content: 'fine' }, free)).status).toBe(202);
  });

  test('must be printable and of some length, and ends after a day', async () => {
    const clock = manualClock();
    const server = await startServer({ clock });
    const body = { workspace_path: server.workspace };
    for (const bad of ['x'.repeat(256), 'tab\there']) {
      const answer = await server.call('POST', '/sessions', body, { 'idempotency-key': bad });
      expect([answer.status, answer.body.error.details.issues[0].path]).toEqual([400, 'Idempotency-Key']);
    }
    const first = await server.call('POST', '/sessions', body, key);
    clock.advance(24 * 3_600_000 - 1);
    expect((await server.call('POST', '/sessions', body, key)).body.id).toBe(first.body.id);
    clock.advance(1);
    expect((await server.call('POST', '/sessions', body, key)).body.id).not.toBe(first.body.id);
  });
});

describe('concluding', () => {
  // Promise 20.18: twice is once: 202, then 200 with `applied: false`; an ended turn is 409.
  test('is 202, then 200 without an effect, then 409; unknown is 404', async () => {
    const asks = planner({ tool_calls: [call('write_file', { path: 'a.txt', content: 'x' })] }, { text: 'without it' });
    const server = await startServer({ scenario: scenario(asks) });
    const session = await server.session();
    const turn = await server.submit(session, 'go');
    await server.event('tool.confirmation_requested');
    const conclude = (id = turn) => server.call('POST', `/sessions/${session.id}/turns/${id}/conclude`, {});
    const [first, second] = await Promise.all([conclude(), conclude()]);
    expect([first!.status, second!.status].sort()).toEqual([200, 202]);
    expect([first!, second!].map(({ status, body }) => [status, body]).sort()).toEqual([
      [200, { turn_id: turn, applied: false }],
      [202, { turn_id: turn, applied: true }],
    ]);
    expect(await server.ended(turn)).toMatchObject({ status: 'completed', output: 'without it' });
    expect((await server.event('turn.completed')).payload).toMatchObject({ concluded: true });
    const late = await conclude();
    expect([late.status, late.body.error.code]).toEqual([409, 'turn_not_running']);
    expect((await conclude(UNKNOWN)).status).toBe(404);
  });
});

describe('cancelling', () => {
  // Promise 05.11: cancelling twice is 202 twice with one turn.cancelled, then 409; unknown is 404.
  test('twice is 202 twice and one turn.cancelled; later it is too late', async () => {
    const server = await startServer({ scenario: HANGS });
    const session = await server.session();
    const turn = await server.submit(session, 'go');
    await server.event('llm.call_started');
    const cancel = (id = turn) =>
      server.call('POST', `/sessions/${session.id}/turns/${id}/cancel`, { reason: 'enough' });
    const answers = await Promise.all([cancel(), cancel()]);
    expect(answers.map((a) => a.status)).toEqual([202, 202]);
    expect(answers[0]!.body).toEqual({ turn_id: turn, cancellation_initiated: true });
    await server.ended(turn);
    expect(server.events.filter((e) => e.type === 'turn.cancelled')).toHaveLength(1);
    const late = await cancel();
    expect([late.status, late.body.error.code]).toEqual([409, 'turn_already_completed']);
    const unknown = await cancel(UNKNOWN);
    expect([unknown.status, unknown.body.error.details]).toEqual([404, { resource: 'turn' }]);
  });

  // Promise 05.12: a worker is cancelled by its own session, the planner completes.
  test("a worker's turn by its own session ends the worker, the planner goes on", async () => {
    const server = await startServer({
      scenario: scenario(
        planner({ tool_calls: [delegate('hang about')] }, { text: 'went on' }),
        worker('hang about', { hang: true }),
      ),
    });
    const session = await server.session();
    const turn = await server.submit(session, 'go');
    const { session_id, turn_id } = await server.event('llm.call_started', (e) => e.session_id !== session.id);
    const answer = await server.call('POST', `/sessions/${session_id}/turns/${turn_id}/cancel`);
    expect(answer.status).toBe(202);
    expect((await server.ended(turn)).status).toBe('completed');
    expect((await server.call('GET', `/sessions/${session_id}`)).body.disposition).toBe('cancelled');
  });

  test('a turn that has ended cannot be resumed', async () => {
    const server = await startServer({ scenario: ANY_TURN });
    const session = await server.session();
    const turn = await server.run(session, 'hi');
    const answer = await server.call('POST', `/sessions/${session.id}/turns/${turn.id}/resume`);
    expect([answer.status, answer.body.error.code]).toEqual([409, 'turn_not_interrupted']);
  });
});

describe('confirmations', () => {
  const WRITES = scenario(
    planner({ tool_calls: [call('write_file', { path: 'a.txt', content: 'x' })] }, { text: 'done' }),
  );

  // Promise 05.13: the first answer wins, repeats are no news, others 409, unknown 404.
  test('the first answer wins, the same again is no news, another one is refused', async () => {
    const server = await startServer({ scenario: WRITES });
    const session = await server.session();
    const turn = await server.submit(session, 'go');
    const asked = (await server.event('tool.confirmation_requested')).payload as Parsed;
    const url = `/confirmations/${asked.confirmation_request_id}`;
    for (const body of [{ decision: 'allow' }, { decision: 'approve', scope: 'session' }, { decision: 'modify' }]) {
      expect((await server.call('POST', url, body)).body.error.code).toBe('validation_error');
    }
    expect((await server.call('GET', url)).body).toMatchObject({
      confirmation_request_id: asked.confirmation_request_id,
      decision: null,
      input: { path: 'a.txt', content: 'x' },
    });
    const approve = { decision: 'approve' };
    expect((await server.call('POST', url, approve)).body).toEqual({
      confirmation_request_id: asked.confirmation_request_id,
      decision: 'approve',
      scope: 'once',
      applied: true,
    });
    expect((await server.call('POST', url, approve)).body.applied).toBe(false);
    const late = await server.call('POST', url, { decision: 'reject' });
    expect([late.status, late.body.error.details.decision]).toEqual([409, 'approve']);
    await server.ended(turn);
    const list = (status: string) => server.call('GET', `/confirmations?session_id=${session.id}&status=${status}`);
    expect((await list('pending')).body).toEqual({ confirmations: [], next_cursor: null });
    expect((await list('resolved')).body.confirmations).toHaveLength(1);
    expect((await server.call('POST', `/confirmations/${UNKNOWN}`, approve)).body.error).toMatchObject({
      code: 'not_found',
      details: { resource: 'confirmation' },
    });
  });

  // Promise 05.13: after the time limit the answer is 409 with decision timeout.
  test('after the time is up the answer is that it timed out', async () => {
    const clock = manualClock();
    const server = await startServer({ clock, scenario: WRITES });
    const session = await server.session();
    const turn = await server.submit(session, 'go');
    const asked = (await server.event('tool.confirmation_requested')).payload as Parsed;
    await passing(clock, server.event('tool.confirmation_resolved'));
    const late = await server.call('POST', `/confirmations/${asked.confirmation_request_id}`, { decision: 'approve' });
    expect([late.status, late.body.error.code]).toEqual([409, 'confirmation_already_resolved']);
    expect(late.body.error.details.decision).toBe('timeout');
    await server.ended(turn);
  });
});

describe('history', () => {
  // Promise 05.15: 250 messages walked by before and by after, each once.
  test('250 messages are walked by before and by after, each once', async () => {
    const server = await startServer({ scenario: ANY_TURN });
    const session = await server.session();
    for (let i = 0; i < 125; i += 1) await server.run(session, `message ${i}`);
    const page = async (query: string) => (await server.call('GET', `/sessions/${session.id}/messages?${query}`)).body;
    const all: string[] = (await page('limit=200&before=7ZZZZZZZZZZZZZZZZZZZZZZZZZ')).messages.map((m: Parsed) => m.id);
    let before = '';
    const down: string[] = [];
    for (let more = true; more; ) {
      const got = await page(`limit=60${before}`);
      down.unshift(...got.messages.map((m: Parsed) => m.id));
      expect(got.has_more_after).toBe(before !== '');
      before = `&before=${down[0]}`;
      more = got.has_more_before;
    }
    expect(down).toHaveLength(250);
    expect(down).toEqual([...new Set(down)].sort());
    expect(all).toEqual(down.slice(50));
    const up = [down[0]!];
    for (let more = true; more; ) {
      const got = await page(`limit=60&after=${up.at(-1)}`);
      expect(got.has_more_before).toBe(true);
      up.push(...got.messages.map((m: Parsed) => m.id));
      more = got.has_more_after;
    }
    expect(up).toEqual(down);
    expect((await server.call('GET', `/sessions/${session.id}/messages?before=x`)).status).toBe(400);
  });

  test('events are filtered, bounded and paged', async () => {
    const server = await startServer({ scenario: ANY_TURN });
    const session = await server.session();
    await server.run(session, 'hi');
    const url = `/sessions/${session.id}/events`;
    const types = async (query: string) =>
      (await server.call('GET', `${url}?${query}`)).body.events.map((e: Parsed) => e.type);
    const all = server.events.map((e) => e.type);
    expect(await types('')).toEqual(all);
    expect(await types('types=turn.started,turn.completed')).toEqual(['turn.started', 'turn.completed']);
    const [second, fourth] = [server.events[1]!.id, server.events[3]!.id];
    expect(await types(`since=${second}&until=${fourth}`)).toEqual(all.slice(2, 4));
    const first = await server.call('GET', `${url}?limit=4`);
    const rest = await types(`limit=1000&cursor=${first.body.next_cursor}`);
    expect([...first.body.events.map((e: Parsed) => e.type), ...rest]).toEqual(all);
    for (const bad of [
      'types=text.delta',
      'types=made.up',
      'since=x',
      `types=turn.started&cursor=${first.body.next_cursor}`,
    ]) {
      expect([bad, (await server.call('GET', `${url}?${bad}`)).status]).toEqual([bad, 400]);
    }
  });
});
