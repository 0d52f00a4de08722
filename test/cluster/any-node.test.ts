// Whatever is asked of a session may be asked of any node: its owner answers, later where that one has died (16 §5).
import { randomUUID } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { ApiError, type MetisClient } from '#client/client.ts';
import { freePort } from '../support/free-port.ts';
import { type Nodes, type ServingNode, startNodes } from '../support/nodes.ts';
import { startProxy } from '../support/proxy.ts';
import { postgresService } from '../support/services.ts';
import { until } from '../support/until.ts';

const { url, missing } = await postgresService();

/** Processes start slowly on a machine that has much else to do; every wait ends as soon as it may. */
const PATIENCE_SECONDS = 120;

const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==';
/** 5 MiB of images, in blocks of one each. */
const IMAGES = Array.from({ length: 5 }, () => ({
  type: 'image' as const,
  source: {
    kind: 'base64' as const,
    data: Buffer.concat([Buffer.from(PIXEL, 'base64'), Buffer.alloc(2 ** 20)]).toString('base64'),
  },
  media_type: 'image/png' as const,
}));

/** A message says what the model does with it. */
async function answer({ user, results }: { readonly user: string; readonly results: readonly string[] }) {
  if (user.includes('[Stop here: answer now with what you have.]')) return { text: 'without it' };
  if (user.includes('hang')) await new Promise(() => {});
  if (user.includes('write') && results.length === 0)
    return { tool_calls: [{ name: 'write_file', input: { path: 'a.txt', content: 'a' } }] };
  return { text: 'done' };
}
const ASKING = { 'tool_confirmation.default.write': 'prompt' };

const ended = (client: MetisClient, session: string, turn: string) =>
  until(async () => {
    const found = await client.getTurn(session, turn);
    return found.ended_at !== null && found;
  }, PATIENCE_SECONDS);
const running = ({ client }: ServingNode, session: string) =>
  until(
    async () => (await client.getSession(session)).waiting_on.some(({ kind }) => kind === 'model'),
    PATIENCE_SECONDS,
  );
const paused = ({ client }: ServingNode, session: string, turn: string) =>
  until(async () => (await client.getTurn(session, turn)).status === 'interrupted', PATIENCE_SECONDS);
const question = ({ client }: ServingNode, session: string) =>
  until(async () => (await client.listConfirmations({ session_id: session })).confirmations[0], PATIENCE_SECONDS);
const codeOf = (asked: Promise<unknown>) =>
  asked.then(
    () => 'none',
    (error: unknown) => (error instanceof ApiError ? error.code : String(error)),
  );
/** Names of the nodes that own the trees of these sessions. */
const ownersOf = async (nodes: Nodes, sessions: readonly string[]) =>
  (
    await nodes.rows(
      `SELECT n.name FROM trees t JOIN nodes n ON n.id = t.owner_node WHERE t.root_session_id = ANY ($1) ORDER BY t.root_session_id`,
      sessions,
    )
  ).map(({ name }) => name);

