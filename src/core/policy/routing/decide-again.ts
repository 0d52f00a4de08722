// A stored decision made again under another routing file or other tiers, from the facts that it was stored with (21 §2).
import type { z } from 'zod';
import type { RouteDecidedSchema } from '#protocol/event/turn-events.ts';
import { getProvider } from '#protocol/model.ts';
import { ZERO_PUSD } from '#protocol/money.ts';
import type { PolicyEvaluation, RequestedModel, RouteFacts, SlotName, TurnContext } from '#protocol/route.ts';
import type { Effort, Tier } from '#protocol/scalars.ts';
import { nameReference } from '#protocol/text/model-reference.ts';
import { createUnlisted } from '../gateway/model-names.ts';
import type { AvailabilitySnapshot } from '../registry/availability.ts';
import type { ModelRegistry } from '../registry/model-registry.ts';
import type { RouteEnv, Slot } from './candidate.ts';
import { decideRoute } from './chain.ts';
import type { RoutingPolicies } from './policy-file.ts';
import { FLAG_BY_NEED } from './route-facts.ts';
import { EVALUATE_SLOT, type Slots } from './routing-slots.ts';
import type { RuleFacts } from './rules.ts';
import { chooseWorkerModel } from './worker-model.ts';

type StoredDecision = z.infer<typeof RouteDecidedSchema>;
type Tiers = Readonly<Record<Tier, string>>;

export interface Alternative {
  /** In place of all routing files; null = rules and defaults stay as they were answered. */
  readonly policies: RoutingPolicies | null;
  /** In place of those of the file and of the registry. */
  readonly tiers: Tiers | null;
}

export interface RepeatWorld extends Pick<RouteEnv, 'registry' | 'isPriced' | 'rateSum' | 'allowCostlierFallback'> {
  readonly alternative: Alternative;
  /** Adapters that calls of the gateway can use. */
  readonly gatewayAdapters: ReadonlySet<string>;
}

export interface RepeatedDecision {
  readonly model: string;
  readonly effort: Effort | null;
  /** The rule that decided; null = none did. */
  readonly rule_name: string | null;
}

const NO_POLICIES: RoutingPolicies = {
  workspace_default: null,
  global_default: null,
  tiers: null,
  pattern: null,
  rules: [],
  faults: { workspace: null, global: null },
};
/** What no policy changes is answered as it was. */
const FIXED_SLOTS = ['per_message_override', 'manual_sticky', 'pattern'] as const;
const POLICY_SLOTS = ['rule', 'workspace_default', 'global_default'] as const;

/** Whether an answer that the stored decision does not have was needed. */
interface Gaps {
  found: boolean;
}

/** Null = undecided: no facts, a question that they do not answer, or no model that could serve. */
export function decideAgain(stored: StoredDecision, world: RepeatWorld): RepeatedDecision | null {
  const { facts } = stored;
  if (facts === null || stored.refused !== null) return null;
  const { policies, tiers } = world.alternative;
  const { chosen_model, chosen_effort } = stored;
  const winner = stored.chain[stored.winner_index];
  const same = { model: chosen_model, effort: chosen_effort, rule_name: winner?.rule_name ?? null };
  if (policies === null && (tiers === null || facts.worker_tier === null)) return same;

  const registry = addRequested(world, stored, facts);
  const gaps: Gaps = { found: false };
  const candidate = findWorkerModel(stored, facts, { ...world, registry });
  if (candidate === undefined) return null;
  const decision = decideRoute(
    recallContext(stored, facts, candidate),
    { ...world, registry, policies: policies ?? NO_POLICIES, availability: recallOutages(stored.chain) },
    { facts: recallFacts(stored, facts, gaps), slots: recallSlots(stored.chain, policies === null, gaps) },
  );
  if (decision.refused !== null || gaps.found) return null;
  return {
    model: decision.chosen_model,
    // A client of the gateway states the effort of its calls itself.
    effort: facts.requested === null ? decision.chosen_effort : chosen_effort,
    rule_name: decision.chain[decision.winner_index]?.rule_name ?? null,
  };
}

/** The registry with a model that a client of the gateway asked for and that it does not list. */
function addRequested(
  { registry, gatewayAdapters }: RepeatWorld,
  { requested_model }: StoredDecision,
  { requested }: RouteFacts,
): ModelRegistry {
  if (requested === null) return registry;
  const { model } = requested;
  const unlisted =
    model === null || registry.get(model) !== null ? null : createUnlisted(getProvider(model), requested_model ?? '');
  const find = (id: string) => (id === unlisted?.id ? unlisted : registry.get(id));
  return {
    ...registry,
    get: find,
    isConfigured: (id) => gatewayAdapters.has(find(id)?.adapter ?? ''),
  };
}

