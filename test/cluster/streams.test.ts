// Streams over real sockets at three nodes, one of them without NATS, while NATS comes and goes under load (16 §6, §10).
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { type Parsed, type TestSocket, testSocket } from '../support/http.ts';
import { startNats } from '../support/nats.ts';
import { type Nodes, startNodes, type TestNode } from '../support/nodes.ts';
import { accountOf, message, plannedWork } from '../support/planned-work.ts';
import { natsService, postgresService } from '../support/services.ts';
import { until } from '../support/until.ts';

const postgres = await postgresService();
const nats = await natsService();
const missing = [postgres.missing, nats.missing].filter((each) => each !== '').join(', ');

/** Processes start slowly on a machine that has much else to do; every wait ends as soon as it may. */
const PATIENCE_SECONDS = 90;
vi.setConfig({ testTimeout: 180_000 });

interface Seen {
  /** Of the stored events, in the order they came. */
  readonly ids: () => string[];
  /** Payloads of transient events, with their types. */
  readonly said: () => Parsed[];
  readonly since: () => string | undefined;
  readonly closed: Promise<unknown>;
}

const ofSocket = ({ frames, closed }: TestSocket): Seen => seenIn(() => frames, closed);

function seenIn(frames: () => Parsed[], closed: Promise<unknown>): Seen {
  const events = () => frames().flatMap((frame) => (frame.type === 'event' ? [frame.event] : []));
  return {
    ids: () => events().flatMap(({ id }) => id ?? []),
    said: () => events().flatMap(({ transient, type, payload }) => (transient ? [{ type, ...payload }] : [])),
    since: () => frames().find(({ type }) => type === 'subscribe_ack')?.since,
    closed,
  };
}
function socket(node: TestNode, session: string, query: string): Seen {
  return ofSocket(testSocket(`${node.url.replace('http', 'ws')}/sessions/${session}/stream?${query}`));
}
/** Server-sent events, read until their end. */
async function eventStream(node: TestNode, session: string, query: string, lastEventId?: string): Promise<Seen> {
  const aborted = new AbortController();
  onTestFinished(() => aborted.abort());
  const response = await fetch(`${node.url}/sessions/${session}/events?${query}`, {
    signal: aborted.signal,
    headers: { accept: 'text/event-stream', ...(lastEventId === undefined ? {} : { 'last-event-id': lastEventId }) },
  });
  if (response.status !== 200) throw new Error(await response.text());
  const frames: Parsed[] = [];
  const closed = (async () => {
    let text = '';
    const decoder = new TextDecoder();
    for await (const chunk of response.body!) {
      text += decoder.decode(chunk, { stream: true });
      const blocks = text.split('\n\n');
      text = blocks.pop()!;
      for (const block of blocks) {
        const [, event, data] = /^event: (.*)\n(?:id: .*\n)?data: (.*)$/m.exec(block) ?? [];
        if (event === 'close') return { code: 1000, reason: data };
        if (data !== undefined) frames.push(JSON.parse(data));
      }
    }
    return null;
  })().catch(() => null);
  return seenIn(() => frames, closed);
}

async function storedIds(nodes: Nodes, root: string, own = false): Promise<string[]> {
  const rows = await nodes.rows(
    `SELECT e.id FROM events e JOIN sessions s ON s.id = e.session_id
     WHERE s.root_session_id = $1 AND ($2 = '' OR s.id = $2) ORDER BY e.id`,
    root,
    own ? root : '',
  );
  return rows.map(({ id }) => id!);
}

/** What follows a turn is learned, and so stored, behind it. */
async function complete(seen: Seen, stored: () => Promise<string[]>): Promise<void> {
  const expected = async () => (await stored()).filter((id) => id > seen.since()!);
  let all: string[] = [];
  await until(async () => {
    all = await expected();
    return seen.ids().length >= all.length;
  }, PATIENCE_SECONDS);
  expect(seen.ids().slice(0, all.length)).toEqual(all);
}

