// Reads the inputs of a routing decision: policy files, outages, today's spend (03 §1).
import {
  type CallFailure,
  expire,
  recordOutcome,
  snapshot,
  type Unavailable,
} from '#core/policy/registry/availability.ts';
import type { RouteEnv } from '#core/policy/routing/chain.ts';
import type { RoutingPolicies } from '#core/policy/routing/policy-file.ts';
import {
  findUnreported,
  markReported,
  nextLayer,
  type PolicyLayer,
  type PolicyLayers,
  policiesInForce,
  UNREAD,
} from '#core/policy/routing/policy-layers.ts';
import type { RoutingFile } from '#core/ports/workspace.ts';
import { type Awaitable, continueWith } from '#protocol/async/awaitable.ts';
import { draft, type EventDraft } from '#protocol/event.ts';
import type { SessionId, TurnId } from '#protocol/ids.ts';
import type { ModelEntry } from '#protocol/model.ts';
import { type Pusd, ZERO_PUSD } from '#protocol/money.ts';
import type { RouteDecision, RouteFacts } from '#protocol/route.ts';
import type { SessionRecord } from '#protocol/session.ts';
import { resolvePricingId } from '../money/call-price.ts';
import type { ModelCatalog, RoutingEngine, RoutingState, Runtime, WorkspaceAccess } from '../state/engine.ts';
import { rememberWorkspace } from '../state/memory.ts';

export interface RouteEnvironment {
  readonly env: RouteEnv;
  readonly version: string | null;
  readonly cost_today_pusd: Pusd;
  /** Notices: broken policy files, recovered providers. */
  readonly notices: readonly EventDraft[];
}

/** Reads policy files that changed, lets outages expire, sums today's spend when a rule may need it. */
export function readRouteEnvironment(
  engine: RoutingEngine,
  session: SessionRecord,
  now: number,
): Awaitable<RouteEnvironment> {
  return continueWith(readPolicies(engine, session.workspace_path), ({ policies, version }) => {
    const today = new Date(now).setUTCHours(0, 0, 0, 0);
    const spent = policies.rules.length > 0 ? engine.store.spend.since(today) : ZERO_PUSD;
    return continueWith(spent, (cost_today_pusd) => ({
      env: buildRouteEnv(engine, policies),
      version,
      cost_today_pusd,
      notices: takeNotices(engine, session),
    }));
  });
}

function buildRouteEnv(engine: RoutingEngine, policies: RoutingPolicies): RouteEnv {
  return {
    registry: engine.registry,
    policies,
    availability: snapshot(engine.routes.availability, engine.clock.monotonic()),
    isPriced: (id) => engine.prices.has(resolvePricingId(engine, id)),
    rateSum: (id) => {
      const rates = engine.prices.ratesFor(resolvePricingId(engine, id), 0);
      if (rates === null) return null;
      return rates.input + rates.output;
    },
    allowCostlierFallback: engine.config.delegation.allow_costlier_fallback,
  };
}

/** The policies by which a session's delegations choose models: an experiment has tiers of its own (21 §5). */
export async function readDelegationPolicies(
  engine: RoutingEngine,
  { workspace_path, experiment }: Pick<SessionRecord, 'workspace_path' | 'experiment'>,
): Promise<PoliciesInForce> {
  const found = await readPolicies(engine, workspace_path);
  const tiers = experiment?.tiers ?? null;
  if (tiers === null) return found;
  return { ...found, policies: { ...found.policies, tiers } };
}

interface PoliciesInForce {
  readonly policies: RoutingPolicies;
  readonly version: string | null;
  readonly layers: PolicyLayers;
}

interface RoutingFiles {
  readonly workspace: RoutingFile | null;
  readonly global: RoutingFile;
}

/** The bytes of the routing files. @param workspace null = the global file alone */
export function readRoutingFiles(
  workspaces: WorkspaceAccess['workspaces'],
  workspace: string | null,
): Awaitable<RoutingFiles> {
  if (workspace !== null) return workspaces.routingFiles(workspace);
  return continueWith(workspaces.globalRoutingFile(), (global) => ({ workspace: null, global }));
}

/**
 * The policies in force for a workspace; files that changed are read again (03 §6.4).
 * @param workspace null = the global file alone
 */
