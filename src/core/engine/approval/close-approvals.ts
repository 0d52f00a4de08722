// Approvals that nobody waits for any more: each is resolved as cancelled, with its event (09 §6.3, §9.4).

import type { ConfirmationRow } from '#core/ports/journal.ts';
import type { SessionId } from '#protocol/ids.ts';
import type { Engine } from '../state/engine.ts';
import { resolved } from './approval-records.ts';

/** @param root of this tree, those that `match` picks; absent = of every turn, as recovery does once */
export async function closeOpenApprovals(
  engine: Engine,
  root?: SessionId,
  match: (row: ConfirmationRow) => boolean = () => true,
): Promise<void> {
  for (const row of await engine.store.confirmations.allOpen(root)) {
    if (!match(row)) continue;
    const requests = await engine.store.events.ofTurn(row.turn_id, ['tool.confirmation_requested']);
    const asked = requests.find((e) => e.payload.confirmation_request_id === row.id);
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
      emit: [resolved(row, asked?.id ?? null, { decision: 'cancelled', scope: null }, 'policy')],
    });
  }
}
