// Routing that learns: what a recommendation takes at the limits, and what recording adds to a turn's processor time.
// The recommendation runs in this process, over a database of its own. The turns run on four servers of the same age, two
// of which learn nothing, in turn within one run: two servers of one kind differ by more than what is measured. All of it is processor time: what else runs on the machine is not in it.
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { createLearning } from '#core/learning/learning-loop.ts';
import { signFingerprint } from '#core/policy/learning/fingerprint.ts';
import { systemClock } from '#protocol/clock.ts';
import { createIdGenerator } from '#protocol/ids.ts';
import { createStore } from '#store/read/store.ts';
import { openDatabase } from '#store/sqlite/connection/open.ts';
import { createReadDatabase } from '#store/sqlite/connection/reads.ts';
import { createClient, load, marker, openSession } from '../client.mjs';
import { atMost, ratioAtMost } from '../limits.mjs';
import { cpuMs, startServer } from '../processes.mjs';
import { percentile } from '../stats.mjs';

export const name = 'learning';

const WORKSPACES = 10;
const OUTCOMES = 10_000;
const MODELS = ['messages:planner', 'messages:worker'];
const INTENTS = ['commit', 'refactor', 'architecture', 'debug', 'doc', 'test'];
const ASKED = 2000;
const LIMIT_MS = 5;
const COST_RATIO = 1.05;
const LANES = 16;
const POLL_MS = 50;
/** Short rounds, and many: the machine is not the same from one minute to the next. */
const TURNS = 480;
const PASSES = 3;
const SERVERS = 2;
const TURNS_PER_SESSION = 10;
const log = { debug() {}, info() {}, warn() {}, error() {} };

export async function measure(bench) {
  const rows = [await recommendation(bench)];
  if (cpuMs(bench.server.pid) === null) return rows;
  const start = async (learns, n) => {
    const server = await startServer(path.join(bench.folder, `${learns ? 'learning' : 'deaf'}-${n}`), bench.provider, {
      learns,
    });
    return { server, client: createClient(server.url), learns };
  };
  const servers = [];
  const count = bench.quick ? TURNS / 4 : TURNS;
  try {
    for (let n = 0; n < SERVERS; n += 1) for (const learns of [false, true]) servers.push(await start(learns, n));
    for (const { client } of servers) await bench.warmServer(client);
    const measureSide = async (side) => {
      let sum = 0;
      for (const server of servers.filter(({ learns }) => learns === side)) sum += await turns(server, bench, count);
      return sum / SERVERS;
    };
    const sides = { relay: () => measureSide(false), metis: () => measureSide(true) };
    const rounds = await bench.rounds(sides, { times: PASSES });
    rows.push({
      row: 'CPU per turn, beside one that learns nothing',
      unit: 'ms',
      better: 'lower',
      ...rounds,
      limit: ratioAtMost(COST_RATIO),
    });
  } finally {
    for (const { client, server } of servers) {
      client.close();
      await server.stop();
    }
  }
  return rows;
}

async function recommendation(bench) {
  const db = openDatabase({
    path: path.join(bench.folder, 'learning.db'),
    synchronous: 'NORMAL',
    migrationsDir: path.resolve(import.meta.dirname, '..', '..', 'migrations'),
    log,
  });
  try {
    fill(db.db);
    const { recommender } = createLearning({
      store: createStore(createReadDatabase(db.db), db.caches),
      clock: systemClock,
      alone: true,
      hasModel: () => true,
    });
    const config = { enabled: true, cost_weight: 0.05, min_confidence: 0.05, min_sample_size: 5 };
    const ask = (n) =>
      recommender.recommend({ workspace_path: '/w/0', fingerprint: shape(n, 0), config, is_worker: false });
    await ask(0);
    const rounds = await bench.rounds({
      relay: () => LIMIT_MS,
      async metis() {
        const all = [];
        for (let n = 0; n < ASKED; n += 1) {
          const before = process.cpuUsage();
          const found = await ask(n * 3);
          const { user, system } = process.cpuUsage(before);
          if (found === null) throw new Error('nothing was recommended');
          all.push((user + system) / 1000);
        }
        return percentile(all, 99);
      },
    });
    const row = { row: 'recommendation p99 of CPU, 10,000 of 100,000 outcomes', unit: 'ms', better: 'lower' };
    return { ...row, ...rounds, limit: atMost(LIMIT_MS) };
  } finally {
    db.close();
  }
}

