// What each role may call, by the document (23 §1).
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { OPERATION_ROLES, type OperationId, type OperationRole } from '#protocol/people/rights.ts';
import { operations } from '../../support/contract.ts';
import { type Parsed, refusedUpgrade, startServer } from '../../support/http.ts';
import { call, delegate, planner, scenario, worker } from '../../support/scenario.ts';
import { startPeople, TOKENS } from './world.ts';

const UNKNOWN = 'sess_01ARZ3NDEKTSV4RRFFQ69G5FAV';
const RANK = { viewer: 0, member: 1, admin: 2 };
const LEAST: Readonly<Record<OperationRole, keyof typeof RANK>> = {
  open: 'viewer',
  viewer: 'viewer',
  member: 'member',
  owner: 'member',
  admin: 'admin',
};

test('every operation has a role in the document, and the document has every line of the table', () => {
  const inDocument = Object.fromEntries(operations.map(({ id, item }) => [id, item['x-metis-role'] ?? 'open']));
  expect(inDocument).toEqual(OPERATION_ROLES);
});

// Promise 23.1: every operation × role gets exactly what the document states, without a token 401.
test('three roles and a caller without a token get what the document states, for every operation', async () => {
  const { server, eve, ann, root } = await startPeople();
  const people = { viewer: eve, member: ann, admin: root };
  const faults: string[] = [];
  for (const { id, method, url } of operations) {
    const needed = OPERATION_ROLES[id as OperationId];
    const path = url
      .replace(/\{(session_id|worker_session_id)\}/g, UNKNOWN)
      .replace(/\{[a-z_]+\}/g, '01ARZ3NDEKTSV4RRFFQ69G5FAV');
    const body = ['POST', 'PUT', 'PATCH'].includes(method) ? {} : undefined;
    if (needed === 'open') continue;
    const nameless = await server.call(method, path, body);
    // Metrics are open on a loopback address.
    if (nameless.status !== 401 && id !== 'getMetrics') faults.push(`${id} without a token: ${nameless.status}`);
    for (const role of ['viewer', 'member', 'admin'] as const) {
      const { status, body: answer } = await people[role].call(method, path, body);
      const allowed = RANK[role] >= RANK[LEAST[needed]] || id === 'getMetrics';
      if (allowed ? status === 403 || status === 401 : status !== 403) faults.push(`${id} as ${role}: ${status}`);
      if (!allowed && answer.error.details.required_role !== needed) faults.push(`${id}: names another role`);
    }
  }
  expect(faults).toEqual([]);
});

// Promise 23.1: what is the owner's is refused to other members, and allowed to the owner and admins.
test('operations of the owner are refused in the session of another, with the role that may', async () => {
  const { ann, bob, eve, root } = await startPeople();
  const session = await ann.open();
  expect(session).toMatchObject({ owner: { id: 'file:ann', name: 'ann' }, share: 'read', caller: 'ann' });
  const faults: string[] = [];
  for (const { id, method, url } of operations) {
    if (OPERATION_ROLES[id as OperationId] !== 'owner' || !url.startsWith('/sessions/{session_id}')) continue;
    const path = url.replace('{session_id}', session.id).replace(/\{[a-z_]+\}/g, '01ARZ3NDEKTSV4RRFFQ69G5FAV');
    const bodies: Readonly<Record<string, unknown>> = {
      updateSession: { active_model: null },
      submitTurn: { content: 'x' },
      estimateTurn: { content: 'x' },
      submitDelegation: { tier: 'fast', task: 'x' },
      scoreTurn: { score: 'good' },
      forkSession: { at_turn_id: '01ARZ3NDEKTSV4RRFFQ69G5FAV', workspace: 'current' },
    };
    const body = method === 'DELETE' ? undefined : (bodies[id] ?? {});
    for (const one of [bob, eve]) {
      const { status } = await one.call(method, path, body);
      if (status !== 403) faults.push(`${id} as ${one.name}: ${status}`);
    }
  }
  expect(faults).toEqual([]);
  // Fields and parameters that need more.
  const base = `/sessions/${session.id}`;
  expect((await ann.call('PATCH', base, { owner: 'bob' })).status).toBe(403);
  expect((await ann.call('DELETE', `${base}?purge=true`)).status).toBe(403);
  expect((await ann.call('PATCH', base, { share: 'write' })).status).toBe(200);
  expect((await bob.call('PATCH', base, { share: 'private' })).status).toBe(403);
  expect((await bob.call('PATCH', base, { active_model: 'opus' })).status).toBe(200);
  expect((await eve.call('PATCH', base, { active_model: null })).status).toBe(403);
  const given = await root.call('PATCH', base, { owner: 'bob' });
  expect(given.body).toMatchObject({ owner: { id: 'file:bob', name: 'bob' }, share: 'write' });
  expect((await ann.call('PATCH', base, { share: 'read' })).status).toBe(403);
  expect((await root.call('PATCH', base, { owner: 'nobody-known' })).status).toBe(404);
});

