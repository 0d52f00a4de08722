// `metis routing` against a real server: a table for people, JSON for programs, one line for trouble.
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { checkRouting, explainRoute, setDefaultModel } from '#cli/routing.ts';
import { tempFolder } from '../support/engine.ts';
import { startServer } from '../support/http.ts';
import { runHere } from './here.ts';

const RULES =
  'rules:\n' +
  '  - { name: pictures, when: { message_contains_any: [draw] }, use: gpt }\n' +
  '  - { name: drawing, when: { message_contains_any: [draw] }, use: haiku }\n';

function terminal(cwd: string, columns?: number) {
  const written = { stdout: '', stderr: '' };
  const to = (name: 'stdout' | 'stderr') => ({
    write: (text: string) => {
      written[name] += text;
    },
    ...(columns === undefined ? {} : { isTTY: true, columns }),
  });
  return { written, env: { NO_COLOR: '1' }, cwd, stdout: to('stdout'), stderr: to('stderr') };
}
/** gpt has no key. */
const registry = fs
  .readFileSync(path.join(import.meta.dirname, '../support/registry.yaml'), 'utf8')
  .replace('  scripted: { type: scripted }\n', '  scripted: { type: scripted }\n  openai: { type: openai }\n')
  .replace('openai:gpt-5:\n    adapter: scripted', 'openai:gpt-5:');

describe('metis routing explain', () => {
  it('shows seven aligned slots with the winner marked and what was passed over', async () => {
    const server = await startServer({ registry, files: { '.metis/routing.yaml': RULES } });
    const screen = terminal(server.workspace);
    expect(await explainRoute(screen, { baseUrl: server.base }, 'draw a cat', {})).toBe(0);
    const lines = screen.written.stdout.trimEnd().split('\n');
    expect(lines[0]).toMatch(/^anthropic:claude-haiku-4-5, about [\d,]+ input tokens$/);
    const rows = lines.slice(4);
    expect(rows.map((line) => line.slice(0, 25).trim())).toEqual([
      '1  per_message_override',
      '2  manual_sticky',
      '▸ 3  rule',
      '',
      '4  pattern',
      '5  delegate_request',
      '6  workspace_default',
      '7  global_default',
    ]);
    expect(rows[3]).toMatch(/rejected +openai:gpt-5 +matched rule 'pictures': no key for openai$/);
    const column = lines[2]!.indexOf('model');
    expect(rows.slice(2, 4).map((line) => line.slice(column, column + 9))).toEqual(['anthropic', 'openai:gp']);
    expect(screen.written.stdout).not.toContain('\x1b');
  });

  it('fits its terminal, with every reason readable', async () => {
    const server = await startServer({ registry, files: { '.metis/routing.yaml': RULES } });
    const screen = terminal(server.workspace, 80);
    await explainRoute(screen, { baseUrl: server.base }, 'draw a cat', {});
    const lines = screen.written.stdout.split('\n');
    for (const line of lines) expect(line.length).toBeLessThanOrEqual(80);
    const passedOver = lines.findIndex((line) => /^ +rejected +openai:gpt-5$/.test(line));
    expect(lines[passedOver + 1]).toBe("     matched rule 'pictures': no key for openai");
    expect(screen.written.stdout).not.toContain('…');
  });

  it('prints the answer itself with --json, and fails where the turn would be refused', async () => {
    const server = await startServer({ registry });
    const screen = terminal('/');
    const flags = { json: true, workspace: server.workspace, model: 'gpt' };
    expect(await explainRoute(screen, { baseUrl: server.base }, 'hi', flags)).toBe(1);
    expect(JSON.parse(screen.written.stdout)).toMatchObject({ refused: 'explicit_model_rejected', winner_index: 6 });
    const told = terminal(server.workspace);
    await explainRoute(told, { baseUrl: server.base }, 'hi', { model: 'gpt' });
    expect(told.written.stdout).toMatch(/^refused: .*anthropic:claude-sonnet-4-6 could/);
    expect(told.written.stdout).toContain('session sticky model (/model): no key for openai');
    // Nothing was chosen: the slot that could have served is not marked as if it had been.
    expect(told.written.stdout).not.toMatch(/▸|chose /);
    expect(told.written.stdout).toMatch(/7 +global_default +could /);
  });

  it('says in one line what the server refuses, and that nobody answers', async () => {
    const server = await startServer();
    const screen = terminal(server.workspace);
    expect(await explainRoute(screen, { baseUrl: server.base }, '@nope hi', {})).toBe(1);
    expect(screen.written).toEqual({ stdout: '', stderr: expect.stringMatching(/^metis: content: "@nope".*\n$/) });
    const silent = terminal(server.workspace);
    expect(await explainRoute(silent, { baseUrl: 'http://127.0.0.1:1' }, 'hi', {})).toBe(1);
    expect(silent.written.stderr).toBe('metis: no server answers at http://127.0.0.1:1; metis serve starts one\n');
  });
});

