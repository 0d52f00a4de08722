// One turn watched by 500 subscribers: until the last has seen its end, what it costs the server, and how long each
// piece of a paced answer takes to each of them.
import { delays, marker, openSession, subscribe, timed } from '../client.mjs';
import { atMost } from '../limits.mjs';
import { cpuMs } from '../processes.mjs';
import { median, percentile } from '../stats.mjs';

export const name = 'subscribers';

const SUBSCRIBERS = 500;
const TURNS = 5;
/** A turn of the relay is short, so it is run often. */
const RELAY_TURNS = 100;
/** Pieces of the paced answer, and how many of them a second. */
const PACED = { chunks: 40, rate: 20 };
const LIMIT_MS = 25;

export async function measure(bench) {
  const say = marker({ chunks: 20 });
  const session = await openSession(bench.client, { workspace: bench.workspace, model: bench.model });
  const others = await Promise.all(
    Array.from({ length: SUBSCRIBERS - 1 }, () => subscribe(bench.client.origin, session.id)),
  );
  const rounds = await bench.rounds({
    relay: () => figures(bench.relay, RELAY_TURNS, () => bench.relayClient.relay(say)),
    metis: () =>
      figures(bench.server, TURNS, () => Promise.all([...others.map((other) => other.turnEnd()), session.turn(say)])),
  });
  const p99 = (all) => percentile(all, 99) / 1e6;
  const paced = await bench.rounds({
    async relay() {
      const all = [];
      await bench.relayClient.relay(marker(PACED), (data) => all.push(...delays(data)));
      return p99(all);
    },
    async metis() {
      const all = [];
      for (const watcher of [session.subscriber, ...others]) watcher.watchDeltas((took) => all.push(took));
      await session.turn(marker(PACED));
      for (const watcher of [session.subscriber, ...others]) watcher.watchDeltas(null);
      return p99(all);
    },
  });
  for (const other of others) other.close();
  session.close();
  const of = (figure) => ({ metis: rounds.metis.map((r) => r[figure]), relay: rounds.relay.map((r) => r[figure]) });
  const rows = [{ row: `turn seen by ${SUBSCRIBERS} subscribers`, unit: 'ms', better: 'lower', ...of('wall') }];
  rows.push({
    row: `chunk to ${SUBSCRIBERS} subscribers p99`,
    unit: 'ms',
    better: 'lower',
    ...paced,
    limit: atMost(LIMIT_MS),
  });
  if (cpuMs(bench.server.pid) !== null) {
    rows.push({ row: `CPU per turn, ${SUBSCRIBERS} subscribers`, unit: 'ms', better: 'lower', ...of('cpu') });
  }
  return rows;
}

async function figures(process, turns, job) {
  const before = cpuMs(process.pid);
  const walls = [];
  for (let i = 0; i < turns; i++) walls.push(await timed(job));
  return { wall: median(walls), cpu: (cpuMs(process.pid) - before) / turns };
}
