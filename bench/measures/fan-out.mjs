// A planner that hands work to 1, 4 or 8 workers at once and then answers, with an immediate and a slow provider.
// The relay does the same calls by hand: one, the workers' together, one.
// Processor time of eight workers in the background, whose planner waits for all of them, beside eight in the foreground.
import { marker, openSession, timed } from '../client.mjs';
import { atMost, ratioAtMost } from '../limits.mjs';
import { cpuMs } from '../processes.mjs';
import { median } from '../stats.mjs';

export const name = 'fan-out';

const WORKERS = [1, 4, 8];
const DELAYS = [
  { delay: 0, turns: 10, eightMs: 9 },
  { delay: 200, turns: 2, eightMs: 630 },
];

export async function measure(bench) {
  const rows = [];
  for (const { delay, turns, eightMs } of DELAYS) {
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
        ...(workers === 8 && { limit: atMost(eightMs) }),
      });
    }
  }
  // Only this wire can have the planner wait.
  if (cpuMs(bench.server.pid) === null || !bench.model.startsWith('messages:')) return rows;
  const turns = bench.quick ? 5 : 40;
  const asked = { chunks: 20, delegate: 8 };
  // The planner waits in the message that starts its workers, so that both sides make ten model calls, or in its next one.
  for (const [background, calls] of [
    [1, 10],
    [2, 11],
  ]) {
    const rounds = await bench.rounds({
      relay: () => cpuPerTurn(bench, turns, marker(asked)),
      metis: () => cpuPerTurn(bench, turns, marker({ ...asked, background })),
    });
    const row = `CPU of 8 in the background, ${calls} model calls, beside 8 awaited, 10 calls`;
    rows.push({ row, unit: 'ms', better: 'lower', ...rounds, limit: ratioAtMost(1) });
  }
  return rows;
}

async function cpuPerTurn(bench, turns, content) {
  const before = cpuMs(bench.server.pid);
  for (let i = 0; i < turns; i++) await oneTurn(bench, content);
  return (cpuMs(bench.server.pid) - before) / turns;
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
