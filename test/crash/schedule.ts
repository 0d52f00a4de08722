// Sessions at work while their server is killed at random moments: what was asked, what was seen, what is stored.
import fs from 'node:fs';
import path from 'node:path';
import type { Started } from '../app/metis.ts';
import { address } from '../app/metis.ts';
import type { FakeCall, FakeMessage } from '../support/fake-provider.ts';
import { until } from '../support/until.ts';
import { type Json, startWorld, type World } from './world.ts';

export interface Ask {
  /** Whose call it is: session and turn, worker or planner, and how many answers it builds on. */
  readonly key: string;
  /** From 1; its answer reports this many input tokens above `INPUT_TOKENS`, so that the ledger names the ask it paid for. */
  readonly number: number;
  /** Which start of the server sent it, from 1. */
  readonly start: number;
}

export interface Outcome {
  readonly asks: readonly Ask[];
  /** Lines that the shell commands wrote. */
  readonly lines: readonly string[];
  readonly sessions: readonly Watched[];
  readonly rows: World['rows'];
  readonly read: World['read'];
  close(): Promise<void>;
}

export interface Watched {
  readonly id: string;
  /** The stored event after which the subscription began. */
  readonly since: string;
  /** Stored events as one subscriber got them, workers' included, over all connections. */
  readonly seen: readonly string[];
  readonly turns: readonly Json[];
}

export const INPUT_TOKENS = 1000;
/** For the verdicts on what ended, and for their way to the subscriber. */
const SETTLE_SECONDS = 60;
const SESSIONS = 3;

/** Numbers in [0, 1) that depend on the seed alone (mulberry32). */
export function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t ^= t + Math.imul(t ^ (t >>> 7), 61 | t);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

export const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

function gate(): { readonly passed: Promise<void>; open(): void } {
  let open = () => {};
  const passed = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { passed, open };
}

/** What the models answer to the call of a key. */
export type Plan = (key: string) => FakeMessage;

/** Runs until the server has been killed `kills` times, lets what is open end, and stops it. */
export async function killAtRandom(seed: number, kills: number, plan: Plan = answerTo): Promise<Outcome> {
  const asks: Ask[] = [];
  const chance = random(seed);
  const latency = random(seed + 1);
  let killed = 0;
  const world = await startWorld(async (call) => {
    const key = keyOf(call);
    asks.push({ key, number: call.number, start: Number(/start-(\d+)/.exec(call.path)![1]) });
    await pause(5 + latency() * 60);
    return { ...plan(key), usage: { input: INPUT_TOKENS + call.number, output: 7 } };
  });

  let up = gate();
  let working = true;
  const sessions: (Watched & { readonly done: Promise<void> })[] = [];

  /** Asks again after every restart until there is an answer. */
  async function insist<T>(attempt: () => Promise<T>): Promise<T> {
    for (;;) {
      await up.passed;
      const before = killed;
      try {
        return await attempt();
      } catch (error) {
        // Only a dead server may leave a request without an answer.
        if (error instanceof TypeError && (killed > before || !working)) continue;
        throw error;
      }
    }
  }

  async function oneSession(name: string): Promise<void> {
    const created = await insist(() =>
      world.ask('POST', '/sessions', {
        body: { workspace_path: world.workspace, initial_active_model: 'plan' },
        headers: { 'idempotency-key': `session ${name}` },
      }),
    );
    const id: string = created.id;
    const since: string = (await insist(() => world.ask('GET', `/sessions/${id}/events`))).events[0].id;
    const seen: string[] = [];
    const turns: Json[] = [];
    const stop = new AbortController();
    const watching = (async () => {
      const stream = world.client.stream(id, { since, include_worker_sessions: true, signal: stop.signal });
      for await (const item of stream) {
        if (item.type === 'event' && !item.event.transient) seen.push(item.event.id);
      }
    })();
    const done = (async () => {
      for (let n = 1; working; n++) turns.push(await oneTurn(id, `${name}.${n}`));
      // Verdicts follow the end of a turn by up to a second on a busy machine, those on workers' sessions last.
      await until(() => countUnjudged(world, id) === 0 && newestEventId(world, id) === seen.at(-1), SETTLE_SECONDS);
      stop.abort();
      await watching;
    })();
    sessions.push({ id, since, seen, turns, done });
  }

  /** One key for all attempts, so that a turn whose receipt was lost is not started twice. */
  async function oneTurn(sessionId: string, name: string): Promise<Json> {
    for (;;) {
      const answer = await insist(() =>
        world.ask('POST', `/sessions/${sessionId}/turns`, {
          body: { content: `turn ${name}` },
          headers: { 'idempotency-key': `turn ${name}`, prefer: 'wait=60' },
        }),
      );
      if (['completed', 'failed', 'cancelled'].includes(answer.status)) return answer;
    }
  }

  const names = Array.from({ length: SESSIONS }, (_, i) => `s${i}`);
  let opened: Promise<unknown> | null = null;
  let server: Started;
  for (;;) {
    server = world.launch();
    const last = killed === kills;
    // Now and then the process dies while it still starts.
    if (last || chance() > 0.15) {
      await address(server);
      up.open();
      if (opened === null) {
        opened = Promise.all(names.map(oneSession));
        // It is awaited after the last start; a failure before that is thrown there.
        opened.catch(() => undefined);
      }
      if (last) break;
      // Mostly at work, now and then while it takes up what the last one left.
      await pause(chance() < 0.25 ? chance() * 60 : 40 + chance() * 600);
      up = gate();
    } else await pause(150 + chance() * 500);
    killed += 1;
    await server.stop('SIGKILL');
  }
  await opened;
  // On a busy machine every turn so far may have been cut too often: one more of each session is left in peace.
  const before = sessions.map(({ turns }) => turns.length);
  await until(() => sessions.every(({ turns }, i) => turns.length > before[i]! + 1), SETTLE_SECONDS);
  working = false;
  await Promise.all(sessions.map((session) => session.done));
  await server.stop('SIGTERM');
  const log = path.join(world.workspace, 'log.txt');
  return {
    asks,
    sessions,
    rows: world.rows,
    read: world.read,
    lines: fs.existsSync(log) ? fs.readFileSync(log, 'utf8').split('\n').filter(Boolean) : [],
    close: world.close,
  };
}

