// Effort as turns meet it: from the reference to the request, the decision, the turn, the session and the ledger (22 §1).
import fs from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { listProjectWorkers } from '#core/engine/definitions/find-workers.ts';
import { estimateTurn, explainRoute, listPatterns } from '#core/engine/inspect-routing.ts';
import { patchSession } from '#core/engine/manage-session.ts';
import { must, startEngine, type TestEngine } from '../support/engine.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';

const HAIKU = 'anthropic:claude-haiku-4-5';
const SONNET = 'anthropic:claude-sonnet-4-6';
/** The models of the engine's tests; haiku has efforts. */
const registry = fs
  .readFileSync(path.join(import.meta.dirname, '../support/registry.yaml'), 'utf8')
  .replace('aliases: [haiku]\n', 'aliases: [haiku]\n    efforts: [low, medium, high]\n    default_effort: medium\n');
const echo = scenario([{ match: {}, times: 'inf', respond: { text: '{{model}}' } }]);
const start = (more: Partial<Parameters<typeof startEngine>[0]> = {}) =>
  startEngine({ scenario: echo, registry, ...more });
const ledger = (t: TestEngine) => t.db.db.prepare('SELECT model, effort FROM llm_calls ORDER BY seq').all();
const sent = (t: TestEngine) => t.adapter.requests.map(({ model, effort }) => [model.id, effort]);

// Promise 22.1: `haiku:low` in a message reaches the request, the decision, the turn, the session and the ledger.
it('an effort goes from the reference into the request, the decision, the turn, the session and the ledger', async () => {
  const t = await start();
  const session = await t.session({ initial_active_model: 'sonnet' });
  const turn = await t.run(session, '@haiku:low hi');
  expect(turn).toMatchObject({ chosen_model: HAIKU, chosen_effort: 'low', per_message_override: `${HAIKU}:low` });
  expect(sent(t)).toEqual([[HAIKU, 'low']]);
  expect((await t.event('route.decided')).payload).toMatchObject({ chosen_model: HAIKU, chosen_effort: 'low' });
  expect((await t.event('llm.call_completed')).payload).toMatchObject({ effort: 'low' });
  expect(ledger(t)).toEqual([{ model: HAIKU, effort: 'low' }]);
  const view = must({ ok: true, value: await t.engine.store.sessions.view(session.id) });
  expect(view).toMatchObject({ last_model: HAIKU, last_effort: 'low' });
});

it('what the provider assumes is stored and not sent; a model without efforts has none', async () => {
  const t = await start();
  const session = await t.session({ initial_active_model: 'haiku' });
  expect(await t.run(session, 'hi')).toMatchObject({ chosen_effort: 'medium' });
  expect(await t.run(session, '@haiku:medium hi')).toMatchObject({ chosen_effort: 'medium' });
  expect(await t.run(session, '@sonnet hi')).toMatchObject({ chosen_effort: null });
  expect(sent(t)).toEqual([
    [HAIKU, null],
    [HAIKU, null],
    [SONNET, null],
  ]);
  expect(ledger(t)).toEqual([
    { model: HAIKU, effort: 'medium' },
    { model: HAIKU, effort: 'medium' },
    { model: SONNET, effort: '' },
  ]);
});

it('a sticky model keeps its effort, every call of a turn has it, and an unknown one is refused with those there are', async () => {
  const list = { tool_calls: [call('list_files', {})] };
  const t = await start({ scenario: scenario(planner(list, { text: 'end' }, { text: 'two' })) });
  const session = await t.session({ initial_active_model: null });
  const patch = (active_model: string) => patchSession(t.engine, session.id, { active_model });
  expect(await patch('haiku:high')).toMatchObject({ active_model: `${HAIKU}:high` });
  expect(await t.run(session, 'hi')).toMatchObject({ chosen_effort: 'high', llm_call_count: 2 });
  expect(sent(t)).toEqual([
    [HAIKU, 'high'],
    [HAIKU, 'high'],
  ]);
  await expect(patch('haiku:max')).rejects.toMatchObject({
    code: 'model_not_configured',
    message: `"haiku:max": ${HAIKU} has no effort "max"; it has low, medium, high`,
  });
  await expect(t.submit(session, '@haiku:max hi')).rejects.toMatchObject({
    code: 'unknown_alias',
    message: expect.stringContaining('it has low, medium, high'),
  });
});

// Promise 22.1: an effort of a routing file and of the estimate counts like that of a message.
it('a tier, a rule and a default of the routing file bring their effort along, and the estimate names it', async () => {
  const file = 'default: haiku:low\nrules: [{ when: { message_matches: think }, use: haiku:high }]';
  const t = await start({ files: { '.metis/routing.yaml': file } });
  const session = await t.session({ initial_active_model: null });
  expect(await t.run(session, 'hi')).toMatchObject({ chosen_model: HAIKU, chosen_effort: 'low' });
  expect(await t.run(session, 'think')).toMatchObject({ chosen_model: HAIKU, chosen_effort: 'high' });
  const asked = { content: 'think', per_message_override: null };
  expect(await estimateTurn(t.engine, session.id, asked)).toMatchObject({ chosen_model: HAIKU, chosen_effort: 'high' });
  const question = { text: 'hi', workspace_path: t.workspace, model: 'haiku:medium' };
  expect(await explainRoute(t.engine, question)).toMatchObject({ chosen_model: HAIKU, chosen_effort: 'medium' });
});

const ofWorkers = (t: TestEngine, session: { readonly id: string }) =>
  t.events.filter((e) => e.type === 'route.decided' && e.session_id !== session.id).map((e) => e.payload);
