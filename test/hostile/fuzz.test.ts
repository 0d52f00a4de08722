// Requests and frames made from the OpenAPI document and made worse, against a server process: it answers as documented, and stays as small.
import { once } from 'node:events';
import fs from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import path from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { ROOT, type Started, temporaryHome } from '../app/metis.ts';
import { type Json, startWorld, type World } from '../crash/world.ts';
import { contractFault } from '../support/contract.ts';
import { until } from '../support/until.ts';
import { createFuzz, type FuzzCase, type Known } from './requests.ts';

const CASES = Number(process.env.FUZZ_CASES ?? 600);
const SEED = Number(process.env.FUZZ_SEED ?? 20_260);
const LANES = 8;
/** Cases before the first look at the memory: caches fill, code is compiled. */
const WARM_UP = 0.3;
/** New sessions for the cases to meet, since some of the cases end them. */
const REFRESH = 250;
const ANSWER_LIMIT_MS = 20_000;
const MAX_HEAP_GROWTH_MIB = 12;
const HANDLE_SLACK = 8;

let world: World;
let server: Started;
const folder = temporaryHome();
const probe = path.join(folder.path, 'probe.json');
const agent = new http.Agent({ keepAlive: true, maxSockets: LANES });

beforeAll(async () => {
  const preload = path.join(ROOT, 'bench/soak-probe.mjs');
  world = await startWorld(() => ({ text: 'done' }), {
    env: { NODE_OPTIONS: `--expose-gc --import=${preload}`, SOAK_PROBE: probe },
  });
  server = await world.serve();
});
afterAll(async () => {
  agent.destroy();
  await world?.close();
  folder.remove();
});

/** What the process holds after a collection, with nothing under way. */
async function held(): Promise<{ heapMib: number; sockets: number }> {
  const settled = async () => ((await world.ask('GET', '/healthz')).active_turns === 0 ? true : null);
  await until(settled, 60);
  fs.rmSync(probe, { force: true });
  process.kill(server.child.pid!, 'SIGUSR2');
  await until(() => fs.existsSync(probe));
  const { heapMib, resources } = JSON.parse(fs.readFileSync(probe, 'utf8'));
  return { heapMib, sockets: resources.TCPSocketWrap ?? 0 };
}

async function fresh(): Promise<Known> {
  const sessions = await Promise.all([1, 2, 3].map(() => world.session()));
  const turns = await Promise.all(
    sessions.map(async (session) => ({ session, turn: await world.submit(session, 'go') })),
  );
  const [first] = turns;
  await world.ended(first!.session, first!.turn);
  const { events } = await world.ask('GET', `/sessions/${first!.session}/events`);
  return { workspace: world.workspace, sessions, turns, events: (events as Json[]).map((event) => event.id) };
}

/** Ends and purges everything, so that what is left is the server's own. */
async function clear(): Promise<void> {
  for (;;) {
    const { sessions } = await world.ask('GET', '/sessions?limit=200');
    for (const { id } of sessions as Json[]) await world.ask('DELETE', `/sessions/${id}?purge=true`);
    if (sessions.length === 0) return;
  }
}

/** Null when the answer is as documented. */
function send(one: Extract<FuzzCase, { kind: 'request' }>): Promise<string | null> {
  const { method, target, headers, body } = one;
  return new Promise((resolve, reject) => {
    const { hostname, port } = new URL(world.url);
    // Node's client frames no body of a GET by itself: what follows its head would be another request.
    const length = body === null ? {} : { 'content-length': Buffer.byteLength(body) };
    const request = http.request(
      {
        hostname,
        port,
        method,
        path: target,
        headers: { ...headers, ...length },
        agent,
        signal: AbortSignal.timeout(ANSWER_LIMIT_MS),
      },
      (response) => {
        const { statusCode: status = 0 } = response;
        const type = response.headers['content-type'] ?? '';
        const judge = (text: string) =>
          resolve(
            method === 'HEAD' || method === 'CONNECT' ? null : contractFault({ method, target, status, type, text }),
          );
        // A stream has no end: its head is its answer.
        if (type.startsWith('text/event-stream')) {
          response.destroy();
          return judge('');
        }
        const parts: Buffer[] = [];
        response.on('data', (part) => parts.push(part));
        response.on('end', () => judge(Buffer.concat(parts).toString('utf8')));
        response.on('error', reject);
      },
    );
    request.on('error', reject);
    request.end(body ?? undefined);
  });
}

