// The dashboard's fold of a session's stream: deltas, late joiners, lost messages, and the bars of a timeline.
import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { StreamEvent } from '#client/client.ts';
import { executedInput } from '#dashboard/views/session/edited-call.ts';
import { loseMessages, takeMessages, takeNewest } from '#dashboard/views/session/live/live-messages.ts';
import { costWithWorkers, liveSession } from '#dashboard/views/session/live/live-node.ts';
import { applyItem, takeWorkers } from '#dashboard/views/session/live/live-session.ts';
import { applyDelta, type OpenMessage, textSoFar } from '#dashboard/views/session/live/open-message.ts';
import { buildSpans, type TimelineEvent } from '#dashboard/views/session/live/spans.ts';
import { groupWaits } from '#dashboard/views/session/live/waits.ts';

const event = (type: string, payload: object, rest: object = {}): StreamEvent =>
  ({
    id: null,
    transient: true,
    session_id: 'sess_1',
    turn_id: 'turn_1',
    timestamp: '2026-01-01T00:00:00.000Z',
    type,
    payload,
    ...rest,
  }) as unknown as StreamEvent;
const stored = (type: string, payload: object, rest: object = {}) =>
  event(type, payload, { transient: false, ...rest });
const start = (content: object[] = [], open_tool_inputs: object[] = []) =>
  event('message.start', { message_id: 'm1', role: 'assistant', model: 'x:y', content, open_tool_inputs });
const text = (text: string, at = 0) => event('text.delta', { message_id: 'm1', content_block_index: at, text });
type Delta = Parameters<typeof applyDelta>[1];

test('pieces of a message read as the whole, however they are cut and wherever one joins', () => {
  fc.assert(
    fc.property(fc.array(fc.string(), { maxLength: 20 }), fc.nat(), (pieces, at) => {
      const whole = pieces.join('');
      const open = new Map<string, OpenMessage>();
      const joined = at % (pieces.length + 1);
      for (const piece of ['begun before', 'by another count']) applyDelta(open, text(piece) as Delta);
      applyDelta(open, start([{ type: 'text', text: pieces.slice(0, joined).join('') }]) as Delta);
      for (const piece of pieces.slice(joined)) applyDelta(open, text(piece) as Delta);
      expect(textSoFar(open.get('m1')!)).toBe(whole);
    }),
  );
});

test('a tool call is shown as it is written, then with its input', () => {
  const open = new Map<string, OpenMessage>();
  const place = { message_id: 'm1', content_block_index: 0, tool_use_id: 'tu_1' };
  applyDelta(open, start() as Delta);
  applyDelta(open, event('tool.use_start', { ...place, tool_name: 'grep' }) as Delta);
  applyDelta(open, event('tool.use_input_delta', { ...place, partial_json: '{"a":' }) as Delta);
  expect(open.get('m1')!.partial.get(0)).toBe('{"a":');
  applyDelta(open, event('tool.use_end', { ...place, final_input: { a: 1 }, input_error: null }) as Delta);
  expect(open.get('m1')!.partial.size).toBe(0);
  expect(open.get('m1')!.content).toEqual([{ type: 'tool_use', id: 'tu_1', name: 'grep', input: { a: 1 } }]);
});

test('a message whose end was missed is asked for, and stands once when it comes', () => {
  const live = liveSession('sess_1');
  applyItem(live, { type: 'event', event: start() as never });
  expect(live.open.size).toBe(1);
  const call = { message_id: 'm1', input_tokens: 1, cached_input_tokens: 0, cache_creation_input_tokens: 0 };
  applyItem(live, { type: 'event', event: stored('llm.call_completed', { ...call, cost_usd: '0', output_tokens: 1 }) });
  expect(live.wantsMessages).toBe(true);
  const message = { id: 'm1', role: 'assistant', content: [], metadata: {} } as never;
  takeMessages(live, [message]);
  takeMessages(live, [message]);
  expect([live.messages.length, live.open.size]).toEqual([1, 0]);
});

