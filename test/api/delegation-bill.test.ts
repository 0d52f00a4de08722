// The bill before it runs, over HTTP and on both databases: rows with and without a history, every kind of worker, every answer (21 §1).
import fs from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import type { PayloadOf } from '#protocol/event.ts';
import { fromPusd, sumPusd, toPusd } from '#protocol/money.ts';
import type { BillRow, DelegationBill } from '#protocol/what-if/cost-ahead.ts';
import { describeOnBoth } from '../support/both-databases.ts';
import type { FakeCall, FakeMessage, FakeToolCall } from '../support/fake-provider.ts';
import { gate } from '../support/moments.ts';
import { type RealServer, startStrictFake } from '../support/real-server.ts';
import { registryAt } from '../support/registry-at.ts';
import { until } from '../support/until.ts';

const PLANNER = 'anthropic:claude-opus-4-7';
const FAST = 'anthropic:claude-haiku-4-5';
const INPUT = 10;
const FIVE = ['one', 'two', 'three', 'four', 'five'];
const delegate = (task: string, rest: object = {}): FakeToolCall => ({
  name: 'delegate',
  input: { tier: 'fast', task, ...rest },
});
/** What each message of a person starts. */
const STARTS: Readonly<Record<string, readonly FakeToolCall[]>> = {
  history: Array.from({ length: 8 }, () => delegate('assist me')),
  mixed: [
    { name: 'coder', input: { input: 'write it' } },
    delegate('assist me'),
    delegate('assist me', { background: true }),
    delegate('count the files', { tier: 'deep' }),
  ],
  five: FIVE.map((task) => delegate(`task ${task}`)),
};
/** Haiku, the model of the workers, has efforts. */
const withEfforts = (registry: string) =>
  registry.replace('aliases: [haiku],', 'aliases: [haiku], efforts: [low, high], default_effort: low,');
const answer = (output: number, rest: Partial<FakeMessage> = {}): FakeMessage => ({
  text: 'done',
  usage: { input: INPUT, output },
  ...rest,
});
/** Of Haiku, 1 and 5 dollars a million tokens. */
const priceWorker = (output: number) => fromPusd(BigInt(INPUT) * 1_000_000n + BigInt(output) * 5_000_000n);
const sumUsd = (amounts: readonly (string | null)[]) =>
  fromPusd(sumPusd(amounts.flatMap((usd) => (usd === null ? [] : [toPusd(usd as never)]))));

interface Bill extends DelegationBill {
  readonly id: string;
}

async function askedBill(server: RealServer, session: string): Promise<Bill> {
  const confirmation = await until(
    async () => (await server.call('GET', `/confirmations?session_id=${session}`)).body.confirmations[0],
  );
  expect(confirmation).toMatchObject({ kind: 'delegations', decision: null, modifiable: true });
  const { tool_use_ids, payload, confirmation_request_id: id } = confirmation;
  return { ...payload, tool_use_ids, id };
}
const answerBill = (server: RealServer, { id }: Bill, body: object) =>
  server.call('POST', `/confirmations/${id}`, body);
async function readResults(server: RealServer, session: string) {
  const { messages } = (await server.call('GET', `/sessions/${session}/messages`)).body;
  const blocks: { type: string; is_error: boolean; content: { text: string }[] }[] = messages.flatMap(
    ({ content }: { content: object[] }) => content,
  );
  const results = blocks.filter(({ type }) => type === 'tool_result');
  return results.map(({ is_error, content }) => ({ is_error, text: content.map(({ text }) => text).join('') }));
}
const listWorkers = async (server: RealServer, session: string) =>
  (await server.call('GET', `/sessions/${session}/workers`)).body.workers as {
    resolved_model: string;
    worker_name: string;
  }[];
const ofType = (server: RealServer, session: string, type: string) =>
  server.events.filter((event) => event.type === type && event.session_id === session);
const limits = { approval_mode: 'interactive', confirm_above_workers: 1 };

