// SIGKILL of the real process around the checks of a worker: attempts stay in order, nothing is paid twice, and only what passed is applied (20 §10).
import fs from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { toPusd } from '#protocol/money.ts';
import { verifySqliteRollups } from '#store/sqlite/write/sqlite-maintenance.ts';
import type { FakeCall, FakeMessage } from '../support/fake-provider.ts';
import { until } from '../support/until.ts';
import { initRepository } from '../support/worktrees.ts';
import { pause, random } from './schedule.ts';
import { type Json, startWorld, type World } from './world.ts';

const KILLS = Number(process.env.CHECK_KILLS ?? 1);
const SEED = Number(process.env.CRASH_SEED ?? 20_262);
const INPUT_TOKENS = 1000;
/** Enough that writing them takes longer than a look at the database. */
const FILES = 1500;
const CAP = '5';

vi.setConfig({ testTimeout: 120_000 });

let world: World;
/** Keys of model calls, in the order in which the provider got them. */
let asks: { readonly key: string; readonly number: number }[] = [];
/** Of the shell command of a worker in its attempt. */
let work: (attempt: number) => string;
let log = '';
let hold = '';
let settings: string[] = [];

const texts = (call: FakeCall) =>
  (call.body.messages as Json[]).filter(
    (m) => m.role === 'user' && (typeof m.content === 'string' || m.content.some((b: Json) => b.type === 'text')),
  );

/** `<round> planner <answers>` or `<round> worker <attempt> <answers in it>`. */
function readKey(call: FakeCall): string {
  const all = call.body.messages as Json[];
  const messages = all.filter((m) => m.role !== 'system');
  const user = texts(call);
  const answers = messages.slice(messages.lastIndexOf(user.at(-1)!) + 1).filter((m) => m.role === 'assistant').length;
  const round = /job (\d+)/.exec(`${call.system}${JSON.stringify(user[0])}`)?.[1];
  if (call.tools.includes('_request_context')) return `${round} worker ${user.length} ${answers}`;
  return `${/round (\d+)/.exec(JSON.stringify(user.at(-1)))![1]} planner ${answers}`;
}

function answerKey(key: string): FakeMessage {
  const [round, who, first, second] = key.split(' ') as [string, string, string, string?];
  if (who === 'planner') {
    if (first !== '0') return { text: 'ok' };
    const input = { tier: 'fast', task: `job ${round}`, check: 'test', on_fail: ['retry', 'tier:balanced'] };
    return { tool_calls: [{ name: 'delegate', input: { ...input, max_cost_usd: CAP } }] };
  }
  if (second === '0') return { tool_calls: [{ name: 'shell', input: { command: work(Number(first)) } }] };
  return { text: `attempt ${first}: all tests pass` };
}

beforeEach(async () => {
  asks = [];
  work = (attempt) => `echo ${attempt} > answer.txt`;
  world = await startWorld((call) => {
    const key = readKey(call);
    asks.push({ key, number: call.number });
    return { ...answerKey(key), usage: { input: INPUT_TOKENS + call.number, output: 7 } };
  });
  initRepository(world.workspace, { 'answer.txt': '0\n' });
  log = path.join(world.home, 'checks.log');
  hold = path.join(world.home, 'hold');
  // The third attempt of a round passes; one that is to be held stays until it is killed.
  const command = `n=$(cat answer.txt); echo "$n $$" >> ${log}; [ -e ${hold}-$n ] && exec sleep 300; [ "$n" = 3 ]`;
  settings = ['--set', `checks=${JSON.stringify({ test: { command, timeout_seconds: 290 } })}`];
});
afterEach(() => world.close());

const serve = () => world.serve(...settings);
const runs = () =>
  fs.existsSync(log)
    ? fs
        .readFileSync(log, 'utf8')
        .split('\n')
        .filter(Boolean)
        .map((line) => ({ attempt: Number(line.split(' ')[0]), pid: Number(line.split(' ')[1]) }))
    : [];
