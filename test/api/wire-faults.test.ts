// What goes wrong on a wire, seen from outside: garbled arguments, calls without result, cut streams, talkative errors.
import fs from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { describe, expect, test } from 'vitest';
import { tempFolder } from '../support/engine.ts';
import type { FakeAnswer, FakeCall } from '../support/fake-provider.ts';
import type { Parsed } from '../support/http.ts';
import { type RealOptions, type RealServer, startReal, startStrictFake } from '../support/real-server.ts';
import { KEYS, registryAt, WIRES } from '../support/registry-at.ts';

const MODEL = { anthropic: 'opus', openai: 'gpt' } as const;
const NO_RESULT = 'Tool call was interrupted before it produced a result.';

async function world(answer: (call: FakeCall) => FakeAnswer | Promise<FakeAnswer>) {
  const folder = tempFolder();
  const workspace = path.join(folder, 'workspace');
  const data = path.join(folder, 'data');
  fs.mkdirSync(workspace);
  fs.writeFileSync(path.join(workspace, 'a.txt'), 'alpha\n');
  const fake = await startStrictFake(answer);
  const start = (rest: Partial<RealOptions> = {}) => startReal({ folder: data, registry: registryAt(fake), ...rest });
  return { folder, workspace, data, fake, start };
}
const submit = async (server: RealServer, session: string, content: string): Promise<string> =>
  (await server.call('POST', `/sessions/${session}/turns`, { content })).body.turn_id;
async function cancel(server: RealServer, session: string, turn: string): Promise<void> {
  expect((await server.call('POST', `/sessions/${session}/turns/${turn}/cancel`, {})).status).toBe(202);
  await server.event('turn.cancelled', (e) => e.turn_id === turn);
}

