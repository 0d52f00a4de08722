// Limits of which all nodes of a cluster spend: of a day, of a person and of an experiment (14 §1, 16 §8).
import type { Pusd } from '#protocol/money.ts';

export interface SharedLimit {
  /** Reservations of one day count against the next: a call is charged to the day in which it ends. */
  readonly pool: string;
  readonly limit: Pusd;
  /** Begin of the day or month, Unix ms; 0 = all time. */
  readonly since: number;
  /** Whose calls alone count; null = all. */
  readonly caller: string | null;
  /** Whose sessions and turns alone count; null = all. */
  readonly owner: string | null;
  /** Id of the experiment whose runs alone count; null = all. */
  readonly experiment: string | null;
}

export type Share =
  /** Called when the cost is in the ledger, or there is no cost. */
  | { readonly ok: true; release(): void }
  /** Too much; `elsewhere` is what other nodes hold of it. */
  | { readonly ok: false; readonly elsewhere: Pusd };

export interface DayLimit {
  /** Takes money of one call. An amount within the node's allowance needs no request. Throws `storage_unavailable`. */
  take(limit: SharedLimit, amount: Pusd): Share | Promise<Share>;
}
