// A token's secret is shown once: in no file, no line of the log, no event and no other answer of a real process (23 §2).
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import fs from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { WebSocket } from 'ws';
import { runHere, startHere } from './here.ts';
import { address, MAIN, temporaryHome } from './metis.ts';

/** Texts of all files below a folder, as bytes. */
function readAll(folder: string): { readonly file: string; readonly bytes: Buffer }[] {
  return fs.readdirSync(folder, { recursive: true, withFileTypes: true }).flatMap((entry) => {
    const file = path.join(entry.parentPath, entry.name);
    return entry.isFile() ? [{ file, bytes: fs.readFileSync(file) }] : [];
  });
}

// Promise 23.7: the secrets of tokens are in no file of the database and no line of the log at level trace, whatever was sent with them, and in no error, event, audit entry or answer but the one; their digests are in no answer and no line.
test('a secret is in one answer and nowhere else, at log level trace and through every kind of fault', async () => {
  const home = temporaryHome();
  onTestFinished(home.remove);
  const data = path.join(home.path, 'data');
  const made = await runHere(['token', 'create', 'root', '--role', 'admin', '--data', data, '--json'], {
    home: home.path,
  });
  const { secret: admin } = JSON.parse(made.stdout) as { secret: string };
  const server = startHere(['serve', '--port', '0', '--data', data, '--set', 'log.level=trace'], { home: home.path });
  onTestFinished(async () => void (await server.stop()));
  const url = await address(server);
  const answers: string[] = [];
  async function ask(method: string, target: string, headers: Record<string, string> = {}, body?: string) {
    const json = body === undefined ? {} : { 'content-type': 'application/json' };
    const response = await fetch(`${url}${target}`, { method, headers: { ...json, ...headers }, body: body ?? null });
    const text = await response.text();
    return { status: response.status, text, all: JSON.stringify([...response.headers]) + text };
  }
  const bearer = (token: string) => ({ authorization: `Bearer ${token}` });
  const first = await ask('POST', '/tokens', bearer(admin), JSON.stringify({ name: 'carl', role: 'member' }));
  const { secret: carl } = JSON.parse(first.text) as { secret: string };
  expect([first.status, first.text.split(carl).length]).toEqual([201, 2]);

  const opened = await ask('POST', '/sessions', bearer(carl), JSON.stringify({ workspace_path: home.path }));
  const { id } = JSON.parse(opened.text) as { id: string };
  // What a person does by mistake: the secret with a slip, in a path, a query, a body that is no JSON, the wrong header.
  const tried: [string, string, Record<string, string>?, string?][] = [
    ['GET', '/tokens', bearer(admin)],
    ['GET', '/tokens/self', bearer(carl)],
    ['GET', '/sessions', bearer(carl)],
    ['GET', `/sessions/${id}`, bearer(carl)],
    ['GET', `/sessions/${id}/events`, bearer(carl)],
    ['GET', '/settings', bearer(admin)],
    ['GET', '/metrics', bearer(carl)],
    ['GET', '/sessions', { authorization: carl }],
    ['GET', '/sessions', { authorization: `Basic ${carl}` }],
    ['GET', '/sessions?limit=x', bearer(carl)],
    ['POST', '/tokens', bearer(carl), '{"name": "x"'],
    ['POST', '/tokens', bearer(carl), '{"name": "x", "role": "member"}'],
    ['POST', '/tokens', bearer(admin), '{"name": "carl", "role": "member"}'],
    ['POST', '/v1/messages', { 'x-api-key': carl }, '{"model": 1}'],
    ['POST', '/v1/chat/completions', bearer(carl), '{"model": "nope", "messages": []}'],
    ['POST', `/mcp?workspace=${encodeURIComponent(home.path)}`, bearer(carl), '{"jsonrpc": "2.0", "id": 1}'],
    ['POST', `/mcp?workspace=${encodeURIComponent(home.path)}`, bearer(carl), '{"jsonrpc": "2.0", "method": 3}'],
    ['POST', `/sessions/${id}/turns`, bearer(carl), '{"content": "hello"}'],
    ['GET', '/audit', bearer(admin)],
  ];
  for (const [method, target, headers, body] of tried) answers.push((await ask(method, target, headers, body)).all);
  const socket = new WebSocket(`${url.replace('http', 'ws')}/sessions/${id}/stream`);
  socket.on('message', (part) => void answers.push(String(part)));
  await once(socket, 'open');
  socket.send(JSON.stringify({ type: 'subscribe', token: carl, snapshot: true, since: 'x' }));
  socket.send(JSON.stringify({ type: 'subscribe', token: `${carl}x` }));
  await once(socket, 'close');
  const digest = (secret: string) => createHash('sha256').update(secret).digest('hex');
  // A digest opens nothing.
  for (const secret of [admin, carl]) expect((await ask('GET', '/sessions', bearer(digest(secret)))).status).toBe(401);
  expect((await ask('DELETE', '/tokens/carl', bearer(admin))).status).toBe(200);
  answers.push((await ask('GET', '/sessions', bearer(carl))).all);
  answers.push((await ask('GET', '/audit', bearer(admin))).all);
  const { stdout, stderr, code } = await server.stop();
  expect(code).toBe(0);
  expect(stderr).toContain('"msg":"stopping"');

  for (const secret of [admin, carl]) {
    expect(answers.filter((text) => text.includes(secret) || text.includes(digest(secret)))).toEqual([]);
    const log = stdout + stderr;
    expect(log.split('\n').filter((line) => line.includes(secret) || line.includes(digest(secret)))).toEqual([]);
    const files = readAll(home.path);
    expect(files.some(({ file }) => file.endsWith('metis.db'))).toBe(true);
    expect(files.filter(({ bytes }) => bytes.includes(secret)).map(({ file }) => file)).toEqual([]);
  }
});

