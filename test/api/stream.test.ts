// The WebSocket of a session: subscribing, what is shown, who is shut out, and how it ends.
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { describe, expect, test } from 'vitest';
import { WebSocket } from 'ws';
import { silentLogger } from '#core/ports/logger.ts';
import { draft } from '#protocol/event.ts';
import type { ToolUseId } from '#protocol/ids.ts';
import { appended, type Parsed, refusedUpgrade, startServer, type TestServer } from '../support/http.ts';
import { manualClock } from '../support/manual-clock.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';

const TOKEN = 'a-token-of-at-least-thirty-two-characters';
const UNKNOWN = 'sess_01ARZ3NDEKTSV4RRFFQ69G5FAV';
const SAYS = scenario(planner({ text: 'The quick brown fox jumps over the lazy dog.', chunk_chars: 5 }));
const ASKS_WORKER = scenario(
  planner({ tool_calls: [delegate('look around')] }, { text: 'done' }),
  worker('look around', { text: 'seen it all' }),
);

/** A client that is live: what happens next reaches it. */
async function ready(server: TestServer, path: string) {
  const client = server.connect(path);
  await client.frame((f) => f.type === 'subscribe_ack');
  return client;
}
const eventsOf = (frames: readonly Parsed[]) => frames.filter((f) => f.type === 'event').map((f) => f.event);
const closeCode = ({ code, reason }: { code: number; reason: string }) => [code, JSON.parse(reason).code];

/** A WebSocket of a client that reads nothing behind the first bytes. */
async function openUnread(server: { readonly port: number }, target: string): Promise<Socket> {
  const socket = connect(server.port, '127.0.0.1');
  socket.write(
    `GET ${target} HTTP/1.1\r\nHost: localhost:${server.port}\r\n` +
      'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n' +
      'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n',
  );
  await once(socket, 'data');
  socket.pause();
  socket.on('error', () => {});
  return socket;
}

describe('a fresh client', () => {
  test('without a place to begin is told the newest event, to resume after it', async () => {
    const server = await startServer();
    const session = await server.session();
    const { events } = (await server.call('GET', `/sessions/${session.id}/events`)).body;
    const client = server.connect(`/sessions/${session.id}/stream?preset=chat`);
    const ack = await client.frame((f) => f.type === 'subscribe_ack');
    expect(ack).toMatchObject({ since: events.at(-1).id, snapshot: false });
  });

  // Promise 06.1: a fresh client gets ack, snapshot and a turn in order; deltas equal the stored message.
  test('gets ack, snapshot, and a turn in the order of its events', async () => {
    const server = await startServer({ scenario: SAYS });
    const session = await server.session();
    const client = server.connect(`/sessions/${session.id}/stream?preset=chat&snapshot=true`);
    const shot = await client.frame((f) => f.type === 'snapshot');
    expect(client.frames.map((f) => f.type)).toEqual(['subscribe_ack', 'snapshot']);
    const [ack] = client.frames;
    expect(ack.types).toHaveLength(30);
    expect(ack.types).toEqual([...ack.types].sort());
    expect(ack).toMatchObject({ include_worker_sessions: false, since: null, snapshot: true });
    expect(shot).toMatchObject({ messages: [], pending_confirmations: [], session: { id: session.id } });
    expect('workers' in shot).toBe(false);

    const posted = await server.call('POST', `/sessions/${session.id}/turns`, { content: 'hello' });
    await client.event('turn.completed');
    const types = client.types().filter((type, i, all) => type !== 'text.delta' || all[i - 1] !== 'text.delta');
    expect(types).toEqual([
      'turn.started',
      'route.decided',
      'message.appended',
      'llm.call_started',
      'message.start',
      'text.delta',
      'message.complete',
      'llm.call_completed',
      'turn.completed',
    ]);
    const events = eventsOf(client.frames);
    const complete = events.find((e) => e.type === 'message.complete');
    const joined = events.filter((e) => e.type === 'text.delta').map((e) => e.payload.text);
    expect(joined.join('')).toBe('The quick brown fox jumps over the lazy dog.');
    expect(complete.payload.final_content).toEqual([{ type: 'text', text: joined.join('') }]);
    const { messages } = (await server.call('GET', `/sessions/${session.id}/messages`)).body;
    const stored = messages.find((m: Parsed) => m.id === complete.payload.message_id);
    expect(stored.content).toEqual(complete.payload.final_content);
    expect(new Set(events.map((e) => e.turn_id))).toEqual(new Set([posted.body.turn_id]));
    for (const event of events.filter((e) => e.transient)) {
      expect([event.id, event.sensitivity, event.parent_event_id]).toEqual([null, null, null]);
    }
    expect(events.find((e) => e.type === 'message.appended').actor).toBe('user');
  });

  // Promise 06.17: another client's user message is seen through message.appended.
  test('sees the user message of another client', async () => {
    const server = await startServer({ scenario: SAYS });
    const session = await server.session();
    const client = await ready(server, `/sessions/${session.id}/stream?preset=chat`);
    const posted = await server.call('POST', `/sessions/${session.id}/turns`, { content: 'from elsewhere' });
    const { payload } = await client.event('message.appended');
    expect(payload.message).toMatchObject({
      id: posted.body.user_message_id,
      role: 'user',
      content: [{ type: 'text', text: 'from elsewhere' }],
    });
  });

  test('without any field the first frame subscribes', async () => {
    const server = await startServer({ scenario: SAYS });
    const session = await server.session();
    const client = server.connect(`/sessions/${session.id}/stream`);
    client.send({ type: 'subscribe', types: ['turn.completed'] });
    expect((await client.frame((f) => f.type === 'subscribe_ack')).types).toEqual(['turn.completed']);
    await server.run(session, 'hi');
    await client.event('turn.completed');
    expect(client.types()).toEqual(['turn.completed']);
  });
});