function fill(db) {
  const ids = createIdGenerator(() => Date.now(), Math.random);
  const fingerprint = db.prepare('INSERT INTO pattern_fingerprints VALUES (?, ?, ?, ?, ?)');
  const outcome =
    db.prepare(`INSERT INTO pattern_outcomes (fingerprint_id, primary_model, sample_size, success_score_mean,
      success_score_count, sum_cost_pusd, sum_latency_ms, pricing_version_last, last_updated_at, is_worker, cost_count,
      verified_mean, verified_count)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 9, 0, 0)`);
  db.transaction(() => {
    for (let w = 0; w < WORKSPACES; w += 1)
      for (let n = 0; n < OUTCOMES / MODELS.length; n += 1) {
        const id = ids.next();
        const { structural_json, structural_sig } = signFingerprint(shape(n, w));
        fingerprint.run(id, `/w/${w}`, structural_json, structural_sig, n);
        for (const [m, model] of MODELS.entries()) outcome.run(id, model, 9, 0.5 + m / 4, 9, 9e9, 9e3, 'A', n);
      }
  })();
}

/** The n-th shape: a few names out of many, so that hundreds are alike. */
function shape(n, workspace) {
  const some = (prefix, kinds, by) =>
    [...new Set([n % kinds, (n * by) % kinds, (n * by * by) % kinds])].map((one) => `${prefix}${one}`).sort();
  return {
    file_extensions: some('.e', 12, 5),
    file_path_buckets: some('d', 40, 7),
    tool_names: some('t', 15, 11),
    side_effect_classes: ['read'],
    has_images: n % 16 === 0,
    has_tool_calls_in_history: true,
    estimated_input_tokens_bucket: Math.floor(n / 17) % 4,
    intent_tags: [INTENTS[n % 6]],
    workspace_hash: `${workspace} ${n}`,
  };
}

/** Processor time of one turn with all that is learned of it, milliseconds. */
async function turns({ server, client, learns }, bench, count) {
  const known = learns ? await settled(client, bench) : 0;
  const open = () => openSession(client, { workspace: bench.workspace, model: bench.model });
  const fresh = [];
  for (let i = 0; i < LANES + Math.ceil(count / TURNS_PER_SESSION); i += 1) fresh.push(await open());
  const all = [...fresh];
  const current = Array.from({ length: LANES }, () => ({ session: fresh.pop(), turns: 0 }));
  const before = cpuMs(server.pid);
  await load(LANES, count, (lane) => {
    const mine = current[lane];
    if (mine.turns === TURNS_PER_SESSION) Object.assign(mine, { session: fresh.pop(), turns: 0 });
    mine.turns += 1;
    return mine.session.turn(marker({ chunks: 20 }));
  });
  if (learns) while ((await learnedTurns(client, bench)) < known + count) await sleep(POLL_MS);
  const used = (cpuMs(server.pid) - before) / count;
  for (const session of all) session.close();
  return used;
}

/** How many turns were learned, when no more are being learned. */
async function settled(client, bench) {
  for (let before = -1; ; ) {
    const now = await learnedTurns(client, bench);
    if (now === before) return now;
    before = now;
    await sleep(4 * POLL_MS);
  }
}

async function learnedTurns(client, { workspace }) {
  const { patterns } = await client.get(`/patterns?limit=200&workspace_path=${encodeURIComponent(workspace)}`);
  return patterns.flatMap(({ outcomes }) => outcomes).reduce((sum, { sample_size }) => sum + sample_size, 0);
}
