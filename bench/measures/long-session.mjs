// Whether a turn gets dearer as its session grows: the time of turn 200 beside turn 10 of the same session, and the
// processor time of turn 2,000 beside that of a new session's first (the column `relay`).
import { load, marker, openSession, timed } from '../client.mjs';
import { cpuMs } from '../processes.mjs';
import { median } from '../stats.mjs';

export const name = 'long-session';

const EARLY = 10;
const LATE = 200;
/** Turns around each that count for it. */
const AROUND = 5;
/** Sessions that are grown side by side, and the turns each has had before it is measured. */
const GROWN = { sessions: 4, turns: 2000 };
/** Turns a round of each side: enough for a clock that counts in steps of 10 ms. */
const COUNTED = 48;

export async function measure(bench) {
  const say = marker({ chunks: 20 });
  const rounds = await bench.rounds({
    relay: async () => {
      const all = [];
      for (let i = 0; i < 4 * AROUND; i++) all.push(await timed(() => bench.relayClient.relay(say)));
      return median(all);
    },
    metis: async () => {
      const session = await openSession(bench.client, { workspace: bench.workspace, model: bench.model });
      const all = [];
      for (let i = 0; i < LATE + AROUND; i++) all.push(await timed(() => session.turn(say)));
      session.close();
      const around = (turn) => median(all.slice(turn - AROUND - 1, turn + AROUND));
      return { early: around(EARLY), late: around(LATE) };
    },
  });
  const of = (figure) => ({ metis: rounds.metis.map((r) => r[figure]), relay: rounds.relay });
  return [
    { row: `turn ${EARLY} of a session`, unit: 'ms', better: 'lower', ...of('early') },
    { row: `turn ${LATE} of a session`, unit: 'ms', better: 'lower', ...of('late') },
    ...(cpuMs(bench.server.pid) === null ? [] : [await growth(bench, say)]),
  ];
}

/** Both sides are this server: turns of grown sessions, and first turns of new ones. */
async function growth(bench, say) {
  const turns = bench.quick ? GROWN.turns / 10 : GROWN.turns;
  const open = () => openSession(bench.client, { workspace: bench.workspace, model: bench.model });
  const several = (count) => Promise.all(Array.from({ length: count }, open));
  bench.note(`growing sessions to ${turns} turns`);
  const grown = await several(GROWN.sessions);
  await load(GROWN.sessions, GROWN.sessions * turns, (lane) => grown[lane].turn(say));
  const counted = async (sessionOf) => {
    const before = cpuMs(bench.server.pid);
    await load(GROWN.sessions, COUNTED, (lane, n) => sessionOf(lane, n).turn(say));
    return (cpuMs(bench.server.pid) - before) / COUNTED;
  };
  const rounds = await bench.rounds({
    async relay() {
      const fresh = await several(COUNTED);
      const cost = await counted((_, n) => fresh[n]);
      for (const session of fresh) session.close();
      return cost;
    },
    metis: () => counted((lane) => grown[lane]),
  });
  for (const session of grown) session.close();
  return { row: `CPU of turn ${turns}, beside a new session's`, unit: 'ms', better: 'lower', ...rounds };
}
