// Frames as the bytes of one write.

import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { WebSocket, WebSocketServer } from 'ws';
import { createBatchEncoder, type Frame } from '#http/stream/frames.ts';

const frame = (text: string): Frame => ({ type: 'event', id: null, text });
const texts = (all: readonly string[]) => all.map(frame);

let bytesToSend: Buffer = Buffer.alloc(0);
let server: WebSocketServer;
beforeAll(async () => {
  server = new WebSocketServer({ host: '127.0.0.1', port: 0, perMessageDeflate: false });
  server.on('connection', (_socket, request) => request.socket.write(bytesToSend));
  await once(server, 'listening');
});
afterAll(() => server.close());

/** What a WebSocket client hears when these bytes are written to its connection. */
async function heard(bytes: Buffer, messages: number): Promise<string[]> {
  bytesToSend = bytes;
  const socket = new WebSocket(`ws://127.0.0.1:${(server.address() as AddressInfo).port}`);
  const told: string[] = [];
  await new Promise<void>((resolve, reject) => {
    socket.on('message', (data, isBinary) => {
      told.push(isBinary ? 'binary' : String(data));
      if (told.length === messages) resolve();
    });
    socket.on('error', reject);
  });
  socket.terminate();
  return told;
}

test('a batch is heard as its single messages, at every length of header', async () => {
  const sizes = [0, 1, 125, 126, 65_535, 65_536, 200_000];
  const sent = sizes.map((size) => 'x'.repeat(size));
  expect(await heard(createBatchEncoder()(texts(sent)), sent.length)).toEqual(sent);
});

test('any texts are heard as they were sent', async () => {
  const encode = createBatchEncoder();
  await fc.assert(
    fc.asyncProperty(fc.array(fc.string({ unit: 'grapheme', maxLength: 200 }), { minLength: 1 }), async (sent) => {
      expect(await heard(encode(texts(sent)), sent.length)).toEqual(sent);
    }),
    { numRuns: 50 },
  );
});

test('the same frames are encoded once, other ones anew', () => {
  const encode = createBatchEncoder();
  const [a, b] = [frame('a'), frame('b')];
  const first = encode([a, b]);
  expect(encode([a, b])).toBe(first);
  expect(encode([b, a])).not.toEqual(first);
  expect(encode([a])).toEqual(first.subarray(0, 3));
});
