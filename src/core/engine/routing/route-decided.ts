// What is stored of a decision (02 §9.2, 03 §6).
import { draft, type EventDraft } from '#protocol/event.ts';
import type { SessionId, TurnId } from '#protocol/ids.ts';
import type { RouteDecision } from '#protocol/route.ts';

/**
 * @param place of the event; a call of the gateway belongs to no turn
 * @param elapsed_ms of the decision alone
 * @param requested what a client of the gateway asked for; null = nobody asked for a model of the event's own
 */
export function routeDecided(
  place: { readonly session_id: SessionId; readonly turn_id: TurnId | null; readonly parent: number | null },
  decision: RouteDecision,
  elapsed_ms: number,
  requested: string | null,
): EventDraft {
  return draft({
    type: 'route.decided',
    ...place,
    payload: {
      chosen_model: decision.chosen_model,
      winner_index: decision.winner_index,
      elapsed_ms,
      refused: decision.refused,
      fallback_dearer: decision.fallback_dearer,
      chain: [...decision.chain],
      requested_model: requested,
    },
  });
}
