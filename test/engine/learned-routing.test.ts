// Slot 4 over turns that really ran: one model is better for one shape of task, or none is (12 §12.4, 03 §8).
import { describe, expect, it } from 'vitest';
import { cancelTurn, concludeTurn, scoreTurn } from '#core/engine/control-turn.ts';
import { purgeSession } from '#core/engine/fork-session.ts';
import { explainRoute } from '#core/engine/inspect-routing.ts';
import type { AnyEvent, PayloadOf } from '#protocol/event.ts';
import { toPusd } from '#protocol/money.ts';
import { toolText } from '#protocol/tool.ts';
import { type EngineOptions, startEngine, type TestEngine } from '../support/engine.ts';
import { gate } from '../support/moments.ts';
import { call, delegate } from '../support/scenario.ts';
import { tool } from '../support/tools.ts';

const HAIKU = 'anthropic:claude-haiku-4-5';
const SONNET = 'anthropic:claude-sonnet-4-6';
const usage = { input_tokens: 1000, output_tokens: 100 };
const good = { text: 'done', usage };
const when = (match: object, respond: object) => ({ match, respond, times: 'inf' });
/** Sonnet says nothing where bugs are to be fixed; everything else goes well. */
const unequal = [when({ model: SONNET, user_contains: 'bug' }, { text: ' ', usage })];
const start = (rules: readonly object[], over: Partial<EngineOptions> = {}) =>
  startEngine({
    scenario: { version: 1, strict: false, rules, fallback: good },
    learning: {},
    ...over,
    config: { pattern: { mode: 'apply', evidence: 'any' }, ...over.config },
  });

/** A first turn, on this model or on what routing chooses; returns what it ran on and what became of it. */
async function turn(t: TestEngine, text: string, model: string | null = null) {
  const session = await t.session({ initial_active_model: model });
  const { id } = await t.run(session, text);
  await t.event('eval.completed', (e) => e.turn_id === id);
  const decided = await t.event('route.decided', (e) => e.turn_id === id);
  return { id, session, ...(decided.payload as PayloadOf<'route.decided'>) };
}
async function turns(t: TestEngine, n: number, text: string, model: string) {
  const made = [];
  for (let i = 0; i < n; i += 1) made.push(await turn(t, text, model));
  return made;
}
const advice = async (t: TestEngine, text: string) => {
  const question = { text, workspace_path: t.workspace, model: null };
  return (await explainRoute(t.engine, question)).chain[3]!;
};

/** Rates a turn, and waits until it is learned. */
async function rate(t: TestEngine, made: Awaited<ReturnType<typeof turn>>, score: number): Promise<void> {
  await scoreTurn(t.engine, made.session.id, made.id, { score, comment: null });
  const isSecond = (e: AnyEvent) => e.payload.sample_size_before === e.payload.sample_size_after;
  await t.event('pattern.recorded', (e) => e.turn_id === made.id && isSecond(e));
}

