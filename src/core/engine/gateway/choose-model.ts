// Chooses the model of a gateway call: the kept decision, or the seven slots (19 §2.4).
import { shownName } from '#core/policy/cut.ts';
import { resolveCallEffort } from '#core/policy/gateway/call-effort.ts';
import { canSpeak, listOfferedModels, type NamedModel, resolveModelName } from '#core/policy/gateway/model-names.ts';
import type { RequestFacts } from '#core/policy/gateway/request-facts.ts';
import { listWires } from '#core/policy/registry/adapter-config.ts';
import { snapshot } from '#core/policy/registry/availability.ts';
import type { ModelRegistry } from '#core/policy/registry/model-registry.ts';
import { validationFailure } from '#core/policy/routing/candidate.ts';
import { decideRoute, type RouteEnv, routeError } from '#core/policy/routing/chain.ts';
import { noteFacts } from '#core/policy/routing/route-facts.ts';
import { collectFacts } from '#core/policy/routing/rules.ts';
import type { ClientWire } from '#protocol/client-wire.ts';
import { isoTime } from '#protocol/clock.ts';
import { AppError, validationError } from '#protocol/errors.ts';
import type { EventDraft } from '#protocol/event.ts';
import { getProvider, type ModelEntry } from '#protocol/model.ts';
import { type Pusd, ZERO_PUSD } from '#protocol/money.ts';
import type { RouteDecision, TurnContext } from '#protocol/route.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { listLimits } from '../money/budget-limits.ts';
import { resolvePricingId } from '../money/call-price.ts';
import { readRouteEnvironment, routeDecidedEvent } from '../routing/route-environment.ts';
import type { GatewayEngine, GatewayState, ModelCatalog, Runtime } from '../state/engine.ts';
import { readDecision, type StandingDecision } from '../state/gateway-memory.ts';

/** A request with the model that it names. */
export interface RequestedModel {
  readonly facts: RequestFacts;
  /** Null where the client leaves the choice to the server. */
  readonly named: NamedModel | null;
  /** Root of the call's session, for a session that is not stored yet. */
  readonly new_root: SessionRecord | null;
  /** The registry for this call: with a model that the registry does not list, and with the client's own credentials. */
  readonly registry: ModelRegistry;
}

/** Every provider's model names consist of these. */
const PRINTABLE_ASCII = /^[\x21-\x7e]+$/;

/** Adapters that the call may use. */
export function listUsableAdapters({ relays, config }: Runtime & GatewayState): ReadonlySet<string> {
  const own = config.gateway.credentials === 'client';
  return new Set([...relays].filter(([, { keyed }]) => keyed || own).map(([id]) => id));
}

/** Throws `model_not_configured` where no adapter of the wire can be used. */
export function resolveRequestedModel(
  engine: Runtime & ModelCatalog & GatewayState,
  facts: RequestFacts,
): RequestedModel {
  const usable = listUsableAdapters(engine);
  const named = resolveModelName(engine.registry, facts.wire, facts.model, usable);
  if (named === null)
    throw new AppError(
      'model_not_configured',
      `${shownName(facts.model)} cannot be reached: no adapter that canSpeak ${facts.wire} has a key on this server; set the key, or see metis doctor`,
    );
  const isConfigured = (id: string) => {
    const model = registry.get(id);
    return model !== null && usable.has(model.adapter);
  };
  const isListed = named === 'auto' || engine.registry.get(named.model.id) !== null;
  if (!isListed && !PRINTABLE_ASCII.test(facts.model)) {
    const message = `${shownName(facts.model)} is no model of this server; GET /v1/models lists them`;
    throw validationError([{ path: 'model', message }]);
  }
  const unlisted = named !== 'auto' && engine.registry.get(named.model.id) === null ? named.model : null;
  const registry: ModelRegistry = {
    ...engine.registry,
    isConfigured,
    get: (id) => (id === unlisted?.id ? unlisted : engine.registry.get(id)),
  };
  return { facts, named: named === 'auto' ? null : named, new_root: null, registry };
}

