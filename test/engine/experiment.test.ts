// The limit of an experiment covers its runs together, whatever runs side by side (21 §5, 14 §1).
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { sweepWorktrees } from '#core/engine/manage-worktrees.ts';
import { startEngine, type TestEngine } from '../support/engine.ts';
import { delegate, planner, scenario, worker } from '../support/scenario.ts';

const ID = 'e'.repeat(64);
const usage = { input_tokens: 1000, output_tokens: 4000 };

async function engineWith(rules: readonly (readonly unknown[])[]): Promise<TestEngine> {
  const test = await startEngine({ scenario: scenario(...rules), files: { 'a.txt': 'a' } });
  const git = (...args: string[]) => execFileSync('git', ['-C', test.workspace, ...args]);
  git('init', '-q');
  return test;
}

const part = (test: TestEngine, over: object = {}) => ({
  initial_active_model: 'opus',
  experiment: { id: ID, max_cost_usd: '2', start_path: test.workspace, tiers: null, delegate: true, ...over },
});

// Promise 21.8: max_cost_usd is one limit of scope `experiment` in the chain of each run: the whole never passes it.
test('runs share the limit, a call that it does not cover is not made, and its event names the scope', async () => {
  const test = await engineWith([[{ match: {}, times: 'inf', respond: { text: 'ok', usage } }]]);
  const sessions = await Promise.all([1, 2, 3, 4, 5].map(() => test.session(part(test))));
  const turns = await Promise.all(sessions.map((session) => test.run(session, 'go')));
  const cut = turns.filter(({ stop_reason }) => stop_reason === 'budget_exceeded');
  const spent = await test.engine.store.spend.sumExperiment(ID);
  expect(turns.length - cut.length).toBeGreaterThan(0);
  expect(cut.length).toBeGreaterThan(0);
  expect(spent).toBeLessThanOrEqual(2_000_000_000_000n);
  expect(spent).toBe(BigInt(turns.length - cut.length) * 315_000_000_000n);
  const exceeded = test.events.filter(({ type }) => type === 'budget.exceeded');
  expect(exceeded.map(({ payload }) => 'scope' in payload && payload.scope)).toEqual(cut.map(() => 'experiment'));
});

test('a run works on a copy, with the tiers of its arm or without delegation, and is learned of for its workspace', async () => {
  const test = await engineWith([
    planner({ tool_calls: [delegate('look at it')] }, { text: 'ok' }),
    worker('look at it', { text: 'seen' }),
    [{ match: {}, times: 'inf', respond: { text: 'alone' } }],
  ]);
  const tiers = { fast: 'gpt', balanced: 'opus', deep: 'opus' };
  const session = await test.session(part(test, { tiers, max_cost_usd: '50' }));
  const folder = session.experiment?.folder;
  expect(session.workspace_path).toBe(test.workspace);
  expect(folder).not.toBe(test.workspace);
  expect(fs.readFileSync(path.join(folder!, 'a.txt'), 'utf8')).toBe('a');
  await test.run(session, 'go');
  const decided = test.events.filter(({ type, actor }) => type === 'route.decided' && actor === 'worker');
  expect(decided.map(({ payload }) => 'chosen_model' in payload && payload.chosen_model)).toEqual(['openai:gpt-5']);

  const alone = await test.session(part(test, { delegate: false, max_cost_usd: '50' }));
  await test.run(alone, 'go');
  const offered = test.adapter.requests.at(-1)!.tools.map(({ name }) => name);
  expect(offered).not.toContain('delegate');
  expect(offered).toContain('read_file');
});

test('a run that ended right before its server died has its copy recorded and removed at the next start', async () => {
  const test = await engineWith([[{ match: {}, times: 'inf', respond: { text: 'ok' } }]]);
  const session = await test.session(part(test));
  const folder = session.experiment!.folder!;
  fs.writeFileSync(path.join(folder, 'b.txt'), 'b');
  const at = test.engine.clock.now();
  const end = { kind: 'session.end' as const, session_id: session.id, disposition: 'completed' as const, at };
  await test.engine.journal.commit({ writes: [end], emit: [] });
  await sweepWorktrees(test.engine);
  expect(fs.existsSync(folder)).toBe(false);
  expect((await test.engine.store.worktrees.get(session.id))?.result_tree).toMatch(/^[0-9a-f]{40}/);
});
