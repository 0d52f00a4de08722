// Three nodes that are killed at random while workers are in worktrees: no workspace is half written, and nothing is left over (20 §2).
import fs from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { FakeMessage } from '../support/fake-provider.ts';
import { type Account, accountOf, message } from '../support/planned-work.ts';
import { natsService, postgresService } from '../support/services.ts';
import { git, initRepository, listLocks } from '../support/worktrees.ts';
import { type EndedTurn, type Storm, storm } from './storm/storm.ts';

const KILLS = Number(process.env.WORKTREE_KILLS ?? 2);
/** One kill takes two; the start of a node takes ten times as long where others have the processors. */
const SECONDS = 60 + KILLS * 20;
const SESSIONS = 4;
const WORKERS = ['a', 'b'];
const FILES = WORKERS.flatMap((who) => [1, 2, 3].map((n) => `${who}${n}.txt`));
const { url, missing } = await postgresService();
const nats = await natsService();
const set = (root: string) => ({ 'cluster.worktree_root': path.join(root, 'trees') });

/** Every planner: two workers in worktrees, applied together in every second turn. Every worker: three files. */
function answerTo(key: string): FakeMessage {
  const [turn, who, answers] = key.split(' ') as [string, string, string];
  if (answers !== '0') return { text: `${who} done` };
  const apply = Number(turn.split('.')[1]) % 2 === 0 ? 'together' : 'each';
  const job = (name: string) => ({
    name: 'delegate',
    input: { tier: 'fast', task: `job ${turn} ${name}`, isolation: 'worktree', apply },
  });
  if (who === 'planner') return { tool_calls: WORKERS.map(job) };
  const command = [1, 2, 3].map((n) => `echo ${turn} > ${who}${n}.txt`).join('; sleep 0.05; ');
  return { tool_calls: [{ name: 'shell', input: { command } }] };
}

const listFolder = (folder: string) => (fs.existsSync(folder) ? fs.readdirSync(folder) : []);
const readFiles = (workspace: string) =>
  Object.fromEntries(FILES.map((name) => [name, fs.readFileSync(path.join(workspace, name), 'utf8')]));

/** What each workspace holds by the results that were applied to it. */
const merged = new Map<string, Record<string, string>>();

/** Holds a workspace against the results of its turns, the last of which has just ended. */
async function compareWorkspace({ nodes, workspace, turn_id }: EndedTurn): Promise<void> {
  const expected = merged.get(workspace) ?? Object.fromEntries(FILES.map((name) => [name, '0\n']));
  const rows = await nodes.rows(
    `SELECT d.worker_session_id AS id, w.applied FROM delegations d
     JOIN worktrees w ON w.session_id = d.worker_session_id WHERE d.parent_turn_id = $1 ORDER BY d.created_at`,
    turn_id,
  );
  for (const { id } of rows.filter(({ applied }) => Number(applied) === 1)) {
    const changed = git(workspace, 'diff', '--name-only', `refs/metis/${id}/base`, `refs/metis/${id}/result`);
    for (const name of changed.split('\n').filter(Boolean))
      expected[name] = git(workspace, 'show', `refs/metis/${id}/result:${name}`);
  }
  merged.set(workspace, expected);
  expect({ turn_id, ...readFiles(workspace) }).toEqual({ turn_id, ...expected });
}

describe.skipIf(url === null)(
  `${KILLS} kills of three nodes beside workers in worktrees${missing && `, skipped: ${missing}`}`,
  () => {
    let run: Storm;
    let account: Account;
    beforeAll(
      async () => {
        run = await storm({
          database: url!,
          nats: nats.url,
          seconds: SECONDS,
          kills: KILLS,
          sessions: SESSIONS,
          plan: answerTo,
          set,
          prepare: (workspace) => initRepository(workspace, Object.fromEntries(FILES.map((name) => [name, '0\n']))),
          afterTurn: compareWorkspace,
        });
        account = await accountOf(run.nodes, run.work);
      },
      (SECONDS + 300) * 1000,
    );
    afterAll(() => run?.close());

    // Promise 20.16: Kills of three nodes at random moments leave workspaces that equal the merged trees, and nothing is paid twice.
    test('every turn ends, its workspace equals what was merged, and no stored answer is paid twice', async () => {
      expect(run.kills).toBe(KILLS);
      // A turn whose nodes were killed four times is ended instead of resumed (04 §13).
      const [given] = await run.nodes.rows(
        `SELECT count(*) AS n FROM turns t JOIN sessions s ON s.id = t.session_id
         WHERE s.is_worker = 0 AND t.status = 'cancelled' AND t.resume_attempts = 3`,
      );
      const { 'completed end_turn': completed = 0, cancelled = 0, ...others } = account.turns;
      expect({ others, cancelled, ended: completed + cancelled }).toEqual({
        others: {},
        cancelled: Number(given!.n),
        ended: run.turns.length,
      });
      expect(account).toMatchObject({ unended: [], strayWorkers: [], paidTwice: [] });
      expect(account.unpaid).toBeLessThanOrEqual(run.openAtLosses);
      const [applied] = await run.nodes.rows('SELECT count(*) AS n FROM worktrees WHERE applied = 1');
      expect(Number(applied!.n)).toBeGreaterThan(0);
    });

    // Promise 20.16: After kills of three nodes the node that takes a tree up leaves no folder, lock or ref without its delegation.
    test('once another node has taken each tree up, no folder, lock or ref is without its delegation', async () => {
      const node = await run.nodes.start('afterwards', { set: set(run.nodes.root) });
      for (const [n, { session }] of run.subscribers.entries()) {
        const turn = await node.turn(session, message(`last${n}.1`));
        const { workspace_path: workspace } = await node.client.getSession(session);
        await compareWorkspace({ nodes: run.nodes, workspace, turn_id: turn.id });
        const known = new Set((await run.nodes.rows('SELECT session_id AS id FROM worktrees')).map(({ id }) => id!));
        const refs = git(workspace, 'for-each-ref', '--format=%(refname)', 'refs/metis').split('\n').filter(Boolean);
        expect(refs.filter((name) => !known.has(name.split('/')[2]!))).toEqual([]);
        expect(listFolder(path.join(workspace, '.git/worktrees'))).toEqual([]);
        expect(listLocks(workspace)).toEqual([]);
        expect(git(workspace, 'status', '--short').match(/^\?\?.*$/gm)).toBeNull();
      }
      expect(listFolder(path.join(run.nodes.root, 'trees'))).toEqual([]);
      await node.stop();
    });
  },
);
