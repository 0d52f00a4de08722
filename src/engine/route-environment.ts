// Everything a routing decision needs from outside, gathered before it is made (03 §1).
import { draft, type EventDraft } from '../domain/event.ts';
import type { SessionRecord } from '../domain/session.ts';
import { fromPusd } from '../kernel/money.ts';
import { expire, snapshot } from '../policy/routing/availability.ts';
import type { RouteEnv } from '../policy/routing/chain.ts';
import type { RoutingPolicies } from '../policy/routing/policy-file.ts';
import { nextLayers } from '../policy/routing/policy-layers.ts';
import type { Engine } from './context.ts';
import { layersOf } from './route-memory.ts';

export interface RouteEnvironment {
  readonly env: RouteEnv;
  readonly version: string | null;
  readonly cost_today_usd: string;
  /** What was noticed on the way: broken policy files, recovered providers. */
  readonly notices: readonly EventDraft[];
}

/** Reads the policy files where they changed, lets outages expire, sums today's spend when a rule may ask for it. */
export async function routeEnvironment(engine: Engine, session: SessionRecord, now: number): Promise<RouteEnvironment> {
  const { policies, version, notices } = await currentPolicies(engine, session.workspace_path, session.id);
  const healed = expire(engine.routes.availability, now);
  engine.routes.availability = healed.state;
  for (const t of healed.transitions) {
    if (t.kind !== 'recovered') continue;
    notices.push(
      draft({
        type: 'routing.provider_recovered',
        session_id: session.id,
        turn_id: null,
        parent: null,
        payload: {
          provider: t.provider,
          scope: t.scope,
          models_recovered: [...t.models],
          downtime_seconds: t.downtime_seconds,
        },
      }),
    );
  }
  const today = new Date(now).setUTCHours(0, 0, 0, 0);
  return {
    env: {
      registry: engine.registry,
      policies,
      availability: snapshot(engine.routes.availability, now),
      isPriced: (id) => engine.prices.has(pricingId(engine, id)),
      rateSum: (id) => {
        const rates = engine.prices.ratesFor(pricingId(engine, id), 0);
        return rates === null ? null : rates.input + rates.output;
      },
      allowDearerFallback: engine.config.delegation.allow_dearer_fallback,
    },
    version,
    cost_today_usd: policies.rules.length > 0 ? fromPusd(await engine.store.spend.since(today)) : '0',
    notices,
  };
}

/** The policies in force for a workspace, files re-read where they changed (03 §6.4). */
export async function currentPolicies(
  engine: Engine,
  workspace: string,
  sessionId: string,
): Promise<{ policies: RoutingPolicies; version: string | null; notices: EventDraft[] }> {
  const files = await engine.workspaces.routingFiles(workspace);
  const read = nextLayers(layersOf(engine.routes, workspace), files, {
    registry: engine.registry,
    configDefault: engine.config.routing.global_default_model,
  });
  engine.routes.layers.set(workspace, read.state);
  const notices = read.invalid.map((fault) =>
    draft({ type: 'routing.policy_invalid', session_id: sessionId, turn_id: null, parent: null, payload: fault }),
  );
  return { policies: read.policies, version: read.version, notices };
}

/** The price table row of a model. */
export function pricingId(engine: Engine, modelId: string): string {
  return engine.registry.get(modelId)?.pricing_id ?? modelId;
}
