// How long a piece of text takes from the provider to the subscriber, with 16 streams of 200 pieces a second.
// The provider writes the time of sending into each piece; all processes share one monotonic clock.
import { delays, marker, openSession } from '../client.mjs';
import { atMost } from '../limits.mjs';
import { percentile } from '../stats.mjs';

export const name = 'chunk-latency';

const STREAMS = 16;
const RATE = 200;
const SECONDS = 2;
const LIMIT_MS = 5;

export async function measure(bench) {
  const say = marker({ chunks: RATE * (bench.quick ? 1 : SECONDS), rate: RATE });
  const each = (work) => Promise.all(Array.from({ length: STREAMS }, work));
  const rounds = await bench.rounds({
    async relay() {
      const all = [];
      await each(() => bench.relayClient.relay(say, (data) => all.push(...delays(data))));
      return figures(all);
    },
    metis: async () => figures(await streamed(bench, bench.client, say)),
  });
  const of = (figure) => ({ metis: rounds.metis.map((r) => r[figure]), relay: rounds.relay.map((r) => r[figure]) });
  return [
    { row: `chunk to subscriber p50, ${STREAMS * RATE}/s`, unit: 'ms', better: 'lower', ...of('p50') },
    {
      row: `chunk to subscriber p99, ${STREAMS * RATE}/s`,
      unit: 'ms',
      better: 'lower',
      ...of('p99'),
      limit: atMost(LIMIT_MS),
    },
  ];
}

/** Nanoseconds that each piece took to the subscribers of as many sessions of one server. */
export async function streamed(bench, client, say) {
  const all = [];
  const sessions = await Promise.all(
    Array.from({ length: STREAMS }, () => openSession(client, { workspace: bench.workspace, model: bench.model })),
  );
  for (const { subscriber } of sessions) subscriber.watchDeltas((took) => all.push(took));
  await Promise.all(sessions.map((session) => session.turn(say)));
  for (const session of sessions) session.close();
  return all;
}

export function figures(nanoseconds) {
  return { p50: percentile(nanoseconds, 50) / 1e6, p99: percentile(nanoseconds, 99) / 1e6 };
}