export function readPolicies(engine: RoutingEngine, workspace: string | null): Awaitable<PoliciesInForce> {
  return continueWith(readRoutingFiles(engine.workspaces, workspace), (files) =>
    applyRoutingFiles(engine, workspace, files),
  );
}

function applyRoutingFiles(engine: RoutingEngine, workspace: string | null, files: RoutingFiles): PoliciesInForce {
  const { registry, routes, config } = engine;
  const now = engine.clock.now();
  const before = routes.global;
  routes.global = nextLayer(before, files.global, { kind: 'global', registry, now });
  warnAboutFault(engine, before, routes.global);
  let own = UNREAD;
  if (workspace !== null && files.workspace !== null) {
    const seen = routes.workspaces.get(workspace) ?? UNREAD;
    own = nextLayer(seen, files.workspace, { kind: 'workspace', registry, now });
    warnAboutFault(engine, seen, own);
    rememberWorkspace(routes, workspace, own);
  }
  const layers = { workspace: own, global: routes.global };
  const known = { registry, configDefault: config.routing.global_default_model };
  return { ...policiesInForce(layers, known), layers };
}

/** Logs one line per rejected content. */
function warnAboutFault({ log }: Pick<Runtime, 'log'>, before: PolicyLayer, { fault }: PolicyLayer): void {
  if (fault !== null && fault.digest !== before.fault?.digest)
    log.warn({ ...fault.report }, 'a routing file is invalid; nothing of it is in force');
}

/** Events for new notices: a rejected policy file (one event per tree that uses it), providers that recovered. */
export function takeNotices(
  { routes, clock }: Runtime & RoutingState,
  { id, root_session_id: root, workspace_path }: Pick<SessionRecord, 'id' | 'root_session_id' | 'workspace_path'>,
): EventDraft[] {
  const place = { session_id: id, turn_id: null, parent: null };
  const own = routes.workspaces.get(workspace_path);
  const faults = [own ?? UNREAD, routes.global]
    .map((layer) => findUnreported(layer, root))
    .filter((fault) => fault !== null);
  if (own) routes.workspaces.set(workspace_path, markReported(own, root));
  routes.global = markReported(routes.global, root);
  const healed = expire(routes.availability, clock.monotonic());
  routes.availability = healed.state;
  return [
    ...faults.map((fault) => draft({ ...place, type: 'routing.policy_invalid', payload: fault })),
    ...healed.transitions.map(({ provider, scope, models, downtime_seconds }) =>
      draft({
        ...place,
        type: 'routing.provider_recovered',
        payload: { provider, scope, models_recovered: [...models], downtime_seconds },
      }),
    ),
  ];
}

// The evidence of a call about its model and provider, for the routing of the next one (03 §11).

/** Observes a call's outcome: once per call, however often storing it is tried. Null = it succeeded. */
export function observeCall(
  engine: Runtime & ModelCatalog & RoutingState,
  model: Pick<ModelEntry, 'id' | 'adapter'>,
  failure: CallFailure | null,
): readonly Unavailable[] {
  const { routes, clock, registry } = engine;
  const { state, transitions } = recordOutcome(routes.availability, { model, failure }, clock.monotonic(), registry);
  routes.availability = state;
  return transitions;
}

/** Outages that start with a call, stored with its outcome. @param parent the outcome's place in the batch */
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

// The stored form of a decision (02 §9.2, 03 §6).

/** @param place of the event; a gateway call has no turn */
export function routeDecidedEvent(
  place: { readonly session_id: SessionId; readonly turn_id: TurnId | null; readonly parent: number | null },
  decided: {
    readonly decision: RouteDecision;
    readonly facts: RouteFacts;
    /** Of the decision alone. */
    readonly elapsed_ms: number;
    /** Model that a gateway client requested; null = none. */
    readonly requested: string | null;
  },
): EventDraft {
  const { decision, facts, elapsed_ms, requested } = decided;
  return draft({
    type: 'route.decided',
    ...place,
    payload: {
      chosen_model: decision.chosen_model,
      chosen_effort: decision.chosen_effort,
      winner_index: decision.winner_index,
      elapsed_ms,
      refused: decision.refused,
      fallback_costlier: decision.fallback_costlier,
      chain: [...decision.chain],
      requested_model: requested,
      facts,
    },
  });
}