describe('types', () => {
  // Promise 06.3: an unknown type is subscribe_error and 1008.
  test('an unknown one is a subscribe_error and 1008', async () => {
    const server = await startServer();
    const session = await server.session();
    const byUrl = server.connect(`/sessions/${session.id}/stream?types=made.up.thing`);
    const byFrame = server.connect(`/sessions/${session.id}/stream`);
    byFrame.send({ type: 'subscribe', types: ['made.up.thing'] });
    for (const client of [byUrl, byFrame]) {
      expect((await client.frame((f) => f.type === 'subscribe_error')).code).toBe('validation_error');
      expect(closeCode(await client.closed)).toEqual([1008, 'validation_error']);
    }
  });

  // Promise 06.3: the same types by frame, URL and SSE give the same sequence.
  test('the same list by frame, by URL and over SSE gives the same sequence', async () => {
    const server = await startServer({ scenario: SAYS });
    const session = await server.session();
    const types = ['text.delta', 'route.decided', 'turn.completed'];
    const byFrame = server.connect(`/sessions/${session.id}/stream`);
    byFrame.send({ type: 'subscribe', types });
    const byUrl = server.connect(`/sessions/${session.id}/stream?types=${types}`);
    const sse = await fetch(`${server.base}/sessions/${session.id}/events?types=${types}`, {
      headers: { accept: 'text/event-stream' },
    });
    for (const client of [byFrame, byUrl]) await client.frame((f) => f.type === 'subscribe_ack');
    await server.run(session, 'hi');
    for (const client of [byFrame, byUrl]) await client.event('turn.completed');
    expect(byFrame.types().at(0)).toBe('route.decided');
    expect(new Set(byFrame.types())).toEqual(new Set(types));
    expect(eventsOf(byUrl.frames)).toEqual(eventsOf(byFrame.frames));
    const received: Parsed[] = [];
    let text = '';
    for await (const chunk of sse.body!) {
      text += Buffer.from(chunk).toString();
      received.splice(0);
      for (const block of text.split('\n\n').slice(0, -1)) {
        const data = /^data: (.*)$/m.exec(block)?.[1];
        if (/^event: event$/m.test(block)) received.push(JSON.parse(data!).event);
      }
      if (received.at(-1)?.type === 'turn.completed') break;
    }
    expect(received).toEqual(eventsOf(byFrame.frames));
  });

  test('types and preset exclude each other, in a frame and in a URL', async () => {
    const server = await startServer();
    const session = await server.session();
    const byUrl = server.connect(`/sessions/${session.id}/stream?types=turn.started&preset=chat`);
    const byFrame = server.connect(`/sessions/${session.id}/stream`);
    byFrame.send({ type: 'subscribe', types: ['turn.started'], preset: 'chat' });
    for (const client of [byUrl, byFrame]) {
      expect((await client.frame((f) => f.type === 'subscribe_error')).details.issues[0].path).toBe('preset');
    }
  });
});

