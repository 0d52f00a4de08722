// The journal: atomic batches, one order for events and deltas, nothing after an end (00 §3, 02 §2-§4).
import { expect, test } from 'vitest';
import { draft, type EventDraft } from '../../src/domain/event.ts';
import { EventValidationError, JournalConflict, UnknownEventTypeError, type Write } from '../../src/ports/journal.ts';
import { callCompleted, systemEvent, textDelta, turnCompleted } from '../support/drafts.ts';
import {
  assistantMessage,
  confirmation,
  delegationRecord,
  outcome,
  sessionRecord,
  turnRecord,
  userMessage,
} from '../support/records.ts';
import { notApplicable } from '../support/route-chain.ts';
import { endTurn, storedSession, storedToolUse, storedTurn, storedWorker } from './nouns.ts';
import { openWorld, publishedEvents, type World } from './world.ts';

const conflict = (code: string) => expect.objectContaining({ name: 'JournalConflict', code });
const labels = (world: World) =>
  world.published.map((item) =>
    item.kind === 'event'
      ? (item.event.payload as { policy_path?: string }).policy_path
      : (item.transient.delta.payload as { text?: string }).text,
  );

test('a draft of an unknown or a stream-only type is refused and nothing is stored', async () => {
  const world = openWorld();
  for (const type of ['gateway.key_issued', 'text.delta', 'made.up', 'toString']) {
    const event = systemEvent('x', { type: type as EventDraft['type'] });
    await expect(world.journal.commit({ emit: [event] })).rejects.toThrow(UnknownEventTypeError);
  }
  expect(world.count('events')).toBe(0);
});

test('a payload that breaks its schema is refused with every fault named, its row changes with it', async () => {
  const world = openWorld();
  const session = sessionRecord(world);
  const event = systemEvent('x', { payload: { policy_path: 1, surplus: true } as unknown as EventDraft['payload'] });
  const refused = world.journal.commit({ writes: [{ kind: 'session.insert', session }], emit: [event] });
  await expect(refused).rejects.toThrow(EventValidationError);
  await expect(refused).rejects.toMatchObject({
    event_type: 'routing.policy_invalid',
    errors: expect.arrayContaining([
      expect.stringContaining('policy_path'),
      expect.stringContaining('errors'),
      expect.stringContaining('surplus'),
    ]),
  });
  expect(world.count('sessions')).toBe(0);
  expect(world.published).toEqual([]);
});

test('a batch that fails stores and delivers nothing; a subscriber of one that commits already sees its rows', async () => {
  const world = openWorld();
  const session = await storedSession(world);
  let seen = -1;
  world.bus.subscribe('reader', () => {
    seen = world.count('events');
  });
  await expect(
    world.journal.commit({
      writes: [{ kind: 'session.insert', session }],
      emit: [systemEvent('lost')],
    }),
  ).rejects.toThrow(/UNIQUE/);
  expect(world.count('events')).toBe(0);
  expect(seen).toBe(-1);
  await world.journal.commit({ emit: [systemEvent('a'), systemEvent('b')] });
  expect(seen).toBe(2);
});

test('batches of one tick share a transaction, and one that is refused takes no other with it', async () => {
  const world = openWorld();
  const session = await storedSession(world);
  let seenAtFirst = -1;
  world.bus.subscribe('reader', () => {
    if (seenAtFirst < 0) seenAtFirst = world.count('events');
  });
  const results = await Promise.allSettled([
    world.journal.commit({ emit: [systemEvent('first')] }),
    world.journal.commit({ writes: [{ kind: 'session.insert', session }], emit: [systemEvent('refused')] }),
    world.journal.commit({ writes: [{ kind: 'turn.insert', turn: turnRecord(world, session) }], emit: [] }),
    world.journal.commit({ emit: [systemEvent('last')] }),
  ]);
  expect(results.map((r) => r.status)).toEqual(['fulfilled', 'rejected', 'fulfilled', 'fulfilled']);
  expect(labels(world)).toEqual(['first', 'last']);
  expect(world.count('turns')).toBe(1);
  // Delivery begins when all of them are durable.
  expect(seenAtFirst).toBe(2);
});

