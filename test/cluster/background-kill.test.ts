// Three nodes that are killed at random beside turns with background workers: others take these up, and each result is read once (20 §9).
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { FakeMessage } from '../support/fake-provider.ts';
import { type Account, accountOf } from '../support/planned-work.ts';
import { natsService, postgresService } from '../support/services.ts';
import { type Storm, storm } from './storm/storm.ts';

const KILLS = Number(process.env.BACKGROUND_KILLS ?? 2);
/** One kill takes two; the start of a node takes ten times as long where others have the processors. */
const SECONDS = 60 + KILLS * 20;
const SESSIONS = 8;
const { url, missing } = await postgresService();
const nats = await natsService();

/** Every planner: two workers beside a command, then answers. Every worker: a look at its folder, its answer. */
function answerTo(key: string): FakeMessage {
  const [turn, who, answers] = key.split(' ') as [string, string, string];
  const job = (name: string) => ({
    name: 'delegate',
    input: { tier: 'fast', task: `job ${turn} ${name}`, background: true },
  });
  if (who === 'planner' && answers === '0') return { tool_calls: [job('left'), job('right')] };
  if (answers === '0' || (who === 'planner' && answers === '1'))
    return { tool_calls: [{ name: 'list_files', input: { path: '.' } }] };
  return { text: `${who} done` };
}

describe.skipIf(url === null)(
  `${KILLS} kills of three nodes beside background workers${missing && `, skipped: ${missing}`}`,
  () => {
    let run: Storm;
    let account: Account;
    beforeAll(
      async () => {
        const size = { seconds: SECONDS, kills: KILLS, sessions: SESSIONS };
        run = await storm({ database: url!, nats: nats.url, ...size, plan: answerTo });
        account = await accountOf(run.nodes, run.work);
        process.stdout.write(`${run.kills} kills, ${run.turns.length} turns, ${account.paid} calls paid\n`);
      },
      (SECONDS + 300) * 1000,
    );
    afterAll(() => run?.close());

    // Promise 20.20: kills of three nodes: each result in the history exactly once, no turn ended before its workers, nothing paid twice.
    test('every turn completes behind its workers, with each result once, and no stored answer is paid twice', async () => {
      expect(run.kills).toBe(KILLS);
      // A turn, or a worker's, whose nodes were killed four times before it had come to anything is ended instead of
      // resumed (04 §13): on a machine that is busy with other work the start of a node is slow, and so is a call.
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
      expect(completed).toBeGreaterThan(0);
      expect(account).toMatchObject({ unended: [], strayWorkers: [], paidTwice: [] });
      expect(account.unpaid).toBeLessThanOrEqual(run.openAtLosses);
      const results = await run.nodes.rows(`
      SELECT d.worker_session_id AS worker, d.status, d.failure_mode, d.error_message, p.status AS turn,
        (SELECT max(t.resume_attempts) FROM turns t WHERE t.session_id = d.worker_session_id) AS attempts,
        (SELECT count(*) FROM messages m WHERE m.turn_id = d.parent_turn_id
          AND (m.content_json LIKE '%[worker ' || d.worker_session_id || ' completed]%'
            OR m.content_json LIKE '%[worker ' || d.worker_session_id || ' failed: %')) AS read,
        (SELECT count(*) FROM deliveries e WHERE e.worker_session_id = d.worker_session_id
          AND e.delivered_at IS NOT NULL) AS delivered
      FROM delegations d JOIN turns p ON p.id = d.parent_turn_id`);
      expect(results.filter(({ read, delivered }) => read !== delivered || Number(read) > 1)).toEqual([]);
      const ofCompleted = results.filter(({ turn }) => turn === 'completed');
      expect(ofCompleted.length).toBe(2 * completed);
      expect(ofCompleted.filter(({ read }) => Number(read) !== 1)).toEqual([]);
      expect(ofCompleted.filter((one) => one.status !== 'completed' && Number(one.attempts) !== 3)).toEqual([]);
      const early = await run.nodes.rows(`
      SELECT e.id FROM events e JOIN events d ON d.turn_id = e.turn_id AND d.id > e.id
      WHERE e.type = 'turn.completed' AND d.type LIKE 'delegate.%'`);
      expect(early).toEqual([]);
    });
  },
);
