// The models that clients of the gateway may ask for, in one list that clients of either kind read (19 §2.1).
import { providerOf } from '../../domain/model.ts';
import { isoTime } from '../../kernel/clock.ts';
import { offeredModels } from '../../policy/gateway/names.ts';
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
