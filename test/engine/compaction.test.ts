import { describe, expect, it } from 'vitest';
import { cancelTurn } from '#core/engine/control-turn.ts';
import { patchSession } from '#core/engine/manage-session.ts';
import { estimateRequest } from '#core/policy/context/token-estimate.ts';
import { toolUses } from '#protocol/message.ts';
import type { CanonicalRequest } from '#protocol/model-call.ts';
import { fromPusd, type Pusd, toPusd } from '#protocol/money.ts';
import { type EngineOptions, startEngine, type TestEngine } from '../support/engine.ts';
import { restart } from '../support/moments.ts';
import { delegate } from '../support/scenario.ts';
import { until } from '../support/until.ts';
import {
  type Asked,
  answering,
  budgetOf,
  fetchTool,
  isSummaryCall,
  obedient,
  saidIn,
  smallWindow,
} from '../support/windows.ts';

const WINDOW = 21300;
const ELIDED = /^\[elided: result of fetch, \d+ bytes; call the tool again if needed\]$/;

type Mode = 'off' | 'elide' | 'summarize';

/** An engine whose model `small` has a window of 20 000 tokens, and what its provider was asked. */
function options(
  mode: Mode,
  answer: (request: CanonicalRequest) => object = obedient,
  over: Partial<EngineOptions> = {},
) {
  const asked: { provider: Asked | null } = { provider: null };
  const settings: EngineOptions = {
    scenario: { version: 1, rules: [] },
    registry: smallWindow(WINDOW),
    tools: [fetchTool],
    provider: (script) => {
      asked.provider = answering(script, answer);
      return asked.provider;
    },
    ...over,
    config: { context: { compaction: { mode } } as never, ...over.config },
  };
  return { settings, requests: () => asked.provider!.requests };
}

const sent = (request: CanonicalRequest | undefined) => JSON.stringify(request!.messages);
const compactions = (t: TestEngine) =>
  t.events.filter((e) => e.type === 'context.compacted').map((e) => e.payload as Record<string, unknown>);

function wellFormed(request: CanonicalRequest) {
  const answers = request.messages.flatMap((m) => (m.role === 'tool' ? [m.metadata.parent_tool_use_id as string] : []));
  expect(answers).toEqual(request.messages.flatMap((m) => toolUses(m.content).map((c) => c.id)));
  expect(estimateRequest(request)).toBeLessThanOrEqual(budgetOf(WINDOW));
}

