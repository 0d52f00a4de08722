// Routing as turns meet it: refusals, hot reload, workers, outages, money (03, 04 §10).
import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { cancelTurn } from '#core/engine/control-turn.ts';
import { createSession, patchSession } from '#core/engine/manage-session.ts';
import { usableAdapters } from '#core/policy/registry/adapter-config.ts';
import { parseRegistry } from '#core/policy/registry/model-registry.ts';
import type { AnyEvent } from '#protocol/event.ts';
import type { PolicyEvaluation, RouteDecision } from '#protocol/route.ts';
import { type LogLine, recordingLogger } from '../store/suite/world.ts';
import { type EngineOptions, must, startEngine, type TestEngine } from '../support/engine.ts';
import { type ManualClock, manualClock } from '../support/manual-clock.ts';
import { call, delegate, planner, scenario, worker } from '../support/scenario.ts';

const OPUS = 'anthropic:claude-opus-4-7';
const SONNET = 'anthropic:claude-sonnet-4-6';
const HAIKU = 'anthropic:claude-haiku-4-5';
const GPT = 'openai:gpt-5';
const PNG = Buffer.from('89504e470d0a1a0a0000000d49484452', 'hex');
const picture = {
  type: 'image' as const,
  source: { kind: 'base64' as const, data: PNG.toString('base64') },
  media_type: 'image/png',
};
const registry = fs.readFileSync(path.join(import.meta.dirname, '../support/registry.yaml'), 'utf8');
const echo = scenario([{ match: {}, times: 'inf', respond: { text: '{{model}}' } }]);
const FILE = '.metis/routing.yaml';

const decisions = (t: TestEngine, match: (e: AnyEvent) => boolean = () => true) =>
  t.events.filter((e) => e.type === 'route.decided' && match(e as AnyEvent)).map((e) => e.payload as RouteDecision);
const ofWorkers = (t: TestEngine, session: { id: string }) => decisions(t, (e) => e.session_id !== session.id);
const short = ({ policy, verdict, candidate_model }: PolicyEvaluation) => [policy, verdict, candidate_model];
const put = (t: TestEngine, text: string) => {
  fs.mkdirSync(path.join(t.workspace, '.metis'), { recursive: true });
  fs.writeFileSync(path.join(t.workspace, FILE), text);
};
/** A planner that delegates once, and what the worker then says. */
const oneWorker = (input: object = {}) =>
  scenario(
    planner({ tool_calls: [delegate('the job', { ...input })] }, { text: 'ok' }),
    worker('the job', { text: 'done' }),
  );

describe('a message with @', () => {
  // Promise 03.2: a backslash keeps an @ literal, and an @ inside a text is text.
  it('is escaped by a backslash, and means nothing inside a text', async () => {
    const t = await startEngine({ scenario: echo });
    const session = await t.session({ initial_active_model: 'sonnet' });
    await t.run(session, '\\@haiku hi');
    await t.run(session, 'mail @haiku now');
    const users = (await t.engine.store.messages.history(session.id)).filter((m) => m.role === 'user');
    expect(users.map((m) => m.content)).toEqual([
      [{ type: 'text', text: '@haiku hi' }],
      [{ type: 'text', text: 'mail @haiku now' }],
    ]);
    for (const { chain, chosen_model } of decisions(t)) {
      expect(chosen_model).toBe(SONNET);
      expect(chain[0]!.verdict).toBe('not_applicable');
    }
  });
});