/** The decision kept for the session and this name, unless its model cannot serve this request. */
export async function findStandingDecision(
  engine: GatewayEngine,
  session: SessionRecord,
  asked: RequestedModel,
): Promise<StandingDecision | null> {
  const decision = readDecision(engine.gateway, session.id, asked.facts.model);
  if (decision === null) return null;
  const env = {
    registry: asked.registry,
    availability: snapshot(engine.routes.availability, engine.clock.monotonic()),
    isPriced: (id: string) => engine.prices.has(resolvePricingId(engine, id)),
  };
  const context = await buildTurnContext(engine, session, asked, ZERO_PUSD);
  if (validationFailure(decision.model.id, context, env) === null) return decision;
  return null;
}

interface GatewayDecision {
  readonly decision: RouteDecision;
  /** Null when the request was refused. */
  readonly model: ModelEntry | null;
  readonly refusal: AppError | null;
  /** Notices, and then `route.decided`. */
  readonly emit: readonly EventDraft[];
}

/** Runs the routing chain. Stores nothing. */
export async function decideGatewayRoute(
  engine: GatewayEngine,
  session: SessionRecord,
  asked: RequestedModel,
): Promise<GatewayDecision> {
  const environment = await readRouteEnvironment(engine, session, engine.clock.now());
  const context = await buildTurnContext(engine, session, asked, environment.cost_today_pusd);
  const env: RouteEnv = { ...environment.env, registry: asked.registry };
  const before = engine.clock.monotonic();
  const known = collectFacts(context);
  const decision = decideRoute(context, env, { facts: known });
  const elapsed_ms = Math.max(0, Math.round((engine.clock.monotonic() - before) * 1000) / 1000);
  const place = { session_id: session.id, turn_id: null, parent: null };
  let model: ModelEntry | null = null;
  if (decision.refused === null) model = asked.registry.get(decision.chosen_model);
  const event = routeDecidedEvent(place, {
    decision: reportEffort(decision, model, asked),
    facts: noteFacts(context, known, decision, env.policies.rules),
    elapsed_ms,
    requested: asked.facts.model,
  });
  return {
    decision,
    model,
    refusal: describeRefusal(engine, asked, decision) ?? routeError(decision, context, env),
    emit: [...environment.notices, event],
  };
}

/** The decision with the effort that this call has by its client. */
function reportEffort(
  decision: RouteDecision,
  model: ModelEntry | null,
  { facts, named }: RequestedModel,
): RouteDecision {
  if (model === null || facts.effort === null) return decision;
  const decided = { model, effort: decision.chosen_effort };
  const { effort } = resolveCallEffort(facts.effort, facts.wire, named?.model.id ?? null, decided);
  const chain = decision.chain.map((entry) =>
    entry.verdict === 'chose' ? { ...entry, candidate_effort: effort } : entry,
  );
  return { ...decision, chosen_effort: effort, chain };
}

/** The requested model has no key here, or no adapter of this wire: the message names models that work. */
function describeRefusal(
  engine: Runtime & GatewayState,
  { named, facts, registry }: RequestedModel,
  { refused }: RouteDecision,
): AppError | null {
  if (refused === null || named === null) return null;
  if (canSpeak(registry, named.model, facts.wire)) {
    if (registry.isConfigured(named.model.id)) return null;
    return new AppError(
      'model_not_configured',
      `${named.model.id} cannot be reached: this server has no key for ${named.model.adapter}; set the key, or see metis doctor`,
    );
  }
  const names = listOfferedModels(registry, listUsableAdapters(engine), facts.wire).map(({ name }) => name);
  return new AppError(
    'explicit_model_rejected',
    `${named.model.id} cannot be asked by ${facts.wire}; models that can: ${names.join(', ') || 'none'}`,
    { validation_failure: 'wrong_wire', model: named.model.id },
  );
}

