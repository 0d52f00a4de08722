// Server-sent events: the same frames, cursors that survive a reconnect, and an end that is one.
import { EventEmitter, once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { describe, expect, test, vi } from 'vitest';
import { silentLogger } from '#core/ports/logger.ts';
import { appended, type Parsed, startServer, type TestServer } from '../support/http.ts';
import { manualClock } from '../support/manual-clock.ts';
import { planner, scenario } from '../support/scenario.ts';

const SAYS = scenario(planner({ text: 'The quick brown fox.', chunk_chars: 5 }));
const ACCEPT = { accept: 'text/event-stream' };

interface Message {
  readonly event: string;
  readonly id: string | null;
  readonly data: Parsed;
}

/** Reads messages until one matches or the stream ends. */
async function read(
  response: Response,
  until: (m: Message) => boolean,
): Promise<{ messages: Message[]; text: string }> {
  let text = '';
  for await (const chunk of response.body!) {
    text += Buffer.from(chunk).toString();
    const messages = parsed(text);
    if (messages.some(until)) return { messages, text };
  }
  return { messages: parsed(text), text };
}
function parsed(text: string): Message[] {
  const blocks = text.split('\n\n').slice(0, -1);
  return blocks
    .filter((block) => block.startsWith('event: '))
    .map((block) => ({
      event: /^event: (.*)$/m.exec(block)![1]!,
      id: /^id: (.*)$/m.exec(block)?.[1] ?? null,
      data: JSON.parse(/^data: (.*)$/m.exec(block)![1]!),
    }));
}
function open(server: TestServer, path: string, headers: Readonly<Record<string, string>> = {}): Promise<Response> {
  return fetch(`${server.base}${path}`, { headers: { ...ACCEPT, ...headers } });
}
/** Asks for the stream and reads no further than its beginning. */
async function stalled(server: TestServer, path: string): Promise<Socket> {
  const socket = connect(server.port, '127.0.0.1');
  socket.on('error', () => {});
  socket.write(`GET ${path} HTTP/1.1\r\nHost: localhost:${server.port}\r\nAccept: text/event-stream\r\n\r\n`);
  await once(socket, 'data');
  socket.pause();
  return socket;
}
const isEnd = (m: Message) => m.data.event?.type === 'turn.completed';

describe('an event stream', () => {
  // Promise 06.16: transient messages carry no id.
  test('has the headers of one, a retry line first, and ids on what can be resumed from', async () => {
    const server = await startServer({ scenario: SAYS });
    const session = await server.session();
    const response = await open(server, `/sessions/${session.id}/events?snapshot=true`);
    expect(response.status).toBe(200);
    expect(response.headers.get('content-type')).toBe('text/event-stream');
    expect(response.headers.get('cache-control')).toBe('no-store');
    expect(response.headers.get('x-accel-buffering')).toBe('no');
    const turn = server.run(session, 'hi');
    const { messages, text } = await read(response, isEnd);
    await turn;
    expect(text.startsWith('retry: 2000\n\n')).toBe(true);
    expect(messages.slice(0, 2).map((m) => [m.event, m.id])).toEqual([
      ['subscribe_ack', null],
      ['snapshot', server.events[0]!.id],
    ]);
    const events = messages.filter((m) => m.event === 'event');
    expect(events.some((m) => m.data.event.transient)).toBe(true);
    for (const { id, data } of events) expect(id).toBe(data.event.id);
  });

  // Promise 06.16: SSE resumes after Last-Event-ID.
  test('resumes after Last-Event-ID, whatever the URL says of since and snapshot', async () => {
    const server = await startServer({ scenario: SAYS });
    const session = await server.session();
    await server.run(session, 'hi');
    const last = server.events[2]!.id;
    const response = await open(server, `/sessions/${session.id}/events?snapshot=true&since=${server.events[0]!.id}`, {
      'last-event-id': last,
    });
    const { messages } = await read(response, isEnd);
    expect(messages[0]!.data).toMatchObject({ since: last, snapshot: false });
    const ids = messages.flatMap((m) => m.id ?? []);
    expect(ids).toEqual(server.events.map((e) => e.id).filter((id) => id > last));
  });

  // Promise 06.16: an ended session with nothing new is 204.
  test('ends with event: close after session.ended, and 204 stops the reconnect', async () => {
    const server = await startServer();
    const session = await server.session();
    const response = await open(server, `/sessions/${session.id}/events`);
    const reading = read(response, () => false);
    await server.call('DELETE', `/sessions/${session.id}`);
    const { messages } = await reading;
    expect(messages.at(-2)!.data.event.type).toBe('session.ended');
    expect(messages.at(-1)).toEqual({ event: 'close', id: null, data: { code: 'session_ended' } });
    const again = await open(server, `/sessions/${session.id}/events`, { 'last-event-id': messages.at(-2)!.id! });
    expect([again.status, await again.text()]).toEqual([204, '']);
    const fresh = await open(server, `/sessions/${session.id}/events`);
    expect(fresh.status).toBe(204);
    const replay = await open(server, `/sessions/${session.id}/events?since=${server.events[0]!.id}`);
    const left = await read(replay, () => false);
    expect(left.messages.map((m) => m.event)).toEqual(['subscribe_ack', 'event', 'close']);
  });

  // Promise 06.16: JSON for any other Accept.
  test('is JSON for everybody else, and its errors come before it starts', async () => {
    const server = await startServer();
    const session = await server.session();
    const json = await server.call('GET', `/sessions/${session.id}/events`, undefined, { accept: 'application/json' });
    expect(json.body.events.map((e: Parsed) => e.type)).toEqual(['session.created']);
    expect(json.body.next_cursor).toBe(null);
    for (const [path, code] of [
      ['?types=made.up', 'validation_error'],
      ['?limit=3', 'validation_error'],
      ['?token=x', 'validation_error'],
    ]) {
      const answer = await server.call('GET', `/sessions/${session.id}/events${path}`, undefined, ACCEPT);
      expect([path, answer.status, answer.body.error.code]).toEqual([path, 400, code]);
    }
    const gone = await server.call('GET', '/sessions/sess_01ARZ3NDEKTSV4RRFFQ69G5FAV/events', undefined, ACCEPT);
    expect([gone.status, gone.body.error.details]).toEqual([404, { resource: 'session' }]);
    const bad = await server.call('GET', `/sessions/${session.id}/events`, undefined, {
      ...ACCEPT,
      'last-event-id': 'x',
    });
    expect(bad.status).toBe(400);
  });

  test('ends when the server goes down, without a close event that would stop a reconnect', async () => {
    const server = await startServer();
    const session = await server.session();
    const response = await open(server, `/sessions/${session.id}/events`);
    const reading = read(response, () => false);
    await server.app.close();
    expect((await reading).messages.map((m) => m.event)).toEqual(['subscribe_ack']);
  });
});

describe('a client that reads nothing more', () => {
  test('harms nobody when its session ends: it is not written to again, and is cut off 5 s later', async () => {
    const clock = manualClock();
    const server = await startServer({ clock });
    const session = await server.session();
    const stuck = await stalled(server, `/sessions/${session.id}/events`);
    server.engine.journal.publishDelta(appended(server, session.id, 8_000_000));
    clock.advance(29_000);
    await server.call('DELETE', `/sessions/${session.id}`);
    // The heartbeat falls between the end and the moment at which patience is over.
    clock.advance(1_000);
    expect((await server.call('GET', '/healthz')).status).toBe(200);
    const gone = once(stuck, 'close');
    clock.advance(4_000);
    stuck.resume();
    await gone;
  });

  test('is cut off once it has left more than 8 MiB unread for longer than 10 s, though nothing more is sent', async () => {
    const clock = manualClock();
    const warnings: string[] = [];
    const server = await startServer({ clock, log: { ...silentLogger, warn: (_fields, text) => warnings.push(text) } });
    const session = await server.session();
    const stuck = await stalled(server, `/sessions/${session.id}/events`);
    const gone = once(stuck, 'close');
    server.engine.journal.publishDelta(appended(server, session.id, 24_000_000));
    clock.advance(10_000);
    expect(warnings).toEqual([]);
    clock.advance(1);
    expect(warnings).toEqual(['slow client cut off']);
    stuck.resume();
    await gone;
  });
});

test('a client that leaves before its stream has begun leaves its place as well', async () => {
  const server = await startServer({ config: { stream: { max_connections: 1 } } });
  const session = await server.session();
  const { sessions } = server.engine.store;
  const read = sessions.record.bind(sessions);
  const asked = new EventEmitter();
  const hold = vi.spyOn(sessions, 'record').mockImplementation(async (id) => {
    await new Promise((resume) => asked.emit('asked', resume));
    return read(id);
  });
  const reading = once(asked, 'asked');
  const connection = once(server.app.server, 'connection');
  const leaving = new AbortController();
  const first = fetch(`${server.base}/sessions/${session.id}/events`, { headers: ACCEPT, signal: leaving.signal });
  const [socket] = await connection;
  const [resume] = await reading;
  const left = once(socket, 'close');
  leaving.abort();
  await expect(first).rejects.toThrow();
  await left;
  hold.mockRestore();
  resume();
  const second = await open(server, `/sessions/${session.id}/events`);
  expect(second.status).toBe(200);
  await second.body!.cancel();
});
