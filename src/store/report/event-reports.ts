// Reports from stored events: `/analytics/reliability`, `/analytics/quality`, `/analytics/routing` (07 §7).
import { setImmediate } from 'node:timers/promises';
import { averageLatency, ratio } from '#core/policy/analytics/cost-row.ts';
import { percentiles } from '#core/policy/analytics/latency.ts';
import { createRouteCounter } from '#core/policy/analytics/route-stats.ts';
import { wholePayload } from '#core/policy/journal/stored-payload.ts';
import { compareModels, takeBest } from '#core/policy/learning/compare-models.ts';
import type { QualityQuery } from '#core/ports/report-reader.ts';
import type { ModelReliability, RoutingStats, TraceQuery } from '#protocol/analytics.ts';
import type { PayloadOf } from '#protocol/event.ts';
import type { Fingerprint, ModelComparison, Quality, ShapeOnModels } from '#protocol/learned-pattern.ts';
import { fromPusd, type Pusd, sumPusd, toPusd } from '#protocol/money.ts';
import type { ErrorClass } from '#protocol/scalars.ts';
import type { EventRow } from '../schema/rows.ts';
import { typeIs } from '../schema/words.ts';
import { eventSlices, type Read } from './slices.ts';

/** Every row costs a look-up in the ledger or a parsed payload. */
const SLICE_ROWS = 5000;

/** A pruned call no longer counts, so the ledger is read through its events. */
const FINISHED = `SELECT c.model, c.provider, c.cancelled, CASE WHEN c.cancelled = 1 THEN NULL ELSE c.latency_ms END AS latency_ms,
    CASE WHEN c.cancelled = 1 THEN coalesce(json_extract(e.payload_json, '$.error_class'), 'cancelled') END AS error_class,
    COUNT(*) AS calls
  FROM event_rows e JOIN llm_calls c ON c.event_id = e.id
  WHERE e.${typeIs('llm.call_completed')} AND e.timestamp_ms >= ? AND e.timestamp_ms < ?
    AND c.session_id = coalesce(?, c.session_id)
    AND c.model = coalesce(?, c.model) AND c.provider = coalesce(?, c.provider)
  GROUP BY 1, 2, 3, 4, 5`;
const FAILED = `SELECT json_extract(payload_json, '$.model') AS model, json_extract(payload_json, '$.provider') AS provider,
    NULL AS latency_ms, json_extract(payload_json, '$.error_class') AS error_class, COUNT(*) AS calls
  FROM event_rows e JOIN event_sessions s ON s.session_key = e.session_key
  WHERE e.${typeIs('llm.call_failed')} AND timestamp_ms >= ? AND timestamp_ms < ?
    AND session_id = coalesce(?, session_id)
    AND json_extract(payload_json, '$.model') = coalesce(?, json_extract(payload_json, '$.model'))
    AND json_extract(payload_json, '$.provider') = coalesce(?, json_extract(payload_json, '$.provider'))
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
      .sort((a, b) => b.count - a.count || (a.error_class < b.error_class ? -1 : 1)),
    failure_rate: ratio(BigInt(failed), BigInt(calls)),
    p50: p50 ?? null,
    p95: p95 ?? null,
    avg_latency_ms: averageLatency(BigInt(sum), BigInt(sample)),
    sample_size: sample,
  };
}

function byModel(a: ModelCalls, b: ModelCalls): number {
  if (a.model !== b.model) return a.model < b.model ? -1 : 1;
  return a.provider < b.provider ? -1 : 1;
}

function total(numbers: Iterable<number>): number {
  let sum = 0;
  for (const n of numbers) sum += n;
  return sum;
}

// `/analytics/quality`: shapes of one workspace that ran on several models (07 §7.3).

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

/** Compared where the rows are, slice by slice: thousands of shapes block no other request. */
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
      counter.add(wholePayload('route.decided', stored, row) as PayloadOf<'route.decided'>);
    }
  }
  return counter.result();
}
