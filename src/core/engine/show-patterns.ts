// What was learned in a workspace, for people (12 §12.7).

import type { TimeWindow } from '#protocol/analytics.ts';
import type { Pattern } from '#protocol/api/patterns.ts';
import { isoTime } from '#protocol/clock.ts';
import type { StoredPattern } from '#protocol/learning/pattern.ts';
import type { Quality } from '#protocol/learning/quality.ts';
import { fromPusd } from '#protocol/money.ts';
import type { Analytics } from '../ports/analytics.ts';
import { openWorkspace } from './session/new-session.ts';
import type { Engine } from './state/engine.ts';

/**
 * Newest shape first, its outcomes by model. Throws `not_found` (workspace) or `workspace_not_allowed`.
 * @param page `before` a fingerprint's id
 */
export async function listPatterns(
  engine: Engine,
  workspace: string,
  page: { readonly before: string | null; readonly limit: number },
): Promise<{ readonly patterns: Pattern[]; readonly next: string | null }> {
  const root = await openWorkspace(engine, workspace);
  const { rows, next } = await engine.store.patterns.newest(root, page.before, page.limit);
  return { patterns: rows.map((row) => patternOf(engine, row)), next };
}

/**
 * Where a cheaper model does a shape of task as well (07 §7.3). Throws `not_found` (workspace) or `workspace_not_allowed`.
 * @param window the turns whose saving is told, as Unix milliseconds
 */
export async function compareQuality(
  engine: Engine,
  analytics: Pick<Analytics, 'quality'>,
  workspace: string,
  window: TimeWindow,
): Promise<Quality> {
  const workspace_path = await openWorkspace(engine, workspace);
  const tiers = new Map(engine.registry.models.map(({ id, tier }) => [id, tier]));
  return analytics.quality({ workspace_path, since: window.from, tiers });
}

function patternOf({ registry }: Engine, { fingerprint_id, fingerprint, outcomes }: StoredPattern): Pattern {
  const { intent_tags, file_extensions, tool_names, estimated_input_tokens_bucket, has_images } = fingerprint;
  return {
    fingerprint_id,
    intent_tags,
    file_extensions,
    tool_names,
    estimated_input_tokens_bucket,
    has_images,
    outcomes: outcomes.map((outcome) => ({
      model: outcome.model,
      tier: registry.get(outcome.model)?.tier ?? null,
      sample_size: outcome.sample_size,
      success_score_mean: outcome.success_score_count === 0 ? null : outcome.success_score_mean,
      success_score_count: outcome.success_score_count,
      avg_cost_usd: fromPusd(outcome.sum_cost_pusd / BigInt(outcome.sample_size)),
      avg_latency_ms: outcome.sum_latency_ms / outcome.sample_size,
      last_updated_at: isoTime(outcome.last_updated_at),
    })),
  };
}