test('when the transaction itself fails, every batch of it is refused and none is delivered', async () => {
  const world = openWorld();
  world.handle.db.exec(`CREATE TRIGGER full BEFORE INSERT ON events WHEN new.payload_json LIKE '%poison%'
    BEGIN SELECT raise(ROLLBACK, 'disk full'); END`);
  const results = await Promise.allSettled(
    ['a', 'poison', 'c'].map((label) => world.journal.commit({ emit: [systemEvent(label)] })),
  );
  expect(results.map((r) => r.status)).toEqual(['rejected', 'rejected', 'rejected']);
  expect(world.published).toEqual([]);
  expect(world.count('events')).toBe(0);
  await world.journal.commit({ emit: [systemEvent('later')] });
  expect(labels(world)).toEqual(['later']);
});

test('a delta emitted after a commit was queued leaves after that commit, one emitted in between stays in between', async () => {
  const world = openWorld();
  const session = await storedSession(world);
  world.journal.transient(textDelta(session, 'at once'));
  expect(labels(world)).toEqual(['at once']);
  const first = world.journal.commit({ emit: [systemEvent('one'), textDelta(session, 'inside'), systemEvent('two')] });
  world.journal.transient(textDelta(session, 'between'));
  const second = world.journal.commit({ emit: [systemEvent('three')] });
  world.journal.transient(textDelta(session, 'after'));
  expect(labels(world)).toEqual(['at once']);
  await Promise.all([first, second]);
  expect(labels(world)).toEqual(['at once', 'one', 'inside', 'two', 'between', 'three', 'after']);
});

test('what a subscriber emits is delivered after what it was called with', async () => {
  const world = openWorld();
  const session = await storedSession(world);
  let answered = false;
  const order: unknown[] = [];
  world.bus.subscribe('answers', (items) => {
    if (answered || items[0]?.kind !== 'event') return;
    answered = true;
    world.journal.transient(textDelta(session, 'answer'));
  });
  world.bus.subscribe('late', (items) => order.push(...items.map((item) => item.kind)));
  await Promise.all([
    world.journal.commit({ emit: [systemEvent('one')] }),
    world.journal.commit({ emit: [systemEvent('two')] }),
  ]);
  await world.journal.commit({ emit: [systemEvent('three')] });
  expect(labels(world)).toEqual(['one', 'two', 'answer', 'three']);
  expect(order).toEqual(['event', 'event', 'transient', 'event']);
});

test('10 000 events of 5 sessions, committed with awaits at random, arrive in id order with every parent before its child', async () => {
  const world = openWorld();
  const sessions = await Promise.all(Array.from({ length: 5 }, () => storedSession(world)));
  let seed = 7;
  const random = () => {
    seed = (seed * 48271) % 2147483647;
    return seed / 2147483647;
  };
  await Promise.all(
    sessions.map(async (session) => {
      let parent: EventDraft['parent'] = null;
      for (let sent = 0; sent < 2000; ) {
        const n = 1 + Math.floor(random() * 20);
        const emit = Array.from(
          { length: Math.min(n, 2000 - sent) },
          (_, i): EventDraft => systemEvent('x', { session_id: session.id, parent: i === 0 ? parent : i - 1 }),
        );
        sent += emit.length;
        const events = await world.journal.commit({ emit });
        parent = events.at(-1)?.id ?? null;
        if (random() < 0.2) await new Promise((resolve) => setImmediate(resolve));
      }
    }),
  );
  const delivered = publishedEvents(world);
  expect(delivered).toHaveLength(10_000);
  const ids = delivered.map((event) => event.id);
  expect(ids).toEqual([...ids].sort());
  expect(ids).toEqual(world.rows('SELECT id FROM events ORDER BY rowid').map((row) => row.id));
  const known = new Set<string>();
  for (const { id, parent_event_id } of delivered) {
    if (parent_event_id !== null) expect(known.has(parent_event_id)).toBe(true);
    known.add(id);
  }
  expect(delivered.filter((event) => event.parent_event_id === null)).toHaveLength(5);
});

