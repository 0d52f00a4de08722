// Where a model's calls go, under the names that the GenAI conventions want: the provider's name of the model, host and port (18 §2).
import type { Attributes } from '@opentelemetry/api';
import type { ModelRegistry } from '#core/policy/registry/registry.ts';
import { DEFAULT_BASE_URLS } from '#models/adapters/create-adapters.ts';
import type { Credentials } from '../credentials.ts';

export interface CallTarget {
  /** The model's name at its provider. */
  readonly model: string;
  /** `server.address` and `server.port`; nothing for a provider without an address. */
  readonly server: Attributes;
}

/** Looks a model up by its id; one that the registry does not list is named by what stands behind its adapter. */
export type FindCallTarget = (modelId: string) => CallTarget;

export function createCallTargets(
  registry: Pick<ModelRegistry, 'get' | 'adapters'>,
  credentials: Pick<Credentials, 'forAdapter'>,
): FindCallTarget {
  return (modelId) => {
    const listed = registry.get(modelId);
    const colon = modelId.indexOf(':');
    const adapter = listed?.adapter ?? modelId.slice(0, colon);
    const config = registry.adapters.get(adapter);
    const model = listed?.wire_name ?? modelId.slice(colon + 1);
    if (config === undefined || config.type === 'scripted') return { model, server: {} };
    const given = config.base_url ?? credentials.forAdapter(adapter, config)?.base_url;
    const url = given ?? DEFAULT_BASE_URLS[config.type];
    return { model, server: URL.canParse(url) ? describeServer(new URL(url)) : {} };
  };
}

function describeServer({ hostname, port, protocol }: URL): Attributes {
  const standard = protocol === 'http:' ? 80 : 443;
  return { 'server.address': hostname, 'server.port': port === '' ? standard : Number(port) };
}
