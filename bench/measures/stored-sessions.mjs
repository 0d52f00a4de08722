// What a full database costs a server: time to start, and memory, with few and with many stored sessions.
import path from 'node:path';
import { performance } from 'node:perf_hooks';
import { createClient, marker, openSession } from '../client.mjs';
import { residentMib, startRelay, startServer } from '../processes.mjs';
import { seed } from '../seed.mjs';

export const name = 'stored-sessions';

const EVENTS = 10;

export async function measure(bench) {
  const sizes = bench.quick ? [1000, 10_000] : [1000, 100_000];
  const rows = [];
  for (const sessions of sizes) {
    const data = path.join(bench.folder, `stored-${sessions}`);
    bench.note(`storing ${sessions} sessions`);
    await seed(bench, data, { sessions, events: EVENTS });
    const rounds = await bench.rounds({
      relay: async () => figures(await startRelay(bench.folder, bench.provider), (client) => client.relay(marker({}))),
      metis: async () =>
        figures(await startServer(data, bench.provider), async (client) => {
          const session = await openSession(client, bench);
          await session.turn(marker({}));
          session.close();
          return () => client.get('/sessions?limit=50');
        }),
    });
    const of = (figure) => ({ metis: rounds.metis.map((r) => r[figure]), relay: rounds.relay.map((r) => r[figure]) });
    const stored = `${sessions.toLocaleString('en')} sessions, ${(sessions * EVENTS).toLocaleString('en')} events`;
    rows.push({ row: `start, ${stored}`, unit: 'ms', better: 'lower', ...of('start') });
    rows.push({
      row: `first turn done, ${sessions.toLocaleString('en')} sessions`,
      unit: 'ms',
      better: 'lower',
      ...of('first'),
    });
    if (rounds.metis[0].memory !== null) {
      rows.push({ row: `memory, ${stored}`, unit: 'MiB', better: 'lower', ...of('memory') });
    }
  }
  return rows;
}

/** Milliseconds until it listens and until a first turn has ended, and resident memory after that and a list. */
async function figures(process, work) {
  const client = createClient(process.url);
  try {
    const began = performance.now();
    const more = await work(client);
    const first = process.startMs + performance.now() - began;
    if (typeof more === 'function') await more();
    return { start: process.startMs, first, memory: residentMib(process.pid) };
  } finally {
    client.close();
    await process.stop();
  }
}
