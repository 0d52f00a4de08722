// The typed client against a real server, and across the death of one.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createMetisClient } from '../../src/client/client.ts';
import { ApiError } from '../../src/client/request.ts';
import type { StreamItem } from '../../src/client/stream.ts';
import { address, getJson, type Started, start, temporaryHome } from './metis.ts';

let home: ReturnType<typeof temporaryHome>;
const running: Started[] = [];
beforeEach(() => {
  home = temporaryHome();
});
afterEach(async () => {
  await Promise.all(running.splice(0).map((server) => server.stop('SIGKILL')));
  home.remove();
});
function serve(port = '0'): Started {
  const server = start(['serve', '--port', port], { home: home.path });
  running.push(server);
  return server;
}
const ended = (item: StreamItem, sessionId: string) =>
  item.type === 'event' &&
  item.event.session_id === sessionId &&
  ['turn.completed', 'turn.failed', 'turn.cancelled'].includes(item.event.type);

describe('a stream', () => {
  it('goes on by itself after the server was killed in mid-turn: every event once, none missing', async () => {
    const first = serve();
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
  }, 30_000);

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

  it('of a session that does not exist fails with the reason of the server', async () => {
    const client = createMetisClient({ baseUrl: await address(serve()) });
    const stream = client.stream('sess_01JZZZZZZZZZZZZZZZZZZZZZZZ', { snapshot: true });
    await expect(stream.next()).rejects.toMatchObject({ status: 404, code: 'not_found' });
  });
});

it('a refusal carries status, code and details', async () => {
  const client = createMetisClient({ baseUrl: await address(serve()) });
  const failure = await client.createSession({ workspace_path: '/does/not/exist' }).catch((error: unknown) => error);
  expect(failure).toBeInstanceOf(ApiError);
  expect(failure).toMatchObject({ status: 404, code: 'not_found', details: { resource: 'workspace' } });
});
