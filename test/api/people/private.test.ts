// A private session exists for its owner and admins alone (23 §1).
import { expect, test } from 'vitest';
import { call, delegate, planner, scenario, worker } from '../../support/scenario.ts';
import { until } from '../../support/until.ts';
import { type People, type Someone, startPeople } from './world.ts';

const SECRET = 'the-marked-secret';

/** A private session of ann with a worker, a pending approval, a failed answer and costs. */
async function openPrivate() {
  const people = await startPeople({
    files: { 'workers/helper.yaml': 'instructions: Help.' },
    scenario: scenario(
      planner({ text: SECRET, tool_calls: [delegate(`task ${SECRET}`)] }, { text: 'done' }),
      worker(SECRET, { tool_calls: [call('write_file', { path: 'a.txt', content: SECRET })] }, { text: SECRET }),
    ),
  });
  const { server, ann } = people;
  const session = await ann.open({ share: 'private', client: SECRET, initial_active_model: 'opus' });
  const turn = (await ann.call('POST', `/sessions/${session.id}/turns`, { content: SECRET })).body;
  const asked = (await server.event('tool.confirmation_requested')).payload as { confirmation_request_id: string };
  const { workers } = (await ann.call('GET', `/sessions/${session.id}/workers`)).body;
  return { ...people, session, turn, asked, worker: workers[0].worker_session_id as string };
}

interface Ids {
  readonly id: string;
  readonly workerId: string;
  readonly turn: string;
  readonly confirmation: string;
}

/** Paths of every kind of read, of one session and of all. */
function readsOf({ server }: People, { id, workerId, turn, confirmation }: Ids): string[] {
  const base = `/sessions/${id}`;
  return [
    base,
    `/sessions/${workerId}`,
    `${base}/turns`,
    `${base}/turns/${turn}`,
    `${base}/messages`,
    `${base}/messages?limit=1`,
    `${base}/events`,
    `${base}/events?include_worker_sessions=true&limit=1`,
    `${base}/events?cursor=nonsense`,
    `${base}/turns?cursor=nonsense`,
    `${base}/calls`,
    `${base}/workers?recursive=true`,
    `${base}/stream`,
    `/sessions/${workerId}/messages`,
    `/delegations/${workerId}/diff`,
    `/delegations/${workerId}/files`,
    `/confirmations/${confirmation}`,
    `/confirmations?session_id=${id}`,
    `/workers?workspace_path=${server.workspace}&session_id=${id}`,
  ];
}

const UNKNOWN = 'sess_01ARZ3NDEKTSV4RRFFQ69G5FAV';
const UNKNOWN_ULID = '01ARZ3NDEKTSV4RRFFQ69G5FAV';

/** Status and body with every id of the request taken out, so that two answers can be compared. */
function shapeOf({ status, body }: Awaited<ReturnType<Someone['call']>>, ids: readonly string[]): string {
  let text = JSON.stringify(body);
  for (const id of ids) text = text.replaceAll(id, 'ID');
  return `${status} ${text}`;
}

// Promise 23.2: reads of a private session by another member answer as those of an unknown id.
test('every read of a private session is answered to others as an unknown id, whatever else the request has', async () => {
  const world = await openPrivate();
  const { bob, eve, ann, session, worker: workerId, turn, asked } = world;
  const real = readsOf(world, {
    id: session.id,
    workerId,
    turn: turn.turn_id,
    confirmation: asked.confirmation_request_id,
  });
  const made = readsOf(world, { id: UNKNOWN, workerId: UNKNOWN, turn: UNKNOWN_ULID, confirmation: UNKNOWN_ULID });
  const ids = [session.id, workerId, turn.turn_id, asked.confirmation_request_id, UNKNOWN, UNKNOWN_ULID];
  for (const one of [bob, eve])
    for (const [i, path] of real.entries()) {
      const [there, nowhere] = [await one.call('GET', path), await one.call('GET', made[i]!)];
      expect(shapeOf(there, ids), `${one.name} ${path}`).toBe(shapeOf(nowhere, ids));
      expect(JSON.stringify(there.body), path).not.toContain(SECRET);
    }
  // Writes too.
  for (const [method, path, body] of [
    ['PATCH', `/sessions/ID`, { active_model: null }],
    ['POST', `/sessions/ID/turns`, { content: 'x' }],
    ['POST', `/sessions/ID/turns/${UNKNOWN_ULID}/cancel`, {}],
    ['DELETE', `/sessions/ID`, undefined],
  ] as const) {
    const there = await bob.call(method, path.replace('ID', session.id), body);
    const nowhere = await bob.call(method, path.replace('ID', UNKNOWN), body);
    expect(shapeOf(there, ids), `${method} ${path}`).toBe(shapeOf(nowhere, ids));
  }
  expect((await ann.call('GET', `/sessions/${session.id}`)).status).toBe(200);
});

