// MCP servers over HTTP that misbehave: each costs one clear message (09 §11).
import { once } from 'node:events';
import http from 'node:http';
import type net from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { McpServerSchema } from '#protocol/mcp.ts';
import { until } from '../../support/until.ts';
import { failure } from '../call.ts';
import { type McpWorld, mcpWorld } from './world.ts';

type Message = { readonly id?: number; readonly method: string };
type Answer = (message: Message, response: http.ServerResponse) => void;

const json = (response: http.ServerResponse, body: string, status = 200) => {
  response.writeHead(status, { 'content-type': 'application/json' }).end(body);
};
const result = (id: number | undefined, value: unknown) => JSON.stringify({ jsonrpc: '2.0', id, result: value });

/** A server that does its part of the handshake; `calls` answers calls of its one tool. */
const wellBegun =
  (calls: Answer): Answer =>
  (message, response) => {
    const { id, method } = message;
    if (method === 'initialize') {
      const serverInfo = { name: 'x', version: '1' };
      return json(response, result(id, { protocolVersion: '2025-06-18', capabilities: { tools: {} }, serverInfo }));
    }
    if (method === 'tools/list') {
      return json(response, result(id, { tools: [{ name: 'go', inputSchema: { type: 'object' } }] }));
    }
    if (method === 'tools/call') return calls(message, response);
    response.writeHead(202).end();
  };

/** Of what answers; a busy machine needs its time, so only what never does is given a short one. */
const STARTUP_SECONDS = 60;

async function serving(answer: Answer): Promise<McpWorld> {
  const server = http.createServer((request, response) => {
    if (request.method !== 'POST') return void response.writeHead(405).end();
    let body = '';
    request.on('data', (data) => {
      body += data;
    });
    request.on('end', () => answer(JSON.parse(body) as Message, response));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as net.AddressInfo;
  const startup_timeout_seconds = answer === MUTE ? 0.5 : STARTUP_SECONDS;
  const given = { transport: 'http', url: `http://127.0.0.1:${port}/mcp`, startup_timeout_seconds };
  return mcpWorld({ web: McpServerSchema.parse(given) });
}

const MUTE: Answer = () => {};
const GARBAGE: Answer = (_, response) => json(response, '<html>');
const HTML: Answer = (_, response) => void response.writeHead(200, { 'content-type': 'text/html' }).end('<html>');
const HUGE: Answer = (_, response) => json(response, `"${'x'.repeat(10_000_000)}"`);
const DEEP: Answer = (_, response) => json(response, '['.repeat(100_000));
const CUT: Answer = (_, response) => {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  response.write('data: {"json');
  setImmediate(() => response.destroy());
};
const EMPTY: Answer = (_, response) => void response.writeHead(200, { 'content-type': 'text/event-stream' }).end();
const LONG_EVENT: Answer = (_, response) => {
  response.writeHead(200, { 'content-type': 'text/event-stream' }).end(`data: "${'x'.repeat(10_000_000)}"\n\n`);
};
const REFUSED: Answer = (_, response) => json(response, '{"secret": "sk-1"}', 403);

it.each([
  ['never', MUTE, /^did not answer within 0\.5 s$/],
  ['garbage', GARBAGE, /^did not answer as an MCP server: /],
  ['a page', HTML, /^did not answer as an MCP server: Unexpected content type: text\/html$/],
  ['10 MB', HUGE, /^sent a message that has more than 8388608 bytes$/],
  ['a deep value', DEEP, /^sent a message that is nested deeper than 100 levels at line 1$/],
  ['half an event', CUT, /^closed the connection during a call/],
  ['no event', EMPTY, /^closed the connection without an answer$/],
  ['an event of 10 MB', LONG_EVENT, /^sent a message that has more than 8388608 bytes$/],
  ['a refusal', REFUSED, /^answered with HTTP status 403$/],
] as const)('at the start: %s', async (_, answer, reason) => {
  const world = await serving(answer);
  expect(await world.names()).toEqual([]);
  await until(() => world.warnings().length > 0);
  expect(world.warnings()).toHaveLength(1);
  const [, said] = /^MCP server 'web' (.*); it has no tools until it answers$/.exec(world.warnings()[0] ?? '') ?? [];
  expect(said).toMatch(reason);
});

it.each([
  ['garbage', GARBAGE, /did not answer as an MCP server/],
  ['10 MB', HUGE, /sent a message that has more than 8388608 bytes/],
  ['half an event', CUT, /closed the connection during a call/],
  ['no event', EMPTY, /closed the connection without an answer/],
  ['an event of 10 MB', LONG_EVENT, /sent a message that has more than 8388608 bytes/],
  ['a refusal', REFUSED, /answered with HTTP status 403/],
] as const)('in a call: %s', async (_, answer, reason) => {
  const world = await serving(wellBegun(answer));
  const fault = await failure(world.call('mcp__web__go', {}, { timeout_seconds: 60 }));
  expect(fault).toMatchObject({ error_class: 'execution_error' });
  expect(fault.message).toMatch(/^MCP server 'web' is unavailable: it /);
  expect(fault.message).toMatch(reason);
  expect(fault.message).not.toMatch(/sk-1|\n/);
});

it('in a call: never, which is a timeout', async () => {
  const world = await serving(wellBegun(MUTE));
  const fault = await failure(world.call('mcp__web__go', {}, { timeout_seconds: 0.1 }));
  expect(fault).toMatchObject({ error_class: 'timeout' });
});

it('headers are sent, and not to another host', async () => {
  let asked = false;
  const other = http.createServer((_, response) => {
    asked = true;
    response.end();
  });
  other.listen(0, '127.0.0.1');
  await once(other, 'listening');
  onTestFinished(() => void other.close());
  const { port } = other.address() as net.AddressInfo;
  const world = await serving((_, response) => {
    response.writeHead(307, { location: `http://localhost:${port}/` }).end();
  });
  expect(await world.names()).toEqual([]);
  expect(asked).toBe(false);
  expect(world.warnings()[0]).toContain('answered with HTTP status 307');
});
