// Requests for a tree that another server owns: two doors to one engine, each with its own view of who owns what (16 §5).
import { once } from 'node:events';
import http from 'node:http';
import net, { type AddressInfo } from 'node:net';
import { describe, expect, onTestFinished, test } from 'vitest';
import { type Clock, systemClock } from '#protocol/clock.ts';
import { type Answer, openDoor, type Parsed, startServer, type TestDoor, type TestServer } from '../support/http.ts';
import { planner, scenario } from '../support/scenario.ts';
import { nodeInfo, type ScriptedTrees, scriptedTrees, type Whereabouts } from '../support/trees.ts';
import { until } from '../support/until.ts';

const ANY_TURN = { version: 1, rules: [{ match: {}, times: 'inf', respond: { text: 'ok' } }] };
const HANGS = scenario(planner({ hang: true }));
/** Nothing is waited for so long but by a request that is to end otherwise, on however busy a machine. */
const LONG_MS = 60_000;
const PATIENCE = {
  total_ms: LONG_MS,
  between_ms: 20,
  silence_ms: LONG_MS,
  answer_ms: LONG_MS,
  alive_ms: 50,
  read_ms: LONG_MS,
  probe_ms: LONG_MS,
};
/** A hurried node gives up after so many looks for an owner. */
const LOOKS = 4;
const EPOCH = 7;

interface Pair {
  readonly server: TestServer;
  /** Where the tree is owned. */
  readonly owner: TestDoor & { readonly trees: ScriptedTrees; readonly requests: http.IncomingMessage[] };
  /** Another node. */
  readonly other: TestDoor & { readonly trees: ScriptedTrees };
  readonly session: string;
  /** Of every node. */
  readonly clock: MovedClock;
}

interface PairOptions {
  readonly server?: Parameters<typeof startServer>[0];
  /** What the other node sees; the owner unless told. */
  readonly seen?: (owner: string, how: 'claim' | 'look') => Whereabouts | null;
  readonly patience?: typeof PATIENCE;
  /** Each look of the other node takes its part of the patience. */
  readonly hurried?: boolean;
  readonly session?: object;
  readonly headers?: Readonly<Record<string, string>>;
}

type MovedClock = Clock & { look(): void };

/** Real time, which jumps by a part of the patience when a node looks for an owner. */
function movedClock(): MovedClock {
  let ahead = 0;
  return {
    ...systemClock,
    monotonic: () => systemClock.monotonic() + ahead,
    look: () => {
      ahead += PATIENCE.total_ms / LOOKS;
    },
  };
}

async function pair(options: PairOptions = {}): Promise<Pair> {
  const clock = movedClock();
  const server = await startServer({ scenario: ANY_TURN, clock, ...options.server });
  const held = scriptedTrees(() => ({ here: true, epoch: EPOCH }));
  const owner = await openDoor(server, { trees: held, patience: PATIENCE });
  const requests: http.IncomingMessage[] = [];
  owner.app.server.on('request', (request) => requests.push(request));
  const seen = options.seen ?? ((url: string) => ({ here: false, url, epoch: EPOCH }));
  const trees = scriptedTrees(
    (how) => {
      if (options.hurried) clock.look();
      return seen(owner.base, how);
    },
    () => [nodeInfo({ url: owner.base })],
  );
  const other = await openDoor(server, { trees, patience: options.patience ?? PATIENCE });
  const asked = { workspace_path: server.workspace, ...options.session };
  const made = await server.call('POST', '/sessions', asked, options.headers);
  expect(made.status).toBe(201);
  return {
    server,
    owner: { ...owner, trees: held, requests },
    other: { ...other, trees },
    session: made.body.id,
    clock,
  };
}