describeOnBoth('the bill before it runs', (open) => {
  async function startWith(say: (call: FakeCall) => FakeMessage | Promise<FakeMessage> = () => answer(100)) {
    const world = await open();
    const fake = await startStrictFake((call) => {
      const calls = call.results.length === 0 && call.tools.includes('delegate') ? STARTS[call.user] : undefined;
      return calls === undefined ? say(call) : answer(1, { tool_calls: calls });
    });
    const config = { workers: { planner_allow_workers: ['*'], allow_approve_all: true } };
    const start = () => world.start({ registry: withEfforts(registryAt(fake)), config });
    const workspace = world.workspace('app');
    fs.mkdirSync(path.join(workspace, '.metis/workers'), { recursive: true });
    fs.writeFileSync(path.join(workspace, '.metis/workers/coder.yaml'), 'instructions: Write code.\ntier: fast\n');
    const server = await start();
    const submit = async (session: string, content: string) =>
      (await server.call('POST', `/sessions/${session}/turns`, { content })).body.turn_id as string;
    const ended = (turn: string, on = server) => on.event('turn.completed', (event) => event.turn_id === turn);
    return { server, start, workspace, submit, ended, fake };
  }

  // Promise 21.9: a row has p50 and p90 of earlier workers of its shape, or what its first call reserves; named and background workers have a row each.
  test('prices workers with a history by it, others by what their first call reserves, named ones and those in the background', async () => {
    const outputs = Array.from({ length: 8 }, (_, i) => ((i * 3) % 8) * 100 + 50);
    const release = gate();
    let helped = 0;
    const { server, workspace, submit, ended } = await startWith(async ({ user, system, tools }) => {
      if (tools.includes('delegate')) return answer(1);
      if (system.includes('assist me') && helped < outputs.length) return answer(outputs[helped++]!);
      if (user.includes('write it')) await release.opened;
      return answer(100);
    });
    await server.turn(await server.session(workspace, PLANNER), 'history');

    const session = await server.session(workspace, PLANNER, { ...limits, max_cost_usd: '5' });
    const turn = await submit(session, 'mixed');
    const bill = await askedBill(server, session);
    const [named, help, behind, count] = bill.rows as [BillRow, BillRow, BillRow, BillRow];
    // Of eight costs in steps the fourth and the eighth.
    const history = { p50_usd: priceWorker(350), p90_usd: priceWorker(750), ceiling_usd: null };
    expect(help).toMatchObject({ worker: null, tier: 'fast', model: FAST, effort: 'low', ...history });
    expect(behind).toMatchObject({ worker: null, tier: 'fast', model: FAST, ...history });
    expect(named).toMatchObject({ worker: 'coder', model: FAST, p50_usd: null, p90_usd: null });
    expect(count).toMatchObject({ worker: null, tier: 'deep', model: PLANNER, p50_usd: null, p90_usd: null });
    expect(bill.rows.map(({ tool_use_id }) => tool_use_id)).toEqual(bill.tool_use_ids);
    expect(bill.p90_usd).toBe(sumUsd([help.p90_usd, behind.p90_usd]));
    expect(bill.ceiling_usd).toBe(sumUsd([named.ceiling_usd, count.ceiling_usd]));
    expect(bill.compared_usd).toBe(sumUsd([bill.p90_usd, bill.ceiling_usd]));

    expect((await answerBill(server, bill, { decision: 'modify', modified_input: { first: 1 } })).status).toBe(200);
    const held = await until(async () => {
      const { budget } = (await server.call('GET', `/sessions/${session}`)).body;
      return budget.reserved_usd !== '0' && budget.reserved_usd;
    });
    expect(held).toBe(named.ceiling_usd);
    release.open();
    await ended(turn);
    expect((await listWorkers(server, session)).map(({ worker_name }) => worker_name)).toEqual(['coder']);
    expect((await readResults(server, session)).map(({ is_error }) => is_error)).toEqual([false, true, true, true]);
  });

  // Promise 21.9: over HTTP and on both databases: one question with a row each, another tier or effort for all, the first two of five, and none.
  test('is one question for five, answered with another tier or effort, with the first two, and with no', async () => {
    const { server, workspace, submit, ended, fake } = await startWith();
    async function ask(body: object) {
      const session = await server.session(workspace, PLANNER, limits);
      const turn = await submit(session, 'five');
      const bill = await askedBill(server, session);
      expect(bill.rows).toHaveLength(5);
      expect(await listWorkers(server, session)).toEqual([]);
      const wrong = await answerBill(server, bill, { decision: 'modify', modified_input: { effort: 'max' } });
      expect([wrong.status, wrong.body.error.code]).toEqual([400, 'invalid_modified_input']);
      expect(await answerBill(server, bill, body)).toMatchObject({ status: 200, body: { applied: true } });
      await ended(turn);
      expect(ofType(server, session, 'tool.confirmation_requested')).toHaveLength(1);
      const [priced, ...more] = ofType(server, session, 'delegate.priced');
      expect(more).toEqual([]);
      return {
        workers: await listWorkers(server, session),
        results: await readResults(server, session),
        answer: (priced!.payload as PayloadOf<'delegate.priced'>).answer,
      };
    }
    const tier = await ask({ decision: 'modify', modified_input: { tier: 'deep' } });
    expect(tier.workers.map(({ resolved_model }) => resolved_model)).toEqual(Array(5).fill(PLANNER));
    expect(tier.answer).toEqual({ decision: 'modify', reason: null, modified_input: { tier: 'deep' } });
    const effort = await ask({ decision: 'modify', modified_input: { effort: 'high' } });
    expect(effort.workers.map(({ resolved_model }) => resolved_model)).toEqual(Array(5).fill(`${FAST}:high`));
    const sent = fake.calls.filter(({ model }) => FAST.endsWith(model)).map(({ body }) => body.output_config);
    expect(sent).toEqual(Array(5).fill({ effort: 'high' }));
    const first = await ask({ decision: 'modify', modified_input: { first: 2 } });
    expect(first.workers).toHaveLength(2);
    expect(first.results.map(({ is_error }) => is_error)).toEqual([false, false, true, true, true]);
    const before = fake.calls.length;
    const none = await ask({ decision: 'reject', reason: 'too much' });
    expect(none.workers).toEqual([]);
    for (const { is_error, text } of none.results)
      expect([is_error, text.includes('Reason: too much')]).toEqual([true, true]);
    // The planner's two calls alone.
    expect(fake.calls.length - before).toBe(2);
  });

  // Promise 21.9: on both databases the approval mode decides without a person, and nothing happens without limits.
  test('follows the approval mode, and without limits neither prices nor asks', async () => {
    const { server, workspace } = await startWith();
    for (const [rest, workers, priced] of [
      [{ ...limits, approval_mode: 'strict' }, 0, 1],
      [{ ...limits, approval_mode: 'approve_all' }, 5, 1],
      [{ approval_mode: 'interactive', confirm_above_workers: 5 }, 5, 1],
      [{ approval_mode: 'interactive' }, 5, 0],
    ] as const) {
      const session = await server.session(workspace, PLANNER, rest);
      await server.turn(session, 'five');
      expect(await listWorkers(server, session)).toHaveLength(workers);
      expect(ofType(server, session, 'delegate.priced')).toHaveLength(priced);
    }
  });

  // Promise 21.9: a question that was open at a restart is asked again, and its answer is in force.
  test('asks again after a restart, and never for what was answered', async () => {
    const { server, start, workspace, submit, ended } = await startWith();
    const session = await server.session(workspace, PLANNER, limits);
    const turn = await submit(session, 'five');
    const before = await askedBill(server, session);
    await server.close();
    const next = await start();
    const again = await askedBill(next, session);
    expect(again.tool_use_ids).toEqual(before.tool_use_ids);
    expect(again.id).not.toBe(before.id);
    expect(await answerBill(next, before, { decision: 'approve' })).toMatchObject({ status: 409 });
    await answerBill(next, again, { decision: 'modify', modified_input: { first: 2 } });
    await ended(turn, next);
    expect(await listWorkers(next, session)).toHaveLength(2);
  });
});
