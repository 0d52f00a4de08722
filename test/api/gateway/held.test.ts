// What an open call holds: its place from the head of its request on, and nothing of a body that was sent (19 §2.2, §7).
import { once } from 'node:events';
import http, { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, onTestFinished, test } from 'vitest';
import { readRequestFacts } from '#core/policy/gateway/request-facts.ts';
import { MATCH_LIMIT } from '#core/policy/routing/rules.ts';
import { registryAt } from '../../support/registry-at.ts';
import { startGateway } from './world.ts';

const OPUS = 'claude-opus-4-7';
const MiB = 1024 * 1024;

/** A request whose body is still to come. */
function headOf(url: string, bytes: number): http.ClientRequest {
  const headers = { 'content-type': 'application/json', 'content-length': bytes };
  const sent = http.request(`${url}/v1/messages`, { method: 'POST', headers, agent: false });
  onTestFinished(() => void sent.destroy());
  sent.on('error', () => {});
  sent.flushHeaders();
  return sent;
}

test('one call more than gateway.max_streams is refused by its head; a client that goes leaves its place', async () => {
  const { post, server, provider } = await startGateway(undefined, { config: { gateway: { max_streams: 1 } } });
  const { gateway } = server.engine;
  const first = headOf(server.url, 1000);
  await expect.poll(() => gateway.arrived).toBe(1);
  // Nothing of its body was sent when the answer comes.
  const [answer] = (await once(headOf(server.url, 1000), 'response')) as [http.IncomingMessage];
  expect(answer.statusCode).toBe(429);
  first.destroy();
  await expect.poll(() => gateway.arrived).toBe(0);
  expect((await post('/v1/messages', { model: OPUS, max_tokens: 5, messages: [] })).status).toBe(200);
  await expect.poll(() => gateway.arrived).toBe(0);
  expect(provider.received).toHaveLength(1);
});

test('a client that leaves in its body is no error of the log', async () => {
  const { server } = await startGateway();
  const { gateway } = server.engine;
  const sent = headOf(server.url, 1000);
  await expect.poll(() => gateway.arrived).toBe(1);
  sent.destroy();
  const left = () =>
    server.log.find(({ msg }) => msg === 'the client closed the connection before its body was complete');
  await expect.poll(left).toMatchObject({ level: 'debug', path: '/v1/messages' });
  expect(server.log.filter(({ level }) => level === 'error')).toEqual([]);
});

// Promise 19.25: a call holds nothing of its request once that is sent.
test('while an answer streams, nothing of the request is held', async () => {
  const provider = await startDiscarding();
  const { server } = await startGateway(undefined, {
    registry: registryAt({ anthropicUrl: provider.url, openaiUrl: provider.url }),
  });
  const before = held();
  const mebibyte = Buffer.alloc(MiB, 'a text of many words ');
  const head = `{"model":"${OPUS}","max_tokens":5,"stream":true,"messages":[{"role":"user","content":"`;
  const tail = '"}]}';
  const sent = headOf(server.url, head.length + 24 * MiB + tail.length);
  sent.write(head);
  for (let i = 0; i < 24; i++) if (!sent.write(mebibyte)) await once(sent, 'drain');
  sent.end(tail);
  const [answer] = (await once(sent, 'response')) as [http.IncomingMessage];
  expect(answer.statusCode).toBe(200);
  await expect.poll(() => held() - before).toBeLessThan(12 * MiB);
  expect(provider.bytes()).toBe(head.length + 24 * MiB + tail.length);
});

test('of the last message only what rules look at is kept', () => {
  const facts = (content: string) =>
    readRequestFacts('messages', Buffer.from(JSON.stringify({ model: OPUS, messages: [{ role: 'user', content }] })));
  const long = facts(`${'a'.repeat(MATCH_LIMIT - 1)}🙂 and more`);
  expect(long.ok && long.value.text).toBe(`${'a'.repeat(MATCH_LIMIT - 1)}\ud83d`);
  expect(facts('short')).toMatchObject({ value: { text: 'short' } });
});

/** Bytes of the heap and beside it that are in use. */
function held(): number {
  setFlagsFromString('--expose-gc');
  (runInNewContext('gc') as () => void)();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}

/** A provider that keeps nothing of what it gets, and begins an answer that does not end. */
async function startDiscarding() {
  let bytes = 0;
  const server = createServer((request, response) => {
    request.on('data', (piece: Buffer) => {
      bytes += piece.length;
    });
    request.once('end', () => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write('event: ping\ndata: {"type": "ping"}\n\n');
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, bytes: () => bytes };
}
