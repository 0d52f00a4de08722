// The typed client against a real server, and across the death of one.
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { WebSocketServer } from 'ws';
import { createMetisClient } from '#client/client.ts';
import { streamSession } from '#client/event-stream.ts';
import { ApiError } from '#client/request.ts';
import type { StreamItem } from '#client/stream-items.ts';
import { type StartedHere, startHere } from './here.ts';
import { address, getJson, type Started, start, temporaryHome } from './metis.ts';

let home: ReturnType<typeof temporaryHome>;
const running: Pick<Started, 'stop'>[] = [];
beforeEach(() => {
  home = temporaryHome();
});
afterEach(async () => {
  await Promise.all(running.splice(0).map((server) => server.stop('SIGKILL')));
  home.remove();
});
const TOKEN = 'a-token-of-more-than-thirty-two-characters';
function serve(port = '0', env: Record<string, string> = {}): StartedHere {
  const server = startHere(['serve', '--port', port], { home: home.path, env });
  running.push(server);
  return server;
}
/** For a test that kills it. */
function serveAsProcess(): Started {
  const server = start(['serve', '--port', '0'], { home: home.path });
  running.push(server);
  return server;
}
const ended = (item: StreamItem, sessionId: string) =>
  item.type === 'event' &&
  item.event.session_id === sessionId &&
  ['turn.completed', 'turn.failed', 'turn.cancelled'].includes(item.event.type);

