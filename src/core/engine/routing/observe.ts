// What a call says about its model and provider, for the routing of the next one (03 §11).

import { type CallFailure, recordOutcome, type Unavailable } from '#core/policy/registry/availability.ts';
import { draft, type EventDraft } from '#protocol/event.ts';
import type { SessionId, TurnId } from '#protocol/ids.ts';
import type { ModelEntry } from '#protocol/model.ts';
import type { Engine } from '../state/engine.ts';

/** Takes note of a call's outcome: once a call, however often its storing is tried. Null = it succeeded. */
export function observeCall(
  engine: Engine,
  model: Pick<ModelEntry, 'id' | 'adapter'>,
  failure: CallFailure | null,
): readonly Unavailable[] {
  const { routes, clock, registry } = engine;
  const { state, transitions } = recordOutcome(routes.availability, { model, failure }, clock.monotonic(), registry);
  routes.availability = state;
  return transitions;
}

/** Outages that begin with a call, stored with its outcome. @param parent the outcome's place in the batch */
export function outageEvents(
  outages: readonly Unavailable[],
  place: { readonly session_id: SessionId; readonly turn_id: TurnId | null; readonly parent: number },
): EventDraft[] {
  return outages.map(({ provider, scope, models, trigger_reason }) =>
    draft({
      ...place,
      type: 'routing.provider_unavailable',
      payload: { provider, scope, models_affected: [...models], trigger_reason },
    }),
  );
}