describe.each(WIRES)('over the %s wire', (wire) => {
  const model = MODEL[wire];

  // Promise 11.7: garbled arguments run nothing and are answered with an error, also across a restart.
  test('arguments that are no JSON object run nothing and are answered with an error, also after a restart', async () => {
    const calls = [
      { name: 'write_file', json: '{"path": "made.txt", "content": ' },
      { name: 'shell', input: { command: 'echo hi' } },
    ];
    const { workspace, fake, start } = await world((call) =>
      call.results.length === 0 ? { tool_calls: calls } : { text: 'noted' },
    );
    // The second call waits for a person, so the turn is cut while the first one is already settled.
    const config = { tool_confirmation: { per_tool: { shell: 'prompt' as const } } };
    const first = await start({ config });
    const session = await first.session(workspace, model);
    await submit(first, session, 'go');
    await first.event('tool.confirmation_requested');
    await first.close();

    const second = await start({ config });
    const { payload } = await second.event('tool.confirmation_requested');
    const { confirmation_request_id } = payload as { confirmation_request_id: string };
    const decided = await second.call('POST', `/confirmations/${confirmation_request_id}`, { decision: 'approve' });
    expect(decided.status).toBe(200);
    await second.event('turn.completed');
    expect(fs.existsSync(path.join(workspace, 'made.txt'))).toBe(false);
    expect(fake.calls).toHaveLength(2);
    const [garbled, ran] = fake.calls[1]!.results;
    expect(garbled).toMatch(/\$: invalid_json: /);
    expect(ran).toContain('hi');
    if (wire === 'openai') expect(garbled).toMatch(/^\[tool error\] /);
    else expect(fake.calls[1]!.text.match(/"is_error":true/g)).toHaveLength(1);

    const { events } = (await second.call('GET', `/sessions/${session}/events?limit=200`)).body;
    const invalid = events.filter((e: Parsed) => e.type === 'tool.input_invalid');
    expect(invalid.map((e: Parsed) => [e.payload.tool_name, e.payload.validation_errors])).toEqual([
      ['write_file', [expect.stringMatching(/^\$: invalid_json: /)]],
    ]);
    const called = events.filter((e: Parsed) => e.type === 'tool.called').map((e: Parsed) => e.payload.tool_name);
    expect(called).toEqual(['shell']);
  });

  test('arguments nested deeper than anything can store are answered with an error, and the call is paid for', async () => {
    const json = `{"command":${'['.repeat(9000)}${']'.repeat(9000)}}`;
    const { workspace, start } = await world((call) =>
      call.results.length === 0
        ? { tool_calls: [{ name: 'shell', json }], usage: { input: 1000, output: 100 } }
        : { text: 'noted', usage: { input: 1000, output: 100 } },
    );
    const server = await start();
    const session = await server.session(workspace, model);
    expect(await server.turn(session, 'go')).toMatchObject({ status: 'completed', output: 'noted', llm_call_count: 2 });
    const { events } = (await server.call('GET', `/sessions/${session}/events?limit=200`)).body;
    const of = (type: string) => events.filter((e: Parsed) => e.type === type).map((e: Parsed) => e.payload);
    expect(of('tool.input_invalid')).toMatchObject([
      {
        tool_name: 'shell',
        validation_errors: [expect.stringMatching(/^\$: invalid_json: is nested deeper than 100/)],
      },
    ]);
    expect(of('llm.call_failed')).toEqual([]);
    expect(of('llm.call_completed').map((p: Parsed) => [p.input_tokens, p.output_tokens])).toEqual([
      [1000, 100],
      [1000, 100],
    ]);
  });

  // Promise 01.15: a turn cancelled while two tools run answers both, and the next request is accepted.
  // Promise 10.17: after a cancel in mid-tool a strict provider accepts the next request.
  test('a turn cancelled while its tools run leaves a history that the provider accepts', async () => {
    const { workspace, fake, start } = await world((call) =>
      call.user === 'one'
        ? { text: 'Both.', tool_calls: [0, 1].map(() => ({ name: 'shell', input: { command: 'sleep 60' } })) }
        : { text: 'fine' },
    );
    const server = await start();
    const session = await server.session(workspace, model);
    const turn = await submit(server, session, 'one');
    await server.event('tool.called');
    await cancel(server, session, turn);
    const results = (await server.call('GET', `/sessions/${session}/messages`)).body.messages.slice(2);
    expect(results.map((m: Parsed) => [m.role, m.content[0].is_error])).toEqual(Array(2).fill(['tool', true]));
    expect(await server.turn(session, 'two')).toMatchObject({ status: 'completed', output: 'fine' });
    const { messages } = fake.calls[1]!.body as { messages: Parsed[] };
    const answered =
      wire === 'anthropic'
        ? messages[2].content.slice(0, 2).map((b: Parsed) => b.is_error)
        : messages.slice(3, 5).map((m) => m.content.startsWith('[tool error] '));
    expect(answered).toEqual([true, true]);
  });

  // Promise 11.13: a stored call without result is sent with a synthetic one that both providers accept.
  test('a call whose result is missing from the store is sent with one that says so', async () => {
    const { workspace, data, fake, start } = await world((call) =>
      call.user === 'one' && call.results.length === 0
        ? { tool_calls: [{ name: 'read_file', input: { path: 'a.txt' } }] }
        : { text: 'fine' },
    );
    const first = await start();
    const session = await first.session(workspace, model);
    await first.turn(session, 'one');
    await first.close();
    const db = new Database(path.join(data, 'metis.db'));
    db.exec("UPDATE tool_calls SET result_message_id = NULL; DELETE FROM messages WHERE role = 'tool'");
    db.close();

    const second = await start();
    expect((await second.turn(session, 'two')).status).toBe('completed');
    const { text } = fake.calls.at(-1)!;
    expect(text).toContain(wire === 'anthropic' ? NO_RESULT : `[tool error] ${NO_RESULT}`);
    if (wire === 'anthropic') expect(text).toContain('"is_error":true');
    expect(second.log.filter((line) => line.level === 'error').map((line) => line.msg)).toEqual([
      'tool calls without a stored result',
    ]);
  });

  test("cancelling a planner closes the connections of its workers' calls, and its own turn ends last", async () => {
    const { workspace, fake, start } = await world((call) => {
      if (call.system.includes('## Task')) return { text: 'thinking about it', after: 3, ending: 'stall' };
      const tasks = ['first', 'second', 'third'].map((task) => ({ name: 'delegate', input: { tier: 'fast', task } }));
      return { tool_calls: tasks };
    });
    const server = await start();
    const session = await server.session(workspace, model);
    const turn = await submit(server, session, 'go');
    const heard = () => server.deltas.filter(({ delta }) => delta.type === 'text.delta');
    await server.until(() => (new Set(heard().map((d) => d.session_id)).size === 3 ? true : undefined));
    await cancel(server, session, turn);
    const ends = server.events.filter((e) => e.type === 'turn.cancelled').map((e) => e.session_id);
    expect(ends).toHaveLength(4);
    expect(ends.at(-1)).toBe(session);
    expect(fake.calls).toHaveLength(4);
    await Promise.all(fake.calls.slice(1).map((call) => call.disconnected));
  });

  // Promise 01.25: a call cut before any byte is a failed one without cost.
  test('a call cut before its first byte is a failed one and costs nothing', async () => {
    const { workspace, fake, start } = await world(async (call) => {
      if (call.user === 'one') await call.disconnected;
      return { text: 'fine' };
    });
    const server = await start();
    const session = await server.session(workspace, model);
    const turn = await submit(server, session, 'one');
    await server.event('llm.call_started');
    await cancel(server, session, turn);
    const failed = server.events.filter((e) => e.type.startsWith('llm.call_') && e.type !== 'llm.call_started');
    expect(failed.map((e) => [e.type, (e.payload as Parsed).error_class])).toEqual([['llm.call_failed', 'cancelled']]);
    expect((await server.call('GET', `/sessions/${session}`)).body.cost_so_far_usd).toBe('0');
    await server.turn(session, 'two');
    expect(fake.calls.at(-1)!.user).toBe('two');
  });
});