describe('a history that outgrows its window', () => {
  // Promise 10.14: a history too large for the window is elided, stored messages and pairs untouched, the same view after a restart.
  it('is shown with its oldest results elided, the stored messages as they were, and the same after a restart', async () => {
    const { settings, requests } = options('elide');
    const t = await startEngine(settings);
    const session = await t.session({ initial_active_model: null });
    await t.run(session, '@large fetch 10 of 8192');
    const before = JSON.stringify(await t.engine.store.messages.history(session.id));

    // All ten are more than the window: it is admitted, because it can be elided.
    expect(await t.run(session, '@small go on')).toMatchObject({ status: 'completed', output: 'done' });
    const request = requests().at(-1)!;
    wellFormed(request);
    const results = request.messages.filter((m) => m.role === 'tool').map(saidIn);
    const whole = results.findIndex((text) => !ELIDED.test(text));
    expect(whole).toBeGreaterThan(0);
    expect(results.slice(whole)).toEqual(results.slice(whole).filter((text) => text.length === 8192));
    expect(request.messages.filter((m) => m.role === 'tool').every((m) => m.content[0]?.type === 'tool_result')).toBe(
      true,
    );
    expect(JSON.stringify((await t.engine.store.messages.history(session.id)).slice(0, -2))).toBe(before);

    const told = compactions(t);
    expect(told.length).toBeGreaterThan(0);
    for (const step of told) {
      expect(step).toMatchObject({ kind: 'elide', model: null });
      expect(step.tokens_after).toBeLessThan(step.tokens_before as number);
    }
    // Each is stored before the call is announced.
    expect(t.typesOf(session.id).slice(-3 - told.length)).toEqual([
      ...told.map(() => 'context.compacted'),
      'llm.call_started',
      'llm.call_completed',
      'turn.completed',
    ]);

    const again = options('elide');
    const second = await restart(t, again.settings);
    await second.run(session, '@small and again');
    expect(sent(again.requests().at(-1)).startsWith(sent(request).slice(0, -1))).toBe(true);
    expect(compactions(second)).toEqual([]);
  });

  it('is sent whole while it is far from the window, and announced with its turn', async () => {
    const { settings, requests } = options('summarize');
    const t = await startEngine(settings);
    const session = await t.session({ initial_active_model: 'small' });
    await t.run(session, 'fetch 4 of 8192');
    expect(compactions(t)).toEqual([]);
    expect(
      requests()
        .at(-1)!
        .messages.filter((m) => m.role === 'tool')
        .every((m) => saidIn(m).length === 8192),
    ).toBe(true);
  });

  // Promise 10.19: a sticky model whose window only elidable results exceed is admitted.
  it('admits a sticky model whose window is exceeded by elidable results only', async () => {
    const { settings } = options('elide');
    const t = await startEngine(settings);
    const session = await t.session({ initial_active_model: 'large' });
    await t.run(session, 'fetch 12 of 8192');
    await patchSession(t.engine, session.id, { active_model: 'small' });
    expect(await t.run(session, 'go on')).toMatchObject({ status: 'completed' });
    // In mode off nothing is elided, and the model is refused.
    const off = await restart(t, options('off').settings);
    await off.run(session, '@large fetch 12 of 8192');
    await expect(off.run(session, 'go on')).rejects.toMatchObject({ code: 'routing_failed' });
  });

  // Promise 10.15: a result that alone is too large ends its turn without a call, and no later one.
  it('keeps the newest answers whole and fails the turn without a call where they do not fit', async () => {
    const { settings, requests } = options('elide');
    const t = await startEngine(settings);
    const session = await t.session({ initial_active_model: 'small' });
    const turn = await t.run(session, 'fetch 1 of 80000');
    expect(turn).toMatchObject({
      status: 'failed',
      error_code: 'provider_error',
      error_class: 'context_overflow',
      retryable: false,
    });
    expect(requests()).toHaveLength(1);
    expect(compactions(t)).toEqual([]);
    // The next turn elides it and goes on.
    expect(await t.run(session, 'hi')).toMatchObject({ status: 'completed' });
  });

  it('is left to its provider in mode off', async () => {
    const { settings, requests } = options('off');
    const t = await startEngine(settings);
    const session = await t.session({ initial_active_model: 'small' });
    expect(await t.run(session, 'fetch 1 of 62000')).toMatchObject({ status: 'completed' });
    expect(requests()).toHaveLength(2);
    expect(compactions(t)).toEqual([]);
  });

  it('whose provider finds it too large although it should fit is compacted and sent once more', async () => {
    let refuse = false;
    const { settings, requests } = options('elide', (request) =>
      refuse && sent(request).includes('result 1 ')
        ? { error: { error_class: 'context_overflow' } }
        : obedient(request),
    );
    const t = await startEngine(settings);
    const session = await t.session({ initial_active_model: 'small' });
    await t.run(session, 'fetch 3 of 8192');
    refuse = true;
    expect(await t.run(session, 'hi')).toMatchObject({ status: 'completed', output: 'done' });
    expect(
      requests()
        .slice(-2)
        .map((r) => r.messages.filter((m) => ELIDED.test(saidIn(m))).length > 0),
    ).toEqual([false, true]);
    expect(t.events.filter((e) => e.type === 'llm.call_failed')).toHaveLength(1);
  });

  it('whose provider finds it too large twice ends with that', async () => {
    const { settings, requests } = options('elide', (request) =>
      saidIn(request.messages.at(-1)!) === 'hi' ? { error: { error_class: 'context_overflow' } } : obedient(request),
    );
    const t = await startEngine(settings);
    const session = await t.session({ initial_active_model: 'small' });
    await t.run(session, 'fetch 3 of 8192');
    const before = requests().length;
    expect(await t.run(session, 'hi')).toMatchObject({ status: 'failed', error_class: 'context_overflow' });
    expect(requests()).toHaveLength(before + 2);
  });

  // Promise 10.15: a request of which nothing can be taken out is sent once.
  it.each([
    ['of which nothing can be taken out', 'elide', 0],
    ['of which nothing can be taken out or summarised', 'summarize', 0],
    ['in mode off', 'off', 3],
  ] as const)('%s is sent once when its provider finds it too large', async (_, mode, results) => {
    const { settings, requests } = options(mode, (request) =>
      saidIn(request.messages.at(-1)!) === 'hi' ? { error: { error_class: 'context_overflow' } } : obedient(request),
    );
    const t = await startEngine(settings);
    const session = await t.session({ initial_active_model: 'small' });
    await t.run(session, `fetch ${results} of 8192`);
    const before = requests().length;
    expect(await t.run(session, 'hi')).toMatchObject({
      status: 'failed',
      error_class: 'context_overflow',
    });
    expect(requests()).toHaveLength(before + 1);
    expect(compactions(t)).toEqual([]);
  });

  it('is counted by what the provider reported of it, where that is more than the guess', async () => {
    const { settings } = options('elide', (request) => ({
      ...obedient(request),
      usage: { input_tokens: 4 * estimateRequest(request) },
    }));
    const t = await startEngine(settings);
    const session = await t.session({ initial_active_model: 'small' });
    // 10 results of 500 tokens: a third of the window by the guess.
    await t.run(session, 'fetch 10 of 2100');
    await t.run(session, 'hi');
    expect(compactions(t).length).toBeGreaterThan(0);
  });
});