describe('a stream', () => {
  it('goes on by itself after the server was killed in mid-turn: every event once, none missing', async () => {
    const first = serveAsProcess();
    const url = await address(first);
    const client = createMetisClient({ baseUrl: url });
    const session = await client.createSession({ workspace_path: home.path });
    const seen: string[] = [];
    let restarted = false;
    for await (const item of client.stream(session.id, { snapshot: true, include_worker_sessions: true })) {
      if (item.type === 'snapshot') {
        await client.submitTurn(session.id, { content: 'Look at this.' });
        continue;
      }
      if (item.event.id !== null) seen.push(item.event.id);
      if (item.event.type === 'delegate.started' && !restarted) {
        restarted = true;
        await first.stop('SIGKILL');
        await address(serve(new URL(url).port));
      }
      if (ended(item, session.id)) break;
    }
    const stored = await getJson(`${url}/sessions/${session.id}/events?include_worker_sessions=true&limit=1000`);
    const ids: string[] = stored.events.map((event: { id: string }) => event.id);
    expect(restarted).toBe(true);
    expect(seen).toEqual([...new Set(seen)].sort());
    // Everything from the first id on that was stored up to the last one seen.
    expect(seen).toEqual(ids.filter((id) => id >= seen[0]! && id <= seen.at(-1)!));
  });

  it('ends with the session, and when its reader asks for it', async () => {
    const client = createMetisClient({ baseUrl: await address(serve()) });
    const session = await client.createSession({ workspace_path: home.path });
    const types: string[] = [];
    for await (const item of client.stream(session.id, { snapshot: true })) {
      if (item.type === 'snapshot') await client.endSession(session.id);
      else types.push(item.event.type);
    }
    expect(types).toEqual(['session.ended']);

    const other = await client.createSession({ workspace_path: home.path });
    const stop = new AbortController();
    for await (const item of client.stream(other.id, { snapshot: true, signal: stop.signal })) {
      if (item.type === 'snapshot') stop.abort();
    }
  });

  it('that broke before its first event is taken up again where it began', async () => {
    const BEGAN = '01JZZZZZZZZZZZZZZZZZZZZZZZ';
    const asked: unknown[] = [];
    const sockets = new WebSocketServer({ port: 0, host: '127.0.0.1' });
    await once(sockets, 'listening');
    sockets.on('connection', (socket) => {
      socket.once('message', (text) => {
        asked.push(JSON.parse(String(text)).since ?? null);
        socket.send(JSON.stringify({ type: 'subscribe_ack', since: BEGAN }));
        if (asked.length === 1) socket.terminate();
        else socket.close(1000);
      });
    });
    const { port } = sockets.address() as AddressInfo;
    const stream = createMetisClient({ baseUrl: `http://127.0.0.1:${port}` }).stream('sess_x');
    expect(await stream.next()).toEqual({ done: true, value: undefined });
    expect(asked).toEqual([null, BEGAN]);
    sockets.close();
  });

  it('believes no frame that no server sends, and passes over what came before', async () => {
    const event = (id: unknown) => ({ type: 'event', event: { id, type: 'turn.started', transient: id === null } });
    const bad = ['null', '[]', '{', { type: 'event' }, { type: 'event', event: null }, event(5), { type: 'snapshot' }];
    const since: unknown[] = [];
    const sockets = new WebSocketServer({ port: 0, host: '127.0.0.1' });
    await once(sockets, 'listening');
    sockets.on('connection', (socket) => {
      const send = (frame: unknown) => socket.send(typeof frame === 'string' ? frame : JSON.stringify(frame));
      socket.once('message', (text) => {
        since.push(JSON.parse(String(text)).since ?? null);
        send({ type: 'subscribe_ack', since: null });
        if (since.length <= bad.length) {
          // Each time one event, then what cannot be read: behind it nothing counts.
          send(event(`b${since.length}`));
          send(event('a'));
          send(bad[since.length - 1]);
          send(event('z'));
        } else socket.close(1000);
      });
    });
    const { port } = sockets.address() as AddressInfo;
    const told: boolean[] = [];
    const ids: unknown[] = [];
    const options = { connected: (yes: boolean) => void told.push(yes) };
    for await (const item of createMetisClient({ baseUrl: `http://127.0.0.1:${port}` }).stream('sess_x', options))
      if (item.type === 'event') ids.push(item.event.id);
    sockets.close();
    expect(ids).toEqual(['b1', 'b2', 'b3', 'b4', 'b5', 'b6', 'b7']);
    expect(since.slice(0, 8)).toEqual([null, ...ids]);
    expect(told).toEqual(since.flatMap((_, i) => (i === 0 ? [true] : [false, true])));
  });

  it('asks a server that takes it and brings nothing ever more rarely, and one that brings something at once', async () => {
    type Step = 'nothing' | 'known' | 'event' | 'long';
    const steps: Step[] = ['nothing', 'nothing', 'nothing', 'event', 'nothing', 'known', 'nothing', 'long', 'nothing'];
    const left = [...steps];
    let step: Step | undefined;
    const sockets = new WebSocketServer({ port: 0, host: '127.0.0.1' });
    await once(sockets, 'listening');
    sockets.on('connection', (socket) => {
      step = left.shift();
      const event = (id: string) => ({ type: 'event', event: { id, type: 'turn.started', transient: false } });
      socket.once('message', () => {
        if (step === undefined) return socket.close(1000);
        socket.send(JSON.stringify({ type: 'subscribe_ack', since: 'a' }));
        if (step === 'event') socket.send(JSON.stringify(event('b')));
        if (step === 'known') socket.send(JSON.stringify(event('b')));
        socket.close(1001);
      });
    });
    const { port } = sockets.address() as AddressInfo;
    const waits: number[] = [];
    const wait = async (ms: number, signal?: AbortSignal) => {
      if (ms < 5000) waits.push(ms);
      // How long a connection stands: all but one are gone before that.
      else if (step !== 'long') await once(signal!, 'abort');
    };
    const ids: unknown[] = [];
    for await (const item of streamSession({ baseUrl: `http://127.0.0.1:${port}` }, 'sess_x', {}, wait))
      if (item.type === 'event') ids.push(item.event.id);
    sockets.close();
    expect(ids).toEqual(['b']);
    expect(waits).toEqual([100, 200, 400, 100, 200, 400, 800, 100, 200]);
  });

  it('with a wrong token fails with the reason of the server', async () => {
    const url = await address(serve('0', { METIS_SERVER_AUTH_TOKENS: JSON.stringify([TOKEN]) }));
    const session = await createMetisClient({ baseUrl: url, token: TOKEN }).createSession({
      workspace_path: home.path,
    });
    const stream = createMetisClient({ baseUrl: url, token: 'x'.repeat(32) }).stream(session.id);
    await expect(stream.next()).rejects.toMatchObject({ code: 'unauthorized' });
  });

  it('of a session that does not exist fails with the reason of the server', async () => {
    const client = createMetisClient({ baseUrl: await address(serve()) });
    const stream = client.stream('sess_01JZZZZZZZZZZZZZZZZZZZZZZZ', { snapshot: true });
    await expect(stream.next()).rejects.toMatchObject({ status: 404, code: 'not_found' });
  });
});

