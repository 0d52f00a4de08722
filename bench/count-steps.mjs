// Counts the steps of a turn in the built server: promises, parses, copies, validations, statements. A count is the same
// on a busy machine, and a time is not (docs/performance.md, "Steps of a turn").
//
//   node bench/count-steps.mjs            a table
//   node bench/count-steps.mjs --json     the same as JSON
//   node bench/count-steps.mjs --plain    without the turns that are learned
//   node bench/count-steps.mjs --places   the lines that make promises, for one turn without learning
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { createClient, marker, openSession } from './client.mjs';
import { killAll, startProvider, startServer } from './processes.mjs';

const WARM_UP = 40;
const TURNS = 40;
/** Pieces of an answer that arrive one at a time, and how many there are less in the other. */
const PACED = { few: 20, many: 220, rate: 400, turns: 4 };
/** Until learning, which follows the turns, has nothing left to do. */
const REST_MS = 400;
const LIMIT_MS = 10_000;
const LABELS = {
  promises: 'promises made',
  continuations: 'continuations of promises (`await`, `then`)',
  jobs: 'microtasks of promises',
  ticks: '`process.nextTick`',
  parses: '`JSON.parse`',
  parsed: 'characters parsed',
  stringifies: '`JSON.stringify`',
  stringified: 'characters written by it',
  validations: 'validations by zod',
  statements: 'SQLite statements',
  commits: 'commits',
  encodes: 'text to bytes',
  decodes: 'bytes to text',
  copies: 'copies of bytes or values',
  writes: 'writes to sockets',
};
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const { values: options } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    plain: { type: 'boolean', default: false },
    places: { type: 'boolean', default: false },
  },
});
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'metis-steps-'));
const probeFile = path.join(folder, 'probe.json');
const workspace = path.join(folder, 'workspace');
fs.mkdirSync(workspace);
try {
  const provider = await startProvider(folder);
  const plain = await countServer(provider, false);
  const learning = options.places || options.plain ? null : await countServer(provider, true);
  await provider.stop();
  if (options.places) for (const [place, times] of plain.places) process.stdout.write(`${rounded(times)} ${place}\n`);
  else {
    const columns = { turn: plain.turn, learned: learning?.turn, piece: plain.piece };
    process.stdout.write(options.json ? `${JSON.stringify(columns)}\n` : table(columns));
  }
} finally {
  killAll();
  fs.rmSync(folder, { recursive: true, force: true });
}

/** The counts of one turn and of one piece, behind turns that warm the server up. */
async function countServer(provider, learns) {
  process.env.STEP_PROBE = probeFile;
  process.env.STEP_PROBE_PLACES = options.places ? '1' : '0';
  const probe = `--import=${path.join(import.meta.dirname, 'step-probe.mjs')}`;
  process.env.NODE_OPTIONS = options.places ? `${probe} --enable-source-maps` : probe;
  const server = await startServer(path.join(folder, learns ? 'learning' : 'plain'), provider, { learns });
  delete process.env.NODE_OPTIONS;
  const client = createClient(server.url);
  const session = await openSession(client, { workspace, model: 'messages:planner' });

  async function counted(turns, asked) {
    await pause(REST_MS);
    await read(server.pid);
    for (let i = 0; i < turns; i += 1) await session.turn(marker(asked));
    await pause(REST_MS);
    const { places, ...all } = await read(server.pid);
    const each = Object.fromEntries(Object.entries(all).map(([kind, value]) => [kind, value / turns]));
    return { each, places: places.map(([place, times]) => [place, times / turns]) };
  }
  const paced = (chunks) => counted(PACED.turns, { chunks, rate: PACED.rate });

  for (let i = 0; i < WARM_UP; i += 1) await session.turn(marker({ chunks: 20 }));
  const { each: turn, places } = await counted(TURNS, { chunks: 20 });
  const [few, many] = learns ? [null, null] : [await paced(PACED.few), await paced(PACED.many)];
  const piece =
    few &&
    Object.fromEntries(
      Object.entries(many.each).map(([kind, value]) => [kind, (value - few.each[kind]) / (PACED.many - PACED.few)]),
    );
  session.close();
  client.close();
  await server.stop();
  return { turn, piece, places };
}

/** What the server has counted since it was asked before. */
async function read(pid) {
  fs.rmSync(probeFile, { force: true });
  process.kill(pid, 'SIGUSR2');
  const limit = Date.now() + LIMIT_MS;
  while (!fs.existsSync(probeFile)) {
    if (Date.now() > limit) throw new Error('the server did not answer the probe');
    await pause(10);
  }
  return JSON.parse(fs.readFileSync(probeFile, 'utf8'));
}

function table({ turn, learned, piece }) {
  const lines = Object.entries(LABELS).map(([kind, label]) => {
    const cells = [turn, learned, piece].map((counts) => (counts ? rounded(counts[kind]) : ''));
    return `| ${label} | ${cells.join(' | ')} |`;
  });
  return ['| | a turn | learned | a piece |', '| --- | --- | --- | --- |', ...lines, ''].join('\n');
}

function rounded(value) {
  return String(Math.round(value * (value < 20 ? 100 : 10)) / (value < 20 ? 100 : 10));
}
