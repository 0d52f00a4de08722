// Slot 4 over turns that really ran: one model is better for one shape of task, or none is (12 §12.4, 03 §8).
import { describe, expect, it } from 'vitest';
import { explainRoute } from '#core/engine/inspect-routing.ts';
import { purgeSession } from '#core/engine/manage-session.ts';
import type { PayloadOf } from '#protocol/event.ts';
import { type EngineOptions, startEngine, type TestEngine } from '../support/engine.ts';
import { delegate } from '../support/scenario.ts';

const HAIKU = 'anthropic:claude-haiku-4-5';
const SONNET = 'anthropic:claude-sonnet-4-6';
const usage = { input_tokens: 1000, output_tokens: 100 };
const good = { text: 'done', usage };
const when = (match: object, respond: object) => ({ match, respond, times: 'inf' });
/** Sonnet says nothing where bugs are to be fixed; everything else goes well. */
const unequal = [when({ model: SONNET, user_contains: 'bug' }, { text: ' ', usage })];
const start = (rules: readonly object[], over: Partial<EngineOptions> = {}) =>
  startEngine({ scenario: { version: 1, strict: false, rules, fallback: good }, learning: {}, ...over });

/** A first turn, on this model or on what routing chooses; returns what it ran on and what became of it. */
async function turn(t: TestEngine, text: string, model: string | null = null) {
  const session = await t.session({ initial_active_model: model });
  const { id } = await t.run(session, text);
  await t.event('eval.completed', (e) => e.turn_id === id);
  const decided = await t.event('route.decided', (e) => e.turn_id === id);
  return { session, ...(decided.payload as PayloadOf<'route.decided'>) };
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

describe('slot 4', () => {
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
    expect(late.chain[3]!.reason).toBe('pattern K-NN (confidence=0.62, sample=5)');
    expect(late.chain[6]).toMatchObject({ verdict: 'not_evaluated', reason: 'decided by pattern' });
    expect((await turn(t, 'write docs')).chosen_model).toBe(SONNET);
  });

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
    expect(led).toEqual([HAIKU, HAIKU, HAIKU]);
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
    const off = await start([], { files: { '.metis/routing.yaml': 'pattern: { enabled: false }' } });
    await turn(off, 'fix the bug', HAIKU);
    expect((await advice(off, 'a bug')).reason).toBe('pattern store not configured');
  });

  it('shows its candidate in a worker and never overrides the tier of the planner', async () => {
    const t = await start(
      [
        when({ role: 'planner', user_contains: 'plan', call: 1 }, { tool_calls: [delegate('fix the bug')], usage }),
        when({ role: 'planner', user_contains: 'plan', call: 2 }, good),
      ],
      { config: { tool_confirmation: { per_tool: { delegate: 'auto' } } } },
    );
    await turns(t, 6, 'fix the bug', SONNET);
    await turn(t, 'plan', 'opus');
    const decided = await t.event('route.decided', (e) => e.actor === 'worker');
    const { chain, chosen_model } = decided.payload as PayloadOf<'route.decided'>;
    expect(chosen_model).toBe(HAIKU);
    expect(chain[3]).toMatchObject({
      verdict: 'deferred',
      reason: 'delegate_request_in_flight',
      candidate_model: SONNET,
      confidence: 1,
      pattern_alternatives: [{ model: SONNET, score: expect.closeTo(0.95, 9), sample_size: 6 }],
    });
    expect(chain[4]).toMatchObject({ verdict: 'chose', candidate_model: HAIKU });
  });

  it('is passed over where its candidate cannot serve', async () => {
    const t = await start([]);
    await turns(t, 5, 'fix the bug', HAIKU);
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
