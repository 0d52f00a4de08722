// What is stored of a turn: bytes of the database, and what the rollups cost beside the ledger row that they sum up.
import fs from 'node:fs';
import path from 'node:path';
import { openDatabase } from '#store/sqlite/connection/open.ts';
import { createTx } from '#store/sqlite/connection/reads.ts';
import { createLedger } from '#store/sqlite/write/event-log.ts';
import { createClient, load, marker, openSession } from '../client.mjs';
import { fillLedger } from '../ledger.mjs';
import { aboveAtMost, atMost } from '../limits.mjs';
import { startServer } from '../processes.mjs';

export const name = 'database';

const LANES = 16;
const TURNS_PER_SESSION = 10;
const TURNS = 1600;
const SAY = marker({ chunks: 20 });
/** What the ledger is filled with before its writes are measured. */
const STORED = { calls: 1_000_000, trees: 50_000 };
const WRITES = 10_000;
const TREES = 16;
const MIGRATIONS = path.resolve(import.meta.dirname, '../../migrations');
const TURN_KB = 5;
const ROLLUPS_US = 30;
const SILENT = { info() {}, warn() {}, error() {} };

export async function measure(bench) {
  const bytes = await bytesOfTurn(bench);
  const rows = [
    {
      row: `stored of a turn, beside ${TURN_KB} kB`,
      unit: 'kB',
      better: 'lower',
      metis: [bytes / 1000],
      relay: [TURN_KB],
      limit: atMost(TURN_KB),
    },
  ];
  const data = path.join(bench.folder, 'ledger');
  fs.mkdirSync(data);
  open(data).close();
  const { calls, trees } = STORED;
  bench.note(`storing ${calls} calls of ${trees} trees`);
  fillLedger(data, bench.quick ? { calls: calls / 10, trees: trees / 10 } : STORED);
  for (const [together, words] of [
    [1, 'one a transaction'],
    [8, 'eight a transaction'],
  ]) {
    const write = (rollups) => async () => microsecondsOfCall(data, { together, rollups });
    const measured = await bench.rounds({ relay: write(false), metis: write(true) });
    rows.push({
      row: `a ledger row with its rollups, ${words}, beside without`,
      unit: 'us',
      better: 'lower',
      ...measured,
      limit: aboveAtMost(ROLLUPS_US),
    });
  }
  return rows;
}

/** Of a new database, less what it holds before its first turn; with sessions of ten turns. */
async function bytesOfTurn(bench) {
  const data = path.join(bench.folder, 'turns');
  const file = path.join(data, 'metis.db');
  await (await startServer(data, bench.provider)).stop();
  const empty = fs.statSync(file).size;
  const server = await startServer(data, bench.provider);
  const client = createClient(server.url);
  const count = bench.quick ? TURNS / 10 : TURNS;
  try {
    for (let done = 0; done < count; done += LANES * TURNS_PER_SESSION) {
      const sessions = [];
      for (let i = 0; i < LANES; i++) sessions.push(await openSession(client, bench));
      await load(LANES, LANES * TURNS_PER_SESSION, (lane) => sessions[lane].turn(SAY));
      for (const session of sessions) session.close();
    }
  } finally {
    client.close();
    // The write-ahead log is copied and goes.
    await server.stop();
  }
  return (fs.statSync(file).size - empty) / count;
}

function open(data) {
  const options = { path: path.join(data, 'metis.db'), synchronous: 'NORMAL', migrationsDir: MIGRATIONS, log: SILENT };
  return openDatabase(options);
}

let written = 0;

/** Processor time of a call's rows and its part of the commit; calls of 64 sessions in turn. */
function microsecondsOfCall(data, { together, rollups }) {
  const handle = open(data);
  try {
    const tx = createTx(handle.db);
    const ledger = createLedger(handle.db, rollups ? tx : withoutRollups(tx), () => false);
    const day = Date.now();
    const sessions = Array.from({ length: TREES * 4 }, (_, i) => sessionOf(`${written}_${i >> 2}`, i % 4));
    const some = handle.db.transaction((from) => {
      for (let i = from; i < from + together; i++) {
        const { id, stamp } = sessions[(i * 7) % sessions.length];
        written += 1;
        const event = `bench_${String(written).padStart(20, '0')}`;
        ledger.project({ id: event, at: day + i, session_id: id, turn_id: `t_${event}`, payload: CALL }, stamp);
      }
    });
    const warm = WRITES / 10;
    for (let i = 0; i < warm; i += together) some(i);
    const before = process.cpuUsage();
    for (let i = warm; i < warm + WRITES; i += together) some(i);
    const { user, system } = process.cpuUsage(before);
    return (user + system) / WRITES;
  } finally {
    handle.close();
  }
}

/** The same transaction, without the statements that write a rollup. */
function withoutRollups(tx) {
  const isKept = (sql) => !sql.includes('INTO rollup_');
  return {
    run(sql, values, check) {
      if (isKept(sql)) tx.run(sql, values, check);
    },
    insert(into, row) {
      if (isKept(into.sql)) tx.insert(into, row);
    },
  };
}

function sessionOf(tree, worker) {
  const root = `sess_${tree.padStart(26, '0')}`;
  const id = worker === 0 ? root : `sess_${`${tree}_${worker}`.padStart(26, '0')}`;
  return {
    id,
    stamp: {
      parent_session_id: worker === 0 ? null : root,
      root_session_id: root,
      is_worker: worker > 0,
      workspace_hash: 'a'.repeat(64),
      worker_name: '',
      delegated_by_model: worker === 0 ? '' : 'messages:planner',
      delegation_tier: worker === 0 ? '' : 'fast',
      door: 'api',
      caller: '',
      owner: '',
      share: 'private',
    },
  };
}

const CALL = {
  model: 'messages:planner',
  provider: 'messages',
  pricing_version: 'bench',
  purpose: 'turn',
  input_tokens: 1200,
  cached_input_tokens: 3000,
  cache_creation_input_tokens: 200,
  cache_creation_1h_input_tokens: 0,
  output_tokens: 400,
  reasoning_tokens: 0,
  usage_estimated: false,
  priced: true,
  stop_reason: 'end_turn',
  latency_ms: 900,
  cost_usd: '0.0028',
  cost_breakdown: { fees: '0', surcharge: '0' },
  fees: [],
  rounds: [],
  bound: null,
  service_tier: null,
  speed: null,
  inference_geo: null,
  fees_unpriced: false,
  surcharge_unknown: false,
  rounds_unknown: false,
};