describe('metis routing check', () => {
  it('lists what is wrong with a file and what it asks for in vain', async () => {
    const server = await startServer({ registry });
    const folder = tempFolder();
    const file = path.join(folder, 'routing.yaml');
    const check = async (text: string, json = false) => {
      fs.writeFileSync(file, text);
      const screen = terminal(folder);
      const code = await checkRouting(screen, { baseUrl: server.base }, 'routing.yaml', { json });
      return [code, screen.written.stdout] as const;
    };
    expect(await check('default: haiku')).toEqual([0, 'ok       routing.yaml\n']);
    const [code, text] = await check('default: gpt');
    expect([code, text.split('\n')[0]]).toEqual([0, expect.stringMatching(/^warning {2}default: openai:gpt-5 /)]);
    expect(await check('default: 5\nrule: []')).toEqual([
      1,
      'error    unknown key(s) [rule]\nerror    default: must be a model id or alias as a string\n',
    ]);
    expect(JSON.parse((await check('tiers: {}', true))[1])).toMatchObject({ valid: false, warnings: [] });
  });

  it('is reached through the command line', async () => {
    const server = await startServer();
    const folder = tempFolder();
    fs.writeFileSync(path.join(folder, 'a.yaml'), 'default: haiku');
    const args = ['routing', 'check', 'a.yaml', '--server', server.base];
    expect(await runHere(args, { home: folder })).toMatchObject({ code: 0, stdout: 'ok       a.yaml\n' });
    const missing = await runHere(['routing', 'check', 'b.yaml', '--server', server.base], { home: folder });
    expect(missing).toMatchObject({ code: 1, stderr: 'metis: b.yaml cannot be read: there is no such file\n' });
    const table = await runHere(['routing', 'explain', '@opus hi', '--server', server.base], { home: folder });
    expect(table).toMatchObject({ code: 0, stdout: expect.stringContaining('▸ 1  per_message_override') });
  });

  it('says where a token is given when the server asks for one', async () => {
    const server = await startServer({ config: { server: { auth_tokens: ['t'.repeat(32)] } } });
    const screen = terminal(server.workspace);
    expect(await explainRoute(screen, { baseUrl: server.base }, 'hi', {})).toBe(1);
    expect(screen.written.stderr).toMatch(/; give one with --token or METIS_TOKEN\n$/);
  });

  it('takes an address without http://, and refuses one of another kind', async () => {
    const server = await startServer();
    const folder = tempFolder();
    const ask = (address: string) => runHere(['routing', 'explain', 'hi', '--server', address], { home: folder });
    expect((await ask(server.base.replace('http://', ''))).code).toBe(0);
    for (const address of ['ftp://127.0.0.1:8420', 'http://[x', ''])
      expect(await ask(address)).toMatchObject({ code: 2, stderr: expect.stringContaining('an address like') });
  });
});

describe('metis routing use', () => {
  it('writes the default of the workspace, names the one before, and writes nothing with --dry-run', async () => {
    const server = await startServer({ registry, files: { '.metis/routing.yaml': RULES } });
    const file = path.join(server.workspace, '.metis/routing.yaml');
    const use = async (model: string, flags: { dryRun?: boolean; json?: boolean } = {}) => {
      const screen = terminal(server.workspace);
      const code = await setDefaultModel(screen, { baseUrl: server.base }, model, flags);
      return [code, screen.written.stdout, screen.written.stderr];
    };
    const whole = `${RULES}default: anthropic:claude-haiku-4-5\n`;
    expect((await use('haiku', { dryRun: true }))[1]).toBe(whole);
    expect(fs.readFileSync(file, 'utf8')).toBe(RULES);
    expect(await use('haiku')).toEqual([
      0,
      '.metis/routing.yaml: the default is anthropic:claude-haiku-4-5\n',
      expect.any(String),
    ]);
    expect(fs.readFileSync(file, 'utf8')).toBe(whole);
    const already = '.metis/routing.yaml: anthropic:claude-haiku-4-5 is the default already\n';
    expect((await use('haiku'))[1]).toBe(already);
    fs.writeFileSync(file, `${RULES}default: haiku\n`);
    expect((await use('haiku'))[1]).toBe(already);
    expect((await use('opus'))[1]).toMatch(/the default is \S*opus\S*, it was anthropic:claude-haiku-4-5\n$/);
    expect(JSON.parse(String((await use('opus', { json: true }))[1]))).toMatchObject({ written: false });
    expect(await use('nobody')).toEqual([1, '', expect.stringContaining('nobody')]);
    fs.writeFileSync(file, 'rules: 5');
    expect(await use('haiku')).toEqual([1, '', expect.stringContaining('.metis/routing.yaml is not valid')]);
    expect(fs.readFileSync(file, 'utf8')).toBe('rules: 5');
  });

  it('is reached through the command line', async () => {
    const server = await startServer();
    const args = ['routing', 'use', 'haiku', '--workspace', server.workspace, '--server', server.base];
    expect(await runHere(args, { home: tempFolder() })).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('haiku'),
    });
  });
});
