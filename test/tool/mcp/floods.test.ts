// MCP servers that say more than anybody asked for: they wait, and nobody waits for them (09 §11.4).
import { once } from 'node:events';
import http from 'node:http';
import type net from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { McpServerSchema } from '#protocol/mcp.ts';
import { stdioTransport } from '#tools/mcp-client/stdio-transport.ts';
import { manualClock } from '../../support/manual-clock.ts';
import { until } from '../../support/until.ts';
import { fixture, mcpWorld } from './world.ts';

it('messages without end are taken a few at a time, and then everybody else has a turn', async () => {
  const clock = manualClock();
  const transport = stdioTransport({
    command: 'yes',
    args: ['{"jsonrpc":"2.0","method":"notifications/x"}'],
    cwd: '/',
    env: { PATH: process.env.PATH ?? '' },
    clock,
    onFault: () => {},
    onNoise: () => {},
    onGarbage: () => {},
  });
  let taken = 0;
  transport.onmessage = () => {
    taken += 1;
  };
  await transport.start();
  for (let slice = 0; slice < 20; slice += 1) {
    const before = taken;
    await until(() => clock.pending(10) > 0);
    expect(taken - before).toBeLessThan(64);
    clock.advance(10);
  }
  expect(taken).toBeGreaterThanOrEqual(20 * 32);
  const closed = transport.close();
  clock.advance(4000);
  await closed;
});

it('questions whose answers are not read end its connection, over stdio', async () => {
  const world = mcpWorld({ bad: fixture('nags') });
  const unheard = "MCP server 'bad' is unavailable: it sends requests without reading the answers.";
  await expect(world.call('mcp__bad__nag')).rejects.toThrow(unheard);
});

it('questions whose answers are not taken end its connection, over HTTP', async () => {
  let answers = 0;
  const server = http.createServer((request, response) => {
    if (request.method === 'DELETE') return void response.writeHead(200).end();
    if (request.method === 'GET') {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      let id = 0;
      const more = () => {
        while (response.write(`data: {"jsonrpc":"2.0","id":"p${id++}","method":"ping"}\n\n`));
        response.once('drain', more);
      };
      return more();
    }
    let body = '';
    request.on('data', (data) => {
      body += data;
    });
    request.on('end', () => {
      const { id, method } = JSON.parse(body);
      const results: Record<string, object> = {
        initialize: {
          protocolVersion: '2025-06-18',
          capabilities: { tools: {} },
          serverInfo: { name: 'x', version: '1' },
        },
        'tools/list': { tools: [{ name: 'go', inputSchema: { type: 'object' } }] },
      };
      const result = results[method];
      if (result !== undefined)
        return void response
          .writeHead(200, { 'content-type': 'application/json' })
          .end(JSON.stringify({ jsonrpc: '2.0', id, result }));
      if (method !== undefined) return void response.writeHead(202).end();
      // An answer of ours, which stays without one of its own.
      answers += 1;
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as net.AddressInfo;
  const world = mcpWorld({ bad: McpServerSchema.parse({ transport: 'http', url: `http://127.0.0.1:${port}/mcp` }) });
  await world.names();
  await until(() => world.warnings().length > 0);
  expect(world.warnings()[0]).toContain("MCP server 'bad' sends requests without reading the answers");
  expect(answers).toBeLessThanOrEqual(100);
});
