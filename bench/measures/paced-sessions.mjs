// Sessions as real models make them: 200 ms to the first piece of an answer, then one every 50 ms, and the next turn at
// once. How many of them one process carries before its streams lag, beside the bare relay with as many requests. Answers
// are of 100 pieces or of 20: with these, turns begin and end more than four times as often.
import { createHash, randomBytes } from 'node:crypto';
import net from 'node:net';
import { performance } from 'node:perf_hooks';
import { delays, marker } from '../client.mjs';
import { atLeast, atMost, ratioAtMost } from '../limits.mjs';
import { cpuMs, residentMib } from '../processes.mjs';
import { percentile } from '../stats.mjs';

export const name = 'paced-sessions';

const ANSWERS = [
  {
    chunks: 100,
    words: '',
    crowds: [
      { sessions: 128, limits: { cpu: ratioAtMost(1.5) } },
      { sessions: 512, limits: { share: atLeast(97), chunkP99: atMost(50), submissionP99: atMost(50) } },
      { sessions: 1000, limits: { share: atLeast(90), chunkP99: atMost(100), resident: atMost(350) } },
    ],
  },
  {
    chunks: 20,
    words: ' of 20 pieces a turn',
    crowds: [
      { sessions: 128, limits: {} },
      { sessions: 512, limits: { share: atLeast(97), chunkP99: atMost(50) } },
      { sessions: 1000, limits: { share: atLeast(90) } },
    ],
  },
];
const WINDOW_MS = 10_300;
const QUICK_WINDOW_MS = 1300;
const MOST_ROUNDS = 3;
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export async function measure(bench) {
  const rows = [];
  for (const { chunks, words, crowds } of ANSWERS) {
    const pace = { chunks, rate: 20, first: 200 };
    for (const { sessions, limits } of bench.quick ? crowds.slice(0, 1) : crowds) {
      bench.note(`${sessions} paced sessions${words}`);
      const rounds = await bench.rounds(
        {
          relay: () => crowd(bench, bench.bare, { sessions, pace }, relayLane(bench, marker(pace))),
          metis: () => crowd(bench, bench.server, { sessions, pace }, sessionLane(bench, marker(pace))),
        },
        { most: MOST_ROUNDS },
      );
      const beside = `${sessions} sessions${words}, beside node:http`;
      const row = (name, unit, figure) => ({
        row: `${name}, ${beside}`,
        unit,
        better: figure === 'share' ? 'higher' : 'lower',
        metis: rounds.metis.map((r) => r[figure]),
        relay: rounds.relay.map((r) => r[figure]),
        limit: limits[figure],
      });
      rows.push(
        row('share of the ideal', '%', 'share'),
        row('chunk p50', 'ms', 'chunkP50'),
        row('chunk p99', 'ms', 'chunkP99'),
        row('submission p99', 'ms', 'submissionP99'),
      );
      if (cpuMs(bench.server.pid) === null) continue;
      rows.push(row('CPU per chunk', 'us', 'cpu'), row('resident', 'MiB', 'resident'));
    }
  }
  return rows;
}

/**
 * Lanes at work for a while, and the figures of a window in which all of them are. They start one after the other within
 * the time of a turn, so that their pieces do not come all at once.
 * @param open makes a lane: `{turn, close}`; `turn(seen)` resolves with the milliseconds its submission took
 */
async function crowd(bench, process, { sessions, pace }, open) {
  const turnMs = pace.first + ((pace.chunks - 1) * 1000) / pace.rate;
  const seen = { counting: false, chunks: [], submissions: [] };
  const all = await Promise.all(Array.from({ length: sessions }, open));
  let over = false;
  const working = all.map(async (lane, i) => {
    await pause((turnMs * i) / sessions);
    while (!over) {
      const took = await lane.turn((delay) => {
        if (seen.counting) seen.chunks.push(delay);
      });
      if (seen.counting) seen.submissions.push(took);
    }
    lane.close();
  });
  // A lane that fails ends the measure at once.
  const failed = Promise.all(working).then(() => new Promise(() => {}));
  const window = bench.quick ? QUICK_WINDOW_MS : WINDOW_MS;
  await Promise.race([failed, pause(turnMs + 1000)]);
  seen.counting = true;
  const cpu = cpuMs(process.pid);
  const began = performance.now();
  await Promise.race([failed, pause(window)]);
  seen.counting = false;
  const ms = performance.now() - began;
  const used = cpuMs(process.pid) - cpu;
  const resident = residentMib(process.pid);
  over = true;
  await Promise.all(working);
  const ideal = (sessions * pace.chunks * ms) / turnMs;
  return {
    share: (seen.chunks.length / ideal) * 100,
    chunkP50: percentile(seen.chunks, 50) / 1e6,
    chunkP99: percentile(seen.chunks, 99) / 1e6,
    submissionP99: percentile(seen.submissions, 99) ?? 0,
    cpu: (used * 1000) / seen.chunks.length,
    resident,
  };
}