describe.skipIf(missing !== '')(`streams at three nodes${missing && `, skipped: ${missing}`}`, () => {
  // Promise 16.3: WebSocket and SSE streams at three nodes have each stored event of the tree once, ascending.
  // Promise 16.7: NATS restarted under load: every turn completes once, and watchers elsewhere, with NATS and without, have every event.
  test('NATS is stopped and started under load: no turn notices, and every stream anywhere has each event once, in order', async () => {
    const server = await startNats(nats.url!);
    const work = plannedWork(() => 40);
    const nodes = await startNodes({ database: postgres.url!, answer: work.answer, set: { 'nats.url': server.url } });
    const [a, b, c] = await Promise.all([
      nodes.start('a'),
      nodes.start('b'),
      nodes.start('c', { set: { 'nats.url': null } }),
    ]);
    const names = ['one', 'two', 'three'];
    const sessions = await Promise.all(names.map((name) => a.session(nodes.workspace(name))));
    const withWorkers = 'include_worker_sessions=true';
    const watched = await Promise.all(
      sessions.map(async (session) => ({
        session,
        whole: [
          socket(a, session, withWorkers),
          socket(b, session, withWorkers),
          socket(c, session, withWorkers),
          await eventStream(b, session, withWorkers),
          await eventStream(c, session, withWorkers),
        ],
        own: [socket(b, session, 'include_worker_sessions=false'), socket(c, session, 'include_worker_sessions=false')],
      })),
    );
    await until(() =>
      watched.every(({ whole, own }) => [...whole, ...own].every((each) => each.since() !== undefined)),
    );

    const turns = async (session: string, name: string) => {
      for (const round of [1, 2, 3]) {
        const { status } = await a.turn(session, message(`${name}-${round}`));
        expect(status).toBe('completed');
      }
    };
    const load = Promise.all(sessions.map((session, i) => turns(session, names[i]!)));
    for (const asks of [12, 30]) {
      await until(() => work.asks.length >= asks, PATIENCE_SECONDS);
      await server.stop();
      await until(() => work.asks.length >= asks + 8, PATIENCE_SECONDS);
      await server.start();
    }
    await load;
    const last = await Promise.all(sessions.map((session, i) => a.turn(session, message(`${names[i]}-last`))));
    expect(last.map(({ status }) => status)).toEqual(names.map(() => 'completed'));
    for (const { session, whole, own } of watched) {
      for (const seen of whole) await complete(seen, () => storedIds(nodes, session));
      for (const seen of own) await complete(seen, () => storedIds(nodes, session, true));
      // Of what was begun before a stream's eyes it saw the end, and at the owner's all was whole.
      for (const seen of [whole[0]!, whole[1]!, whole[3]!]) {
        const begun = () => seen.said().flatMap((said) => (said.type === 'message.start' ? [said.message_id] : []));
        const ended = () => seen.said().flatMap((said) => (said.type === 'message.complete' ? [said.message_id] : []));
        await until(() => begun().every((id) => ended().includes(id)), PATIENCE_SECONDS);
        expect(new Set(ended()).size).toBe(ended().length);
      }
      // No delta reaches a node without NATS.
      expect(whole[2]!.said()).toEqual([]);
    }
    const account = await accountOf(nodes, work);
    expect(account).toMatchObject({ paidTwice: [], unpaid: 0, turns: { 'completed end_turn': 12 }, unended: [] });
    // Once NATS is back deltas come as they did before.
    const there = socket(b, sessions[0]!, 'snapshot=true');
    await until(() => there.since() !== undefined);
    await a.turn(sessions[0]!, message('one-more'));
    await until(() => there.said().some(({ type }) => type === 'message.complete'), PATIENCE_SECONDS);
    expect(there.said().map(({ type }) => type)).toContain('text.delta');

    // A cursor is good at any node, by socket and by SSE.
    const all = await storedIds(nodes, sessions[1]!);
    const from = all[Math.floor(all.length / 2)]!;
    for (const node of [a, b, c]) {
      const again = [
        socket(node, sessions[1]!, `${withWorkers}&since=${from}`),
        await eventStream(node, sessions[1]!, withWorkers, from),
      ];
      for (const seen of again) {
        await until(() => seen.since() === from);
        await complete(seen, () => storedIds(nodes, sessions[1]!));
      }
    }
    // The end of a session, and its purge, end its streams wherever they are.
    await a.client.endSession(sessions[1]!);
    expect((await Promise.all(watched[1]!.whole.map(({ closed }) => closed))).map(codeOf)).toEqual(
      watched[1]!.whole.map(() => [1000, 'session_ended']),
    );
    const purged = await a.session(nodes.workspace('gone'));
    const ends = [socket(b, purged, withWorkers), socket(c, purged, withWorkers)];
    await until(() => ends.every((each) => each.since() !== undefined));
    await a.client.endSession(purged);
    await a.client.endSession(purged, { purge: true });
    for (const { closed } of ends) expect(codeOf(await closed)[0]).toBe(1000);
  });
});

function codeOf(closed: unknown): [number, string] {
  const { code, reason } = closed as { code: number; reason: string };
  return [code, JSON.parse(reason).code];
}
