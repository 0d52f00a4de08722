// Attempts to make results of background workers vanish (20 §9): kills, stops, cancels, pauses, steering, conclusions and
// clients that hang up, in every order, while one worker after the other ends. METIS_ORDERS=full takes all 720 orders.
import { describe, expect, it } from 'vitest';
import { cancelTurn, concludeTurn } from '#core/engine/control-turn.ts';
import { patchSession } from '#core/engine/manage-session.ts';
import type { ToolFactory } from '#core/ports/tool-port.ts';
import { orAbort } from '#protocol/abort.ts';
import { AppError } from '#protocol/errors.ts';
import { joinText } from '#protocol/message.ts';
import { isDelivery } from '#protocol/text/delivery.ts';
import { toolText } from '#protocol/tool.ts';
import { type EngineOptions, startEngine, type TestEngine, tempFolder } from '../support/engine.ts';
import { openDoor, type TestDoor } from '../support/http.ts';
import { gate, restart, turns } from '../support/moments.ts';
import { call, delegate, scenario } from '../support/scenario.ts';
import { tool } from '../support/tools.ts';
import { until } from '../support/until.ts';
import { checkTree } from './invariants.ts';

const ATTEMPTS = ['kill', 'cancel', 'pause', 'disconnect', 'steer', 'conclude'] as const;
type Attempt = (typeof ATTEMPTS)[number];
const IS_FULL = process.env.METIS_ORDERS === 'full';
/** Of the orders of all six, each so many-th. */
const STEP = IS_FULL ? 1 : 40;
const WORKERS = [0, 1, 2, 3];
const NO_MONEY = '0.000001';
const usage = { input_tokens: 1000, output_tokens: 100 };

function permute<T>(items: readonly T[]): T[][] {
  if (items.length === 0) return [[]];
  return items.flatMap((item, at) => permute(items.toSpliced(at, 1)).map((rest) => [item, ...rest]));
}

const SCENARIO = scenario(
  [
    {
      match: { role: 'planner', turn: 1, call: 1 },
      respond: { tool_calls: WORKERS.map((n) => delegate(`task <${n}>`, { background: true })), usage },
    },
    // Half of the waits are those of the tool, which a restart makes again.
    {
      match: { role: 'planner', turn: 1, call: 2 },
      respond: { tool_calls: [call('workers', { action: 'wait', for: 'any' })], usage },
    },
    { match: { role: 'planner', user_contains: 'afterwards' }, times: 'inf', respond: { text: 'fine', usage } },
    { match: { role: 'planner' }, times: 'inf', respond: { text: 'read', usage } },
  ],
  WORKERS.flatMap((n) => [
    {
      match: { role: 'worker', user_contains: `task <${n}>`, call: 1 },
      times: 'inf',
      respond: { tool_calls: [call('hold', { n })], usage },
    },
    {
      match: { role: 'worker', user_contains: `task <${n}>` },
      times: 'inf',
      respond: { text: `result <${n}>`, usage },
    },
  ]),
);

/** A planner with four workers that end one by one, and a client that waits for it over HTTP. */
interface World {
  t: TestEngine;
  door: TestDoor;
  readonly options: EngineOptions;
  readonly session: string;
  readonly turn: string;
  readonly client: AbortController;
}

/** Refusals are answers: what is to be done may be too late. */
async function tryTo(work: Promise<unknown>): Promise<void> {
  await work.catch((error: unknown) => {
    if (!(error instanceof AppError)) throw error;
  });
}

/** @param number of the order: the moments differ with it */
async function attempt(w: World, what: Attempt, number: number): Promise<void> {
  const { engine } = w.t;
  switch (what) {
    case 'kill': {
      // Killed and stopped by turns.
      if (number % 2 === 1) await w.t.close();
      w.door.app.server.closeAllConnections();
      await w.door.app.close();
      w.t = await restart(w.t, w.options);
      w.door = await openDoor(w.t);
      return;
    }
    case 'cancel': {
      const workers = (await engine.store.turns.allOpen()).filter(({ session_id }) => session_id !== w.session);
      const turn = workers[number % Math.max(1, workers.length)];
      if (turn) await tryTo(cancelTurn(engine, turn.session_id, turn.id, null));
      return;
    }
    case 'pause':
      return tryTo(patchSession(engine, w.session, { max_cost_usd: NO_MONEY }));
    case 'disconnect':
      w.client.abort();
      return;
    case 'steer':
      return tryTo(w.t.submit(w.session, 'how far?', { if_busy: 'steer' }));
    case 'conclude':
      return tryTo(concludeTurn(engine, w.session, w.turn));
  }
}