/** A port where nobody listens. */
async function deadPort(): Promise<number> {
  const server = net.createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

/** What listens like a node and does as it is told with each request. */
async function strangeNode(handle: http.RequestListener) {
  const requests: http.IncomingMessage[] = [];
  const server = http.createServer((request, response) => {
    requests.push(request);
    handle(request, response);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, requests };
}

const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==';
/** Image blocks that together have about so many bytes. */
function images(bytes: number) {
  const each = 2 ** 20;
  const padded = Buffer.concat([Buffer.from(PIXEL, 'base64'), Buffer.alloc(each)]).toString('base64');
  const image = { type: 'image', source: { kind: 'base64', data: padded }, media_type: 'image/png' };
  return Array.from({ length: Math.ceil(bytes / each) }, () => image);
}

const refusal = ({ status, body, headers }: Answer) => [status, body.error?.code, headers.get('retry-after')];

describe('a request for a tree of another node', () => {
  // Promise 16.9: the answers of another node are those of the owner, byte for byte.
  test('is answered by the owner, with the status, the headers and the bytes it would have there', async () => {
    const { server, owner, other, session } = await pair();
    const key = { 'idempotency-key': 'once' };
    const submitted = await other.call('POST', `/sessions/${session}/turns`, { content: 'hi' }, key);
    expect(submitted.status).toBe(202);
    const { turn_id } = submitted.body;
    expect(submitted.headers.get('location')).toBe(`/sessions/${session}/turns/${turn_id}`);
    await server.ended(turn_id);
    await server.call('PUT', `/sessions/${session}/turns/${turn_id}/score`, { score: 1 });
    for (const [method, path, body, headers] of [
      ['POST', `/sessions/${session}/turns`, { content: 'hi' }, { ...key, prefer: 'wait=5' }],
      ['PATCH', `/sessions/${session}`, { max_cost_usd: '3' }],
      ['PATCH', `/sessions/${session}`, { max_cost_usd: 3 }],
      ['POST', `/sessions/${session}/estimate`, { content: 'how much' }],
      ['POST', `/sessions/${session}/turns/${turn_id}/cancel`],
      ['POST', `/sessions/${session}/turns/${turn_id}/resume`, {}],
      ['PUT', `/sessions/${session}/turns/${turn_id}/score`, { score: 1 }],
      ['POST', `/sessions/${session}/delegations`, { tier: 'none' }],
    ] as const) {
      const there = await server.call(method, path, body, headers);
      const here = await other.call(method, path, body, headers);
      expect([method, path, here.status, here.body]).toEqual([method, path, there.status, there.body]);
      const shown = ({ headers: all }: Answer) => [...all].filter(([name]) => !['date', 'keep-alive'].includes(name));
      expect(shown(here)).toEqual(shown(there));
    }
    expect(owner.requests.map(({ headers }) => headers['x-metis-forwarded'])).toEqual(
      owner.requests.map(() => String(EPOCH)),
    );
    const ended = await other.call('DELETE', `/sessions/${session}?purge=true`);
    expect(ended.body).toMatchObject({ id: session, purged: true });
    expect(owner.requests).toHaveLength(10);
    await until(() => owner.trees.users() === 0);
  });

  test('reads are answered where they arrive, and so is what belongs to no tree', async () => {
    const { server, owner, other, session } = await pair();
    for (const path of [`/sessions/${session}`, `/sessions/${session}/messages`, '/sessions', '/nodes', '/healthz'])
      expect((await other.call('GET', path)).status).toBe(200);
    expect((await other.call('POST', '/sessions', { workspace_path: server.workspace })).status).toBe(201);
    expect((await other.call('PATCH', '/sessions/nonsense', { max_cost_usd: '1' })).status).toBe(400);
    const unknown = 'sess_01ARZ3NDEKTSV4RRFFQ69G5FAV';
    expect((await other.call('DELETE', `/sessions/${unknown}`)).body.error.code).toBe('not_found');
    expect(owner.requests).toHaveLength(0);
    expect(other.trees.asked).toEqual([]);
  });

  test("a client's own name for a session leads to the owner of its tree, with or without a key", async () => {
    const { server, owner, other } = await pair();
    const body = { workspace_path: server.workspace, client_ref: 'mine', door: 'mcp' };
    const first = await server.call('POST', '/sessions', body);
    for (const headers of [{}, { 'idempotency-key': 'k' }]) {
      const again = await other.call('POST', '/sessions', body, headers);
      expect([again.status, again.body.id]).toEqual([201, first.body.id]);
    }
    expect(owner.requests.map(({ method, url }) => [method, url])).toEqual([
      ['POST', '/sessions'],
      ['POST', '/sessions'],
    ]);
  });

  test('a session that a client has already goes to its owner with the body that was sent: a key is repeated at any node', async () => {
    const { server, owner, other } = await pair();
    const body = { workspace_path: server.workspace, client_ref: 'mine' };
    const key = { 'idempotency-key': 'open' };
    const first = await server.call('POST', '/sessions', body, key);
    expect(first.status).toBe(201);
    const again = await other.call('POST', '/sessions', body, key);
    expect([again.status, again.body.id, again.headers.get('idempotency-replayed')]).toEqual([
      201,
      first.body.id,
      'true',
    ]);
    expect(owner.requests).toHaveLength(1);
    const reused = await other.call('POST', '/sessions', { ...body, max_cost_usd: '1' }, key);
    expect(refusal(reused)).toEqual([422, 'idempotency_key_reused', null]);
  });

  test('a target in absolute form goes on as its path', async () => {
    const { other, session } = await pair();
    const { hostname, port } = new URL(other.base);
    const target = `${other.base}/sessions/${session}`;
    const headers = { 'content-type': 'application/json' };
    const asked = http.request({ hostname, port, path: target, method: 'PATCH', headers });
    asked.end('{"max_cost_usd": "2"}');
    const [response] = (await once(asked, 'response')) as [http.IncomingMessage];
    response.resume();
    expect(response.statusCode).toBe(200);
  });

  test('a confirmation goes to the owner of its session', async () => {
    const { server, owner, other, session } = await pair({
      server: {
        scenario: scenario(
          planner({ tool_calls: [{ name: 'write_file', input: { path: 'a', content: 'b' } }] }, { text: 'done' }),
        ),
      },
    });
    const { turn_id } = (await other.call('POST', `/sessions/${session}/turns`, { content: 'write' })).body;
    const asked = await server.event('tool.confirmation_requested');
    const { confirmation_request_id } = asked.payload as Parsed;
    const answer = await other.call('POST', `/confirmations/${confirmation_request_id}`, { decision: 'approve' });
    expect(answer.body).toMatchObject({ decision: 'approve', applied: true });
    expect((await server.ended(turn_id)).status).toBe('completed');
    expect(owner.requests.at(-1)?.url).toBe(`/confirmations/${confirmation_request_id}`);
  });

  test('the caller is authenticated at the owner again, and its page was judged where it asked', async () => {
    const token = 't'.repeat(32);
    const server = { config: { server: { auth_tokens: [token] } } };
    const { owner, other, session } = await pair({ server, headers: { authorization: `Bearer ${token}` } });
    const path = `/sessions/${session}`;
    const authorization = `Bearer ${token}`;
    const change = { max_cost_usd: '1' };
    expect((await other.call('PATCH', path, change)).status).toBe(401);
    expect(owner.requests).toHaveLength(0);
    const page = { authorization, origin: other.base, 'sec-fetch-site': 'same-origin', cookie: 'a=b' };
    expect((await other.call('PATCH', path, change, page)).status).toBe(200);
    const { headers } = owner.requests[0]!;
    expect(headers).toMatchObject({ authorization, cookie: 'a=b', host: `127.0.0.1:${owner.port}` });
    expect(headers).not.toHaveProperty('origin');
    expect(headers).not.toHaveProperty('sec-fetch-site');
    const evil = await other.call('PATCH', path, change, { authorization, origin: 'https://evil.example' });
    expect([evil.status, owner.requests.length]).toEqual([403, 1]);
    const direct = await owner.call('PATCH', path, change, { 'x-metis-forwarded': String(EPOCH) });
    expect(direct.status).toBe(401);
  });

  test('who says itself that a request was forwarded gains nothing', async () => {
    const { owner, other, session } = await pair();
    const change = (door: TestDoor, epoch: string) =>
      door.call('PATCH', `/sessions/${session}`, { max_cost_usd: '1' }, { 'x-metis-forwarded': epoch });
    expect((await change(owner, String(EPOCH))).status).toBe(200);
    for (const epoch of [String(EPOCH + 1), '1', 'x', '-1', '1e9'])
      expect(refusal(await change(owner, epoch))).toEqual([421, 'misdirected_request', null]);
    expect((await change(owner, '0')).status).toBe(200);
    // Not passed on, whatever is said.
    const before = owner.requests.length;
    for (const epoch of [String(EPOCH), '0']) expect((await change(other, epoch)).status).toBe(421);
    expect(owner.requests).toHaveLength(before);
    expect(owner.trees.users()).toBe(0);
  });
});

describe('bodies', () => {
  test('5 MiB of images arrive whole, announced or in chunks', async () => {
    const { server, owner, other, session } = await pair();
    const content = images(5 * 2 ** 20);
    const whole = await other.call('POST', `/sessions/${session}/turns`, { content });
    expect(whole.status).toBe(202);
    expect((await server.ended(whole.body.turn_id)).status).toBe('completed');
    const { body } = await server.call('GET', `/sessions/${session}/messages`);
    expect(body.messages[0].content).toEqual(content);

    const bytes = Buffer.from(JSON.stringify({ content: 'chunked' }));
    const chunked = http.request(`${other.base}/sessions/${session}/turns`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'transfer-encoding': 'chunked' },
    });
    for (const byte of bytes) chunked.write(Buffer.from([byte]));
    chunked.end();
    const [response] = (await once(chunked, 'response')) as [http.IncomingMessage];
    expect([response.statusCode, owner.requests.length]).toEqual([202, 2]);
    response.resume();
  });

  test('one beyond the limit is refused, announced or not, and the connection goes on', async () => {
    const { owner, other, session } = await pair();
    const big = await other.call('PATCH', `/sessions/${session}`, { max_cost_usd: '1'.repeat(2 ** 20) });
    expect(refusal(big)).toEqual([413, 'payload_too_large', null]);
    expect(owner.requests).toHaveLength(0);
    const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
    onTestFinished(() => agent.destroy());
    const send = (body: Buffer) => {
      const request = http.request(`${other.base}/sessions/${session}`, {
        agent,
        method: 'PATCH',
        headers: { 'content-type': 'application/json', 'transfer-encoding': 'chunked' },
      });
      request.end(body);
      return once(request, 'response') as Promise<[http.IncomingMessage]>;
    };
    const [refused] = await send(Buffer.alloc(3 * 2 ** 20, 0x20));
    expect(refused.statusCode).toBe(413);
    refused.resume();
    await once(refused, 'end');
    const [next] = await send(Buffer.from('{"max_cost_usd": "2"}'));
    expect(next.statusCode).toBe(200);
    next.resume();
  });

  test('one that was sent to a node which died is handled here when the tree is claimed, whole', async () => {
    let lost = 0;
    const dying = await strangeNode((request) => {
      // In the middle of the body, and at its end.
      request.on(lost++ === 0 ? 'data' : 'end', () => request.socket.destroy());
      request.resume();
    });
    const { server, owner, other, session } = await pair({
      seen: () => (lost < 2 ? { here: false, url: dying.url, epoch: 3 } : { here: true, epoch: 4 }),
    });
    const content = images(3 * 2 ** 20);
    const key = { 'idempotency-key': 'again' };
    const answer = await other.call('POST', `/sessions/${session}/turns`, { content }, key);
    expect(answer.status).toBe(202);
    expect(dying.requests).toHaveLength(2);
    await server.ended(answer.body.turn_id);
    const { body } = await server.call('GET', `/sessions/${session}/messages`);
    expect(body.messages[0].content).toEqual(content);
    expect(owner.requests).toHaveLength(0);
    await until(() => other.trees.users() === 0);
  });
});