// Promise 23.2: lists at limit 1 and reports show nothing of it.
test('lists, pages, searches and approvals pass over it', async () => {
  const world = await openPrivate();
  const { bob, ann, root, session } = world;
  const open = [await bob.open(), await ann.open({ share: 'read' })];
  const paths = [
    '/sessions',
    '/sessions?limit=1',
    '/sessions?include_workers=true',
    `/sessions?parent_session_id=${session.id}`,
    `/sessions?q=${SECRET}`,
    '/sessions?owner=ann',
    '/sessions?status=running',
    '/confirmations',
    '/confirmations?status=all&limit=1',
    '/worktrees',
  ];
  for (const path of paths) {
    const text = JSON.stringify((await bob.call('GET', path)).body);
    expect(text, path).not.toContain(session.id);
    expect(text, path).not.toContain(SECRET);
  }
  const pages: string[] = [];
  for (let cursor = ''; ; ) {
    const { body } = await bob.call('GET', `/sessions?limit=1${cursor === '' ? '' : `&cursor=${cursor}`}`);
    pages.push(...body.sessions.map(({ id }: { id: string }) => id));
    if (body.next_cursor === null) break;
    cursor = body.next_cursor;
  }
  expect(pages.sort()).toEqual(open.map(({ id }) => id).sort());
  const mine = (await ann.call('GET', '/sessions?owner=me')).body.sessions.map(({ id }: { id: string }) => id);
  expect(mine).toContain(session.id);
  expect((await root.call('GET', '/confirmations')).body.confirmations).toHaveLength(1);
  const { entries } = (await root.call('GET', '/audit')).body;
  expect(entries).toEqual([]);
  await root.call('GET', `/sessions/${session.id}`);
  await until(async () => (await root.call('GET', '/audit')).body.entries.length === 1);
  expect((await root.call('GET', '/audit')).body.entries[0]).toMatchObject({
    action: 'session.private_read',
    actor: { id: 'file:root', name: 'root' },
    subject: session.id,
  });
});

// Promise 23.2: shared for reading they do, writing is refused; shared for writing it works.
test('shared for reading it is read and not written; shared for writing it is both, and made private its streams end', async () => {
  const { server, ann, bob, session } = await openPrivate();
  const base = `/sessions/${session.id}`;
  const read = () => bob.call('GET', base);
  expect((await read()).status).toBe(404);
  expect((await ann.call('PATCH', base, { share: 'read' })).body.share).toBe('read');
  expect((await read()).body.owner).toEqual({ id: 'file:ann', name: 'ann' });
  const workers = (await bob.call('GET', `${base}/workers`)).body.workers;
  expect((await bob.call('GET', `/sessions/${workers[0].worker_session_id}`)).body.share).toBe('read');
  expect((await bob.call('POST', `${base}/turns`, { content: 'x', if_busy: 'steer' })).status).toBe(403);
  await ann.call('PATCH', base, { share: 'write' });
  const other = await ann.open({ share: 'write' });
  const submitted = await bob.call('POST', `/sessions/${other.id}/turns`, { content: 'mine' });
  expect(submitted.status).toBe(202);
  const turn = (await ann.call('GET', `/sessions/${other.id}/turns/${submitted.body.turn_id}`)).body;
  expect(turn.submitted_by).toEqual({ id: 'file:bob', name: 'bob' });
  const socket = server.connect(`${base}/stream?snapshot=true`, bob.headers);
  await socket.frame(({ type }) => type === 'snapshot');
  await ann.call('PATCH', base, { share: 'private' });
  expect((await socket.closed).code).toBe(1008);
  expect((await read()).status).toBe(404);
});