describe.skipIf(url === null)(`any node${missing && `, skipped: ${missing}`}`, () => {
  // Promise 16.9: cancel, approval, limit, interrupt, resume, end, purge and a turn with 5 MiB of images, by way of another node.
  // Promise 20.18: a turn is concluded by way of another node.
  test('a turn with 5 MiB of images, cancel, interrupt, approval, limit, resume, end and purge by way of another node', async () => {
    const nodes = await startNodes({ database: url!, answer, set: ASKING });
    const [a, b] = await Promise.all([nodes.startHere('a'), nodes.startHere('b')]);
    const workspace = nodes.workspace('w');
    const session = await a.session(workspace);
    const submit = async (content: Parameters<MetisClient['submitTurn']>[1]['content'], rest: object = {}) =>
      (await b.client.submitTurn(session, { content, ...rest })).turn_id;

    const seen = await ended(b.client, session, await submit([{ type: 'text', text: 'look' }, ...IMAGES]));
    expect(seen).toMatchObject({ status: 'completed', output: 'done' });
    const { messages } = await b.client.listMessages(session);
    expect(messages[0]!.content.slice(1)).toEqual(IMAGES);

    const first = await submit('hang');
    await running(b, session);
    await b.client.cancelTurn(session, first, { reason: 'from elsewhere' });
    expect(await ended(b.client, session, first)).toMatchObject({ status: 'cancelled' });

    const second = await submit('hang');
    await running(b, session);
    const third = await submit('hello', { if_busy: 'interrupt' });
    expect(await ended(b.client, session, second)).toMatchObject({ status: 'cancelled' });
    expect(await ended(b.client, session, third)).toMatchObject({ status: 'completed' });

    const writing = await submit('write');
    const { confirmation_request_id } = await question(b, session);
    const approved = await b.client.answerConfirmation(confirmation_request_id, { decision: 'approve' });
    expect(approved).toMatchObject({ applied: true });
    expect(await ended(b.client, session, writing)).toMatchObject({ status: 'completed' });

    const unwritten = await submit('write');
    await question(b, session);
    expect(await b.client.concludeTurn(session, unwritten)).toMatchObject({ applied: true });
    expect(await ended(b.client, session, unwritten)).toMatchObject({ status: 'completed', output: 'without it' });

    const poor = await a.session(workspace, { max_cost_usd: '0.000001' });
    const { turn_id } = await b.client.submitTurn(poor, { content: 'hello' });
    await paused(b, poor, turn_id);
    expect(await codeOf(b.client.resumeTurn(poor, turn_id))).toBe('budget_exceeded');
    await b.client.updateSession(poor, { max_cost_usd: '5' });
    expect(await ended(b.client, poor, turn_id)).toMatchObject({ status: 'completed' });
    expect(await codeOf(b.client.resumeTurn(poor, turn_id))).toBe('turn_not_interrupted');

    expect(await ownersOf(nodes, [session, poor])).toEqual(['a', 'a']);
    expect((await b.client.getHealth()).active_sessions).toBe(2);
    expect(await b.client.endSession(session)).toMatchObject({ purged: false });
    expect(await codeOf(b.client.submitTurn(session, { content: 'more' }))).toBe('session_already_ended');
    expect(await b.client.endSession(poor, { purge: true })).toMatchObject({ purged: true });
    for (const { client } of [a, b]) expect(await codeOf(client.getSession(poor))).toBe('not_found');
    const listed = await b.client.listNodes();
    expect(listed.map(({ name, url: at, draining }) => [name, at, draining])).toEqual([
      ['a', a.url, false],
      ['b', b.url, false],
    ]);
    expect(listed.every(({ config_matches }) => config_matches)).toBe(true);
  });

  // Promise 16.9: right after the owner was killed the same is done, later.
  test('right after the owner was killed the same is done, later', async () => {
    const nodes = await startNodes({ database: url!, answer, set: ASKING });
    const [a, b] = await Promise.all([nodes.start('a'), nodes.start('b')]);
    const workspace = nodes.workspace('w');
    const [cancelled, interrupted, asked, poor, idle, over, purged] = (await Promise.all(
      [0, 1, 2, 3, 4, 5, 6].map((i) => a.session(workspace, i === 3 ? { max_cost_usd: '0.000001' } : {})),
    )) as [string, string, string, string, string, string, string];
    const submit = async (session: string, content: string) =>
      (await a.client.submitTurn(session, { content })).turn_id;
    const hanging = { cancelled: await submit(cancelled, 'hang'), interrupted: await submit(interrupted, 'hang') };
    const writing = await submit(asked, 'write');
    const paying = await submit(poor, 'hello');
    await Promise.all([running(a, cancelled), running(a, interrupted), paused(a, poor, paying)]);
    const { confirmation_request_id } = await question(a, asked);
    await a.kill();

    const key = { idempotencyKey: randomUUID() };
    const [, next, late, , seen] = await Promise.all([
      b.client.cancelTurn(cancelled, hanging.cancelled, { reason: 'later' }),
      b.client.submitTurn(interrupted, { content: 'hello', if_busy: 'interrupt' }, key),
      codeOf(b.client.answerConfirmation(confirmation_request_id, { decision: 'approve' })),
      b.client.updateSession(poor, { max_cost_usd: '5' }),
      b.client.submitTurn(idle, { content: [{ type: 'text', text: 'look' }, ...IMAGES] }),
      b.client.endSession(over),
      b.client.endSession(purged, { purge: true }),
    ]);
    const outcome = async (session: string, turn: string) => (await ended(b.client, session, turn)).status;
    expect(await outcome(cancelled, hanging.cancelled)).toBe('cancelled');
    expect(await outcome(interrupted, hanging.interrupted)).toBe('cancelled');
    expect(await outcome(interrupted, next.turn_id)).toBe('completed');
    // The question died with its node, and is asked anew (04 §13).
    expect(late).toBe('confirmation_already_resolved');
    const anew = await question(b, asked);
    expect(anew.confirmation_request_id).not.toBe(confirmation_request_id);
    await b.client.answerConfirmation(anew.confirmation_request_id, { decision: 'approve' });
    expect(await outcome(asked, writing)).toBe('completed');
    expect(await outcome(poor, paying)).toBe('completed');
    expect(await outcome(idle, seen.turn_id)).toBe('completed');
    expect((await b.client.getSession(over)).ended_at).not.toBeNull();
    expect(await codeOf(b.client.getSession(purged))).toBe('not_found');
    expect(new Set(await ownersOf(nodes, [cancelled, interrupted, asked, poor, idle]))).toEqual(new Set(['b']));
  });

  // Promise 16.8: a node cut off from a peer answers 503 for its trees alone, after what it waits.
  // Promise 16.10: one Idempotency-Key at three nodes has one effect, for a session and a turn.
  test('one Idempotency-Key at three nodes has one effect; a node that is cut off from a peer answers 503 for the trees of that one alone', async () => {
    const nodes = await startNodes({ database: url!, answer });
    const port = await freePort();
    const between = await startProxy({ host: '127.0.0.1', port });
    const advertise = `http://127.0.0.1:${between.port}`;
    const [a, b, c] = await Promise.all([
      nodes.startHere('a'),
      nodes.startHere('b', { set: { 'server.port': port, 'cluster.advertise_url': advertise } }),
      nodes.startHere('c'),
    ]);
    const workspace = nodes.workspace('w');
    for (let round = 0; round < 5; round++) await oneEffect(nodes, [a, b, c]);
    const [far, near, own] = [await b.session(workspace), await c.session(workspace), await a.session(workspace)];
    expect(await a.turn(far, 'hello')).toMatchObject({ status: 'completed' });
    const limited = await b.session(workspace, { max_cost_usd: '9' });
    await a.client.submitTurn(limited, { content: 'hang' });
    await running(b, limited);
    const reserved = async ({ client }: ServingNode) => (await client.getSession(limited)).budget?.reserved_usd;
    expect(await reserved(a)).toBe(await reserved(b));
    expect(await reserved(a)).not.toBe('0');
    between.cut();
    expect(await reserved(a)).toBe('0');
    const cut = a.client.updateSession(far, { max_cost_usd: '3' });
    cut.catch(() => {});
    for (const session of [near, own]) expect(await a.turn(session, 'hello')).toMatchObject({ status: 'completed' });
    expect(await b.turn(far, 'hello')).toMatchObject({ status: 'completed' });
    expect(await a.client.getSession(far)).toMatchObject({ turn_count: 2 });
    expect(await codeOf(cut)).toBe('node_unavailable');
    expect(await ownersOf(nodes, [far, near, own])).toEqual(['b', 'c', 'a']);
    between.mend();
    expect(await a.client.updateSession(far, { max_cost_usd: '3' })).toMatchObject({ max_cost_usd: '3' });
  });

  test('a shape of task that another node knew first is learned all the same', async () => {
    const nodes = await startNodes({ database: url!, answer });
    const [a, b] = await Promise.all([nodes.startHere('a'), nodes.startHere('b')]);
    const workspace = nodes.workspace('w');
    let learned = 0;
    const learns = async (node: ServingNode, content: string) => {
      await node.turn(await node.session(workspace), content);
      learned += 1;
      await until(async () => (await nodes.rows('SELECT turn_id FROM pattern_turns')).length === learned);
    };
    // From now on b has the shapes of the workspace in memory.
    await learns(b, 'hello');
    const task = 'Please fix the failing test in src/a.ts and refactor the parser:\n```ts\nconst a = 1;\n```';
    await learns(a, task);
    await learns(b, task);
    const shapes = await nodes.rows('SELECT sum(sample_size) AS n FROM pattern_outcomes GROUP BY fingerprint_id');
    expect(shapes.map(({ n }) => Number(n)).sort()).toEqual([1, 2]);
    expect(b.log()).not.toMatch(/commit failed|nothing was learned/);
  });
});

