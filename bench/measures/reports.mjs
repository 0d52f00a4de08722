// Reports over a million calls of 50,000 trees: a page of the most expensive trees, what the overview of the dashboard asks,
// and what streams feel of it. The other side asks the ledger itself, without rollups.
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import Database from 'better-sqlite3';
import { createClient, marker, timed } from '../client.mjs';
import { fillDecisions, fillLedger } from '../ledger.mjs';
import { atMost, ratioAtMost } from '../limits.mjs';
import { startServer } from '../processes.mjs';
import { median, percentile } from '../stats.mjs';
import { figures, streamed } from './chunk-latency.mjs';

export const name = 'reports';

const CALLS = 1_000_000;
const TREES = 50_000;
const READS = 100;
const PAGE = '/analytics/cost?group_by=parent_session&from=all&limit=100';
const OVERVIEW = [
  '/analytics/cost?group_by=day,is_worker&from=all',
  '/analytics/cost?group_by=model&from=all',
  '/analytics/cost?group_by=parent_session&from=all&limit=10',
  '/analytics/savings?baseline=planner&from=all',
];
const SUMS = 'count(*), sum(cost_pusd), sum(input_tokens), sum(cached_input_tokens), sum(output_tokens)';
const LEDGER_PAGE = `SELECT parent_key, ${SUMS} FROM llm_calls GROUP BY 1 ORDER BY 3 DESC LIMIT 100`;
const LEDGER_OVERVIEW = [
  `SELECT ts_ms / 86400000, is_worker, ${SUMS} FROM llm_calls GROUP BY 1, 2`,
  `SELECT model, ${SUMS} FROM llm_calls GROUP BY 1`,
  LEDGER_PAGE,
  `SELECT model, delegated_by_model, ${SUMS} FROM llm_calls WHERE is_worker = 1 GROUP BY 1, 2`,
];
const DAY_MS = 86_400_000;
const PAGE_MS = 15;
const STREAMS_RATIO = 1.5;
const DATABASE_MB = 600;
const OTHER_BILL_MS = 2000;
const SAY = marker({ chunks: 400, rate: 200 });
/** The priority of the thread of the reports (src/store/sqlite/report). */
const NICE = 10;

export async function measure(bench) {
  const data = path.join(bench.folder, 'reports');
  const size = bench.quick ? { calls: CALLS / 10, trees: TREES / 10 } : { calls: CALLS, trees: TREES };
  await (await startServer(data, bench.provider)).stop();
  bench.note(`storing ${size.calls} calls of ${size.trees} trees`);
  fillLedger(data, size);
  // The newest tenth is what the other bill is asked about.
  fillDecisions(data, { trees: size.trees, since: size.trees * 0.9 });
  const megabytes = fs.statSync(path.join(data, 'metis.db')).size / 1e6;
  const server = await startServer(data, bench.provider);
  const client = createClient(server.url);
  const db = new Database(path.join(data, 'metis.db'), { readonly: true });
  const ledger = (statements) => {
    for (const sql of statements) db.prepare(sql).all();
  };
  try {
    const page = await bench.rounds({
      relay: () => timed(() => ledger([LEDGER_PAGE])),
      metis: () => repeated(() => client.get(PAGE)),
    });
    const overview = await bench.rounds({
      relay: () => timed(() => ledger(LEDGER_OVERVIEW)),
      metis: async () => median(await times(20, () => Promise.all(OVERVIEW.map((query) => client.get(query))))),
    });
    const streams = await bench.rounds({
      relay: async () => figures(await streamed(bench, client, SAY)).p99,
      metis: () => underWork(askOverview(client), async () => figures(await streamed(bench, client, SAY)).p99),
    });
    const beside = await bench.rounds({
      relay: async () => figures(await streamed(bench, client, SAY)).p99,
      metis: () => besideOther(async () => figures(await streamed(bench, client, SAY)).p99),
    });
    const other = await bench.rounds({
      relay: () => OTHER_BILL_MS,
      metis: () => timed(() => askOtherBill(client)),
    });
    const otherStreams = await bench.rounds({
      relay: async () => figures(await streamed(bench, client, SAY)).p99,
      metis: () =>
        underWork(
          () => askOtherBill(client),
          async () => figures(await streamed(bench, client, SAY)).p99,
        ),
    });
    const trees = size.trees.toLocaleString('en');
    const repriced = (size.calls / 10).toLocaleString('en');
    const row = (name, unit, rounds, limit) => ({ row: name, unit, better: 'lower', ...rounds, limit });
    return [
      row(`p99 of 100 most expensive of ${trees} trees, beside the ledger`, 'ms', page, atMost(PAGE_MS)),
      row('overview, four reports at once, beside the ledger', 'ms', overview),
      row('chunk p99 under reports, beside without', 'ms', streams, ratioAtMost(STREAMS_RATIO)),
      // What the machine alone adds: the reports' thread computes beside the streams, as this process does.
      row('chunk p99 beside a process that computes, beside without', 'ms', beside),
      row(`${repriced} calls under other models, beside 2 s`, 'ms', other, atMost(OTHER_BILL_MS)),
      row('chunk p99 under that, beside without', 'ms', otherStreams),
      row(
        `database, beside ${DATABASE_MB} MB`,
        'MB',
        { metis: [megabytes], relay: [DATABASE_MB] },
        atMost(DATABASE_MB),
      ),
    ];
  } finally {
    db.close();
    client.close();
    await server.stop();
  }
}

async function times(count, work) {
  const all = [];
  for (let i = 0; i < count; i++) all.push(await timed(work));
  return all;
}

async function repeated(read) {
  return percentile(await times(READS, read), 99);
}

const askOverview = (client) => () => Promise.all(OVERVIEW.map((query) => client.get(query)));

/** The newest tenth of the calls, every worker on the planner's model. */
function askOtherBill(client) {
  const from = new Date(Date.now() - 9 * DAY_MS).toISOString();
  return client.post('/analytics/what-if', {
    from,
    models: { 'messages:worker': 'messages:planner' },
    group_by: 'day',
  });
}

/** Asks again and again, as long as `work` takes. */
async function underWork(ask, work) {
  let working = true;
  const done = work().finally(() => {
    working = false;
  });
  while (working) await ask();
  return done;
}

/** Runs `work` while another process of the reports' priority computes. */
async function besideOther(work) {
  const child = spawn(process.execPath, ['--eval', 'for (;;);'], { stdio: 'ignore' });
  os.setPriority(child.pid, NICE);
  try {
    return await work();
  } finally {
    child.kill('SIGKILL');
  }
}
