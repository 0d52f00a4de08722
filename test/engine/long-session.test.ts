// A conversation far beyond its model's window, with restarts in it. COMPACTION_TURNS sets how many turns it has.
import path from 'node:path';
import Database from 'better-sqlite3';
import { describe, expect, it, vi } from 'vitest';
import { estimateRequest } from '#core/policy/context/token-estimate.ts';
import { toolUses } from '#protocol/message.ts';
import type { CanonicalRequest } from '#protocol/model-call.ts';
import { toPusd } from '#protocol/money.ts';
import { type EngineOptions, startEngine, type TestEngine, tempFolder } from '../support/engine.ts';
import { restart } from '../support/moments.ts';
import { call } from '../support/scenario.ts';
import { tool } from '../support/tools.ts';
import { until } from '../support/until.ts';
import { answering, budgetOf, fetchTool, isSummaryCall, obedient, saidIn, smallWindow } from '../support/windows.ts';

const TURNS = Number(process.env.COMPACTION_TURNS ?? 40);
const WINDOW = 32_000;
const LIMIT = '100';
const RESULT = 12_000;

interface Seen {
  readonly request: CanonicalRequest;
  /** Checkpoints before it. */
  readonly steps: number;
}

/** `mode` over the whole of it; each request is kept with the number of checkpoints it was made under. */
function world(mode: 'elide' | 'summarize') {
  const seen: Seen[] = [];
  let hang = false;
  const folder = tempFolder();
  // Beside the engine, whose own connection a restart closes.
  const checkpoints = () => {
    const db = new Database(path.join(folder, 'metis.db'), { readonly: true });
    try {
      return (db.prepare('SELECT count(*) AS n FROM compaction_checkpoints').get() as { n: number }).n;
    } finally {
      db.close();
    }
  };
  const options: EngineOptions = {
    scenario: { version: 1, rules: [] },
    folder,
    registry: smallWindow(WINDOW),
    tools: [fetchTool],
    files: { 'AGENTS.md': 'Always say please.' },
    config: { context: { project_instruction_files: ['AGENTS.md'], compaction: { mode } } as never },
    provider: (script) =>
      answering(script, (request) => {
        if (isSummaryCall(request)) return hang ? { hang: true } : { text: 'The user fetches things.' };
        seen.push({ request: { ...request, messages: [...request.messages] }, steps: checkpoints() });
        return obedient(request);
      }),
  };
  return {
    seen,
    begin: () => startEngine(options),
    again: (t: TestEngine) => restart(t, options),
    hangIn: (value: boolean) => {
      hang = value;
    },
  };
}

/** What holds of every request, and of each beside the one before it. */
function check(seen: readonly Seen[]): void {
  let last: { readonly text: string; readonly steps: number } | null = null;
  for (const { request, steps } of seen) {
    const { messages } = request;
    expect(estimateRequest(request)).toBeLessThanOrEqual(budgetOf(WINDOW));
    expect(request.system_prompt).toContain('Always say please.');
    const called = messages.flatMap((m) => toolUses(m.content).map((c) => c.id as string));
    expect(messages.flatMap((m) => m.metadata.parent_tool_use_id ?? [])).toEqual(called);
    const newest = messages.findLastIndex((m) => m.role === 'assistant');
    for (const answer of messages.slice(newest + 1))
      if (answer.role === 'tool') expect(saidIn(answer)).toHaveLength(RESULT);
    const text = JSON.stringify(messages).slice(0, -1);
    if (last !== null && last.steps === steps) expect(text.startsWith(last.text)).toBe(true);
    last = { text, steps };
  }
}

const TALK = 'and '.repeat(500);
/** What elision cannot take out, words and the lines it leaves, has to fit by itself; a summary tells those too. */
const asks = {
  elide: (n: number) => (n % 2 === 0 ? `fetch 1 of ${RESULT}` : `${n} and on`),
  summarize: (n: number) => (n % 2 === 0 ? `fetch 2 of ${RESULT}` : `${n} ${TALK}`),
};

describe(`a session of ${TURNS} turns with large tool results in a window of ${WINDOW} tokens`, () => {
  it.each(['elide', 'summarize'] as const)(
    'with %s stays within it, with its instructions, its newest answers and a stable prefix',
    async (mode) => {
      const w = world(mode);
      let t = await w.begin();
      const session = await t.session({ initial_active_model: 'small', max_cost_usd: LIMIT });
      const events: TestEngine['events'] = [];
      for (let n = 1; n <= TURNS; n += 1) {
        if (n % 15 === 0) {
          events.push(...t.events);
          t = await w.again(t);
        }
        const turn = await t.run(session, asks[mode](n));
        expect([n, turn.status]).toEqual([n, 'completed']);
      }
      events.push(...t.events);
      check(w.seen);

      const told = events
        .filter((e) => e.type === 'context.compacted')
        .map((e) => (e.payload as { kind: string }).kind);
      expect(told).toContain('elide');
      expect(told.includes('summary')).toBe(mode === 'summarize');
      const purposes = events
        .filter((e) => e.type === 'llm.call_completed')
        .map((e) => (e.payload as { purpose: string }).purpose);
      const inLedger = t.db.db.prepare("SELECT count(*) AS n FROM llm_calls WHERE purpose = 'compaction'").get();
      expect(inLedger).toEqual({ n: purposes.filter((p) => p === 'compaction').length });
      expect((await t.engine.store.spend.sumTree(session.id)) <= toPusd(LIMIT)).toBe(true);
    },
    120_000,
  );

  it('loses one call at most to a process that dies in a summary', async () => {
    const w = world('summarize');
    const t = await w.begin();
    const session = await t.session({ initial_active_model: 'small' });
    w.hangIn(true);
    let cut = '';
    for (let n = 1; cut === ''; n += 1) {
      const turnId = await t.submit(session, asks.summarize(n));
      const asked = () =>
        t.events.some(
          (e) => e.type === 'llm.call_started' && (e.payload as { purpose: string }).purpose === 'compaction',
        );
      const done = () => t.events.some((e) => e.turn_id === turnId && e.type === 'turn.completed');
      await until(() => asked() || done());
      if (asked()) cut = turnId;
      else await t.ended(turnId);
    }
    w.hangIn(false);
    const u = await w.again(t);
    expect(await u.ended(cut)).toMatchObject({ status: 'completed' });
    const lost = u.events.filter((e) => e.type === 'llm.call_failed');
    expect(lost).toHaveLength(1);
    check(w.seen);
  });
});

it('a turn with tool calls looks at new messages alone, however many the session has', async () => {
  const before = 30;
  const t = await startEngine({
    scenario: { version: 1, rules: [] },
    tools: [tool('look')],
    provider: (script) =>
      answering(script, ({ caller: { turn_index, call_index } }) =>
        turn_index > before && call_index <= 4 ? { tool_calls: [call('look', { call_index })] } : { text: 'ok' },
      ),
  });
  const session = await t.session();
  for (let n = 1; n <= before; n += 1) await t.run(session, `turn ${n}`);
  // Each message that is measured has its time read.
  const read = vi.spyOn(Date, 'parse');
  await t.run(session, 'look four times');
  const { length } = read.mock.calls;
  read.mockRestore();
  // Ten new messages, each at most once in the arrays of the store, of the turn and of a request.
  expect(length).toBeGreaterThan(0);
  expect(length).toBeLessThanOrEqual(30);
});