describe("a worker's single turn that outgrows its window", () => {
  const answer = (hang: () => boolean) => (request: CanonicalRequest) => {
    if (!request.caller.is_worker)
      return request.messages.at(-1)!.role === 'user'
        ? { tool_calls: [delegate('fetch 12 of 8192', { tier: 'balanced' })] }
        : { text: 'all' };
    const elided = request.messages.some((m) => ELIDED.test(saidIn(m)));
    return elided && hang() ? { hang: true } : obedient(request);
  };

  // Promise 10.18: a worker's turn outgrows its window and finishes; killed behind the checkpoint it sends the same bytes.
  it('goes on with old results elided, and after a kill behind the checkpoint with the same bytes', async () => {
    const first = options(
      'elide',
      answer(() => true),
    );
    const t = await startEngine(first.settings);
    const session = await t.session({ initial_active_model: 'large' });
    const turnId = await t.submit(session, 'go');
    await t.event('context.compacted');
    const shortened = () => first.requests().find((r) => r.messages.some((m) => ELIDED.test(saidIn(m))));
    await until(() => shortened() !== undefined);
    const cut = shortened()!;

    const second = options(
      'elide',
      answer(() => false),
    );
    const u = await restart(t, second.settings);
    expect(await u.ended(turnId)).toMatchObject({ status: 'completed', output: 'all' });
    expect(sent(second.requests()[0])).toBe(sent(cut));
    for (const request of second.requests().filter((r) => r.caller.is_worker)) wellFormed(request);
  });
});

