// Tokens made at run time: their secrets, their names, their end (23 §2).
import { once } from 'node:events';
import fs from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { startServer } from '../../support/http.ts';
import { manualClock } from '../../support/manual-clock.ts';
import { planner, scenario } from '../../support/scenario.ts';
import { until } from '../../support/until.ts';
import { hash, someone, startPeople } from './world.ts';

// Promise 23.7: a secret is in no row, log, event or answer but the one; a stored hash opens nothing.
test('the secret of a token is in its one answer and nowhere else', async () => {
  const { server, root } = await startPeople();
  const made = await root.call('POST', '/tokens', { name: 'carl', role: 'member', daily_usd: '5' });
  expect([made.status, made.body]).toMatchObject([
    201,
    { name: 'carl', role: 'member', origin: 'server', daily_usd: '5' },
  ]);
  const { secret } = made.body;
  expect(secret).toMatch(/^metis_[A-Za-z0-9_-]{43}$/);
  const carl = someone(server, 'carl', secret);
  const session = await carl.open();
  expect(session.owner).toEqual({ id: made.body.id, name: 'carl' });
  expect((await someone(server, 'carl', hash(secret)).call('GET', '/sessions')).status).toBe(401);
  const seen = [
    (await root.call('GET', '/tokens')).body,
    (await carl.call('GET', '/tokens/self')).body,
    (await root.call('GET', '/audit')).body,
    server.events,
  ];
  expect(JSON.stringify(seen)).not.toContain(secret);
  expect(JSON.stringify(seen)).not.toContain(hash(secret));
  server.db.db.pragma('wal_checkpoint(TRUNCATE)');
  expect(fs.readFileSync(path.join(server.folder, 'metis.db')).includes(secret)).toBe(false);
  expect(
    (await root.call('POST', '/tokens', { name: 'x', role: 'member' }, { 'idempotency-key': 'k' })).body.secret,
  ).not.toBe(
    (await root.call('POST', '/tokens', { name: 'y', role: 'member' }, { 'idempotency-key': 'k' })).body.secret,
  );
});

// Promise 23.7: a name revoked and asked for again is refused.
test('a name is given out once: of tokens, revoked tokens, the file and keys of the gateway', async () => {
  const keys = { ci: { token_sha256: hash('ci'), daily_usd: null } };
  const { root } = await startPeople({}, { gateway: { keys } });
  const make = async (name: string) => (await root.call('POST', '/tokens', { name, role: 'viewer' })).body;
  expect((await make('dora')).secret).toBeDefined();
  expect((await root.call('DELETE', '/tokens/dora')).body.revoked_at).not.toBeNull();
  for (const name of ['dora', 'ann', 'ci']) expect((await make(name)).error.code).toBe('token_name_taken');
  const inFile = await root.call('DELETE', '/tokens/ann');
  expect([inFile.status, inFile.body.error.code]).toEqual([409, 'token_in_file']);
  expect((await root.call('DELETE', '/tokens/nobody-known')).status).toBe(404);
  expect((await root.call('POST', '/tokens', { name: 'not a name', role: 'viewer' })).status).toBe(400);
  const relative = await root.call('POST', '/tokens', { name: 'fred', role: 'member', workspaces: ['team/app'] });
  expect([relative.status, relative.body.error.message]).toEqual([400, expect.stringMatching(/^workspaces.*absolute/)]);
});

// Promise 23.3: a revoked token is 401, its streams are closed, its running turn ends well.
test('a revoked token is refused at once, its streams end, and its running turn goes on', async () => {
  const { server, root } = await startPeople({
    scenario: scenario(planner({ text: 'done', delay_ms: 300 })),
  });
  const { secret } = (await root.call('POST', '/tokens', { name: 'carl', role: 'member' })).body;
  const carl = someone(server, 'carl', secret);
  const session = await carl.open();
  const socket = server.connect(`/sessions/${session.id}/stream?snapshot=true`, carl.headers);
  await socket.frame(({ type }) => type === 'snapshot');
  const sse = await fetch(`${server.base}/sessions/${session.id}/events`, {
    headers: { ...carl.headers, accept: 'text/event-stream' },
  });
  const turn = (await carl.call('POST', `/sessions/${session.id}/turns`, { content: 'go' })).body;
  expect((await root.call('DELETE', '/tokens/carl')).status).toBe(200);
  expect((await carl.call('GET', '/sessions')).status).toBe(401);
  expect((await socket.closed).code).toBe(1008);
  await sse.text();
  expect((await server.ended(turn.turn_id)).status).toBe('completed');
  const { entries } = (await root.call('GET', '/audit')).body;
  await until(async () =>
    (await root.call('GET', '/audit')).body.entries.some((e: { action: string }) => e.action === 'login.refused'),
  );
  expect(entries.map((e: { action: string }) => e.action)).toEqual(
    expect.arrayContaining(['token.created', 'token.revoked']),
  );
});

// Promise 23.3: a WebSocket whose token was revoked between its upgrade and its subscription gets nothing.
test('a socket that subscribes after its token was revoked gets no frame of the session', async () => {
  const { server, root } = await startPeople();
  const { secret } = (await root.call('POST', '/tokens', { name: 'carl', role: 'member' })).body;
  const carl = someone(server, 'carl', secret);
  const session = await carl.open();
  const socket = server.connect(`/sessions/${session.id}/stream`, carl.headers);
  await once(socket.ws, 'open');
  expect((await root.call('DELETE', '/tokens/carl')).status).toBe(200);
  socket.send({ type: 'subscribe', snapshot: true });
  expect((await socket.closed).code).toBe(1008);
  expect(socket.frames).toMatchObject([{ type: 'subscribe_error', code: 'unauthorized' }]);
});