describe('tokens and origins', () => {
  // Promise 06.2: tokens by header before the upgrade or by frame after it.
  test('by header before the upgrade, by frame after it', async () => {
    const server = await startServer({ config: { server: { auth_tokens: [TOKEN] } }, scenario: SAYS });
    const session = await server.session();
    const url = `ws://127.0.0.1:${server.port}/sessions/${session.id}/stream`;
    const wrong = await refusedUpgrade(url, { authorization: 'Bearer wrong' });
    expect([wrong.status, wrong.body.error.code]).toEqual([401, 'unauthorized']);

    for (const token of [undefined, 'wrong']) {
      const client = server.connect(`/sessions/${session.id}/stream`);
      client.send({ type: 'subscribe', ...(token === undefined ? {} : { token }) });
      expect((await client.frame((f) => f.type === 'subscribe_error')).code).toBe('unauthorized');
      expect(closeCode(await client.closed)).toEqual([1008, 'unauthorized']);
    }
    const byUrl = server.connect(`/sessions/${session.id}/stream?preset=chat&snapshot=true`);
    await once(byUrl.ws, 'open');
    const byFrame = server.connect(`/sessions/${session.id}/stream`);
    byFrame.send({ type: 'subscribe', token: TOKEN });
    await byFrame.frame((f) => f.type === 'subscribe_ack');
    await server.run(session, 'hi');
    await byFrame.event('turn.completed');
    expect(byUrl.frames).toEqual([]);
    byUrl.send({ type: 'subscribe', token: TOKEN });
    await byUrl.frame((f) => f.type === 'subscribe_ack');

    const gone = server.connect(`/sessions/${UNKNOWN}/stream`);
    gone.send({ type: 'subscribe', token: TOKEN });
    expect((await gone.frame((f) => f.type === 'subscribe_error')).code).toBe('not_found');
    const known = await refusedUpgrade(`ws://127.0.0.1:${server.port}/sessions/${UNKNOWN}/stream`, {
      authorization: `Bearer ${TOKEN}`,
    });
    expect([known.status, known.body.error.code]).toEqual([404, 'not_found']);
  });

  // Promise 06.2: a foreign origin is refused before the upgrade.
  test('a foreign origin is refused before the upgrade', async () => {
    const server = await startServer();
    const session = await server.session();
    const url = `ws://127.0.0.1:${server.port}/sessions/${session.id}/stream`;
    const foreign = await refusedUpgrade(url, { origin: 'https://evil.example' });
    expect([foreign.status, foreign.body.error.code]).toEqual([403, 'origin_not_allowed']);
    const own = server.connect(`/sessions/${session.id}/stream?preset=chat`, { origin: server.base });
    await own.frame((f) => f.type === 'subscribe_ack');
  });

  test('the connection limit counts sockets and SSE, and frees what has closed', async () => {
    const server = await startServer({ config: { stream: { max_connections: 2 } } });
    const session = await server.session();
    const url = `ws://127.0.0.1:${server.port}/sessions/${session.id}/stream`;
    const socket = await ready(server, `/sessions/${session.id}/stream?preset=chat`);
    const stop = new AbortController();
    const headers = { accept: 'text/event-stream' };
    await fetch(`${server.base}/sessions/${session.id}/events`, { headers, signal: stop.signal });
    const refused = await refusedUpgrade(url);
    expect([refused.status, refused.body.error.code]).toEqual([503, 'too_many_connections']);
    const sse = await server.call('GET', `/sessions/${session.id}/events`, undefined, headers);
    expect([sse.status, sse.body.error.code]).toEqual([503, 'too_many_connections']);
    socket.ws.close();
    await socket.closed;
    await ready(server, `/sessions/${session.id}/stream?preset=chat`);
    stop.abort();
  });
});

