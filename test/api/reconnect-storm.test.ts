// Subscribers that are cut off at any moment while sessions with workers run: each sees every durable event once, in order.
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { WebSocket } from 'ws';
import { createChance } from '../hostile/chance.ts';
import { type Parsed, startServer, type TestServer } from '../support/http.ts';
import { delegate, planner, scenario, worker } from '../support/scenario.ts';

const SESSIONS = 20;
const SUBSCRIBERS = 50;
const SEED = Number(process.env.STORM_SEED ?? 20_260);
const LAST = 'session.ended';

const SCENARIO = scenario(
  planner({ tool_calls: [delegate('left'), delegate('right')] }, { text: 'all of it is done' }),
  worker('left', { text: 'the left side is done' }),
  worker('right', { text: 'the right side is done' }),
);

interface Seen {
  /** Durable ids in the order they came. */
  readonly ids: string[];
  cuts: number;
}

/** One connection from `since` on, until `frames` more have come or the session has ended. True = it has ended. */
type Attach = (url: string, since: string, frames: number, ids: string[]) => Promise<boolean>;

const bySocket: Attach = (url, since, frames, ids) =>
  new Promise((resolve, reject) => {
    const socket = new WebSocket(`${url.replace('http', 'ws')}/stream?include_worker_sessions=true&since=${since}`);
    let left = frames;
    let ended = false;
    socket.on('message', (data) => {
      // What comes behind the cut is lost to this client, as on a line that breaks.
      if (left <= 0) return;
      const { event } = JSON.parse(String(data)) as Parsed;
      if (event?.id) ids.push(event.id);
      ended ||= event?.type === LAST && url.endsWith(event.session_id);
      left -= 1;
      if (left <= 0) socket.terminate();
    });
    socket.on('error', reject);
    socket.on('close', () => resolve(ended));
  });

const bySse: Attach = async (url, since, frames, ids) => {
  const cut = new AbortController();
  const response = await fetch(`${url}/events?include_worker_sessions=true`, {
    headers: { accept: 'text/event-stream', 'last-event-id': since },
    signal: cut.signal,
  });
  if (response.status === 204) return true;
  let left = frames;
  let ended = false;
  let rest = '';
  const decoder = new TextDecoder();
  const body = response.body!.getReader();
  for (;;) {
    const { done, value } = await body.read();
    if (done) return ended;
    rest += decoder.decode(value, { stream: true });
    const messages = rest.split('\n\n');
    rest = messages.pop() ?? '';
    for (const message of messages) {
      const data = /^data: (.*)$/m.exec(message)?.[1];
      if (data === undefined || left <= 0) continue;
      const { event } = JSON.parse(data) as Parsed;
      if (event?.id) ids.push(event.id);
      ended ||= event?.type === LAST && url.endsWith(event.session_id);
      left -= 1;
    }
    if (left > 0) continue;
    cut.abort();
    // Not read any further: where the answer ends just then, Node 22 never settles a read of it.
    return ended;
  }
};

/** Follows a session to its end, cut off after as many frames as `next` says each time. */
async function follow(server: TestServer, session: string, since: string, next: () => number): Promise<Seen> {
  const seen: Seen = { ids: [], cuts: 0 };
  const attach = () => (next() % 2 === 0 ? bySocket : bySse);
  const url = `${server.base}/sessions/${session}`;
  while (!(await attach()(url, seen.ids.at(-1) ?? since, next(), seen.ids))) seen.cuts += 1;
  return seen;
}

/** What is stored of a session and its workers above `since`. */
async function stored(server: TestServer, session: string, since: string): Promise<string[]> {
  const query = `include_worker_sessions=true&limit=1000&since=${since}`;
  const { body } = await server.call('GET', `/sessions/${session}/events?${query}`);
  expect(body.next_cursor).toBeNull();
  return (body.events as Parsed[]).map((event) => event.id);
}

async function runAndEnd(server: TestServer, session: string): Promise<void> {
  const { body: turn } = await server.call('POST', `/sessions/${session}/turns`, { content: 'go' });
  await server.ended(turn.turn_id);
  await server.call('DELETE', `/sessions/${session}`);
}

async function open(server: TestServer): Promise<{ readonly id: string; readonly since: string }> {
  const { id } = await server.session();
  return { id, since: (await stored(server, id, '0'.repeat(26))).at(-1)! };
}

// Promise 06.4: 50 subscribers cut at random while 20 sessions with workers run see every durable event once, in order, over WebSocket and SSE.
test(`${SUBSCRIBERS} subscribers cut at random over ${SESSIONS} sessions with workers see each durable event once, in order (STORM_SEED=${SEED})`, async () => {
  const server = await startServer({ scenario: SCENARIO });
  const sessions = await Promise.all(Array.from({ length: SESSIONS }, () => open(server)));
  const watching = Array.from({ length: SUBSCRIBERS }, (_, i) => {
    const { id, since } = sessions[i % SESSIONS]!;
    const { below } = createChance(SEED + i);
    return follow(server, id, since, () => 1 + below(25)).then((seen) => ({ ...seen, id, since }));
  });
  await Promise.all(sessions.map(({ id }) => runAndEnd(server, id)));
  const all = await Promise.all(watching);
  for (const { id, since, ids } of all) {
    const expected = await stored(server, id, since);
    expect(expected.length).toBeGreaterThan(20);
    expect(ids).toEqual(expected);
  }
  expect(all.reduce((sum, { cuts }) => sum + cuts, 0)).toBeGreaterThan(SUBSCRIBERS);
});

// Promise 06.4: wherever a subscriber is cut, nothing is missing and nothing comes twice.
test('wherever a subscriber is cut, nothing is missing and nothing comes twice', async () => {
  const server = await startServer({ scenario: SCENARIO });
  await fc.assert(
    fc.asyncProperty(fc.array(fc.integer({ min: 1, max: 30 }), { minLength: 1, maxLength: 12 }), async (cuts) => {
      const { id, since } = await open(server);
      let drawn = 0;
      // Each round a frame more: who is always cut behind the acknowledgement would never get any further.
      const next = () => cuts[drawn % cuts.length]! + Math.floor(drawn++ / cuts.length);
      const watching = follow(server, id, since, next);
      await runAndEnd(server, id);
      expect((await watching).ids).toEqual(await stored(server, id, since));
    }),
    { numRuns: 25, examples: [[[1]], [[2, 1]]] },
  );
});
