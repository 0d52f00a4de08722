// The load: requests over kept-open connections and raw WebSocket subscribers, parsing as little as possible.
import http from 'node:http';
import { performance } from 'node:perf_hooks';
import { WebSocket } from 'ws';

const REQUEST_LIMIT_MS = 60_000;
const TURN_LIMIT_MS = 60_000;
const ENDS = ['"type":"turn.completed"', '"type":"turn.failed"', '"type":"turn.cancelled"'].map((t) => Buffer.from(t));
const TEXT_DELTA = Buffer.from('"type":"text.delta"');
const STAMP = /@(\d+)@/g;

/** The text that makes the fake provider answer as wished, e.g. `marker({ chunks: 20 })`. */
export function marker(asked) {
  const pairs = Object.entries(asked).map(([name, value]) => `${name}=${value}`);
  return `Say something. [[bench ${pairs.join(' ')}]]`;
}

/** A client of one server; every request past the first uses an open connection. */
export function createClient(origin) {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 4096, scheduling: 'fifo' });

  /** Resolves with status and text; `onData` sees the pieces as they come, `onHead` is called when the head is here. */
  function request(method, path, body, { onData = null, onHead = null } = {}) {
    return new Promise((resolve, reject) => {
      const text = body === undefined ? null : JSON.stringify(body);
      const headers =
        text === null ? {} : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) };
      const sent = http.request(origin + path, { method, headers, agent, timeout: REQUEST_LIMIT_MS }, (response) => {
        const pieces = [];
        onHead?.();
        response.on('data', (piece) => {
          if (onData) onData(piece);
          else pieces.push(piece);
        });
        response.on('error', reject);
        response.on('end', () =>
          resolve({ status: response.statusCode, text: Buffer.concat(pieces).toString('utf8') }),
        );
      });
      sent.on('timeout', () => sent.destroy(new Error(`${method} ${path}: no answer in ${REQUEST_LIMIT_MS} ms`)));
      sent.on('error', reject);
      sent.end(text);
    });
  }

  async function expect(status, method, path, body) {
    const answer = await request(method, path, body);
    if (answer.status !== status) throw new Error(`${method} ${path}: ${answer.status} ${answer.text.slice(0, 300)}`);
    return answer.text === '' ? null : JSON.parse(answer.text);
  }

  return {
    origin,
    request,
    get: (path) => expect(200, 'GET', path),
    post: (path, body, status = 200) => expect(status, 'POST', path, body),
    /** Forwarded completion, read to its end. */
    relay: (content, onData = () => {}, onHead = null) => request('POST', '/relay', { content }, { onData, onHead }),
    close: () => agent.destroy(),
  };
}

/** Milliseconds that `work` took. */
export async function timed(work) {
  const began = performance.now();
  await work();
  return performance.now() - began;
}

/** A new session with one subscriber that shows what a chat window shows. */
export async function openSession(client, { workspace, model }) {
  const session = await client.post('/sessions', { workspace_path: workspace, initial_active_model: model }, 201);
  const subscriber = await subscribe(client.origin, session.id);
  return {
    id: session.id,
    subscriber,
    /** Submits and resolves when the answer has come and the subscriber has seen the turn's end. */
    async turn(content) {
      const ended = subscriber.turnEnd();
      // Whichever fails first is what is reported.
      await Promise.all([client.post(`/sessions/${session.id}/turns`, { content }, 202), ended]);
    },
    close: () => subscriber.close(),
  };
}

/** A WebSocket on one session, ready when its acknowledgement has come. */
export function subscribe(origin, sessionId) {
  const socket = new WebSocket(`${origin.replace('http', 'ws')}/sessions/${sessionId}/stream?preset=chat`, {
    perMessageDeflate: false,
    skipUTF8Validation: true,
  });
  let waiting = null;
  let onDelta = null;
  const fail = (error) => {
    waiting?.reject(error);
    waiting = null;
  };
  const subscriber = {
    /** Resolves with the next `turn.completed` of the session, rejects on another end. */
    turnEnd() {
      return new Promise((resolve, reject) => {
        const timer = setTimeout(() => fail(new Error('a turn did not end in time')), TURN_LIMIT_MS);
        const settle = (how) => (value) => {
          clearTimeout(timer);
          how(value);
        };
        waiting = { resolve: settle(resolve), reject: settle(reject) };
      });
    },
    /** Called with the nanoseconds each stamped delta took from the provider to here. */
    watchDeltas(callback) {
      onDelta = callback;
    },
    close: () => socket.terminate(),
  };
  return new Promise((resolve, reject) => {
    socket.on('error', (error) => {
      reject(error);
      fail(error);
    });
    socket.on('close', (code, reason) => {
      const error = new Error(`the stream was closed: ${code} ${reason}`);
      reject(error);
      fail(error);
    });
    socket.on('message', (data) => {
      if (onDelta !== null && data.includes(TEXT_DELTA)) {
        onDelta(delay(data));
        return;
      }
      const end = ENDS.findIndex((type) => data.includes(type));
      if (end === 0) {
        waiting?.resolve();
        waiting = null;
      } else if (end > 0) fail(new Error(`the turn did not complete: ${data.toString('utf8').slice(0, 500)}`));
      else if (data.includes('"type":"subscribe_ack"')) resolve(subscriber);
    });
  });
}

function delay(data) {
  return delays(data)[0] ?? 0;
}

/** Nanoseconds since each stamp in the bytes was written. */
export function delays(data) {
  const now = process.hrtime.bigint();
  return [...data.toString('latin1').matchAll(STAMP)].map((match) => Number(now - BigInt(match[1])));
}

/**
 * Runs `count` jobs in `lanes` at once: `job(lane, n)` with n counting up over all lanes.
 * Resolves with the jobs' milliseconds and the whole time's.
 */
export async function load(lanes, count, job) {
  const latencies = [];
  let started = 0;
  const began = performance.now();
  await Promise.all(
    Array.from({ length: lanes }, async (_, lane) => {
      while (started < count) {
        const n = started++;
        latencies.push(await timed(() => job(lane, n)));
      }
    }),
  );
  return { latencies, ms: performance.now() - began };
}