describe('reconnecting', () => {
  // Promise 06.4: reconnecting in a running turn loses and doubles nothing.
  test('drop after an event in a running turn: the union is the whole, ascending, without a double', async () => {
    const calls = Array.from({ length: 12 }, (_, i) => ({
      tool_calls: [call('list_files', { path: `.${'/.'.repeat(i)}` })],
    }));
    const server = await startServer({ scenario: scenario(planner(...calls, { text: 'done' })) });
    const session = await server.session();
    const start = server.events.at(-1)!.id;
    const first = await ready(server, `/sessions/${session.id}/stream?since=${start}`);
    const turn = await server.submit(session, 'work');
    const cut = await first.event('tool.completed');
    first.ws.terminate();
    await first.closed;
    const before = eventsOf(first.frames).flatMap((e) => e.id ?? []);
    const last = before.at(-1);
    expect(cut.id <= last).toBe(true);
    const second = server.connect(`/sessions/${session.id}/stream?since=${last}`);
    await server.ended(turn);
    await second.event('turn.completed');
    const union = [...before, ...eventsOf(second.frames).flatMap((e) => e.id ?? [])];
    expect(union).toEqual(server.events.map((e) => e.id).filter((id) => id > start));
  });

  // Promise 06.7: attached in mid-message, start plus deltas equal the whole.
  test('attached in mid-message, message.start holds the text so far and the rest follows', async () => {
    const clock = manualClock();
    const text = 'one two three four five six';
    const server = await startServer({
      clock,
      scenario: scenario(planner({ text, chunk_chars: 3, chunk_delay_ms: 10 })),
    });
    const session = await server.session();
    const early = await ready(server, `/sessions/${session.id}/stream?snapshot=false`);
    await server.submit(session, 'count');
    await early.event('message.start');
    while (early.types().filter((t) => t === 'text.delta').length < 3) {
      clock.next(10);
      await new Promise((resolve) => setImmediate(resolve));
    }
    const late = await ready(server, `/sessions/${session.id}/stream?snapshot=false`);
    const open = await late.event('message.start');
    expect(open.payload.content).toHaveLength(1);
    const held = open.payload.content[0].text;
    expect(held.length).toBeGreaterThan(0);
    expect(text.startsWith(held)).toBe(true);
    expect(held).not.toBe(text);
    const completed = late.event('turn.completed');
    let done = false;
    void completed.then(() => {
      done = true;
    });
    while (!done) {
      clock.next(10);
      await new Promise((resolve) => setImmediate(resolve));
    }
    const rest = eventsOf(late.frames)
      .filter((e) => e.type === 'text.delta')
      .map((e) => e.payload.text);
    const complete = await late.event('message.complete');
    expect(complete.payload.final_content).toEqual([{ type: 'text', text: held + rest.join('') }]);
    expect(late.types().filter((t) => t === 'message.start')).toHaveLength(1);
  });
});