describe('a refused turn', () => {
  // Promise 03.6: a sticky model without vision refuses a picture, naming what could serve; one event, no call.
  it('names what would have served in place of a sticky model without vision, and calls nobody', async () => {
    const t = await startEngine({ scenario: echo });
    const session = await t.session({ initial_active_model: 'gpt' });
    await expect(t.submit(session, [{ type: 'text', text: 'look' }, picture])).rejects.toMatchObject({
      status: 422,
      code: 'explicit_model_rejected',
      details: {
        source: 'manual_sticky',
        model: GPT,
        validation_failure: 'no_vision_support',
        would_fall_back_to: SONNET,
      },
    });
    expect(t.typesOf(session.id)).toEqual(['session.created', 'route.decided']);
    expect(decisions(t)).toMatchObject([{ refused: 'explicit_model_rejected', chosen_model: '', winner_index: 6 }]);
    expect(t.adapter.requests).toEqual([]);
    expect((await t.run(session, 'no picture')).status).toBe('completed');
  });

  // Promise 03.7: with all providers out the caller reads what was tried, in order, and only that decision is stored.
  it('with every provider out lists what was tried in the order of the chain and stores that event alone', async () => {
    const t = await startEngine({
      scenario: scenario([{ match: {}, times: 'inf', respond: { error: { error_class: 'auth' } } }]),
      registry: registry.replaceAll('openai:gpt-5', 'anthropic:gpt-5'),
      files: { [FILE]: 'default: haiku\nrules:\n  - { name: all, when: { not: { has_images: true } }, use: gpt }' },
    });
    const session = await t.session({ initial_active_model: null });
    expect(await t.run(session, 'hi')).toMatchObject({ status: 'failed', error_class: 'auth' });
    const before = t.rows();
    await expect(t.submit(session, '@opus hi')).rejects.toMatchObject({
      status: 503,
      code: 'routing_failed',
      message: expect.stringContaining('anthropic rejected the key or account that the server has for it'),
      details: {
        tried: [
          { model: OPUS, policy: 'per_message_override', rule_name: null, reason: 'provider_unavailable' },
          { model: 'anthropic:gpt-5', policy: 'rule', rule_name: 'all', reason: 'provider_unavailable' },
          { model: HAIKU, policy: 'workspace_default', rule_name: null, reason: 'provider_unavailable' },
          { model: SONNET, policy: 'global_default', rule_name: null, reason: 'provider_unavailable' },
        ],
        alternative_providers_configured: [],
      },
    });
    expect(t.rows()).toEqual({ ...before, events: before.events! + 1 });
    expect(t.events.at(-1)).toMatchObject({ type: 'route.decided', parent_event_id: null });
    expect(decisions(t).at(-1)).toMatchObject({ refused: 'routing_failed', chosen_model: '', winner_index: -1 });
    expect(decisions(t).at(-1)!.chain).toHaveLength(7);
    expect(await t.engine.store.sessions.view(session.id)).toMatchObject({ status: 'idle', current_turn_id: null });
  });
});

describe('an image earlier in the history', () => {
  // Promise 03.8: a picture earlier in the session rules out text-only models, not the condition on the new message.
  it('rules out text-only models while the condition has_images looks at the new message', async () => {
    const t = await startEngine({
      scenario: echo,
      files: { [FILE]: 'default: gpt\nrules:\n  - { name: pictures, when: { has_images: true }, use: opus }' },
    });
    const session = await t.session({ initial_active_model: null });
    expect((await t.run(session, [{ type: 'text', text: 'look' }, picture])).chosen_model).toBe(OPUS);
    expect((await t.run(session, 'and now?')).chosen_model).toBe(SONNET);
    const [, second] = decisions(t);
    expect(second!.chain[2]).toMatchObject({ verdict: 'not_applicable', reason: 'no rule matched this turn' });
    expect(second!.chain[5]).toMatchObject({ candidate_model: GPT, validation_failure: 'no_vision_support' });
  });
});

