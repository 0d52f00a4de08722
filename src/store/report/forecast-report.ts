// `/analytics/forecast`: the newest forecasts beside what the turns then cost (21 §1).
import { checkForecasts } from '#core/policy/learning/forecast.ts';
import type { ForecastCheck } from '#protocol/what-if/forecast.ts';
import { FORESEEN, type TreeCostRow, treeCost } from '../read/tree-costs.ts';
import type { Read } from './slices.ts';

const CHECKED_TREES = 200;

export async function checkNewestForecasts(read: Read): Promise<ForecastCheck> {
  return checkForecasts((await read<TreeCostRow>(FORESEEN, CHECKED_TREES)).map(treeCost));
}
