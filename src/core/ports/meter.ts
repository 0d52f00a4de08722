// What a node counts and measures of itself, for its metrics (18 §2).

/** `refused` = a condition of the batch did not hold, or its tree is another node's; `failed` = the storage did not take it. */
export type CommitOutcome = 'committed' | 'refused' | 'failed';
/** `not_taken` = the other node started nothing; `broken` = it was sent, and its outcome is unknown; `failed` = the caller left, or its body did not come. */
export type ForwardOutcome = 'answered' | 'not_taken' | 'broken' | 'failed';
/** `released` = the last owner gave the tree up; `lapsed` = its lease ended, or its node is dead. */
export type TakeOverCause = 'released' | 'lapsed';

/** Counts as things happen. No call throws or waits. */
export interface Meter {
  /** @param seconds from the call of `commit` to its end */
  addCommit(outcome: CommitOutcome, seconds: number): void;
  /** @param seconds until the other node's answer began; null without one */
  addForward(outcome: ForwardOutcome, seconds: number | null): void;
}

export const NO_METER: Meter = { addCommit() {}, addForward() {} };

/** Of a node of a cluster, from its memory. */
export interface NodeFigures {
  /** Since the start of the last heartbeat that renewed the lease. */
  readonly lease_age_seconds: number;
  readonly trees_held: number;
  /** Since the start of the process. */
  readonly takeovers: Readonly<Record<TakeOverCause, number>>;
  /** Trees that were given up because the lease or a commit was lost, since the start of the process. */
  readonly trees_dropped: number;
  /** Of the pool of the journal and the readers. */
  readonly connections: { readonly used: number; readonly idle: number };
  /** Statements and transactions that wait for a connection. */
  readonly connections_waiting: number;
  /** Null = no NATS is configured. */
  readonly is_nats_connected: boolean | null;
}

/** What the services are asked for. */
export interface WaitingFigures {
  /** Results of background workers that their open turns have not got yet, of the whole database. */
  readonly deliveries_waiting: number;
  /** Webhook notices that are still to be sent, of the whole database. Null = the server keeps no queue. */
  readonly notices_waiting: number | null;
  /** Null = no NATS, or it is away. */
  readonly nats_round_trip_seconds: number | null;
}

export interface StorageFigures {
  /** Null = the server is the only one. */
  node(): NodeFigures | null;
  measure(): Promise<WaitingFigures>;
}

export const NOTHING_WAITS: WaitingFigures = {
  deliveries_waiting: 0,
  notices_waiting: null,
  nats_round_trip_seconds: null,
};
export const NO_FIGURES: StorageFigures = { node: () => null, measure: async () => NOTHING_WAITS };
