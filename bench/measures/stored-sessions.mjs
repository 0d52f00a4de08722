// What a full database costs a server: time to start, and memory, with few and with many stored sessions.
import path from 'node:path';
import { performance } from 'node:perf_hooks';
import { setTimeout } from 'node:timers/promises';
import { createClient, marker, openSession, timed } from '../client.mjs';
import { atMost } from '../limits.mjs';
import { residentMib, startRelay, startServer } from '../processes.mjs';
import { seed } from '../seed.mjs';
import { median } from '../stats.mjs';

export const name = 'stored-sessions';

const EVENTS = 10;
const LISTS = 20;
const LIST_MS = 5;
const FIRST_TURN_MS = 250;
const IDLE_MIB = 80;
/** After so long without a request the garbage of start and turn is collected. */
const IDLE_MS = 12_000;

export async function measure(bench) {
  const idleMs = bench.quick ? 0 : IDLE_MS;
  const sizes = bench.quick ? [1000, 10_000] : [1000, 100_000];
  const rows = [];
  for (const sessions of sizes) {
    const data = path.join(bench.folder, `stored-${sessions}`);
    bench.note(`storing ${sessions} sessions`);
    await seed(bench, data, { sessions, events: EVENTS });
    const rounds = await bench.rounds({
      relay: async () =>
        figures(await startRelay(bench.folder, bench.provider), idleMs, (client) => client.relay(marker({}))),
      metis: async () =>
        figures(await startServer(data, bench.provider), idleMs, async (client) => {
          const session = await openSession(client, bench);
          await session.turn(marker({}));
          session.close();
          return () => client.get('/sessions?limit=50');
        }),
    });
    const of = (figure) => ({ metis: rounds.metis.map((r) => r[figure]), relay: rounds.relay.map((r) => r[figure]) });
    const stored = `${sessions.toLocaleString('en')} sessions, ${(sessions * EVENTS).toLocaleString('en')} events`;
    rows.push({
      row: `newest 50 of ${sessions.toLocaleString('en')} sessions, beside ${LIST_MS} ms`,
      unit: 'ms',
      better: 'lower',
      metis: of('list').metis,
      relay: [LIST_MS],
      limit: atMost(LIST_MS),
    });
    rows.push({ row: `start, ${stored}`, unit: 'ms', better: 'lower', ...of('start') });
    rows.push({
      row: `first turn done, ${sessions.toLocaleString('en')} sessions`,
      unit: 'ms',
      better: 'lower',
      ...of('first'),
      limit: atMost(FIRST_TURN_MS),
    });
    if (rounds.metis[0].memory !== null) {
      rows.push(
        { row: `memory after a turn, ${stored}`, unit: 'MiB', better: 'lower', ...of('memory') },
        { row: `memory idle, ${stored}`, unit: 'MiB', better: 'lower', ...of('idle'), limit: atMost(IDLE_MIB) },
      );
    }
  }
  return rows;
}

/** Milliseconds until it listens and until a first turn has ended; resident memory after that and a list, and when idle. */
async function figures(process, idleMs, work) {
  const client = createClient(process.url);
  try {
    const began = performance.now();
    const more = await work(client);
    const first = process.startMs + performance.now() - began;
    if (typeof more === 'function') await more();
    const memory = residentMib(process.pid);
    await setTimeout(idleMs);
    const idle = residentMib(process.pid);
    const lists = [];
    if (typeof more === 'function') for (let i = 0; i < LISTS; i++) lists.push(await timed(more));
    return { start: process.startMs, first, list: median(lists), memory, idle };
  } finally {
    client.close();
    await process.stop();
  }
}
