// `/analytics/reliability`: how the calls of each model ended and how long they took (07 §7.2).

import { averageLatency, ratio } from '#core/policy/analytics/cost-row.ts';
import { percentiles } from '#core/policy/analytics/latency.ts';
import type { ModelReliability, TraceQuery } from '#protocol/analytics.ts';
import type { ErrorClass } from '#protocol/scalars.ts';
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
