// What a person finds after a crash or a stop of the real process, in each mode of recovery (04 §13).
import fs from 'node:fs';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import type { FakeMessage } from '../support/fake-provider.ts';
import { until } from '../support/until.ts';
import { JUST_TALK, script } from './script.ts';
import { type Json, startWorld, TERMINAL, type World } from './world.ts';

const RESTARTED = 'Tool call interrupted by a server restart; it may or may not have taken effect.';
const usage = { input: 1000, output: 100 };
const delegate = { name: 'delegate', input: { tier: 'fast', task: 'the job' } };
/** Leaves its mark and then goes on until the file `go` is there. */
const command = { name: 'shell', input: { command: 'echo run >> log.txt; until [ -e go ]; do sleep 0.05; done' } };
const HOLD = ['--set', 'recovery.on_start=hold'];
const CANCEL = ['--set', 'recovery.on_start=cancel'];

let world: World;
afterEach(() => world.close());

async function scripted(answers: Readonly<Record<string, FakeMessage>>, env: Readonly<Record<string, string>> = {}) {
  const said = script(answers);
  world = await startWorld(said.answer, { env });
  return said;
}
const events = (sessionId: string, ...types: string[]): Json[] =>
  world
    .rows<Json>(
      `SELECT e.* FROM events e JOIN sessions s ON s.id = e.session_id
       WHERE s.root_session_id = ? AND (? = '' OR instr(?, ',' || e.type || ',')) ORDER BY e.id`,
      sessionId,
      types.join(),
      `,${types.join()},`,
    )
    .map((e) => ({ ...e, payload: JSON.parse(e.payload_json) }));
/** Resolves with the first event that was stored or will be. */
async function seen(sessionId: string, match: (event: Json) => boolean): Promise<Json> {
  const first = (await world.ask('GET', `/sessions/${sessionId}/events`)).events[0];
  if (match(first)) return first;
  const stream = world.client.stream(sessionId, { since: first.id, include_worker_sessions: true });
  for await (const item of stream) if (item.type === 'event' && match(item.event as Json)) return item.event as Json;
  throw new Error('the session ended without it');
}
const costs = async (sessionId: string) => {
  const { cost_so_far_usd, workers_cost_usd } = await world.ask('GET', `/sessions/${sessionId}`);
  return { cost_so_far_usd, workers_cost_usd };
};
const writeGo = () => fs.writeFileSync(path.join(world.workspace, 'go'), '');
const marks = () => fs.readFileSync(path.join(world.workspace, 'log.txt'), 'utf8');
async function marked(): Promise<void> {
  await until(() => fs.existsSync(path.join(world.workspace, 'log.txt')));
}

describe('kill -9 between a worker that has finished and the next call of its planner', () => {
  // Promise 04.19: A kill after a worker finished asks its model no more, reports its delegation once and costs what a run without a kill costs.
  it('the worker is not asked again, its delegation is reported once, and the total is that of a run without a kill', async () => {
    const said = await scripted({
      'planner 0': { tool_calls: [delegate, command], usage },
      'planner 1': { text: 'all done', usage },
      'worker 0': { text: 'worked', usage },
    });
    const first = await world.serve();
    const id = await world.session();
    const turnId = await world.submit(id, 'go');
    await seen(id, (e) => e.type === 'delegate.completed');
    await marked();
    await first.stop('SIGKILL');
    writeGo();
    expect(Object.fromEntries(said.asked)).toEqual({ 'planner 0': 1, 'worker 0': 1 });

    await world.serveHere();
    expect(await world.ended(id, turnId)).toMatchObject({ status: 'completed', output: 'all done' });
    expect(Object.fromEntries(said.asked)).toEqual({ 'planner 0': 1, 'worker 0': 1, 'planner 1': 1 });
    expect(events(id, 'delegate.started', 'delegate.completed', 'delegate.failed').map((e) => e.type)).toEqual([
      'delegate.started',
      'delegate.completed',
    ]);
    const plain = await world.session();
    await world.ended(plain, await world.submit(plain, 'go'));
    expect(await costs(id)).toEqual(await costs(plain));
  });
});

