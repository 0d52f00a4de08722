// `metis migrate` of a million calls and a million events: into PostgreSQL, the comparison of every row, and out again.
import { execFile } from 'node:child_process';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import Database from 'better-sqlite3';
import { timed } from '../client.mjs';
import { fillLedger } from '../ledger.mjs';
import { atMost } from '../limits.mjs';
import { serverEnvironment, startServer } from '../processes.mjs';
import { seed } from '../seed.mjs';
import { withSchema } from './cluster.mjs';

export const name = 'migrate';

const MAIN = fileURLToPath(new URL('../../dist/main.js', import.meta.url));
const run = promisify(execFile);
const CALLS = 1_000_000;
const TREES = 50_000;
const SESSIONS = 20_000;
const EVENTS = 50;
/** What an operator waits for. */
const LIMIT_SECONDS = 300;

export async function measure(bench) {
  const part = bench.quick ? 0.1 : 1;
  const data = path.join(bench.folder, 'migrate');
  await (await startServer(data, bench.provider)).stop();
  bench.note(`storing ${CALLS * part} calls and ${SESSIONS * EVENTS * part} events`);
  fillLedger(data, { calls: CALLS * part, trees: TREES * part });
  await seed(bench, data, { sessions: SESSIONS * part, events: EVENTS });
  forgetCopiedCalls(data);
  return withSchema(bench, async (database) => {
    const into = ['--to', database, '--data', data, '--set', `cluster.shared_roots=["${bench.folder}"]`];
    const out = ['--to', `sqlite:${data}-out`, '--data', data, '--set', `database.url=${database}`];
    const seconds = async (...args) => (await timed(() => metis('migrate', ...args))) / 1000;
    const copied = await seconds(...into);
    bench.note(`  copied in ${copied.toFixed(1)} s`);
    const verified = await seconds(...into, '--verify');
    bench.note(`  compared in ${verified.toFixed(1)} s`);
    const back = await seconds(...out);
    const row = (name, value) => ({
      ...{ row: `${name}, beside ${LIMIT_SECONDS} s`, unit: 's', better: 'lower' },
      ...{ metis: [value], relay: [LIMIT_SECONDS], limit: atMost(LIMIT_SECONDS) },
    });
    return [
      row('copy into PostgreSQL', copied),
      row('comparison of every row and the cost totals', verified),
      row('copy out of PostgreSQL', back),
    ];
  });
}

/** An event of a call that the ledger does not have is a difference: copies of it become events of another type. */
function forgetCopiedCalls(data) {
  const db = new Database(path.join(data, 'metis.db'));
  db.exec(`UPDATE event_rows SET type = (SELECT number FROM event_types WHERE type = 'turn.started')
    WHERE type IN (SELECT number FROM event_types WHERE type LIKE 'llm.%' OR type = 'cost.repriced')
      AND id NOT IN (SELECT event_id FROM ledger_calls)`);
  db.close();
}

const metis = (...args) =>
  run(process.execPath, [MAIN, ...args], { maxBuffer: 64 * 1024 * 1024, env: serverEnvironment() });
