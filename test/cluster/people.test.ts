// People on several nodes: what one node revokes, every node refuses, with NATS and without; forks that other nodes hold end with a purge; what a person may spend, all nodes share (23 §2 to §4).
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { WebSocket } from 'ws';
import { createMetisClient, type MetisClient } from '#client/client.ts';
import { ApiError } from '#client/request.ts';
import { fromPusd, type Pusd, toPusd } from '#protocol/money.ts';
import { type Nodes, startNodes, type TestNode } from '../support/nodes.ts';
import { natsService, postgresService } from '../support/services.ts';
import { until } from '../support/until.ts';

const { url, missing } = await postgresService();
const nats = await natsService();

vi.setConfig({ testTimeout: 240_000 });
const PATIENCE_SECONDS = 90;
/** Within it a token that one node revoked is refused everywhere. */
const REFUSED_WITHIN_MS = 5000;
const ADMIN = 'the-admin-0123456789abcdef0123456789ab';
const TREES = process.env.METIS_CLUSTER === 'full' ? 64 : 18;

const as = ({ url: baseUrl }: Pick<TestNode, 'url'>, token: string) => createMetisClient({ baseUrl, token });
const statusOf = async ({ url: at }: TestNode, token: string | null, path = '/sessions') =>
  (await fetch(`${at}${path}`, { headers: token === null ? {} : { authorization: `Bearer ${token}` } })).status;
const open = async (client: MetisClient, workspace: string, rest: object = {}) =>
  (await client.createSession({ workspace_path: workspace, ...rest })).id;
const ended = (client: MetisClient, session: string, turn: string) =>
  until(async () => {
    const found = await client.getTurn(session, turn);
    return found.ended_at !== null && found;
  }, PATIENCE_SECONDS);

/** A WebSocket and an SSE stream of a session; each resolves with the time at which it ended. */
async function watch({ url: at }: TestNode, token: string, session: string) {
  const headers = { authorization: `Bearer ${token}` };
  const socket = new WebSocket(`${at.replace('http', 'ws')}/sessions/${session}/stream?snapshot=true`, { headers });
  onTestFinished(() => socket.terminate());
  const closed = new Promise<{ code: number; at: number }>((resolve) => {
    socket.on('close', (code) => resolve({ code, at: performance.now() }));
  });
  await new Promise((resolve, reject) => {
    socket.once('message', resolve);
    socket.once('error', reject);
  });
  const response = await fetch(`${at}/sessions/${session}/events?snapshot=true`, {
    headers: { ...headers, accept: 'text/event-stream' },
  });
  expect(response.status).toBe(200);
  const over = response.text().then((text) => ({ text, at: performance.now() }));
  return { closed, over };
}

/** Milliseconds until the node refuses the token. */
async function refusedAfter(node: TestNode, token: string, from: number): Promise<number> {
  await until(async () => (await statusOf(node, token)) === 401, PATIENCE_SECONDS);
  return performance.now() - from;
}

const BUSES = [
  { how: 'without NATS', bus: null, absent: '' },
  { how: 'with NATS', bus: nats.url, absent: nats.missing },
];

