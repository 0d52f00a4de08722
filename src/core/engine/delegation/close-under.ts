// Closing delegations whose workers have no running loop any more (04 §13).

import type { DelegateOutcome } from '#core/policy/delegation/outcome.ts';
import type { Cancelled } from '#protocol/abort.ts';
import type { DelegationRecord } from '#protocol/delegate.ts';
import type { ToolUseId, TurnId } from '#protocol/ids.ts';
import type { Engine } from '../state/engine.ts';
import { endUnfinishedTurn } from '../turn/end-unfinished.ts';
import { closeDelegation } from './close.ts';
import { startedEvent } from './open.ts';

/** @param only the delegation of this tool call, when the others are to stay */
export async function closeUnder(
  engine: Engine,
  turnId: TurnId,
  { reason, only }: { readonly reason: Cancelled; readonly only: ToolUseId | null },
): Promise<void> {
  for (const delegation of await engine.store.delegations.open(turnId))
    if (only === null || delegation.tool_use_id === only) await endUnfinishedDelegation(engine, delegation, reason);
}

/** The worker's open turn, its session, then the delegation itself. Its planner's turn may have ended before (04 §13). */
export async function endUnfinishedDelegation(
  engine: Engine,
  delegation: DelegationRecord,
  reason: Cancelled,
): Promise<void> {
  const session =
    delegation.worker_session_id === null ? null : await engine.store.sessions.record(delegation.worker_session_id);
  if (session) {
    const turn = await engine.store.turns.open(session.id);
    if (turn) await endUnfinishedTurn(engine, session, turn, reason);
  }
  await closeDelegation(
    engine,
    {
      delegation,
      session: session?.ended_at === null ? session : null,
      parent_event: await startedEvent(engine, delegation),
      opening: null,
    },
    unfinishedOutcome(reason),
    delegation.active_seconds,
  );
}

function unfinishedOutcome(reason: Cancelled): DelegateOutcome {
  const restarted = reason.reason === 'shutdown';
  return {
    success: false,
    output: '',
    failure_mode: restarted ? 'worker_error' : 'cancelled_by_user',
    error_message: restarted ? `worker_error: ${reason.detail ?? 'server restarted'}` : 'cancelled_by_user',
    insufficient_context_request: null,
    cancel_scope: restarted ? null : 'planner',
    disposition: restarted ? 'failed' : 'cancelled',
  };
}
