// What would have happened otherwise, on several nodes: cases, forks and comparisons by way of another node, and one limit of an experiment for all (21, 16 §8).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { parse, stringify } from 'yaml';
import { ApiError } from '#client/client.ts';
import { fromPusd, type Pusd, toPusd } from '#protocol/money.ts';
import { runHere } from '../app/here.ts';
import { temporaryHome } from '../app/metis.ts';
import type { FakeCall, FakeMessage } from '../support/fake-provider.ts';
import { gate } from '../support/moments.ts';
import { type Nodes, startNodes, type TestNode } from '../support/nodes.ts';
import { postgresService } from '../support/services.ts';
import { until } from '../support/until.ts';
import { git } from '../support/worktrees.ts';

const { url, missing } = await postgresService();
const PATIENCE_SECONDS = 60;
vi.setConfig({ testTimeout: 180_000 });

/** Two workers, a file that is written, and whatever else is asked. */
function say({ user, system, results }: FakeCall): FakeMessage {
  const usage = { input: 1000, output: 50 };
  const [, file] = /look at (a|b)\b/.exec(system) ?? [];
  if (file !== undefined) {
    if (results.length === 0) return { tool_calls: [{ name: 'read_file', input: { path: `${file}.ts` } }], usage };
    return { text: `read: ${results[0]}`, usage };
  }
  if (user !== 'look at both') return { text: `You said ${user}.`, usage };
  if (results.length === 2)
    return { tool_calls: [{ name: 'write_file', input: { path: 'note.txt', content: 'both\n' } }], usage };
  if (results.length === 1) return { text: 'Both are read.', usage };
  const calls = ['look at a', 'look at b'].map((task) => ({ name: 'delegate', input: { tier: 'fast', task } }));
  return { tool_calls: calls, usage };
}

/** Snapshots and runs need a folder that both reach. */
async function startTwo(nodes: Nodes): Promise<[TestNode, TestNode]> {
  const set = { 'cluster.worktree_root': path.join(nodes.root, 'trees') };
  return [await nodes.start('a', { set }), await nodes.start('b', { set })];
}
const codeOf = (asked: Promise<unknown>) =>
  asked.then(
    () => 'none',
    (error: unknown) => (error instanceof ApiError ? error.code : String(error)),
  );