// Promise 01.15: a call cut inside a tool call is stored cancelled, runs nothing and is not sent again.
// Promise 01.25: a call cut in mid-stream costs what was reported.
test('a call cut in mid-stream, inside a tool call, costs what was reported, runs nothing and is not sent again', async () => {
  const { workspace, fake, start } = await world((call) =>
    call.user === 'one'
      ? {
          text: 'x'.repeat(200),
          tool_calls: [{ name: 'write_file', input: { path: 'made.txt', content: 'y'.repeat(200) } }],
          delta: 100,
          usage: { input: 1000, cached: 200, creation: 40 },
          after: 7,
          ending: 'stall',
        }
      : { text: 'fine' },
  );
  const server = await start();
  const session = await server.session(workspace, 'haiku');
  const turn = await submit(server, session, 'one');
  await server.until(() => server.deltas.find(({ delta }) => delta.type === 'tool.use_input_delta'));
  await cancel(server, session, turn);
  const { payload } = await server.event('llm.call_completed');
  // 1000 at 1, 200 at 0.1, 40 at 1.25 and the 310 characters heard, so 78 tokens, at 5 US dollars per million.
  expect(payload).toMatchObject({
    stop_reason: 'cancelled',
    error_class: 'cancelled',
    input_tokens: 1000,
    cached_input_tokens: 200,
    cache_creation_input_tokens: 40,
    output_tokens: 78,
    usage_estimated: true,
    cost_usd: '0.00146',
  });
  const { body } = await server.call('GET', `/sessions/${session}`);
  expect(body.cost_so_far_usd).toBe('0.00146');
  const { messages } = (await server.call('GET', `/sessions/${session}/messages`)).body;
  expect(messages.map((m: Parsed) => [m.role, m.metadata.status])).toEqual([
    ['user', 'complete'],
    ['assistant', 'cancelled'],
  ]);
  expect(server.events.filter((e) => e.type.startsWith('tool.'))).toEqual([]);
  expect(fs.existsSync(path.join(workspace, 'made.txt'))).toBe(false);
  await server.turn(session, 'two');
  expect(fake.calls.at(-1)!.text).not.toMatch(/xxx|write_file","input/);
});