describe('a conversation that elision does not make small enough', () => {
  /** Turns of long talk, which nothing but a summary makes smaller. */
  const talk = (n: number) => `${n} `.padEnd(8000, 'talk ');

  async function talked(t: TestEngine, turns: number) {
    const session = await t.session({ initial_active_model: 'small' });
    for (let n = 1; n <= turns; n += 1) expect(await t.run(session, talk(n))).toMatchObject({ status: 'completed' });
    return session;
  }

  // Promise 10.15: a summary's cost is counted once, in its session.
  it('is told by a summary, whose cost is the session own and counted once', async () => {
    const { settings, requests } = options('summarize');
    const t = await startEngine(settings);
    const session = await talked(t, 6);
    const calls = t.events.filter((e) => e.type === 'llm.call_completed').map((e) => e.payload);
    const summaries = calls.filter((p) => (p as { purpose: string }).purpose === 'compaction');
    expect(summaries).toHaveLength(1);
    expect(summaries[0]).toMatchObject({ model: 'anthropic:claude-haiku-4-5', message_id: null });
    const turn = (await t.engine.store.turns.list(session.id, null, 1)).rows[0]!;
    expect(turn).toMatchObject({ llm_call_count: 2 });
    const ledger = t.db.db.prepare("SELECT count(*) AS n FROM llm_calls WHERE purpose = 'compaction'").get();
    expect(ledger).toEqual({ n: 1 });
    const last = requests().at(-1)!;
    expect(saidIn(last.messages[0]!)).toBe('[Summary of earlier conversation]\nSUMMARY');
    expect(
      last.messages
        .filter((m) => m.role === 'user')
        .slice(1)
        .map((m) => saidIn(m)[0]),
    ).toEqual(['3', '4', '5', '6']);
    // The answer of the last summarised turn is not sent beside the summary.
    expect(last.messages.map((m) => m.role)).toEqual(['user', ...Array(3).fill(['user', 'assistant']).flat(), 'user']);
    expect(last.caller.call_index).toBe(2);
    wellFormed(last);
    // Nothing of it was streamed, and it is no message.
    expect(t.deltas.some((d) => JSON.stringify(d).includes('SUMMARY'))).toBe(false);
    expect(compactions(t)).toEqual([
      expect.objectContaining({ kind: 'summary', model: 'anthropic:claude-haiku-4-5', message_count: 4 }),
    ]);

    const again = options('summarize');
    const second = await restart(t, again.settings);
    await second.run(session, 'short');
    expect(sent(again.requests().at(-1)).startsWith(sent(last).slice(0, -1))).toBe(true);
  });

  // Promise 10.15: a failing summariser leaves elision only; what fits nowhere is context_overflow without a call.
  it('goes on without where the summariser fails, and ends when nothing fits', async () => {
    const { settings, requests } = options('summarize', (request) =>
      isSummaryCall(request) ? { error: { error_class: 'invalid_request' } } : obedient(request),
    );
    const t = await startEngine(settings);
    const session = await talked(t, 6);
    expect(t.events.filter((e) => e.type === 'llm.call_failed').length).toBeGreaterThan(0);
    expect(compactions(t)).toEqual([]);
    const before = requests().length;
    const turn = await t.run(session, talk(7));
    expect(turn).toMatchObject({ status: 'failed', error_class: 'context_overflow' });
    expect(requests().slice(before).every(isSummaryCall)).toBe(true);
  });

  it.each([
    ['nothing', { text: '' }, false],
    ['more than there was', { text: 'x'.repeat(30_000) }, false],
    ['a call of a tool', { tool_calls: [{ name: 'fetch', input: { n: 1, bytes: 1 } }] }, false],
    ['a summary and a call of a tool', { text: 'S', tool_calls: [{ name: 'fetch', input: {} }] }, true],
  ])('told %s is billed for it once, runs no tool and goes on', async (_, answer, told) => {
    const { settings } = options('summarize', (request) => (isSummaryCall(request) ? answer : obedient(request)));
    const t = await startEngine(settings);
    await talked(t, 6);
    const paid = t.db.db.prepare("SELECT count(*) AS n FROM llm_calls WHERE purpose = 'compaction'").get();
    expect(paid).toEqual({ n: 1 });
    expect(compactions(t)).toHaveLength(told ? 1 : 0);
    expect(t.events.filter((e) => e.type.startsWith('tool.'))).toEqual([]);
  });

  it('whose summary is cancelled is cancelled, and the next turn makes it', async () => {
    let hang = true;
    const { settings } = options('summarize', (request) =>
      hang && isSummaryCall(request) ? { hang: true } : obedient(request),
    );
    const t = await startEngine(settings);
    const session = await talked(t, 5);
    const turnId = await t.submit(session, talk(6));
    await t.event('llm.call_started', (e) => e.payload.purpose === 'compaction');
    await cancelTurn(t.engine, session.id, turnId, null);
    expect(await t.ended(turnId)).toMatchObject({ status: 'cancelled' });
    hang = false;
    expect(await t.run(session, 'short')).toMatchObject({ status: 'completed', llm_call_count: 2 });
    expect(compactions(t)).toHaveLength(1);
  });

  // Promise 10.19: a limit that a summary would overshoot leaves elision only, without event or pause.
  it('does without where a limit refuses the summary: no event, no pause, nothing above the limit', async () => {
    const { settings, requests } = options('summarize', obedient, {
      // The summariser costs what the most expensive model does.
      registry: smallWindow(WINDOW).replace('tier: fast', 'pricing_id: anthropic:claude-opus-4-7\n    tier: fast'),
    });
    const t = await startEngine(settings);
    const session = await talked(t, 5);
    const limit = fromPusd(((await t.engine.store.spend.sumTree(session.id)) + toPusd('0.15')) as Pusd);
    await patchSession(t.engine, session.id, { max_cost_usd: limit });
    expect(await t.run(session, talk(6))).toMatchObject({ status: 'completed', llm_call_count: 1 });
    expect(requests().some(isSummaryCall)).toBe(false);
    expect(t.events.some((e) => e.type === 'budget.exceeded')).toBe(false);
    expect((await t.engine.store.spend.sumTree(session.id)) <= toPusd(limit)).toBe(true);
    // With room for it the next turn is summarised.
    await patchSession(t.engine, session.id, { max_cost_usd: null });
    await t.run(session, talk(7));
    expect(requests().some(isSummaryCall)).toBe(true);
  });

  it('is not summarised twice by a turn whose first try was cut off', async () => {
    const first = options('summarize', (request) => (isSummaryCall(request) ? { hang: true } : obedient(request)));
    const t = await startEngine(first.settings);
    const session = await talked(t, 5);
    const turnId = await t.submit(session, talk(6));
    await t.event('llm.call_started', (e) => e.payload.purpose === 'compaction');
    const second = options('summarize');
    const u = await restart(t, second.settings);
    expect(await u.ended(turnId)).toMatchObject({ status: 'completed' });
    expect(second.requests().some(isSummaryCall)).toBe(false);
    expect(u.events.filter((e) => e.type === 'llm.call_failed')).toHaveLength(1);
    await u.run(session, 'short');
    expect(second.requests().filter(isSummaryCall)).toHaveLength(1);
  });
});
