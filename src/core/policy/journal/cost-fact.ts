// The ledger row of one finished call, and its contribution to the rollups (07 §9.3).
import type { LlmCallCompleted } from '#protocol/event/turn-events.ts';
import { toPusd } from '#protocol/money.ts';
import { BILLED_APART, DAY_MS, HOUR_MS, promptClass } from '../analytics/rollup.ts';
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

/** Charges other than the tokens of one sampling; all null where there are none. */
export function billColumns(payload: LlmCallCompleted) {
  const { cost_breakdown, fees, rounds, bound, service_tier, speed, inference_geo } = payload;
  const flags = [payload.fees_unpriced, payload.surcharge_unknown, payload.rounds_unknown].map(Number);
  const apart = service_tier ?? speed ?? inference_geo ?? bound;
  if (apart === null && fees.length + rounds.length === 0 && !flags.includes(1)) return NOTHING_APART;
  return {
    fees_pusd: toPusd(cost_breakdown.fees),
    surcharge_pusd: toPusd(cost_breakdown.surcharge),
    fees_unpriced: flags[0]!,
    surcharge_unknown: flags[1]!,
    rounds_unknown: flags[2]!,
    bill_json: JSON.stringify({
      ...(service_tier !== null && { service_tier }),
      ...(speed !== null && { speed }),
      ...(inference_geo !== null && { inference_geo }),
      ...(fees.length > 0 && { fees }),
      ...(rounds.length > 0 && { rounds: rounds.length }),
      ...(bound !== null && { bound }),
    }),
  };
}
const NOTHING_APART = {
  fees_pusd: null,
  surcharge_pusd: null,
  fees_unpriced: null,
  surcharge_unknown: null,
  rounds_unknown: null,
  bill_json: null,
};

/** The rounds of a call as their table holds them. */
export function roundRows({ id, payload }: CallRecorded) {
  return payload.rounds.map(({ cost_usd, priced, billed, ...round }, seq) => ({
    event_id: id,
    seq,
    ...round,
    cost_pusd: toPusd(cost_usd),
    priced: Number(priced),
    billed: Number(billed),
  }));
}

/** One row for the ledger and its rollups, each of which takes its own columns. Booleans are 0 or 1, money is picodollars. */
export function costFact({ id, at, session_id, turn_id, payload }: CallRecorded, stamp: SessionStamp) {
  const priced = Number(payload.priced);
  const bill = billColumns(payload);
  const { fees_unpriced, surcharge_unknown, rounds_unknown } = bill;
  const isComplete = payload.priced && !fees_unpriced && !surcharge_unknown && !rounds_unknown;
  const isCancelled = payload.stop_reason === 'cancelled';
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
    is_worker: Number(stamp.is_worker),
    workspace_hash: stamp.workspace_hash,
    worker_name: stamp.worker_name,
    delegation_tier: stamp.delegation_tier,
    delegated_by_model: stamp.delegated_by_model,
    door: stamp.door,
    caller: stamp.caller,
    owner: stamp.owner,
    share: stamp.share,
    model: payload.model,
    provider: payload.provider,
    effort: payload.effort ?? '',
    pricing_version: payload.pricing_version,
    purpose: payload.purpose,
    input_tokens: payload.input_tokens,
    cached_input_tokens: payload.cached_input_tokens,
    cache_creation_input_tokens: payload.cache_creation_input_tokens,
    cache_creation_1h_input_tokens: payload.cache_creation_1h_input_tokens,
    output_tokens: payload.output_tokens,
    billed_1h_tokens: Math.min(payload.cache_creation_1h_input_tokens, payload.cache_creation_input_tokens),
    prompt_class: findPromptClass(payload, bill.bill_json !== null),
    reasoning_tokens: payload.reasoning_tokens,
    usage_estimated: Number(payload.usage_estimated),
    priced,
    cancelled: Number(isCancelled),
    calls: 1,
    unpriced_calls: Number(!isComplete),
    latency_ms: payload.latency_ms,
    // The latency of a call that was cut off is not counted.
    latency_sum: isCancelled ? 0 : payload.latency_ms,
    latency_n: Number(!isCancelled),
    cost_pusd: toPusd(payload.cost_usd),
    ...bill,
    fees_unpriced_calls: fees_unpriced,
    surcharge_unknown_calls: surcharge_unknown,
    rounds_unknown_calls: rounds_unknown,
  };
}

function findPromptClass(payload: LlmCallCompleted, isApart: boolean): number {
  if (isApart) return BILLED_APART;
  return promptClass(payload.input_tokens + payload.cached_input_tokens + payload.cache_creation_input_tokens);
}
