// Reports from stored events: `/analytics/reliability`, `/analytics/quality`, `/analytics/routing` (07 §7).

import { setImmediate } from 'node:timers/promises';
import { averageLatency, ratio } from '#core/policy/analytics/cost-row.ts';
import { percentiles } from '#core/policy/analytics/latency.ts';
import { createRouteCounter } from '#core/policy/analytics/route-stats.ts';
import { unpackPayload } from '#core/policy/journal/stored-payload.ts';
import { type Compared, compareModels, takeBest, viewComparison } from '#core/policy/learning/compare-models.ts';
import type { QualityQuery } from '#core/ports/report-reader.ts';
import type { ModelReliability, RoutingStats, TraceQuery } from '#protocol/analytics.ts';
import type { PayloadOf } from '#protocol/event.ts';
import type { Fingerprint, Quality, ShapeOnModels } from '#protocol/learned-pattern.ts';
import { fromPusd, type Pusd, sumPusd, ZERO_PUSD } from '#protocol/money.ts';
import type { ErrorClass } from '#protocol/scalars.ts';
import { compareText } from '#protocol/text/compare-text.ts';
import { whereLearnedSeen } from '../read/patterns.ts';
import type { EventRow } from '../schema/rows.ts';
import { typeIs } from '../schema/words.ts';
import { eventSlices, type Read } from './slices.ts';

/** Rows per slice: each needs a look-up in the ledger or a parsed payload. */
const SLICE_ROWS = 5000;

/** A pruned call no longer counts, so the ledger is read through its events. */
const FINISHED = `SELECT c.model, c.provider, c.cancelled, CASE WHEN c.cancelled = 1 THEN NULL ELSE c.latency_ms END AS latency_ms,
    CASE WHEN c.cancelled = 1 THEN coalesce({json_field(e.payload_json, error_class)}, 'cancelled') END AS error_class,
    COUNT(*) AS calls
  FROM event_rows e JOIN llm_calls c ON c.event_id = e.id
  WHERE e.${typeIs('llm.call_completed')} AND e.timestamp_ms >= ? AND e.timestamp_ms < ?
    AND c.session_id = coalesce(?, c.session_id)
    AND c.model = coalesce(?, c.model) AND c.provider = coalesce(?, c.provider)
  GROUP BY 1, 2, 3, 4, 5`;
const FAILED = `SELECT {json_field(payload_json, model)} AS model, {json_field(payload_json, provider)} AS provider,
    NULL AS latency_ms, {json_field(payload_json, error_class)} AS error_class, COUNT(*) AS calls
  FROM event_rows e JOIN event_sessions s ON s.session_key = e.session_key
  WHERE e.${typeIs('llm.call_failed')} AND timestamp_ms >= ? AND timestamp_ms < ?
    AND session_id = coalesce(?, session_id)
    AND {json_field(payload_json, model)} = coalesce(?, {json_field(payload_json, model)})
    AND {json_field(payload_json, provider)} = coalesce(?, {json_field(payload_json, provider)})
  GROUP BY 1, 2, 4`;

interface CallGroup {
  readonly model: string;
  readonly provider: string;
  readonly latency_ms: bigint | null;
  /** Null = completed. */
  readonly error_class: ErrorClass | null;
  readonly calls: bigint;
}

interface ModelCalls {
  readonly model: string;
  readonly provider: string;
  completed: number;
  cancelled: number;
  readonly failures: Map<ErrorClass, number>;
  readonly latencies: Map<number, number>;
}

export async function reliability(read: Read, { window, filter }: TraceQuery): Promise<readonly ModelReliability[]> {
  const models = new Map<string, ModelCalls>();
  const sources = [
    { type: 'llm.call_completed', sql: FINISHED },
    { type: 'llm.call_failed', sql: FAILED },
  ] as const;
  const { session, model, provider } = filter;
  for (const { type, sql } of sources) {
    for await (const { from, to } of eventSlices(read, type, window, SLICE_ROWS)) {
      for (const group of await read<CallGroup>(sql, from, to, session, model, provider)) add(models, group);
    }
  }
  return [...models.values()].sort(byModel).map(report);
}

