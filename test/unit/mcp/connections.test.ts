// Connections of the older MCP protocols over HTTP: how many there may be, and which go first (19 §3.2).
import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { createHttpDoor } from '#mcp/mcp-http.ts';
import { manualClock } from '../../support/manual-clock.ts';

const OF_CALLER = 100;
const IN_ALL = 1000;
const INITIALIZE = {
  jsonrpc: '2.0',
  id: 1,
  method: 'initialize',
  params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'test', version: '1' } },
};
const PING = { jsonrpc: '2.0', id: 2, method: 'ping' };

function world() {
  const clock = manualClock();
  const server = { address: () => 'http://127.0.0.1:1', node: () => '', secret: null };
  const door = createHttpDoor({ clock, uuid: randomUUID }, '0', server);
  const ask = async (token: string, body: object, id: string | null, held = false) => {
    const over = new AbortController();
    const headers = {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      ...(id === null ? {} : { 'mcp-session-id': id, 'mcp-protocol-version': '2025-11-25' }),
    };
    const request = new Request('http://localhost/mcp?workspace=/tmp', {
      method: 'POST',
      headers,
      body: JSON.stringify(body),
      signal: over.signal,
    });
    const answer = await door.fetch(request, token, body);
    clock.advance(1);
    if (!held) over.abort();
    return { status: answer.status, id: answer.headers.get('mcp-session-id') };
  };
  return { ask, opens: (token: string) => ask(token, INITIALIZE, null) };
}

// Promise 19.17: a caller has at most 100 connections, of which the one idle longest makes room.
test('a caller has so many, and beyond them the one that was idle longest goes; nobody else loses one', async () => {
  const { ask, opens } = world();
  const other = await opens('other');
  const mine = [];
  for (let i = 0; i < OF_CALLER; i++) mine.push(await opens('mine'));
  expect((await ask('mine', PING, mine[0]!.id)).status).toBe(200);
  expect((await opens('mine')).status).toBe(200);
  expect((await ask('mine', PING, mine[0]!.id)).status).toBe(200);
  expect((await ask('mine', PING, mine[1]!.id)).status).toBe(404);
  expect((await ask('other', PING, other.id)).status).toBe(200);
});

test('one whose answer is still read stays, and where all are in use none is opened', async () => {
  const { ask, opens } = world();
  const mine = [];
  for (let i = 0; i < OF_CALLER; i++) mine.push(await opens('mine'));
  for (const { id } of mine) await ask('mine', PING, id, true);
  expect((await opens('mine')).status).toBe(503);
  for (const { id } of [mine[0]!, mine[OF_CALLER - 1]!]) expect((await ask('mine', PING, id)).status).toBe(200);
});

test('so many there may be in all', async () => {
  const { ask, opens } = world();
  const first = await opens('caller 0');
  for (let i = 1; i < IN_ALL; i++) await opens(`caller ${i}`);
  expect((await opens('one more')).status).toBe(200);
  expect((await ask('caller 0', PING, first.id)).status).toBe(404);
});

// Promise 19.33: another caller's connection.
test("another caller's connection is none, and stays its own caller's", async () => {
  const { ask, opens } = world();
  const mine = await opens('mine');
  expect((await ask('other', PING, mine.id)).status).toBe(404);
  expect((await ask('', PING, mine.id)).status).toBe(404);
  expect((await ask('mine', PING, mine.id)).status).toBe(200);
});
