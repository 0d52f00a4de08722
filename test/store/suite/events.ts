// Events in the store: the whole catalog round trip, replay, scope and what later versions may leave behind (02 §1, §5).
import { describe, expect, test } from 'vitest';
import type { z } from 'zod';
import { EventValidationError } from '#core/ports/journal-writer.ts';
import type { EventQuery } from '#core/ports/store-reader.ts';
import { CATALOG, EVENT_TYPES, type EventDraft, type EventType } from '#protocol/event.ts';
import type { SessionId } from '#protocol/ids.ts';
import { SLOTS } from '#protocol/route.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { systemEvent } from '../../support/drafts.ts';
import { endTurn, storedSession, storedTurn, storedWorker } from './nouns.ts';
import { sampleOf } from './sample.ts';
import { type OpenStore, publishedEvents, type World } from './world.ts';

const EVERYTHING: EventQuery = {
  session_id: null,
  include_workers: false,
  types: null,
  after: null,
  until: null,
  limit: 1000,
};

function draftOf(type: EventType, session_id: string, payload: unknown): EventDraft {
  return { type, session_id, turn_id: null, parent: null, payload: payload as EventDraft['payload'] };
}

export function eventSuite(openWorld: OpenStore): void {
  describe('events', () => {
    // Promise 02.1: every event type is stored and read back equal.
    // Promise 02.7: an event has the sensitivity of its type.
    test('a valid payload of every catalog type is stored and read back equal, with the sensitivity of its type', async () => {
      const world = await openWorld();
      for (const type of EVENT_TYPES) {
        const session = await storedSession(world);
        const valid = sampleOf(CATALOG[type].payload);
        const [event] = await world.journal.commit({ emit: [draftOf(type, session.id, valid)] });
        const { rows } = await world.store.events.list({ ...EVERYTHING, session_id: session.id });
        expect(rows, type).toEqual([event]);
        expect(rows[0]?.payload, type).toEqual(valid);
        expect(rows[0]?.sensitivity, type).toBe(CATALOG[type].sensitivity);
      }
    });

    test('what a missing field stands for is not stored and is read again, in its place, of every catalog type', async () => {
      const world = await openWorld();
      const session = await storedSession(world);
      for (const type of EVENT_TYPES) {
        const schema: z.ZodObject = CATALOG[type].payload;
        const full = sampleOf(schema);
        const bare = Object.fromEntries(
          Object.entries(full).map(([field, value]) => {
            const empty = [null, false, 0, []].find((v) => (schema.shape[field] as z.ZodType).safeParse(v).success);
            return [field, field === 'root_session_id' ? session.id : empty === undefined ? value : empty];
          }),
        );
        const [event] = await world.journal.commit({ emit: [draftOf(type, session.id, bare)] });
        const [stored] = await world.rows('SELECT payload_json FROM events WHERE id = ?', event!.id);
        const left = Object.entries(JSON.parse(String(stored?.payload_json)) as object);
        const said = left.filter(
          ([, value]) => [null, false, 0, session.id].includes(value as null) || value?.length === 0,
        );
        expect(said, type).toEqual([]);
        const [raw] = await world.store.events.listRaw({ ...EVERYTHING, session_id: session.id, types: [type] });
        expect(raw?.payload_json, type).toBe(JSON.stringify(schema.parse(bare)));
        expect(raw?.event, type).toEqual(event);
      }
    });

    test('of a routing decision only the chain up to its winner is stored, and the whole is read, that of older versions too', async () => {
      const world = await openWorld();
      const session = await storedSession(world);
      const verdictOf = (policy: (typeof SLOTS)[number]) => {
        const behind = SLOTS.indexOf(policy) - SLOTS.indexOf('rule');
        return behind < 0 ? ('not_applicable' as const) : behind > 0 ? ('not_evaluated' as const) : ('chose' as const);
      };
      const chain = SLOTS.map((policy) => ({
        policy,
        verdict: verdictOf(policy),
        candidate_model: policy === 'rule' ? 'a:b' : null,
        candidate_effort: policy === 'rule' ? ('low' as const) : null,
        rule_name: policy === 'rule' ? ',"x":null' : null,
        reason: verdictOf(policy) === 'not_evaluated' ? 'decided by rule' : 'says ,"rule_name":null, and goes on',
        confidence: null,
        pattern_alternatives: null,
        validation_failure: null,
        tried_rules: null,
      }));
      const decided = { chosen_model: 'a:b', chosen_effort: 'low' as const, winner_index: 2, elapsed_ms: 1 };
      const facts = {
        estimated_input_tokens: 12,
        smallest_input_tokens: null,
        is_worker: true,
        message_has_images: false,
        needs: ['tools' as const, 'system_prompt' as const],
        document_media_types: [],
        matched: [],
        unmatched: ['0123abcd'],
        worker_model: 'a:b',
        worker_tier: null,
        worker_effort: null,
        requested: null,
      };
      const payload = { ...decided, refused: null, fallback_costlier: false, chain, requested_model: null, facts };
      const [event] = await world.journal.commit({ emit: [draftOf('route.decided', session.id, payload)] });
      const [stored] = await world.rows('SELECT payload_json FROM events');
      expect(JSON.parse(String(stored?.payload_json)).chain).toEqual([
        { verdict: 'not_applicable', reason: chain[0]?.reason },
        { verdict: 'not_applicable', reason: chain[1]?.reason },
        {
          verdict: 'chose',
          candidate_model: 'a:b',
          candidate_effort: 'low',
          rule_name: ',"x":null',
          reason: chain[2]?.reason,
        },
      ]);

      expect(JSON.parse(String(stored?.payload_json)).facts).toEqual({
        estimated_input_tokens: 12,
        is_worker: true,
        unmatched: ['0123abcd'],
        worker_model: 'a:b',
      });

      const query = { ...EVERYTHING, session_id: session.id };
      const read = async () => {
        const [raw] = await world.store.events.listRaw(query);
        expect(JSON.parse(raw!.payload_json)).toEqual(payload);
        expect(raw?.event).toEqual(event);
        expect((await world.store.events.list(query)).rows).toEqual([event]);
      };
      await read();
      await world.execute(`UPDATE event_rows SET payload_json = '${JSON.stringify(payload)}'`);
      await read();
    });

    test('what most events of a type say is not stored and is read again, and anything else is stored', async () => {
      const world = await openWorld();
      const session = await storedSession(world);
      const turn = await storedTurn(world, session);
      const flags =
        'stop_reason_clean no_llm_failure no_tool_failure no_tool_exit_failure no_max_tokens_hit tool_cycle_count_reasonable';
      const usual = {
        'llm.call_started': { model: 'a:b', provider: 'a', call_index: 1, purpose: 'turn' },
        'llm.call_completed': { model: 'a:b', provider: 'a', stop_reason: 'end_turn', purpose: 'turn' },
        'turn.completed': { stop_reason: 'end_turn' },
        'eval.completed': {
          subject_kind: 'turn',
          subject_id: turn.id,
          rubric_id: 'turn-heuristic-v1',
          rubric_version: '1.2.0',
          signals: { flags: flags.split(' '), flags_negative: [] },
        },
      } as const;
      const other = {
        'llm.call_started': { provider: 'c', call_index: 2, purpose: 'compaction' },
        'llm.call_completed': { provider: 'c', stop_reason: 'cancelled', purpose: 'gateway' },
        'turn.completed': { stop_reason: 'max_tokens' },
        'eval.completed': {
          subject_kind: 'session',
          subject_id: turn.id,
          rubric_id: 'x',
          rubric_version: '1.3.0',
          signals: { flags: [], flags_negative: [] },
        },
      } as const;
      for (const type of ['llm.call_started', 'llm.call_completed', 'turn.completed', 'eval.completed'] as const) {
        const fields = Object.keys(usual[type]).filter((field) => field !== 'model');
        for (const [values, stays] of [
          [usual[type], []],
          [{ ...usual[type], ...other[type] }, fields],
        ] as const) {
          const payload = { ...sampleOf(CATALOG[type].payload), ...values };
          const emit = [{ ...draftOf(type, session.id, payload), turn_id: turn.id }];
          const [event] = await world.journal.commit({ emit });
          const [stored] = await world.rows('SELECT payload_json FROM events WHERE id = ?', event!.id);
          const kept = Object.keys(JSON.parse(String(stored?.payload_json)));
          expect(kept.filter((field) => fields.includes(field)).sort(), type).toEqual([...stays].sort());
          const [raw] = await world.store.events.listRaw({
            ...EVERYTHING,
            session_id: session.id,
            after: null,
            types: [type],
          });
          const read = await world.store.events.list({ ...EVERYTHING, session_id: session.id, types: [type] });
          expect(read.rows.at(-1), type).toEqual(event);
          if (stays.length === 0) expect(raw?.payload_json, type).toBe(JSON.stringify(payload));
        }
      }
    });

    /** The event of a server without people has no such field. */
    const mayLack = (type: string, field: string) => type === 'tool.confirmation_resolved' && field === 'answered_by';

    // Promise 02.1: a payload that breaks its schema is refused and nothing is stored.
    test('a missing field, an unknown key and money as a number are refused for every catalog type, and nothing is stored', async () => {
      const world = await openWorld();
      const session = await storedSession(world);
      for (const type of EVENT_TYPES) {
        const valid = sampleOf(CATALOG[type].payload);
        const fields = Object.keys(valid);
        const broken = [
          ...fields
            .filter((field) => !mayLack(type, field))
            .map((field) => Object.fromEntries(Object.entries(valid).filter(([key]) => key !== field))),
          { ...valid, surplus: 1 },
          ...fields.filter((field) => field.endsWith('_usd')).map((field) => ({ ...valid, [field]: 0.5 })),
        ];
        for (const payload of broken) {
          const emit = [draftOf(type, session.id, payload)];
          await expect(world.journal.commit({ emit }), type).rejects.toThrow(EventValidationError);
        }
      }
      expect(await world.count('events')).toBe(0);
      expect(await world.count('llm_calls')).toBe(0);
    });

    async function family(world: World) {
      const planner = await storedSession(world);
      const turn = await storedTurn(world, planner);
      const worker = await storedWorker(world, planner, turn);
      const other = await storedSession(world);
      const warning = (session_id: string) =>
        draftOf('budget.warning', session_id, sampleOf(CATALOG['budget.warning'].payload));
      await world.journal.commit({
        emit: [
          systemEvent('p1', { session_id: planner.id }),
          systemEvent('w1', { session_id: worker.id }),
          warning(worker.id),
          systemEvent('o1', { session_id: other.id }),
          systemEvent('p2', { session_id: planner.id }),
          warning(planner.id),
        ],
      });
      return { planner, worker, other };
    }
    const typesOf = (
      events: readonly { readonly session_id: string; readonly type: string }[],
      world: { planner: { id: string } },
    ) => events.map((event) => `${event.session_id === world.planner.id ? 'p' : 'w'}:${event.type.split('.')[0]}`);

    // Promise 02.10: a replay is the live sequence, field by field.
    test('a replay is the live sequence, field by field, and its payload text is the one that was published', async () => {
      const world = await openWorld();
      await family(world);
      const replayed = await (await world.reopen()).store.events.listRaw(EVERYTHING);
      expect(replayed.map((row) => row.event)).toEqual(publishedEvents(world));
      expect(replayed.map((row) => row.payload_json)).toEqual(
        world.published.flatMap((item) => (item.kind === 'event' ? [item.payload_json] : [])),
      );
    });

    // Promise 02.10: after the last id there is nothing to replay.
    test('a cursor is exclusive and an end is inclusive; after the last id there is nothing', async () => {
      const world = await openWorld();
      await world.journal.commit({ emit: ['a', 'b', 'c', 'd'].map((label) => systemEvent(label)) });
      const ids = publishedEvents(world).map((event) => event.id);
      const list = async (query: Partial<EventQuery>) =>
        (await world.store.events.list({ ...EVERYTHING, ...query })).rows.map((event) => event.id);
      expect(await list({ after: ids[0] ?? null, until: ids[2] ?? null })).toEqual(ids.slice(1, 3));
      expect(await list({ after: ids[3] ?? null })).toEqual([]);
      expect(await world.store.events.newestId()).toBe(ids[3]);
      expect(await world.store.events.prunedThrough(world.ids.session())).toBeNull();
    });

    test('pages follow one another without gap or repetition', async () => {
      const world = await openWorld();
      await world.journal.commit({ emit: Array.from({ length: 25 }, (_, i) => systemEvent(String(i))) });
      const seen: string[] = [];
      let after: string | null = null;
      const sizes: number[] = [];
      do {
        const page: Awaited<ReturnType<World['store']['events']['list']>> = await world.store.events.list({
          ...EVERYTHING,
          after,
          limit: 10,
        });
        seen.push(...page.rows.map((event) => event.id));
        sizes.push(page.rows.length);
        after = page.next;
      } while (after !== null);
      expect(sizes).toEqual([10, 10, 5]);
      expect(seen).toEqual(publishedEvents(world).map((event) => event.id));
    });

    test('the scope of a session: its own events, all of its tree, or chosen types of its workers', async () => {
      const world = await openWorld();
      const tree = await family(world);
      const list = async (query: Partial<EventQuery>) =>
        typesOf((await world.store.events.list({ ...EVERYTHING, session_id: tree.planner.id, ...query })).rows, tree);
      expect(await list({})).toEqual(['p:routing', 'p:routing', 'p:budget']);
      expect(await list({ include_workers: true })).toEqual([
        'p:routing',
        'w:routing',
        'w:budget',
        'p:routing',
        'p:budget',
      ]);
      expect(await list({ worker_types: ['budget.warning'] })).toEqual([
        'p:routing',
        'w:budget',
        'p:routing',
        'p:budget',
      ]);
      expect(await list({ worker_types: ['budget.warning'], types: ['routing.policy_invalid'] })).toEqual([
        'p:routing',
        'p:routing',
      ]);
      expect(await list({ include_workers: true, types: ['budget.warning'] })).toEqual(['w:budget', 'p:budget']);
      expect(await list({ session_id: tree.worker.id, include_workers: true })).toEqual(['w:routing', 'w:budget']);
    });

    // Promise 02.16: events of unknown types are listed and replayed.
    test('an event of a type that this version does not know is listed and replayed as it was written', async () => {
      const world = await openWorld();
      const session = await storedSession(world);
      const id = world.ids.event();
      await world.execute("INSERT INTO event_types (number, type) VALUES (999, 'future.thing')");
      await world.execute('INSERT INTO event_sessions (session_id) VALUES (?) ON CONFLICT DO NOTHING', session.id);
      await world.execute(
        `INSERT INTO event_rows SELECT ?, CAST(? AS bigint), session_key, NULL, NULL, 999, 2, 0, ?
          FROM event_sessions WHERE session_id = ?`,
        id,
        world.time.now,
        '{"new":[1]}',
        session.id,
      );
      const query = { ...EVERYTHING, session_id: session.id };
      const expected = { id, type: 'future.thing', payload: { new: [1] }, timestamp: '2026-05-08T12:00:00.000Z' };
      expect((await world.store.events.list(query)).rows).toMatchObject([expected]);
      expect(await world.store.events.listRaw(query)).toMatchObject([{ event: expected, payload_json: '{"new":[1]}' }]);
    });

    test('a type that the database does not know gets its number when the database is opened', async () => {
      const first = await openWorld();
      const session = await storedSession(first);
      await first.execute("DELETE FROM event_types WHERE type = 'eval.completed'");
      const world = await first.reopen();
      const sample = sampleOf(CATALOG['eval.completed'].payload);
      const [event] = await world.journal.commit({ emit: [draftOf('eval.completed', session.id, sample)] });
      const query = { ...EVERYTHING, session_id: session.id, types: ['eval.completed'] as const };
      expect((await world.store.events.list(query)).rows).toEqual([event]);
    });

    test('events of a turn are found in its session, those behind a later turn and no others', async () => {
      const world = await openWorld();
      const session = await storedSession(world);
      const first = await storedTurn(world, session);
      const about = (turn_id: typeof first.id | null, over: Partial<EventDraft> = {}): EventDraft => ({
        ...draftOf('eval.completed', session.id, sampleOf(CATALOG['eval.completed'].payload)),
        turn_id,
        ...over,
      });
      const other = await storedSession(world);
      const [before] = await world.journal.commit({ emit: [about(first.id), about(null)] });
      await endTurn(world, first);
      const second = await storedTurn(world, session);
      const [, late] = await world.journal.commit({
        emit: [about(second.id), about(first.id), about(first.id, { session_id: other.id })],
      });
      const types = ['eval.completed', 'pattern.recorded'] as const;
      expect(await world.store.events.listOfTurn(first.id, types)).toEqual([before, late]);
      expect(await world.store.events.findNewestOfTurn(first.id, types)).toEqual(late);
      expect(await world.store.events.listOfTurn(first.id, ['pattern.recorded'])).toEqual([]);
      expect(await world.store.events.listOfTurn(world.ids.turn(), types)).toEqual([]);
    });

    test('open calls are those of open turns whose request has no outcome', async () => {
      const world = await openWorld();
      const session = await storedSession(world);
      const turn = await storedTurn(world, session);
      const started = (request_id: string): EventDraft => ({
        ...draftOf('llm.call_started', session.id, { ...sampleOf(CATALOG['llm.call_started'].payload), request_id }),
        turn_id: turn.id,
      });
      const failed = (request_id: string): EventDraft => ({
        ...draftOf('llm.call_failed', session.id, { ...sampleOf(CATALOG['llm.call_failed'].payload), request_id }),
        turn_id: turn.id,
      });
      const [one, two] = [world.ids.request(), world.ids.request()];
      await world.journal.commit({ emit: [started(one), started(two), failed(one)] });
      const open = await world.store.events.openCalls();
      expect(open.map((event) => event.payload.request_id)).toEqual([two]);
      const last = await world.store.events.findNewestOfTurn(turn.id, ['llm.call_started', 'llm.call_completed']);
      expect(last?.id).toBe(open[0]?.id);
      const ofTurn = await world.store.events.listOfTurn(turn.id, ['llm.call_started']);
      expect(ofTurn.map((event) => event.payload.request_id)).toEqual([one, two]);
      await world.journal.commit({ emit: [failed(two)] });
      expect(await world.store.events.openCalls()).toEqual([]);
    });

    // Promise 01.30: they are those of sessions that go on, of one tree or of all.
    test("a client's open calls are those of its sessions that go on, whose request has no outcome", async () => {
      const world = await openWorld();
      const [one, two, other] = [
        await storedSession(world, { door: 'gateway' }),
        await storedSession(world, { door: 'gateway' }),
        await storedSession(world),
      ];
      const event = (type: 'llm.call_started' | 'llm.call_failed', session: SessionRecord, request_id: string) =>
        draftOf(type, session.id, { ...sampleOf(CATALOG[type].payload), request_id });
      const asked = Array.from({ length: 4 }, () => world.ids.request());
      const events = await world.journal.commit({
        emit: [
          event('llm.call_started', one, asked[0]!),
          event('llm.call_started', one, asked[1]!),
          event('llm.call_started', two, asked[2]!),
          event('llm.call_started', other, asked[3]!),
          event('llm.call_failed', one, asked[0]!),
        ],
      });
      const open = async (since = '', root?: SessionId) =>
        (await world.store.events.openGatewayCalls(since, root)).map(({ payload }) => payload.request_id);
      expect(await open()).toEqual([asked[1], asked[2]]);
      expect(await open(events[2]!.id)).toEqual([asked[2]]);
      expect(await open('', one.id)).toEqual([asked[1]]);
      expect(await open('', other.id)).toEqual([]);
      await world.journal.commit({
        writes: [{ kind: 'session.end', session_id: one.id, disposition: 'completed', at: 2 }],
        emit: [],
      });
      expect(await open()).toEqual([asked[2]]);
    });
  });
}
