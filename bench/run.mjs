// Measures the built server against a local fake provider, beside a bare relay in the same run (docs/performance.md).
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { performance } from 'node:perf_hooks';
import { parseArgs } from 'node:util';
import { createClient, load, marker, openSession } from './client.mjs';
import * as chunkCost from './measures/chunk-cost.mjs';
import * as chunkLatency from './measures/chunk-latency.mjs';
import * as cluster from './measures/cluster.mjs';
import * as command from './measures/command.mjs';
import * as connects from './measures/connects.mjs';
import * as database from './measures/database.mjs';
import * as doors from './measures/doors.mjs';
import * as fanOut from './measures/fan-out.mjs';
import * as gateway from './measures/gateway.mjs';
import * as grep from './measures/grep.mjs';
import * as learning from './measures/learning.mjs';
import * as longSession from './measures/long-session.mjs';
import * as migrate from './measures/migrate.mjs';
import * as pacedSessions from './measures/paced-sessions.mjs';
import * as pages from './measures/pages.mjs';
import * as reports from './measures/reports.mjs';
import * as routing from './measures/routing.mjs';
import * as storedSessions from './measures/stored-sessions.mjs';
import * as stuckSubscriber from './measures/stuck-subscriber.mjs';
import * as subscribers from './measures/subscribers.mjs';
import * as turns from './measures/turns.mjs';
import * as workers from './measures/workers.mjs';
import * as worktree from './measures/worktree.mjs';
import { killAll, startBareRelay, startProvider, startRelay, startServer } from './processes.mjs';
import { countLimits, readBaseline, saveBaseline, saveResult, summarise, table } from './report.mjs';
import { createRounds } from './rounds.mjs';

const MEASURES = [
  turns,
  fanOut,
  longSession,
  chunkLatency,
  chunkCost,
  pacedSessions,
  connects,
  subscribers,
  stuckSubscriber,
  routing,
  learning,
  pages,
  storedSessions,
  command,
  database,
  reports,
  gateway,
  grep,
  worktree,
  workers,
  doors,
  cluster,
  migrate,
];
const ROUNDS = 5;
const QUICK_ROUNDS = 1;
const RUN_LIMIT_MS = 120 * 60_000;
/** The default would refuse a part of the crowd that `connects` sends. */
const STREAMS = 2500;
/** Until both sides run compiled code: a long-lived server is what is measured. */
const WARM_UP = { lanes: 16, turns: 4000, turnsPerSession: 10, fanOuts: 40, workers: 8 };
const USAGE = `Usage: npm run bench -- [options]
  --quick          one short round of each measure
  --only NAME      one measure; may be repeated: ${MEASURES.map((m) => m.name).join(', ')}
  --wire NAME      messages (Anthropic Messages) or chat (Chat Completions); messages unless told
  --rounds N       rounds of each measure, ${ROUNDS} unless told; up to three times as many where they differ
  --profile DIR    writes a CPU profile of the server there
  --save-baseline  keeps the measured ratios in bench/baseline.json
`;

const options = readOptions();
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'metis-bench-'));
const limit = setTimeout(() => stopAtOnce('the run took too long'), RUN_LIMIT_MS);
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => stopAtOnce(signal));

const processes = [];
const started = async (process) => {
  processes.push(await process);
  return processes.at(-1);
};
try {
  const rows = await run();
  const baseline = readBaseline();
  process.stdout.write(`${table(rows, baseline)}\n`);
  const about = { date: new Date().toISOString(), quick: options.quick, wire: options.wire, rounds: options.rounds };
  note(`written to ${path.relative(process.cwd(), saveResult(rows, about))}`);
  const { met, missed } = countLimits(rows);
  note(`${met} limits met, ${missed} missed${options.quick ? ', by single short rounds' : ''}`);
  if (options.saveBaseline) note(`ratios kept in ${path.relative(process.cwd(), saveBaseline(rows))}`);
} catch (error) {
  note(error.stack);
  process.exitCode = 1;
} finally {
  for (const running of processes.reverse()) await running.stop();
  clearTimeout(limit);
  killAll();
  fs.rmSync(folder, { recursive: true, force: true });
}