describe('an owner out of reach', () => {
  test('is tried again until it answers', async () => {
    const port = await deadPort();
    const { server, other, session } = await pair({
      seen: () => ({ here: false, url: `http://127.0.0.1:${port}`, epoch: EPOCH }),
    });
    const asked = other.call('PATCH', `/sessions/${session}`, { max_cost_usd: '1' });
    await until(() => other.trees.asked.length > 2);
    await openDoor(server, { port, trees: scriptedTrees(() => ({ here: true, epoch: EPOCH })) });
    expect((await asked).status).toBe(200);
  });

  test('is given up in the end, and so is a tree that no node can take', async () => {
    const port = await deadPort();
    for (const url of [`http://127.0.0.1:${port}`, null]) {
      const { server, session, clock } = await pair();
      const trees = scriptedTrees(() => {
        clock.look();
        return { here: false, url, epoch: EPOCH };
      });
      const door = await openDoor(server, { trees, patience: PATIENCE });
      const turn = await door.call('POST', `/sessions/${session}/turns`, { content: 'hi' });
      expect(refusal(turn)).toEqual([503, 'node_unavailable', '1']);
      expect(trees.asked).toHaveLength(LOOKS);
      // The session's reads stay.
      expect((await door.call('GET', `/sessions/${session}`)).status).toBe(200);
    }
  });

  // Promise 16.21: a node out of reach gets no tree without an owner.
  test('a tree that no node owns is not given to one whose address leads elsewhere', async () => {
    const { server, session, clock } = await pair();
    const strange = await strangeNode((_request, response) => response.writeHead(404).end());
    let isProbed = true;
    const trees = scriptedTrees(
      () => {
        clock.look();
        return { here: false, url: null, epoch: 3 };
      },
      () => [nodeInfo({ id: 'self', places: [] }), ...(isProbed ? [nodeInfo({ url: strange.url })] : [])],
    );
    const door = await openDoor(server, { trees, patience: { ...PATIENCE, probe_ms: 10 } });
    const listed = async () => (await door.call('GET', '/nodes')).body;
    await until(async () => (await listed())[1].reachable === false);
    expect(await listed()).toMatchObject([{ id: 'self', reachable: true }, { id: 'other' }]);
    expect((await door.call('GET', '/metrics')).body).toMatch(/^metis_unreachable_nodes 1$/m);
    const turn = await door.call('POST', `/sessions/${session}/turns`, { content: 'hi' });
    expect(refusal(turn)).toEqual([503, 'node_unavailable', '1']);
    expect(new Set(strange.requests.map((each) => `${each.method} ${each.url}`))).toEqual(new Set(['GET /nodes/self']));
    isProbed = false;
    await until(async () => (await door.call('GET', '/metrics')).body.includes('metis_unreachable_nodes 0'));
  });

  test('the id of a node is answered without a token', async () => {
    const server = await startServer({ config: { server: { auth_tokens: ['t'.repeat(40)] } } });
    const { status, body } = await server.call('GET', '/nodes/self');
    expect([status, body]).toEqual([200, { id: server.engine.trees.node }]);
  });

  test('one that owns the tree no longer, or goes down, is asked no more: the tree is looked for again', async () => {
    for (const change of ['moved', 'draining'] as const) {
      const { server, owner, session } = await pair();
      const former = await openDoor(server, {
        trees: scriptedTrees(() => ({ here: false, url: owner.base, epoch: 9 })),
      });
      if (change === 'draining') former.drain();
      const trees = scriptedTrees(() =>
        trees.asked.length < 3
          ? { here: false, url: former.base, epoch: 5 }
          : { here: false, url: owner.base, epoch: EPOCH },
      );
      const door = await openDoor(server, { trees, patience: PATIENCE });
      const turn = await door.call('POST', `/sessions/${session}/turns`, { content: 'hi' });
      expect([turn.status, trees.asked.length, owner.requests.length]).toEqual([202, 3, 1]);
    }
  });

  test('after a connection that broke, only what may be done twice is sent again', async () => {
    const breaking = await strangeNode((request) => {
      request.resume();
      request.on('end', () => request.socket.destroy());
    });
    const seen = () => ({ here: false, url: breaking.url, epoch: 2 }) as const;
    const { other, session } = await pair({ seen, hurried: true });
    const path = `/sessions/${session}`;
    const turn = `${path}/turns/turn_01ARZ3NDEKTSV4RRFFQ69G5FAV`;
    const key = { 'idempotency-key': 'k' };
    for (const [method, target, body, headers, again] of [
      ['POST', `${path}/turns`, { content: 'hi' }, {}, false],
      ['POST', `${path}/delegations`, { tier: 'fast', task: 't' }, {}, false],
      ['POST', `${turn}/resume`, {}, {}, false],
      ['POST', `${path}/turns`, { content: 'hi' }, key, true],
      ['POST', `${turn}/cancel`, {}, {}, true],
      ['PATCH', path, { max_cost_usd: '1' }, {}, true],
      ['DELETE', path, undefined, {}, true],
    ] as const) {
      breaking.requests.length = 0;
      const answer = await other.call(method, target, body, headers);
      expect(refusal(answer)).toEqual([503, 'node_unavailable', '1']);
      expect([method, target, breaking.requests.length]).toEqual([method, target, again ? LOOKS : 1]);
    }
  });

  test('one that lost the tree over the request is asked no more: what may be done twice goes on elsewhere', async () => {
    const losing = await strangeNode((request, response) => {
      request.resume();
      response.writeHead(503, {
        'content-type': 'application/json',
        'x-metis-not-taken': 'perhaps',
        'retry-after': '1',
      });
      response.end('{"error":{"code":"node_unavailable","message":"lost"}}');
    });
    const { owner, other, session } = await pair({
      seen: (base) => ({ here: false, url: losing.requests.length === 1 ? base : losing.url, epoch: EPOCH }),
    });
    const moved = await other.call('PATCH', `/sessions/${session}`, { max_cost_usd: '1' });
    expect([moved.status, losing.requests.length, owner.requests.length]).toEqual([200, 1, 1]);
    losing.requests.length = 0;
    const turn = await other.call('POST', `/sessions/${session}/turns`, { content: 'hi' });
    expect(refusal(turn)).toEqual([503, 'node_unavailable', '1']);
    expect([turn.body.error.message, owner.requests.length]).toEqual(['lost', 1]);
  });

  test('one that says nothing counts as gone; one that is slow says that it lives', async () => {
    const mute = await strangeNode(() => {});
    const { other, session } = await pair({
      seen: () => ({ here: false, url: mute.url, epoch: 2 }),
      hurried: true,
      patience: { ...PATIENCE, silence_ms: 50 },
    });
    expect(refusal(await other.call('DELETE', `/sessions/${session}`))).toEqual([503, 'node_unavailable', '1']);
    expect(mute.requests).toHaveLength(LOOKS);

    const slow = await pair({ server: { scenario: HANGS }, patience: { ...PATIENCE, silence_ms: 1500 } });
    const path = `/sessions/${slow.session}/turns`;
    const answer = await slow.other.call('POST', path, { content: 'hi' }, { prefer: 'wait=2' });
    expect([answer.status, slow.owner.requests.length]).toEqual([202, 1]);
  });

  test('one that only ever says that it lives is not waited for without end', async () => {
    const lively = await strangeNode((_, response) => {
      const live = () => {
        response.writeProcessing();
        if (!response.closed) systemClock.after(20, live);
      };
      live();
    });
    const seen = () => ({ here: false, url: lively.url, epoch: 2 }) as const;
    const { other, session } = await pair({ seen, patience: { ...PATIENCE, answer_ms: 100 } });
    const turn = await other.call('POST', `/sessions/${session}/turns`, { content: 'hi' });
    expect([...refusal(turn), lively.requests.length]).toEqual([503, 'node_unavailable', '1', 1]);
  });

  test('a caller who leaves ends it: at the owner, and while it is looked for', async () => {
    const waiting = await strangeNode(() => {});
    const { server, other, session } = await pair({ seen: () => ({ here: false, url: waiting.url, epoch: 2 }) });
    const leave = new AbortController();
    const asked = fetch(`${other.base}/sessions/${session}`, { method: 'DELETE', signal: leave.signal });
    await until(() => waiting.requests.length > 0);
    const { socket } = waiting.requests[0]!;
    const closed = once(socket, 'close');
    leave.abort();
    await expect(asked).rejects.toThrow();
    await closed;
    expect(waiting.requests).toHaveLength(1);

    const nobody = scriptedTrees(() => ({ here: false, url: null, epoch: 2 }));
    const door = await openDoor(server, { trees: nobody, patience: { ...PATIENCE, total_ms: 600_000 } });
    const again = new AbortController();
    const looking = fetch(`${door.base}/sessions/${session}`, { method: 'DELETE', signal: again.signal });
    await until(() => nobody.asked.length > 2);
    again.abort();
    await expect(looking).rejects.toThrow();
    let asks = -1;
    await until(async () => {
      if (asks === nobody.asked.length) return true;
      asks = nobody.asked.length;
      for (let i = 0; i < 20; i++) await door.call('GET', '/healthz');
      return false;
    });
  });

  test('heads of answers are limited, and redirects are not followed', async () => {
    let redirected = 0;
    const target = await strangeNode((_, response) => {
      redirected += 1;
      response.end();
    });
    const strange = await strangeNode((request, response) => {
      if (request.method === 'DELETE') response.writeHead(200, { 'x-much': 'x'.repeat(20_000) }).end();
      else response.writeHead(307, { location: target.url }).end();
    });
    const { other, session } = await pair({
      seen: () => ({ here: false, url: strange.url, epoch: 2 }),
      hurried: true,
    });
    expect((await other.call('DELETE', `/sessions/${session}`)).status).toBe(503);
    const answer = await fetch(`${other.base}/sessions/${session}`, {
      method: 'PATCH',
      body: '{}',
      headers: { 'content-type': 'application/json' },
      redirect: 'manual',
    });
    expect([answer.status, redirected]).toEqual([307, 0]);
  });
});

