// What the ledger has of each day and model, to be set beside a provider's bill: rounds count for their own model (22 §6).
import { DAY_MS } from '#core/policy/analytics/rollup.ts';
import type { LedgerDay, LedgerQuery } from '#protocol/analytics.ts';
import { getProvider } from '#protocol/model.ts';
import { fromPusd } from '#protocol/money.ts';
import { compareText } from '#protocol/text/compare-text.ts';
import { SIMULATED_PROVIDER } from '#protocol/text/simulated.ts';
import { CALL_MEASURES, IS_BILLED_APART } from '../schema/rollups.ts';
import { sumIntegers } from '../schema/words.ts';
import { ledgerSlices, type Read } from './slices.ts';

const TOKENS = ['input_tokens', 'cached_input_tokens', 'cache_creation_input_tokens', 'output_tokens'] as const;
const SUMS = [
  'calls',
  ...TOKENS,
  'billed_1h_tokens',
  'tokens_pusd',
  'fees_pusd',
  'unpriced_calls',
  'usage_estimated_calls',
  'fees_unpriced_calls',
  'surcharge_unknown_calls',
  'rounds_unknown_calls',
] as const;
type Sums = Record<(typeof SUMS)[number], bigint>;

const IN_SLICE = 'c.ts_ms >= ? AND c.ts_ms < ? AND c.seq <= ?';
/** Tokens of a call with rounds are counted with these. */
const WITHOUT_ROUNDS = [...TOKENS, 'billed_1h_tokens', 'tokens_pusd', 'unpriced_calls']
  .map((name) => `CASE WHEN has_rounds THEN 0 ELSE ${name} END AS ${name}`)
  .join(', ');
const CALLS = `SELECT ts_ms, model, 1 AS calls, ${WITHOUT_ROUNDS}, fees_pusd, usage_estimated_calls,
    fees_unpriced_calls, surcharge_unknown_calls, rounds_unknown_calls
  FROM (SELECT c.ts_ms, c.model, ${TOKENS.map((name) => `c.${name}`).join(', ')},
      ${CALL_MEASURES.billed_1h_tokens} AS billed_1h_tokens,
      c.cost_pusd - coalesce(c.fees_pusd, 0) AS tokens_pusd, coalesce(c.fees_pusd, 0) AS fees_pusd,
      1 - c.priced AS unpriced_calls, c.usage_estimated AS usage_estimated_calls,
      coalesce(c.fees_unpriced, 0) AS fees_unpriced_calls, coalesce(c.surcharge_unknown, 0) AS surcharge_unknown_calls,
      coalesce(c.rounds_unknown, 0) AS rounds_unknown_calls,
      (${IS_BILLED_APART} AND EXISTS (SELECT 1 FROM llm_call_rounds r WHERE r.event_id = c.event_id)) AS has_rounds
    FROM ledger_calls c WHERE ${IN_SLICE}) AS called`;
const ROUNDS = `SELECT c.ts_ms, r.model, 0 AS calls, ${TOKENS.map((name) => `r.${name}`).join(', ')},
    CASE WHEN r.cache_creation_1h_input_tokens < r.cache_creation_input_tokens
      THEN r.cache_creation_1h_input_tokens ELSE r.cache_creation_input_tokens END AS billed_1h_tokens,
    r.cost_pusd AS tokens_pusd, 1 - r.priced AS unpriced_calls, 0 AS fees_pusd, 0 AS usage_estimated_calls,
    0 AS fees_unpriced_calls, 0 AS surcharge_unknown_calls, 0 AS rounds_unknown_calls
  FROM ledger_calls c JOIN llm_call_rounds r ON r.event_id = c.event_id
  WHERE c.${IS_BILLED_APART} AND r.billed = 1 AND ${IN_SLICE}`;
const DAYS = `SELECT ts_ms / ${DAY_MS} AS day, model, ${SUMS.map((name) => `coalesce(${sumIntegers(name)}, 0) AS ${name}`).join(', ')}
  FROM (${CALLS} UNION ALL ${ROUNDS}) AS parts GROUP BY 1, 2`;

/** One row a day and model, ascending; simulated calls are in none. */
export async function listLedgerDays(read: Read, { window, provider }: LedgerQuery): Promise<readonly LedgerDay[]> {
  const days = new Map<string, { readonly day: bigint; readonly model: string; readonly sums: Sums }>();
  for await (const { from, to, through } of ledgerSlices(read, window)) {
    const slice = [from, to, through];
    for (const row of await read<Sums & { readonly day: bigint; readonly model: string }>(DAYS, ...slice, ...slice)) {
      const { day, model } = row;
      const own = getProvider(model);
      if (own === SIMULATED_PROVIDER || (provider !== null && own !== provider)) continue;
      const known = days.get(`${day} ${model}`);
      if (known === undefined) days.set(`${day} ${model}`, { day, model, sums: row });
      else for (const name of SUMS) known.sums[name] += row[name];
    }
  }
  return [...days.values()]
    .sort((a, b) => Number(a.day - b.day) || compareText(a.model, b.model))
    .map(({ day, model, sums }) => formatDay(day, model, sums));
}

function formatDay(day: bigint, model: string, sums: Sums): LedgerDay {
  return {
    day: new Date(Number(day) * DAY_MS).toISOString().slice(0, 10),
    provider: getProvider(model),
    model,
    call_count: Number(sums.calls),
    input_tokens: Number(sums.input_tokens),
    cached_input_tokens: Number(sums.cached_input_tokens),
    cache_creation_input_tokens: Number(sums.cache_creation_input_tokens),
    cache_creation_1h_input_tokens: Number(sums.billed_1h_tokens),
    output_tokens: Number(sums.output_tokens),
    tokens_usd: fromPusd(sums.tokens_pusd),
    fees_usd: fromPusd(sums.fees_pusd),
    unpriced_call_count: Number(sums.unpriced_calls),
    usage_estimated_call_count: Number(sums.usage_estimated_calls),
    fees_unpriced_call_count: Number(sums.fees_unpriced_calls),
    surcharge_unknown_call_count: Number(sums.surcharge_unknown_calls),
    rounds_unknown_call_count: Number(sums.rounds_unknown_calls),
  };
}