function add(models: Map<string, ModelCalls>, { model, provider, ...group }: CallGroup): void {
  const { error_class } = group;
  const calls = Number(group.calls);
  const id = `${model}\n${provider}`;
  const sums = models.get(id) ?? {
    model,
    provider,
    completed: 0,
    cancelled: 0,
    failures: new Map<ErrorClass, number>(),
    latencies: new Map<number, number>(),
  };
  models.set(id, sums);
  if (error_class === 'cancelled') sums.cancelled += calls;
  else if (error_class !== null) sums.failures.set(error_class, (sums.failures.get(error_class) ?? 0) + calls);
  else sums.completed += calls;
  if (group.latency_ms === null) return;
  const latency = Number(group.latency_ms);
  sums.latencies.set(latency, (sums.latencies.get(latency) ?? 0) + calls);
}

function report({ model, provider, completed, cancelled, failures, latencies }: ModelCalls): ModelReliability {
  const failed = total(failures.values());
  const calls = completed + cancelled + failed;
  const sample = total(latencies.values());
  const [p50, p95] = percentiles(latencies, [50, 95]);
  const sum = total([...latencies].map(([ms, count]) => ms * count));
  return {
    model,
    provider,
    calls,
    completed,
    cancelled,
    failed,
    failures: [...failures]
      .map(([error_class, count]) => ({ error_class, count }))
      .sort((a, b) => b.count - a.count || compareText(a.error_class, b.error_class)),
    failure_rate: ratio(BigInt(failed), BigInt(calls)),
    p50: p50 ?? null,
    p95: p95 ?? null,
    avg_latency_ms: averageLatency(BigInt(sum), BigInt(sample)),
    sample_size: sample,
  };
}

function byModel(a: ModelCalls, b: ModelCalls): number {
  if (a.model !== b.model) {
    if (a.model < b.model) return -1;
    return 1;
  }
  if (a.provider < b.provider) return -1;
  return 1;
}

function total(numbers: Iterable<number>): number {
  let sum = 0;
  for (const n of numbers) sum += n;
  return sum;
}

// `/analytics/quality`: shapes of one workspace that ran on several models (07 §7.3).

const SLICE_SHAPES = 100;
/** The shapes after the given one, each with its outcomes, as far as the reader sees them. */
const selectShapes = (
  seenShape: string,
  seenOutcome: string,
) => `SELECT o.fingerprint_id, f.structural_json, o.primary_model AS model, o.sample_size,
    o.success_score_mean AS score_mean, o.success_score_count AS scored_turns,
    o.is_worker, CAST(o.sum_cost_pusd AS TEXT) AS sum_cost_text, o.cost_count,
    (SELECT count(*) FROM pattern_turns p WHERE p.fingerprint_id = o.fingerprint_id
      AND p.primary_model = o.primary_model AND p.is_worker = o.is_worker AND p.recorded_at >= ?) AS recent_turns
  FROM (SELECT id, structural_json FROM pattern_fingerprints WHERE workspace_path = ? AND id > ? ${seenShape}
      ORDER BY id LIMIT ${SLICE_SHAPES}) f
    JOIN pattern_outcomes o ON o.fingerprint_id = f.id ${seenOutcome}
  ORDER BY o.fingerprint_id, o.primary_model, o.is_worker`;
const MAX_COMPARISONS = 100;

interface Row {
  readonly fingerprint_id: string;
  readonly structural_json: string;
  readonly model: string;
  readonly is_worker: bigint;
  readonly sample_size: bigint;
  readonly score_mean: number;
  readonly scored_turns: bigint;
  readonly sum_cost_text: string;
  readonly cost_count: bigint;
  readonly recent_turns: bigint;
}

