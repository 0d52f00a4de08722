// Sessions, turns and delegations as they are read: every derived field from the rows it stands for (01 §7-§9).

import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import type { SessionQuery } from '#core/ports/store-reader.ts';
import { ConfirmationDetailSchema } from '#protocol/confirmation.ts';
import { DelegationSchema } from '#protocol/delegate.ts';
import { draft } from '#protocol/event.ts';
import { NO_CHANGES } from '#protocol/file-change.ts';
import type { SessionId } from '#protocol/ids.ts';
import { toPusd } from '#protocol/money.ts';
import { type SessionRecord, SessionSchema } from '#protocol/session.ts';
import { TurnSchema } from '#protocol/turn.ts';
import { WorkerDefinitionSchema } from '#protocol/worker-definition.ts';
import { callCompleted, systemEvent } from '../../support/drafts.ts';
import {
  assistantMessage,
  confirmation,
  outcome,
  sessionRecord,
  turnRecord,
  userMessage,
  workerRecord,
} from '../../support/records.ts';
import { endTurn, storedSession, storedToolUse, storedTurn, storedWorker } from './nouns.ts';
import { NOON, type OpenStore, type World } from './world.ts';

/** Parses strictly: a field too many is a fault as much as one too few. */
const whole = <S extends z.ZodObject>(schema: S, value: unknown) => z.strictObject(schema.shape).parse(value);

const insert = (world: World, session: SessionRecord) =>
  world.journal.commit({ writes: [{ kind: 'session.insert', session }], emit: [] });

async function end(world: World, session: SessionRecord): Promise<void> {
  await world.journal.commit({
    writes: [{ kind: 'session.end', session_id: session.id, disposition: 'completed', at: world.time.now }],
    emit: [
      draft({
        type: 'session.ended',
        session_id: session.id,
        turn_id: null,
        parent: null,
        payload: { disposition: 'completed', turn_count: 0, total_cost_usd: '0', duration_seconds: 0 },
      }),
    ],
  });
}