describe('the lock of a turn', () => {
  // Promise 03.10: a running turn keeps its model through policy edits and swaps; the last swap decides the next turn, also after a cancel.
  it('holds through every call while policy and sticky model change; the last change decides the next turn', async () => {
    const list = { tool_calls: [call('list_files', {})], delay_ms: 20 };
    const t = await startEngine({
      files: { [FILE]: 'default: haiku' },
      scenario: scenario(planner(list, list, { text: 'end' }), [
        { match: { turn: 2 }, respond: { text: 'two' } },
        { match: { turn: 3 }, respond: { hang: true } },
        { match: { turn: 4 }, respond: { text: 'four' } },
      ]),
    });
    const session = await t.session({ initial_active_model: null });
    const first = await t.submit(session, 'go');
    await t.event('tool.completed');
    put(t, 'default: opus');
    const queued = { swap_queued: true, swap_queued_until_turn: first };
    expect(await patchSession(t.engine, session.id, { active_model: 'sonnet' })).toMatchObject(queued);
    expect(await patchSession(t.engine, session.id, { active_model: 'gpt' })).toMatchObject(queued);
    await t.ended(first);
    expect(t.adapter.requests.map((r) => r.model.id)).toEqual([HAIKU, HAIKU, HAIKU]);
    expect(decisions(t)).toHaveLength(1);
    expect((await t.run(session, 'two')).chosen_model).toBe(GPT);

    const third = await t.submit(session, 'three');
    await patchSession(t.engine, session.id, { active_model: null });
    await t.event('llm.call_started', (e) => e.turn_id === third);
    await cancelTurn(t.engine, session.id, third, null);
    expect(await t.ended(third)).toMatchObject({ status: 'cancelled', chosen_model: GPT });
    expect(await t.engine.store.sessions.view(session.id)).toMatchObject({ active_model: null, swap_queued: false });
    expect((await t.run(session, 'four')).chosen_model).toBe(OPUS);
  });
});

describe('policy files on disk', () => {
  const BROKEN = [
    'tiers: { fast: haiku }',
    'rules:',
    '  - { name: a, when: { message_matches: "(" }, use: opus }',
    '  - { name: b, when: { made_up: 1 }, use: opus }',
  ].join('\n');
  const invalid = (t: TestEngine) => t.events.filter((e) => e.type === 'routing.policy_invalid').map((e) => e.payload);

  // Promise 03.11: a broken file is reported once with every fault, the last good one stays in force, a mended one holds at once.
  it('broken, keep the last good parse in force and are reported once with every fault; mended, hold at once', async () => {
    const t = await startEngine({ scenario: echo, files: { [FILE]: 'default: haiku' } });
    const session = await t.session({ initial_active_model: null });
    const good = session.routing_policy_version;
    put(t, BROKEN);
    for (let i = 0; i < 3; i++) expect((await t.run(session, 'go')).chosen_model).toBe(HAIKU);
    expect(invalid(t)).toEqual([
      {
        policy_path: path.join(t.workspace, FILE),
        errors: [
          'tiers: must define all three slots',
          expect.stringMatching(/^rules\[0\]\.when\.message_matches: /),
          'rules[1].when: unknown predicate key(s) [made_up]',
        ],
        using_last_known_good: true,
      },
    ]);
    expect((await t.engine.store.sessions.view(session.id))!.routing_policy_version).toBe(good);
    put(t, 'default: opus');
    expect((await t.run(session, 'go')).chosen_model).toBe(OPUS);
    expect((await t.engine.store.sessions.view(session.id))!.routing_policy_version).not.toBe(good);
    fs.rmSync(path.join(t.workspace, FILE));
    expect((await t.run(session, 'go')).chosen_model).toBe(SONNET);
    expect((await t.engine.store.sessions.view(session.id))!.routing_policy_version).toBeNull();
    expect(invalid(t)).toHaveLength(1);
  });

  it('broken from the start count as absent, and say so', async () => {
    const logged: LogLine[] = [];
    const log = recordingLogger(logged);
    const t = await startEngine({ scenario: echo, log, files: { [FILE]: 'default: nobody' } });
    const session = await t.session({ initial_active_model: null });
    expect((await t.run(session, 'go')).chosen_model).toBe(SONNET);
    expect(invalid(t)).toMatchObject([{ using_last_known_good: false }]);
    const { chain } = decisions(t)[0]!;
    const said = 'workspace file invalid: default: "nobody" is neither a model id nor an alias of this server';
    expect(chain[2]!.reason).toMatch(`no rules configured; ${said}`);
    expect(chain[5]!.reason).toMatch(`no workspace default configured; ${said}`);
    expect(chain[6]!.reason).toBe('global default fallback');
    const warned = logged.filter((line) => line.message.includes('a routing file is invalid'));
    expect(warned).toMatchObject([{ level: 'warn', fields: { policy_path: path.join(t.workspace, FILE) } }]);
  });

  // Promise 03.11: a broken file is reported to each session that meets it, once.
  it('of all workspaces tell each session once of the broken global one and of its own', async () => {
    const t = await startEngine({ scenario: echo });
    const other = path.join(t.folder, 'other');
    fs.mkdirSync(other);
    const input = { initial_active_model: null, max_cost_usd: null, on_reached: null, approval_mode: null };
    const here = await t.session(input);
    const there = await createSession(t.engine, { ...input, workspace_path: other });
    fs.writeFileSync(t.config.routing.global_path, 'rules: 5');
    put(t, 'rules: 6');
    for (const session of [there, here, there, here]) await t.run(session, 'go');
    expect(invalid(t).map((p) => (p as { policy_path: string }).policy_path)).toEqual([
      t.config.routing.global_path,
      path.join(t.workspace, FILE),
      t.config.routing.global_path,
    ]);
    fs.writeFileSync(t.config.routing.global_path, 'global_default: haiku');
    expect((await t.run(there, 'go')).chosen_model).toBe(HAIKU);
    expect((await t.run(here, 'go')).chosen_model).toBe(HAIKU);
  });

  it('broken in the middle of a turn are reported by the worker that met them', async () => {
    const t = await startEngine({
      scenario: scenario(
        planner(
          { tool_calls: [call('list_files', {})] },
          { tool_calls: [delegate('the job')], delay_ms: 20 },
          { text: 'ok' },
        ),
        worker('the job', { text: 'done' }),
      ),
    });
    const session = await t.session();
    const turn = await t.submit(session, 'go');
    await t.event('tool.completed');
    put(t, 'rules: 5');
    await t.ended(turn);
    expect(invalid(t)).toHaveLength(1);
  });
});