describe("kill -9 during a worker's second call, beside a command of the planner", () => {
  const answers = {
    'planner 0': { tool_calls: [command, delegate], usage },
    'planner 1': { text: 'all done', usage },
    'worker 0': { tool_calls: [{ name: 'list_files', input: {} }], usage },
    'worker 1': { text: 'worked', usage },
  };
  async function killed() {
    const said = await scripted(answers);
    const gate = said.hold('worker 1');
    const first = await world.serve();
    const id = await world.session();
    const turnId = await world.submit(id, 'go');
    await Promise.all([gate.arrived, marked()]);
    await first.stop('SIGKILL');
    writeGo();
    return { said, id, turnId };
  }

  // Promise 01.16: After kill -9 in a delegation, the default mode completes the turn with the totals of its answered calls.
  // Promise 04.20: A kill in a worker's second call repeats exactly that call; a running command is answered as interrupted and not run again.
  it('exactly that call is repeated, and the command is answered as interrupted and not run again', async () => {
    const { said, id, turnId } = await killed();
    await world.serveHere();
    expect((await world.ended(id, turnId)).status).toBe('completed');
    expect(Object.fromEntries(said.asked)).toEqual({ 'planner 0': 1, 'worker 0': 1, 'worker 1': 2, 'planner 1': 1 });
    expect(marks()).toBe('run\n');
    const [shell] = world.rows<Json>("SELECT * FROM tool_calls WHERE name = 'shell'");
    expect(JSON.parse(shell!.result_json)).toMatchObject({ is_error: true, content: [{ text: RESTARTED }] });
    expect(events(id, 'turn.completed')).toHaveLength(2);
    expect(world.rows('SELECT 1 FROM sessions')).toHaveLength(2);
    // Four calls were answered, one was cut: what was paid is what the four reported.
    const paid = world.rows<Json>('SELECT sum(input_tokens) AS input, count(*) AS calls FROM llm_calls');
    expect(paid).toEqual([{ input: 4000, calls: 4 }]);
  });

  // Promise 04.20: In mode hold nothing runs until the resume call.
  // Promise 05.21: Kill -9 in mode hold: session and turn read interrupted; resuming what has ended is a conflict.
  it('in mode hold nothing runs until it is asked to go on; what has ended cannot be resumed', async () => {
    const { said, id, turnId } = await killed();
    const asked = said.asked.get('worker 1');
    await world.serveHere(...HOLD);
    expect(await world.ask('GET', `/sessions/${id}`)).toMatchObject({
      status: 'interrupted',
      current_turn_id: turnId,
      current_turn_status: 'interrupted',
    });
    expect(events(id, 'turn.resumed')).toEqual([]);
    expect(said.asked.get('worker 1')).toBe(asked);
    await world.ask('POST', `/sessions/${id}/turns/${turnId}/resume`);
    expect((await world.ended(id, turnId)).status).toBe('completed');
    await expect(world.ask('POST', `/sessions/${id}/turns/${turnId}/resume`)).rejects.toMatchObject({
      status: 409,
      code: 'turn_not_interrupted',
    });
  });

  // Promise 04.20: In mode hold a new message first ends the held turn as cancelled.
  // Promise 05.21: Kill -9 in mode hold: a new submit is accepted behind the old turn's cancellation.
  it('in mode hold a new message ends what was held as cancelled and runs', async () => {
    const { id, turnId } = await killed();
    await world.serveHere(...HOLD);
    const next = await world.submit(id, JUST_TALK);
    expect(await world.ask('GET', `/sessions/${id}/turns/${turnId}`)).toMatchObject({
      status: 'cancelled',
      cancel_reason: 'shutdown',
    });
    const order = events(id, 'turn.cancelled', 'turn.started').map((e) => [e.type, e.turn_id]);
    expect(order.slice(-2)).toEqual([
      ['turn.cancelled', turnId],
      ['turn.started', next],
    ]);
    expect((await world.ended(id, next)).status).toBe('completed');
  });

  // Promise 01.16: After kill -9 in a delegation, mode cancel closes planner, worker, session and delegation, and a second restart writes nothing.
  // Promise 04.20: In mode cancel the turn is cancelled before the server listens, and a new one is accepted.
  it('in mode cancel everything has ended before it listens, a further start writes nothing, and new turns run', async () => {
    const { said, id, turnId } = await killed();
    const second = await world.serveHere(...CANCEL);
    expect((await world.ask('GET', `/sessions/${id}/turns/${turnId}`)).status).toBe('cancelled');
    await second.stop('SIGTERM');
    expect(world.rows('SELECT status, cancel_reason FROM turns')).toEqual([
      { status: 'cancelled', cancel_reason: 'shutdown' },
      { status: 'cancelled', cancel_reason: 'shutdown' },
    ]);
    expect(world.rows('SELECT disposition FROM sessions WHERE is_worker = 1')).toEqual([{ disposition: 'failed' }]);
    expect(world.rows('SELECT status, failure_mode, error_message FROM delegations')).toEqual([
      { status: 'failed', failure_mode: 'worker_error', error_message: 'worker_error: server restarted' },
    ]);
    expect(world.rows('SELECT 1 FROM tool_calls WHERE result_message_id IS NULL')).toEqual([]);
    const closed = events(id, ...TERMINAL, 'session.ended', 'delegate.failed').map((e) => e.type);
    expect(closed).toEqual(['turn.cancelled', 'session.ended', 'delegate.failed', 'turn.cancelled']);

    const stored = () =>
      world.read((db) =>
        ['events', 'messages', 'turns', 'tool_calls', 'delegations'].map((t) => db.prepare(`SELECT * FROM ${t}`).all()),
      );
    const before = stored();
    await world.serveHere(...CANCEL);
    expect(stored()).toEqual(before);
    expect(said.asked.get('worker 1')).toBe(1);
    const next = await world.submit(id, JUST_TALK);
    expect((await world.ended(id, next)).status).toBe('completed');
  });
});

