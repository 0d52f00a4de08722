// What a turn may leave open when its loop is gone, closed before the turn is (04 §13).

import type { Cancelled } from '#protocol/abort.ts';
import type { TurnId } from '#protocol/ids.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { closeOpenApprovals } from '../approval/approve-call.ts';
import type { Engine } from '../state/engine.ts';
import { closeOpenCalls } from './close-model-calls.ts';

/** What must have its end before the turn has: its workers, its approvals, its model calls. None of it runs any more. */
export async function closeOpenParts(
  engine: Engine,
  { root_session_id }: Pick<SessionRecord, 'root_session_id'>,
  turnId: TurnId,
  reason: Cancelled,
): Promise<void> {
  await engine.workers.closeUnder(turnId, reason);
  await closeOpenApprovals(engine, root_session_id, (row) => row.turn_id === turnId);
  await closeOpenCalls(engine, turnId);
}
