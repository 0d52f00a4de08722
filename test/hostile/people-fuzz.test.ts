// Requests, frames and bytes made from the OpenAPI document and made worse, with the tokens of others: nothing of a private session is found (23 §1).
import http from 'node:http';
import net from 'node:net';
import { expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { type Someone, startPeople } from '../api/people/world.ts';
import { openDoor } from '../support/http.ts';
import { pause } from '../support/planned-work.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';
import { type Chance, createChance } from './chance.ts';
import { createFuzz, type FuzzCase, type Known } from './requests.ts';

const CASES = Number(process.env.FUZZ_CASES ?? 400);
const SEED = Number(process.env.FUZZ_SEED ?? 20_261);
const MARK = 'the-marked-words';
/** The name that the owner's client gave the private session. */
const REF = 'hidden-ref';
const LANES = 4;

/** Of those that are made, calls of `/mcp` and of the gateway. */
const DOORS = 0.1;
/** For frames and events that come after the first answer. */
const STREAM_MS = 60;
const ANSWER_MS = 20_000;

type RequestCase = Extract<FuzzCase, { kind: 'request' }>;

/** What came back; null where nothing was sent, since Node's client refuses to write the request. */
function send(port: number, { headers: asked }: Someone, one: RequestCase): Promise<string | null> {
  const length = one.body === null ? {} : { 'content-length': Buffer.byteLength(one.body) };
  const headers = { ...one.headers, ...asked, ...length };
  return new Promise((resolve) => {
    try {
      const sent = http
        .request({ port, host: '127.0.0.1', method: one.method, path: one.target, headers, timeout: ANSWER_MS })
        .on('timeout', () => sent.destroy());
      // A connection that breaks after the request went out was an answer too.
      sent.on('error', () => resolve(''));

      sent.on('response', (response) => {
        let text = JSON.stringify(response.headers);
        response.on('data', (part) => {
          text += part;
        });
        response.on('close', () => resolve(text));
        if (response.headers['content-type']?.startsWith('text/event-stream') === true)
          void pause(STREAM_MS).then(() => response.destroy());
      });
      sent.end(one.body ?? undefined);
    } catch {
      resolve(null);
    }
  });
}

/** The bytes of a request, with the token as a header of its own behind the first line. */
function sendBytes(port: number, { token }: Someone, bytes: Buffer): Promise<string> {
  const end = bytes.indexOf('\r\n');
  const head = `authorization: Bearer ${token}\r\n`;
  const whole =
    end < 0 ? bytes : Buffer.concat([bytes.subarray(0, end + 2), Buffer.from(head), bytes.subarray(end + 2)]);
  return new Promise((resolve) => {
    const socket = net.connect({ port, host: '127.0.0.1', timeout: ANSWER_MS });
    let text = '';
    socket.on('data', (part) => {
      text += part.toString('latin1');
      if (text.includes('text/event-stream')) void pause(STREAM_MS).then(() => socket.destroy());
    });
    socket.on('error', () => {});
    socket.on('timeout', () => socket.destroy());
    socket.on('close', () => resolve(text));
    socket.end(whole);
  });
}

/** Frames of a socket that carries the token in its head, or in each frame that can hold it. */
function sendFrames(
  port: number,
  { token, headers }: Someone,
  { target, frames }: Extract<FuzzCase, { kind: 'socket' }>,
  inFrame: boolean,
): Promise<string> {
  const socket = new WebSocket(`ws://127.0.0.1:${port}${target}`, inFrame ? {} : { headers });
  return new Promise((resolve) => {
    let text = '';
    socket.on('error', () => {});
    socket.on('unexpected-response', (_request, response) => {
      response.on('data', (part) => {
        text += part;
      });
      response.on('end', () => socket.terminate());
    });
    socket.on('message', (part) => {
      text += String(part);
    });
    socket.on('open', () => {
      for (const frame of frames) socket.send(inFrame ? addToken(frame, token) : frame);
      void pause(STREAM_MS).then(() => socket.terminate());
    });
    socket.on('close', (_code, reason) => resolve(text + String(reason)));
  });
}

function addToken(frame: string | Buffer, token: string): string | Buffer {
  if (typeof frame !== 'string' || !frame.startsWith('{')) return frame;
  return `{"token":${JSON.stringify(token)}${frame.length > 2 ? ',' : ''}${frame.slice(1)}`;
}

/** A call of `/mcp` of either protocol, or of the gateway, that names what is hidden. */
function doorCase({ pick, below, changed, random }: Chance, { workspace, sessions }: Known): RequestCase {
  const id = pick(sessions);
  const headers = {
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
    'x-metis-session': pick([REF, 'mine']),
    'mcp-session-id': id,
    'mcp-protocol-version': pick(['2025-11-25', '2026-07-28']),
    'x-metis-workspace': workspace,
  };
  const mcp = {
    jsonrpc: '2.0',
    id: below(9),
    method: pick(['tools/call', 'tools/list', 'tasks/get', 'tasks/result', 'tasks/list', 'initialize']),
    params: {
      name: pick(['workers', 'cost', 'delegate', 'helper']),
      arguments: { worker_session_id: id },
      taskId: id,
      protocolVersion: '2025-11-25',
      capabilities: {},
      clientInfo: { name: 'test', version: '1' },
    },
  };
  const call = { model: pick(['opus', 'plan', 'auto']), max_tokens: 5, messages: [{ role: 'user', content: 'x' }] };
  const isMcp = random() < 0.6;
  const body = JSON.stringify(isMcp ? mcp : call);
  const path = isMcp
    ? `/mcp?workspace=${encodeURIComponent(workspace)}`
    : pick([
        '/v1/messages',
        '/v1/chat/completions',
        '/v1/responses',
        `/v1/responses/${id}`,
        '/v1/messages/count_tokens',
      ]);
  return {
    kind: 'request',
    method: path.endsWith(id) ? pick(['GET', 'DELETE']) : 'POST',
    target: path,
    headers,
    body: random() < 0.3 ? changed(body, body).slice(0, 100_000) : body,
  };
}

// Promise 23.2: a viewer's and a member's token find nothing of a private session in requests that were sent, frames, bytes, `/mcp` and `/v1`.
it(
  `${CASES} requests with the tokens of a viewer and a member show nothing of a private session (FUZZ_SEED=${SEED})`,
  async () => {
    const { server, ann, bob, eve } = await startPeople({
      files: { 'workers/helper.yaml': 'instructions: Help.' },
      scenario: scenario(
        planner({ text: MARK, tool_calls: [delegate(`task ${MARK}`)] }, { text: 'done' }),
        worker(MARK, { tool_calls: [call('write_file', { path: 'a.txt', content: MARK })] }, { text: MARK }),
        [{ match: {}, times: 'inf', respond: { text: 'ok' } }],
      ),
    });
    const secret = await ann.open({ share: 'private', client: MARK, client_ref: REF, initial_active_model: 'opus' });
    const { turn_id: turn } = (await ann.call('POST', `/sessions/${secret.id}/turns`, { content: MARK })).body;
    await server.event('tool.confirmation_requested');
    const { workers } = (await ann.call('GET', `/sessions/${secret.id}/workers`)).body;
    const { events } = (await ann.call('GET', `/sessions/${secret.id}/events`)).body;
    const before = (await ann.call('GET', `/sessions/${secret.id}`)).body;
    const hidden = [secret.id, workers[0].worker_session_id, turn] as string[];
    const { port } = await openDoor(server, { mcp: true });
    const shared = await ann.open({ share: 'read' });
    const own = await bob.open();
    const known: Known = {
      workspace: server.workspace,
      sessions: [secret.id, hidden[1]!, shared.id, own.id],
      turns: [
        { session: secret.id, turn },
        { session: hidden[1]!, turn },
      ],
      events: events.map(({ id }: { id: string }) => id),
    };
    const chance = createChance(SEED + 1);
    const next = createFuzz(SEED);
    const found: string[] = [];
    const sent = { request: 0, bytes: 0, socket: 0, door: 0 };
    let drawn = 0;
    const ask = (who: Someone, one: FuzzCase): Promise<string | null> => {
      switch (one.kind) {
        case 'request':
          return send(port, who, one);
        case 'bytes':
          return sendBytes(port, who, one.bytes);
        case 'socket':
          return sendFrames(port, who, one, chance.random() < 0.5);
      }
    };
    const isDone = () => sent.request >= CASES;
    const lane = async () => {
      while (!isDone()) {
        const isDoor = chance.random() < DOORS;
        const one = isDoor ? doorCase(chance, known) : next(known);
        drawn += 1;
        const who = drawn % 2 === 0 ? bob : eve;
        const text = await ask(who, one);
        if (text === null) continue;
        sent[isDoor ? 'door' : one.kind] += 1;
        const asked = one.kind === 'bytes' ? one.bytes.toString('latin1') : JSON.stringify(one);
        const ids = hidden.filter((id) => text.includes(id) && !asked.includes(id));
        if (text.includes(MARK) || ids.length > 0) found.push(`${who.name} ${asked.slice(0, 300)} -> ${text}`);
      }
    };
    await Promise.all(Array.from({ length: LANES }, lane));
    expect(found.map((one) => one.slice(0, 900))).toEqual([]);
    // Draws of other kinds, and requests that were never written, do not count.
    expect(sent.request).toBeGreaterThanOrEqual(CASES);
    for (const [kind, least] of [
      ['bytes', 0.03],
      ['socket', 0.08],
      ['door', 0.05],
    ] as const)
      expect([kind, sent[kind] >= CASES * least]).toEqual([kind, true]);
    console.log(`sent: ${JSON.stringify(sent)}, drawn: ${drawn}`);
    expect((await ann.call('GET', `/sessions/${secret.id}`)).body).toEqual(before);
  },
  60_000 + CASES * 50,
);
