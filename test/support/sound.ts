// A tree that is sound: nothing of it is open, reported twice or paid twice (02 §3.5).
import { expect } from 'vitest';
import type { AnyEvent } from '#protocol/event.ts';
import { toolUses } from '#protocol/message.ts';
import { toPusd } from '#protocol/money.ts';
import type { TestEngine } from './engine.ts';
import { call, delegate, planner, scenario, worker } from './scenario.ts';

const usage = { input_tokens: 1000, output_tokens: 100 };
const schema = { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] };
const lack = call('_request_context', { summary: 's', missing: [{ type: 'other', ref: 'r', hint: 'h' }] });
/** A turn with everything in it that can be left open: three workers, a repair, a question back, calls that fail. */
export const busy = scenario(
  planner(
    {
      tool_calls: [
        call('list_files', {}),
        delegate('first'),
        delegate('second', { output_schema: schema }),
        delegate('third'),
        call('read_file', { path: 1 }),
        call('nothing', {}),
      ],
      usage,
    },
    { text: 'the end', usage },
  ),
  worker(
    'first',
    { text: 'now', tool_calls: [call('list_files', {}), call('list_files', {})], usage },
    { text: 'one', usage },
  ),
  [
    { match: { role: 'worker', user_contains: 'second', turn: 1 }, respond: { text: 'hello', usage } },
    { match: { role: 'worker', user_contains: 'second', turn: 2 }, respond: { text: '{"n":1}', usage } },
  ],
  worker('third', { tool_calls: [call('list_files', {}), lack], usage }),
);
const TERMINAL = ['turn.completed', 'turn.failed', 'turn.cancelled'];
const TOOL_END = ['tool.completed', 'tool.failed', 'tool.input_invalid'];

/** Every event of a session and its workers, as the store has them. */
export async function stored(t: TestEngine, id: string): Promise<AnyEvent[]> {
  const query = { session_id: id, include_workers: true, types: null, after: null, until: null, limit: 10_000 };
  return [...(await t.engine.store.events.list(query)).rows];
}

/** Every promise about pairs of events, answers and figures, for a tree in which nothing runs any more. */
export async function sound(t: TestEngine, sessionId: string, what: string): Promise<void> {
  const events = await stored(t, sessionId);
  const by = (key: string, types: readonly string[]) => {
    const counts = new Map<unknown, number>();
    for (const e of events)
      if (types.includes(e.type)) {
        const id = key === 'turn_id' ? e.turn_id : e.payload[key];
        counts.set(id, (counts.get(id) ?? 0) + 1);
      }
    return counts;
  };
  const pairs = (key: string, opens: string, closes: readonly string[]) => {
    const opened = by(key, [opens]);
    const closed = by(key, closes);
    for (const [id, n] of opened) expect([n, closed.get(id)], `${what}: ${opens} ${id}`).toEqual([1, 1]);
  };
  pairs('turn_id', 'turn.started', TERMINAL);
  pairs('request_id', 'llm.call_started', ['llm.call_completed', 'llm.call_failed']);
  pairs('tool_use_id', 'tool.called', TOOL_END);
  pairs('tool_use_id', 'delegate.started', ['delegate.completed', 'delegate.failed']);
  expect(await t.engine.store.turns.allOpen(), what).toEqual([]);
  expect(await t.engine.store.delegations.allOpen(), what).toEqual([]);
  expect(t.engine.locks.activeTurns(), what).toEqual([]);
  expect(t.engine.approvals.size, what).toBe(0);
  const ids = new Set(events.map((e) => e.id));
  for (const e of events)
    if (e.parent_event_id !== null) {
      expect(ids.has(e.parent_event_id), `${what}: parent of ${e.type}`).toBe(true);
      expect(e.parent_event_id < e.id, `${what}: parent of ${e.type}`).toBe(true);
    }
  const own = events.filter((e) => e.session_id === sessionId);
  const end = own.findLast((e) => TERMINAL.includes(e.type))!;
  const after = events.slice(events.indexOf(end) + 1).map((e) => e.type);
  expect(
    after.filter((type) => type !== 'session.ended'),
    what,
  ).toEqual([]);
  for (const started of events.filter((e) => e.type === 'turn.started')) {
    const turn = (await t.engine.store.turns.view(started.session_id, started.turn_id!))!;
    const history = await t.engine.store.messages.history(started.session_id as never);
    const mine = history.filter((m) => m.turn_id === turn.id);
    const of = (types: readonly string[]) => events.filter((e) => e.turn_id === turn.id && types.includes(e.type));
    const label = `${what}: ${turn.status} turn of ${started.actor}`;
    const totals = await t.engine.store.turns.totals(turn.id);
    const finished = of(TERMINAL)[0]!.payload;
    expect(turn.llm_call_count, label).toBe(totals.calls);
    expect(of(['llm.call_completed']), label).toHaveLength(totals.calls);
    expect(finished.llm_call_count ?? finished.partial_llm_calls, label).toBe(totals.calls);
    expect(finished.total_cost_usd, label).toBe(turn.total_cost_usd);
    const asked = mine
      .filter((m) => m.role === 'assistant' && m.metadata.status === 'complete')
      .flatMap((m) => toolUses(m.content).map((b) => b.id));
    expect(
      mine.filter((m) => m.role === 'tool').map((m) => m.metadata.parent_tool_use_id),
      label,
    ).toEqual(asked);
    expect(turn.tool_call_count, label).toBe(asked.length);
    expect(finished.tool_call_count ?? finished.partial_tool_calls, label).toBe(asked.length);
    for (const id of asked)
      expect(
        of(TOOL_END).filter((e) => e.payload.tool_use_id === id),
        `${label}: ${id}`,
      ).toHaveLength(1);
    expect(turn.final_message_id, label).toBe(mine.findLast((m) => m.role === 'assistant')?.id ?? null);
    expect(toPusd(turn.total_cost_usd), label).toBe(totals.cost_pusd);
  }
}
