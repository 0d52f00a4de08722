// What the error of a refused decision says of a model that is out: why, for how long, and what to do (03 §7).
import { type ModelEntry, providerOf } from '#protocol/model.ts';
import type { OutageTrigger } from '#protocol/route.ts';
import { keyVariable } from '../registry/adapter-config.ts';
import { type AvailabilitySnapshot, FAILURES_TO_TRIP, findOutage } from '../registry/availability.ts';
import type { ModelRegistry } from '../registry/registry.ts';

/** An outage as `details.outages` of the error shows it. */
export interface OutageDetail {
  readonly model: string;
  readonly trigger_reason: OutageTrigger;
  readonly retry_after_seconds: number;
}

interface Known {
  readonly registry: Pick<ModelRegistry, 'get' | 'adapters'>;
  readonly availability: AvailabilitySnapshot;
}

/** Null where the model is not out, or not known. */
export function describeOutage(modelId: string, known: Known): { text: string; detail: OutageDetail } | null {
  const model = known.registry.get(modelId);
  const outage = model === null ? null : findOutage(known.availability, model);
  if (model === null || outage === null) return null;
  const { trigger, seconds_since, seconds_left } = outage;
  const { cause, advice } = explain(trigger, model, known);
  const text = `${cause} ${seconds_since} s ago. Metis calls it again in ${seconds_left} s${advice}`;
  return { text, detail: { model: modelId, trigger_reason: trigger, retry_after_seconds: seconds_left } };
}

function explain(trigger: OutageTrigger, model: ModelEntry, { registry }: Known) {
  const provider = providerOf(model.id);
  const variable = keyVariable(model.adapter, registry.adapters.get(model.adapter)?.api_key_env ?? null);
  const key = `${variable} (environment, or .env in the data folder)`;
  switch (trigger) {
    case 'auth_error':
      return {
        cause: `${provider} rejected the key or account that the server has for it`,
        advice: `; check ${key}, then restart; metis doctor --online tries every key`,
      };
    case 'quota_exhausted':
      return {
        cause: `${provider} reported that the account of this server has no credit left`,
        advice: `; add credit, or replace ${key} and restart`,
      };
    case 'model_denied':
      return {
        cause: `${provider} denied the account of this server access to ${model.wire_name}`,
        advice: `; enable the model there, or check ${key} or remove the model from the registry file`,
      };
    case 'model_not_found':
      return {
        cause: `${provider} does not know ${model.wire_name}`,
        advice: `; check wire_name of ${model.id} in the registry file`,
      };
    case '5_consecutive_failures':
      return { cause: `it failed ${FAILURES_TO_TRIP} times in a row`, advice: '' };
  }
}
