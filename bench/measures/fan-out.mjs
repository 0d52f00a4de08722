// A planner that hands work to 1, 4 or 8 workers at once and then answers, with an immediate and a slow provider.
// The relay does the same calls by hand: one, the workers' together, one.
import { marker, openSession, timed } from '../client.mjs';
import { median } from '../stats.mjs';

export const name = 'fan-out';

const WORKERS = [1, 4, 8];
const DELAYS = [
  { delay: 0, turns: 10 },
  { delay: 200, turns: 2 },
];

export async function measure(bench) {
  const rows = [];
  for (const { delay, turns } of DELAYS) {
    for (const workers of WORKERS) {
      const count = bench.quick ? Math.ceil(turns / 4) : turns;
      const answer = marker({ chunks: 20, delay });
      const rounds = await bench.rounds({
        relay: () => medianOf(count, () => timed(() => byHand(bench.relayClient, workers, answer))),
        metis: () => medianOf(count, () => oneTurn(bench, marker({ chunks: 20, delay, delegate: workers }))),
      });
      rows.push({
        row: `${workers} worker${workers === 1 ? '' : 's'}, ${delay} ms a call`,
        unit: 'ms',
        better: 'lower',
        ...rounds,
      });
    }
  }
  return rows;
}

async function medianOf(count, once) {
  const all = [];
  for (let i = 0; i < count; i++) all.push(await once());
  return median(all);
}

async function byHand(client, workers, answer) {
  await client.relay(answer);
  await Promise.all(Array.from({ length: workers }, () => client.relay(answer)));
  await client.relay(answer);
}

async function oneTurn(bench, content) {
  const session = await openSession(bench.client, { workspace: bench.workspace, model: bench.model });
  try {
    return await timed(() => session.turn(content));
  } finally {
    session.close();
  }
}