/** Completed turns and ended sessions of a tree that have no verdict yet. */
function countUnjudged(world: World, rootId: string): number {
  const [row] = world.rows<{ n: number }>(
    `SELECT count(*) AS n FROM events e JOIN sessions s ON s.id = e.session_id
      WHERE s.root_session_id = ? AND e.type IN ('turn.completed', 'session.ended') AND NOT EXISTS (
        SELECT 1 FROM events v WHERE v.parent_event_id = e.id AND v.type = 'eval.completed')`,
    rootId,
  );
  return row!.n;
}

function newestEventId(world: World, rootId: string): string | undefined {
  const [row] = world.rows<{ id: string }>(
    'SELECT max(e.id) AS id FROM events e JOIN sessions s ON s.id = e.session_id WHERE s.root_session_id = ?',
    rootId,
  );
  return row?.id;
}

/** `<turn> <planner or worker's job> <answers so far>`, read off the request alone. */
function keyOf(call: FakeCall): string {
  const said = (call.body.messages as Json[]).filter((m) => m.role !== 'system');
  const isTurn = (m: Json) => m.role === 'user' && JSON.stringify(m.content).includes('turn s');
  const begun = said.findLastIndex(isTurn);
  const answers = said.slice(begun + 1).filter((m) => m.role === 'assistant').length;
  if (call.wire === 'anthropic') return `${/turn ([\w.]+)/.exec(JSON.stringify(said[begun]))![1]} planner ${answers}`;
  const [, turn, job] = /job (\S+) (\S+)/.exec(call.system)!;
  return `${turn} ${job} ${answers}`;
}

/** Every planner: a command and two workers, another command, its answer. Every worker: a command, its answer. */
function answerTo(key: string): FakeMessage {
  const [turn, who, answers] = key.split(' ') as [string, string, string];
  const command = { name: 'shell', input: { command: `echo "${key}" >> log.txt; sleep 0.1` } };
  const job = (name: string) => ({ name: 'delegate', input: { tier: 'fast', task: `job ${turn} ${name}` } });
  if (who === 'planner' && answers === '0') return { tool_calls: [command, job('one'), job('two')] };
  if ((who === 'planner' && answers === '1') || answers === '0') return { tool_calls: [command] };
  return { text: `${who} is done with ${turn}` };
}
