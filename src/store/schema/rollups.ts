// The rollups of the ledger: their keys, their measures, and what a call adds to each (07 §9.3).
import { DAY_MS, HOUR_MS, PROMPT_CLASSES } from '#core/policy/analytics/rollup.ts';
import { sumIntegers } from './words.ts';

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

/** What the days add up beside, so that savings can be read from them. */
const DAY_MEASURES = [...MEASURES, 'billed_1h_tokens'] as const;
/** What trees can be put in order by. */
const PARENT_MEASURES = [
  'calls',
  'input_tokens',
  'cached_input_tokens',
  'cache_creation_input_tokens',
  'output_tokens',
  'cost_pusd',
] as const;

interface Rollup {
  readonly table: string;
  /** Column and length of the stretch of time that a row sums up; null for all time. */
  readonly bucket: { readonly name: string; readonly ms: number } | null;
  readonly key: readonly string[];
  /** The value from the first fact of a row. */
  readonly attributes: readonly string[];
  readonly measures: readonly (keyof typeof CALL_MEASURES)[];
}

export const ROLLUPS: readonly Rollup[] = [
  {
    table: 'rollup_session_hour',
    bucket: { name: 'hour', ms: HOUR_MS },
    key: ['session_key', 'model'],
    attributes: ['provider'],
    measures: MEASURES,
  },
  {
    table: 'rollup_parent_day',
    bucket: { name: 'day', ms: DAY_MS },
    key: ['parent_key', 'is_worker', 'delegation_tier', 'worker_name', 'model'],
    attributes: ['root_session_id', 'workspace_hash', 'provider'],
    measures: MEASURES,
  },
  {
    table: 'rollup_day',
    bucket: { name: 'day', ms: DAY_MS },
    key: [
      'is_worker',
      'delegation_tier',
      'worker_name',
      'workspace_hash',
      'model',
      'delegated_by_model',
      'prompt_class',
    ],
    attributes: ['provider'],
    measures: DAY_MEASURES,
  },
  { table: 'rollup_parent', bucket: null, key: ['parent_key'], attributes: [], measures: PARENT_MEASURES },
];

/** What a row of the ledger adds to each measure of the rollups. */
export const CALL_MEASURES = {
  calls: '1',
  unpriced_calls: '1 - priced',
  latency_sum: 'CASE WHEN cancelled = 1 THEN 0 ELSE coalesce(latency_ms, 0) END',
  latency_n: 'CASE WHEN cancelled = 1 OR latency_ms IS NULL THEN 0 ELSE 1 END',
  input_tokens: 'input_tokens',
  cached_input_tokens: 'cached_input_tokens',
  cache_creation_input_tokens: 'cache_creation_input_tokens',
  cache_creation_1h_input_tokens: 'cache_creation_1h_input_tokens',
  output_tokens: 'output_tokens',
  reasoning_tokens: 'reasoning_tokens',
  cost_pusd: 'cost_pusd',
  billed_1h_tokens: `CASE WHEN cache_creation_1h_input_tokens < cache_creation_input_tokens
    THEN cache_creation_1h_input_tokens ELSE cache_creation_input_tokens END`,
} as const;

const PROMPT = '(input_tokens + cached_input_tokens + cache_creation_input_tokens)';
/** How many of `PROMPT_CLASSES` the prompt of a call in the ledger is above. */
const PROMPT_CLASS = PROMPT_CLASSES.map((size) => `CASE WHEN ${PROMPT} > ${size} THEN 1 ELSE 0 END`).join(' + ');

/** Columns that name a row of a rollup. */
export function rollupKey({ bucket, key }: Rollup): readonly string[] {
  return bucket ? [bucket.name, ...key] : key;
}

/** Columns of a rollup in the order of `rollupFromCalls`. */
export function rollupColumns(rollup: Rollup): readonly string[] {
  return [...rollupKey(rollup), ...rollup.attributes, ...rollup.measures];
}

/** The rollup as the ledger gives it. */
export function rollupFromCalls({ bucket, key, attributes, measures }: Rollup): string {
  const columns = [
    ...(bucket ? [`ts_ms / ${bucket.ms} AS ${bucket.name}`] : []),
    ...key.map((column) => (column === 'prompt_class' ? `${PROMPT_CLASS} AS prompt_class` : column)),
    // The key determines them: they are fixed at the creation of the session.
    ...attributes.map((column) => `MIN(${column}) AS ${column}`),
    ...measures.map((measure) => `${sumIntegers(CALL_MEASURES[measure])} AS ${measure}`),
  ];
  const groups = [...(bucket ? [bucket.name] : []), ...key];
  return `SELECT ${columns.join(', ')} FROM llm_calls GROUP BY ${groups.join(', ')}`;
}