describe('money that is held', () => {
  test('is told by the owner of a session under a limit; one that is out of reach is not waited for', async () => {
    const { server, owner, other, session } = await pair({
      server: { scenario: HANGS },
      session: { max_cost_usd: '5' },
    });
    await server.call('POST', `/sessions/${session}/turns`, { content: 'hi' });
    await server.event('llm.call_started');
    const path = `/sessions/${session}`;
    const [there, here] = [await owner.call('GET', path), await other.call('GET', path)];
    expect(here.body.budget).toEqual(there.body.budget);
    expect(Number(here.body.budget.reserved_usd)).toBeGreaterThan(0);
    expect(owner.requests.at(-1)?.headers['x-metis-forwarded']).toBe(String(EPOCH));
    // Looked at, not claimed.
    expect(other.trees.asked).toEqual(['look']);
    const mute = await strangeNode(() => {});
    for (const url of [mute.url, `http://127.0.0.1:${await deadPort()}`]) {
      const trees = scriptedTrees(() => ({ here: false, url, epoch: EPOCH }));
      const door = await openDoor(server, { trees, patience: { ...PATIENCE, read_ms: 50 } });
      expect((await door.call('GET', path)).body.id).toBe(session);
    }
    expect(mute.requests).toHaveLength(1);
  });
});

