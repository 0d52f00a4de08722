// What the gateway adds to the first byte of an answer over the bare relay, and what 200 of its streams hold (19 §7).
import http from 'node:http';
import path from 'node:path';
import { performance } from 'node:perf_hooks';
import { marker } from '../client.mjs';
import { aboveAtMost, atMost } from '../limits.mjs';
import { residentMib, startServer } from '../processes.mjs';
import { percentile } from '../stats.mjs';

export const name = 'gateway';

const CALLS = 300;
const STREAMS = 200;
const HELD_MIB = 256;
const MiB = 1024 * 1024;

export async function measure(bench) {
  const rows = [];
  for (const [label, bytes, calls, limits] of [
    ['120 kB', 120_000, bench.quick ? 100 : CALLS, { p50: 1, p95: 3 }],
    ['1.6 MB', 1_600_000, bench.quick ? 20 : 60, { p50: 10 }],
  ]) {
    const body = bodyOf(bytes, { chunks: 1 });
    const side = (origin) => async () => {
      const agent = new http.Agent({ keepAlive: true });
      for (let i = 0; i < 20; i++) await firstByte(agent, origin, body);
      const all = [];
      for (let i = 0; i < calls; i++) all.push(await firstByte(agent, origin, body));
      agent.destroy();
      return { p50: percentile(all, 50), p95: percentile(all, 95) };
    };
    const rounds = await bench.rounds({ relay: side(bench.bare.url), metis: side(bench.server.url) });
    for (const [p, ms] of Object.entries(limits))
      rows.push({
        row: `gateway: first byte at ${label}, ${p}`,
        unit: 'ms',
        better: 'lower',
        metis: rounds.metis.map((round) => round[p]),
        relay: rounds.relay.map((round) => round[p]),
        limit: aboveAtMost(ms),
      });
  }
  rows.push(await heldStreams(bench));
  return rows;
}

/** Resident memory of a server of its own while as many answers stream, each asked for by 120 kB. */
async function heldStreams(bench) {
  const server = await startServer(path.join(bench.folder, 'gateway'), bench.provider);
  const agent = new http.Agent({ keepAlive: true, maxSockets: STREAMS });
  const body = bodyOf(120_000, { chunks: 60, rate: 20 });
  const most = { mib: 0 };
  const look = setInterval(() => {
    most.mib = Math.max(most.mib, residentMib(server.pid) ?? 0);
  }, 50);
  await Promise.all(Array.from({ length: STREAMS }, () => firstByte(agent, server.url, body)));
  clearInterval(look);
  agent.destroy();
  await server.stop();
  return {
    row: `gateway: resident with ${STREAMS} streams, beside ${HELD_MIB} MiB`,
    unit: 'MiB',
    better: 'lower',
    metis: [most.mib],
    relay: [HELD_MIB],
    limit: atMost(HELD_MIB),
  };
}

function bodyOf(bytes, asked) {
  const said = marker(asked);
  const rest = { model: 'messages:planner', max_tokens: 1000, stream: true };
  const messages = (text) => [{ role: 'user', content: `${text} ${said}` }];
  const filler = 'A sentence of a file, with "quotes" and\na new line. '.repeat(
    Math.ceil(Math.min(bytes, 4 * MiB) / 55),
  );
  return Buffer.from(JSON.stringify({ ...rest, messages: messages(filler.slice(0, bytes - 200)) }));
}

/** Milliseconds from the request to the first byte of its answer; the answer is read to its end. */
function firstByte(agent, origin, body) {
  return new Promise((resolve, reject) => {
    const began = performance.now();
    let first = null;
    const headers = { 'content-type': 'application/json', 'content-length': body.length };
    const sent = http.request(`${origin}/v1/messages`, { method: 'POST', agent, headers }, (response) => {
      response.on('data', () => {
        first ??= performance.now() - began;
      });
      response.once('end', () =>
        response.statusCode === 200 ? resolve(first) : reject(new Error(`${response.statusCode}`)),
      );
      response.once('error', reject);
    });
    sent.once('error', reject);
    sent.end(body);
  });
}
