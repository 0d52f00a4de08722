// What a crash left open is closed before the server listens (01 §11.5, 04 §13).

import type { LlmCallCompleted } from '../domain/event/llm.ts';
import { draft } from '../domain/event.ts';
import { Cancelled } from '../kernel/abort.ts';
import type { TurnId } from '../kernel/ids.ts';
import type { Engine } from './context.ts';
import { endUnfinishedTurn } from './end-unfinished.ts';

/** Running it twice changes nothing. Returns how many turns were ended. */
export async function recover(engine: Engine): Promise<number> {
  await closeCalls(engine);
  await closePrompts(engine);
  const open = await engine.store.turns.allOpen();
  for (const turn of open) {
    const session = await engine.store.sessions.record(turn.session_id);
    // Ending a planner's turn ends its workers' with it.
    const still = session && (await engine.store.turns.open(session.id));
    if (session && still) await endUnfinishedTurn(engine, session, still, new Cancelled('shutdown'));
  }
  return open.length;
}

/** Every call that was under way when the process died is a failed one; whether it was billed nobody can know. */
async function closeCalls(engine: Engine): Promise<void> {
  for (const call of await engine.store.events.openCalls()) {
    const started = call.payload as unknown as Pick<
      LlmCallCompleted,
      'model' | 'provider' | 'request_id' | 'is_worker' | 'parent_session_id' | 'root_session_id'
    >;
    await engine.journal.commit({
      emit: [
        draft({
          type: 'llm.call_failed',
          session_id: call.session_id,
          turn_id: call.turn_id as TurnId | null,
          parent: call.id,
          payload: {
            model: started.model,
            provider: started.provider,
            error_class: 'other',
            error_message_redacted: 'interrupted by a server restart',
            retry_count: 0,
            latency_ms: 0,
            request_id: started.request_id,
            is_worker: started.is_worker,
            parent_session_id: started.parent_session_id,
            root_session_id: started.root_session_id,
          },
        }),
      ],
    });
  }
}

async function closePrompts(engine: Engine): Promise<void> {
  for (const row of await engine.store.confirmations.allOpen()) {
    const asked = await engine.store.events.lastOfTurn(row.turn_id, ['tool.confirmation_requested']);
    await engine.journal.commit({
      writes: [
        {
          kind: 'confirmation.resolve',
          id: row.id,
          decision: 'cancelled',
          scope: null,
          reason: null,
          modified: null,
          resolved_by: 'policy',
          at: engine.clock.now(),
        },
      ],
      emit: [
        draft({
          type: 'tool.confirmation_resolved',
          session_id: row.session_id,
          turn_id: row.turn_id,
          parent: asked?.id ?? null,
          actor: 'system',
          payload: {
            tool_use_id: row.tool_use_id,
            confirmation_request_id: row.id,
            decision: 'cancelled',
            scope: null,
            resolved_by: 'policy',
          },
        }),
      ],
    });
  }
}