// Promise 23.5: the same decision by two approvers is 200 with the first's name, another one 409 with it.
test('the first answer to an approval has a name, and later ones are given it', async () => {
  const { server, ann, bob, root, session, asked } = await openPrivate();
  await ann.call('PATCH', `/sessions/${session.id}`, { share: 'write' });
  const path = `/confirmations/${asked.confirmation_request_id}`;
  const first = await bob.call('POST', path, { decision: 'approve' });
  expect(first.body).toMatchObject({ applied: true, answered_by: { id: 'file:bob', name: 'bob' } });
  const second = await ann.call('POST', path, { decision: 'approve' });
  expect([second.status, second.body]).toMatchObject([200, { applied: false, answered_by: { name: 'bob' } }]);
  const third = await ann.call('POST', path, { decision: 'reject' });
  expect([third.status, third.body.error]).toMatchObject([
    409,
    { code: 'confirmation_already_resolved', details: { answered_by: { name: 'bob' } } },
  ]);
  expect(third.body.error.message).toContain('by bob');
  expect((await server.event('tool.confirmation_resolved')).payload).toMatchObject({ answered_by: { name: 'bob' } });
  expect((await ann.call('GET', path)).body.answered_by).toEqual({ id: 'file:bob', name: 'bob' });
  const { entries } = (await root.call('GET', '/audit')).body;
  const answered = entries.filter(({ action }: { action: string }) => action === 'approval.answered');
  expect(answered).toMatchObject([{ actor: { name: 'bob' }, details: { decision: 'approve' } }]);
});

// Promise 23.2: what `server.default_share` makes private is seen by its owner and admins alone; a request may say otherwise.
test('a new session is shared as the configuration says, or as its request', async () => {
  const { ann, bob, root } = await startPeople({}, { server: { default_share: 'private' } });
  const closed = await ann.open();
  const open = await ann.open({ share: 'read' });
  expect([closed.share, open.share]).toEqual(['private', 'read']);
  const readBy = async (who: Someone, { id }: { id: string }) => (await who.call('GET', `/sessions/${id}`)).status;
  expect([await readBy(ann, closed), await readBy(root, closed), await readBy(bob, closed)]).toEqual([200, 200, 404]);
  expect(await readBy(bob, open)).toBe(200);
});

test('with approvals.own off a member does not approve calls of its own sessions', async () => {
  const people = await startPeople(
    {
      scenario: scenario(
        planner({ tool_calls: [call('write_file', { path: 'a.txt', content: 'x' })] }, { text: 'ok' }),
      ),
    },
    { approvals: { own: false } },
  );
  const { server, ann, bob } = people;
  const session = await ann.open({ share: 'write' });
  await ann.call('POST', `/sessions/${session.id}/turns`, { content: 'go' });
  const { confirmation_request_id: id } = (await server.event('tool.confirmation_requested')).payload as {
    confirmation_request_id: string;
  };
  expect((await ann.call('POST', `/confirmations/${id}`, { decision: 'approve' })).status).toBe(403);
  expect((await ann.call('GET', '/tokens/self')).body.approves_own).toBe(false);
  expect((await bob.call('POST', `/confirmations/${id}`, { decision: 'approve' })).status).toBe(200);
});

// Promise 23.2: 300 random reads by another member show nothing of it.
test('300 random reads of another member, with foreign cursors, hold no text and no id of it', async () => {
  const world = await openPrivate();
  const { ann, bob, session, worker: workerId, turn, asked } = world;
  for (let i = 0; i < 3; i++) await bob.open();
  const ids = { id: session.id, workerId, turn: turn.turn_id, confirmation: asked.confirmation_request_id };
  const foreign: string[] = [];
  for (const path of ['/sessions?limit=1', '/confirmations?limit=1', `/sessions/${session.id}/events?limit=1`])
    foreign.push((await ann.call('GET', path)).body.next_cursor ?? 'none');
  const reports = ['session', 'parent_session', 'root_session', 'workspace', 'worker_name', 'owner', 'caller'];
  const paths = [
    ...readsOf(world, ids),
    '/sessions?limit=1',
    '/sessions?include_workers=true&limit=2',
    `/sessions?q=${SECRET}`,
    '/confirmations?status=all&limit=1',
    '/worktrees',
    ...reports.map((group) => `/analytics/cost?from=all&group_by=${group}`),
    '/analytics/verified?from=all&group_by=worker_name',
    `/analytics/routing?from=all&session=${session.id}`,
  ];
  let seed = 23;
  const draw = (most: number) => {
    seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648;
    return seed % most;
  };
  for (let i = 0; i < 300; i++) {
    const path = paths[draw(paths.length)]!;
    const cursor = draw(3) === 0 ? `${path.includes('?') ? '&' : '?'}cursor=${foreign[draw(foreign.length)]}` : '';
    const { body } = await bob.call('GET', `${path}${cursor}`);
    const text = JSON.stringify(body?.error ? { ...body.error, message: '' } : body);
    expect(text, `${path}${cursor}`).not.toContain(SECRET);
    for (const id of body?.error ? [] : [session.id, workerId, turn.turn_id])
      expect(text, `${path}${cursor}`).not.toContain(id);
  }
});