/** One key to all of them at once, for a session and for a turn of it. */
async function oneEffect(nodes: Nodes, all: readonly ServingNode[]): Promise<void> {
  const key = { idempotencyKey: randomUUID() };
  const outcomes = (work: (client: MetisClient) => Promise<string>) =>
    Promise.all(all.map(({ client }) => work(client).catch((error: ApiError) => error.code)));
  const body = { workspace_path: nodes.workspace('w') };
  const session = only(await outcomes(async (client) => (await client.createSession(body, key)).id));
  const submit = async (client: MetisClient) => (await client.submitTurn(session, { content: 'hello' }, key)).turn_id;
  const turn = only(await outcomes(submit));
  await ended(all[0]!.client, session, turn);
  for (const { client } of all) expect(await submit(client)).toBe(turn);
  const stored = await nodes.rows('SELECT id FROM turns WHERE session_id = $1', session);
  expect(stored).toEqual([{ id: turn }]);
  expect(await nodes.rows('SELECT count(*) AS n FROM idempotency_keys WHERE key = $1', key.idempotencyKey)).toEqual([
    { n: '2' },
  ]);
}

/** What all who got an answer got; the others were told that it is being made. */
function only(outcomes: readonly string[]): string {
  const answers = new Set(outcomes.filter((outcome) => outcome !== 'idempotency_in_progress'));
  expect(answers.size).toBe(1);
  return [...answers][0]!;
}
