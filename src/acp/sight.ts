// Which model answers a prompt of "auto" that the defaults cannot see (19 §4).
import { ApiError, type Model } from '#client/client.ts';

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
