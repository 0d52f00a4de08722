// A server at work for minutes: sessions whose answers come at a model's pace, of which some delegate, and which end and
// are replaced. Fails when something grows that should not.
//
// SOAK_MINUTES (10)  how long; figures are compared between a fifth of it and its end, memory from five minutes on:
//                    a server that has just begun still grows
// SOAK_SESSIONS (512) sessions at once, each with a subscriber
// SOAK_PAUSE_MS (500) between the turns of a session
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { createClient, marker, openSession } from './client.mjs';
import { killAll, residentMib, startProvider, startServer } from './processes.mjs';
import { percentile } from './stats.mjs';

const minutes = bounded('SOAK_MINUTES', 10, 60);
const lanes = bounded('SOAK_SESSIONS', 512, 1024);
const pauseMs = bounded('SOAK_PAUSE_MS', 500, 60_000);
const TURNS_PER_SESSION = 10;
/** 200 ms to the first piece of an answer, then one every 50 ms. */
const PACE = { chunks: 40, rate: 20, first: 200 };
/** One lane of so many delegates, each second of those to three workers at once. */
const DELEGATES = 8;
const MAX_GROWTH = 1.1;
const MEMORY_FROM_MINUTES = 5;
/** Twice what SQLite may let it grow to before it starts again from the front. */
const MAX_WAL_MIB = 64;
/** Sockets and timers come and go with the work, and a thread that starts late opens its files: more than this is growth. */
const HANDLE_SLACK = Math.max(10, lanes / 32);
const RSS_SAMPLES = 20;
const SAMPLE_LIMIT_MS = 60_000;
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function bounded(name, fallback, most) {
  const value = Number(process.env[name] ?? fallback);
  if (!(value > 0 && value <= most)) throw new Error(`${name} must be above 0 and at most ${most}`);
  return value;
}

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'metis-soak-'));
const workspace = path.join(folder, 'workspace');
const data = path.join(folder, 'data');
const probeFile = path.join(folder, 'probe.json');
fs.mkdirSync(workspace);
process.env.SOAK_PROBE = probeFile;
process.exitCode = 1;
try {
  const provider = await startProvider(folder);
  process.env.NODE_OPTIONS = `--expose-gc --import=${path.join(import.meta.dirname, 'soak-probe.mjs')}`;
  const server = await startServer(data, provider, { streams: lanes + 500 });
  delete process.env.NODE_OPTIONS;
  const client = createClient(server.url);

  /** What the process holds, taken with all lanes at rest so that work under way does not count. */
  async function sample() {
    fs.rmSync(probeFile, { force: true });
    process.kill(server.pid, 'SIGUSR2');
    const limit = Date.now() + SAMPLE_LIMIT_MS;
    while (!fs.existsSync(probeFile)) {
      if (Date.now() > limit) throw new Error('the server did not answer the probe');
      await pause(20);
    }
    const { heapMib, listeners, resources, timers } = JSON.parse(fs.readFileSync(probeFile, 'utf8'));
    const restMib = residentMib(server.pid);
    const kept = connectionsTo(provider.url);
    const fds = fs.readdirSync(`/proc/${server.pid}/fd`).length - kept;
    const walMib = fs.statSync(path.join(data, 'metis.db-wal')).size / 2 ** 20;
    return {
      restMib,
      heapMib,
      fds,
      listeners,
      timers: timers - kept,
      resources,
      walMib,
      kept,
    };
  }

  let resting = null;
  let turns = 0;
  let opened = 0;
  let over = false;
  const until = Date.now() + minutes * 60_000;
  async function lane(number) {
    let session = null;
    for (let n = 0; !over; n++) {
      if (resting) await resting.rest();
      if (session === null || n % TURNS_PER_SESSION === 0) {
        if (session !== null) {
          session.close();
          await client.request('DELETE', `/sessions/${session.id}`);
        }
        session = await openSession(client, { workspace, model: 'messages:planner' });
        opened += 1;
      }
      const workers = number % DELEGATES > 0 ? 0 : number % (2 * DELEGATES) > 0 ? 1 : 3;
      await session.turn(marker({ ...PACE, delegate: workers }));
      turns += 1;
      await pause(pauseMs);
    }
    session?.close();
  }
  /** Lets every lane come to a stop between two turns, measures, and lets them go on. */
  async function atRest() {
    let arrived = 0;
    let go;
    const over = new Promise((resolve) => {
      go = resolve;
    });
    await new Promise((resolve) => {
      resting = {
        rest() {
          arrived += 1;
          if (arrived === lanes) resolve();
          return over;
        },
      };
    });
    // Those that a crowd left open, each with its timer, say nothing of the server.
    client.close();
    await pause(1000);
    const figures = await sample();
    resting = null;
    go();
    return figures;
  }

  const working = Promise.all(Array.from({ length: lanes }, (_, i) => lane(i)));
  /** Resident memory while at work, the median of a twentieth of the run: single figures swing with the collector. */
  async function workingMib() {
    const samples = [];
    for (let n = 0; n < RSS_SAMPLES; n++) {
      await pause((minutes * 3000) / RSS_SAMPLES);
      samples.push(residentMib(server.pid));
    }
    return percentile(samples, 50);
  }
  const measuring = (async () => {
    await pause(minutes * 9000);
    // Before the probe, whose collection would make the process look smaller than it is at work.
    const rssEarly = await workingMib();
    const early = { ...(await atRest()), rssMib: rssEarly };
    report(`at ${(minutes / 5).toFixed(1)} min`, early);
    await pause(Math.max(0, until - Date.now() - minutes * 3000 - 15_000));
    const rssLate = await workingMib();
    const late = { ...(await atRest()), rssMib: rssLate };
    report(`at ${minutes.toFixed(1)} min`, late);
    over = true;
    return { early, late };
  })();
  const [, { early, late }] = await Promise.all([working, measuring]);
  process.stdout.write(`${turns} turns in ${opened} sessions\n`);

  const faults = [];
  // At work V8 lets garbage grow to several times what is alive before it clears it: what is left then is what counts.
  for (const [kind, what] of [
    ['heapMib', 'the heap'],
    ['restMib', 'RSS at rest'],
  ])
    if (minutes >= MEMORY_FROM_MINUTES && late[kind] > early[kind] * MAX_GROWTH)
      faults.push(`${what} grew by more than ${Math.round((MAX_GROWTH - 1) * 100)} %`);
  for (const kind of ['fds', 'timers', 'listeners'])
    if (late[kind] > early[kind] + HANDLE_SLACK) faults.push(`${kind} grew from ${early[kind]} to ${late[kind]}`);
  if (late.walMib > MAX_WAL_MIB) faults.push(`the WAL is larger than ${MAX_WAL_MIB} MiB`);
  await server.stop();
  await provider.stop();
  client.close();
  for (const fault of faults) process.stdout.write(`FAILED: ${fault}\n`);
  if (faults.length === 0) process.exitCode = 0;
} finally {
  killAll();
  fs.rmSync(folder, { recursive: true, force: true });
}

/** Connections that are kept open for the next call, each with its timer: how many there are follows from the last seconds' load. */
function connectionsTo(url) {
  const port = Number(new URL(url).port).toString(16).toUpperCase().padStart(4, '0');
  const lines = fs.readFileSync('/proc/net/tcp', 'utf8').trim().split('\n').slice(1);
  return lines.filter((line) => {
    const [, , remote, state] = line.trim().split(/\s+/);
    return remote.endsWith(`:${port}`) && state === '01';
  }).length;
}

function report(when, { rssMib, restMib, heapMib, fds, listeners, timers, resources, walMib, kept }) {
  process.stdout.write(
    `${when}: RSS ${rssMib.toFixed(1)} MiB at work, ${restMib.toFixed(1)} at rest, heap ${heapMib.toFixed(1)} MiB, ${fds} descriptors, ${timers} timers beside ${kept} kept connections, ` +
      `${listeners} process listeners, WAL ${walMib.toFixed(1)} MiB, ${JSON.stringify(resources)}\n`,
  );
}
