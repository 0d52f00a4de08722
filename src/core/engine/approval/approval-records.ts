// An approval as its two events (09 §6.1).

import type { ConfirmationRow } from '#core/ports/journal.ts';
import type { Answer } from '#protocol/confirmation.ts';
import { draft, type EventDraft } from '#protocol/event.ts';
import type { EventId } from '#protocol/ids.ts';
import type { TurnRun } from '../state/turn-run.ts';

export function requested(run: TurnRun, row: ConfirmationRow): EventDraft {
  return draft({
    type: 'tool.confirmation_requested',
    session_id: row.session_id,
    turn_id: row.turn_id,
    parent: run.call_event_id,
    payload: row.request,
  });
}

export function resolved(
  row: ConfirmationRow,
  parent: EventId | number | null,
  answer: Pick<Answer, 'decision' | 'scope'>,
  by: 'user' | 'policy',
): EventDraft {
  return draft({
    type: 'tool.confirmation_resolved',
    session_id: row.session_id,
    turn_id: row.turn_id,
    parent,
    ...(by === 'policy' ? { actor: 'system' as const } : {}),
    payload: {
      tool_use_id: row.tool_use_id,
      confirmation_request_id: row.id,
      decision: answer.decision,
      scope: answer.scope,
      resolved_by: by,
    },
  });
}
