// What is left of a private session elsewhere: what was learned, its forks, and the rights at the other doors (23 §1, §4).
import { expect, test } from 'vitest';
import { planner, scenario } from '../../support/scenario.ts';
import { until } from '../../support/until.ts';
import { jsonOf, startGateway } from '../gateway/world.ts';
import { type Someone, startPeople, TOKENS } from './world.ts';

const ANSWERS = scenario(planner({ text: 'done' }), [{ match: {}, times: 'inf', respond: { text: 'more' } }]);

async function runTurn(who: Someone, session: { readonly id: string }, content: string): Promise<void> {
  const { turn_id } = (await who.call('POST', `/sessions/${session.id}/turns`, { content })).body;
  await until(
    async () => (await who.call('GET', `/sessions/${session.id}/turns/${turn_id}`)).body.status === 'completed',
  );
}

// Promise 23.2: what was learned of private sessions alone is shown to their owner and admins.
test('shapes and models of private sessions alone are in no pattern and no report for others', async () => {
  const { server, ann, bob, eve, root } = await startPeople({ scenario: ANSWERS, learning: {} });
  const secret = await ann.open({ share: 'private', initial_active_model: 'opus' });
  await runTurn(ann, secret, 'fix the bug');
  const shared = await ann.open({ share: 'read', initial_active_model: 'opus' });
  await runTurn(ann, shared, 'write docs');
  const cheap = await ann.open({ share: 'private', initial_active_model: 'haiku' });
  await runTurn(ann, cheap, 'write docs');
  const where = `workspace_path=${encodeURIComponent(server.workspace)}`;
  const modelsOf = async (who: Someone) => {
    const { patterns } = (await who.call('GET', `/patterns?${where}`)).body;
    return patterns.map(({ outcomes }: { outcomes: { model: string }[] }) => outcomes.length).sort();
  };
  const shapesOf = async (who: Someone) => (await who.call('GET', `/analytics/quality?${where}`)).body.data.shapes;
  await until(async () => (await modelsOf(root)).join() === '1,2');
  expect([await modelsOf(ann), await shapesOf(ann), await shapesOf(root)]).toEqual([[1, 2], 2, 2]);
  for (const other of [bob, eve]) expect([await modelsOf(other), await shapesOf(other)]).toEqual([[1], 1]);
  const paged = (await bob.call('GET', `/patterns?${where}&limit=1`)).body;
  expect([paged.patterns.length, paged.next_cursor]).toEqual([1, null]);
});

// Promise 23.2: the other bill of a workspace of private sessions alone names none of their decisions to others.
test('the other bill of a workspace counts no decisions where all its sessions are private ones of others', async () => {
  const { server, ann, bob, root } = await startPeople({ scenario: ANSWERS });
  await runTurn(ann, await ann.open({ share: 'private', initial_active_model: 'opus' }), 'fix the bug');
  const body = { from: 'all', models: { opus: 'haiku' }, workspace_path: server.workspace };
  const billOf = async (who: Someone) => {
    const { decisions, changed, actual_usd } = (await who.call('POST', '/analytics/what-if', body)).body;
    return { decisions: decisions.changed, changed: changed.length, is_free: actual_usd === '0' };
  };
  await until(async () => !(await billOf(root)).is_free);
  for (const who of [ann, root]) expect(await billOf(who)).toMatchObject({ decisions: 1, changed: 1 });
  expect(await billOf(bob)).toEqual({ decisions: 0, changed: 0, is_free: true });
  await runTurn(bob, await bob.open({ initial_active_model: 'opus' }), 'write docs');
  await until(async () => (await billOf(bob)).decisions === 2);
});

async function lastMessage(who: Someone, session: { readonly id: string }): Promise<string> {
  return (await who.call('GET', `/sessions/${session.id}/messages`)).body.messages.at(-1).id;
}

// Promise 23.2: a fork that others may read does not name its private original.
test('a fork that is shared names its private original to those who see it alone', async () => {
  const { server, ann, bob, root } = await startPeople({ scenario: ANSWERS });
  const origin = await ann.open({ share: 'private' });
  await runTurn(ann, origin, 'go');
  const body = { at_message_id: await lastMessage(ann, origin), workspace: 'current' };
  const { session: fork } = (await ann.call('POST', `/sessions/${origin.id}/fork`, body)).body;
  await ann.call('PATCH', `/sessions/${fork.id}`, { share: 'read' });
  for (const [who, expected] of [
    [ann, origin.id],
    [root, origin.id],
    [bob, undefined],
  ] as const) {
    const one = (await who.call('GET', `/sessions/${fork.id}`)).body;
    expect(one.forked_from?.session_id, who.name).toBe(expected);
    const { sessions } = (await who.call('GET', '/sessions')).body;
    const listed = sessions.find(({ id }: { id: string }) => id === fork.id);
    expect(listed.forked_from?.session_id, who.name).toBe(expected);
    const socket = server.connect(`/sessions/${fork.id}/stream?snapshot=true`, who.headers);
    const snapshot = await socket.frame(({ type }) => type === 'snapshot');
    expect(JSON.stringify(snapshot).includes(origin.id), who.name).toBe(expected !== undefined);
  }
  // The fork of the fork begins in the private original too.
  await ann.call('PATCH', `/sessions/${fork.id}`, { share: 'write' });
  const again = (await bob.call('POST', `/sessions/${fork.id}/fork`, body)).body;
  expect([again.session?.owner.name, again.session?.forked_from]).toEqual(['bob', null]);
});

