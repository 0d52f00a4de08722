// The stop button of a client's session: its calls end, and its sub-agents' sessions with it (19 §2.3).

import { Cancelled } from '#protocol/abort.ts';
import { draft } from '#protocol/event.ts';
import { fromPusd } from '#protocol/money.ts';
import type { SessionRecord } from '#protocol/session.ts';
import type { Engine } from '../state/engine.ts';
import { callsOfTree, dropDecisions } from '../state/gateway-memory.ts';
import { cancelScope } from '../state/session-lock.ts';
import { secondsSince } from '../state/session-starts.ts';

/** What a call of a session that is being ended is stopped with. */
export const ENDED = 'session ended';

/** Aborts every call of the tree and waits for their outcomes, then ends its sub-agents' sessions, the deepest first. */
export async function endGatewayTree(engine: Engine, root: SessionRecord): Promise<void> {
  const calls = callsOfTree(engine.gateway, root.id);
  for (const { scope } of calls) cancelScope(scope, new Cancelled('user_cancel', ENDED));
  await Promise.all(calls.map(({ done }) => done));
  dropDecisions(engine.gateway, root.id);
  for (const id of await engine.store.sessions.descendants(root.id)) {
    const session = await engine.store.sessions.record(id);
    // A worker that runs here is ended by its delegation.
    if (session === null || session.door !== 'gateway' || session.ended_at !== null) continue;
    await engine.journal.commit({
      writes: [{ kind: 'session.end', session_id: id, disposition: 'completed', at: engine.clock.now() }],
      emit: [
        draft({
          type: 'session.ended',
          session_id: id,
          turn_id: null,
          parent: null,
          payload: {
            disposition: 'completed',
            turn_count: 0,
            total_cost_usd: fromPusd(await engine.store.spend.ofSession(id)),
            duration_seconds: secondsSince(engine, id, session.created_at),
          },
        }),
      ],
    });
    engine.starts.delete(id);
  }
}