test('a numeric parent points at that place of the batch, transients counted; one that points forward is refused', async () => {
  const world = openWorld();
  const session = await storedSession(world);
  const [a, b] = await world.journal.commit({
    emit: [textDelta(session, 'x'), systemEvent('a'), systemEvent('b', { parent: 1 })],
  });
  expect(b?.parent_event_id).toBe(a?.id);
  for (const parent of [0, 1, 2, 5, -1]) {
    const emit = [textDelta(session, 'x'), systemEvent('b', { parent })];
    await expect(world.journal.commit({ emit })).rejects.toThrow(EventValidationError);
  }
});

test('every event of a worker session has actor worker, delegate.* of a planner has system; a draft may name another', async () => {
  const world = openWorld();
  const planner = await storedSession(world);
  const turn = await storedTurn(world, planner);
  const worker = await storedWorker(world, planner, turn);
  const failed = (session_id: string, worker_session_id: typeof worker.id): EventDraft =>
    draft({
      type: 'delegate.failed',
      session_id,
      turn_id: null,
      parent: null,
      payload: {
        tool_use_id: world.ids.toolUse(),
        worker_session_id,
        failure_mode: 'timeout',
        error_message: '',
        worker_total_cost_usd: '0',
        pricing_version: '',
        insufficient_context_request: null,
        cancel_scope: null,
        tier: null,
        worker_name: null,
      },
    });
  const events = await world.journal.commit({
    emit: [
      failed(planner.id, worker.id),
      failed(worker.id, worker.id),
      callCompleted(world, worker, null),
      systemEvent('x', { session_id: worker.id, actor: 'user' }),
      callCompleted(world, planner, null),
      systemEvent('x', { actor: 'user' }),
    ],
  });
  expect(events.map((event) => event.actor)).toEqual(['system', 'worker', 'worker', 'worker', 'agent', 'user']);
  expect(world.rows('SELECT actor FROM events ORDER BY id').map((row) => row.actor)).toEqual(
    events.map((event) => event.actor),
  );
});

test('an event of a session that does not exist is refused', async () => {
  const world = openWorld();
  const event = systemEvent('x', { session_id: world.ids.session() });
  await expect(world.journal.commit({ emit: [event] })).rejects.toThrow(/no session/);
  expect(world.logged.map((line) => line.level)).toEqual(['error']);
});

test('two turns submitted at once on one session: one is accepted, one is turn_in_flight', async () => {
  const world = openWorld();
  const session = await storedSession(world);
  const results = await Promise.allSettled([storedTurn(world, session), storedTurn(world, session)]);
  expect(results[0]?.status).toBe('fulfilled');
  expect(results[1]).toMatchObject({ status: 'rejected', reason: conflict('turn_in_flight') });
  expect(world.count('turns')).toBe(1);
  expect(world.count('messages')).toBe(1);
  expect(world.logged).toEqual([]);
});