test('tokens are those of the snapshot and of the calls after it, and what the ledger says later adds nothing', () => {
  const live = liveSession('sess_1');
  const session = { id: 'sess_1', status: 'running', waiting_on: [], cost_so_far_usd: '0.1', is_worker: false };
  const counts = { input_tokens: 100, cached_input_tokens: 20, cache_creation_input_tokens: 3, output_tokens: 10 };
  const tokens = [{ session_id: 'sess_1', ...counts }];
  const snapshot = { type: 'snapshot', session, messages: [], pending_confirmations: [], tokens };
  applyItem(live, snapshot as never);
  applyItem(live, {
    type: 'event',
    event: stored('llm.call_completed', { ...counts, message_id: null, cost_usd: '0.2' }),
  });
  const [node] = live.nodes;
  expect([node!.input_tokens, node!.output_tokens, node!.cost]).toEqual([246, 20, 300_000_000_000n]);
});

// Promise 20.19: a planner that waits for its background workers is shown as waiting, not as writing.
test('a planner whose answer is whole waits for the workers that run', () => {
  const live = liveSession('sess_1');
  const session = { id: 'sess_1', status: 'running', waiting_on: [], cost_so_far_usd: '0', is_worker: false };
  applyItem(live, { type: 'snapshot', session, messages: [], pending_confirmations: [], tokens: [] } as never);
  const created = { is_worker: true, parent_session_id: 'sess_1', worker_name: null };
  applyItem(live, { type: 'event', event: { ...stored('session.created', created), session_id: 'sess_w' } as never });
  const counts = { input_tokens: 1, cached_input_tokens: 0, cache_creation_input_tokens: 0, output_tokens: 1 };
  const answer = (stop_reason: string) =>
    stored('llm.call_completed', { ...counts, message_id: null, cost_usd: '0', stop_reason });
  const doing = () => live.nodes[0]!.doing;
  applyItem(live, { type: 'event', event: stored('llm.call_started', {}) });
  applyItem(live, { type: 'event', event: answer('tool_use') });
  expect(doing()).toBe('thinking');
  applyItem(live, { type: 'event', event: answer('end_turn') });
  expect(doing()).toBe('waits for its workers');
  applyItem(live, { type: 'event', event: stored('llm.call_started', {}) });
  expect(doing()).toBe('thinking');
});

test('what was being written when its turn was put down is gone when the turn goes on', () => {
  const live = liveSession('sess_1');
  applyItem(live, { type: 'event', event: start([{ type: 'text', text: 'half a' }]) as never });
  applyItem(live, { type: 'event', event: stored('turn.resumed', {}) });
  expect(live.open.size).toBe(0);
});

test("a turn that begins and ends between two drawings is seen to have been, and a worker's is none of the session's", () => {
  const live = liveSession('sess_1');
  const before = live.turnsSeen;
  applyItem(live, { type: 'event', event: stored('turn.started', {}) });
  applyItem(live, { type: 'event', event: stored('turn.completed', {}) });
  expect(live.turnsSeen).toBe(before + 2);
  applyItem(live, { type: 'event', event: stored('turn.completed', {}, { session_id: 'sess_2' }) });
  expect(live.turnsSeen).toBe(before + 2);
});

test('a timeline holds what began and ended, session by session, and leaves open what runs', () => {
  const at = (second: number, session_id: string, type: string, payload: object) =>
    stored(type, payload, {
      id: `e${second}${session_id}${type}`,
      session_id,
      timestamp: new Date(second * 1000).toISOString(),
    }) as unknown as TimelineEvent;
  const events = [
    at(0, 'p', 'turn.started', {}),
    at(1, 'p', 'tool.called', { tool_use_id: 'd', tool_name: 'delegate' }),
    at(2, 'w', 'turn.started', {}),
    at(3, 'w', 'llm.call_started', { request_id: 'r', model: 'm' }),
    at(4, 'w', 'llm.call_failed', { request_id: 'r' }),
    at(5, 'w', 'turn.failed', {}),
    at(6, 'p', 'tool.completed', { tool_use_id: 'd', success: true }),
    at(7, 'p', 'llm.call_started', { request_id: 'r2', model: 'm' }),
  ];
  const labels = new Map([
    ['p', 'planner'],
    ['w', 'worker 1'],
  ]);
  const bars = buildSpans(events, labels);
  expect(bars.map(({ session, label, start, end, failed }) => [session, label, start / 1000, end, failed])).toEqual([
    ['planner', 'turn', 0, null, false],
    ['planner', 'delegate', 1, 6000, false],
    ['planner', 'm', 7, null, false],
    ['worker 1', 'turn', 2, 5000, true],
    ['worker 1', 'm', 3, 4000, true],
  ]);
});

