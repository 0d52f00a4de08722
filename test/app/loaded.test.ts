// What a server loads: the packages of its doors only once somebody comes through them (00 §1, 19 §3).
import fs from 'node:fs';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { address, start, temporaryHome } from './metis.ts';

/** The packages of protocols whose code a `metis serve` has loaded in its life. */
async function loadedBy(use: (url: string) => Promise<void>): Promise<readonly string[]> {
  const home = temporaryHome();
  onTestFinished(home.remove);
  const told = path.join(home.path, 'coverage');
  const server = start(['serve', '--port', '0'], { home: home.path, env: { NODE_V8_COVERAGE: told } });
  await use(await address(server));
  expect((await server.stop()).code).toBe(0);
  const scripts = fs.readdirSync(told).flatMap((name) => {
    const { result } = JSON.parse(fs.readFileSync(path.join(told, name), 'utf8')) as { result: { url: string }[] };
    return result.map(({ url }) => url);
  });
  expect(scripts.some((url) => url.includes('/node_modules/fastify/'))).toBe(true);
  const found = scripts.flatMap(
    (url) => /node_modules\/(@(?:modelcontextprotocol|agentclientprotocol)\/\w+)/.exec(url)?.[1] ?? [],
  );
  return [...new Set(found)];
}

it('a server that nobody asks for MCP or ACP loads neither package; the first call of /mcp loads its own', async () => {
  const session = (url: string) =>
    fetch(`${url}/sessions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ workspace_path: import.meta.dirname }),
    });
  expect(await loadedBy(async (url) => expect((await session(url)).status).toBe(201))).toEqual([]);
  const asked = await loadedBy(async (url) => {
    const headers = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' };
    const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'ping' });
    await fetch(`${url}/mcp?workspace=/`, { method: 'POST', headers, body });
  });
  expect(asked).toContain('@modelcontextprotocol/server');
}, 60_000);