const oneWorker = (input: Readonly<Record<string, unknown>>) =>
  scenario(planner({ tool_calls: [delegate('the job', input)] }, { text: 'ok' }), worker('the job', { text: 'done' }));
const TIERS = 'tiers: { fast: haiku:high, balanced: sonnet, deep: opus }';

// Promise 22.1: the effort of a delegation wins over that of its tier.
it('a worker runs at the effort of its tier, and at its own where the planner asks for one', async () => {
  for (const [input, effort] of [
    [{}, 'high'],
    [{ effort: 'low' }, 'low'],
  ] as const) {
    const t = await start({ scenario: oneWorker(input), files: { '.metis/routing.yaml': TIERS } });
    const session = await t.session({ initial_active_model: 'opus' });
    expect(await t.run(session, 'go')).toMatchObject({ status: 'completed' });
    expect(ofWorkers(t, session)).toMatchObject([{ chosen_model: HAIKU, chosen_effort: effort, winner_index: 4 }]);
    const [delegation] = (await t.engine.store.delegations.list(session.id, { recursive: true, after: null, limit: 9 }))
      .rows;
    expect(delegation).toMatchObject({ resolved_model: `${HAIKU}:${effort}` });
    expect(t.adapter.requests.filter((r) => r.caller.is_worker).map((r) => r.effort)).toEqual([effort]);
  }
});

// Promise 22.1: a delegation with an effort that the model of its tier lacks fails with those it has.
it('an effort that the model of the tier lacks fails the call with those it has, and no worker is made', async () => {
  const t = await start({ scenario: oneWorker({ effort: 'max' }) });
  const session = await t.session({ initial_active_model: 'opus' });
  await t.run(session, 'go');
  expect((await t.event('delegate.failed')).payload).toMatchObject({
    worker_session_id: null,
    error_message: expect.stringContaining(`${HAIKU} has no effort "max"; it has low, medium, high`),
  });
  expect(ofWorkers(t, session)).toEqual([]);
});

// Promise 22.1: a named worker names its effort with its model or beside its tier.
it('a named worker runs at the effort of its definition, and one that its model lacks makes the definition invalid', async () => {
  const definition = (name: string, rest: string) => `name: ${name}\ninstructions: Work.\n${rest}\n`;
  const t = await start({
    config: { workers: { planner_allow_workers: ['*'] } },
    scenario: scenario(
      planner(
        { tool_calls: [call('by_model', { input: 'the job' }), call('by_tier', { input: 'the job' })] },
        { text: 'ok' },
      ),
      worker('the job', { text: 'done' }),
    ),
    files: {
      '.metis/routing.yaml': TIERS,
      'workers/by_model.yaml': definition('by_model', 'model: haiku:medium'),
      'workers/by_tier.yaml': definition('by_tier', 'tier: fast\neffort: low'),
      'workers/wrong.yaml': definition('wrong', 'model: haiku\neffort: max'),
      'workers/alone.yaml': definition('alone', 'effort: low'),
    },
  });
  const session = await t.session({ initial_active_model: 'opus' });
  expect(await t.run(session, 'go')).toMatchObject({ status: 'completed' });
  const efforts = ofWorkers(t, session).map((payload) => (payload as { chosen_effort: string }).chosen_effort);
  expect(efforts.toSorted()).toEqual(['low', 'medium']);
  const found = await listProjectWorkers(t.engine, t.workspace);
  const errors = (name: string) =>
    found.find((one) => one.name === name)?.errors.map(({ path, message }) => [path, message]);
  expect(errors('by_tier')).toEqual([]);
  expect(errors('wrong')).toEqual([
    ['effort', expect.stringContaining(`${HAIKU} has no effort "max"; it has low, medium, high`)],
  ]);
  expect(errors('alone')).toEqual([['effort', 'needs a model or a tier that it belongs to']]);
});

// Promise 22.2: outcomes of one model at two efforts are kept apart, and are recommended with their effort.
it('what is learned of a model at one effort is apart from another, and slot 4 proposes it with its effort', async () => {
  const refusal = { match: { user_contains: 'no' }, times: 'inf', respond: { text: "I'm unable to do that" } };
  const answers = scenario([refusal, { match: {}, times: 'inf', respond: { text: 'done' } }]);
  const config = { pattern: { mode: 'apply', evidence: 'any' } } as const;
  const t = await start({ learning: {}, scenario: answers, config });
  const work = async (model: string, text: string) => {
    const session = await t.session({ initial_active_model: model });
    const { id } = await t.run(session, text);
    await t.event('eval.completed', (e) => e.turn_id === id && e.payload.subject_kind === 'turn');
  };
  for (let n = 0; n < 5; n++) await work('haiku:low', 'hi');
  await work('haiku', 'no');
  const { patterns } = await listPatterns(t.engine, t.workspace, { reader: null, before: null, limit: 9 });
  expect(patterns).toMatchObject([
    {
      outcomes: [
        { model: HAIKU, effort: 'low', tier: 'fast', sample_size: 5 },
        { model: HAIKU, effort: 'medium', tier: 'fast', sample_size: 1 },
      ],
    },
  ]);
  const session = await t.session({ initial_active_model: null });
  const question = { text: 'hi', workspace_path: t.workspace, model: null };
  const { chain } = await explainRoute(t.engine, question);
  expect(chain[3]!.pattern_alternatives?.map(({ model }) => model)).toEqual([`${HAIKU}:low`, `${HAIKU}:medium`]);
  // The model of the default did badly, so five good turns of a cheaper one are enough.
  await work('sonnet', 'no');
  expect(await t.run(session, 'hi')).toMatchObject({
    chosen_model: HAIKU,
    chosen_effort: 'low',
    routing_mode: 'pattern',
  });
});