/** One request a turn; it is taken when the head of its answer is here. */
function relayLane({ bareClient }, say) {
  return () => ({
    async turn(onChunk) {
      const began = performance.now();
      let head = null;
      await bareClient.relay(
        say,
        (data) => {
          for (const delay of delays(data)) onChunk(delay);
        },
        () => {
          head = performance.now() - began;
        },
      );
      return head;
    },
    close() {},
  });
}

function sessionLane({ client, workspace, model }, content) {
  return async () => {
    const session = await client.post('/sessions', { workspace_path: workspace, initial_active_model: model }, 201);
    const stream = await lightStream(client.origin, session.id);
    return {
      async turn(onChunk) {
        const ended = stream.turn(onChunk);
        const began = performance.now();
        await client.post(`/sessions/${session.id}/turns`, { content }, 202);
        const took = performance.now() - began;
        await ended;
        return took;
      },
      close: stream.close,
    };
  };
}

/**
 * A subscriber that takes as little as possible of the machine it shares with what is measured: it reads the frames'
 * lengths and looks for a stamp or the turn's end in them.
 */
async function lightStream(origin, sessionId) {
  const { hostname, port, host } = new URL(origin);
  const key = randomBytes(16).toString('base64');
  const socket = net.connect(Number(port), hostname);
  socket.setNoDelay();
  let waiting = null;
  let rest = Buffer.alloc(0);
  const fail = (error) => waiting?.reject(error);
  socket.on('error', fail);
  socket.on('close', () => fail(new Error('the stream was closed')));
  socket.write(
    `GET /sessions/${sessionId}/stream?preset=chat HTTP/1.1\r\nHost: ${host}\r\nConnection: Upgrade\r\n` +
      `Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ${key}\r\n\r\n`,
  );
  const head = (data) => {
    rest = Buffer.concat([rest, data]);
    const end = rest.indexOf('\r\n\r\n');
    if (end < 0) return;
    const accept = createHash('sha1').update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest('base64');
    if (!rest.toString('latin1', 0, end).includes(accept)) waiting.reject(new Error(rest.toString('latin1', 0, 500)));
    const first = rest.subarray(end + 4);
    rest = Buffer.alloc(0);
    socket.off('data', head);
    socket.on('data', frames);
    frames(first);
  };
  function frames(data) {
    let bytes = rest.length === 0 ? data : Buffer.concat([rest, data]);
    for (;;) {
      if (bytes.length < 4) break;
      const short = bytes[1];
      const from = short < 126 ? 2 : short === 126 ? 4 : 10;
      if (bytes.length < from) break;
      const length = short < 126 ? short : short === 126 ? bytes.readUInt16BE(2) : Number(bytes.readBigUInt64BE(2));
      if (bytes.length < from + length) break;
      frame(bytes.latin1Slice(from, from + length));
      bytes = bytes.subarray(from + length);
    }
    rest = bytes;
  }
  function frame(text) {
    const at = text.indexOf('@');
    if (text.includes('"text.delta"') && at >= 0) {
      // More than one where deltas come joined: each has its own stamp.
      for (const delay of delays(text)) waiting?.onChunk?.(delay);
    } else if (text.includes('"type":"turn.completed"') || text.includes('"type":"subscribe_ack"')) waiting?.resolve();
    else if (text.includes('"type":"turn.failed"')) fail(new Error(text.slice(0, 500)));
  }
  socket.on('data', head);
  await new Promise((resolve, reject) => {
    waiting = { resolve, reject };
  });
  return {
    turn: (onChunk) =>
      new Promise((resolve, reject) => {
        waiting = { resolve, reject, onChunk };
      }),
    close() {
      waiting = null;
      socket.destroy();
    },
  };
}