describe('two clients', () => {
  // Promise 06.9: two equal clients see the same, a cancellation included.
  test('with the same subscription see the same, also what one of them cancels', async () => {
    const server = await startServer({ scenario: scenario(planner({ hang: true })) });
    const session = await server.session();
    const clients = [
      await ready(server, `/sessions/${session.id}/stream?snapshot=false`),
      await ready(server, `/sessions/${session.id}/stream?snapshot=false`),
    ];
    const turn = await server.submit(session, 'wait');
    await clients[0]!.event('llm.call_started');
    await server.call('POST', `/sessions/${session.id}/turns/${turn}/cancel`, {});
    for (const client of clients) await client.event('turn.cancelled');
    const [one, two] = clients.map((client) => eventsOf(client.frames));
    expect(one).toEqual(two);
  });

  // Promise 06.10: a client that never reads is cut off and harms nobody.
  test('one that never reads is cut off, the other misses nothing, and the first resumes without loss', async () => {
    const warnings: string[] = [];
    const log = { ...silentLogger, warn: (_fields: object, message: string) => void warnings.push(message) };
    const server = await startServer({ log });
    const session = await server.session();
    const start = server.events.at(-1)!.id;
    const good = await ready(server, `/sessions/${session.id}/stream?types=message.appended,session.ended`);
    const stuck = await openUnread(server, `/sessions/${session.id}/stream?types=message.appended,session.ended`);
    const gone = once(stuck, 'close');
    let sent = 0;
    while (warnings.length === 0 && sent < 500) {
      server.engine.journal.publishDelta(appended(server, session.id, 200_000));
      sent += 1;
      if (sent % 10 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    expect(warnings).toEqual(['slow client cut off']);
    await server.call('DELETE', `/sessions/${session.id}`);
    await good.event('session.ended');
    expect(good.types().filter((t) => t === 'message.appended')).toHaveLength(sent);
    stuck.resume();
    await gone;
    const back = server.connect(`/sessions/${session.id}/stream?since=${start}`);
    await back.event('session.ended');
  });

  test('one that stops reading is cut off after 10 s, though nothing more is sent', async () => {
    const clock = manualClock();
    const warnings: string[] = [];
    const log = { ...silentLogger, warn: (_fields: object, message: string) => void warnings.push(message) };
    const server = await startServer({ log, clock });
    const session = await server.session();
    const stuck = await openUnread(server, `/sessions/${session.id}/stream?types=message.appended`);
    const gone = once(stuck, 'close');
    server.engine.journal.publishDelta(appended(server, session.id, 24_000_000));
    clock.advance(10_000);
    expect(warnings).toEqual([]);
    clock.advance(1);
    expect(warnings).toEqual(['slow client cut off']);
    stuck.resume();
    await gone;
  });

  test('one that reads is sent frames of any size, one after the other, and is not taken for slow', async () => {
    const warnings: unknown[] = [];
    const log = { ...silentLogger, warn: (_fields: object, message: string) => warnings.push(message) };
    // A clock that stands still: only how much waits can make it slow, not how long a busy machine takes to read it.
    const server = await startServer({ log, clock: manualClock() });
    const session = await server.session();
    const socket = await ready(server, `/sessions/${session.id}/stream?preset=chat`);
    const sse = await fetch(`${server.base}/sessions/${session.id}/events?preset=chat`, {
      headers: { accept: 'text/event-stream' },
    });
    // Together more than the 32 MiB that may wait of small frames.
    const sizes = [9_000_000, 9_000_000, 1, 17_000_000, 1];
    for (const size of sizes) server.engine.journal.publishDelta(appended(server, session.id, size));
    await server.call('DELETE', `/sessions/${session.id}`);
    expect(closeCode(await socket.closed)).toEqual([1000, 'session_ended']);
    expect(socket.types()).toEqual([...sizes.map(() => 'message.appended'), 'session.ended']);
    const text = await sse.text();
    expect(text.match(/^event: event$/gm)).toHaveLength(sizes.length + 1);
    expect(text.endsWith('event: close\ndata: {"code":"session_ended"}\n\n')).toBe(true);
    expect(warnings).toEqual([]);
  });

  test('one that resumes over a long gap is given the time to read it before it counts as slow', async () => {
    const warnings: unknown[] = [];
    const log = { ...silentLogger, warn: (_fields: object, message: string) => warnings.push(message) };
    const server = await startServer({ log, clock: manualClock() });
    const session = await server.session();
    const start = server.events.at(-1)!.id;
    const loaded = (n: number) =>
      draft({
        type: 'skill.loaded',
        session_id: session.id,
        turn_id: null,
        parent: null,
        payload: {
          skill_id: String(n).padEnd(500_000, '.'),
          skill_version: '0123456789abcdef',
          load_size_tokens: 1,
          source: 'global',
          triggered_by_tool_use_id: 'tu_01ARZ3NDEKTSV4RRFFQ69G5FAV' as ToolUseId,
        },
      });
    for (let n = 0; n < 80; n += 1) await server.engine.journal.commit({ emit: [loaded(n)] });
    const client = await ready(server, `/sessions/${session.id}/stream?since=${start}`);
    await server.engine.journal.commit({ emit: [loaded(80)] });
    await server.call('DELETE', `/sessions/${session.id}`);
    await client.closed;
    expect(client.types()).toHaveLength(82);
    expect(warnings).toEqual([]);
  });
});

describe('workers', () => {
  // Promise 04.22: A stream shows a delegation's own events only, or its worker's too when asked.
  // Promise 06.11: workers are hidden or shown as asked, also those spawned later.
  test('stay hidden but for delegate.* unless asked for; then they join as they are spawned', async () => {
    const server = await startServer({ scenario: ASKS_WORKER });
    const session = await server.session();
    const hidden = await ready(server, `/sessions/${session.id}/stream?snapshot=false`);
    const shown = await ready(server, `/sessions/${session.id}/stream?include_worker_sessions=true`);
    await server.run(session, 'go');
    await hidden.event('turn.completed');
    const isPlanners = (e: Parsed) => e.session_id === session.id;
    await shown.event('turn.completed', isPlanners);
    expect(hidden.types()).toContain('delegate.completed');
    expect(eventsOf(hidden.frames).every(isPlanners)).toBe(true);
    const workers = eventsOf(shown.frames).filter((e) => !isPlanners(e));
    expect(workers.map((e) => e.type)).toEqual(
      expect.arrayContaining(['session.created', 'turn.started', 'text.delta', 'message.complete', 'session.ended']),
    );
    expect(new Set(workers.map((e) => e.actor))).toEqual(new Set(['worker']));
    const ids = eventsOf(shown.frames).flatMap((e) => e.id ?? []);
    expect(ids).toEqual(server.events.slice(1).map((e) => e.id));

    const replay = server.connect(
      `/sessions/${session.id}/stream?include_worker_sessions=true&since=${server.events[0]!.id}`,
    );
    await replay.event('turn.completed', isPlanners);
    expect(eventsOf(replay.frames)).toEqual(eventsOf(shown.frames).filter((e) => !e.transient));
  });

  // Promise 06.11: a worker's own stream shows its deltas.
  test("a worker's own stream shows its deltas and leaves the planner out", async () => {
    const clock = manualClock();
    const server = await startServer({
      clock,
      scenario: scenario(
        planner({ tool_calls: [delegate('look around')] }, { text: 'done' }),
        worker('look around', { text: 'seen it all', delay_ms: 10 }),
      ),
    });
    const session = await server.session();
    await server.submit(session, 'go');
    const created = await server.event('llm.call_started', (e) => e.session_id !== session.id);
    const direct = await ready(server, `/sessions/${created.session_id}/stream?snapshot=false`);
    clock.next(10);
    await direct.closed;
    expect(direct.types()).toEqual(expect.arrayContaining(['text.delta', 'turn.completed', 'session.ended']));
    expect(new Set(eventsOf(direct.frames).map((e) => e.session_id))).toEqual(new Set([created.session_id]));
    expect(closeCode(await direct.closed)).toEqual([1000, 'session_ended']);
  });

  // Promise 05.13: a planner's list shows a worker's open prompt.
  // Promise 06.12: a worker's prompt reaches a planner-only client.
  // Promise 09.10: A planner-only client receives and answers a worker's prompt.
  test("a worker's prompt reaches a planner-only client, which answers it by REST", async () => {
    const server = await startServer({
      scenario: scenario(
        planner({ tool_calls: [delegate('write it')] }, { text: 'done' }),
        worker('write it', { tool_calls: [call('write_file', { path: 'a.txt', content: 'hi' })] }, { text: 'written' }),
      ),
    });
    const session = await server.session();
    const client = await ready(server, `/sessions/${session.id}/stream?preset=chat`);
    const turn = await server.submit(session, 'go');
    const asked = await client.event('tool.confirmation_requested');
    expect(asked.session_id).not.toBe(session.id);
    expect(asked.payload.is_worker).toBe(true);
    const listed = await server.call('GET', `/confirmations?session_id=${session.id}`);
    const id = asked.payload.confirmation_request_id;
    expect(listed.body.confirmations.map((c: Parsed) => c.confirmation_request_id)).toEqual([id]);
    expect((await server.call('POST', `/confirmations/${id}`, { decision: 'approve' })).body.applied).toBe(true);
    expect((await client.event('tool.confirmation_resolved')).payload.decision).toBe('approve');
    expect((await server.ended(turn)).status).toBe('completed');
    const replay = server.connect(`/sessions/${session.id}/stream?preset=chat&since=${server.events[0]!.id}`);
    await replay.event('turn.completed');
    expect(replay.types()).toEqual(client.types().filter((t) => server.events.some((e) => e.type === t)));
  });
});

describe('what a client may send', () => {
  test('first is subscribe: anything else is told so at once', async () => {
    const server = await startServer();
    const session = await server.session();
    const client = server.connect(`/sessions/${session.id}/stream`);
    client.send({ type: 'subscrib', preset: 'chat' });
    const fault = await client.frame((f) => f.type === 'subscribe_error');
    expect([fault.code, fault.message]).toEqual(['validation_error', 'type: must be "subscribe"']);
    expect(closeCode(await client.closed)).toEqual([1008, 'validation_error']);
  });

  // Promise 06.14: other frames are ignored, a second subscribe ends the connection.
  test('is one subscribe; other frames behind it are ignored, a second one ends it', async () => {
    const server = await startServer();
    const session = await server.session();
    const client = server.connect(`/sessions/${session.id}/stream`);
    client.send({ type: 'subscribe' });
    await client.frame((f) => f.type === 'subscribe_ack');
    client.send({ type: 'made_up' });
    client.send({ type: 'subscribe' });
    expect((await client.frame((f) => f.type === 'subscribe_error')).code).toBe('validation_error');
    expect(closeCode(await client.closed)).toEqual([1008, 'validation_error']);
    expect(client.frames).toHaveLength(2);
  });

  // Promise 06.14: broken JSON, binary and oversized frames have their codes.
  test('broken JSON is 1007, binary 1003, a frame above 64 KiB 1009, an unknown field 1008', async () => {
    const server = await startServer();
    const session = await server.session();
    const end = async (send: (ws: WebSocket) => void) => {
      const client = server.connect(`/sessions/${session.id}/stream`);
      client.ws.once('open', () => send(client.ws));
      return await client.closed;
    };
    expect(closeCode(await end((ws) => ws.send('{oops')))).toEqual([1007, 'invalid_json']);
    expect(closeCode(await end((ws) => ws.send('[1]')))).toEqual([1007, 'invalid_json']);
    expect(closeCode(await end((ws) => ws.send(Buffer.from('{}'))))).toEqual([1003, 'binary_not_supported']);
    expect((await end((ws) => ws.send(JSON.stringify({ type: 'x'.repeat(65_536) })))).code).toBe(1009);
    expect(closeCode(await end((ws) => ws.send('{"type":"subscribe","bogus":1}')))).toEqual([1008, 'validation_error']);
  });

  test('what a client sends behind the end of its stream costs nothing', async () => {
    const clock = manualClock();
    const server = await startServer({ clock });
    const { id } = await server.session();
    const client = await ready(server, `/sessions/${id}/stream?preset=chat`);
    const before = clock.pending();
    for (let i = 0; i < 200; i++) client.ws.send('{"type":"subscribe"}');
    expect(closeCode(await client.closed)).toEqual([1008, 'validation_error']);
    expect(client.frames.filter(({ type }) => type === 'subscribe_error')).toHaveLength(1);
    expect(clock.pending() - before).toBeLessThan(5);
  });

  // Promise 06.14: no subscribe within 10 s is 1008.
  test('nothing for 10 s is 1008 subscribe_timeout', async () => {
    const clock = manualClock();
    const server = await startServer({ clock });
    const session = await server.session();
    const client = server.connect(`/sessions/${session.id}/stream`);
    await once(client.ws, 'open');
    clock.advance(9_999);
    await new Promise((resolve) => setImmediate(resolve));
    expect(client.ws.readyState).toBe(WebSocket.OPEN);
    clock.advance(1);
    expect(closeCode(await client.closed)).toEqual([1008, 'subscribe_timeout']);
  });
});

describe('heartbeats', () => {
  // Promise 06.13: a client without pongs is gone within 90 s.
  test('a client without pongs is gone within 90 s, one that answers stays', async () => {
    const clock = manualClock();
    const server = await startServer({ clock });
    const session = await server.session();
    const alive = await ready(server, `/sessions/${session.id}/stream?preset=chat`);
    const url = `ws://127.0.0.1:${server.port}/sessions/${session.id}/stream?preset=chat`;
    const mute = new WebSocket(url, { autoPong: false });
    await once(mute, 'message');
    const dead = once(mute, 'close');
    for (let beat = 0; beat < 3; beat += 1) {
      const pinged = once(alive.ws, 'ping');
      clock.advance(30_000);
      await pinged;
      // The pong has to arrive before the next beat: a request answered after it was sent has passed it.
      await server.call('GET', '/healthz');
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect((await dead)[0]).toBe(1006);
    expect(alive.ws.readyState).toBe(WebSocket.OPEN);
  });
});

describe('the end', () => {
  // Promise 06.15: deleting a session sends session.ended and closes 1000.
  test('deleting a session sends session.ended and closes 1000', async () => {
    const server = await startServer();
    const session = await server.session();
    const client = await ready(server, `/sessions/${session.id}/stream?preset=chat`);
    await server.call('DELETE', `/sessions/${session.id}`);
    expect(closeCode(await client.closed)).toEqual([1000, 'session_ended']);
    expect(client.types()).toEqual(['session.ended']);
    const again = server.connect(`/sessions/${session.id}/stream?snapshot=true`);
    expect(closeCode(await again.closed)).toEqual([1000, 'session_ended']);
    expect(again.frames.map((f) => f.type)).toEqual(['subscribe_ack', 'snapshot']);
  });

  // Promise 06.15: a server that goes down closes 1001.
  test('a server that goes down closes 1001, also for clients that have not subscribed', async () => {
    const server = await startServer();
    const session = await server.session();
    const client = await ready(server, `/sessions/${session.id}/stream?preset=chat`);
    const silent = server.connect(`/sessions/${session.id}/stream`);
    await once(silent.ws, 'open');
    const closing = server.app.close();
    for (const one of [client, silent]) expect(closeCode(await one.closed)).toEqual([1001, 'server_shutdown']);
    await closing;
  });
});
