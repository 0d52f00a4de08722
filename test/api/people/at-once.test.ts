// Two people at one moment, and names and times at their edges (23 §1, §2).
import { expect, test } from 'vitest';
import { type Answer, startServer } from '../../support/http.ts';
import { manualClock } from '../../support/manual-clock.ts';
import { call, planner, scenario } from '../../support/scenario.ts';
import { someone, startPeople } from './world.ts';

const codeOf = ({ status, body }: Answer) => `${status} ${body?.error?.code ?? ''}`.trim();

// Promise 23.8: of two admins that revoke each other at one moment, one is left.
test('two admins that revoke each other at once leave one, and one that revokes itself twice is left alone', async () => {
  for (let round = 0; round < 10; round += 1) {
    const server = await startServer();
    const first = (await server.call('POST', '/tokens', { name: 'one', role: 'admin' })).body;
    const one = someone(server, 'one', first.secret);
    const two = someone(server, 'two', (await one.call('POST', '/tokens', { name: 'two', role: 'admin' })).body.secret);
    const codes = (await Promise.all([one.call('DELETE', '/tokens/two'), two.call('DELETE', '/tokens/one')])).map(
      codeOf,
    );
    expect(codes.filter((code) => code === '200')).toHaveLength(1);
    const left = [await one.call('GET', '/tokens'), await two.call('GET', '/tokens')].map(({ status }) => status);
    expect(left.sort()).toEqual([200, 401]);
    const last = (await one.call('GET', '/sessions')).status === 200 ? one : two;
    const again = await Promise.all([1, 2].map(() => last.call('DELETE', `/tokens/${last.name}`)));
    expect(again.map(codeOf)).toEqual(['409 last_admin', '409 last_admin']);
  }
});

// Promise 23.3: no request that begins after the answer of a revocation is let in, whatever was under way.
test('requests beside a revocation are answered or refused, and none behind it is answered', async () => {
  const { server, root } = await startPeople();
  for (let round = 0; round < 10; round += 1) {
    const { secret } = (await root.call('POST', '/tokens', { name: `n${round}`, role: 'member' })).body;
    const who = someone(server, `n${round}`, secret);
    let isOver = false;
    const late: number[] = [];
    const ask = async () => {
      while (!isOver) await who.call('GET', '/sessions');
      late.push((await who.call('GET', '/sessions')).status);
    };
    const asking = [ask(), ask(), ask()];
    expect((await root.call('DELETE', `/tokens/n${round}`)).status).toBe(200);
    isOver = true;
    await Promise.all(asking);
    expect(late).toEqual([401, 401, 401]);
  }
});

// Promise 23.2: a session that is given away while it is shared anew has both changes, and beside a purge one clear answer.
test('changes of owner and share at once both hold, and beside a purge they are answered 200, 404 or 409', async () => {
  const { ann, root } = await startPeople();
  for (let round = 0; round < 10; round += 1) {
    const { id } = await ann.open({ share: 'read' });
    const answers = await Promise.all([
      root.call('PATCH', `/sessions/${id}`, { owner: 'bob' }),
      ann.call('PATCH', `/sessions/${id}`, { share: 'write' }),
    ]);
    const now = (await root.call('GET', `/sessions/${id}`)).body;
    expect(now.owner.name).toBe('bob');
    if (answers[1]!.status === 200) expect(now.share).toBe('write');
    else expect(codeOf(answers[1]!)).toBe('403 forbidden');

    const [patched, limited, purged] = await Promise.all([
      root.call('PATCH', `/sessions/${id}`, { owner: 'ann' }),
      root.call('PATCH', `/sessions/${id}`, { max_cost_usd: '1' }),
      root.call('DELETE', `/sessions/${id}?purge=true`),
    ]);
    expect(purged!.status).toBe(200);
    for (const one of [patched!, limited!])
      expect(['200', '404 not_found', '409 session_already_ended']).toContain(codeOf(one));
    expect(codeOf(await root.call('GET', `/sessions/${id}`))).toBe('404 not_found');
  }
});

// Promise 23.5: of two approvers at one moment, one answers; the other is given its name, as 200 or as 409.
test('two approvers at once: one answer counts, and both are given the name of who gave it', async () => {
  const { server, ann, bob } = await startPeople({
    scenario: scenario(
      planner({ tool_calls: [call('write_file', { path: 'a.txt', content: 'x' })] }, { text: 'done' }),
    ),
  });
  const session = await ann.open({ share: 'write', initial_active_model: 'opus' });
  await ann.call('POST', `/sessions/${session.id}/turns`, { content: 'go' });
  const { confirmation_request_id: id } = (await server.event('tool.confirmation_requested')).payload as {
    confirmation_request_id: string;
  };
  const [a, b] = await Promise.all([
    ann.call('POST', `/confirmations/${id}`, { decision: 'approve' }),
    bob.call('POST', `/confirmations/${id}`, { decision: 'reject' }),
  ]);
  const resolved = server.events.filter(({ type }) => type === 'tool.confirmation_resolved');
  expect(resolved).toHaveLength(1);
  const by = (resolved[0]!.payload as { answered_by: { name: string } }).answered_by.name;
  expect([a!.status, b!.status].sort()).toEqual([200, 409]);
  const refused = a!.status === 409 ? a! : b!;
  expect(JSON.stringify(refused.body)).toContain(by);
});

// Promise 23.7: a name is one of 64 letters, digits, _ and -: none looks like another, and a longer one is refused in short.
test('names that are long, or look like another, are refused in one short answer', async () => {
  const { root } = await startPeople();
  const names = [
    'x'.repeat(10_000),
    '\u0430nn',
    'ann\u200b',
    ' ann',
    'ann\n',
    '\uff41nn',
    'a\u0301nn',
    'ann\0',
    '',
    '__proto__ ',
  ];
  for (const name of names) {
    const answer = await root.call('POST', '/tokens', { name, role: 'admin' });
    expect([JSON.stringify(name).slice(0, 40), codeOf(answer)]).toEqual([
      JSON.stringify(name).slice(0, 40),
      '400 validation_error',
    ]);
    expect(JSON.stringify(answer.body).length).toBeLessThan(600);
  }
  for (const name of ['__proto__', 'constructor', 'toString', 'me'])
    expect((await root.call('POST', '/tokens', { name, role: 'viewer' })).status, name).toBe(201);
  expect(codeOf(await root.call('DELETE', `/tokens/${'x'.repeat(5000)}`))).toBe('400 validation_error');
  expect(codeOf(await root.call('DELETE', '/tokens/hasOwnProperty'))).toBe('404 not_found');
});

// Promise 23.3: a token ends with the millisecond that it names, and one that is made for the past is never of use.
test('a token expires at its millisecond, not after it', async () => {
  const clock = manualClock();
  const { server, root } = await startPeople({ clock });
  const at = (ms: number) => new Date(clock.now() + ms).toISOString();
  const make = async (name: string, expires_at: string) =>
    (await root.call('POST', '/tokens', { name, role: 'member', expires_at })).body.secret as string;
  const [soon, past] = [await make('soon', at(1000)), await make('past', at(-1))];
  const status = async (secret: string) => (await someone(server, '', secret).call('GET', '/sessions')).status;
  expect([await status(soon), await status(past)]).toEqual([200, 401]);
  clock.advance(999);
  expect(await status(soon)).toBe(200);
  clock.advance(1);
  expect(await status(soon)).toBe(401);
});