/** Shapes are compared slice by slice, so that thousands of them block no other request. */
export async function quality(read: Read, { workspace_path, since, tiers, reader }: QualityQuery): Promise<Quality> {
  const seenShape = whereLearnedSeen(reader, { shape: 'pattern_fingerprints.id' });
  const seenOutcome = whereLearnedSeen(reader, { shape: 'o.fingerprint_id', outcome: 'o' });
  const sql = selectShapes(seenShape.sql, seenOutcome.sql);
  const learned = { shapes: 0, turns: 0, scored_turns: 0, comparisons_total: 0 };
  const tierOf = (model: string) => tiers.get(model);
  let saved = ZERO_PUSD;
  let best: readonly Compared[] = [];
  for (let after = ''; ; await setImmediate()) {
    const rows = await read<Row>(sql, since, workspace_path, after, ...seenShape.values, ...seenOutcome.values);
    if (rows.length === 0) break;
    const shapes = new Map<string, Row[]>();
    for (const row of rows) {
      const key = `${row.fingerprint_id} ${row.is_worker}`;
      shapes.set(key, [...(shapes.get(key) ?? []), row]);
    }
    learned.shapes += new Set(rows.map((row) => row.fingerprint_id)).size;
    for (const { sample_size, scored_turns } of rows) {
      learned.turns += Number(sample_size);
      learned.scored_turns += Number(scored_turns);
    }
    const onSeveral = [...shapes.values()].filter((outcomes) => outcomes.length > 1);
    const found = compareModels(onSeveral.map(toModelOutcomes), tierOf);
    learned.comparisons_total += found.length;
    const good = found.filter(({ verdict }) => verdict === 'as_good');
    saved = sumPusd([saved, ...good.map(({ saving_per_day }) => saving_per_day)]);
    best = takeBest([...best, ...found], MAX_COMPARISONS);
    after = rows.at(-1)!.fingerprint_id;
  }
  const comparisons = best.map((compared) => viewComparison(compared, tierOf));
  return { ...learned, saving_per_day_usd: fromPusd(saved), comparisons };
}

function toModelOutcomes(rows: readonly Row[]): ShapeOnModels {
  return {
    ...toShape(rows[0]!),
    is_worker: rows[0]!.is_worker === 1n,
    outcomes: rows.map((row) => ({
      model: row.model,
      sample_size: Number(row.sample_size),
      sum_cost_pusd: BigInt(row.sum_cost_text) as Pusd,
      cost_count: Number(row.cost_count),
      score_mean: row.score_mean,
      scored_turns: Number(row.scored_turns),
      recent_turns: Number(row.recent_turns),
    })),
  };
}

function toShape({ fingerprint_id, structural_json }: Row): Omit<ShapeOnModels, 'outcomes' | 'is_worker'> {
  const { intent_tags, file_extensions, tool_names, estimated_input_tokens_bucket, has_images } = JSON.parse(
    structural_json,
  ) as Fingerprint;
  return { fingerprint_id, intent_tags, file_extensions, tool_names, estimated_input_tokens_bucket, has_images };
}

// `/analytics/routing`: reads the stored routing decisions of a window (07 §7.1).

/** Each of these is a chain of seven entries to parse, so a slice is short. */
const ROUTES_AT_ONCE = 2000;

type RouteRow = Pick<EventRow, 'session_id' | 'turn_id' | 'payload_json'>;

export async function routing(read: Read, { window, filter }: TraceQuery): Promise<RoutingStats> {
  const slice = `SELECT s.session_id, e.turn_id, e.payload_json FROM event_rows e
      JOIN event_sessions s ON s.session_key = e.session_key
    WHERE e.${typeIs('route.decided')} AND e.timestamp_ms >= ? AND e.timestamp_ms < ?
      AND s.session_id = coalesce(?, s.session_id)`;
  const counter = createRouteCounter(filter);
  for await (const { from, to } of eventSlices(read, 'route.decided', window, ROUTES_AT_ONCE)) {
    for (const row of await read<RouteRow>(slice, from, to, filter.session)) {
      const stored = JSON.parse(row.payload_json) as Partial<PayloadOf<'route.decided'>>;
      counter.add(unpackPayload('route.decided', stored, row) as PayloadOf<'route.decided'>);
    }
  }
  return counter.result();
}