function sendBytes(bytes: Buffer): Promise<string | null> {
  return new Promise((resolve, reject) => {
    const socket = net.connect({ port: Number(new URL(world.url).port), host: '127.0.0.1', timeout: ANSWER_LIMIT_MS });
    let answer = '';
    socket.on('data', (part) => {
      answer += part.toString('latin1');
    });
    socket.on('error', () => {});
    socket.on('timeout', () => reject(new Error('kept open')));
    socket.on('close', () => {
      const status = Number(/^HTTP\/1\.1 (\d+)/.exec(answer)?.[1] ?? 0);
      resolve(status >= 500 && status !== 503 ? answer.slice(0, 500) : null);
    });
    // What was sent in halves is over with it.
    socket.end(bytes);
  });
}

async function sendFrames({ target, frames }: Extract<FuzzCase, { kind: 'socket' }>): Promise<string | null> {
  const socket = new WebSocket(`${world.url.replace('http', 'ws')}${target}`);
  let code = 0;
  let status = 0;
  socket.on('error', () => {});
  socket.on('unexpected-response', (_request, response) => {
    status = response.statusCode ?? 0;
    response.resume();
    socket.terminate();
  });
  const closed = new Promise<void>((resolve) => {
    socket.once('close', (why) => {
      code = why;
      resolve();
    });
  });
  const opened = new Promise<boolean>((resolve) => {
    socket.once('open', () => resolve(true));
    socket.once('close', () => resolve(false));
  });
  if (await opened) {
    for (const frame of frames) socket.send(frame);
    // The answer to a ping says that every frame before it was read.
    socket.ping();
    await Promise.race([once(socket, 'pong'), closed]);
    socket.close(1000);
    await closed;
  }
  if (status >= 500 && status !== 503) return `${target}: HTTP ${status}`;
  return code === 1011 ? `${target}: closed with 1011` : null;
}

async function deliver(one: FuzzCase): Promise<string | null> {
  if (one.kind === 'bytes') return sendBytes(one.bytes);
  if (one.kind === 'socket') return sendFrames(one);
  try {
    return await send(one);
  } catch (error) {
    // What the parser refuses is answered before anybody knows that HEAD takes no body.
    if (one.method === 'HEAD' && (error as NodeJS.ErrnoException).code?.startsWith('HPE_')) return null;
    // What Node's client will not write goes as bytes.
    if (!/^ERR_(UNESCAPED|INVALID)/.test((error as NodeJS.ErrnoException).code ?? '')) throw error;
    const headers = Object.entries(one.headers).map(([name, value]) => `${name}: ${value}\r\n`);
    return sendBytes(Buffer.from(`${one.method} ${one.target} HTTP/1.1\r\n${headers.join('')}\r\n`));
  }
}

async function run(next: (known: Known) => FuzzCase, count: number, wrong: string[]): Promise<void> {
  for (let done = 0; done < count; done += REFRESH) {
    const known = await fresh();
    let left = Math.min(REFRESH, count - done);
    const lane = async () => {
      while (left-- > 0 && server.child.exitCode === null && server.child.signalCode === null) {
        const one = next(known);
        const label =
          one.kind === 'bytes'
            ? `bytes ${one.bytes.toString('latin1').slice(0, 200)}`
            : JSON.stringify(one).slice(0, 400);
        const fault = await deliver(one).catch((error: unknown) => String(error));
        if (fault !== null) wrong.push(`${fault} <- ${label}`);
      }
    };
    await Promise.all(Array.from({ length: LANES }, lane));
  }
}

// Promise 05.23: requests and frames made worse are answered as documented, never with 500, and leave nothing behind.
it(
  `${CASES} requests and frames are answered as documented, and what they took is given back (FUZZ_SEED=${SEED})`,
  async () => {
    const next = createFuzz(SEED);
    const wrong: string[] = [];
    await run(next, Math.round(CASES * WARM_UP), wrong);
    await clear();
    const before = await held();
    await run(next, Math.round(CASES * (1 - WARM_UP)), wrong);
    expect([server.child.exitCode, server.child.signalCode]).toEqual([null, null]);
    expect(wrong).toEqual([]);
    // A fault that was hidden in an answer stands in the log.
    expect(server.output.stderr.split('\n').filter((line) => line.includes('"level":"error"'))).toEqual([]);
    await clear();
    const after = await until(async () => {
      const now = await held();
      return now.sockets <= before.sockets + HANDLE_SLACK && now;
    });
    console.log(`heap ${before.heapMib.toFixed(1)} -> ${after.heapMib.toFixed(1)} MiB`);
    expect(after.heapMib).toBeLessThan(before.heapMib + MAX_HEAP_GROWTH_MIB);
  },
  60_000 + CASES * 50,
);
