// Slot 4's source: what earlier turns suggest for this one (03 §8). The system works without one.
import type { Config } from '#protocol/config.ts';
import type { Fingerprint } from '#protocol/learning/pattern.ts';
import type { Recommendation } from '#protocol/route.ts';

export interface RecommendationQuery {
  readonly workspace_path: string;
  readonly fingerprint: Fingerprint;
  readonly config: Config['pattern'];
}

export interface Recommender {
  /** Null when nothing like it happened in the workspace. May throw: the engine logs it and goes on without. */
  recommend(query: RecommendationQuery): Promise<Recommendation | null>;
  /** Sessions of the workspace were deleted: what is held of it in memory is no longer true. */
  forget(workspacePath: string): void;
}
