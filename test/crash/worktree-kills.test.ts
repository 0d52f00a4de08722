// SIGKILL at random moments between the base of a worktree and its end: the workspace is never half written, and nothing is left over (20 §2).
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { address, type Started } from '../app/metis.ts';
import type { FakeCall, FakeMessage } from '../support/fake-provider.ts';
import { listLocks } from '../support/worktrees.ts';
import { pause, random } from './schedule.ts';
import { type Json, startWorld, type World } from './world.ts';

const KILLS = Number(process.env.WORKTREE_KILLS ?? 2);
const SEED = Number(process.env.CRASH_SEED ?? 20_260);
const WORKERS = ['a', 'b'];
/** Other files of the repository, so that commands of git take their time. */
const BULK = 1000;
const INPUT_TOKENS = 1000;
const FILES = WORKERS.flatMap((who) => [1, 2, 3].map((n) => `${who}${n}.txt`));

/** `round who answers` of each request, by the input tokens of its answer. */
const keys = new Map<number, string>();

/** Planners start two workers in worktrees, and every worker writes three files. */
function answerCall(call: FakeCall): FakeMessage {
  const usage = { input: INPUT_TOKENS + call.number, output: 7 };
  const said = (call.body.messages as Json[]).filter((m) => m.role !== 'system');
  const isTurn = (m: Json) => m.role === 'user' && JSON.stringify(m.content).includes('round ');
  const begun = said.findLastIndex(isTurn);
  const answers = said.slice(begun + 1).filter((m) => m.role === 'assistant').length;
  const [, round = '', who = 'planner'] =
    /job (\d+) (\w)/.exec(call.system) ?? /round (\d+)/.exec(JSON.stringify(said[begun]))!;
  keys.set(usage.input, `${round} ${who} ${answers}`);
  if (answers > 0) return { text: 'done', usage };
  if (who === 'planner') {
    const apply = Number(round) % 2 === 0 ? 'together' : 'each';
    const start = (who: string) => ({
      name: 'delegate',
      input: { tier: 'fast', task: `job ${round} ${who}`, isolation: 'worktree', apply },
    });
    return { tool_calls: WORKERS.map(start), usage };
  }
  const command = [1, 2, 3].map((n) => `echo ${round} > ${who}${n}.txt`).join('; sleep 0.05; ');
  return { tool_calls: [{ name: 'shell', input: { command } }], usage };
}

let world: World;
let server: Started;
let root = '';

function git(...args: string[]): string {
  const env = { PATH: process.env.PATH, HOME: root, GIT_CONFIG_NOSYSTEM: '1' };
  return execFileSync('git', ['-c', 'user.name=a', '-c', 'user.email=a@example.com', ...args], {
    cwd: root,
    env,
    encoding: 'utf8',
    stdio: ['pipe', 'pipe', 'pipe'],
  });
}
const readFiles = () => FILES.map((name) => fs.readFileSync(path.join(root, name), 'utf8'));
const listFolder = (folder: string) => (fs.existsSync(folder) ? fs.readdirSync(folder) : []);

beforeAll(async () => {
  world = await startWorld(answerCall);
  root = fs.realpathSync(world.workspace);
  for (const name of FILES) fs.writeFileSync(path.join(root, name), '0\n');
  fs.mkdirSync(path.join(root, 'bulk'));
  for (let n = 0; n < BULK; n++) fs.writeFileSync(path.join(root, 'bulk', `${n}.txt`), `${n}\n`.repeat(50));
  git('init', '-q', '-b', 'main');
  git('add', '-A');
  git('commit', '-q', '-m', 'first');
});
afterAll(() => world?.close());

async function restart(): Promise<void> {
  server = world.launch();
  await address(server);
}

// Promise 20.16: Kills at random moments between base and end leave no folder, lock or ref without its delegation, and a workspace that equals the merged tree or is untouched.
it(
  `${KILLS} kills leave whole workspaces and nothing else (CRASH_SEED=${SEED})`,
  async () => {
    const chance = random(SEED);
    await restart();
    const session = await world.session();
    let expected = readFiles();
    let killed = 0;
    let span = 0;
    for (let round = 1; killed < KILLS || round === 1; round += 1) {
      const began = performance.now();
      const turn = await world.submit(session, `round ${round}`);
      // The first one is left in peace: it shows how long a round takes.
      for (let again = round > 1; again; again = killed < KILLS && chance() < 0.3) {
        await pause(chance() * span);
        await server.stop('SIGKILL');
        killed += 1;
        await restart();
      }
      await world.ended(session, turn);
      if (round === 1) span = performance.now() - began;
      for (const row of world.rows<Json>(
        'SELECT d.worker_session_id AS id, w.applied FROM delegations d JOIN worktrees w ON w.session_id = d.worker_session_id WHERE d.parent_turn_id = ? ORDER BY d.created_at',
        turn,
      )) {
        if (row.applied !== 1) continue;
        const changed = git('diff', '--name-only', `refs/metis/${row.id}/base`, `refs/metis/${row.id}/result`);
        for (const name of changed.split('\n').filter(Boolean))
          expected[FILES.indexOf(name)] = git('show', `refs/metis/${row.id}/result:${name}`);
      }
      const about = `round ${round} after ${killed} kills`;
      expect({ about, files: readFiles() }).toEqual({ about, files: expected });
      expected = readFiles();
      expect(listFolder(path.join(world.data, 'worktrees'))).toEqual([]);
      expect(listFolder(path.join(root, '.git/worktrees'))).toEqual([]);
      expect(listLocks(root)).toEqual([]);
      const known = new Set(world.rows<{ id: string }>('SELECT session_id AS id FROM worktrees').map(({ id }) => id));
      const refs = git('for-each-ref', '--format=%(refname)', 'refs/metis').split('\n').filter(Boolean);
      expect(refs.filter((name) => !known.has(name.split('/')[2]!))).toEqual([]);
      expect(
        git('status', '--short')
          .split('\n')
          .filter((line) => line.startsWith('??')),
      ).toEqual([]);
    }
    const [{ n }] = world.rows<{ n: number }>('SELECT count(*) AS n FROM worktrees WHERE applied = 1') as [
      { n: number },
    ];
    expect(n).toBeGreaterThan(0);
    const paid = world.rows<{ n: number }>('SELECT input_tokens AS n FROM llm_calls').map((row) => keys.get(row.n));
    expect(paid.filter((key, i) => key === undefined || paid.indexOf(key) !== i)).toEqual([]);
  },
  120_000 + KILLS * 30_000,
);
