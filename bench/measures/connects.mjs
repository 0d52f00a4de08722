// Two thousand clients that connect in the same moment and ask one thing each: how many connections the system had to
// turn away because nobody took them, and how long the slowest client waited for its answer.
import fs from 'node:fs';
import net from 'node:net';
import { timed } from '../client.mjs';
import { atMost } from '../limits.mjs';
import { percentile } from '../stats.mjs';

export const name = 'connects';

const CLIENTS = 2000;
const LIMIT_MS = 30_000;

export async function measure(bench) {
  const rounds = await bench.rounds({
    relay: () => crowd(bench.bare.url, 'POST /relay', JSON.stringify({ content: '' })),
    metis: () => crowd(bench.server.url, 'GET /healthz', ''),
  });
  const of = (figure) => ({ metis: rounds.metis.map((r) => r[figure]), relay: rounds.relay.map((r) => r[figure]) });
  const rows = [{ row: `answer p99, ${CLIENTS} connects at once`, unit: 'ms', better: 'lower', ...of('p99') }];
  if (listenOverflows() !== null) {
    rows.push({
      row: `listen overflows, ${CLIENTS} connects at once`,
      unit: '',
      better: 'lower',
      ...of('overflows'),
      limit: atMost(0),
    });
  }
  return rows;
}

async function crowd(origin, target, body) {
  const before = listenOverflows();
  const took = await Promise.all(Array.from({ length: CLIENTS }, () => timed(() => ask(origin, target, body))));
  return { p99: percentile(took, 99), overflows: listenOverflows() - before };
}

/** A connection of its own, one request, the first bytes of the answer. */
function ask(origin, target, body) {
  const { hostname, port, host } = new URL(origin);
  return new Promise((resolve, reject) => {
    const socket = net.connect(Number(port), hostname);
    socket.setTimeout(LIMIT_MS, () => socket.destroy(new Error('no answer in time')));
    socket.on('error', reject);
    socket.on('close', () => reject(new Error('the connection was closed')));
    socket.once('data', () => {
      resolve();
      socket.destroy();
    });
    socket.write(
      `${target} HTTP/1.1\r\nHost: ${host}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
    );
  });
}

/** Connections the kernel refused since its start because a queue was full; null where it does not say. */
function listenOverflows() {
  try {
    const [names, values] = fs
      .readFileSync('/proc/net/netstat', 'utf8')
      .split('\n')
      .filter((line) => line.startsWith('TcpExt:'))
      .map((line) => line.split(' '));
    return Number(values[names.indexOf('ListenOverflows')]);
  } catch {
    return null;
  }
}
