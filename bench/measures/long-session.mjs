// What a turn costs as its session grows: the time of turn 200 beside turn 10 of the same session, and the processor time
// of turn 2,000 beside that of the tenth turns of other sessions (the column `relay`).
import { load, marker, openSession, timed } from '../client.mjs';
import { ratioAtMost } from '../limits.mjs';
import { cpuMs } from '../processes.mjs';
import { median } from '../stats.mjs';

export const name = 'long-session';

const EARLY = 10;
const LATE = { turn: 200, ratio: 1.15 };
/** Turns around each that count for it. */
const AROUND = 5;
/** Sessions that are grown side by side, and the turns each has had before it is measured. */
const GROWN = { sessions: 4, turns: 2000, ratio: 1.2 };
/** Turns a round of each side. */
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
      for (let i = 0; i < LATE.turn + AROUND; i++) all.push(await timed(() => session.turn(say)));
      session.close();
      const around = (turn) => median(all.slice(turn - AROUND - 1, turn + AROUND));
      return { early: around(EARLY), late: around(LATE.turn) };
    },
  });
  const early = rounds.metis.map((r) => r.early);
  const late = rounds.metis.map((r) => r.late);
  const beside = { row: `turn ${LATE.turn} of a session, beside its turn ${EARLY}`, limit: ratioAtMost(LATE.ratio) };
  return [
    { row: `turn ${EARLY} of a session`, unit: 'ms', better: 'lower', metis: early, relay: rounds.relay },
    { ...beside, unit: 'ms', better: 'lower', metis: late, relay: early },
    ...(cpuMs(bench.server.pid) === null ? [] : [await growth(bench, say)]),
  ];
}

/** Both sides are this server: turns of grown sessions, and tenth turns of new ones. */
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
      const young = await several(COUNTED);
      await load(GROWN.sessions, COUNTED, async (_, n) => {
        for (let turn = 1; turn < EARLY; turn++) await young[n].turn(say);
      });
      const cost = await counted((_, n) => young[n]);
      for (const session of young) session.close();
      return cost;
    },
    metis: () => counted((lane) => grown[lane]),
  });
  for (const session of grown) session.close();
  const row = `CPU of turn ${turns}, beside turn ${EARLY}`;
  return { row, unit: 'ms', better: 'lower', ...rounds, limit: ratioAtMost(GROWN.ratio) };
}
