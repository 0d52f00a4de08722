// What the ledger and its rollups take of one finished call (07 §9.3).
import type { LlmCallCompleted } from '#protocol/event/turn-events.ts';
import { toPusd } from '#protocol/money.ts';
import { DAY_MS, HOUR_MS, promptClass } from '../analytics/rollup.ts';
import type { SessionStamp } from './prepare.ts';

/** The envelope of the projected event. */
export interface CallRecorded {
  readonly id: string;
  /** Unix milliseconds. */
  readonly at: number;
  readonly session_id: string;
  readonly turn_id: string | null;
  readonly payload: LlmCallCompleted;
}

/** One row for the fact and its rollups, each takes its own columns. Truth values are 0 or 1, money picodollars. */
export function costFact({ id, at, session_id, turn_id, payload }: CallRecorded, stamp: SessionStamp) {
  const priced = payload.priced ? 1 : 0;
  const cancelled = payload.stop_reason === 'cancelled' ? 1 : 0;
  return {
    event_id: id,
    ts_ms: at,
    hour: Math.floor(at / HOUR_MS),
    day: Math.floor(at / DAY_MS),
    session_id,
    turn_id,
    root_session_id: stamp.root_session_id,
    parent_session_id: stamp.parent_session_id,
    parent_key: stamp.parent_session_id ?? session_id,
    is_worker: stamp.is_worker ? 1 : 0,
    workspace_hash: stamp.workspace_hash,
    worker_name: stamp.worker_name,
    delegation_tier: stamp.delegation_tier,
    delegated_by_model: stamp.delegated_by_model,
    door: stamp.door,
    caller: stamp.caller,
    model: payload.model,
    provider: payload.provider,
    pricing_version: payload.pricing_version,
    purpose: payload.purpose,
    input_tokens: payload.input_tokens,
    cached_input_tokens: payload.cached_input_tokens,
    cache_creation_input_tokens: payload.cache_creation_input_tokens,
    cache_creation_1h_input_tokens: payload.cache_creation_1h_input_tokens,
    output_tokens: payload.output_tokens,
    billed_1h_tokens: Math.min(payload.cache_creation_1h_input_tokens, payload.cache_creation_input_tokens),
    prompt_class: promptClass(payload.input_tokens + payload.cached_input_tokens + payload.cache_creation_input_tokens),
    reasoning_tokens: payload.reasoning_tokens,
    usage_estimated: payload.usage_estimated ? 1 : 0,
    priced,
    cancelled,
    calls: 1,
    unpriced_calls: 1 - priced,
    latency_ms: payload.latency_ms,
    // The time of a call that was cut off is no measure of its model.
    latency_sum: cancelled === 1 ? 0 : payload.latency_ms,
    latency_n: 1 - cancelled,
    cost_pusd: toPusd(payload.cost_usd),
  };
}