/** The candidate of slot 5; undefined where its model has not the effort that was asked for. */
function findWorkerModel(
  { chain }: StoredDecision,
  facts: RouteFacts,
  { alternative: { policies, tiers }, registry }: RepeatWorld,
): string | null | undefined {
  const { worker_tier: tier, worker_effort: effort } = facts;
  if (facts.requested !== null) return null;
  if (tier === null) return facts.worker_model ?? nameCandidate(chain[4]);
  const asked = { ...(policies ?? NO_POLICIES), tiers: tiers ?? policies?.tiers ?? null };
  const found = chooseWorkerModel({ model: null, tier, effort }, asked, registry);
  if (!found.ok) return undefined;
  return found.value;
}

function nameCandidate(entry: PolicyEvaluation | undefined): string | null {
  if (entry?.candidate_model == null) return null;
  return nameReference(entry.candidate_model, entry.candidate_effort);
}

/** Only what rules, checks and slot 5 read; the slots that read the rest are recalled. */
function recallContext(stored: StoredDecision, facts: RouteFacts, workerModel: string | null): TurnContext {
  const { estimated_input_tokens, needs } = facts;
  const needed = Object.fromEntries(
    Object.entries(FLAG_BY_NEED).map(([need, flag]) => [flag, needs.some((name) => name === need)]),
  ) as Record<(typeof FLAG_BY_NEED)[keyof typeof FLAG_BY_NEED], boolean>;
  return {
    ...needed,
    session_id: '',
    turn_id: '',
    estimated_input_tokens,
    smallest_input_tokens: facts.smallest_input_tokens ?? estimated_input_tokens,
    message_has_images: facts.message_has_images,
    document_media_types: facts.document_media_types,
    per_message_override: null,
    session_active_model: null,
    is_worker: facts.is_worker,
    worker_tier_model: workerModel,
    worker_tier_reason: null,
    worker_tier: facts.worker_tier,
    worker_effort: facts.worker_effort,
    workspace_path: '',
    user_message_text: '',
    cost_today_pusd: ZERO_PUSD,
    now: 0,
    requested: recallRequest(stored, facts),
    recommendation: null,
    recommendation_absent: null,
  };
}

function recallRequest({ requested_model }: StoredDecision, { requested }: RouteFacts): RequestedModel | null {
  if (requested === null) return null;
  const { own_key_adapters } = requested;
  return {
    ...requested,
    name: requested_model ?? '',
    own_key_adapters: own_key_adapters && new Set(own_key_adapters),
  };
}

function recallFacts({ requested_model }: StoredDecision, facts: RouteFacts, gaps: Gaps): RuleFacts {
  return {
    isFound({ key }) {
      if (facts.matched.includes(key)) return true;
      if (!facts.unmatched.includes(key)) gaps.found = true;
      return false;
    },
    get cost_today_pusd() {
      gaps.found = true;
      return ZERO_PUSD;
    },
    estimated_input_tokens: facts.estimated_input_tokens,
    message_has_images: facts.message_has_images,
    is_worker: facts.is_worker,
    requested_model,
  };
}

/** The models that the stored decision passed over because they were out. */
function recallOutages(chain: StoredDecision['chain']): AvailabilitySnapshot {
  const models = chain.flatMap((entry) => [
    ...(entry.tried_rules ?? []).filter(isOut).map(({ candidate_model }) => candidate_model),
    ...(isOut(entry) && entry.candidate_model !== null ? [entry.candidate_model] : []),
  ]);
  const outage = { trigger: '5_consecutive_failures', seconds_since: 0, seconds_left: 0 } as const;
  return { providers: new Map(), models: new Map(models.map((id) => [id, outage])) };
}

function isOut({ validation_failure }: Pick<PolicyEvaluation, 'validation_failure'>): boolean {
  return validation_failure === 'provider_unavailable';
}

/** @param keepsPolicy the slots that a policy answers are recalled too */
function recallSlots(chain: StoredDecision['chain'], keepsPolicy: boolean, gaps: Gaps): Slots {
  const recalled: { [Name in SlotName]?: Slot } = {};
  for (const name of FIXED_SLOTS) recalled[name] = () => find(name);
  if (keepsPolicy)
    for (const name of POLICY_SLOTS)
      recalled[name] = () => {
        const entry = find(name);
        if (entry.verdict === 'not_evaluated') gaps.found = true;
        return entry;
      };
  return { ...EVALUATE_SLOT, ...recalled };

  function find(name: SlotName): PolicyEvaluation {
    return chain.find(({ policy }) => policy === name)!;
  }
}
