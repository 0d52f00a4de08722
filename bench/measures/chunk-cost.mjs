// Processor time of one piece of a long stream, beside what parsing the same bytes costs at least.
import { createParser } from 'eventsource-parser';
import { marker, openSession } from '../client.mjs';
import { atMost } from '../limits.mjs';
import { cpuMs } from '../processes.mjs';

export const name = 'chunk-cost';

const CHUNKS = 2000;
const TURNS = 10;
const TURNS_PER_SESSION = 5;
const ABOVE_PARSER_US = 15;

export async function measure(bench) {
  if (cpuMs(bench.server.pid) === null) return [];
  const turns = bench.quick ? TURNS / 2 : TURNS;
  const say = marker({ chunks: CHUNKS });
  const bytes = await oneAnswer(bench.provider.url, say);
  const perChunk = async (pid, job) => {
    const before = cpuMs(pid);
    for (let i = 0; i < turns; i++) await job(i);
    return ((cpuMs(pid) - before) * 1000) / (turns * CHUNKS);
  };
  const rounds = await bench.rounds({
    relay: () => perChunk(bench.relay.pid, () => bench.relayClient.relay(say)),
    async metis() {
      const sessions = [];
      for (let i = 0; i < turns / TURNS_PER_SESSION; i++) {
        sessions.push(await openSession(bench.client, { workspace: bench.workspace, model: bench.model }));
      }
      const cost = await perChunk(bench.server.pid, (i) => sessions[Math.floor(i / TURNS_PER_SESSION)].turn(say));
      for (const session of sessions) session.close();
      return cost;
    },
  });
  const parser = rounds.metis.map(() => parserCost(bytes, turns));
  const above = rounds.metis.map((cost, i) => cost - parser[i]);
  return [
    { row: `CPU per chunk of ${CHUNKS}`, unit: 'us', better: 'lower', ...rounds },
    {
      row: 'the same above the bare parser',
      unit: 'us',
      better: 'lower',
      metis: above,
      relay: rounds.relay,
      limit: atMost(ABOVE_PARSER_US),
    },
    { row: 'the bare parser by itself', unit: 'us', better: 'lower', metis: parser, relay: rounds.relay },
  ];
}

async function oneAnswer(origin, content) {
  const response = await fetch(`${origin}/v1/messages`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ messages: [{ role: 'user', content }] }),
  });
  return Buffer.from(await response.arrayBuffer());
}

/** Microseconds a chunk for bytes -> events, as a program without anything else would do it. */
function parserCost(bytes, turns) {
  const PIECE = 64 * 1024;
  const before = process.cpuUsage();
  for (let turn = 0; turn < turns; turn++) {
    const decoder = new TextDecoder();
    const parser = createParser({ onEvent: (event) => JSON.parse(event.data) });
    for (let at = 0; at < bytes.length; at += PIECE) {
      parser.feed(decoder.decode(bytes.subarray(at, at + PIECE), { stream: true }));
    }
  }
  const { user, system } = process.cpuUsage(before);
  return (user + system) / (turns * CHUNKS);
}
