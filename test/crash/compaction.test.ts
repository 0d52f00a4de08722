// SIGKILL of the real process in the middle of a compaction: one summarising call may be lost, and nothing else (10 §7).
import fs from 'node:fs';
import path from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { until } from '../support/until.ts';
import { type Json, startWorld, type World } from './world.ts';

const WINDOW = 20_000;
const SUMMARIZE = ['--set', 'context.compaction.mode=summarize'];
const SUMMARY = 'They talk about gardens.';
/** Long talk, which nothing but a summary makes smaller. */
const talk = (n: number) => `task ${n} `.padEnd(8000, 'talk ');

let world: World;
afterEach(() => world.close());

/** A conversation up to the turn in which its old turns are told by a summary; the `held` call of that is never answered. */
async function summarising(held: 'the summary' | 'the call behind it') {
  let summaries = 0;
  let cut = false;
  world = await startWorld(
    async (call) => {
      const isSummary = call.system.includes('goes on with your summary');
      if (isSummary) summaries += 1;
      const awaited = held === 'the summary' ? isSummary : !isSummary && summaries === 1;
      if (!cut && awaited) {
        cut = true;
        await call.disconnected;
      }
      return { text: isSummary ? SUMMARY : 'done' };
    },
    { window: WINDOW },
  );
  fs.writeFileSync(path.join(world.workspace, 'AGENTS.md'), 'Always say please.');
  const server = await world.serve(...SUMMARIZE);
  const session = await world.session();
  for (let n = 1; ; n += 1) {
    const turn = await world.submit(session, talk(n));
    const over = async () => (await world.ask('GET', `/sessions/${session}/turns/${turn}`)).status === 'completed';
    await until(async () => cut || (await over()));
    if (!cut) continue;
    await server.stop('SIGKILL');
    await world.serveHere(...SUMMARIZE);
    return { session, cut: n, turn, end: await world.ended(session, turn) };
  }
}

const summaryCalls = () => world.provider.calls.filter((c) => c.system.includes('goes on with your summary'));
const turnCalls = () => world.provider.calls.filter((c) => !c.system.includes('goes on with your summary'));
const texts = (call: Json) => JSON.stringify(call.body.messages);
const paid = () => world.rows("SELECT 1 FROM llm_calls WHERE purpose = 'compaction'");
const checkpoints = () => world.rows('SELECT 1 FROM compaction_checkpoints');
const failed = () => world.rows("SELECT 1 FROM events WHERE type = 'llm.call_failed'");

it('while the summary is being made: its turn goes on without it, and the next one makes it once', async () => {
  const { session, cut, end } = await summarising('the summary');
  expect(end.status).toBe('completed');
  // Whether the lost one was billed nobody can know: this turn makes no second one.
  expect(summaryCalls()).toHaveLength(1);
  expect([paid().length, checkpoints().length, failed().length]).toEqual([0, 0, 1]);
  const whole = turnCalls().at(-1)!;
  expect(whole.system).toContain('Always say please.');
  for (let n = 1; n <= cut; n += 1) expect(texts(whole)).toContain(`task ${n} `);

  const next = await world.ended(session, await world.submit(session, talk(cut + 1)));
  expect(next.status).toBe('completed');
  expect(summaryCalls()).toHaveLength(2);
  expect([paid().length, checkpoints().length, failed().length]).toEqual([1, 1, 1]);
  const told = turnCalls().at(-1)!;
  expect(told.system).toContain('Always say please.');
  expect(texts(told)).toContain(SUMMARY);
  expect(told.user).toBe(talk(cut + 1));
  expect(texts(told)).not.toContain('task 1 ');
});

it('behind the summary: it is not made again, and the turn is asked with the same bytes', async () => {
  const { cut, end } = await summarising('the call behind it');
  expect(end.status).toBe('completed');
  expect(summaryCalls()).toHaveLength(1);
  expect([paid().length, checkpoints().length]).toEqual([1, 1]);
  const [before, after] = turnCalls().slice(-2);
  expect(after!.text).toBe(before!.text);
  expect(after!.system).toContain('Always say please.');
  expect(texts(after!)).toContain(SUMMARY);
  expect(after!.user).toBe(talk(cut));
});
