// The token classes of a ledger row, as a price table takes them.
import type { TokenUsage } from '../../domain/usage.ts';

/** Columns of `llm_calls` that a cost depends on, read with `safeIntegers`. */
export interface LedgerUsage {
  readonly model: string;
  readonly input_tokens: bigint;
  readonly cached_input_tokens: bigint;
  readonly cache_creation_input_tokens: bigint;
  readonly cache_creation_1h_input_tokens: bigint;
  readonly output_tokens: bigint;
  readonly reasoning_tokens: bigint;
  readonly cost_pusd: bigint;
}

/** Counts are safe integers by the schema of the event they came from. */
export function tokenUsage(row: LedgerUsage): TokenUsage {
  return {
    input_tokens: Number(row.input_tokens),
    cached_input_tokens: Number(row.cached_input_tokens),
    cache_creation_input_tokens: Number(row.cache_creation_input_tokens),
    cache_creation_1h_input_tokens: Number(row.cache_creation_1h_input_tokens),
    output_tokens: Number(row.output_tokens),
    reasoning_tokens: Number(row.reasoning_tokens),
    usage_estimated: false,
  };
}
