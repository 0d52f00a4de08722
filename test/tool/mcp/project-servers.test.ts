// Servers that a workspace's `.mcp.json` brings: when they start, and what they learn (09 §11.1).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { workspace } from '../call.ts';
import { FIXTURE, fixture, gone, mcpWorld } from './world.ts';

/** How a configuration names a variable. */
const variable = (name: string) => `$\u007b${name}}`;

describe('the servers of a project file', () => {
  const project = (text: () => string | null) => ({ projectFile: async () => text() });
  const entry = (name: string, more = {}) =>
    JSON.stringify({ mcpServers: { [name]: { command: process.execPath, args: fixture().args, ...more } } });

  it('are started beside those of the configuration, which win on equal names', async () => {
    const configured = { fix: fixture('good', { side_effects: 'read' }) };
    const world = mcpWorld(
      configured,
      project(() => entry('fix')),
    );
    const [tool] = await world.tools();
    expect(tool?.factory().definition.side_effects).toBe('read');
    const other = mcpWorld(
      configured,
      project(() => entry('Other One')),
    );
    expect(await other.names()).toEqual(expect.arrayContaining(['mcp__fix__echo', 'mcp__Other_One__echo']));
  });

  it('follow the file from one turn to the next', async () => {
    let text: string | null = null;
    const world = mcpWorld(
      {},
      project(() => text),
    );
    expect(await world.names()).toEqual([]);
    text = entry('fix');
    const pid = await world.call('mcp__fix__pid');
    text = `${entry('fix')}\n`;
    expect(await world.call('mcp__fix__pid')).toBe(pid);
    text = '{"mcpServers": 5}';
    expect(await world.names()).toEqual([]);
    expect(world.warnings().at(-1)).toBe('.mcp.json: mcpServers: must be an object of servers by name');
    await gone(Number(pid));
  });

  // Promise 09.26: A disabled server of a project file is never started.
  it('that are disabled are never started', async () => {
    const root = workspace();
    const script = `require('node:fs').writeFileSync('started', '')`;
    const world = mcpWorld({}, { root, ...project(() => entry('fix', { args: ['-e', script], disabled: true })) });
    expect(await world.names()).toEqual([]);
    expect(fs.existsSync(path.join(root, 'started'))).toBe(false);
    expect(world.warnings()).toEqual([]);
  });

  // Promise 09.26: Variables are filled in everywhere, withheld ones nowhere.
  it('have variables in their command, arguments and address; what is withheld stays empty there too', async () => {
    const [command, manner, key] = [variable('NODE'), variable('MANNER:-schemas'), variable('SECRET_KEY')];
    const schemas = `{"key-${key}x":{"type":"object"}}`;
    const env = { NODE: process.execPath, SECRET_KEY: 'sk-1', BASE: 'ftp://sk-1' };
    const text = JSON.stringify({
      mcpServers: {
        fix: { command, args: [FIXTURE, manner, schemas] },
        web: { type: 'http', url: `${variable('BASE')}/mcp` },
        none: { command: variable('ABSENT') },
      },
    });
    const world = mcpWorld({}, { ...project(() => text), env, isWithheld: (name) => name === 'SECRET_KEY' });
    expect(await world.names()).toEqual(['mcp__fix__key-x']);
    expect(world.warnings().sort()).toEqual([
      "MCP server 'fix' is started without SECRET_KEY: not set, or withheld from it",
      "MCP server 'none' has no usable command once its variables are filled in; it has no tools until it answers",
      "MCP server 'none' is started without ABSENT: not set, or withheld from it",
      "MCP server 'web' has no usable url once its variables are filled in; it has no tools until it answers",
    ]);
  });

  it('do not learn what is withheld from them', async () => {
    const text = entry('fix', { env: { A: variable('ANTHROPIC_API_KEY'), B: variable('GITHUB_TOKEN') } });
    const env = { ANTHROPIC_API_KEY: 'sk-1', GITHUB_TOKEN: 'gh-1' };
    const world = mcpWorld({}, { ...project(() => text), env, isWithheld: (name) => name === 'ANTHROPIC_API_KEY' });
    const given = await world.call('mcp__fix__env');
    expect(JSON.parse(given)).toMatchObject({ A: '', B: 'gh-1' });
    expect(given).not.toContain('sk-1');
  });
});