describe.skipIf(url === null)(`people on several nodes${missing && `, skipped: ${missing}`}`, () => {
  // Promise 23.3: at another node, with NATS and without, a revoked token and an expired one are 401 and their streams closed within 5 s, whether the node has streams or not; a turn that runs ends well.
  test.each(BUSES.filter(({ absent }) => absent === ''))(
    'a token that one node revokes, and one that expires, are refused by the other within five seconds, $how',
    async ({ bus }) => {
      let answer = () => {};
      const held = new Promise<void>((resolve) => {
        answer = resolve;
      });
      const nodes = await startNodes({
        database: url!,
        answer: async () => {
          await held;
          return { text: 'done', usage: { input: 10, output: 5 } };
        },
        set: { 'server.auth_tokens': [ADMIN], 'nats.url': bus },
      });
      const [a, b] = await Promise.all([nodes.start('a'), nodes.start('b')]);
      const admin = as(a, ADMIN);
      const make = async (name: string, expires_at: string | null = null) =>
        (await admin.createToken({ name, role: 'member', expires_at })).secret;

      // Known at b from the first moment on, and revoked at a while b has no stream.
      const ned = await make('ned');
      expect(await statusOf(b, ned)).toBe(200);
      await admin.revokeToken('ned');
      const revokedNed = performance.now();
      expect(await statusOf(a, ned)).toBe(401);
      expect(await refusedAfter(b, ned, revokedNed)).toBeLessThan(REFUSED_WITHIN_MS);

      const carl = await make('carl');
      const here = as(b, carl);
      const session = await open(here, nodes.workspace('w'));
      const { turn_id } = await here.submitTurn(session, { content: 'go' });
      await until(() => nodes.fake.calls.length === 1, PATIENCE_SECONDS);
      const [atA, atB] = [await watch(a, carl, session), await watch(b, carl, session)];
      await admin.revokeToken('carl');
      const revoked = performance.now();
      expect(await statusOf(a, carl)).toBe(401);
      expect(await refusedAfter(b, carl, revoked)).toBeLessThan(REFUSED_WITHIN_MS);
      for (const { closed, over } of [atA, atB]) {
        const socket = await closed;
        expect([socket.code, socket.at - revoked < REFUSED_WITHIN_MS]).toEqual([1008, true]);
        expect((await over).at - revoked).toBeLessThan(REFUSED_WITHIN_MS);
      }
      answer();
      const turn = await ended(as(b, ADMIN), session, turn_id);
      expect([turn.status, turn.output]).toEqual(['completed', 'done']);

      const LIFE_MS = 8000;
      const until_ms = Date.now() + LIFE_MS;
      const dora = await make('dora', new Date(until_ms).toISOString());
      const theirs = await open(as(b, dora), nodes.workspace('w'));
      const streams = await watch(b, dora, theirs);
      const expires = performance.now() + (until_ms - Date.now());
      const late = Math.max(await refusedAfter(a, dora, expires), await refusedAfter(b, dora, expires));
      expect(late).toBeLessThan(REFUSED_WITHIN_MS);
      const gone = await streams.closed;
      expect([gone.code, gone.at - expires < REFUSED_WITHIN_MS]).toEqual([1008, true]);
      expect((await streams.over).at - expires).toBeLessThan(REFUSED_WITHIN_MS);
    },
  );

  // Promise 23.3: nodes that require no token require one within 5 s after another node made the first.
  test('the first token that one node makes closes the others as well', async () => {
    const nodes = await startNodes({ database: url!, answer: () => ({ text: 'done' }) });
    const [a, b] = await Promise.all([nodes.start('a'), nodes.start('b')]);
    expect(await statusOf(b, null)).toBe(200);
    const { secret } = await a.client.createToken({ name: 'root', role: 'admin' });
    const made = performance.now();
    expect(await statusOf(a, null)).toBe(401);
    await until(async () => (await statusOf(b, null)) === 401, PATIENCE_SECONDS);
    expect(performance.now() - made).toBeLessThan(REFUSED_WITHIN_MS);
    expect(await statusOf(b, secret)).toBe(200);
  });

  // Promise 23.2: a fork of another owner that another node holds ends before the purge deletes its beginning, and the forks of it; where its node does not answer, nothing is purged.
  test('forks of another owner end with the original, also those that another node holds', async () => {
    const nodes = await startNodes({
      database: url!,
      answer: () => ({ text: 'done', usage: { input: 10, output: 5 } }),
      set: { 'server.auth_tokens': [ADMIN], 'cluster.lease_seconds': 10 },
    });
    const [a, b] = await Promise.all([nodes.start('a'), nodes.start('b')]);
    const [ann, bob] = await Promise.all(
      ['ann', 'bob'].map(async (name) => (await as(a, ADMIN).createToken({ name, role: 'member' })).secret),
    );
    const run = async (client: MetisClient, session: string) => {
      const { turn_id } = await client.submitTurn(session, { content: 'go' });
      expect((await ended(client, session, turn_id)).status).toBe('completed');
      return (await client.listMessages(session)).messages.at(-1)!.id;
    };
    const annAtA = as(a, ann!);
    const bobAtB = as(b, bob!);
    const owner = async (session: string) =>
      (
        await nodes.rows(
          'SELECT n.name FROM trees t JOIN nodes n ON n.id = t.owner_node WHERE t.root_session_id = $1',
          session,
        )
      ).map(({ name }) => name);
    const forked = async (origin: string, at_message_id: string) =>
      (await bobAtB.forkSession(origin, { at_message_id, workspace: 'current' })).session!.id;

    const [origin, other] = [
      await open(annAtA, nodes.workspace('w'), { share: 'write' }),
      await open(annAtA, nodes.workspace('w'), { share: 'write' }),
    ];
    const fork = await forked(origin, await run(annAtA, origin));
    const below = await forked(fork, await run(bobAtB, fork));
    const silent = await forked(other, await run(annAtA, other));
    // The node that made them goes down, and the other one takes the forks.
    await a.stop();
    for (const session of [fork, below, silent]) await run(bobAtB, session);
    const again = await nodes.start('again');
    const admin = as(again, ADMIN);
    expect(await admin.endSession(origin, { purge: true })).toMatchObject({ purged: true });
    expect([await owner(fork), await owner(below), await owner(silent)]).toEqual([['b'], ['b'], ['b']]);
    for (const session of [fork, below]) {
      expect((await bobAtB.getSession(session)).status).toBe('ended');
      await expect(bobAtB.submitTurn(session, { content: 'on' })).rejects.toMatchObject({
        code: 'session_already_ended',
      });
    }

    // A fork whose node does not answer: the purge is refused and deletes nothing.
    b.signal('SIGSTOP');
    onTestFinished(() => b.signal('SIGCONT'));
    const refused = await admin.endSession(other, { purge: true }).catch((error: unknown) => error);
    // Its lease may have ended meanwhile: then this node took the fork, and ended it.
    if (refused instanceof ApiError) {
      expect(refused.code).toBe('node_unavailable');
      expect((await admin.listMessages(other)).messages.length).toBeGreaterThan(0);
    }
    b.signal('SIGCONT');
    await until(
      () =>
        admin.endSession(other, { purge: true }).then(
          () => true,
          (error: unknown) => error instanceof ApiError && error.code === 'not_found',
        ),
      PATIENCE_SECONDS,
    );
    expect((await admin.getSession(silent)).status).toBe('ended');
  });

  // Promise 23.6: what a stateless client of `/mcp` carries between two calls is of its token, made at run time too: of use at every node, and forged from any other's.
  test('state of stateless MCP clients is of one token, at every node', async () => {
    const nodes = await startNodes({
      database: url!,
      answer: ({ results }) =>
        results.length > 0
          ? { text: 'written', usage: { input: 10, output: 5 } }
          : { tool_calls: [{ name: 'write_file', input: { path: 'a.txt', content: 'a' } }] },
      set: { 'server.auth_tokens': [ADMIN], 'tool_confirmation.default.write': 'prompt' },
    });
    const [a, b] = await Promise.all([nodes.start('a'), nodes.start('b')]);
    const [ann, bob] = await Promise.all(
      ['ann', 'bob'].map(async (name) => (await as(a, ADMIN).createToken({ name, role: 'member' })).secret),
    );
    const target = new URL(`/mcp?workspace=${encodeURIComponent(nodes.workspace('w'))}`, a.url);
    const carried: { body: string; headers: Headers }[] = [];
    const intercept: typeof fetch = async (at, init) => {
      const body = String(init?.body ?? '');
      if (!body.includes('requestState')) return fetch(at, init);
      carried.push({ body, headers: new Headers(init!.headers) });
      throw new Error('kept back');
    };
    const client = new Client(
      { name: 'test', version: '1' },
      { capabilities: { elicitation: { form: {} } }, versionNegotiation: { mode: { pin: '2026-07-28' } } },
    );
    client.setRequestHandler('elicitation/create', () => ({ action: 'accept', content: { decision: 'approve' } }));
    onTestFinished(async () => void (await client.close().catch(() => {})));
    const requestInit = { headers: { authorization: `Bearer ${ann}` } };
    await client.connect(new StreamableHTTPClientTransport(target, { fetch: intercept, requestInit }));
    await client.callTool({ name: 'delegate', arguments: { tier: 'fast', task: 'write' } }).catch(() => {});
    expect(carried.length).toBeGreaterThan(0);
    const { body, headers } = carried[0]!;
    const send = async (node: TestNode, token: string) => {
      headers.set('authorization', `Bearer ${token}`);
      const response = await fetch(new URL(target.pathname + target.search, node.url), {
        method: 'POST',
        headers,
        body,
      });
      return response.text();
    };
    for (const node of [a, b]) expect(await send(node, bob!)).toMatch(/requestState/);
    const { sessions } = await as(a, ADMIN).listSessions();
    expect(sessions.map(({ owner }) => owner?.name)).toEqual(['ann']);
    expect(await send(b, ann!)).toContain('written');
  });

  // Promise 23.4: parallel trees of two owners on three nodes, one of which is killed: neither passes its day or its month, and most of both can be spent.
  test(`${TREES} trees of two owners on three nodes stay within the day of one and the month of the other, with a kill`, async () => {
    const LIMITS = { ann: '2', bob: '3' };
    let dead = false;
    let released = false;
    const nodes: Nodes = await startNodes({
      database: url!,
      answer: async ({ tools, results, user }) => {
        if (user.startsWith('held')) await until(() => dead, PATIENCE_SECONDS);
        const usage = { input: 1000, output: 1900 };
        if (tools.includes('delegate') && results.length === 0)
          return { tool_calls: [{ name: 'delegate', input: { tier: 'fast', task: 'job' } }], usage };
        return { text: 'done', usage };
      },
      set: {
        'server.auth_tokens': [ADMIN],
        'turn.max_output_tokens': 2000,
        'cluster.lease_seconds': 10,
      },
    });
    const started = await Promise.all(['a', 'b', 'c'].map((name) => nodes.start(name)));
    const [a, b, c] = started as [TestNode, TestNode, TestNode];
    const admin = as(a, ADMIN);
    const secrets = {
      ann: (await admin.createToken({ name: 'ann', role: 'member', daily_usd: LIMITS.ann })).secret,
      bob: (await admin.createToken({ name: 'bob', role: 'member', monthly_usd: LIMITS.bob })).secret,
    };
    const names = ['ann', 'bob'] as const;
    const spent = async () => {
      const rows = await nodes.rows<{ name: string; pusd: string }>(
        `SELECT t.name, CAST(sum(c.cost_pusd) AS text) AS pusd FROM llm_calls c
         JOIN sessions s ON s.id = c.session_id JOIN tokens t ON t.id = s.owner GROUP BY t.name`,
      );
      const sums = new Map(rows.map(({ name, pusd }) => [name, BigInt(pusd)]));
      return { ann: sums.get('ann') ?? 0n, bob: sums.get('bob') ?? 0n };
    };
    // Calls of the node that dies, which hold money of both.
    const doomed = names.map(async (name) => {
      const client = as(c, secrets[name]);
      const session = await open(client, nodes.workspace(`c-${name}`), {
        initial_active_model: 'anthropic:claude-opus-4-7',
      });
      await client.submitTurn(session, { content: 'held' });
    });
    await Promise.all(doomed);
    await until(() => nodes.fake.calls.length >= names.length, PATIENCE_SECONDS);
    const isRefused = (error: unknown) => error instanceof ApiError && error.code === 'budget_exceeded';
    let refusals = 0;
    /** Turns of one tree until the limit of its owner is spent, at a and b in turn. */
    async function tree(i: number): Promise<void> {
      const name = names[i % 2]!;
      const client = as([a, b][(i >> 1) % 2]!, secrets[name]);
      const session = await open(client, nodes.workspace(`w${i}`), {
        initial_active_model: 'anthropic:claude-opus-4-7',
      });
      let tries = 0;
      while (tries < 3) {
        const submitted = await client.submitTurn(session, { content: 'go' }).catch((error: unknown) => {
          if (isRefused(error)) return null;
          throw error;
        });
        const turn = submitted && (await ended(client, session, submitted.turn_id));
        if (turn !== null && turn.stop_reason === 'end_turn') continue;
        refusals += 1;
        // What the dead node held comes back when its lease has ended.
        await until(() => released, PATIENCE_SECONDS);
        tries += 1;
      }
    }
    const all = Promise.all(Array.from({ length: TREES }, (_, i) => tree(i)));
    await until(() => refusals > 0, PATIENCE_SECONDS);
    await c.kill();
    dead = true;
    // Rows of nodes outlive their leases.
    const alive = "SELECT 1 FROM nodes WHERE name = 'c' AND lease_until > now()";
    await until(async () => (await nodes.rows(alive)).length === 0, PATIENCE_SECONDS);
    released = true;
    await all;
    await until(
      async () => (await nodes.rows('SELECT 1 FROM turns WHERE ended_at IS NULL')).length === 0,
      PATIENCE_SECONDS,
    );
    // The ledger only grows: what holds at its end held at every moment.
    const sums = await spent();
    for (const name of names) {
      const limit = toPusd(LIMITS[name]);
      expect([name, sums[name] <= limit, sums[name] * 10n >= limit * 7n], fromPusd(sums[name] as Pusd)).toEqual([
        name,
        true,
        true,
      ]);
    }
    const { tokens } = await admin.listTokens();
    for (const { name, spent_today_usd, spent_this_month_usd } of tokens)
      expect([spent_today_usd, spent_this_month_usd]).toEqual(
        [sums[name as 'ann'], sums[name as 'ann']].map((sum) => fromPusd(sum as Pusd)),
      );
  });
});