describe('SIGTERM during a model call', () => {
  // Promise 04.20: SIGTERM lets the running call finish and be stored, starts no other, and the next start finishes the turn without repeating it.
  // Promise 05.21: SIGTERM in a turn: 503 to new requests, no terminal event, exit in time, the next start completes the turn.
  it('the call is finished and stored, no other begins, requests get 503, and the next start goes on behind it', async () => {
    const said = await scripted({
      'planner 0': { tool_calls: [{ name: 'list_files', input: {} }], usage },
      'planner 1': { text: 'the end', usage },
    });
    const gate = said.hold('planner 0');
    const first = await world.serve();
    const id = await world.session();
    const turnId = await world.submit(id, 'go');
    await gate.arrived;
    const asked = Date.now();
    const stopped = first.stop('SIGTERM');
    const refusal = async () => {
      for (;;) {
        const answer = await fetch(`${world.url}/sessions`);
        if (answer.status !== 200) return answer;
      }
    };
    const refused = await refusal();
    expect(refused.status).toBe(503);
    expect(refused.headers.get('retry-after')).toMatch(/^\d+$/);
    expect(await refused.json()).toMatchObject({ error: { code: 'service_shutting_down' } });
    gate.release();
    expect((await stopped).code).toBe(0);
    expect(Date.now() - asked).toBeLessThan(30_000);
    expect(events(id).at(-1)!.type).toBe('llm.call_completed');
    expect(events(id, ...TERMINAL)).toEqual([]);
    expect(world.rows('SELECT status, interrupted_reason FROM turns')).toEqual([
      { status: 'interrupted', interrupted_reason: 'restart' },
    ]);

    await world.serveHere();
    expect(await world.ended(id, turnId)).toMatchObject({ status: 'completed', output: 'the end', llm_call_count: 2 });
    expect(Object.fromEntries(said.asked)).toEqual({ 'planner 0': 1, 'planner 1': 1 });
  });

  // npm passes Ctrl-C on to a process that has it from the terminal already.
  it('below npm the same signal several times at once is one, and the running call is finished', async () => {
    const said = await scripted({ 'planner 0': { text: 'the end', usage } }, { npm_command: 'run-script' });
    const gate = said.hold('planner 0');
    const first = await world.serve();
    const id = await world.session();
    await world.submit(id, 'go');
    await gate.arrived;
    for (let i = 0; i < 5; i++) {
      first.child.kill('SIGINT');
      await new Promise(setImmediate);
    }
    await until(async () => (await fetch(`${world.url}/readyz`)).status === 503);
    gate.release();
    expect((await first.finished).code).toBe(0);
    expect(events(id, 'llm.call_completed')).toHaveLength(1);
  });

  // Promise 06.15: SIGTERM in a turn closes streams with 1001 behind the drain; the next subscription shows the turn resumed and ended.
  it('streams close with 1001 behind the drain, and the next subscription shows how the turn went on', async () => {
    const said = await scripted({ 'planner 0': { tool_calls: [{ name: 'list_files', input: {} }] } });
    const gate = said.hold('planner 0');
    const first = await world.serve();
    const id = await world.session();
    await world.submit(id, 'go');
    await gate.arrived;
    const live = subscribe(id, {});
    await live.ready;
    const stopped = first.stop('SIGTERM');
    gate.release();
    expect(await live.closed).toBe(1001);
    await stopped;
    expect(live.types()).toContain('llm.call_completed');

    await world.serveHere();
    const again = subscribe(id, { since: live.last() });
    await again.until('turn.completed');
    expect(again.types()[0]).toBe('turn.resumed');
    expect([...live.ids(), ...again.ids()].sort()).toEqual([...live.ids(), ...again.ids()]);
    again.close();
  });
});