const readAnswer = () => fs.readFileSync(path.join(world.workspace, 'answer.txt'), 'utf8');
const attempts = () =>
  world.rows<Json>('SELECT attempt, rung, passed, ended_at IS NULL AS open FROM delegation_attempts ORDER BY attempt');
function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

/** Two attempts failed, the third was applied, and each stored answer was paid once and within the cap. */
async function expectWhole(session: string, rounds = 1): Promise<void> {
  const delegations = world.rows<Json>(
    `SELECT d.tool_use_id AS id, d.status, json_extract(c.payload_json, '$.verified') AS verified,
       json_extract(c.payload_json, '$.attempts') AS attempts, json_extract(c.payload_json, '$.applied') AS applied,
       d.worker_session_id AS worker
     FROM delegations d JOIN events c ON c.type = 'delegate.completed'
       AND json_extract(c.payload_json, '$.tool_use_id') = d.tool_use_id`,
  );
  expect(delegations).toHaveLength(rounds);
  for (const { id, worker: _worker, ...rest } of delegations) {
    expect(rest).toEqual({ status: 'completed', verified: 1, attempts: 3, applied: 1 });
    const stored = world.rows<Json>(
      'SELECT attempt, rung, passed FROM delegation_attempts WHERE tool_use_id = ? ORDER BY attempt',
      id,
    );
    expect(stored).toEqual([
      { attempt: 1, rung: null, passed: 0 },
      { attempt: 2, rung: 'retry', passed: 0 },
      { attempt: 3, rung: 'tier:balanced', passed: 1 },
    ]);
    const checked = world.rows<Json>(
      `SELECT json_extract(payload_json, '$.attempt') AS attempt, coalesce(json_extract(payload_json, '$.passed'), 0) AS passed
       FROM events WHERE type = 'delegate.checked' AND json_extract(payload_json, '$.tool_use_id') = ? ORDER BY id`,
      id,
    );
    expect(checked).toEqual([
      { attempt: 1, passed: 0 },
      { attempt: 2, passed: 0 },
      { attempt: 3, passed: 1 },
    ]);
  }
  expect(readAnswer()).toBe('3\n');
  const keys = new Map(asks.map(({ key, number }) => [number, key]));
  const paid = world
    .rows<{ n: number }>('SELECT input_tokens AS n FROM llm_calls')
    .map(({ n }) => keys.get(n - INPUT_TOKENS));
  expect([...paid].sort()).toEqual([...new Set(keys.values())].sort());
  const ledger = world.rows<{ session: string; cost: string }>(
    'SELECT s.id AS session, CAST(sum(c.cost_pusd) AS text) AS cost FROM llm_calls c JOIN sessions s ON s.id = c.session_id GROUP BY s.id',
  );
  const total = ledger.reduce((sum, { cost }) => sum + BigInt(cost), 0n);
  const { cost_so_far_usd, workers_cost_usd } = await world.ask('GET', `/sessions/${session}`);
  expect(toPusd(cost_so_far_usd) + toPusd(workers_cost_usd)).toBe(total);
  const spent = delegations.map(({ worker }) => BigInt(ledger.find((row) => row.session === worker)!.cost));
  expect(spent.filter((cost) => cost > toPusd(CAP))).toEqual([]);
  expect(world.read(verifySqliteRollups)).toEqual([]);
  const left = path.join(world.data, 'worktrees');
  expect(fs.existsSync(left) ? fs.readdirSync(left) : []).toEqual([]);
}