describe.skipIf(url === null)(`what if, on several nodes${missing && `, skipped: ${missing}`}`, () => {
  // Promise 21.5: on PostgreSQL, saved by way of a node that does not hold the session, the case passes, and a changed base prompt is named.
  // Promise 21.6: on PostgreSQL a session that another node holds is forked, also after that node was killed, and its fork outlives its purge.
  // Promise 21.7: on PostgreSQL every node compares the same.
  test('a session of one node is saved as a case, forked and compared by way of another, also once the first is dead', async () => {
    const nodes = await startNodes({
      database: url!,
      answer: say,
      set: { 'tool_confirmation.default.write': 'prompt' },
    });
    const [a, b] = await startTwo(nodes);
    const workspace = nodes.workspace('w');
    fs.writeFileSync(path.join(workspace, 'a.ts'), 'export const limit = 10;\n');
    fs.writeFileSync(path.join(workspace, 'b.ts'), 'export const most = 20;\n');
    git(workspace, 'init', '-q', '-b', 'main');
    const session = await a.session(workspace, { record_case: true });
    const { turn_id } = await b.client.submitTurn(session, { content: 'look at both' });
    const { confirmation_request_id: question } = await until(
      async () => (await b.client.listConfirmations({ session_id: session, status: 'pending' })).confirmations[0],
      PATIENCE_SECONDS,
    );
    await b.client.answerConfirmation(question, { decision: 'approve' });
    await until(async () => (await b.client.getTurn(session, turn_id)).ended_at !== null, PATIENCE_SECONDS);
    await b.turn(session, 'thank you');

    const home = temporaryHome();
    onTestFinished(home.remove);
    const metis = (...words: string[]) => runHere(words, { home: home.path });
    const saved = await metis('case', 'save', session, 'case', '--with-content', '--server', b.url);
    expect([saved.stderr, saved.code]).toEqual(['', 0]);
    const passed = await metis('case', 'run', 'case');
    const checks = ['requests', 'approvals', 'tools', 'files', 'stop reason', 'cost'];
    expect([passed.stdout, passed.stderr, passed.code]).toEqual([
      checks.map((check) => `ok    ${check}\n`).join(''),
      '',
      0,
    ]);
    const file = path.join(home.path, 'case', 'case.yaml');
    const kept = parse(fs.readFileSync(file, 'utf8'));
    const settings = { ...kept.settings, 'context.base_system_prompt': 'You are brief.' };
    fs.writeFileSync(file, stringify({ ...kept, settings }));
    const changed = await metis('case', 'run', 'case');
    expect([changed.stdout, changed.code]).toEqual([
      expect.stringContaining('call 1 of the planner differs at head.system_prompt'),
      1,
    ]);

    const { messages } = await b.client.listMessages(session, { limit: 100 });
    const point = messages.findLast((message) => message.turn_id === turn_id)!;
    const fork = (node: TestNode, at_message_id: string, rest: object = {}) =>
      node.client.forkSession(session, { at_message_id, workspace: 'current', ...rest });
    expect(await codeOf(fork(b, messages[1]!.id))).toBe('invalid_fork_point');
    const dry = await fork(b, point.id, { model: 'haiku', dry_run: true });
    const made = await fork(b, point.id, { model: 'haiku', message: 'again' });
    expect([made.first_call_usd, made.session!.cost_so_far_usd]).toEqual([dry.first_call_usd, '0']);
    const one = made.session!.id;
    const first = await until(async () => {
      const turn = await b.client.getTurn(one, made.turn_id!);
      return turn.ended_at !== null && turn;
    }, PATIENCE_SECONDS);
    expect(first.output).toBe('You said again.');
    const compared = await b.client.compareSessions(session, { with: one });
    expect(await a.client.compareSessions(session, { with: one })).toEqual(compared);
    expect(compared).toMatchObject({ shared: { messages: point ? messages.indexOf(point) + 1 : 0 }, b: { calls: 1 } });
    const costOf = async (id: string) =>
      (await b.client.getCost({ group_by: 'none', from: 'all', parent_session: id })).totals.cost_usd;
    expect(toPusd(compared.shared.cost_usd as never) + toPusd(compared.a.cost_usd as never)).toBe(
      toPusd((await costOf(session)) as never),
    );
    expect(compared.b.cost_usd).toBe(await costOf(one));

    await a.kill();
    const late = await fork(b, point.id);
    await b.client.endSession(session, { purge: true });
    // On the wire the prefix is six messages: the results of both workers are one.
    for (const [id, length] of [
      [one, 6 + 3],
      [late.session!.id, 6 + 1],
    ] as const) {
      expect((await b.turn(id, 'once more')).output).toBe('You said once more.');
      const { messages: prefix } = await b.client.listMessages(id, { prefix: true, limit: 100 } as never);
      expect(prefix.map((message) => message.id)).toEqual(
        messages.slice(0, messages.indexOf(point) + 1).map((message) => message.id),
      );
      expect(nodes.fake.calls.at(-1)!.body.messages).toHaveLength(length);
    }
  });

  // Promise 21.8: the limit of an experiment is one for all nodes: calls of two at once do not pass it, nor after a purge of a run.
  test('runs of one experiment on two nodes share its limit, calls under way and purged runs included', async () => {
    const OUTPUT = 4000;
    const release = gate();
    let holding = true;
    const nodes = await startNodes({
      database: url!,
      answer: async () => {
        if (holding) await release.opened;
        return { text: 'done', usage: { input: 1000, output: OUTPUT } };
      },
      set: { 'turn.max_output_tokens': OUTPUT, 'tools.disabled': ['*'] },
    });
    const [a, b] = await startTwo(nodes);
    const workspace = nodes.workspace('w');
    fs.writeFileSync(path.join(workspace, 'a.txt'), 'a');
    git(workspace, 'init', '-q', '-b', 'main');
    git(workspace, 'add', '-A');
    git(workspace, 'commit', '-q', '-m', 'first');
    const plain = await a.session(workspace);
    const ceiling = Number((await a.client.estimateTurn(plain, { content: 'go' })).cost_ceiling_usd);
    // Opus of fixture table A: 15 and 75 dollars a million tokens.
    const cost = (1000 * 15 + OUTPUT * 75) / 1e6;
    // One call at its most beside another; a second does not fit while the first one is under way.
    const max_cost_usd = (ceiling * 1.5).toFixed(6);
    expect(cost * 2).toBeGreaterThan(ceiling * 1.5);
    const open = (node: TestNode) =>
      node.session(workspace, {
        on_reached: 'stop',
        experiment: { id: 'e'.repeat(64), max_cost_usd, start_path: workspace },
      });
    const held = await open(a);
    const { turn_id } = await a.client.submitTurn(held, { content: 'go' });
    await until(() => nodes.fake.calls.length === 1, PATIENCE_SECONDS);
    const other = await open(b);
    const cut = await b.turn(other, 'go');
    expect([cut.stop_reason, nodes.fake.calls.length]).toEqual(['budget_exceeded', 1]);
    const { events } = await b.client.listEvents(other, { types: ['budget.exceeded'] });
    expect(events[0]!.payload).toMatchObject({ scope: 'experiment', limit_usd: String(Number(max_cost_usd)) });
    holding = false;
    release.open();
    await until(async () => (await a.client.getTurn(held, turn_id)).ended_at !== null, PATIENCE_SECONDS);
    await b.client.endSession(held, { purge: true });
    // What it cost is not free again.
    for (const node of [a, b]) {
      const turn = await node.turn(await open(node), 'go').catch((error: unknown) => {
        if (error instanceof ApiError && error.code === 'budget_exceeded') return null;
        throw error;
      });
      expect(turn?.stop_reason ?? 'budget_exceeded').toBe('budget_exceeded');
    }
    const [row] = await nodes.rows('SELECT CAST(sum(cost_pusd) AS text) AS pusd FROM llm_calls');
    expect(Number(fromPusd(BigInt(row!.pusd!) as Pusd))).toBeCloseTo(cost, 9);
  });
});
