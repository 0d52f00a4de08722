// The rollups of the ledger: their keys, their measures, and what a call adds to each (07 §9.3).
import { BILLED_APART, DAY_MS, HOUR_MS, PROMPT_CLASSES } from '#core/policy/analytics/rollup.ts';
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

/** What is billed beside the tokens, of the few calls that have it. */
export const BILL_MEASURES = [
  'fees_pusd',
  'surcharge_pusd',
  'fees_unpriced_calls',
  'surcharge_unknown_calls',
  'rounds_unknown_calls',
] as const;
/** Calls in the ledger with rounds, fees, a surcharge, or a part of their cost that is not known. */
export const IS_BILLED_APART = 'bill_json IS NOT NULL';

/** Extra measure of the daily rollup, which savings reports need. */
const DAY_MEASURES = [...MEASURES, 'billed_1h_tokens'] as const;
/** The measures by which trees can be ordered. */
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
  /** Column and length of the period of a row; null for all time. */
  readonly bucket: { readonly name: string; readonly ms: number } | null;
  readonly key: readonly string[];
  /** Columns whose value is that of the row's first fact. */
  readonly attributes: readonly string[];
  readonly measures: readonly (keyof typeof CALL_MEASURES)[];
  /** Only calls that are billed for more than one sampling at the standard rates. */
  readonly apart?: true;
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
  {
    table: 'rollup_bill_hour',
    bucket: { name: 'hour', ms: HOUR_MS },
    key: ['session_key', 'model'],
    attributes: ['provider'],
    measures: BILL_MEASURES,
    apart: true,
  },
  { table: 'rollup_parent', bucket: null, key: ['parent_key'], attributes: [], measures: PARENT_MEASURES },
];

/** The value that a ledger row adds to each measure of the rollups. */
export const CALL_MEASURES = {
  calls: '1',
  unpriced_calls: 'CASE WHEN priced = 1 AND fees_unpriced + surcharge_unknown + rounds_unknown = 0 THEN 0 ELSE 1 END',
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
  fees_pusd: 'fees_pusd',
  surcharge_pusd: 'surcharge_pusd',
  fees_unpriced_calls: 'fees_unpriced',
  surcharge_unknown_calls: 'surcharge_unknown',
  rounds_unknown_calls: 'rounds_unknown',
} as const;

const PROMPT = '(input_tokens + cached_input_tokens + cache_creation_input_tokens)';
/** How many of `PROMPT_CLASSES` the prompt of a call in the ledger is above. */
const PROMPT_CLASS = `CASE WHEN ${IS_BILLED_APART} THEN ${BILLED_APART} ELSE ${PROMPT_CLASSES.map(
  (size) => `CASE WHEN ${PROMPT} > ${size} THEN 1 ELSE 0 END`,
).join(' + ')} END`;

/** Columns that name a row of a rollup. */
export function rollupKey({ bucket, key }: Rollup): readonly string[] {
  if (bucket) return [bucket.name, ...key];
  return key;
}

/** Columns of a rollup in the order of `rollupFromCalls`. */
export function rollupColumns(rollup: Rollup): readonly string[] {
  return [...rollupKey(rollup), ...rollup.attributes, ...rollup.measures];
}

/** The query that computes the rollup from the ledger. */
export function rollupFromCalls({ bucket, key, attributes, measures, apart }: Rollup): string {
  const columns = [
    ...(bucket ? [`ts_ms / ${bucket.ms} AS ${bucket.name}`] : []),
    ...key.map((column) => (column === 'prompt_class' ? `${PROMPT_CLASS} AS prompt_class` : column)),
    // The key determines them: they are fixed at the creation of the session.
    ...attributes.map((column) => `MIN(${column}) AS ${column}`),
    ...measures.map((measure) => `${sumIntegers(CALL_MEASURES[measure])} AS ${measure}`),
  ];
  const groups = [...(bucket ? [bucket.name] : []), ...key];
  let where = '';
  if (apart === true) where = ` WHERE ${IS_BILLED_APART}`;
  return `SELECT ${columns.join(', ')} FROM llm_calls${where} GROUP BY ${groups.join(', ')}`;
}