// Promise 23.1: over WebSocket and SSE as over REST.
test('streams ask for the same rights', async () => {
  const { server, ann, bob } = await startPeople();
  const session = await ann.open({ share: 'private' });
  const socket = server.connect(`/sessions/${session.id}/stream?snapshot=true`, ann.headers);
  await socket.frame(({ type }) => type === 'snapshot');
  const url = `ws://127.0.0.1:${server.port}/sessions/${session.id}/stream`;
  expect((await refusedUpgrade(url, bob.headers)).status).toBe(404);
  expect((await refusedUpgrade(url, { authorization: 'Bearer wrong' })).status).toBe(401);
  const late = server.connect(`/sessions/${session.id}/stream`);
  late.send({ type: 'subscribe', token: bob.token });
  expect((await late.frame(({ type }) => type === 'subscribe_error')).code).toBe('not_found');
  const events = { accept: 'text/event-stream' };
  expect((await bob.call('GET', `/sessions/${session.id}/events`, undefined, events)).status).toBe(404);
});

const startNarrow = (workspace: string) =>
  startPeople(
    {},
    {
      server: {
        auth_tokens: ['nameless-0123456789abcdef0123456789'],
        tokens: { ...TOKENS, ann: { ...TOKENS.ann, workspaces: [workspace] } },
      },
    },
  );

test('a token with workspaces opens those and no others', async () => {
  const { server, nameless } = await startNarrow('/nowhere');
  const body = { workspace_path: server.workspace };
  const headers = { authorization: 'Bearer ann-secret' };
  const refused = await server.call('POST', '/sessions', body, headers);
  expect([refused.status, refused.body.error.code]).toEqual([403, 'workspace_not_allowed']);
  expect((await server.call('GET', `/workers?workspace_path=${server.workspace}`, undefined, headers)).status).toBe(
    403,
  );
  expect((await nameless.call('POST', '/sessions', body)).status).toBe(201);
});

test('a run of an experiment starts in no folder outside the workspaces of its token', async () => {
  const open = fs.mkdtempSync(path.join(os.tmpdir(), 'metis-open-'));
  onTestFinished(() => fs.rmSync(open, { recursive: true }));
  const { server, ann } = await startNarrow(open);
  const experiment = { id: 'e'.repeat(64), max_cost_usd: '1', start_path: server.workspace };
  const body = { workspace_path: open, experiment };
  const refused = await ann.call('POST', '/sessions', body);
  expect([refused.status, refused.body.error.code]).toEqual([403, 'workspace_not_allowed']);
  // A folder that the token may use, in a parameter that is none, covers none that it may not.
  for (const other of [body, { workspace_path: server.workspace }]) {
    const { status } = await ann.call('POST', `/sessions?workspace_path=${open}`, other);
    expect(status).toBe(400);
  }
});

// Promise 23.9: one person on a loopback address sees nothing of it.
test('without tokens no answer and no event has a field of people', async () => {
  const server = await startServer({ scenario: scenario(planner({ text: 'done' })) });
  const session = (await server.call('POST', '/sessions', { workspace_path: server.workspace })).body;
  const turn = (await server.call('POST', `/sessions/${session.id}/turns`, { content: 'go' })).body;
  await server.ended(turn.turn_id);
  const base = `/sessions/${session.id}`;
  const seen: unknown[] = [session, turn, ...server.events];
  for (const path of [base, '/sessions', `${base}/turns`, `${base}/messages`, `${base}/events`, `${base}/calls`])
    seen.push((await server.call('GET', path)).body);
  seen.push((await server.call('PATCH', base, { max_cost_usd: '2' })).body);
  expect(JSON.stringify(seen)).not.toMatch(/"(owner|share|submitted_by|answered_by)"/);
  expect((await server.call('GET', '/tokens/self')).body).toEqual({
    token: null,
    role: 'admin',
    required: false,
    approves_own: true,
  });
  expect((await server.call('DELETE', base)).status).toBe(200);
  expect((await server.call('GET', '/audit')).body.entries).toEqual([]);
});