async function run() {
  const workspace = path.join(folder, 'workspace');
  fs.mkdirSync(workspace);
  const provider = await started(startProvider(folder));
  const relay = await started(startRelay(folder, provider));
  const bare = await started(startBareRelay(folder, provider));
  const { profile } = options;
  const server = await started(startServer(path.join(folder, 'data'), provider, { profile, streams: STREAMS }));
  const bench = {
    provider,
    relay,
    bare,
    server,
    relayClient: createClient(relay.url),
    bareClient: createClient(bare.url),
    client: createClient(server.url),
    folder,
    workspace,
    model: `${options.wire}:planner`,
    quick: options.quick,
    rounds: createRounds({ count: options.rounds, now: () => performance.now(), note }),
    note,
    warmServer: (client, place = bench) => warmServer(client, place),
  };
  note('warming up');
  await warmUp(bench);
  const rows = [];
  for (const { name, measure } of options.measures) {
    note(name);
    try {
      rows.push(...(await measure(bench)).map((row) => summarise(name, row)));
    } catch (error) {
      // What the others measured is reported all the same.
      note(`${name} failed: ${error.stack}`);
      process.exitCode = 1;
    }
  }
  bench.client.close();
  bench.relayClient.close();
  bench.bareClient.close();
  return rows;
}

async function warmUp(bench) {
  const { lanes } = WARM_UP;
  const turns = WARM_UP.turns * (options.quick ? 0.1 : 1);
  const say = marker({ chunks: 20 });
  await load(lanes, turns, () => bench.relayClient.relay(say));
  await load(lanes, turns, () => bench.bareClient.relay(say));
  await warmServer(bench.client, bench);
}

/** As many turns and fan-outs as the server of the run has had when the measures begin. */
async function warmServer(client, place) {
  const { lanes, turnsPerSession, workers } = WARM_UP;
  const part = options.quick ? 0.1 : 1;
  const say = marker({ chunks: 20 });
  for (let done = 0; done < WARM_UP.turns * part; done += lanes * turnsPerSession) {
    const sessions = [];
    for (let i = 0; i < lanes; i++) sessions.push(await openSession(client, place));
    await load(lanes, lanes * turnsPerSession, (lane) => sessions[lane].turn(say));
    for (const session of sessions) session.close();
  }
  for (let i = 0; i < WARM_UP.fanOuts * part; i++) {
    const session = await openSession(client, place);
    await session.turn(marker({ chunks: 20, delegate: workers }));
    session.close();
  }
}

function readOptions() {
  try {
    const { values } = parseArgs({
      options: {
        quick: { type: 'boolean', default: false },
        only: { type: 'string', multiple: true },
        wire: { type: 'string', default: 'messages' },
        rounds: { type: 'string' },
        profile: { type: 'string' },
        'save-baseline': { type: 'boolean', default: false },
        help: { type: 'boolean', default: false },
      },
    });
    if (values.help) {
      process.stdout.write(USAGE);
      process.exit(0);
    }
    const measures = MEASURES.filter((m) => !values.only || values.only.includes(m.name));
    const unknown = (values.only ?? []).filter((name) => !MEASURES.some((m) => m.name === name));
    if (unknown.length > 0) throw new Error(`--only: no measure is called ${unknown.join(', ')}`);
    if (!['messages', 'chat'].includes(values.wire)) throw new Error('--wire: must be messages or chat');
    if (values.quick && values['save-baseline']) throw new Error('--save-baseline: a quick run is no baseline');
    const count = Number(values.rounds ?? (values.quick ? QUICK_ROUNDS : ROUNDS));
    if (!Number.isInteger(count) || count < 1 || count > 50) throw new Error('--rounds: must be 1 to 50');
    return {
      measures,
      quick: values.quick,
      wire: values.wire,
      rounds: count,
      profile: values.profile === undefined ? null : path.resolve(values.profile),
      saveBaseline: values['save-baseline'],
    };
  } catch (error) {
    process.stderr.write(`${error.message}\n\n${USAGE}`);
    process.exit(2);
  }
}

function note(text) {
  process.stderr.write(`bench: ${text}\n`);
}

function stopAtOnce(why) {
  note(`stopped: ${why}`);
  killAll();
  fs.rmSync(folder, { recursive: true, force: true });
  process.exit(1);
}