describe('kill -9 during a command and an open approval', () => {
  // Promise 09.20: Kill during a command and an open prompt: the prompt is cancelled, the command not repeated, every call answered.
  it('the approval is closed and asked anew, the command not repeated, and the session takes a new turn', async () => {
    const write = { name: 'write_file', input: { path: 'x.txt', content: 'y' } };
    await scripted({ 'planner 0': { tool_calls: [command, write] } });
    const asks = [
      '--set',
      'tool_confirmation.mode=interactive',
      '--set',
      'tool_confirmation.per_tool={"shell":"auto"}',
    ];
    const first = await world.serve(...asks);
    const id = await world.session();
    const turnId = await world.submit(id, 'go');
    const prompt = await seen(id, (e) => e.type === 'tool.confirmation_requested');
    await marked();
    await first.stop('SIGKILL');
    writeGo();

    await world.serveHere(...asks);
    const old: string = prompt.payload.confirmation_request_id;
    await expect(
      world.ask('POST', `/confirmations/${old}`, { body: { decision: 'approve', scope: 'once' } }),
    ).rejects.toMatchObject({ status: 409, code: 'confirmation_already_resolved', details: { decision: 'cancelled' } });
    const anew = await seen(
      id,
      (e) => e.type === 'tool.confirmation_requested' && e.payload.confirmation_request_id !== old,
    );
    await world.client.answerConfirmation(anew.payload.confirmation_request_id, { decision: 'approve', scope: 'once' });
    expect((await world.ended(id, turnId)).status).toBe('completed');
    expect(marks()).toBe('run\n');
    expect(fs.readFileSync(path.join(world.workspace, 'x.txt'), 'utf8')).toBe('y');
    expect(world.rows('SELECT 1 FROM tool_calls WHERE result_message_id IS NULL')).toEqual([]);
    // The next request pairs every call with its result, or the provider would not take it.
    const next = await world.submit(id, JUST_TALK);
    expect((await world.ended(id, next)).status).toBe('completed');
    const sent = world.provider.calls.at(-1)!.body.messages as Json[];
    const blocks = sent.flatMap((m) => (Array.isArray(m.content) ? (m.content as Json[]) : []));
    const ids = (type: string, field: string) => blocks.filter((b) => b.type === type).map((b) => b[field]);
    expect(ids('tool_result', 'tool_use_id')).toEqual(ids('tool_use', 'id'));
  });
});

describe('kill -9 with two calls in flight under a limit', () => {
  // Promise 14.7: A kill with two calls in flight leaks no reservation.
  it('no reservation outlives it: what remains is the limit less the ledger', async () => {
    const said = await scripted({ 'planner 0': { tool_calls: [delegate, delegate], usage } });
    const first = await world.serve();
    const id = await world.session({ max_cost_usd: '5' });
    const one = said.hold('worker 0');
    await world.submit(id, 'go');
    await one.arrived;
    const two = said.hold('worker 0');
    await two.arrived;
    const { budget: during } = await world.ask('GET', `/sessions/${id}`);
    expect(Number(during.reserved_usd)).toBeGreaterThan(0);
    await first.stop('SIGKILL');

    await world.serveHere(...HOLD);
    const { pusd } = world.rows<{ pusd: number }>('SELECT sum(cost_pusd) AS pusd FROM llm_calls')[0]!;
    const { budget } = await world.ask('GET', `/sessions/${id}`);
    expect(pusd).toBeGreaterThan(0);
    expect(budget.reserved_usd).toBe('0');
    expect(Math.round(Number(budget.spent_usd) * 1e12)).toBe(pusd);
    expect(Math.round(Number(budget.remaining_usd) * 1e12)).toBe(5e12 - pusd);
  });
});

/** A subscriber on a bare socket, which sees the close code. */
function subscribe(sessionId: string, options: { readonly since?: string }) {
  const socket = new WebSocket(`${world.url.replace('http', 'ws')}/sessions/${sessionId}/stream`);
  const stored: Json[] = [];
  let wake = () => {};
  const ready = new Promise<void>((resolve) => {
    socket.on('open', () => socket.send(JSON.stringify({ type: 'subscribe', ...options })));
    socket.on('message', (data) => {
      const frame: Json = JSON.parse(String(data));
      if (frame.type === 'subscribe_ack') resolve();
      if (frame.type === 'event' && frame.event.id !== null) stored.push(frame.event);
      wake();
    });
  });
  return {
    ready,
    closed: new Promise<number>((resolve) => socket.on('close', resolve)),
    types: () => stored.map((e) => e.type as string),
    ids: () => stored.map((e) => e.id as string),
    last: () => stored.at(-1)!.id as string,
    async until(type: string): Promise<void> {
      while (!stored.some((e) => e.type === type))
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
    },
    close: () => socket.close(),
  };
}
