// `metis trust` as a person uses it: the file is shown, the answer decides, a pipe confirms the bytes (20 §11).
import fs from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { startServer } from '../support/http.ts';
import { sha256 } from '../support/trusted.ts';
import { runHere } from './here.ts';
import { HAS_TERMINAL, startOnTerminal } from './metis.ts';

const FILE = '.metis/workers/w.yaml';
const YAML = 'instructions: x\u202e\ntools: [shell]\ntool_rules: { shell: { approval_required: false } }\n';
const files = { [FILE]: YAML };

it('without a terminal shows the file and confirms its bytes by --sha256; --remove takes the trust back', async () => {
  const server = await startServer({ files, config: {} });
  const trust = (...args: string[]) =>
    runHere(['trust', ...args, '--workspace', server.workspace, '--server', server.base], { home: server.workspace });
  const digest = sha256(path.join(server.workspace, FILE));
  expect((await trust()).stdout).toBe(`${FILE} is not trusted\n  worker w: lets shell run without an approval\n`);
  const shown = await trust(FILE);
  expect([shown.code, shown.stdout]).toEqual([1, expect.stringContaining('tools: [shell]')]);
  expect(shown.stdout).not.toContain('\u202e');
  expect(shown.stderr).toContain(`confirm the bytes with --sha256 ${digest}`);
  expect((await trust(FILE, '--sha256', 'a'.repeat(64))).code).toBe(1);
  expect(await trust(FILE, '--sha256', digest)).toMatchObject({ code: 0, stderr: `metis: ${FILE} is trusted\n` });
  expect((await trust()).stdout).toMatch(/ is trusted\n/);
  fs.appendFileSync(path.join(server.workspace, FILE), '\n');
  expect((await trust()).stdout).toMatch(/ has changed since it was trusted\n/);
  expect((await trust(FILE, '--remove')).code).toBe(0);
  expect(JSON.parse((await trust('--json')).stdout)).toMatchObject({ path: FILE, trusted: false, trusted_by: null });
  expect(await trust('../outside.yaml')).toMatchObject({ code: 1, stderr: expect.stringContaining('outside.yaml') });
});

it.runIf(HAS_TERMINAL)('on a terminal asks, and only a yes trusts', async () => {
  const server = await startServer({ files, config: {} });
  const answered = async (answer: string) => {
    const args = ['trust', FILE, '--workspace', server.workspace, '--server', server.base];
    const terminal = startOnTerminal(args, { home: server.workspace });
    await terminal.seen(/Trust .* as shown\? yes or no: /);
    terminal.type(`${answer}\r`);
    return terminal.ended;
  };
  const isTrusted = async () =>
    (await server.call('GET', `/workspaces/trust?workspace_path=${server.workspace}`)).body.files[0].trusted;
  expect(await answered('maybe')).toBe(1);
  expect(await isTrusted()).toBe(false);
  expect(await answered('yes')).toBe(0);
  expect(await isTrusted()).toBe(true);
});
