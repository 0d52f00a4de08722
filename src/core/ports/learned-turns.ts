// Reads of what was learned (12 §12.3). Every one is of one workspace: what happened in another is never seen.
import type { Config } from '#protocol/config.ts';
import type { SessionId } from '#protocol/ids.ts';
import type { Fingerprint, StoredPattern } from '#protocol/learned-pattern.ts';
import type { Pusd } from '#protocol/money.ts';
import type { Reader } from '#protocol/people/person.ts';
import type { Recommendation } from '#protocol/route.ts';
import type { CostHistory, TreeCost, WorkShape } from '#protocol/what-if/cost-ahead.ts';

/** A finished turn as the loop finds it. */
export interface LearnedTurn {
  readonly session_id: SessionId;
  readonly workspace_path: string;
  readonly is_worker: boolean;
  /** A model reference: with the effort of the turn (22 §1). */
  readonly chosen_model: string | null;
  /** Null where nothing is to be learned of it. */
  readonly fingerprint: Fingerprint | null;
  /** Where it was recorded, null before. */
  readonly recorded: {
    readonly fingerprint_id: string;
    readonly structural_sig: string;
    /** Of the outcome's newest turn. */
    readonly pricing_version: string;
    readonly primary_model: string;
    readonly score: number | null;
    /** Whether a check or a person gave the score. */
    readonly is_verified: boolean;
  } | null;
}

export interface PatternPage {
  readonly before: string | null;
  readonly limit: number;
  /** Sees the shapes and models of turns of sessions that exist for it. */
  readonly reader: Reader;
}

export interface PatternReader {
  /** Turns by id; a missing one was purged with its session or never existed. */
  turns(turnIds: readonly string[]): Promise<ReadonlyMap<string, LearnedTurn>>;
  /** By signature, ascending. @param after a signature, '' = from the beginning */
  bySignature(workspacePath: string, after: string, limit: number): Promise<readonly StoredPattern[]>;
  /** Newest first, outcomes by model. @param page `before` a fingerprint's id */
  newest(
    workspacePath: string,
    page: PatternPage,
  ): Promise<{ readonly rows: readonly StoredPattern[]; readonly next: string | null }>;
}

// Slot 4's source: what earlier turns suggest for this one (03 §8). The system works without one.

export interface RecommendationQuery {
  readonly workspace_path: string;
  readonly fingerprint: Fingerprint;
  readonly config: Config['pattern'];
  readonly is_worker: boolean;
}

export interface Recommender {
  /** Null when nothing like it happened in the workspace. May throw: the engine logs it and goes on without. */
  recommend(query: RecommendationQuery): Promise<Recommendation | null>;
  /** Sessions of the workspace were deleted: what is held of it in memory is no longer true. */
  forget(workspacePath: string): void;
}

// Forecasts of costs, and the stored costs that they are made of (21 §1). The system works without them.

/** Work of one shape: of one workspace, or with null of the whole server. */
export type CostPlace = Omit<WorkShape, 'workspace_path'> & { readonly workspace_path: string | null };

export interface TreeCostReader {
  /** The newest costs of all shapes, newest first. */
  newest(limit: number): Promise<readonly TreeCost[]>;
  /** The newest costs of one place, newest first. */
  ofPlace(place: CostPlace, limit: number): Promise<readonly Pusd[]>;
  /** The shapes of work that ended since then, each once. */
  changedSince(at: number, limit: number): Promise<readonly WorkShape[]>;
  /** The session that was purged last, with the costs of its turns; null = none was. */
  lastPurge(): Promise<string | null>;
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