describe('slot 4 by default', () => {
  // Promise 12.26: with nothing configured no turn changes, and the reason names the evidence.
  it('shows a model that did well and changes no turn, however many went well', async () => {
    const t = await start([], { config: { pattern: {} } });
    await turns(t, 8, 'fix the bug', HAIKU);
    const next = await turn(t, 'the next bug');
    expect(next.chosen_model).toBe(SONNET);
    expect(next.chain[3]).toMatchObject({ verdict: 'deferred', candidate_model: HAIKU, confidence: 1 });
    expect(next.chain[3]!.reason).toBe(
      `suggested only; 8 turns like this one on ${HAIKU}, 0 of them checked or rated by a person; ${SONNET} has no such score and counts as 100 %`,
    );
  });

  // Promise 12.27: a cheaper model needs verified scores, and a bad one takes it back.
  it('applied, gives a turn a cheaper model on what checks and people say, and on nothing else', async () => {
    const t = await start([], { config: { pattern: { mode: 'apply', min_sample_size: 3 } } });
    const cheap = await turns(t, 4, 'fix the bug', HAIKU);
    const own = await turns(t, 2, 'fix the bug', SONNET);
    const weak = 'too little evidence for a cheaper model';
    expect((await turn(t, 'the next bug')).chosen_model).toBe(SONNET);
    expect(await advice(t, 'a bug')).toMatchObject({ verdict: 'deferred', reason: expect.stringContaining(weak) });
    // Sonnet's pass rate, as people say, is a half: three good turns of Haiku are at least 52 %.
    await rate(t, own[0]!, 0);
    await rate(t, own[1]!, 1);
    await rate(t, cheap[0]!, 1);
    await rate(t, cheap[1]!, 1);
    expect((await advice(t, 'a bug')).reason).toContain(`${weak}; 4 turns like this one on ${HAIKU}, 2 of them`);
    await rate(t, cheap[2]!, 1);
    const next = await turn(t, 'the next bug');
    expect(next.chosen_model).toBe(HAIKU);
    expect(next.chain[3]).toMatchObject({ verdict: 'chose', reason: expect.stringContaining('at least 52 %') });
    // One bad mark takes it back.
    await rate(t, cheap[3]!, 0);
    expect((await turn(t, 'the next bug')).chosen_model).toBe(SONNET);
  });

  // Promise 12.28: a denied call leaves the turn's cost out.
  it('learns no cost from a turn in which a person denied a call', async () => {
    const rules = [
      when(
        { user_contains: 'forbidden', call: 1 },
        { tool_calls: [{ name: 'shell', input: { command: 'id' } }], usage },
      ),
    ];
    const t = await start(rules, { config: { tool_confirmation: { per_tool: { shell: 'deny' } } } });
    await turn(t, 'fix the bug', HAIKU);
    const cut = await turn(t, 'fix the forbidden bug', HAIKU);
    expect(cut.chosen_model).toBe(HAIKU);
    const rows = t.db.db.prepare('SELECT sample_size AS n, cost_count AS costed FROM pattern_outcomes').all();
    expect(rows).toEqual([{ n: 2, costed: 1 }]);
  });

  // Promise 12.28: a turn that ran out of its budget, or was concluded, counts in the sample and not in the cost; a cancelled one in neither.
  it('learns no cost from turns that a limit or a person cut short', async () => {
    const door = gate();
    const slow = tool('slow', { execute: () => door.opened.then(() => toolText('ok')) });
    const rules = [
      when({ user_contains: 'slow', call: 1 }, { tool_calls: [call('slow', {})], usage }),
      when({ user_contains: 'endless' }, { tool_calls: [call('slow', {})], usage: { ...usage, output_tokens: 4000 } }),
    ];
    const t = await start(rules, { tools: [slow] });
    const whole = await turn(t, 'fix the bug', HAIKU);
    const outcome = () =>
      t.db.db
        .prepare(`SELECT sum(sample_size) AS n, sum(cost_count) AS costed, CAST(sum(sum_cost_pusd) AS TEXT) AS cost
          FROM pattern_outcomes`)
        .get();
    const learned = (id: string) => t.event('eval.completed', (e) => e.turn_id === id);
    const cost = String(toPusd((await t.ended(whole.id)).total_cost_usd));
    expect(outcome()).toEqual({ n: 1, costed: 1, cost });

    const session = await t.session({ initial_active_model: HAIKU });
    const concluded = await t.submit(session, 'fix the slow bug');
    await t.event('tool.called', (e) => e.turn_id === concluded);
    await concludeTurn(t.engine, session.id, concluded);
    const other = await t.session({ initial_active_model: HAIKU });
    const cancelled = await t.submit(other, 'fix the slow bug');
    await t.event('tool.called', (e) => e.turn_id === cancelled);
    await cancelTurn(t.engine, other.id, cancelled, null);
    door.open();
    await learned(concluded);
    expect((await t.ended(cancelled)).status).toBe('cancelled');
    const poor = await t.session({ initial_active_model: HAIKU, max_cost_usd: '0.05', on_reached: 'stop' });
    const over = await t.run(poor, 'fix the endless bug');
    expect(over.stop_reason).toBe('budget_exceeded');
    await learned(over.id);
    expect(outcome()).toEqual({ n: 3, costed: 1, cost });
  });

  // Promise 12.26: `enabled: false` is read as `mode: off`.
  it('reads the earlier name of its switch in a routing file', async () => {
    const t = await start([], { files: { '.metis/routing.yaml': 'pattern: { enabled: false }' } });
    await turn(t, 'fix the bug', HAIKU);
    expect((await advice(t, 'a bug')).reason).toBe('pattern store not configured');
  });
});

