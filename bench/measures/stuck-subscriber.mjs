// What subscribers that stop reading cost the others: the same streams beside as many stuck sockets, and without them
// (the column `relay`).
import { once } from 'node:events';
import { WebSocket } from 'ws';
import { marker, openSession } from '../client.mjs';
import { ratioAtMost } from '../limits.mjs';
import { figures } from './chunk-latency.mjs';

export const name = 'stuck-subscriber';

const STREAMS = 16;
const STUCK = 4;
const MOST_TIMES_AS_LONG = 2;
const SAY = { chunks: 400, rate: 200 };

export async function measure(bench) {
  const rounds = await bench.rounds({
    relay: () => streamed(bench, 0),
    metis: () => streamed(bench, STUCK),
  });
  const row = { row: `chunk p99, ${STUCK} of ${STUCK + 1} subscribers stuck`, unit: 'ms', better: 'lower' };
  return [{ ...row, ...rounds, limit: ratioAtMost(MOST_TIMES_AS_LONG) }];
}

async function streamed(bench, stuck) {
  const all = [];
  const say = marker(SAY);
  const sessions = await Promise.all(
    Array.from({ length: STREAMS }, () =>
      openSession(bench.client, { workspace: bench.workspace, model: bench.model }),
    ),
  );
  const asleep = await Promise.all(
    sessions.flatMap(({ id }) => Array.from({ length: stuck }, () => fallAsleep(bench.client.origin, id))),
  );
  for (const { subscriber } of sessions) subscriber.watchDeltas((took) => all.push(took));
  await Promise.all(sessions.map((session) => session.turn(say)));
  for (const session of sessions) session.close();
  for (const socket of asleep) socket.terminate();
  return figures(all).p99;
}

/** Subscribes to everything and reads no further byte. */
async function fallAsleep(origin, id) {
  const socket = new WebSocket(`${origin.replace('http', 'ws')}/sessions/${id}/stream?snapshot=true`);
  socket.on('error', () => {});
  await once(socket, 'open');
  socket.pause();
  return socket;
}
