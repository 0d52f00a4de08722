// Slot 4's source: what earlier turns suggest for this one (03 §8). The system works without one.
import type { Recommendation } from '../domain/route.ts';

export interface RecommendationQuery {
  readonly session_id: string;
  readonly workspace_path: string;
  readonly user_message_text: string;
  readonly message_has_images: boolean;
  readonly estimated_input_tokens: number;
}

export interface Recommender {
  /** Null when nothing is stored for the workspace. May throw: the engine logs it and goes on without. */
  recommend(query: RecommendationQuery): Promise<Recommendation | null>;
}
