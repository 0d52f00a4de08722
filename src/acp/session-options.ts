// Session options in the editor: model and money limit (19 §4).
import { RequestError, type SessionConfigOption } from '@agentclientprotocol/sdk';
import { ApiError, type Model, type Session, type SessionChange } from '#client/client.ts';

const AUTO = 'auto';
const NONE = 'none';
const BUDGETS = ['1', '5', '20'];

type Shown = Pick<Session, 'active_model' | 'max_cost_usd'>;

export function listOptions({ active_model, max_cost_usd }: Shown, models: readonly Model[]): SessionConfigOption[] {
  const usable = models.filter(({ configured, id }) => configured || id === active_model);
  const isListed = active_model === null || usable.some(({ id }) => id === active_model);
  const budgets = max_cost_usd === null || BUDGETS.includes(max_cost_usd) ? BUDGETS : [...BUDGETS, max_cost_usd];
  return [
    {
      id: 'model',
      name: 'Model',
      category: 'model',
      type: 'select',
      currentValue: active_model ?? AUTO,
      options: [
        { value: AUTO, name: 'auto', description: 'Routing decides' },
        ...usable.map(({ id, aliases }) => ({ value: id, name: aliases[0] ?? id, description: id })),
        // With an effort, which no model of the list has in its name.
        ...(isListed ? [] : [{ value: active_model, name: active_model, description: active_model }]),
      ],
    },
    {
      id: 'budget',
      name: 'Limit',
      description: 'The most that the session may cost with its workers',
      type: 'select',
      currentValue: max_cost_usd ?? NONE,
      options: [{ value: NONE, name: 'none' }, ...budgets.map((usd) => ({ value: usd, name: `$${usd}` }))],
    },
  ];
}

/** Throws for an unknown option. */
export function parseOption(configId: string, value: unknown): SessionChange {
  if (typeof value !== 'string') throw RequestError.invalidParams({ value }, 'must be one of the values of the option');
  if (configId === 'model') return { active_model: value === AUTO ? null : value };
  if (configId === 'budget') return { max_cost_usd: value === NONE ? null : value };
  throw RequestError.invalidParams({ configId }, 'there is no such option');
}

/** The id of a model that sees images, of the tier that was tried where there is one; null where sight was not what failed. */
export function findSightedModel(error: unknown, models: readonly Model[]): string | null {
  if (!(error instanceof ApiError && error.code === 'routing_failed')) return null;
  const { tried } = error.details;
  if (!Array.isArray(tried)) return null;
  const blind = (tried as { model?: unknown; reason?: unknown }[]).find(({ reason }) => reason === 'no_vision_support');
  if (blind === undefined) return null;
  const tier = models.find(({ id }) => id === blind.model)?.tier ?? null;
  const sighted = models.filter(({ configured, capabilities }) => configured && capabilities.supports_images);
  return (sighted.find((model) => model.tier === tier) ?? sighted[0])?.id ?? null;
}