describe("a worker's tier", () => {
  const TIERS = (fast: string) => `tiers: { fast: ${fast}, balanced: sonnet, deep: opus }`;
  const modelOfWorker = (t: TestEngine) => t.adapter.requests.find((r) => r.caller.is_worker)!.model.id;

  // Promise 03.13: a delegation's tier is the workspace's, else the global file's, else the registry's first configured one.
  it.each([
    ['the workspace file', TIERS('gpt'), TIERS('sonnet'), GPT],
    ['the global file', null, TIERS('sonnet'), SONNET],
    ['the registry', null, null, HAIKU],
  ])('is the model that %s names', async (_name, own, global, expected) => {
    const t = await startEngine({ scenario: oneWorker(), files: own === null ? {} : { [FILE]: own } });
    if (global !== null) fs.writeFileSync(t.config.routing.global_path, global);
    await t.run(await t.session(), 'go');
    expect(modelOfWorker(t)).toBe(expected);
    expect(t.events.find((e) => e.type === 'delegate.started')!.payload).toMatchObject({ resolved_model: expected });
  });

  // Promise 03.14: a worker's decision has slot 4 deferred and slot 5 chosen, without a pattern store as well.
  it('stands in slot 5, below three slots that are not for workers and one that is deferred', async () => {
    const t = await startEngine({ scenario: oneWorker() });
    const session = await t.session();
    await t.run(session, 'go');
    const [decided] = ofWorkers(t, session);
    expect(decided).toMatchObject({ chosen_model: HAIKU, winner_index: 4, refused: null, fallback_costlier: false });
    expect(decided!.chain.map(short)).toEqual([
      ['per_message_override', 'not_applicable', null],
      ['manual_sticky', 'not_applicable', null],
      ['rule', 'not_applicable', null],
      ['pattern', 'deferred', null],
      ['delegate_request', 'chose', HAIKU],
      ['workspace_default', 'not_evaluated', null],
      ['global_default', 'not_evaluated', null],
    ]);
    expect(decided!.chain[3]!.reason).toBe('delegate_request_in_flight');
    expect(decided!.chain[4]!.reason).toBe('delegate() tier resolution');
  });

  it('gives way to a rule that matches the task', async () => {
    const t = await startEngine({
      scenario: oneWorker(),
      files: { [FILE]: 'rules:\n  - { name: jobs, when: { message_matches: "^the job$" }, use: sonnet }' },
    });
    await t.run(await t.session(), 'go');
    expect(modelOfWorker(t)).toBe(SONNET);
  });

  // Promise 03.16: an @alias in a worker's task is text.
  it('is not read from an @alias in the task', async () => {
    const t = await startEngine({
      scenario: scenario(
        planner({ tool_calls: [delegate('@opus the job')] }, { text: 'ok' }),
        worker('@opus the job', { text: 'done' }),
      ),
    });
    await t.run(await t.session(), 'go');
    const request = t.adapter.requests.find((r) => r.caller.is_worker)!;
    expect([request.model.id, request.system_prompt_volatile]).toEqual([
      HAIKU,
      expect.stringContaining('@opus the job'),
    ]);
  });
});