test('an audit without entries says so to a person, and nothing to a program', async () => {
  const home = temporaryHome();
  onTestFinished(home.remove);
  const server = startHere(['serve', '--port', '0'], { home: home.path });
  onTestFinished(async () => void (await server.stop()));
  const on = ['--server', await address(server)];
  expect((await runHere(['audit', ...on], { home: home.path })).stdout).toBe('the audit has no entries\n');
  expect((await runHere(['audit', '--json', ...on], { home: home.path })).stdout).toBe('');
});

// Promise 23.7: `metis token` makes, lists and revokes, a name that was revoked is refused; `metis audit` prints what was done, new entries too.
test('the commands of tokens and of the audit do over the terminal what the server answers', async () => {
  const home = temporaryHome();
  onTestFinished(home.remove);
  const data = path.join(home.path, 'data');
  const admin = (await runHere(['token', 'create', 'root', '--role', 'admin', '--data', data], { home: home.path }))
    .stdout;
  const server = startHere(['serve', '--port', '0', '--data', data], { home: home.path });
  onTestFinished(async () => void (await server.stop()));
  const env = { METIS_TOKEN: admin.trim() };
  const on = ['--server', await address(server)];
  const metis = (...args: string[]) => runHere([...args, ...on], { home: home.path, env });
  const following = startHere(['audit', '--follow', '--json', ...on], { home: home.path, env });
  onTestFinished(async () => void (await following.stop()));
  await following.line(/"token\.created".*"root"/);

  const limits = ['--daily', '5', '--monthly', '50', '--expires', '90d', '--workspace', 'app'];
  const made = await metis('token', 'create', 'ann', '--role', 'member', ...limits);
  expect([made.code, made.stderr]).toEqual([0, 'metis: this is the token of ann; it is shown this once\n']);
  const secret = made.stdout.trim();
  const digest = createHash('sha256').update(secret).digest('hex');
  const hashed = spawnSync(process.execPath, [MAIN, 'token', 'hash'], { input: made.stdout, encoding: 'utf8' });
  expect(hashed.stdout).toBe(`${digest}\n`);
  const listed = (await metis('token', 'list')).stdout.split('\n');
  expect(listed[0]).toMatch(/^ann member, today \$0 of \$5, this month \$0 of \$50, in \S*\/app, expires 20/);
  expect(listed[1]).toBe('root admin, today $0, this month $0');
  const asAnn = await runHere(['token', 'list', ...on], { home: home.path, env: { METIS_TOKEN: secret } });
  expect([asAnn.code, asAnn.stderr]).toEqual([1, expect.stringContaining('only an admin may do this')]);

  expect((await metis('token', 'revoke', 'ann')).code).toBe(0);
  expect((await metis('token', 'list')).stdout).toMatch(/^ann member.*, revoked 20/);
  expect((await metis('token', 'create', 'ann', '--role', 'member')).stderr).toContain('choose another');
  const last = await metis('token', 'revoke', 'root');
  expect([last.code, last.stderr]).toEqual([1, expect.stringContaining('is the last token of an admin')]);
  await following.line(/"token\.revoked".*"ann"/);
  const lines = (await metis('audit')).stdout.trim().split('\n');
  expect(lines.map((line) => line.split(' ').slice(1, 5).join(' '))).toEqual([
    expect.stringMatching(/^token\.created root/),
    'token.created by root ann',
    'token.revoked by root ann',
  ]);
});
