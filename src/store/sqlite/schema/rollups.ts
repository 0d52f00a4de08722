// The two rollups of the ledger: their keys, their measures, and what a call adds to each (07 §9.3).
import { DAY_MS, HOUR_MS } from '../../../policy/analytics/rollup.ts';

/** Summed per rollup row; the ledger has columns of the same names. */
export const TOKEN_COUNTS = [
  'input_tokens',
  'cached_input_tokens',
  'cache_creation_input_tokens',
  'cache_creation_1h_input_tokens',
  'output_tokens',
  'reasoning_tokens',
] as const;
export const MEASURES = ['calls', 'unpriced_calls', 'latency_sum', 'latency_n', ...TOKEN_COUNTS, 'cost_pusd'] as const;

/** The two rollups: key columns first, then what the first fact of a row says. */
export const ROLLUPS = [
  {
    table: 'rollup_session_hour',
    bucket: 'hour',
    bucket_ms: HOUR_MS,
    key: ['session_id', 'model'],
    attributes: [
      'parent_key',
      'root_session_id',
      'is_worker',
      'delegation_tier',
      'worker_name',
      'workspace_hash',
      'provider',
    ],
  },
  {
    table: 'rollup_parent_day',
    bucket: 'day',
    bucket_ms: DAY_MS,
    key: ['parent_key', 'is_worker', 'delegation_tier', 'worker_name', 'model'],
    attributes: ['root_session_id', 'workspace_hash', 'provider'],
  },
] as const;

/** What a row of the ledger adds to each measure of the rollups. */
export const CALL_MEASURES = {
  calls: '1',
  unpriced_calls: '1 - priced',
  latency_sum: 'iif(cancelled, 0, coalesce(latency_ms, 0))',
  latency_n: 'iif(cancelled OR latency_ms IS NULL, 0, 1)',
  input_tokens: 'input_tokens',
  cached_input_tokens: 'cached_input_tokens',
  cache_creation_input_tokens: 'cache_creation_input_tokens',
  cache_creation_1h_input_tokens: 'cache_creation_1h_input_tokens',
  output_tokens: 'output_tokens',
  reasoning_tokens: 'reasoning_tokens',
  cost_pusd: 'cost_pusd',
} as const satisfies Readonly<Record<(typeof MEASURES)[number], string>>;

type Rollup = (typeof ROLLUPS)[number];

/** Columns of a rollup in the order of `rollupFromCalls`. */
export function rollupColumns({ bucket, key, attributes }: Rollup): readonly string[] {
  return [bucket, ...key, ...attributes, ...MEASURES];
}

/** What the ledger says the rollup must hold. */
export function rollupFromCalls({ bucket, bucket_ms, key, attributes }: Rollup): string {
  const columns = [
    `ts_ms / ${bucket_ms} AS ${bucket}`,
    ...key,
    // The key determines them: they are fixed at the creation of the session.
    ...attributes.map((column) => `MIN(${column}) AS ${column}`),
    ...MEASURES.map((measure) => `SUM(${CALL_MEASURES[measure]}) AS ${measure}`),
  ];
  return `SELECT ${columns.join(', ')} FROM llm_calls GROUP BY ${[bucket, ...key].join(', ')}`;
}