test('nothing is added to a turn that has ended, but verdicts about it', async () => {
  const world = openWorld();
  const session = await storedSession(world);
  const turn = await storedTurn(world, session);
  const call = await storedToolUse(world, turn);
  await world.journal.commit({
    writes: [{ kind: 'turn.end', turn_id: turn.id, session_id: session.id, outcome: outcome(world) }],
    emit: [turnCompleted(turn)],
  });
  const before = world.count('events');
  const closed = (batch: Parameters<World['journal']['commit']>[0]) =>
    expect(world.journal.commit(batch)).rejects.toEqual(conflict('turn_closed'));
  await closed({ emit: [callCompleted(world, session, turn)] });
  await closed({ emit: [turnCompleted(turn)] });
  await closed({ writes: [{ kind: 'message.insert', message: assistantMessage(world, turn) }], emit: [] });
  await closed({
    writes: [{ kind: 'delegation.insert', delegation: delegationRecord(world, turn, world.ids.toolUse()) }],
    emit: [],
  });
  await closed({
    writes: [{ kind: 'confirmation.insert', confirmation: confirmation(world, turn, session.id) }],
    emit: [],
  });
  await closed({
    writes: [{ kind: 'turn.end', turn_id: turn.id, session_id: session.id, outcome: outcome(world) }],
    emit: [],
  });
  await closed({
    writes: [{ kind: 'turn.interrupt', turn_id: turn.id, reason: 'restart', llm_call_count: 0, tool_call_count: 0 }],
    emit: [],
  });
  await closed({ writes: [{ kind: 'turn.resume', turn_id: turn.id, count_attempt: true }], emit: [] });
  expect(world.count('events')).toBe(before);
  expect(world.rows('SELECT status FROM tool_calls WHERE id = ?', call.id)).toEqual([{ status: 'pending' }]);
  await world.journal.commit({
    emit: [
      draft({
        type: 'eval.completed',
        session_id: session.id,
        turn_id: turn.id,
        parent: null,
        payload: {
          eval_id: world.ids.next(),
          subject_kind: 'turn',
          subject_id: turn.id,
          score: 1,
          confidence: 1,
          rubric_id: 'r',
          rubric_version: '1',
          signals: {},
        },
      }),
    ],
  });
  expect(world.count('events')).toBe(before + 1);
});

test('what is known of an open turn ends with the turn: for the batch behind it in the same transaction, not for one rolled back', async () => {
  const world = openWorld();
  const session = await storedSession(world);
  const turn = await storedTurn(world, session);
  const end: Write = { kind: 'turn.end', turn_id: turn.id, session_id: session.id, outcome: outcome(world) };
  const more = () => world.journal.commit({ emit: [callCompleted(world, session, turn)] });
  await more();
  await expect(world.journal.commit({ writes: [end, end], emit: [] })).rejects.toEqual(conflict('turn_closed'));
  await more();
  const both = await Promise.allSettled([world.journal.commit({ writes: [end], emit: [turnCompleted(turn)] }), more()]);
  expect(both.map(({ status }) => status)).toEqual(['fulfilled', 'rejected']);
  expect(both[1]).toMatchObject({ reason: conflict('turn_closed') });

  const over: Write = { kind: 'session.end', session_id: session.id, disposition: 'completed', at: world.time.now };
  const swap: Write = { kind: 'session.set_model', session_id: session.id, model: 'openai:x', at: world.time.now };
  const told = draft({
    type: 'session.ended',
    session_id: session.id,
    turn_id: null,
    parent: null,
    payload: { disposition: 'completed', turn_count: 1, total_cost_usd: '0', duration_seconds: 0 },
  });
  const last = await Promise.allSettled([
    world.journal.commit({ writes: [over], emit: [] }),
    world.journal.commit({ writes: [swap], emit: [told] }),
    world.journal.commit({ emit: [told] }),
  ]);
  expect(last.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'rejected']);
  expect(last[2]).toMatchObject({ reason: conflict('session_ended') });
});

test('within one batch nothing follows the terminal event of its turn, so a turn ends once', async () => {
  const world = openWorld();
  const session = await storedSession(world);
  const turn = await storedTurn(world, session);
  const refused = world.journal.commit({ emit: [turnCompleted(turn), turnCompleted(turn)] });
  await expect(refused).rejects.toEqual(conflict('turn_closed'));
  expect(world.count('events')).toBe(0);
});

test('within one batch nothing follows session.ended of its session, but what is about it', async () => {
  const world = openWorld();
  const session = await storedSession(world);
  const other = await storedSession(world);
  const payload = { disposition: 'completed', turn_count: 0, total_cost_usd: '0', duration_seconds: 0 } as const;
  const ended = draft({ type: 'session.ended', session_id: session.id, turn_id: null, parent: null, payload });
  for (const late of [ended, systemEvent('late', { session_id: session.id })])
    await expect(world.journal.commit({ emit: [ended, late] })).rejects.toEqual(conflict('session_ended'));
  expect(world.count('events')).toBe(0);
  await world.journal.commit({ emit: [systemEvent('before', { session_id: session.id }), ended] });
  await world.journal.commit({ emit: [{ ...ended, session_id: other.id }, systemEvent('of the server')] });
  expect(world.count('events')).toBe(4);
});

