// Turns a second, latency and processor time of one turn with 1, 16 and 64 sessions at work at once.
import { load, marker, openSession } from '../client.mjs';
import { ratioAtLeast, ratioAtMost } from '../limits.mjs';
import { cpuMs } from '../processes.mjs';
import { percentile } from '../stats.mjs';

export const name = 'turns';

const LANES = [
  { lanes: 1, turns: 200, limits: { p50: ratioAtMost(1.8) } },
  { lanes: 16, turns: 480, limits: { perSecond: ratioAtLeast(0.45), bare: ratioAtLeast(0.33), cpu: ratioAtMost(4) } },
  { lanes: 64, turns: 960, limits: { perSecond: ratioAtLeast(0.45), bare: ratioAtLeast(0.33), cpu: ratioAtMost(4) } },
];
/** Then a lane goes on with a fresh session, so that the length of the history plays no part. */
const TURNS_PER_SESSION = 10;

export async function measure(bench) {
  const rows = [];
  for (const { lanes, turns, limits } of LANES) {
    const count = bench.quick ? Math.ceil(turns / 4) : turns;
    const rounds = await bench.rounds({
      relay: () => figures(bench.relay, lanes, count, () => bench.relayClient.relay(marker({ chunks: 20 }))),
      bare: () => figures(bench.bare, lanes, count, () => bench.bareClient.relay(marker({ chunks: 20 }))),
      metis: () => serverRound(bench, lanes, count),
    });
    const beside = (side, figure) => ({
      metis: rounds.metis.map((r) => r[figure]),
      relay: rounds[side].map((r) => r[figure]),
    });
    const of = (figure) => beside('relay', figure);
    const sessions = lanes === 1 ? '1 session' : `${lanes} sessions`;
    rows.push(
      { row: `turns/s, ${sessions}`, unit: '/s', better: 'higher', ...of('perSecond'), limit: limits.perSecond },
      { row: `turn p50, ${sessions}`, unit: 'ms', better: 'lower', ...of('p50'), limit: limits.p50 },
      { row: `turn p99, ${sessions}`, unit: 'ms', better: 'lower', ...of('p99') },
    );
    rows.push({
      row: `turns/s, ${sessions}, beside node:http`,
      unit: '/s',
      better: 'higher',
      ...beside('bare', 'perSecond'),
      limit: limits.bare,
    });
    if (cpuMs(bench.server.pid) !== null) {
      rows.push(
        { row: `CPU per turn, ${sessions}`, unit: 'ms', better: 'lower', ...of('cpu') },
        {
          row: `CPU per turn, ${sessions}, beside node:http`,
          unit: 'ms',
          better: 'lower',
          ...beside('bare', 'cpu'),
          limit: limits.cpu,
        },
      );
    }
  }
  return rows;
}

function serverRound(bench, lanes, count) {
  return withSessions([bench.client], bench, { lanes, count }, (job) => figures(bench.server, lanes, count, job));
}

/** Of servers that share the sessions evenly. */
export function turnsPerSecond(clients, place, lanes, count) {
  return withSessions(
    clients,
    place,
    { lanes, count },
    async (job) => (count / (await load(lanes, count, job)).ms) * 1000,
  );
}

/** Hands `work` the job of a lane: a turn of its session, or of a fresh one where that has had its turns. */
async function withSessions(clients, place, { lanes, count }, work) {
  const sessions = [];
  for (let i = 0; i < lanes + Math.ceil(count / TURNS_PER_SESSION); i++) {
    sessions.push(await openSession(clients[i % clients.length], place));
  }
  const fresh = [...sessions];
  const current = Array.from({ length: lanes }, () => ({ session: fresh.pop(), turns: 0 }));
  const result = await work((lane) => {
    const mine = current[lane];
    if (mine.turns === TURNS_PER_SESSION) Object.assign(mine, { session: fresh.pop(), turns: 0 });
    mine.turns += 1;
    return mine.session.turn(marker({ chunks: 20 }));
  });
  for (const session of sessions) session.close();
  return result;
}

async function figures(process, lanes, count, job) {
  const before = cpuMs(process.pid);
  const { latencies, ms } = await load(lanes, count, job);
  return {
    perSecond: (count / ms) * 1000,
    p50: percentile(latencies, 50),
    p99: percentile(latencies, 99),
    cpu: (cpuMs(process.pid) - before) / count,
  };
}