/** What is about people, or is the document itself. */
const ABOUT_PEOPLE = [
  'listTokens',
  'getOwnToken',
  'listAudit',
  'getOpenApi',
  'getEventSchema',
  'getDocs',
  'getSettings',
];

// Promise 23.9: of one person on loopback 34 kinds of answer and more have no field, no row and no header of this chapter.
test('without tokens every operation that answers does so without a field of people', async () => {
  const server = await startServer({
    files: { 'workers/helper.yaml': 'instructions: Help.' },
    scenario: scenario(
      planner({ text: 'on it', tool_calls: [delegate('the job')] }, { text: 'done' }),
      worker('the job', { tool_calls: [call('write_file', { path: 'a.txt', content: 'x' })] }, { text: 'done' }),
      [{ match: {}, times: 'inf', respond: { text: 'ok' } }],
    ),
  });
  const { workspace: workspace_path } = server;
  const open = async () =>
    (await server.call('POST', '/sessions', { workspace_path, initial_active_model: 'opus' })).body.id as string;
  const id = await open();
  const { turn_id } = (await server.call('POST', `/sessions/${id}/turns`, { content: 'go' })).body;
  const asked = (await server.event('tool.confirmation_requested')).payload as { confirmation_request_id: string };
  const { workers } = (await server.call('GET', `/sessions/${id}/workers`)).body;
  const { messages } = (await server.call('GET', `/sessions/${id}/messages`)).body;
  const places: Readonly<Record<string, string>> = {
    session_id: id,
    turn_id,
    worker_session_id: workers[0].worker_session_id,
    confirmation_id: asked.confirmation_request_id,
    name: 'helper',
  };
  const bodies: Readonly<Record<string, object>> = {
    createSession: { workspace_path },
    updateSession: { max_cost_usd: '2' },
    estimateTurn: { content: 'x' },
    submitTurn: { content: 'more' },
    submitDelegation: { tier: 'fast', task: 'x' },
    answerConfirmation: { decision: 'approve' },
    scoreTurn: { score: 'good' },
    explainRoute: { workspace_path, content: 'x' },
    checkRoutingPolicy: { text: 'schema_version: 1' },
    askWhatIf: { from: 'all', tiers: {} },
    createWorkerDefinition: { workspace_path, definition: { name: 'other', instructions: 'Help.' } },
    forkSession: { at_message_id: messages[0].id, workspace: 'current' },
    setDefaultModel: { model: 'opus' },
    pruneEvents: { older_than_days: 1 },
  };
  const other = await open();
  const answered = new Set<string>();
  const faults: string[] = [];
  const last = ['answerConfirmation', 'cancelTurn', 'concludeTurn', 'endSession'];
  const rank = ({ id: operation }: { id: string }) => last.indexOf(operation);
  for (const { id: operation, method, url, item } of [...operations].sort((a, b) => rank(a) - rank(b))) {
    if (ABOUT_PEOPLE.includes(operation) || ['createToken', 'revokeToken'].includes(operation)) continue;
    const path = url.replace(/\{(\w+)\}/g, (_match, name: string) => places[name] ?? 'x');
    const query = (item.parameters ?? [])
      .filter(({ in: where, name, required }: Parsed) => where === 'query' && (required || name === 'workspace_path'))
      .map(({ name }: Parsed) => `${name}=${encodeURIComponent(name === 'with' ? other : workspace_path)}`);
    const { status, body, headers } = await server.call(method, `${path}?${query.join('&')}`, bodies[operation]);
    if (status < 300) answered.add(operation);
    const text = `${JSON.stringify(body)} ${JSON.stringify([...headers])}`;
    const found = text.match(/"(owner|share|submitted_by|answered_by|set-cookie|www-authenticate)"/);
    if (found !== null) faults.push(`${operation} ${status}: ${found[0]}`);
    if (url.startsWith('/analytics') && text.includes('"private"'))
      faults.push(`${operation} ${status}: a folded group`);
  }
  expect(faults).toEqual([]);
  expect([...answered].length).toBeGreaterThanOrEqual(34);
  expect(JSON.stringify(server.events)).not.toMatch(/"(owner|share|submitted_by|answered_by)"/);
  const db = server.db.db;
  for (const table of ['tokens', 'audit', 'owner_days'])
    expect([table, (db.prepare(`SELECT count(*) AS n FROM ${table}`).get() as { n: number }).n]).toEqual([table, 0]);
});