describe('slot 4', () => {
  // Promise 12.4: the better model is chosen after the sample size and not before.
  it('chooses the model that is better for a shape of task after the sample size, and not before', async () => {
    const t = await start(unequal);
    expect(await advice(t, 'fix the bug')).toMatchObject({ reason: 'no neighbors in pattern store' });
    await turns(t, 6, 'fix the bug', SONNET);
    await turns(t, 4, 'another bug', HAIKU);
    const early = await turn(t, 'the next bug');
    expect(early.chosen_model).toBe(SONNET);
    expect(early.chain[3]).toMatchObject({
      verdict: 'not_applicable',
      reason: 'no high-confidence pattern recommendation',
      pattern_alternatives: [
        { model: HAIKU, score: 1, sample_size: 4 },
        { model: SONNET, sample_size: 6 },
      ],
    });
    await turns(t, 1, 'one more bug', HAIKU);
    const late = await turn(t, 'the next bug');
    expect(late.chosen_model).toBe(HAIKU);
    expect(late.chain[3]).toMatchObject({
      verdict: 'chose',
      candidate_model: HAIKU,
      confidence: expect.closeTo(0.62, 5),
    });
    expect(late.chain[3]!.reason).toBe(
      `pattern K-NN (confidence=0.62, sample=5); 5 turns like this one on ${HAIKU}, 5 of them scored: pass rate 100 %, at least 64 %; ${SONNET} has 40 % over 7`,
    );
    expect(late.chain[6]).toMatchObject({ verdict: 'not_evaluated', reason: 'decided by pattern' });
    expect((await turn(t, 'write docs')).chosen_model).toBe(SONNET);
  });

  // Promise 12.4: without a difference no choice flips.
  // Promise 12.27: with evidence `any` every score counts, and seven are too few.
  it('does not choose back and forth where no model is better', async () => {
    const t = await start([]);
    const said: (string | null)[] = [];
    for (let i = 0; i < 7; i += 1)
      for (const model of [HAIKU, SONNET]) {
        await turn(t, 'fix the bug', model);
        said.push((await advice(t, 'fix the bug')).candidate_model);
      }
    const first = said.findIndex((model) => model !== null);
    expect(said.slice(0, first)).toEqual(Array(8).fill(null));
    expect(new Set(said.slice(first))).toEqual(new Set([HAIKU]));
    const led = [];
    for (let i = 0; i < 3; i += 1) led.push((await turn(t, 'fix the bug')).chosen_model);
    // Seven turns are no evidence that the cheaper one is as good.
    expect(led).toEqual([SONNET, SONNET, SONNET]);
  });

  it('yields to a choice of a person, without being asked, and to a rule', async () => {
    const t = await start(unequal, {
      files: { '.metis/routing.yaml': 'rules: [{ when: { message_matches: rule }, use: opus }]' },
    });
    await turns(t, 5, 'fix the bug', HAIKU);
    expect((await turn(t, 'a bug', SONNET)).chain[3]).toMatchObject({ verdict: 'not_evaluated' });
    expect((await turn(t, 'a bug by rule')).chain.map(({ verdict }) => verdict).slice(2, 4)).toEqual([
      'chose',
      'not_evaluated',
    ]);
    expect((await turn(t, 'a bug')).chosen_model).toBe(HAIKU);
  });

  it('follows the pattern block of the routing file of the workspace', async () => {
    const strict = await start([], { files: { '.metis/routing.yaml': 'pattern: { min_sample_size: 7 }' } });
    await turns(strict, 6, 'fix the bug', HAIKU);
    expect((await advice(strict, 'a bug')).candidate_model).toBeNull();
    await turns(strict, 1, 'fix the bug', HAIKU);
    expect((await advice(strict, 'a bug')).candidate_model).toBe(HAIKU);
    const off = await start([], { files: { '.metis/routing.yaml': 'pattern: { mode: off }' } });
    await turn(off, 'fix the bug', HAIKU);
    expect((await advice(off, 'a bug')).reason).toBe('pattern store not configured');
  });

  // Promise 12.28: turns of workers alone advise a worker.
  // Promise 12.5: a worker shows the candidate and runs on its tier.
  it('shows its candidate in a worker and never overrides the tier of the planner', async () => {
    const t = await start(
      [
        when({ role: 'planner', user_contains: 'plan', call: 1 }, { tool_calls: [delegate('fix the bug')], usage }),
        when({ role: 'planner', user_contains: 'plan', call: 2 }, good),
      ],
      { config: { tool_confirmation: { per_tool: { delegate: 'auto' } } } },
    );
    // Turns of workers advise a worker, and top-level turns do not.
    await turns(t, 6, 'fix the bug', SONNET);
    await turns(t, 6, 'plan', 'opus');
    const last = await turn(t, 'plan', 'opus');
    const ofWorkers = t.events.filter((e) => e.type === 'route.decided' && e.actor === 'worker');
    const decided = ofWorkers.at(-1)!;
    expect([ofWorkers.length, last.chosen_model]).toEqual([7, 'anthropic:claude-opus-4-7']);
    const { chain, chosen_model } = decided.payload as PayloadOf<'route.decided'>;
    expect(chosen_model).toBe(HAIKU);
    expect(chain[3]).toMatchObject({
      verdict: 'deferred',
      reason: 'delegate_request_in_flight',
      candidate_model: HAIKU,
      confidence: 1,
      pattern_alternatives: [{ model: HAIKU, score: expect.closeTo(0.95, 9), sample_size: 6 }],
    });
    expect(chain[4]).toMatchObject({ verdict: 'chose', candidate_model: HAIKU });
  });

  it('is passed over where its candidate cannot serve', async () => {
    const t = await start(unequal);
    await turns(t, 5, 'fix the bug', HAIKU);
    await turns(t, 5, 'fix the bug', SONNET);
    await t.close();
    const folder = t.folder;
    const deaf = REGISTRY_WITHOUT_TOOLS;
    const after = await start([], { folder, registry: deaf });
    const made = await turn(after, 'a bug');
    expect(made.chain[3]).toMatchObject({
      verdict: 'rejected',
      candidate_model: HAIKU,
      validation_failure: 'no_tool_support',
    });
    expect(made.chosen_model).toBe(SONNET);
  });

  it('recommends nothing that no longer exists: a deleted session, a model that left the registry', async () => {
    const t = await start([]);
    const made = await turns(t, 6, 'fix the bug', HAIKU);
    expect((await advice(t, 'a bug')).candidate_model).toBe(HAIKU);
    await purgeSession(t.engine, made[0]!.session.id);
    expect((await advice(t, 'a bug')).candidate_model).toBe(HAIKU);
    await purgeSession(t.engine, made[1]!.session.id);
    expect(await advice(t, 'a bug')).toMatchObject({
      candidate_model: null,
      pattern_alternatives: [{ sample_size: 4 }],
    });
    for (const { session } of made.slice(2)) await purgeSession(t.engine, session.id);
    expect((await advice(t, 'a bug')).reason).toBe('no neighbors in pattern store');

    await turns(t, 5, 'fix the bug', HAIKU);
    await t.engine.journal.prune(t.engine.clock.now() + 1, false);
    expect((await advice(t, 'a bug')).candidate_model).toBe(HAIKU);
    await t.close();
    const without = await start([], { folder: t.folder, registry: REGISTRY_WITHOUT_HAIKU });
    expect((await advice(without, 'a bug')).reason).toBe('no neighbors in pattern store');
  });
});

const entry = (id: string, tier: string, rest = '') =>
  `  ${id}:\n    adapter: scripted\n    tier: ${tier}\n    capabilities: { max_context_tokens: 100000, max_output_tokens: 4096${rest} }\n`;
const REGISTRY_WITHOUT_HAIKU = `adapters:\n  scripted: { type: scripted }\nmodels:\n${entry(SONNET, 'balanced')}`;
const REGISTRY_WITHOUT_TOOLS = `${REGISTRY_WITHOUT_HAIKU}${entry(HAIKU, 'fast', ', supports_tools: false')}`;