describe('a node', () => {
  test('is not ready without a valid lease, and is served by the name that others reach it by', async () => {
    const server = await startServer();
    const trees = scriptedTrees(() => ({ here: true, epoch: 1 }));
    let reason: string | null = 'the lease has ended';
    const door = await openDoor(server, {
      trees: { ...trees, unready: () => reason, url: 'http://node-7.internal:9' },
    });
    const refused = await door.call('GET', '/readyz');
    expect(refusal(refused)).toEqual([503, 'node_unavailable', '1']);
    expect(refused.body.error.message).toBe(reason);
    reason = null;
    expect((await door.call('GET', '/readyz')).status).toBe(200);
    const asked = async ({ port }: TestDoor, host: string) => {
      const request = http.get({ host: '127.0.0.1', port, path: '/sessions', headers: { host } });
      const [response] = (await once(request, 'response')) as [http.IncomingMessage];
      response.resume();
      return response.statusCode;
    };
    expect(await asked(door, 'node-7.internal:9')).toBe(200);
    for (const host of ['node-7.internal', 'node-7.internal:8', 'evil.example:9'])
      expect(await asked(door, host)).toBe(403);
    expect(await asked(server, 'node-7.internal:9')).toBe(403);
  });
});

describe('placement', () => {
  test('a tree that nobody owns goes to the live node of its place with the fewest turns', async () => {
    const { server, owner, session } = await pair();
    const nodes = [
      nodeInfo({ id: 'self', places: ['node:self'] }),
      nodeInfo({ id: 'busy', turns: 9 }),
      nodeInfo({ id: 'going', draining: true }),
      nodeInfo({ id: 'elsewhere', places: ['node:elsewhere'] }),
      nodeInfo({ id: 'idle', turns: 3, url: owner.base }),
    ];
    const trees = scriptedTrees(
      () => ({ here: false, url: null, epoch: 3 }),
      () => nodes,
    );
    const door = await openDoor(server, { trees, patience: PATIENCE });
    const turn = await door.call('POST', `/sessions/${session}/turns`, { content: 'hi' });
    expect(turn.status).toBe(202);
    expect(owner.requests.map(({ headers }) => headers['x-metis-forwarded'])).toEqual(['0']);
    expect(owner.trees.asked).toEqual(['claim']);
  });
});
