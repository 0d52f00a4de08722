// What earlier work has cost, by its shape (21 §1).
import { checkForecasts } from '#core/policy/learning/forecast.ts';
import type { TreeCostReader } from '#core/ports/learned-turns.ts';
import type { Pusd } from '#protocol/money.ts';
import type { ForecastCheck, TreeCost, WorkShape } from '#protocol/what-if/cost-ahead.ts';
import type { Read } from '../report/slices.ts';
import { bit, LAST_PURGE, READ_META } from '../schema/words.ts';
import type { Reads } from './read-database.ts';

interface CostText {
  /** Money as text: a JS number would lose picodollars. */
  readonly cost_text: string;
}
export interface TreeCostRow extends CostText {
  readonly id: string;
  readonly workspace_path: string;
  readonly is_worker: number;
  readonly shape_sig: string;
  readonly model: string;
  readonly forecast_json: string | null;
  readonly ended_at: number;
}
type ShapeRow = Omit<WorkShape, 'is_worker'> & { readonly is_worker: number };

const COLUMNS = `id, workspace_path, is_worker, shape_sig, model, CAST(cost_pusd AS TEXT) AS cost_text, forecast_json,
  ended_at`;
const NEWEST_FIRST = 'ORDER BY ended_at DESC, id DESC LIMIT ?';
export const NEWEST_COSTS = `SELECT ${COLUMNS} FROM tree_costs ${NEWEST_FIRST}`;
export const COSTS_OF_SHAPE = `SELECT CAST(cost_pusd AS TEXT) AS cost_text FROM tree_costs
  WHERE shape_sig = ? AND model = ? AND is_worker = ? ${NEWEST_FIRST}`;
export const COSTS_IN_WORKSPACE = `SELECT CAST(cost_pusd AS TEXT) AS cost_text FROM tree_costs
  WHERE shape_sig = ? AND model = ? AND is_worker = ? AND workspace_path = ? ${NEWEST_FIRST}`;
export const CHANGED_SHAPES = `SELECT DISTINCT workspace_path, is_worker, shape_sig, model FROM tree_costs
  WHERE ended_at >= ? LIMIT ?`;
/** Trees that had a forecast, newest first. */
export const FORESEEN = `SELECT ${COLUMNS} FROM tree_costs WHERE forecast_json IS NOT NULL ${NEWEST_FIRST}`;

export function treeCost({ is_worker, cost_text, forecast_json, ended_at, ...row }: TreeCostRow): TreeCost {
  return {
    ...row,
    is_worker: Number(is_worker) === 1,
    cost_pusd: BigInt(cost_text) as Pusd,
    forecast: forecast_json === null ? null : JSON.parse(forecast_json),
    ended_at: Number(ended_at),
  };
}

export function createTreeCostReader({ all, get }: Reads): TreeCostReader {
  const readCosts = async (text: string, ...values: unknown[]) =>
    (await all<CostText>(text, ...values)).map(({ cost_text }) => BigInt(cost_text) as Pusd);
  return {
    newest: async (limit) => (await all<TreeCostRow>(NEWEST_COSTS, limit)).map(treeCost),
    ofPlace: ({ shape_sig, model, is_worker, workspace_path }, limit) => {
      const shape = [shape_sig, model, bit(is_worker)];
      if (workspace_path === null) return readCosts(COSTS_OF_SHAPE, ...shape, limit);
      return readCosts(COSTS_IN_WORKSPACE, ...shape, workspace_path, limit);
    },
    changedSince: async (at, limit) =>
      (await all<ShapeRow>(CHANGED_SHAPES, at, limit)).map((row) => ({ ...row, is_worker: row.is_worker === 1 })),
    lastPurge: async () => (await get<{ value: string }>(READ_META, LAST_PURGE))?.value ?? null,
  };
}

// `/analytics/forecast`: the newest forecasts beside what the turns then cost (21 §1).

const CHECKED_TREES = 200;

export async function checkNewestForecasts(read: Read): Promise<ForecastCheck> {
  return checkForecasts((await read<TreeCostRow>(FORESEEN, CHECKED_TREES)).map(treeCost));
}