/**
 * Adapters at the address that the client's own key is meant for: the address of the named model, or of the first
 * adapter of the wire. Null where the server's keys are used.
 */
function listOwnKeyAdapters(
  { config, relays, registry }: Runtime & ModelCatalog & GatewayState,
  { wire }: RequestFacts,
  named: NamedModel | null,
): ReadonlySet<string> | null {
  if (config.gateway.credentials === 'server') return null;
  const meant = named?.model.adapter ?? findFirstAdapter(registry, wire);
  const origin = relays.get(meant ?? '')?.origin;
  return new Set([...relays].filter(([, relay]) => relay.origin === origin).map(([id]) => id));
}

function findFirstAdapter({ adapters }: ModelRegistry, wire: RequestFacts['wire']): string | null {
  return [...adapters].find(([, config]) => listWires(config).includes(wire))?.[0] ?? null;
}

async function buildTurnContext(
  engine: GatewayEngine,
  session: SessionRecord,
  { facts, named, new_root }: RequestedModel,
  costToday: Pusd,
): Promise<TurnContext> {
  const { rules_apply_to } = engine.config.gateway;
  const rulesApply = rules_apply_to === 'all' || (rules_apply_to === 'workers' && session.is_worker);
  return {
    session_id: session.id,
    turn_id: '',
    estimated_input_tokens: facts.estimated_input_tokens,
    smallest_input_tokens: facts.estimated_input_tokens,
    has_images: facts.size.images > 0,
    message_has_images: facts.message_has_images,
    has_tool_definitions: facts.has_tools,
    has_system_prompt: facts.has_system,
    requires_structured_output: facts.structured,
    document_media_types: facts.document_media_types,
    budget_limited: (await listLimits(engine, { ...session, new_root }, [])).length > 0,
    per_message_override: null,
    session_active_model: session.active_model,
    is_worker: session.is_worker,
    worker_tier_model: null,
    worker_tier_reason: null,
    worker_tier: null,
    worker_effort: null,
    workspace_path: session.workspace_path,
    user_message_text: facts.text,
    cost_today_pusd: costToday,
    now: engine.clock.now(),
    requested: {
      wire: facts.wire,
      name: facts.model,
      model: named?.model.id ?? null,
      effort: named?.effort ?? null,
      own_key_adapters: listOwnKeyAdapters(engine, facts, named),
      binding: named !== null && !rulesApply,
    },
    recommendation: null,
    recommendation_absent: 'pattern store not configured',
  };
}

// The list of models for gateway clients, in one format that clients of both wires read (19 §2.1).

/** The date of a model is not known; clients of both wires require one. */
const MADE_AT = 0;

export function listGatewayModels(engine: Runtime & ModelCatalog & GatewayState) {
  const offered = listOfferedModels(engine.registry, listUsableAdapters(engine), null);
  const data = [
    ...offered.map(({ name, model }) => toListEntry(name, model.id, getProvider(model.id))),
    ...(offered.length === 0 ? [] : [toListEntry('claude-auto', 'Metis decides', 'metis')]),
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
 * The entry of one model, by any name that a call may use; null where the registry lists none.
 * @param wires in the order of the search
 */
export function findGatewayModel(
  engine: Runtime & ModelCatalog & GatewayState,
  name: string,
  wires: readonly ClientWire[],
) {
  const { data } = listGatewayModels(engine);
  const usable = listUsableAdapters(engine);
  for (const wire of wires) {
    const named = resolveModelName(engine.registry, wire, name, usable);
    if (named === 'auto') return data.find(({ id }) => id === 'claude-auto') ?? null;
    const id = named?.model.id;
    const offered = listOfferedModels(engine.registry, usable, wire).find(({ model }) => model.id === id);
    if (offered !== undefined) return data.find(({ display_name }) => display_name === id) ?? null;
  }
  return null;
}

function toListEntry(id: string, display_name: string, owned_by: string) {
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
