// `/analytics/quality`: shapes of one workspace that ran on several models (07 §7.3).

import { setImmediate } from 'node:timers/promises';
import { compareModels, takeBest } from '#core/policy/learning/compare-models.ts';
import type { QualityQuery } from '#core/ports/report-reader.ts';
import type { Fingerprint, ModelComparison, Quality, ShapeOnModels } from '#protocol/learned-pattern.ts';
import { fromPusd, type Pusd, sumPusd, toPusd } from '#protocol/money.ts';
import type { Read } from './slices.ts';

const SLICE_SHAPES = 100;
/** The next shapes behind one, each with its outcomes. */
const SHAPES = `SELECT o.fingerprint_id, f.structural_json, o.primary_model AS model, o.sample_size,
    o.success_score_mean AS score_mean, o.success_score_count AS scored_turns,
    CAST(o.sum_cost_pusd AS TEXT) AS sum_cost_text,
    (SELECT count(*) FROM pattern_turns p WHERE p.fingerprint_id = o.fingerprint_id
      AND p.primary_model = o.primary_model AND p.recorded_at >= ?) AS recent_turns
  FROM (SELECT id, structural_json FROM pattern_fingerprints WHERE workspace_path = ? AND id > ?
      ORDER BY id LIMIT ${SLICE_SHAPES}) f
    JOIN pattern_outcomes o ON o.fingerprint_id = f.id
  ORDER BY o.fingerprint_id, o.primary_model`;
const MAX_COMPARISONS = 100;

interface Row {
  readonly fingerprint_id: string;
  readonly structural_json: string;
  readonly model: string;
  readonly sample_size: bigint;
  readonly score_mean: number;
  readonly scored_turns: bigint;
  readonly sum_cost_text: string;
  readonly recent_turns: bigint;
}

/** Compared where the rows are, slice by slice: thousands of shapes hold up nobody. */
export async function quality(read: Read, { workspace_path, since, tiers }: QualityQuery): Promise<Quality> {
  const learned = { shapes: 0, turns: 0, scored_turns: 0, comparisons_total: 0 };
  let saved: Pusd = toPusd('0');
  let comparisons: readonly ModelComparison[] = [];
  for (let after = ''; ; await setImmediate()) {
    const rows = await read<Row>(SHAPES, since, workspace_path, after);
    if (rows.length === 0) break;
    const shapes = new Map<string, Row[]>();
    for (const row of rows) shapes.set(row.fingerprint_id, [...(shapes.get(row.fingerprint_id) ?? []), row]);
    learned.shapes += shapes.size;
    for (const { sample_size, scored_turns } of rows) {
      learned.turns += Number(sample_size);
      learned.scored_turns += Number(scored_turns);
    }
    const onSeveral = [...shapes.values()].filter((outcomes) => outcomes.length > 1);
    const found = compareModels(onSeveral.map(toModelOutcomes), (model) => tiers.get(model));
    learned.comparisons_total += found.length;
    const good = found.filter(({ verdict }) => verdict === 'as_good');
    saved = sumPusd([saved, ...good.map(({ saving_per_day_usd }) => toPusd(saving_per_day_usd))]);
    comparisons = takeBest([...comparisons, ...found], MAX_COMPARISONS);
    after = rows.at(-1)!.fingerprint_id;
  }
  return { ...learned, saving_per_day_usd: fromPusd(saved), comparisons: [...comparisons] };
}

function toModelOutcomes(rows: readonly Row[]): ShapeOnModels {
  return {
    ...toShape(rows[0]!),
    outcomes: rows.map((row) => ({
      model: row.model,
      sample_size: Number(row.sample_size),
      sum_cost_pusd: BigInt(row.sum_cost_text) as Pusd,
      score_mean: row.score_mean,
      scored_turns: Number(row.scored_turns),
      recent_turns: Number(row.recent_turns),
    })),
  };
}

function toShape({ fingerprint_id, structural_json }: Row): Omit<ShapeOnModels, 'outcomes'> {
  const { intent_tags, file_extensions, tool_names, estimated_input_tokens_bucket, has_images } = JSON.parse(
    structural_json,
  ) as Fingerprint;
  return { fingerprint_id, intent_tags, file_extensions, tool_names, estimated_input_tokens_bucket, has_images };
}
