// MCP servers of a server process: theirs is to end with it, however it ends (09 §11.4).
import fs from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { until } from '../support/until.ts';
import { FIXTURE, gone } from '../tool/mcp/world.ts';
import { address, getJson, start, temporaryHome } from './metis.ts';

let home: ReturnType<typeof temporaryHome>;
beforeEach(() => {
  home = temporaryHome();
});
afterEach(() => home.remove());

/** A server whose first session has started an MCP server; the process id of that one. */
async function serving() {
  const workspace = path.join(home.path, 'project');
  fs.mkdirSync(workspace);
  const script = 'echo $$ > server.pid.new; mv server.pid.new server.pid; exec "$@"';
  const args = ['-c', script, 'sh', process.execPath, FIXTURE];
  const servers = { fix: { transport: 'stdio', command: '/bin/sh', args } };
  const flags = ['--port', '0', '--set', `mcp_servers=${JSON.stringify(servers)}`];
  const server = start(['serve', ...flags], { home: home.path });
  const url = await address(server);
  const body = JSON.stringify({ workspace_path: workspace });
  const headers = { 'content-type': 'application/json' };
  expect((await fetch(`${url}/sessions`, { method: 'POST', headers, body })).status).toBe(201);
  const file = path.join(workspace, 'server.pid');
  await until(() => fs.existsSync(file));
  expect((await getJson(`${url}/healthz`)).status).toBe('ok');
  return { server, pid: Number(fs.readFileSync(file, 'utf8')) };
}

it('a session starts the servers of its workspace, and a stop of the process ends them', async () => {
  const { server, pid } = await serving();
  process.kill(pid, 0);
  expect((await server.stop()).code).toBe(0);
  await gone(pid);
});

it('a process that is killed takes them along', async () => {
  const { server, pid } = await serving();
  await server.stop('SIGKILL');
  await gone(pid);
});
