// Forecasts of costs, and the stored costs that they are made of (21 §1). The system works without them.

import type { Pusd } from '#protocol/money.ts';
import type { CostHistory, TreeCost, WorkShape } from '#protocol/what-if/forecast.ts';

/** Work of one shape: of one workspace, or with null of the whole server. */
export type CostPlace = Omit<WorkShape, 'workspace_path'> & { readonly workspace_path: string | null };

export interface TreeCostReader {
  /** The newest costs of all shapes, newest first. */
  newest(limit: number): Promise<readonly TreeCost[]>;
  /** The newest costs of one place, newest first. */
  ofPlace(place: CostPlace, limit: number): Promise<readonly Pusd[]>;
  /** The shapes of work that ended since then, each once. */
  changedSince(at: number, limit: number): Promise<readonly WorkShape[]>;
}

export interface Forecasts {
  /** One look into memory. Null without enough earlier work, or where memory does not have it. */
  look(work: WorkShape): CostHistory | null;
  /** The same, from the store where memory does not have it. */
  read(work: WorkShape): Promise<CostHistory | null>;
  /** Work that has ended and is stored. */
  add(cost: TreeCost): void;
  /** Sessions were deleted: what is held in memory is read again. Never rejects. */
  refresh(): Promise<void>;
}