test('a refused routing decision needs no turn row', async () => {
  const world = openWorld();
  const session = await storedSession(world);
  const policies = [
    'per_message_override',
    'manual_sticky',
    'rule',
    'pattern',
    'delegate_request',
    'workspace_default',
    'global_default',
  ] as const;
  const [event] = await world.journal.commit({
    emit: [
      draft({
        type: 'route.decided',
        session_id: session.id,
        turn_id: world.ids.turn(),
        parent: null,
        payload: {
          chosen_model: '',
          winner_index: -1,
          elapsed_ms: 0.2,
          refused: 'routing_failed',
          fallback_dearer: false,
          chain: policies.map((policy) => notApplicable(policy)),
        },
      }),
    ],
  });
  expect(event?.type).toBe('route.decided');
});

test('the first answer to a prompt stands; a later one is confirmation_resolved', async () => {
  const world = openWorld();
  const session = await storedSession(world);
  const turn = await storedTurn(world, session);
  const row = confirmation(world, turn, session.id, { key_hash: 'k' });
  const resolve = (decision: 'approve' | 'reject') =>
    world.journal.commit({
      writes: [
        {
          kind: 'confirmation.resolve',
          id: row.id,
          decision,
          scope: 'identical',
          reason: null,
          modified: null,
          resolved_by: 'user',
          at: world.time.now,
        },
      ],
      emit: [],
    });
  await world.journal.commit({ writes: [{ kind: 'confirmation.insert', confirmation: row }], emit: [] });
  expect(await world.store.confirmations.granted(session.id, 'k')).toBe(false);
  const [first, second] = await Promise.allSettled([resolve('approve'), resolve('reject')]);
  expect(first.status).toBe('fulfilled');
  expect(second).toMatchObject({ status: 'rejected', reason: conflict('confirmation_resolved') });
  expect(await world.store.confirmations.view(row.id)).toMatchObject({ decision: 'approve', input: { path: 'a.txt' } });
  expect(await world.store.confirmations.granted(session.id, 'k')).toBe(true);
});

test('an idempotency key is stored with its effect, once, until it has expired', async () => {
  const world = openWorld();
  const row = {
    method: 'POST',
    path: '/sessions',
    token_hash: '',
    key: 'k',
    session_id: null,
    body_hash: 'h',
    status: 201,
    response_json: '{}',
    expires_at: world.time.now + 1000,
  };
  const create = () => {
    const session = sessionRecord(world);
    return world.journal.commit({
      writes: [
        { kind: 'session.insert', session },
        { kind: 'idempotency.insert', row: { ...row, expires_at: world.time.now + 1000 } },
      ],
      emit: [],
    });
  };
  await create();
  await expect(create()).rejects.toEqual(conflict('idempotency_exists'));
  expect(world.count('sessions')).toBe(1);
  expect(await world.store.idempotency('POST', '/sessions', '', 'k')).toEqual(row);
  world.time.now += 1000;
  await create();
  expect(world.count('sessions')).toBe(2);
});

