// The owner in the chain of limits (23 §3): what a person owns and what a person submits.
import { expect, test } from 'vitest';
import { fromPusd, sumPusd, toPusd } from '#protocol/money.ts';
import { planner, scenario } from '../../support/scenario.ts';
import { startPeople, TOKENS } from './world.ts';

const MANY = 32;

function withLimits(ann: object, bob: object = {}) {
  return startPeople(
    { scenario: scenario(planner({ text: 'done', usage: { input_tokens: 1000, output_tokens: 100 } })) },
    {
      server: {
        auth_tokens: ['nameless-0123456789abcdef0123456789'],
        tokens: { ...TOKENS, ann: { ...TOKENS.ann, ...ann }, bob: { ...TOKENS.bob, ...bob } },
      },
      turn: { max_llm_calls: 5, max_output_tokens: 200, timeout_seconds: null },
    },
  );
}

// Promise 23.4: parallel trees of two owners on one node, neither passes its day or its month.
test('parallel trees of two owners stay within the day of one and the month of the other', async () => {
  const people = await withLimits({ daily_usd: '0.5' }, { monthly_usd: '0.8' });
  const { server, ann, bob, root } = people;
  const spent: Record<string, string[]> = { ann: [], bob: [] };
  await Promise.all(
    [ann, bob].flatMap((one) =>
      Array.from({ length: MANY }, async () => {
        const session = await one.open({ initial_active_model: 'opus' });
        const turn = await one.call('POST', `/sessions/${session.id}/turns`, { content: 'go' });
        if (turn.status !== 202) {
          expect(turn.body.error).toMatchObject({ code: 'budget_exceeded', details: { scope: 'owner' } });
          return;
        }
        const ended = await server.ended(turn.body.turn_id);
        spent[one.name]!.push(ended.total_cost_usd);
      }),
    ),
  );
  const sums = Object.fromEntries(
    Object.entries(spent).map(([name, all]) => [name, sumPusd(all.map((usd) => toPusd(usd)))]),
  );
  expect(sums.ann! > 0n && sums.ann! <= toPusd('0.5')).toBe(true);
  expect(sums.bob! > 0n && sums.bob! <= toPusd('0.8')).toBe(true);
  const refused = server.events.filter(({ type }) => type === 'budget.exceeded');
  expect(refused.length).toBeGreaterThan(0);
  expect(new Set(refused.map(({ payload }) => (payload as { scope: string }).scope))).toEqual(new Set(['owner']));
  const { data } = (await root.call('GET', '/analytics/cost?from=all&group_by=owner')).body;
  const byOwner = Object.fromEntries(
    data.map((row: { owner: { name: string }; cost_usd: string }) => [row.owner.name, row.cost_usd]),
  );
  expect(byOwner).toEqual({ ann: fromPusd(sums.ann! as never), bob: fromPusd(sums.bob! as never) });
  const { tokens } = (await root.call('GET', '/tokens')).body;
  const month = tokens.find(({ name }: { name: string }) => name === 'bob');
  expect(month.spent_this_month_usd).toBe(fromPusd(sums.bob! as never));
});

// Promise 23.2: the submitter's limit holds too.
test('a message in the session of another fits the limits of its owner and of its sender', async () => {
  const { server, ann, bob } = await withLimits({}, { daily_usd: '0.000001' });
  const session = await ann.open({ share: 'write', initial_active_model: 'opus' });
  const path = `/sessions/${session.id}/turns`;
  const own = await ann.call('POST', path, { content: 'go' });
  expect((await server.ended(own.body.turn_id)).stop_reason).toBe('end_turn');
  const theirs = await bob.call('POST', path, { content: 'go' });
  const ended = await server.ended(theirs.body.turn_id);
  expect([ended.stop_reason, ended.budget_refusal?.scope]).toEqual(['budget_exceeded', 'owner']);
});

// Promise 23.2: reports fold what would name a private session.
test('reports hold all money, and name no private session, workspace or worker of another', async () => {
  const { server, ann, bob, root } = await withLimits({});
  const hidden = await ann.open({ share: 'private', initial_active_model: 'opus' });
  const open = await bob.open({ initial_active_model: 'opus' });
  for (const [one, { id }] of [
    [ann, hidden],
    [bob, open],
  ] as const)
    await server.ended((await one.call('POST', `/sessions/${id}/turns`, { content: 'go' })).body.turn_id);
  const report = async (one: typeof ann, query: string) =>
    (await one.call('GET', `/analytics/cost?from=all&${query}`)).body;
  for (const group of [
    'session',
    'parent_session',
    'root_session',
    'session&include_workers=true',
    'session&pricing=current',
  ]) {
    const seen = await report(bob, `group_by=${group}`);
    const all = await report(root, `group_by=${group}`);
    expect(JSON.stringify(seen), group).not.toContain(hidden.id);
    expect(JSON.stringify(seen), group).toContain('"private"');
    expect(JSON.stringify(all), group).toContain(hidden.id);
    expect(seen.totals, group).toEqual(all.totals);
    expect(seen.data.length, group).toBe(2);
    expect(JSON.stringify(await report(ann, `group_by=${group}`)), group).toContain(hidden.id);
  }
  for (const name of ['session', 'parent_session']) {
    const there = await report(bob, `group_by=none&${name}=${hidden.id}`);
    const nowhere = await report(bob, `group_by=none&${name}=sess_01ARZ3NDEKTSV4RRFFQ69G5FAV`);
    expect(there.data).toEqual(nowhere.data);
  }
  const savings = (await bob.call('GET', `/analytics/savings?from=all&baseline=opus&session=${hidden.id}`)).body;
  expect(savings.data.rows_total).toBe(0);
  const reliability = (await bob.call('GET', `/analytics/reliability?from=all&session=${hidden.id}`)).body;
  expect(reliability.data).toEqual([]);
});