async function runOrder(order: readonly Attempt[], number: number): Promise<void> {
  const doors = WORKERS.map(() => gate());
  const hold: ToolFactory = tool('hold', {
    execute: ({ n }, { signal }) => orAbort(doors[Number(n)]!.opened, signal).then(() => toolText('ok')),
  });
  const options: EngineOptions = {
    folder: tempFolder(),
    tools: [hold],
    scenario: SCENARIO,
    config: { shutdown: { drain_seconds: 0 } },
  };
  const t = await startEngine(options);
  const { id: session } = await t.session({ max_cost_usd: '1', on_reached: 'pause' });
  const door = await openDoor(t);
  const client = new AbortController();
  const turn = await submitAndWait(door, session, client.signal);
  const w: World = { t, door, options, session, turn, client };
  await until(() => t.events.filter(({ type, payload }) => type === 'tool.called' && isHold(payload)).length === 4);
  let isPaused = false;
  for (const [step, what] of order.entries()) {
    doors[step]?.open();
    // Before, amid and behind what the end of a worker sets off.
    await turns((number * 7 + step * 5) % 40);
    await attempt(w, what, number + step);
    if (isPaused) await tryTo(patchSession(w.t.engine, session, { max_cost_usd: '1' }));
    isPaused = what === 'pause';
  }
  await tryTo(patchSession(w.t.engine, session, { max_cost_usd: '1' }));
  for (const one of doors) one.open();
  const { engine } = w.t;
  const view = await until(async () => {
    const found = await engine.store.turns.view(session, turn as never);
    return found!.ended_at === null || engine.locks.turn(turn) !== null ? null : found;
  });
  await checkResults(w, view!.unread_inputs);
  await w.t.close();
  w.door.app.server.closeAllConnections();
  await w.door.app.close();
}

const isHold = (payload: object) => (payload as { readonly tool_name?: string }).tool_name === 'hold';

/** Submits over HTTP and waits there, as a client that hangs up later. */
async function submitAndWait({ base }: TestDoor, session: string, signal: AbortSignal): Promise<string> {
  const sent = { method: 'POST', headers: { 'content-type': 'application/json', prefer: 'wait=60' }, signal };
  const submit = fetch(`${base}/sessions/${session}/turns`, { ...sent, body: JSON.stringify({ content: 'go' }) });
  submit.then((response) => response.text()).catch(() => {});
  return until(async () => {
    const response = await fetch(`${base}/sessions/${session}`);
    return ((await response.json()) as { readonly current_turn_id: string | null }).current_turn_id;
  });
}

/** Every result is in the history of its turn once, or listed with the turn that could not read it; and nowhere else. */
async function checkResults({ t, session, turn }: World, unread: number): Promise<void> {
  const { store } = t.engine;
  // A message that came too late for the turn has begun one of its own.
  await until(async () => t.engine.locks.activeTurns().length === 0 && (await store.turns.allOpen()).length === 0);
  const rows = await store.events.list({
    session_id: session,
    include_workers: true,
    types: null,
    after: null,
    until: null,
    limit: 10_000,
  });
  await checkTree(t, session, rows.rows as never);
  const next = await t.submit(session, 'afterwards');
  expect(await t.ended(next)).toMatchObject({ status: 'completed', output: 'fine', unread_inputs: 0 });
  const { messages } = await store.messages.page(session as never, { before: null, after: null, limit: 500 });
  const texts = messages.flatMap((message) =>
    message.turn_id !== turn || !(message.role === 'tool' || isDelivery(message))
      ? []
      : [JSON.stringify(message.content)],
  );
  const elsewhere = messages.filter((message) => message.turn_id !== turn && isDelivery(message));
  expect(elsewhere.map(({ content }) => joinText(content))).toEqual([]);
  const workers = (await store.delegations.ofTurn(session as never, turn as never)).map((one) => one.worker_session_id);
  expect(workers).toHaveLength(WORKERS.length);
  const listed = (await store.turns.view(session, turn as never))!.inputs.map(({ text }) => text);
  const pattern = (worker: string) => new RegExp(`\\[worker ${worker} (completed|failed: \\w+)\\]`, 'g');
  for (const worker of workers) {
    const read = texts.join('\n').match(pattern(worker!)) ?? [];
    const kept = listed.join('\n').match(pattern(worker!)) ?? [];
    expect(read.length + kept.length, `results of ${worker}`).toBe(1);
  }
  expect(listed).toHaveLength(unread);
}

// Promise 20.20: kills, cancels, pauses, disconnects, steering and conclusions in every order: no result vanishes, none is read twice.
describe('no order of attempts makes the result of a background worker vanish', () => {
  const core = ATTEMPTS.slice(0, 4);
  it(`kill, cancel, pause and disconnect, in each of ${permute(core).length} orders`, {
    timeout: 300_000,
  }, async () => {
    for (const [number, order] of permute(core).entries())
      await runOrder(order, number).catch((error: unknown) => {
        throw new Error(`${order.join(', ')} (${number})`, { cause: error });
      });
  });

  // The worker that met the limit is cancelled, and the limit raised, before the server stops: the planner alone waits.
  it('a tree whose limit was raised while it paused goes on after a stop', { timeout: 120_000 }, () =>
    runOrder(['pause', 'cancel', 'kill', 'conclude', 'steer', 'disconnect'], 269),
  );

  it.each(ATTEMPTS)('all six, %s first', { timeout: 900_000 }, async (first) => {
    const orders = permute(ATTEMPTS).map((order, number) => ({ order, number }));
    for (const { order, number } of orders.filter((one) => one.order[0] === first && one.number % STEP === 0))
      await runOrder(order, number).catch((error: unknown) => {
        throw new Error(`${order.join(', ')} (${number})`, { cause: error });
      });
  });
});
