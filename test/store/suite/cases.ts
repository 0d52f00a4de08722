// What a recorded session needs to run again, and that a purge takes it away (21 §3).
import { expect, test } from 'vitest';
import type { CaseCall } from '#protocol/what-if/case.ts';
import { storedSession } from './nouns.ts';
import type { OpenStore } from './world.ts';

const CALL: CaseCall = {
  purpose: 'turn',
  is_worker: false,
  parent_session_id: null,
  head: null,
  same_messages: 0,
  messages: [{ role: 'user', content: [{ type: 'text', text: 'hello' }] }],
  answer: null,
  error: null,
};

export function caseSuite(open: OpenStore): void {
  test('a recorded session has its start and its calls, in pages and also after a restart, until it is purged', async () => {
    const world = await open();
    const session = await storedSession(world, { record_case: true });
    const start = { kind: 'listing', files: { 'a.ts': 'a'.repeat(64) } } as const;
    const ids = [world.ids.request(), world.ids.request(), world.ids.request()];
    const place = { session_id: session.id, root_session_id: session.id };
    await world.journal.commit({
      writes: [
        { kind: 'case.start', session_id: session.id, start },
        ...ids.map((request_id) => ({ kind: 'case.call' as const, request_id, ...place, call: CALL })),
      ],
      emit: [],
    });
    const again = await world.reopen();
    const { cases } = again.store;
    expect((await again.store.sessions.record(session.id))!.record_case).toBe(true);
    expect(await cases.start(session.id)).toEqual(start);
    const first = await cases.calls(session.id, null, 2);
    expect(first.rows).toEqual(
      ids.slice(0, 2).map((request_id) => ({ request_id, session_id: session.id, call: CALL })),
    );
    const rest = await cases.calls(session.id, first.next, 2);
    expect([rest.rows.map(({ request_id }) => request_id), rest.next]).toEqual([ids.slice(2), null]);
    await again.journal.purge(session.id);
    expect([await again.count('case_starts'), await again.count('case_calls')]).toEqual([0, 0]);
  });
}
