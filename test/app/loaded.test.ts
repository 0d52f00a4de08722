import fs from 'node:fs';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { loadedBy } from './loaded-packages.ts';
import { address, start, temporaryHome } from './metis.ts';

const SERVE = ['serve', '--port', '0'];
const postJson = (url: string, body: object, headers: Record<string, string> = {}) =>
  fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  });
const openSession = (url: string) => postJson(`${url}/sessions`, { workspace_path: import.meta.dirname });

// Promise 19.24: a server loads the packages of MCP and ACP only once they are asked for.
it('a server that nobody asks for MCP or ACP loads neither package; the first call of /mcp loads its own', async () => {
  const doors = (names: ReadonlySet<string>) =>
    [...names].filter((name) => /^@(?:modelcontextprotocol|agentclientprotocol)\//.test(name));
  const names = await loadedBy(SERVE, async (url) => expect((await openSession(url)).status).toBe(201));
  expect(names).toContain('fastify');
  expect(doors(names)).toEqual([]);
  const asked = await loadedBy(SERVE, async (url) => {
    const accept = 'application/json, text/event-stream';
    await postJson(`${url}/mcp?workspace=/`, { jsonrpc: '2.0', id: 1, method: 'ping' }, { accept });
  });
  expect(doors(asked)).toContain('@modelcontextprotocol/server');
});

it('a server loads what checks schemas of others, writes YAML and counts requests only where that is asked for', async () => {
  const rare = ['ajv', 'yaml', '@fastify/rate-limit', 'pg', 'undici'];
  const names = await loadedBy(SERVE, async (url) => expect((await openSession(url)).status).toBe(201));
  expect(rare.filter((name) => names.has(name))).toEqual([]);
  const counting = await loadedBy([...SERVE, '--set', 'server.rate_limit_rpm=2'], async (url) => {
    const statuses = [await openSession(url), await openSession(url), await openSession(url)].map(
      ({ status }) => status,
    );
    expect(statuses).toEqual([201, 201, 429]);
  });
  expect(counting).toContain('@fastify/rate-limit');
});

it('a server loads nothing of HTTP/2, which it neither serves nor asks by', async () => {
  const home = temporaryHome();
  onTestFinished(home.remove);
  const report = path.join(home.path, 'modules.json');
  const hook = path.join(home.path, 'hook.cjs');
  const write = `require('node:fs').writeFileSync(${JSON.stringify(report)}, JSON.stringify(process.moduleLoadList))`;
  fs.writeFileSync(hook, `process.on('exit', () => ${write});`);
  const server = start(SERVE, { home: home.path, env: { NODE_OPTIONS: `--require=${hook}` } });
  onTestFinished(async () => void (await server.stop('SIGKILL')));
  const url = await address(server);
  expect((await openSession(url)).status).toBe(201);
  // What is made for the document is loaded for it alone.
  for (const name of ['openapi.json', 'docs']) expect((await fetch(`${url}/${name}`)).status).toBe(200);
  expect((await server.stop()).code).toBe(0);
  const modules = JSON.parse(fs.readFileSync(report, 'utf8')) as string[];
  expect(modules).toContain('NativeModule http');
  expect(modules.filter((name) => name.includes('http2'))).toEqual([]);
});

it('help and version load nothing of what a command works with', async () => {
  for (const ask of ['--help', '--version']) {
    const names = await loadedBy([ask]);
    expect(names).toContain('commander');
    expect(['zod', 'js-yaml', 'pino'].filter((name) => names.has(name))).toEqual([]);
  }
});

it('a command that asks a server loads neither a server, nor its log, nor its database', async () => {
  const names = await loadedBy(['sessions', '--server', 'http://127.0.0.1:9']);
  expect(names).toContain('commander');
  expect(['fastify', 'pino', 'better-sqlite3', 'ajv'].filter((name) => names.has(name))).toEqual([]);
});
