// `/analytics/cost`: stamped sums from the rollups, or the same calls priced again row by row (07 §4, §6).
import type Database from 'better-sqlite3';
import type { CostQuery, CostRow, WorkerShare } from '../../domain/analytics.ts';
import type { TokenUsage } from '../../domain/usage.ts';
import {
  allTokens,
  costRow,
  costTotals,
  emptySums,
  type RowShape,
  type Sums,
  workerShare,
} from '../../policy/cost-row.ts';
import {
  compareSortValues,
  foldsWorkers,
  fromSortKey,
  grainOf,
  type KeyName,
  keyNames,
  type Segment,
  type SortTerm,
  type SortValues,
  sortTerms,
  splitWindow,
  toSortKey,
} from '../../policy/rollup.ts';
import type { CallPricer, CostAnswer } from '../../ports/analytics.ts';
import { groupsSql, keyColumn, pageSql, type Where, whereFilter } from './cost-sql.ts';
import type { Prepare } from './slices.ts';

/** A group: values of its key columns as stored, and its sums. */
export interface Group {
  readonly values: readonly (bigint | string)[];
  readonly sums: Sums;
}

/** What one query asks for, worked out once. */
export interface CostPlan {
  readonly query: CostQuery;
  readonly keys: readonly KeyName[];
  readonly terms: readonly SortTerm[];
  readonly folded: boolean;
  readonly shape: RowShape;
}