// Promise 23.3: streams of callers without a token end once a token is required.
test('streams that were opened before the first token was made end within five seconds', async () => {
  const clock = manualClock();
  const server = await startServer({ clock });
  const session = (await server.call('POST', '/sessions', { workspace_path: server.workspace })).body;
  const socket = server.connect(`/sessions/${session.id}/stream?snapshot=true`);
  await socket.frame(({ type }) => type === 'snapshot');
  const late = server.connect(`/sessions/${session.id}/stream`);
  await once(late.ws, 'open');
  const sse = await fetch(`${server.base}/sessions/${session.id}/events`, { headers: { accept: 'text/event-stream' } });
  expect((await server.call('POST', '/tokens', { name: 'root', role: 'admin' })).status).toBe(201);
  late.send({ type: 'subscribe', snapshot: true });
  expect((await late.closed).code).toBe(1008);
  expect(late.frames).toMatchObject([{ type: 'subscribe_error', code: 'unauthorized' }]);
  clock.advance(5000);
  expect((await socket.closed).code).toBe(1008);
  await sse.text();
});

// Promise 23.3: an expired token is 401 and its streams are closed within 5 s.
test('an expired token is refused, and a stream of it ends within five seconds', async () => {
  const clock = manualClock();
  const { server, root } = await startPeople({ clock });
  const expires_at = new Date(clock.now() + 60_000).toISOString();
  const { secret } = (await root.call('POST', '/tokens', { name: 'carl', role: 'member', expires_at })).body;
  const carl = someone(server, 'carl', secret);
  const session = await carl.open();
  const socket = server.connect(`/sessions/${session.id}/stream?snapshot=true`, carl.headers);
  await socket.frame(({ type }) => type === 'snapshot');
  clock.advance(60_000);
  clock.advance(5000);
  expect((await carl.call('GET', '/sessions')).status).toBe(401);
  expect((await socket.closed).code).toBe(1008);
});

// Promise 23.8: revoking the last admin's token is refused, an expired last one locks.
test('the last token of an admin is not revoked, and once expired the server is locked, not open', async () => {
  const clock = manualClock();
  const server = await startServer({ clock });
  expect((await server.call('GET', '/sessions')).status).toBe(200);
  const expires_at = new Date(clock.now() + 60_000).toISOString();
  const first = (await server.call('POST', '/tokens', { name: 'root', role: 'admin', expires_at })).body;
  const root = someone(server, 'root', first.secret);
  expect((await server.call('GET', '/sessions')).status).toBe(401);
  const last = await root.call('DELETE', '/tokens/root');
  expect([last.status, last.body.error.code]).toEqual([409, 'last_admin']);
  const second = (await root.call('POST', '/tokens', { name: 'second', role: 'admin' })).body;
  expect((await root.call('DELETE', '/tokens/root')).status).toBe(200);
  expect((await root.call('GET', '/sessions')).status).toBe(401);
  expect((await someone(server, 'second', second.secret).call('GET', '/sessions')).status).toBe(200);
});

test('a last admin that expired leaves the server locked', async () => {
  const clock = manualClock();
  const server = await startServer({ clock });
  const expires_at = new Date(clock.now() + 1000).toISOString();
  const { secret } = (await server.call('POST', '/tokens', { name: 'root', role: 'admin', expires_at })).body;
  clock.advance(2000);
  expect((await someone(server, 'root', secret).call('GET', '/sessions')).status).toBe(401);
  expect((await server.call('GET', '/sessions')).status).toBe(401);
  expect(server.engine.people.isRequired()).toBe(true);
});

test('the audit keeps what was done, without text, and drops what is older than retention.audit_days', async () => {
  const clock = manualClock();
  const { server, ann, root } = await startPeople({ clock }, { retention: { audit_days: 1 } });
  const session = await ann.open();
  await ann.call('PATCH', `/sessions/${session.id}`, { max_cost_usd: '2', share: 'private' });
  await root.call('PATCH', `/sessions/${session.id}`, { owner: 'bob' });
  await root.call('DELETE', `/sessions/${session.id}?purge=true`);
  const list = async () => (await root.call('GET', '/audit?limit=200')).body.entries;
  const actions = (await list()).map(({ action, actor }: { action: string; actor: { name: string } | null }) => [
    action,
    actor?.name ?? null,
  ]);
  expect(actions.filter(([action]: string[]) => action !== 'session.private_read')).toEqual([
    ['session.purged', 'root'],
    ['session.ended', 'root'],
    ['session.given', 'root'],
    ['session.shared', 'ann'],
    ['limit.changed', 'ann'],
  ]);
  const workspace_path = server.workspace;
  const definition = { name: 'helper', instructions: 'Help.' };
  expect((await root.call('POST', '/workers', { workspace_path, definition })).status).toBe(201);
  expect((await list())[0]).toMatchObject({ action: 'worker.changed', subject: 'helper' });
  const [newest] = (await root.call('GET', '/audit?limit=1')).body.entries;
  expect(newest.action).toBe('worker.changed');
  clock.advance(2 * 86_400_000);
  await server.engine.journal.commit({ writes: [], emit: [] });
  await root.call('POST', '/tokens', { name: 'carl', role: 'viewer' });
  expect((await list()).map(({ action }: { action: string }) => action)).toEqual(['token.created']);
});