test('a delegation ends once, and a call gets one worker', async () => {
  const world = openWorld();
  const planner = await storedSession(world);
  const turn = await storedTurn(world, planner);
  const worker = await storedWorker(world, planner, turn);
  const call = worker.parent_tool_use_id;
  if (call === null) throw new Error('no call');
  const again = sessionRecord(world, { ...worker, id: world.ids.session() });
  await expect(
    world.journal.commit({ writes: [{ kind: 'session.insert', session: again }], emit: [] }),
  ).rejects.toEqual(conflict('worker_exists'));
  const end = () =>
    world.journal.commit({
      writes: [
        {
          kind: 'delegation.end',
          tool_use_id: call,
          status: 'completed',
          failure_mode: null,
          error_message: null,
          output: { n: 1 },
          active_seconds: 2.5,
          ended_at: world.time.now,
        },
      ],
      emit: [],
    });
  await end();
  await expect(end()).rejects.toThrow(JournalConflict);
  expect(await world.store.delegations.get(call)).toMatchObject({
    status: 'completed',
    output: { n: 1 },
    active_seconds: 2.5,
    request: { task: 'look' },
  });
});

test('a queued model lands with the end of the turn; the last one queued wins, and clearing is a value too', async () => {
  const world = openWorld();
  const session = await storedSession(world, { active_model: 'openai:old' });
  const turn = await storedTurn(world, session);
  for (const model of ['openai:a', null]) {
    await world.journal.commit({
      writes: [{ kind: 'session.queue_model', session_id: session.id, pending: { model }, at: world.time.now }],
      emit: [],
    });
  }
  expect(await world.store.sessions.view(session.id)).toMatchObject({
    active_model: 'openai:old',
    pending_active_model: { model: null },
    swap_queued: true,
    current_turn_id: turn.id,
  });
  const reopened = world.reopen();
  await endTurn(reopened, turn);
  expect(await reopened.store.sessions.view(session.id)).toMatchObject({
    active_model: null,
    pending_active_model: null,
    swap_queued: false,
    turn_count: 1,
    status: 'idle',
  });
});

test('only a completed turn counts, and a turn that is interrupted can be resumed', async () => {
  const world = openWorld();
  const session = await storedSession(world);
  const turn = await storedTurn(world, session);
  await world.journal.commit({
    writes: [{ kind: 'turn.interrupt', turn_id: turn.id, reason: 'restart', llm_call_count: 2, tool_call_count: 1 }],
    emit: [],
  });
  expect(await world.store.turns.open(session.id)).toMatchObject({
    status: 'interrupted',
    interrupted_reason: 'restart',
    llm_call_count: 2,
    tool_call_count: 1,
  });
  expect((await world.store.sessions.view(session.id))?.status).toBe('interrupted');
  const resume = () =>
    world.journal.commit({ writes: [{ kind: 'turn.resume', turn_id: turn.id, count_attempt: true }], emit: [] });
  await resume();
  await expect(resume()).rejects.toEqual(conflict('turn_in_flight'));
  expect(await world.store.turns.open(session.id)).toMatchObject({
    status: 'in_flight',
    interrupted_reason: null,
    resume_attempts: 1,
  });
  await endTurn(world, turn, { status: 'cancelled', stop_reason: null, cancel_reason: 'user_cancel' });
  expect(await world.store.sessions.view(session.id)).toMatchObject({ turn_count: 0, status: 'idle' });
});

test('a price version is stored once; the same version with other prices is refused', async () => {
  const world = openWorld();
  const row = { version: 'A', content_hash: 'h1', source: 'builtin', models_json: '{}' };
  await world.journal.savePriceVersion(row);
  await world.journal.savePriceVersion(row);
  await expect(world.journal.savePriceVersion({ ...row, content_hash: 'h2' })).rejects.toThrow(/version A/);
  expect(world.count('price_versions')).toBe(1);
});

test('a user message of another form is refused before anything is written', async () => {
  const world = openWorld();
  const session = await storedSession(world);
  const turn = turnRecord(world, session);
  const audio = { type: 'audio', data: 'x' } as unknown as Parameters<typeof userMessage>[2];
  await expect(
    world.journal.commit({
      writes: [
        { kind: 'turn.insert', turn },
        { kind: 'message.insert', message: userMessage(world, turn, [audio] as never) },
      ],
      emit: [],
    }),
  ).rejects.toMatchObject({
    name: 'InvalidMessageError',
    violations: expect.arrayContaining([expect.stringContaining('content')]),
  });
  expect(world.count('turns')).toBe(0);
});
