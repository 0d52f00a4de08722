// A start with turns to take up: it waits for none of them, and none of them for another (05 §4, 09 §11.4).
import fs from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { tempFolder } from '../support/engine.ts';
import { startReal, startStrictFake } from '../support/real-server.ts';
import { registryAt } from '../support/registry-at.ts';
import { until } from '../support/until.ts';
import { FIXTURE } from '../tool/mcp/world.ts';

test('an MCP server that hangs holds up neither the start nor the turns of other workspaces', async () => {
  const folder = tempFolder();
  const [mute, plain] = ['mute', 'plain'].map((name) => path.join(folder, name)) as [string, string];
  for (const workspace of [mute, plain]) fs.mkdirSync(workspace);
  const write = { name: 'write_file', input: { path: 'a.txt', content: 'a' } };
  const fake = await startStrictFake(() => ({ tool_calls: [write] }));
  const start = () =>
    startReal({
      folder: path.join(folder, 'data'),
      registry: registryAt(fake),
      config: { mcp: { project_files: true }, tool_confirmation: { per_tool: { write_file: 'prompt' } } },
    });
  const first = await start();
  const sessions: string[] = [];
  for (const workspace of [mute, plain]) {
    const id = await first.session(workspace, 'opus');
    await first.call('POST', `/sessions/${id}/turns`, { content: 'write' });
    await first.event('tool.confirmation_requested', (e) => e.session_id === id);
    sessions.push(id);
  }
  await first.close();
  const program = { command: process.execPath, args: [FIXTURE, 'mute'] };
  fs.writeFileSync(path.join(mute, '.mcp.json'), JSON.stringify({ mcpServers: { mute: program } }));

  const second = await start();
  const states = async () =>
    Promise.all(sessions.map(async (id) => (await second.call('GET', `/sessions/${id}`)).body.status));
  await second.event('tool.confirmation_requested', (e) => e.session_id === sessions[1]);
  expect(await states()).toEqual(['interrupted', 'running']);
  // A stop waits for the one that still waits no longer than it must.
  await second.close();
  const third = await startReal({
    folder: path.join(folder, 'data'),
    registry: registryAt(fake),
    config: { tool_confirmation: { per_tool: { write_file: 'prompt' } } },
  });
  await until(async () => (await third.call('GET', '/confirmations')).body.confirmations.length === 2);
});