test('a call with several rounds names each with its model and its cost', () => {
  const at = (type: string, payload: object) =>
    ({ id: type, type, payload, session_id: 'p', timestamp: new Date(0).toISOString() }) as unknown as TimelineEvent;
  const rounds = [
    { kind: 'message', model: 'm', cost_usd: '0', billed: false },
    { kind: 'fallback_message', model: 'other', cost_usd: '0.05', billed: true },
  ];
  const events = [
    at('llm.call_started', { request_id: 'r', model: 'm' }),
    at('llm.call_completed', { request_id: 'r', rounds }),
  ];
  const [bar] = buildSpans(events, new Map());
  expect(bar!.label).toBe('m · 2 rounds: message not billed, fallback_message other $0.05');
});

test('a call is taken for edited by its approval alone, and what ran is told by its result', () => {
  const result = (text: string) => ({ type: 'tool_result', tool_use_id: 'tu_1', content: [{ type: 'text', text }] });
  const message = (text: string) => ({ id: 'm1', role: 'tool', content: [result(text)], metadata: {} }) as never;
  const note = '[input edited by user before execution] {"path":"b.txt","mode":null}';
  const live = liveSession('sess_1');
  takeMessages(live, [message('[input edited')]);
  expect([live.wantsEdits, live.edits.size]).toEqual([false, 0]);
  // A tool may say so as well: it is looked up, and not believed.
  takeMessages(live, [message(note)]);
  expect([live.wantsEdits, live.edits.size]).toEqual([true, 0]);
  const resolved = (decision: string) =>
    applyItem(live, {
      type: 'event',
      event: stored('tool.confirmation_resolved', { tool_use_id: 'tu_1', confirmation_request_id: 'c', decision }),
    });
  resolved('approve');
  expect(live.edits.size).toBe(0);
  resolved('modify');
  expect([...live.edits]).toEqual(['tu_1']);

  const asked = { path: 'a.txt', content: 'x', mode: 1 };
  expect(executedInput(asked, result(note) as never)).toEqual({ path: 'b.txt', content: 'x' });
  expect(executedInput(asked, result(note.slice(0, -3)) as never)).toBe(null);
  const whole = '[input edited by user before execution] {"yaml":"name: w"}';
  expect(executedInput({ name: 'v' }, result(whole) as never)).toEqual({ yaml: 'name: w' });
});

test('a worker costs what those below it cost too, at any depth, and not what stands beside it', () => {
  const node = (session_id: string, parent_session_id: string | null, cost: bigint) =>
    ({ session_id, parent_session_id, cost }) as never;
  const nodes = [
    node('p', null, 1n),
    node('a', 'p', 10n),
    node('b', 'a', 100n),
    node('c', 'b', 1000n),
    node('d', 'p', 5n),
  ];
  expect(nodes.map((one) => costWithWorkers(nodes, one))).toEqual([1116n, 1110n, 1100n, null, null]);
});