// Promise 23.2: a purge copies the prefix into the owner's forks, and ends those of others.
test('at a purge the fork of its owner keeps its beginning, that of another one ends without it', async () => {
  const { ann, bob, root } = await startPeople({ scenario: ANSWERS });
  const origin = await ann.open({ share: 'read' });
  await runTurn(ann, origin, 'the purged words');
  const body = { at_message_id: await lastMessage(ann, origin), workspace: 'current' };
  await ann.call('PATCH', `/sessions/${origin.id}`, { share: 'write' });
  const forkBy = async (who: Someone, id: string) =>
    (await who.call('POST', `/sessions/${id}/fork`, body)).body.session;
  const own = await forkBy(ann, origin.id);
  const foreign = await forkBy(bob, origin.id);
  await runTurn(bob, foreign, 'on');
  const cut = { ...body, at_message_id: await lastMessage(bob, foreign) };
  const below = (await bob.call('POST', `/sessions/${foreign.id}/fork`, cut)).body.session;
  const compare = (who: Someone, id: string) => who.call('GET', `/sessions/${own.id}/compare?with=${id}`);
  expect((await compare(root, foreign.id)).body.shared.messages).toBeGreaterThan(0);
  expect((await root.call('DELETE', `/sessions/${origin.id}?purge=true`)).status).toBe(200);
  const status = async (id: string) => (await root.call('GET', `/sessions/${id}`)).body.status;
  expect([await status(own.id), await status(foreign.id), await status(below.id)]).toEqual(['idle', 'ended', 'ended']);
  expect((await compare(root, foreign.id)).body.shared.messages).toBe(0);
  await runTurn(ann, own, 'on');
});

// Promise 23.1: `workspaces` of a token holds at the gateway as well.
test('at /v1 a token with workspaces opens those and no others', async () => {
  const tokens = { ...TOKENS, ann: { ...TOKENS.ann, workspaces: ['/nowhere'] } };
  const { post, folder } = await startGateway(undefined, { config: { server: { tokens } } });
  const call = { model: 'claude-opus-4-7', max_tokens: 50, messages: [{ role: 'user', content: 'hello' }] };
  const send = (name: string) =>
    post('/v1/messages', call, { authorization: `Bearer ${name}-secret`, 'x-metis-workspace': folder });
  const refused = await send('ann');
  expect([refused.status, (await jsonOf(refused)).error.message]).toEqual([
    400,
    expect.stringContaining('the token of this request may not use'),
  ]);
});

// Promise 23.1: `workspaces` of a token holds for a fork, which opens a session in the workspace of its original.
test('a token with workspaces makes no fork in another workspace, also of a session that is shared for writing', async () => {
  const tokens = { ...TOKENS, bob: { ...TOKENS.bob, workspaces: ['/nowhere'] } };
  const { ann, bob } = await startPeople({ scenario: ANSWERS }, { server: { tokens } });
  const origin = await ann.open({ share: 'write' });
  await runTurn(bob, origin, 'go');
  const body = { at_message_id: await lastMessage(ann, origin), workspace: 'current' };
  const forkBy = (who: Someone, over: object) => who.call('POST', `/sessions/${origin.id}/fork`, { ...body, ...over });
  for (const over of [{}, { dry_run: true }, { workspace: 'worktree' }]) {
    const { status, body: answer } = await forkBy(bob, over);
    expect([status, answer.error.code]).toEqual([403, 'workspace_not_allowed']);
  }
  expect((await bob.call('GET', '/sessions?owner=me')).body.sessions).toEqual([]);
  expect((await forkBy(bob, { workspace: 'none' })).status).toBe(201);
  expect((await forkBy(ann, {})).status).toBe(201);
});

// Promise 23.1: a token that is refused in a WebSocket frame is in the audit.
test('a wrong token in the first frame of a socket is recorded as a refused login', async () => {
  const { server, ann, root } = await startPeople();
  const session = await ann.open();
  const socket = server.connect(`/sessions/${session.id}/stream`);
  socket.send({ type: 'subscribe', token: 'wrong' });
  expect((await socket.frame(({ type }) => type === 'subscribe_error')).code).toBe('unauthorized');
  await until(async () => (await root.call('GET', '/audit')).body.entries.length === 1);
  const [entry] = (await root.call('GET', '/audit')).body.entries;
  expect(entry).toMatchObject({ action: 'login.refused', actor: null });
  expect(JSON.stringify(entry)).not.toContain('wrong');
});
