// What the state of the database refuses: nothing after an end, no second of what there is once (01 §11.4, 02 §3).
import { describe, expect, test } from 'vitest';
import { JournalConflict, type Write } from '#core/ports/journal-writer.ts';
import { draft } from '#protocol/event.ts';
import { NO_CHANGES } from '#protocol/file-change.ts';
import { callCompleted, systemEvent, turnCompleted } from '../../support/drafts.ts';
import {
  assistantMessage,
  confirmation,
  delegationRecord,
  outcome,
  sessionRecord,
  turnRecord,
  userMessage,
} from '../../support/records.ts';
import { notApplicable } from '../../support/route-chain.ts';
import { endTurn, storedSession, storedToolUse, storedTurn, storedWorker } from './nouns.ts';
import type { OpenStore, World } from './world.ts';

const conflict = (code: string) => expect.objectContaining({ name: 'JournalConflict', code });

export function conditionSuite(openWorld: OpenStore): void {
  describe('conditions', () => {
    // Promise 01.14: one open turn per session, whoever submits at once.
    test('two turns submitted at once on one session: one is accepted, one is turn_in_flight', async () => {
      const world = await openWorld();
      const session = await storedSession(world);
      const results = await Promise.allSettled([storedTurn(world, session), storedTurn(world, session)]);
      expect(results[0]?.status).toBe('fulfilled');
      expect(results[1]).toMatchObject({ status: 'rejected', reason: conflict('turn_in_flight') });
      expect(await world.count('turns')).toBe(1);
      expect(await world.count('messages')).toBe(1);
      expect(world.logged).toEqual([]);
    });

    test('nothing is added to a turn that has ended, but verdicts about it', async () => {
      const world = await openWorld();
      const session = await storedSession(world);
      const turn = await storedTurn(world, session);
      const call = await storedToolUse(world, turn);
      await world.journal.commit({
        writes: [
          { kind: 'turn.end', turn_id: turn.id, session_id: session.id, outcome: outcome(world), unread_inputs: 0 },
        ],
        emit: [turnCompleted(turn)],
      });
      const before = await world.count('events');
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
        writes: [
          { kind: 'turn.end', turn_id: turn.id, session_id: session.id, outcome: outcome(world), unread_inputs: 0 },
        ],
        emit: [],
      });
      await closed({
        writes: [
          { kind: 'turn.interrupt', turn_id: turn.id, reason: 'restart', llm_call_count: 0, tool_call_count: 0 },
        ],
        emit: [],
      });
      await closed({ writes: [{ kind: 'turn.resume', turn_id: turn.id, count_attempt: true }], emit: [] });
      expect(await world.count('events')).toBe(before);
      expect(await world.rows('SELECT status FROM tool_calls WHERE id = ?', call.id)).toEqual([{ status: 'pending' }]);
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
      expect(await world.count('events')).toBe(before + 1);
    });

    test('what is known of an open turn ends with the turn: for the batch behind it in the same transaction, not for one rolled back', async () => {
      const world = await openWorld();
      const session = await storedSession(world);
      const turn = await storedTurn(world, session);
      const end: Write = {
        kind: 'turn.end',
        turn_id: turn.id,
        session_id: session.id,
        outcome: outcome(world),
        unread_inputs: 0,
      };
      const more = () => world.journal.commit({ emit: [callCompleted(world, session, turn)] });
      await more();
      await expect(world.journal.commit({ writes: [end, end], emit: [] })).rejects.toEqual(conflict('turn_closed'));
      await more();
      const both = await Promise.allSettled([
        world.journal.commit({ writes: [end], emit: [turnCompleted(turn)] }),
        more(),
      ]);
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

    // Promise 02.17: a turn has one terminal event, and nothing after it.
    test('within one batch nothing follows the terminal event of its turn, so a turn ends once', async () => {
      const world = await openWorld();
      const session = await storedSession(world);
      const turn = await storedTurn(world, session);
      const refused = world.journal.commit({ emit: [turnCompleted(turn), turnCompleted(turn)] });
      await expect(refused).rejects.toEqual(conflict('turn_closed'));
      expect(await world.count('events')).toBe(0);
    });

    test('within one batch nothing follows session.ended of its session, but what is about it', async () => {
      const world = await openWorld();
      const session = await storedSession(world);
      const other = await storedSession(world);
      const payload = { disposition: 'completed', turn_count: 0, total_cost_usd: '0', duration_seconds: 0 } as const;
      const ended = draft({ type: 'session.ended', session_id: session.id, turn_id: null, parent: null, payload });
      for (const late of [ended, systemEvent('late', { session_id: session.id })])
        await expect(world.journal.commit({ emit: [ended, late] })).rejects.toEqual(conflict('session_ended'));
      expect(await world.count('events')).toBe(0);
      await world.journal.commit({ emit: [systemEvent('before', { session_id: session.id }), ended] });
      await world.journal.commit({ emit: [{ ...ended, session_id: other.id }, systemEvent('of the server')] });
      expect(await world.count('events')).toBe(4);
    });

    test('a refused routing decision needs no turn row', async () => {
      const world = await openWorld();
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
              chosen_effort: null,
              winner_index: -1,
              elapsed_ms: 0.2,
              refused: 'routing_failed',
              fallback_costlier: false,
              requested_model: null,
              facts: null,
              chain: policies.map((policy) => notApplicable(policy)),
            },
          }),
        ],
      });
      expect(event?.type).toBe('route.decided');
    });

    test('the first answer to a prompt stands; a later one is confirmation_resolved', async () => {
      const world = await openWorld();
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
      expect(await world.store.confirmations.isGranted(session.id, 'k')).toBe(false);
      const [first, second] = await Promise.allSettled([resolve('approve'), resolve('reject')]);
      expect(first.status).toBe('fulfilled');
      expect(second).toMatchObject({ status: 'rejected', reason: conflict('confirmation_resolved') });
      expect(await world.store.confirmations.view(row.id)).toMatchObject({
        decision: 'approve',
        input: { path: 'a.txt' },
      });
      expect(await world.store.confirmations.isGranted(session.id, 'k')).toBe(true);
    });

    test('an idempotency key is stored with its effect, once, until it has expired', async () => {
      const world = await openWorld();
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
      expect(await world.count('sessions')).toBe(1);
      expect(await world.store.idempotency('POST', '/sessions', '', 'k')).toEqual(row);
      world.time.now += 1000;
      await create();
      expect(await world.count('sessions')).toBe(2);
    });

    test('a delegation ends once, and a call gets one worker', async () => {
      const world = await openWorld();
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
              changes: NO_CHANGES,
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

    // Promise 01.20: a model queued during a turn lands at its end, the last one wins, clearing included.
    test('a queued model lands with the end of the turn; the last one queued wins, and clearing is a value too', async () => {
      const world = await openWorld();
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
      const reopened = await world.reopen();
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
      const world = await openWorld();
      const session = await storedSession(world);
      const turn = await storedTurn(world, session);
      await world.journal.commit({
        writes: [
          { kind: 'turn.interrupt', turn_id: turn.id, reason: 'restart', llm_call_count: 2, tool_call_count: 1 },
        ],
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
      const world = await openWorld();
      const row = { version: 'A', content_hash: 'h1', source: 'builtin', models_json: '{}' };
      await world.journal.savePriceVersion(row);
      await world.journal.savePriceVersion(row);
      await expect(world.journal.savePriceVersion({ ...row, content_hash: 'h2' })).rejects.toThrow(/version A/);
      expect(await world.count('price_versions')).toBe(1);
    });

    test('a user message of another form is refused before anything is written', async () => {
      const world = await openWorld();
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
      expect(await world.count('turns')).toBe(0);
    });
  });
}