test('after a broken connection messages are whole again, or those before the hole are asked for anew', () => {
  const message = (id: string) => ({ id, role: 'user', content: [], metadata: {} }) as never;
  const ids = (live: ReturnType<typeof liveSession>) => live.messages.map(({ id }) => id).join('');
  const broken = () => {
    const live = liveSession('sess_1');
    takeMessages(live, ['a', 'b', 'c'].map(message));
    loseMessages(live);
    // What is told once it stands again does not close the hole before it.
    takeMessages(live, [message('h')]);
    loseMessages(live);
    return live;
  };
  const closed = broken();
  expect([closed.wantsMessages, closed.wholeUpTo]).toEqual([true, 'c']);
  takeNewest(closed, ['c', 'd', 'g', 'h'].map(message), true);
  expect([ids(closed), closed.hasOlder, closed.wholeUpTo]).toEqual(['abcdgh', false, null]);
  const open = broken();
  takeNewest(open, ['g', 'h'].map(message), true);
  expect([ids(open), open.hasOlder]).toEqual(['gh', true]);
});

const WORKER = { session_id: 'sess_2', turn_id: 'turn_2' };
const record = (output: string | null) => ({
  tool_use_id: 'tu_1',
  worker_session_id: 'sess_2',
  parent_session_id: 'sess_1',
  tier: 'fast',
  resolved_model: 'x:y',
  output,
  ended_at: output === null ? null : '2026-01-01T00:00:00.000Z',
  created_at: '2026-01-01T00:00:00.000Z',
  status: output === null ? 'running' : 'completed',
  failure_mode: null,
  worker_name: null,
  usage_summary: { input_tokens: 0, output_tokens: 0, cost_usd: '0' },
});

// Promise 17.8: what a worker wrote is in its pane, wherever one joins or loses the connection.
test('what a worker wrote is in its pane wherever one joins or loses the connection, and what was heard stands once', () => {
  const pieces = ['a ', 'is ', 'written'];
  const words = pieces.join('');
  const called = { type: 'tool_use', id: 'tu_9', name: 'write_file', input: { path: 'a.txt' } };
  const of = (id: string, type: string, payload: object) =>
    event(type, { message_id: id, content_block_index: 0, ...payload }, WORKER);
  const begun = (id: string, content: object[] = [], open_tool_inputs: object[] = []) =>
    of(id, 'message.start', { role: 'assistant', model: 'x:y', content, open_tool_inputs });
  const done = (id: string, final_content: object[]) => of(id, 'message.complete', { final_content });
  const said = [
    begun('m1'),
    of('m1', 'tool.use_start', { tool_use_id: 'tu_9', tool_name: 'write_file' }),
    of('m1', 'tool.use_end', { tool_use_id: 'tu_9', final_input: { path: 'a.txt' } }),
    done('m1', [called]),
    begun('m2'),
    ...pieces.map((piece) => of('m2', 'text.delta', { text: piece })),
    done('m2', [{ type: 'text', text: words }]),
  ];
  /** What is told at the switch to live, before what follows. */
  const relisted = (at: number): StreamEvent[] => {
    if (at === 2) {
      const open = { content_block_index: 0, tool_use_id: 'tu_9', tool_name: 'write_file', partial_json: '{' };
      return [begun('m1', [{ ...called, input: {} }], [open])];
    }
    if (at === 1 || at === 5) return [begun(at === 1 ? 'm1' : 'm2')];
    if (at === 3) return [begun('m1', [called])];
    return at > 5 && at < 9 ? [begun('m2', [{ type: 'text', text: pieces.slice(0, at - 5).join('') }])] : [];
  };
  const whole = `→ write_file a.txt\n${words}`;
  /** Hears all up to `lost`, then from `joined` on. */
  const heard = (lost: number, joined: number): string => {
    const live = liveSession('sess_1');
    takeWorkers(live, [record(null)] as never);
    const hear = (events: readonly StreamEvent[]) => {
      for (const one of events) applyItem(live, { type: 'event', event: one as never });
    };
    hear(said.slice(0, lost));
    loseMessages(live);
    hear([...relisted(joined), ...said.slice(joined)]);
    for (let n = 0; n < 2; n += 1) takeWorkers(live, [record(words)] as never);
    return live.nodes[0]!.tail;
  };
  for (let lost = 0; lost <= said.length; lost += 1)
    for (let joined = lost; joined <= said.length; joined += 1) {
      // Nobody tells again what a message was that came and went while nothing was heard.
      const callHeard = lost >= 3 || joined <= 3;
      expect(heard(lost, joined), `${lost} ${joined}`).toBe(callHeard ? whole : words);
    }
});

