// Money that running calls hold, and what is remembered of limits: in memory only, made again after a restart (14).

import type { SessionId, ToolUseId } from '#protocol/ids.ts';
import type { Pusd, Usd } from '#protocol/money.ts';
import type { OnReached } from '#protocol/scalars.ts';

export type BudgetScope = 'session' | 'delegation' | 'day' | 'key';

/** A cap on one delegation: its worker and everything below it. */
export interface DelegationCap {
  readonly tool_use_id: ToolUseId;
  readonly session_id: SessionId;
  readonly limit: Pusd;
}

/** Why a call was refused; all amounts as they were at that moment. */
export interface BudgetRefusal {
  readonly scope: BudgetScope;
  readonly key: string;
  readonly on_reached: OnReached;
  readonly limit_usd: Usd;
  readonly spent_usd: Usd;
  readonly reserved_usd: Usd;
  readonly needed_usd: Usd;
  /** Limit less what is spent and reserved; never negative. */
  readonly left_usd: Usd;
}

/** Reservations live in memory only: after a crash every open call is closed before anything runs. */
export interface Budget {
  /** By pool. */
  readonly reserved: Map<string, Pusd>;
  /** Counts settlements and waiters that left: a check whose sums were read before one is made again. */
  settlements: number;
  /** Called behind each settlement. */
  readonly settled: Set<() => void>;
  /** Trees that wait, each for a higher limit than the one here, which refused; after a restart made again from their turns (14 §3). */
  readonly paused: Map<SessionId, Pusd>;
  /** Limits that were warned about, by key, with their amount then. */
  readonly warned: Map<string, Pusd>;
}

export function createBudget(): Budget {
  return { reserved: new Map(), settlements: 0, settled: new Set(), paused: new Map(), warned: new Map() };
}