describe('a worker whose tier model cannot serve', () => {
  const withPicture = (options: Omit<EngineOptions, 'scenario'> = {}) =>
    startEngine({
      ...options,
      scenario: oneWorker({ context: { mode: 'explicit', include: [{ type: 'file', path: 'a.png' }] } }),
    });
  const go = async (t: TestEngine) => {
    fs.writeFileSync(path.join(t.workspace, 'a.png'), PNG);
    const session = await t.session();
    expect((await t.run(session, 'go')).status).toBe('completed');
    return session;
  };

  // Promise 03.15: a worker whose tier model cannot see falls to a default, not to a higher tier.
  // Promise 04.24: where allowed it runs and is flagged.
  it.each([
    ['workspace_default', { [FILE]: 'default: opus' }, OPUS, 5],
    ['global_default', {}, SONNET, 6],
  ])('falls to the %s, never to a higher tier', async (policy, files, model, index) => {
    const t = await withPicture({ files });
    const session = await go(t);
    const [decided] = ofWorkers(t, session);
    expect(decided!.chain[4]).toMatchObject({
      verdict: 'rejected',
      candidate_model: HAIKU,
      validation_failure: 'no_vision_support',
    });
    expect(decided).toMatchObject({ chosen_model: model, winner_index: index, fallback_costlier: true });
    expect(decided!.chain[index]).toMatchObject({ policy, verdict: 'chose' });
    expect(t.adapter.requests.find((r) => r.caller.is_worker)!.model.id).toBe(model);
    const [delegation] = (
      await t.engine.store.delegations.list(session.id, { recursive: false, after: null, limit: 10 })
    ).rows;
    expect(delegation!.usage_summary.model).toBe(model);
  });

  // Promise 04.24: a costlier fallback is refused where forbidden, without a turn or call.
  it('runs nothing where a costlier fallback is forbidden, and the planner reads why', async () => {
    const t = await withPicture({ config: { delegation: { allow_costlier_fallback: false } } });
    const session = await go(t);
    expect(ofWorkers(t, session)).toMatchObject([
      { refused: 'routing_failed', fallback_costlier: true, chosen_model: '', winner_index: -1 },
    ]);
    expect(t.adapter.requests.filter((r) => r.caller.is_worker)).toEqual([]);
    const w = t.events.find((e) => e.type === 'session.created' && e.session_id !== session.id)!.session_id;
    expect(t.typesOf(w)).toEqual(['session.created', 'route.decided', 'session.ended']);
    expect(t.events.find((e) => e.type === 'session.ended')!.payload).toMatchObject({ disposition: 'failed' });
    expect(t.events.find((e) => e.type === 'delegate.failed')!.payload).toMatchObject({
      failure_mode: 'no_model_available_for_tier',
      worker_session_id: w,
      worker_total_cost_usd: '0',
    });
    expect(t.rows()).toMatchObject({ turns: 1, delegations: 1 });
  });

  it('still runs where the fallback is no costlier', async () => {
    const t = await withPicture({
      config: { delegation: { allow_costlier_fallback: false } },
      files: { [FILE]: 'default: gpt' },
      registry: registry
        .replace('tier: fast', 'tier: fast\n    pricing_id: anthropic:claude-sonnet-4-6')
        .replace(
          'capabilities: { max_context_tokens: 200000, max_output_tokens: 8192 }',
          'capabilities: { max_context_tokens: 200000, max_output_tokens: 8192, supports_images: true }',
        ),
    });
    const session = await go(t);
    expect(ofWorkers(t, session)).toMatchObject([{ chosen_model: GPT, fallback_costlier: false }]);
  });

  // Promise 03.20: an unpriced tier model is passed over under a budget and taken without one.
  it('for want of a price is passed over under a budget, and taken without one', async () => {
    const unpriced = registry.replace('tier: fast', 'tier: fast\n    pricing_id: nobody:knows');
    const run = async (max_cost_usd: string | null) => {
      const t = await startEngine({ scenario: oneWorker(), registry: unpriced });
      const session = await t.session({ max_cost_usd });
      await t.run(session, 'go');
      return ofWorkers(t, session)[0]!;
    };
    const limited = await run('5');
    expect(limited.chain[4]).toMatchObject({ verdict: 'rejected', validation_failure: 'not_priced' });
    expect(limited.chosen_model).toBe(SONNET);
    expect((await run(null)).chain[4]).toMatchObject({ verdict: 'chose', candidate_model: HAIKU });
  });
});

