// A small registry and the inputs of a decision, for the routing tests.

import { emptyAvailability, type OpenOutage, snapshot } from '#core/policy/registry/availability.ts';
import { createModelRegistry, type ModelRegistry, parseRegistry } from '#core/policy/registry/model-registry.ts';
import { decideRoute, type RouteEnv } from '#core/policy/routing/chain.ts';
import { mergePolicies, type PolicyFile, type PolicyKind, parsePolicyFile } from '#core/policy/routing/policy-file.ts';
import { ZERO_PUSD } from '#protocol/money.ts';
import type { TurnContext } from '#protocol/route.ts';

export const OPUS = 'anthropic:opus-x';
export const SONNET = 'anthropic:sonnet-x';
export const HAIKU = 'anthropic:haiku-x';
export const GPT = 'openai:gpt-x';
export const LOCAL = 'local:llama-x';

export const REGISTRY_TEXT = `
adapters:
  anthropic: { type: anthropic }
  openai: { type: openai }
  local: { type: openai, key_optional: true }
models:
  ${OPUS}:
    tier: deep
    aliases: [opus]
    capabilities:
      max_context_tokens: 10000
      max_output_tokens: 100
      supports_images: true
      supports_structured_output: true
      accepted_document_media_types: [application/pdf]
  ${SONNET}:
    tier: balanced
    aliases: [sonnet]
    capabilities: { max_context_tokens: 10000, max_output_tokens: 100, supports_images: true }
  ${HAIKU}:
    tier: fast
    aliases: [haiku]
    capabilities: { max_context_tokens: 1000, max_output_tokens: 100 }
  ${GPT}:
    tier: balanced
    aliases: [gpt]
    capabilities: { max_context_tokens: 5000, max_output_tokens: 100, supports_structured_output: true }
  ${LOCAL}:
    aliases: [llama]
    capabilities:
      max_context_tokens: 5000
      max_output_tokens: 100
      supports_tools: false
      supports_system_prompt: false
`;
const RATES: Readonly<Record<string, bigint>> = { [OPUS]: 90n, [SONNET]: 18n, [HAIKU]: 6n, [GPT]: 12n };

export function registryOf(adapters = ['anthropic', 'openai', 'local'], text = REGISTRY_TEXT): ModelRegistry {
  const parsed = parseRegistry(text, 'registry.yaml');
  if (!parsed.ok) throw new Error(parsed.error.join('\n'));
  return createModelRegistry(parsed.value, new Set(adapters));
}

export function policy(text: string, kind: PolicyKind, registry = registryOf()): PolicyFile {
  const parsed = parsePolicyFile(text, kind, registry);
  if (!parsed.ok) throw new Error(parsed.error.join('\n'));
  return parsed.value;
}

export interface World {
  readonly registry?: ModelRegistry;
  readonly workspace?: string;
  readonly global?: string;
  readonly configDefault?: string;
  /** Provider names and model ids that are out. */
  readonly out?: readonly string[];
  readonly allowCostlierFallback?: boolean;
}

export function envOf(world: World = {}): RouteEnv {
  const { registry = registryOf(), out = [] } = world;
  const empty = snapshot(emptyAvailability(), 0);
  return {
    registry,
    policies: mergePolicies(
      {
        workspace: world.workspace === undefined ? null : policy(world.workspace, 'workspace', registry),
        global: world.global === undefined ? null : policy(world.global, 'global', registry),
        configDefault: world.configDefault ?? null,
      },
      registry,
    ),
    availability: {
      providers: new Map([
        ...empty.providers,
        ...outages(
          out.filter((id) => !id.includes(':')).map((id) => `${id}/${id}`),
          'auth_error',
        ),
      ]),
      models: new Map([
        ...empty.models,
        ...outages(
          out.filter((id) => id.includes(':')),
          '5_consecutive_failures',
        ),
      ]),
    },
    isPriced: (id) => id in RATES,
    rateSum: (id) => RATES[id] ?? null,
    allowCostlierFallback: world.allowCostlierFallback ?? true,
  };
}

function outages(ids: readonly string[], trigger: OpenOutage['trigger']): [string, OpenOutage][] {
  return ids.map((id) => [id, { trigger, seconds_since: 20, seconds_left: 280 }]);
}

export function turn(over: Partial<TurnContext> = {}): TurnContext {
  return {
    session_id: 'sess_1',
    turn_id: 'turn_1',
    estimated_input_tokens: 100,
    smallest_input_tokens: 100,
    has_images: false,
    message_has_images: false,
    has_tool_definitions: true,
    has_system_prompt: true,
    requires_structured_output: false,
    document_media_types: [],
    budget_limited: false,
    per_message_override: null,
    session_active_model: null,
    is_worker: false,
    worker_tier_model: null,
    worker_tier_reason: null,
    worker_tier: null,
    worker_effort: null,
    workspace_path: '/w',
    user_message_text: 'hello',
    cost_today_pusd: ZERO_PUSD,
    now: 0,
    requested: null,
    recommendation: null,
    recommendation_absent: 'pattern store not configured',
    ...over,
  };
}

export function decide(over: Partial<TurnContext> = {}, world: World = {}) {
  return decideRoute(turn(over), envOf(world));
}
