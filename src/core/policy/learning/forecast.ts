// Makes forecasts of what earlier work of one shape has cost, and compares them with what came (21 §1).

import type { Fingerprint } from '#protocol/learned-pattern.ts';
import { fromPusd, type Pusd, toPusd } from '#protocol/money.ts';
import type { Effort } from '#protocol/scalars.ts';
import { canonicalJson, sha256Hex } from '#protocol/text/canonical-json.ts';
import type { CostHistory, Forecast, ForecastCheck, TreeCost } from '#protocol/what-if/cost-ahead.ts';

/** The newest costs of a shape that count. */
export const MAX_SAMPLES = 500;
/** Enough of the workspace, else of the whole server. */
const MIN_OF_WORKSPACE = 8;
const MIN_OF_SERVER = 20;

/** Equal for fingerprints that agree in every field but `workspace_hash`. */
export function signShape({ workspace_hash: _, ...shape }: Fingerprint): string {
  return sha256Hex(canonicalJson(shape));
}

/** A model at an effort, as learned outcomes name it. */
export function nameModel(model: string, effort: Effort | null): string {
  if (effort === null) return model;
  return `${model}:${effort}`;
}

/** At most `MAX_SAMPLES` costs, in ascending order. */
type Ascending = readonly Pusd[];

/** The history of the workspace where it has enough, else that of the server; null = neither has. */
export function describeHistory(costs: {
  readonly workspace: Ascending;
  readonly server: Ascending;
}): CostHistory | null {
  if (costs.workspace.length >= MIN_OF_WORKSPACE)
    return { ...summariseCosts(costs.workspace), n: costs.workspace.length, basis: 'workspace' };
  if (costs.server.length >= MIN_OF_SERVER)
    return { ...summariseCosts(costs.server), n: costs.server.length, basis: 'server' };
  return null;
}

function summariseCosts(costs: Ascending): Forecast {
  return { p50_usd: fromPusd(findRank(costs, 50)), p90_usd: fromPusd(findRank(costs, 90)) };
}

/** The nearest rank: the smallest cost that this many per cent of all do not pass. */
function findRank(costs: Ascending, percent: number): Pusd {
  return costs[Math.ceil((costs.length * percent) / 100) - 1]!;
}

/** A forecast of running work is never below what is spent already. */
export function raiseToSpent({ p50_usd, p90_usd }: Forecast, spent: Pusd): Forecast {
  const raiseAmount = (usd: string) => (toPusd(usd) < spent ? fromPusd(spent) : usd);
  return { p50_usd: raiseAmount(p50_usd), p90_usd: raiseAmount(p90_usd) };
}

/** The shares of costs that are at or below their forecast. */
export function checkForecasts(trees: readonly Pick<TreeCost, 'cost_pusd' | 'forecast'>[]): ForecastCheck {
  const foreseen = trees.flatMap(({ cost_pusd, forecast }) => (forecast === null ? [] : [{ cost_pusd, forecast }]));
  const n = foreseen.length;
  const countWithin = (bound: keyof Forecast) =>
    foreseen.filter(({ cost_pusd, forecast }) => cost_pusd <= toPusd(forecast[bound])).length;
  if (n === 0) return { n, within_p50: null, within_p90: null };
  return { n, within_p50: countWithin('p50_usd') / n, within_p90: countWithin('p90_usd') / n };
}

/** The stored cost of work that has ended, on the model that it was routed to. */
export function buildTreeCost({
  chosen_model,
  chosen_effort,
  ...cost
}: Omit<TreeCost, 'model'> & { readonly chosen_model: string; readonly chosen_effort: Effort | null }): TreeCost {
  return { ...cost, model: nameModel(chosen_model, chosen_effort) };
}