describe('kill -9 of a server whose worker is checked', () => {
  // Promise 20.22: kill -9 within a check: its process is ended, the check runs again, attempts stay in order, and nothing is paid twice.
  it('within a check runs it again, after what was left of it has been killed', async () => {
    fs.writeFileSync(`${hold}-2`, '');
    const first = await serve();
    const session = await world.session();
    const turn = await world.submit(session, 'round 1');
    await until(() => runs().some(({ attempt }) => attempt === 2));
    const { pid } = runs().find(({ attempt }) => attempt === 2)!;
    await first.stop('SIGKILL');
    expect(attempts().at(-1)).toMatchObject({ attempt: 2, passed: null, open: 1 });
    expect(readAnswer()).toBe('0\n');
    const before = asks.length;
    fs.rmSync(`${hold}-2`);
    await serve();
    await until(() => !isAlive(pid));
    expect(await world.ended(session, turn)).toMatchObject({ status: 'completed' });
    expect(runs().map(({ attempt }) => attempt)).toEqual([1, 2, 2, 3]);
    // No answer is open while a check runs: only what comes after it is asked for.
    expect(asks.slice(before).map(({ key }) => key)).toEqual(['1 worker 3 0', '1 worker 3 1', '1 planner 1']);
    await expectWhole(session);
  });

  // Promise 20.22: kill -9 between rungs: the delegation goes on with the next rung, and the failed check does not run again.
  it('between a check that failed and the next rung goes on with that rung', async () => {
    const first = await serve();
    const session = await world.session();
    const turn = await world.submit(session, 'round 1');
    const failed = () => world.rows("SELECT id FROM events WHERE type = 'delegate.checked'").length > 0;
    while (!failed()) await pause(1);
    await first.stop('SIGKILL');
    expect(attempts()).toMatchObject([{ attempt: 1, passed: 0, open: 0 }]);
    await serve();
    expect(await world.ended(session, turn)).toMatchObject({ status: 'completed' });
    expect(runs().map(({ attempt }) => attempt)).toEqual([1, 2, 3]);
    await expectWhole(session);
  });

  // Promise 20.22: kill -9 between the verdict and the last file: what passed is written to its end, without another run.
  it('between the verdict and the last file writes what passed', async () => {
    work = (attempt) =>
      attempt < 3
        ? `echo ${attempt} > answer.txt`
        : `echo 3 > answer.txt; mkdir f; i=0; while [ $i -lt ${FILES} ]; do echo 3 > f/$i; i=$((i+1)); done`;
    const first = await serve();
    const session = await world.session();
    const turn = await world.submit(session, 'round 1');
    const folder = path.join(world.workspace, 'f');
    await until(() => fs.existsSync(folder));
    await first.stop('SIGKILL');
    const [stored] = world.rows<Json>('SELECT applied, merged_tree IS NOT NULL AS merged FROM worktrees');
    expect(stored).toEqual({ applied: null, merged: 1 });
    expect(fs.readdirSync(folder).length).toBeLessThan(FILES);
    await serve();
    expect(await world.ended(session, turn)).toMatchObject({ status: 'completed' });
    expect(runs().map(({ attempt }) => attempt)).toEqual([1, 2, 3]);
    expect(fs.readdirSync(folder).length).toBe(FILES);
    await expectWhole(session);
  });

  // Promise 20.22: kills at random moments of checked turns: attempts in order, one delegation, sums exact, cap held, nothing applied that did not pass.
  it(
    `at ${KILLS} random moments (CRASH_SEED=${SEED})`,
    async () => {
      const chance = random(SEED);
      let server = await serve();
      const session = await world.session();
      let killed = 0;
      let span = 0;
      for (let round = 1; killed < KILLS || round === 1; round += 1) {
        fs.writeFileSync(path.join(world.workspace, 'answer.txt'), '0\n');
        const began = performance.now();
        const turn = await world.submit(session, `round ${round}`);
        for (let again = round > 1; again; again = killed < KILLS && chance() < 0.4) {
          await pause(chance() * span);
          await server.stop('SIGKILL');
          killed += 1;
          expect(['0\n', '3\n']).toContain(readAnswer());
          server = await serve();
        }
        expect(await world.ended(session, turn)).toMatchObject({ status: 'completed' });
        if (round === 1) span = performance.now() - began;
        await expectWhole(session, round);
      }
      expect(runs().filter(({ pid }) => isAlive(pid))).toEqual([]);
    },
    120_000 + KILLS * 30_000,
  );
});
