// Checks of workers on several nodes: another node repeats what its owner was killed in, and leaves the checks of its own trees alone (20 §10).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, test, vi } from 'vitest';
import type { FakeCall, FakeMessage } from '../support/fake-provider.ts';
import { startNodes, type TestNode } from '../support/nodes.ts';
import { postgresService } from '../support/services.ts';
import { until } from '../support/until.ts';
import { initRepository } from '../support/worktrees.ts';

const { url, missing } = await postgresService();
const PATIENCE_SECONDS = 60;
vi.setConfig({ testTimeout: 180_000 });

function answer(call: FakeCall): FakeMessage {
  const isWorker = call.tools.includes('_request_context');
  if (call.results.length > 0) return { text: 'done' };
  if (isWorker) return { tool_calls: [{ name: 'shell', input: { command: 'echo 42 > answer.txt' } }] };
  return { tool_calls: [{ name: 'delegate', input: { tier: 'fast', task: 'job', check: 'test' } }] };
}
function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

describe.skipIf(url === null)(`checks on several nodes${missing && `, skipped: ${missing}`}`, () => {
  // Promise 20.22: kill -9 of the owner within a check: another node ends what is left of it, checks again and applies what passed, nothing paid twice.
  test('a check whose node is killed runs again on another node, which goes on with its own', async () => {
    const nodes = await startNodes({ database: url!, answer });
    const log = path.join(nodes.root, 'checks.log');
    // The first run in each workspace waits to be let go; the folder of a check is told by what its repository holds.
    const command = [
      `w=$(cat which.txt); echo "$w $$" >> ${log}`,
      `[ -e ${nodes.root}/$w.begun ] && exec grep -qx 42 answer.txt`,
      `touch ${nodes.root}/$w.begun; while [ ! -e ${nodes.root}/$w.go ]; do sleep 0.1; done; grep -qx 42 answer.txt`,
    ].join('; ');
    const set = {
      'cluster.worktree_root': path.join(nodes.root, 'trees'),
      checks: { test: { command, timeout_seconds: 120 } },
    };
    const [a, b] = [await nodes.start('a', { set }), await nodes.start('b', { set })];
    const runs = (which: string) =>
      fs
        .readFileSync(log, 'utf8')
        .split('\n')
        .filter((line) => line.startsWith(`${which} `))
        .map((line) => Number(line.split(' ')[1]));
    async function begin(node: TestNode, which: string) {
      const workspace = path.join(nodes.root, `repo-${which}`);
      initRepository(workspace, { 'answer.txt': '41\n', 'which.txt': `${which}\n` });
      const session = await node.session(workspace);
      const { turn_id } = await node.client.submitTurn(session, { content: 'go' });
      await until(() => fs.existsSync(path.join(nodes.root, `${which}.begun`)), PATIENCE_SECONDS);
      const ended = () =>
        until(async () => {
          const turn = await b.client.getTurn(session, turn_id).catch(() => null);
          return turn !== null && turn.ended_at !== null && turn;
        }, PATIENCE_SECONDS);
      return { workspace, ended };
    }
    const lost = await begin(a, 'lost');
    const kept = await begin(b, 'kept');
    const [leftover] = runs('lost');
    await a.kill();
    expect(await lost.ended()).toMatchObject({ status: 'completed' });
    await until(() => !isAlive(leftover!), PATIENCE_SECONDS);
    expect(runs('lost')).toHaveLength(2);
    expect(isAlive(runs('kept')[0]!)).toBe(true);
    fs.writeFileSync(path.join(nodes.root, 'kept.go'), '');
    expect(await kept.ended()).toMatchObject({ status: 'completed' });
    expect(runs('kept')).toHaveLength(1);
    for (const { workspace } of [lost, kept])
      expect(fs.readFileSync(path.join(workspace, 'answer.txt'), 'utf8')).toBe('42\n');
    expect(await nodes.rows('SELECT attempt, passed FROM delegation_attempts')).toEqual([
      { attempt: '1', passed: '1' },
      { attempt: '1', passed: '1' },
    ]);
    // Two calls of each planner and of each worker.
    const [ledger] = await nodes.rows('SELECT count(*) AS n FROM llm_calls');
    expect([Number(ledger!.n), nodes.fake.calls.length]).toEqual([8, 8]);
    expect(fs.readdirSync(path.join(nodes.root, 'trees'))).toEqual([]);
  });
});