describe('a turn', () => {
  it('is followed to its end over the death of its server, and is what the last step returns', async () => {
    const first = serveAsProcess();
    const url = await address(first);
    const client = createMetisClient({ baseUrl: url });
    const session = await client.createSession({ workspace_path: home.path });
    const events = client.turn(session.id, { content: 'Look at this.' }, { include_worker_sessions: true });
    const seen: string[] = [];
    let restarted = false;
    let step = await events.next();
    for (; !step.done; step = await events.next()) {
      if (step.value.id !== null) seen.push(step.value.id);
      if (step.value.type === 'delegate.started' && !restarted) {
        restarted = true;
        await first.stop('SIGKILL');
        await address(serve(new URL(url).port));
      }
    }
    expect(restarted).toBe(true);
    expect(step.value).toMatchObject({ session_id: session.id, status: 'completed' });
    const stored = await client.listEvents(session.id, { include_worker_sessions: true, limit: 1000 });
    const ofTurn = stored.events.filter((event) => event.id >= seen[0]! && event.id <= seen.at(-1)!);
    expect(seen).toEqual(ofTurn.map((event) => event.id));
    expect(ofTurn[0]?.type).toBe('turn.started');
    expect(ofTurn.at(-1)?.type).toBe('turn.completed');
  });

  it('whose watching is aborted goes on by itself', async () => {
    const client = createMetisClient({ baseUrl: await address(serve()) });
    const session = await client.createSession({ workspace_path: home.path });
    const stop = new AbortController();
    const watch = async () => {
      for await (const event of client.turn(session.id, { content: 'Look.' }, { signal: stop.signal })) {
        if (event.type === 'turn.started') stop.abort(new Error('seen enough'));
      }
    };
    await expect(watch()).rejects.toThrow('seen enough');
    for await (const item of client.stream(session.id, { snapshot: true })) {
      if (item.type === 'snapshot' ? item.session.current_turn_id === null : ended(item, session.id)) break;
    }
    expect((await client.listTurns(session.id)).turns.map((turn) => turn.status)).toEqual(['completed']);
  });

  it('that is refused throws the refusal', async () => {
    const client = createMetisClient({ baseUrl: await address(serve()) });
    const session = await client.createSession({ workspace_path: home.path });
    await expect(client.turn(session.id, { content: '@nope hi' }).next()).rejects.toMatchObject({
      code: 'unknown_alias',
    });
  });
});

it('the same idempotency key opens one session', async () => {
  const client = createMetisClient({ baseUrl: await address(serve()) });
  const open = () => client.createSession({ workspace_path: home.path }, { idempotencyKey: 'once' });
  expect((await open()).id).toBe((await open()).id);
});

it('a refusal carries status, code and details', async () => {
  const client = createMetisClient({ baseUrl: await address(serve()) });
  const failure = await client.createSession({ workspace_path: '/does/not/exist' }).catch((error: unknown) => error);
  expect(failure).toBeInstanceOf(ApiError);
  expect(failure).toMatchObject({ status: 404, code: 'not_found', details: { resource: 'workspace' } });
});
