// Whether a turn gets dearer as its session grows: turn 200 beside turn 10 of the same session.
import { marker, openSession, timed } from '../client.mjs';
import { median } from '../stats.mjs';

export const name = 'long-session';

const EARLY = 10;
const LATE = 200;
/** Turns around each that count for it. */
const AROUND = 5;

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
  ];
}
