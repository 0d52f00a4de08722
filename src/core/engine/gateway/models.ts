// The models that clients of the gateway may ask for, in one list that clients of either kind read (19 §2.1).

import { namedModel, offeredModels } from '#core/policy/gateway/names.ts';
import type { ClientWire } from '#protocol/api/gateway.ts';
import { isoTime } from '#protocol/clock.ts';
import { providerOf } from '#protocol/model.ts';
import type { Engine } from '../state/engine.ts';
import { usableAdapters } from './decide.ts';

/** Nobody knows when a model was made; both kinds of client want to read a time. */
const MADE_AT = 0;

export function gatewayModels(engine: Engine) {
  const offered = offeredModels(engine.registry, usableAdapters(engine), null);
  const data = [
    ...offered.map(({ name, model }) => entry(name, model.id, providerOf(model.id))),
    ...(offered.length === 0 ? [] : [entry('claude-auto', 'Metis decides', 'metis')]),
  ];
  return {
    object: 'list',
    data,
    has_more: false,
    first_id: data[0]?.id ?? null,
    last_id: data.at(-1)?.id ?? null,
  };
}

/**
 * The entry of one model, by any name that a call may ask for it by; null where the registry lists none.
 * @param wires in the order in which they are looked at
 */
export function gatewayModel(engine: Engine, name: string, wires: readonly ClientWire[]) {
  const { data } = gatewayModels(engine);
  const usable = usableAdapters(engine);
  for (const wire of wires) {
    const named = namedModel(engine.registry, wire, name, usable);
    if (named === 'auto') return data.find(({ id }) => id === 'claude-auto') ?? null;
    const id = named?.model.id;
    const offered = offeredModels(engine.registry, usable, wire).find(({ model }) => model.id === id);
    if (offered !== undefined) return data.find(({ display_name }) => display_name === id) ?? null;
  }
  return null;
}

function entry(id: string, display_name: string, owned_by: string) {
  return {
    id,
    type: 'model',
    display_name,
    created_at: isoTime(MADE_AT),
    object: 'model',
    created: MADE_AT,
    owned_by,
  };
}