describe.each(WIRES)('an error of the %s provider that repeats what it should not', (wire) => {
  const LEAKS = [KEYS[wire], 'sk-ant-api03-abcdefgh12345678', 'somebody@example.org', '/home/x/secret'];
  const message = `bad key ${LEAKS.join(' or ')}; Authorization: Bearer ${KEYS[wire]}`;
  const refusal = { status: 401, error: { type: 'authentication_error', message } };
  const busy = { status: 529, headers: { 'retry-after-ms': '1' }, error: { type: 'overloaded_error', message } };
  const broken =
    wire === 'anthropic'
      ? [
          { type: 'message_start', message: { model: 'm', usage: { input_tokens: 5, output_tokens: 1 } } },
          { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
          { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'well' } },
          { type: 'error', error: { type: 'api_error', message } },
        ]
      : [{ choices: [{ index: 0, delta: { content: 'well' } }] }, { error: { code: 500, message } }];
  const inStream = { raw: broken.map((event) => `data: ${JSON.stringify(event)}\n\n`) };

  /** Everything the server has said or kept. */
  async function traces(server: RealServer, session: string, data: string): Promise<Record<string, string>> {
    const paths = ['', '/events?include_worker_sessions=true&limit=200', '/messages', '/turns', '/workers'];
    const http = await Promise.all(paths.map((rest) => server.call('GET', `/sessions/${session}${rest}`)));
    expect(http.map((answer) => answer.status)).toEqual(paths.map(() => 200));
    const all = `/sessions/${session}/events?include_worker_sessions=true&since=${server.events[0]!.id}`;
    const stream = await fetch(`${server.url}${all}`, { headers: { accept: 'text/event-stream' } });
    // Closing the server ends the stream.
    await server.close();
    const said = { http: JSON.stringify(http.map((answer) => answer.body)), stream: await stream.text() };
    const files = fs.readdirSync(data).filter((name) => name.startsWith('metis.db'));
    const kept = Object.fromEntries(files.map((name) => [name, fs.readFileSync(path.join(data, name), 'latin1')]));
    const { log, events, deltas } = server;
    return {
      ...said,
      ...kept,
      log: JSON.stringify(log),
      events: JSON.stringify(events),
      deltas: JSON.stringify(deltas),
    };
  }
  function expectClean(said: Record<string, string>): void {
    expect(Object.keys(said)).toEqual(expect.arrayContaining(['http', 'metis.db', 'log', 'events']));
    for (const [place, text] of Object.entries(said))
      for (const leak of LEAKS) expect(`${place}: ${text.includes(leak)}`).toBe(`${place}: false`);
    for (const place of ['http', 'stream', 'metis.db', 'events']) expect(said[place]).toContain('[REDACTED]');
  }

  // Promise 01.24: key, e-mail address and foreign path of a provider's error are nowhere, the redaction mark is.
  // Promise 11.17: a provider's error with the key in it leaves no trace of it.
  test.each([
    ['refused after a retry', [busy, refusal]],
    ['broken off in mid-stream', [inStream]],
  ] as const)('a turn %s: nothing of it in logs, events, HTTP or the database', async (_, answers) => {
    const { workspace, data, fake, start } = await world((call) => answers[call.number - 1]!);
    const server = await start();
    const session = await server.session(workspace, MODEL[wire]);
    expect(await server.turn(session, 'go')).toMatchObject({ status: 'failed', error_code: 'provider_error' });
    expect(fake.calls).toHaveLength(answers.length);
    if (answers.length > 1) expect(server.log.map((line) => line.msg)).toContain('model call failed; trying again');
    expectClean(await traces(server, session, data));
  });

  // Promise 11.17: nor by way of a refused worker and its planner's next request.
  test("a worker that is refused: nothing of it in its planner's next request either", async () => {
    const { workspace, data, fake, start } = await world((call) => {
      if (call.system.includes('## Task')) return refusal;
      return call.results.length === 0
        ? { tool_calls: [{ name: 'delegate', input: { tier: 'fast', task: 'look at it' } }] }
        : { text: 'it failed' };
    });
    const server = await start();
    const session = await server.session(workspace, MODEL[wire]);
    expect(await server.turn(session, 'go')).toMatchObject({ status: 'completed', output: 'it failed' });
    const last = fake.calls.at(-1)!;
    for (const leak of LEAKS) expect(last.text).not.toContain(leak);
    expectClean(await traces(server, session, data));
  });
});