describe('outages', () => {
  /** Lets time pass whenever everything waits for it, until the turn has ended. */
  async function through(t: TestEngine, clock: ManualClock, turnId: string) {
    let over = false;
    const turn = t.ended(turnId).finally(() => {
      over = true;
    });
    while (!over) {
      await new Promise(setImmediate);
      clock.next(10_000);
    }
    return turn;
  }
  const failing = (n: number, error: object) =>
    scenario(
      [{ match: { model: '*haiku*' }, responses: [...Array(n * 3).fill({ error }), { text: 'back' }] }],
      [{ match: {}, times: 'inf', respond: { text: '{{model}}' } }],
    );
  const outages = (t: TestEngine) =>
    t.events.filter((e) => e.type === 'routing.provider_unavailable').map((e) => e.payload);

  // Promise 03.17: five server errors within two minutes take one model out, its sibling serves.
  // Promise 03.18: an outage ends by itself after 300 s and is reported once.
  it('begin with five server errors of one model within two minutes; its sibling serves, and 300 s end it', async () => {
    const clock = manualClock();
    const t = await startEngine({
      clock,
      scenario: failing(5, { error_class: 'server_error', status: 500 }),
      files: { [FILE]: 'default: haiku' },
    });
    const session = await t.session({ initial_active_model: null });
    for (let i = 0; i < 5; i++) {
      expect((await through(t, clock, await t.submit(session, 'go'))).chosen_model).toBe(HAIKU);
      clock.advance(20_000);
    }
    expect(outages(t)).toEqual([
      {
        provider: 'anthropic',
        scope: 'model_specific',
        models_affected: [HAIKU],
        trigger_reason: '5_consecutive_failures',
      },
    ]);
    const sibling = await through(t, clock, await t.submit(session, 'go'));
    expect(sibling).toMatchObject({ status: 'completed', chosen_model: SONNET });
    expect(decisions(t).at(-1)!.chain[5]).toMatchObject({
      validation_failure: 'provider_unavailable',
      reason: 'workspace default (model-specific outage)',
    });
    clock.advance(300_000);
    const again = await through(t, clock, await t.submit(session, 'go'));
    expect(again).toMatchObject({ status: 'completed', chosen_model: HAIKU, output: 'back' });
    const recovered = t.events.filter((e) => e.type === 'routing.provider_recovered').map((e) => e.payload);
    expect(recovered).toEqual([
      { provider: 'anthropic', scope: 'model_specific', models_recovered: [HAIKU], downtime_seconds: 300 },
    ]);
  });

  // Promise 03.17: slow failures and broken runs take nothing out.
  it.each([
    ['five failures spread over ten minutes', 5, 150_000, 'other'],
    ['four failures and a success', 4, 1_000, 'other'],
    ['ten refused requests', 10, 1_000, 'invalid_request'],
  ])('do not begin with %s', async (_name, n, pause, error_class) => {
    const clock = manualClock();
    const t = await startEngine({
      clock,
      scenario: scenario([{ match: {}, responses: [...Array(n).fill({ error: { error_class } }), { text: 'fine' }] }]),
    });
    const session = await t.session({ initial_active_model: 'haiku' });
    for (let i = 0; i < n; i++) {
      expect((await through(t, clock, await t.submit(session, 'go'))).status).toBe('failed');
      clock.advance(pause);
    }
    expect((await through(t, clock, await t.submit(session, 'go'))).output).toBe('fine');
    expect((await through(t, clock, await t.submit(session, 'go'))).chosen_model).toBe(HAIKU);
    expect(outages(t)).toEqual([]);
  });

  // Promise 03.17: cancels take nothing out.
  it('do not begin with ten cancelled turns', async () => {
    const t = await startEngine({ scenario: scenario([{ match: {}, times: 'inf', respond: { hang: true } }]) });
    const session = await t.session({ initial_active_model: 'haiku' });
    for (let i = 0; i < 10; i++) {
      const turn = await t.submit(session, 'go');
      await t.event('llm.call_started', (e) => e.turn_id === turn);
      await cancelTurn(t.engine, session.id, turn, null);
      await t.ended(turn);
    }
    expect(outages(t)).toEqual([]);
    const last = await t.submit(session, 'go');
    await cancelTurn(t.engine, session.id, last, null);
    expect((await t.ended(last)).chosen_model).toBe(HAIKU);
  });

  // Promise 03.17: one refused key takes its provider out.
  it('of a whole provider begin with one refused key', async () => {
    const t = await startEngine({
      scenario: scenario(
        [{ match: { model: 'anthropic:*' }, times: 'inf', respond: { error: { error_class: 'auth' } } }],
        [{ match: {}, times: 'inf', respond: { text: 'ok' } }],
      ),
      files: { [FILE]: 'default: opus\nrules:\n  - { when: { message_contains_any: [later] }, use: gpt }' },
    });
    const session = await t.session({ initial_active_model: null });
    expect((await t.run(session, 'go')).status).toBe('failed');
    expect(outages(t)).toEqual([
      {
        provider: 'anthropic',
        scope: 'provider_wide',
        models_affected: [OPUS, SONNET, HAIKU],
        trigger_reason: 'auth_error',
      },
    ]);
    await expect(t.submit(session, 'go')).rejects.toMatchObject({
      code: 'routing_failed',
      details: { alternative_providers_configured: ['openai'] },
    });
    expect((await t.run(session, 'later')).chosen_model).toBe(GPT);
  });
});

describe('the shipped registry without a routing file', () => {
  const shipped = fs.readFileSync(path.join(import.meta.dirname, '../../config/registry.yaml'), 'utf8');
  const file = must(parseRegistry(shipped, 'config/registry.yaml'));
  const first = (adapter: string, tier: string) =>
    file.models.find((m) => m.adapter === adapter && m.tier === tier)!.id;

  // Promise 03.22: with one key, or none, turns and workers run on that provider's first models.
  it.each(['anthropic', 'openai', 'openrouter', 'scripted'])(
    'with %s alone serves turns and workers from it',
    async (id) => {
      const served = usableAdapters(file.adapters, (adapter) => adapter === id);
      expect([...served]).toEqual([id]);
      const t = await startEngine({ registry: shipped, served, scenario: oneWorker() });
      const session = await t.session({ initial_active_model: null });
      const turn = await t.run(session, 'go');
      expect(turn).toMatchObject({ status: 'completed', chosen_model: first(id, 'balanced') });
      expect(decisions(t)[0]!.winner_index).toBe(6);
      expect(ofWorkers(t, session)[0]!.chosen_model).toBe(first(id, 'fast'));
      if (id === 'scripted') expect(turn.chosen_model).toMatch(/^scripted:/);
    },
  );
});