export function sessionSuite(openWorld: OpenStore): void {
  describe('sessions', () => {
    test('a record comes back as it was written, every field of it', async () => {
      const world = await openWorld();
      const session = sessionRecord(world, {
        active_model: 'openai:x',
        pending_active_model: { model: null },
        routing_policy_version: 'a'.repeat(64),
        system_prompt: 'stable',
        system_prompt_volatile: 'volatile',
        worker_definition: {
          definition: WorkerDefinitionSchema.parse({ name: 'w', sandboxes: { in: { name: 'in', path: '.' } } }),
          output_schema: { type: 'object' },
        },
        allow_workers: ['a', 'b'],
        max_cost_pusd: toPusd('0.5'),
        on_reached: 'stop',
      });
      await insert(world, session);
      expect(await world.store.sessions.record(session.id)).toEqual(session);
      const turn = turnRecord(world, session, { per_message_override: 'a:b', resume_attempts: 2 });
      await world.journal.commit({
        writes: [
          { kind: 'turn.insert', turn },
          { kind: 'message.insert', message: userMessage(world, turn) },
        ],
        emit: [],
      });
      expect(await world.store.turns.record(session.id, turn.id)).toEqual(turn);
      expect(await world.store.turns.record(world.ids.session(), turn.id)).toBeNull();
    });

    // Promise 01.19: a worker row must agree with its call, its parent and its workspace.
    test('a worker row without its call, with an ended parent, or in another workspace is refused', async () => {
      const world = await openWorld();
      const planner = await storedSession(world);
      const ended = await storedSession(world);
      await end(world, ended);
      const call = () => world.ids.toolUse();
      const refused = [
        workerRecord(world, planner, call(), { parent_tool_use_id: null }),
        workerRecord(world, planner, call(), { parent_session_id: null }),
        workerRecord(world, planner, call(), { is_worker: false }),
        workerRecord(world, planner, call(), { workspace_path: '/elsewhere' }),
        workerRecord(world, planner, call(), { parent_session_id: world.ids.session() }),
        workerRecord(world, planner, call(), { root_session_id: ended.id }),
        workerRecord(world, planner, call(), { delegation_depth: 2 }),
        workerRecord(world, ended, call()),
        sessionRecord(world, { root_session_id: planner.id }),
      ];
      for (const session of refused) await expect(insert(world, session)).rejects.toThrow();
      await expect(insert(world, workerRecord(world, ended, call()))).rejects.toMatchObject({ code: 'session_ended' });
      expect(await world.count('sessions')).toBe(2);
      await expect(world.execute('UPDATE sessions SET is_worker = 1')).rejects.toThrow(/sessions_worker/);
    });

    // Promise 01.21: a session ends once.
    test('a session ends once: a second end is session_ended and there is one session.ended', async () => {
      const world = await openWorld();
      const session = await storedSession(world);
      await end(world, session);
      await expect(end(world, session)).rejects.toMatchObject({ code: 'session_ended' });
      expect(await world.rows("SELECT type FROM events WHERE type = 'session.ended'")).toHaveLength(1);
      expect(await world.store.sessions.view(session.id)).toMatchObject({
        status: 'ended',
        disposition: 'completed',
        ended_at: '2026-05-08T12:00:00.000Z',
      });
    });

    test('an ended session takes no turn, no settings and no event', async () => {
      const world = await openWorld();
      const session = await storedSession(world);
      await end(world, session);
      const { id: session_id } = session;
      const at = world.time.now;
      for (const write of [
        { kind: 'turn.insert', turn: turnRecord(world, session) },
        { kind: 'session.set_model', session_id, model: 'a:b', at },
        { kind: 'session.queue_model', session_id, pending: null, at },
        { kind: 'session.set_limit', session_id, max_cost_pusd: toPusd('1'), at },
        { kind: 'session.set_on_reached', session_id, on_reached: 'stop', at },
        { kind: 'session.set_policy_version', session_id, version: null },
      ] as const) {
        await expect(world.journal.commit({ writes: [write], emit: [] }), write.kind).rejects.toMatchObject({
          code: 'session_ended',
        });
      }
      await expect(world.journal.commit({ emit: [callCompleted(world, session, null)] })).rejects.toMatchObject({
        code: 'session_ended',
      });
    });

    test('settings of a session that lives are changed', async () => {
      const world = await openWorld();
      const session = await storedSession(world);
      world.time.now += 1000;
      await world.journal.commit({
        writes: [
          { kind: 'session.set_model', session_id: session.id, model: 'a:b', at: world.time.now },
          {
            kind: 'session.set_limit',
            session_id: session.id,
            max_cost_pusd: toPusd('1.5'),
            at: world.time.now,
          },
          { kind: 'session.set_on_reached', session_id: session.id, on_reached: 'stop', at: world.time.now },
          { kind: 'session.set_policy_version', session_id: session.id, version: 'b'.repeat(64) },
        ],
        emit: [],
      });
      expect(await world.store.sessions.view(session.id)).toMatchObject({
        active_model: 'a:b',
        max_cost_usd: '1.5',
        on_reached: 'stop',
        routing_policy_version: 'b'.repeat(64),
        updated_at: '2026-05-08T12:00:01.000Z',
      });
    });

    test('the wire objects of a planner with a worker and a worker’s worker are whole and add up', async () => {
      const world = await openWorld();
      const planner = await storedSession(world, { max_cost_pusd: toPusd('1') });
      const turn = await storedTurn(world, planner, '\n  Fix the parser\r\nplease');
      const worker = await storedWorker(world, planner, turn);
      const workerTurn = await storedTurn(world, worker);
      const deep = await storedWorker(world, worker, workerTurn);
      await world.journal.commit({
        emit: [
          callCompleted(world, planner, turn, { cost_usd: '0.1', cached_input_tokens: 5 }),
          callCompleted(world, worker, workerTurn, { cost_usd: '0.02' }),
          callCompleted(world, deep, null, { cost_usd: '0', priced: false }),
        ],
      });
      const view = whole(SessionSchema, await world.store.sessions.view(planner.id));
      expect(view).toMatchObject({
        cost_so_far_usd: '0.1',
        workers_cost_usd: '0.02',
        has_unpriced_calls: true,
        last_model: turn.chosen_model,
        worker_count: 2,
        active_worker_count: 2,
        title: 'Fix the parser',
        task: null,
        status: 'running',
        current_turn_id: turn.id,
        current_turn_status: 'in_flight',
        budget: {
          max_cost_usd: '1',
          spent_usd: '0.12',
          reserved_usd: '0',
          remaining_usd: '0.88',
          worker_spent_usd: '0.02',
        },
      });
      expect(whole(SessionSchema, await world.store.sessions.view(worker.id))).toMatchObject({
        is_worker: true,
        cost_so_far_usd: '0.02',
        workers_cost_usd: '0',
        has_unpriced_calls: true,
        worker_count: 1,
        active_worker_count: 1,
        budget: null,
      });
      expect(whole(TurnSchema, await world.store.turns.view(planner.id, turn.id))).toMatchObject({
        llm_call_count: 1,
        total_input_tokens: 100,
        total_cached_input_tokens: 5,
        total_cost_usd: '0.1',
        workers_cost_usd: '0.02',
        output: null,
        worker_session_ids: [worker.id],
      });
      const own = await world.store.delegations.list(planner.id, { recursive: false, after: null, limit: 10 });
      const all = await world.store.delegations.list(planner.id, { recursive: true, after: null, limit: 1 });
      expect(own.rows.map((row) => whole(DelegationSchema, row).worker_session_id)).toEqual([worker.id]);
      expect(all.next).toBe(all.rows[0]?.tool_use_id);
      const rest = await world.store.delegations.list(planner.id, { recursive: true, after: all.next, limit: 1 });
      expect([...all.rows, ...rest.rows].map((row) => row.worker_session_id)).toEqual([worker.id, deep.id]);
      expect(rest.next).toBeNull();
      expect(await world.store.sessions.lineage(deep.id)).toEqual([deep.id, worker.id, planner.id]);
      expect(await world.store.sessions.descendants(planner.id)).toEqual([deep.id, worker.id]);
      expect((await world.store.turns.allOpen()).map((t) => t.session_id)).toEqual([worker.id, planner.id]);
      expect(await world.store.sessions.counts()).toEqual({ active_sessions: 1, active_workers: 2, active_turns: 2 });
    });

    // Promise 01.18: a timed-out worker's spend is reported where it belongs.
    test('a worker that made one call and timed out reports its real spend', async () => {
      const world = await openWorld();
      const planner = await storedSession(world);
      const turn = await storedTurn(world, planner);
      const worker = await storedWorker(world, planner, turn);
      const call = worker.parent_tool_use_id;
      if (call === null) throw new Error('no call');
      world.time.now += 2000;
      await world.journal.commit({ emit: [callCompleted(world, worker, null, { cost_usd: '0.01' })] });
      world.time.now += 1000;
      await world.journal.commit({
        writes: [
          { kind: 'session.end', session_id: worker.id, disposition: 'failed', at: world.time.now },
          {
            kind: 'delegation.end',
            tool_use_id: call,
            status: 'failed',
            failure_mode: 'timeout',
            error_message: 'timeout',
            output: null,
            changes: NO_CHANGES,
            active_seconds: 3,
            ended_at: world.time.now,
          },
        ],
        emit: [],
      });
      const { rows } = await world.store.delegations.list(planner.id, { recursive: false, after: null, limit: 10 });
      expect(rows[0]).toMatchObject({
        status: 'failed',
        failure_mode: 'timeout',
        usage_summary: { cost_usd: '0.01', input_tokens: 100, output_tokens: 7, wall_time_seconds: 3, turn_count: 0 },
      });
      expect(await world.store.sessions.view(planner.id)).toMatchObject({
        cost_so_far_usd: '0',
        workers_cost_usd: '0.01',
      });
      expect(await world.store.delegations.usage(worker.id)).toMatchObject({
        llm_call_count: 1,
        cost_pusd: 10_000_000_000n,
      });
    });

    test('a turn’s output is its last answer that has text; for a worker with a schema, the object handed back', async () => {
      const world = await openWorld();
      const planner = await storedSession(world);
      const turn = await storedTurn(world, planner);
      const text = assistantMessage(world, turn, [
        { type: 'text', text: 'one' },
        { type: 'thinking', text: 'hm', signature: null },
        { type: 'text', text: 'two' },
      ]);
      await world.journal.commit({ writes: [{ kind: 'message.insert', message: text }], emit: [] });
      const { id } = await storedToolUse(world, turn);
      const output = async (session: SessionRecord, turnId: string) =>
        (await world.store.turns.view(session.id, turnId))?.output;
      expect(await output(planner, turn.id)).toBeNull();
      await endTurn(world, turn, { status: 'cancelled', stop_reason: null, cancel_reason: 'user_cancel' });
      expect(await output(planner, turn.id)).toBe('one\ntwo');
      expect(await world.store.turns.toolCall(id)).toMatchObject({ status: 'pending' });

      const next = await storedTurn(world, planner);
      const worker = await storedWorker(world, planner, next);
      const first = await storedTurn(world, worker);
      await endTurn(world, first);
      const second = await storedTurn(world, worker);
      await endTurn(world, second);
      await world.journal.commit({
        writes: [
          {
            kind: 'delegation.end',
            tool_use_id: worker.parent_tool_use_id ?? id,
            status: 'completed',
            failure_mode: null,
            error_message: null,
            output: { n: 1 },
            changes: NO_CHANGES,
            active_seconds: 1,
            ended_at: world.time.now,
          },
        ],
        emit: [],
      });
      expect(await output(worker, second.id)).toEqual({ n: 1 });
      expect(await output(worker, first.id)).toBeNull();
    });

    // Promise 05.4: the store finds the sessions of a named worker.
    test('sessions are listed newest first, by page, status, workspace, parent and named worker', async () => {
      const world = await openWorld();
      const idle = await storedSession(world);
      const running = await storedSession(world);
      const turn = await storedTurn(world, running);
      const worker = await storedWorker(world, running, turn, {
        worker_name: 'judge',
        worker_digest: 'd',
        worker_origin: 'project',
      });
      const interrupted = await storedSession(world, { workspace_path: '/other' });
      const paused = await storedTurn(world, interrupted);
      await world.journal.commit({
        writes: [
          { kind: 'turn.interrupt', turn_id: paused.id, reason: 'budget', llm_call_count: 0, tool_call_count: 0 },
        ],
        emit: [],
      });
      const ended = await storedSession(world);
      await end(world, ended);
      const query: SessionQuery = {
        workspace_path: null,
        include_workers: false,
        status: null,
        parent_session_id: null,
        worker_name: null,
        door: null,
        search: null,
        failed: false,
        owner: null,
        reader: null,
        running_without_turn: [],
        before: null,
        limit: 50,
      };
      const list = async (over: Partial<SessionQuery>) =>
        (await world.store.sessions.list({ ...query, ...over })).rows.map((session) => session.id);
      expect(await list({})).toEqual([ended.id, interrupted.id, running.id, idle.id]);
      expect(await list({ include_workers: true })).toEqual([ended.id, interrupted.id, worker.id, running.id, idle.id]);
      expect(await list({ status: ['idle'] })).toEqual([idle.id]);
      expect(await list({ status: ['running', 'interrupted'] })).toEqual([interrupted.id, running.id]);
      expect(await list({ status: ['running'], running_without_turn: [idle.id] })).toEqual([running.id, idle.id]);
      expect(await list({ status: ['idle'], running_without_turn: [idle.id] })).toEqual([]);
      expect(await list({ status: ['ended'] })).toEqual([ended.id]);
      expect(await list({ status: [] })).toEqual([]);
      expect(await list({ workspace_path: '/other' })).toEqual([interrupted.id]);
      expect(await list({ parent_session_id: running.id })).toEqual([worker.id]);
      expect(await list({ include_workers: true, worker_name: 'judge' })).toEqual([worker.id]);
      expect(await list({ include_workers: true, worker_name: 'other' })).toEqual([]);
      expect(await list({ door: 'gateway' })).toEqual([]);
      const first = await world.store.sessions.list({ ...query, limit: 3 });
      expect(first.next).toBe(running.id);
      expect(await world.store.sessions.list({ ...query, before: first.next, limit: 3 })).toMatchObject({
        rows: [{ id: idle.id }],
        next: null,
      });
    });

    test('a client’s own names lead to its sessions: once for each caller, a worker’s once in its tree', async () => {
      const world = await openWorld();
      const gateway = { door: 'gateway', client: 'claude-cli', client_ref: 'c1' } as const;
      const root = await storedSession(world, gateway);
      const other = await storedSession(world, { ...gateway, caller: 'ci' });
      const below = (parent: SessionRecord, client_ref: string | null) =>
        storedSession(world, {
          ...gateway,
          caller: parent.caller,
          is_worker: true,
          parent_session_id: parent.id,
          root_session_id: parent.root_session_id,
          delegation_depth: parent.delegation_depth + 1,
          client_ref,
        });
      const worker = await below(root, 'c1');
      const { sessions } = world.store;
      expect((await sessions.findByClientRef('', 'c1'))?.id).toBe(root.id);
      expect((await sessions.findByClientRef('ci', 'c1'))?.id).toBe(other.id);
      expect((await sessions.findWorkerInTree(root.id, 'c1'))?.id).toBe(worker.id);
      expect(await sessions.findWorkerInTree(other.id, 'c1')).toBeNull();
      expect((await sessions.findWorkerByCaller('', 'c1'))?.id).toBe(worker.id);
      expect(await sessions.findWorkerByCaller('ci', 'c1')).toBeNull();
      expect(await sessions.findByClientRef('', 'c2')).toBeNull();
      await expect(storedSession(world, gateway)).rejects.toMatchObject({ code: 'client_known' });
      await expect(below(root, 'c1')).rejects.toMatchObject({ code: 'client_known' });
      await below(other, 'c1');
      await below(root, null);
      await below(root, null);
      expect(await sessions.view(worker.id)).toMatchObject({
        ...gateway,
        caller: '',
        parent_tool_use_id: null,
        is_worker: true,
      });
      const listed = await sessions.list({
        workspace_path: null,
        include_workers: false,
        status: null,
        parent_session_id: null,
        worker_name: null,
        door: 'gateway',
        search: null,
        failed: false,
        owner: null,
        reader: null,
        running_without_turn: [],
        before: null,
        limit: 9,
      });
      expect(listed.rows.map(({ id }) => id)).toEqual([other.id, root.id]);
    });

    test('sessions are searched by id, workspace, worker, client and the text of their first message', async () => {
      const world = await openWorld();
      const list = async (search: string) => {
        const query = { workspace_path: null, include_workers: true, status: null, parent_session_id: null } as const;
        const rest = {
          worker_name: null,
          door: null,
          failed: false,
          owner: null,
          reader: null,
          running_without_turn: [],
          before: null,
          limit: 50,
        } as const;
        return (await world.store.sessions.list({ ...query, ...rest, search })).rows.map(({ id }) => id);
      };
      const shop = await storedSession(world, { workspace_path: '/srv/Shop_1' });
      const turn = turnRecord(world, shop);
      await world.journal.commit({
        writes: [
          { kind: 'turn.insert', turn },
          { kind: 'message.insert', message: userMessage(world, turn, 'Fix the 100% login!') },
        ],
        emit: [],
      });
      const cli = await storedSession(world, { workspace_path: '/srv/other', door: 'gateway', client: 'claude-cli' });
      expect(await list('shop_1')).toEqual([shop.id]);
      expect(await list('shop%1')).toEqual([]);
      expect(await list('LOGIN!')).toEqual([shop.id]);
      expect(await list('100%')).toEqual([shop.id]);
      // The form in which a message is stored is not part of its text.
      expect(await list('"type"')).toEqual([]);
      expect(await list('claude')).toEqual([cli.id]);
      expect(await list(shop.id.toLowerCase())).toEqual([shop.id]);
      expect(await list('/srv')).toEqual([cli.id, shop.id]);
    });

    test('a search through many sessions leaves time for other work, and reads pages of them', async () => {
      const world = await openWorld();
      const query = { workspace_path: null, include_workers: false, status: null, parent_session_id: null } as const;
      const rest = {
        worker_name: null,
        door: null,
        failed: false,
        running_without_turn: [],
        owner: null,
        reader: null,
      } as const;
      const sessions = Array.from({ length: 301 }, (_, at) =>
        sessionRecord(world, { workspace_path: at % 100 === 0 ? '/srv/found' : '/srv/other' }),
      );
      await world.journal.commit({
        writes: sessions.map((session) => ({ kind: 'session.insert' as const, session })),
        emit: [],
      });
      const list = (before: string | null, search = 'found') =>
        world.store.sessions.list({ ...query, ...rest, search, before, limit: 3 });
      const newest = sessions.filter((_, at) => at % 100 === 0).toReversed();
      let turns = 0;
      let searching = true;
      const other = (async () => {
        for (; searching; turns++) await new Promise((resolve) => setImmediate(resolve));
      })();
      const first = await list(null);
      const meanwhile = turns;
      searching = false;
      await other;
      expect(meanwhile).toBeGreaterThan(0);
      expect(first.rows.map(({ id }) => id)).toEqual(newest.slice(0, 3).map(({ id }) => id));
      expect(await list(first.next)).toMatchObject({ rows: [{ id: newest[3]!.id }], next: null });
      expect(await list(null, 'nowhere')).toEqual({ rows: [], next: null });
      expect((await list(null, 'other')).rows).toHaveLength(3);
    });

    test('a session whose newest turn failed reports why, and is listed until the next turn', async () => {
      const world = await openWorld();
      const query = { workspace_path: null, include_workers: false, status: null, parent_session_id: null } as const;
      const rest = {
        worker_name: null,
        door: null,
        search: null,
        owner: null,
        reader: null,
        running_without_turn: [],
        before: null,
        limit: 50,
      } as const;
      const failed = async () => (await world.store.sessions.list({ ...query, ...rest, failed: true })).rows;
      const session = await storedSession(world);
      const turn = await storedTurn(world, session);
      expect(await failed()).toEqual([]);
      const error = { error_code: 'provider_error', error_class: 'auth', error_message: 'no such key' } as const;
      await world.journal.commit({
        writes: [
          {
            kind: 'turn.end',
            turn_id: turn.id,
            session_id: session.id,
            outcome: outcome(world, { status: 'failed', ...error, retryable: false }),
            unread_inputs: 0,
          },
        ],
        emit: [],
      });
      const [row] = await failed();
      expect(row?.failure).toMatchObject({
        turn_id: turn.id,
        message: 'no such key',
        error_class: 'auth',
        retryable: false,
      });
      await storedTurn(world, session);
      expect(await failed()).toEqual([]);
      expect((await world.store.sessions.view(session.id))?.failure).toBeNull();
    });

    test('turns are listed newest first by page', async () => {
      const world = await openWorld();
      const session = await storedSession(world);
      const ids: string[] = [];
      for (let i = 0; i < 5; i++) {
        const turn = await storedTurn(world, session);
        await endTurn(world, turn);
        ids.unshift(turn.id);
      }
      const first = await world.store.turns.list(session.id, null, 3);
      expect(first.rows.map((turn) => turn.id)).toEqual(ids.slice(0, 3));
      const second = await world.store.turns.list(session.id, first.next, 3);
      expect(second.rows.map((turn) => turn.id)).toEqual(ids.slice(3));
      expect(second.next).toBeNull();
      expect(await world.store.turns.count(session.id)).toBe(5);
    });

    test('open prompts of a planner include its workers’, oldest first, until they are answered', async () => {
      const world = await openWorld();
      const planner = await storedSession(world);
      const turn = await storedTurn(world, planner);
      const worker = await storedWorker(world, planner, turn);
      const workerTurn = await storedTurn(world, worker);
      const other = await storedSession(world);
      const otherTurn = await storedTurn(world, other);
      const rows = [
        confirmation(world, turn, planner.id),
        confirmation(world, workerTurn, planner.id),
        confirmation(world, otherTurn, other.id),
      ];
      await world.journal.commit({
        writes: rows.map((row) => ({ kind: 'confirmation.insert', confirmation: row }) as const),
        emit: [],
      });
      const list = async (status: 'pending' | 'resolved' | 'all', session_id: string | null = planner.id) =>
        (await world.store.confirmations.list({ session_id, reader: null, status, after: null, limit: 10 })).rows.map(
          (row) => row.confirmation_request_id,
        );
      const [own, below, foreign] = rows.map((row) => row.id);
      expect(await list('pending')).toEqual([own, below]);
      expect(await list('all', null)).toEqual([own, below, foreign]);
      await world.journal.commit({
        writes: [
          {
            kind: 'confirmation.resolve',
            id: rows[0]?.id ?? world.ids.confirmation(),
            decision: 'reject',
            scope: 'once',
            reason: 'no',
            modified: null,
            resolved_by: 'user',
            at: world.time.now,
          },
        ],
        emit: [],
      });
      expect(await list('pending')).toEqual([below]);
      whole(ConfirmationDetailSchema, await world.store.confirmations.view(own ?? ''));
      expect(await list('resolved')).toEqual([own]);
      expect((await world.store.confirmations.allOpen()).map((row) => row.id)).toEqual([below, foreign]);
      expect(await world.store.confirmations.record(rows[0]?.id ?? world.ids.confirmation())).toEqual(rows[0]);
    });

    test('what is open is found in one tree or in all of them', async () => {
      const world = await openWorld();
      const roots: SessionId[] = [];
      for (let tree = 0; tree < 2; tree++) {
        const planner = await storedSession(world);
        const turn = await storedTurn(world, planner);
        const worker = await storedWorker(world, planner, turn);
        const workerTurn = await storedTurn(world, worker);
        const asked = confirmation(world, workerTurn, planner.id);
        await world.journal.commit({ writes: [{ kind: 'confirmation.insert', confirmation: asked }], emit: [] });
        roots.push(planner.id);
        const { turns, delegations, confirmations } = world.store;
        expect((await turns.allOpen(planner.id)).map((t) => t.id)).toEqual([workerTurn.id, turn.id]);
        expect((await delegations.allOpen(planner.id)).map((d) => d.worker_session_id)).toEqual([worker.id]);
        expect((await confirmations.allOpen(planner.id)).map((c) => c.id)).toEqual([asked.id]);
      }
      expect(await world.store.turns.allOpen()).toHaveLength(4);
      expect(await world.store.delegations.allOpen()).toHaveLength(2);
      expect((await world.store.confirmations.allOpen()).map((c) => c.root_session_id)).toEqual(roots);
    });

    test('a snapshot is one moment: session, newest 50 messages, prompts, workers and the newest event', async () => {
      const world = await openWorld();
      const planner = await storedSession(world);
      const turn = await storedTurn(world, planner);
      const worker = await storedWorker(world, planner, turn);
      await world.journal.commit({
        writes: [
          ...Array.from(
            { length: 60 },
            () => ({ kind: 'message.insert', message: assistantMessage(world, turn) }) as const,
          ),
          { kind: 'confirmation.insert', confirmation: confirmation(world, turn, planner.id) },
        ],
        emit: [callCompleted(world, planner, turn)],
      });
      const reading = world.store.snapshot(planner.id, true);
      await world.journal.commit({ emit: [callCompleted(world, planner, turn)] });
      const snapshot = await reading;
      expect(snapshot?.session.cost_so_far_usd).toBe('0.01');
      expect(snapshot?.messages).toHaveLength(50);
      const [own, below] = snapshot!.tokens;
      expect([own?.session_id, own?.input_tokens, below?.session_id, below?.input_tokens]).toEqual([
        planner.id,
        100,
        worker.id,
        0,
      ]);
      expect(snapshot?.pending_confirmations).toHaveLength(1);
      expect(snapshot?.workers?.map((row) => row.worker_session_id)).toEqual([worker.id]);
      expect(snapshot?.snapshot_at_event_id).not.toBe(await world.store.events.newestId());
      expect((await world.store.snapshot(planner.id, false))?.workers).toBeNull();
      expect(await world.store.snapshot(world.ids.session(), false)).toBeNull();
    });

    test('the store says whether it can be written', async () => {
      const world = await openWorld();
      expect(await world.store.writeFault()).toBeNull();
      await world.close();
      expect(await world.store.writeFault()).toEqual(expect.any(String));
    });

    // Promise 01.1: ids grow strictly, and stay above every stored one when the clock was set back across a restart.
    test('after a restart with the clock set back an hour, new ids are above every stored one', async () => {
      const world = await openWorld();
      const session = await storedSession(world);
      const turn = await storedTurn(world, session);
      const { id } = await storedToolUse(world, turn);
      const back = await (await world.reopen()).reopen(NOON - 3_600_000);
      // Among several nodes the ids of a tree rise for who holds it.
      if (back.several) await back.journal.commit({ emit: [systemEvent('held', { session_id: session.id })] });
      const next = back.ids.next();
      for (const stored of [session.id.slice(5), turn.id, id.slice(3)]) expect(next > stored).toBe(true);
      const ids = Array.from({ length: 100_000 }, () => back.ids.next());
      expect(ids.every((value, i) => i === 0 || value > (ids[i - 1] ?? ''))).toBe(true);
    });

    test('tokens, owners and the audit are stored alike', async () => {
      const world = await openWorld();
      const session = await storedSession(world);
      const at = NOON;
      const token = {
        id: 'T1',
        name: 'ann',
        token_sha256: '0'.repeat(64),
        role: 'admin' as const,
        daily_usd: '5',
        monthly_usd: null,
        workspaces: ['/work'],
        expires_at: null,
        created_by: null,
        created_at: at,
        revoked_at: null,
      };
      const entry = {
        id: world.ids.next(),
        at,
        actor: 'T1',
        action: 'token.created' as const,
        subject: 'ann',
        details: {},
      };
      await world.journal.commit({
        writes: [
          { kind: 'token.insert', token },
          { kind: 'audit.insert', entry, drop_before: at - 1 },
          { kind: 'session.set_ownership', session_id: session.id, owner: 'T1', share: 'private', at },
        ],
        emit: [],
      });
      const again = world.journal.commit({
        writes: [{ kind: 'token.insert', token: { ...token, id: 'T2' } }],
        emit: [],
      });
      await expect(again).rejects.toThrow('had the name');
      const last = { kind: 'token.revoke', id: 'T1', at, other_admins: 0 } as const;
      await expect(world.journal.commit({ writes: [last], emit: [] })).rejects.toThrow('last of an admin');
      await world.journal.commit({ writes: [{ ...last, other_admins: 1 }], emit: [] });
      const { people, sessions, spend } = world.store;
      expect(await people.tokens()).toEqual([{ ...token, revoked_at: at }]);
      expect((await people.audit({ before: null, limit: 1 })).rows[0]).toMatchObject({
        actor: { id: 'T1', name: 'ann' },
      });
      expect((await sessions.view(session.id))?.owner).toEqual({ id: 'T1', name: 'ann' });
      expect((await sessions.record(session.id))?.share).toBe('private');
      // What a change does not name stays as another one set it.
      const change = { kind: 'session.set_ownership', session_id: session.id, at } as const;
      await world.journal.commit({ writes: [{ ...change, share: 'write' }], emit: [] });
      expect(await sessions.record(session.id)).toMatchObject({ owner: 'T1', share: 'write' });
      await world.journal.commit({ writes: [{ ...change, owner: null }], emit: [] });
      expect(await sessions.record(session.id)).toMatchObject({ owner: null, share: 'write' });
      await world.journal.commit({ writes: [{ ...change, owner: 'T1', share: 'private' }], emit: [] });
      expect(await people.openSessions()).toEqual(new Map([['T1', 1]]));
      expect(await spend.sumOwner('T1', 0)).toBe(0n);
    });
  });
}