test("a person's score makes the turns of the session be read again, the server's own and a worker's do not", () => {
  const live = liveSession('sess_1');
  const before = live.turnsSeen;
  const scored = (actor: string, rest: object = {}) =>
    applyItem(live, { type: 'event', event: stored('eval.completed', {}, { actor, ...rest }) });
  scored('system');
  scored('user', WORKER);
  expect(live.turnsSeen).toBe(before);
  scored('user');
  expect(live.turnsSeen).toBe(before + 1);
});

test('a session whose model writes is answering, and waits for the model no longer', () => {
  const live = liveSession('sess_1');
  const waiting_on = [{ kind: 'model', session_id: 'sess_1', since: '2026-01-01T00:00:00.000Z' }] as never;
  const session = { id: 'sess_1', status: 'running', waiting_on, cost_so_far_usd: '0', is_worker: false };
  applyItem(live, { type: 'snapshot', session, messages: [], pending_confirmations: [], tokens: [] } as never);
  const say = () => groupWaits(waiting_on, live.nodes).map(({ names, doing }) => `${names} ${doing}`);
  expect(say()).toEqual(['planner waiting for the model']);
  applyItem(live, { type: 'event', event: start() });
  applyItem(live, { type: 'event', event: text('An answer') });
  expect(say()).toEqual(['planner answering']);
});

test('a worker has one name in every tab: its number is its place among the calls, whichever began first', () => {
  const at = (session_id: string, type: string, payload: object) =>
    stored(type, payload, { id: `${type} ${session_id}`, session_id, turn_id: 'turn_1' });
  /** Of the call `tu_N`, in the order in which the server may store them. */
  const begin = (call: number, worker_name: string | null = null) => {
    const born = { is_worker: true, parent_session_id: 'sess_1', parent_tool_use_id: `tu_${call}`, worker_name };
    const started = { tool_use_id: `tu_${call}`, worker_session_id: `w${call}`, tier: 'fast', dropped_tools: [] };
    return [
      at(`w${call}`, 'session.created', born),
      at('sess_1', 'delegate.started', started),
      at(`w${call}`, 'turn.started', {}),
    ];
  };
  const events = [at('sess_1', 'turn.started', {}), ...begin(3), ...begin(1), ...begin(4, 'reviewer'), ...begin(2)];
  const session = { id: 'sess_1', status: 'running', waiting_on: [], cost_so_far_usd: '0', is_worker: false };
  const join = (workers: readonly object[]) => {
    const live = liveSession('sess_1');
    const rest = { messages: [], pending_confirmations: [], tokens: [], workers };
    applyItem(live, { type: 'snapshot', session, ...rest } as never);
    return live;
  };
  const nameSessions = ({ nodes }: ReturnType<typeof liveSession>) =>
    Object.fromEntries(nodes.map(({ session_id, label }) => [session_id, label]));
  const named = { sess_1: 'planner', w1: 'worker 1', w2: 'worker 2', w3: 'worker 3', w4: 'reviewer' };

  const followed = join([]);
  for (const one of events) applyItem(followed, { type: 'event', event: one as never });
  expect(nameSessions(followed)).toEqual(named);
  const records = [1, 2, 3, 4].map((call) => ({
    ...record(null),
    tool_use_id: `tu_${call}`,
    worker_session_id: `w${call}`,
    worker_name: call === 4 ? 'reviewer' : null,
  }));
  const joined = join(records);
  expect(nameSessions(joined)).toEqual(named);
  // A later turn's timeline begins in the middle of the count.
  for (const part of [events, events.slice(-3)]) {
    const bars = buildSpans(part as unknown as TimelineEvent[], new Map(Object.entries(nameSessions(joined))));
    for (const { session_id, session } of bars) expect(session).toBe(named[session_id as keyof typeof named]);
  }
});
