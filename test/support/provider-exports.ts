// What providers export of calls, made from the calls themselves, in each form that `metis reconcile` reads (22 §6).
import type { LedgerDay } from '#protocol/analytics.ts';
import { fromPusd } from '#protocol/money.ts';
import { NO_TOKENS, type TokenUsage } from '#protocol/usage.ts';
import { tableOf } from './prices.ts';

export const HAIKU = 'anthropic:claude-haiku-4-5';
export const SONNET = 'anthropic:claude-sonnet-4-6';
export const GPT = 'openai:gpt-5';
export const ROUTED = 'openrouter:openai/gpt-5';
export const NOON = Date.parse('2026-05-20T12:00:00Z');
export const DAY_MS = 86_400_000;
export const prices = tableOf(
  JSON.stringify({
    pricing_version: 'R',
    models: Object.fromEntries(
      [HAIKU, SONNET, GPT, ROUTED].map((id, i) => [
        id,
        {
          input_per_mtok_usd: `${i + 1}.000001`,
          output_per_mtok_usd: `${i + 5}.37`,
          cached_read_per_mtok_usd: '0.013',
          cache_write_1h_per_mtok_usd: '9',
        },
      ]),
    ),
  }),
);

export interface Call {
  readonly day: number;
  readonly model: string;
  readonly tokens: Partial<TokenUsage>;
}

/** Two calls a day of each model, with every class of tokens that its provider reports. */
export const CALLS: readonly Call[] = [0, 1, 2, 3].flatMap((day) =>
  [HAIKU, SONNET, GPT, ROUTED].flatMap((model, i) =>
    [1, 2].map((n) => ({
      day,
      model,
      tokens: {
        input_tokens: 10_000 * n + 7 * day + i,
        cached_input_tokens: 3000 + n,
        output_tokens: 900 + 11 * day,
        ...(model.startsWith('anthropic') && {
          cache_creation_input_tokens: 500 + day,
          cache_creation_1h_input_tokens: 100,
        }),
      },
    })),
  ),
);

export const dayName = (day: number) => new Date(NOON + day * DAY_MS).toISOString().slice(0, 10);
const nameOf = (model: string) => model.slice(model.indexOf(':') + 1);

export interface Sum extends TokenUsage {
  readonly day: number;
  readonly model: string;
  readonly calls: number;
  readonly cost: bigint;
}

/** What its provider would say of each day and model. */
export function sums(provider: string, calls = CALLS): Sum[] {
  const found = new Map<string, Sum>();
  for (const { day, model, tokens } of calls) {
    if (!model.startsWith(`${provider}:`)) continue;
    const usage = { ...NO_TOKENS, ...tokens };
    const known = found.get(`${day} ${model}`);
    found.set(`${day} ${model}`, {
      ...usage,
      day,
      model,
      calls: 1 + (known?.calls ?? 0),
      cost: prices.cost(model, usage).cost_pusd + (known?.cost ?? 0n),
      input_tokens: usage.input_tokens + (known?.input_tokens ?? 0),
      cached_input_tokens: usage.cached_input_tokens + (known?.cached_input_tokens ?? 0),
      cache_creation_input_tokens: usage.cache_creation_input_tokens + (known?.cache_creation_input_tokens ?? 0),
      cache_creation_1h_input_tokens:
        usage.cache_creation_1h_input_tokens + (known?.cache_creation_1h_input_tokens ?? 0),
      output_tokens: usage.output_tokens + (known?.output_tokens ?? 0),
    });
  }
  return [...found.values()];
}

/** One bucket a day with the results of `build`, also for days without any. */
function buckets(provider: string, rows: readonly Sum[], build: (sum: Sum) => object): object[] {
  return [0, 1, 2, 3].map((day) => {
    const results = rows.filter((sum) => sum.day === day).map(build);
    if (provider === 'anthropic')
      return { starting_at: `${dayName(day)}T00:00:00Z`, ending_at: `${dayName(day + 1)}T00:00:00Z`, results };
    const start_time = Date.parse(dayName(day)) / 1000;
    return { object: 'bucket', start_time, end_time: start_time + DAY_MS / 1000, results };
  });
}

export const page = (data: object[], has_more = false) => JSON.stringify({ data, has_more, next_page: null }, null, 1);
const csv = (header: string, lines: readonly (readonly unknown[])[]) =>
  [header, ...lines.map((line) => line.join(','))].join('\r\n');

export const EXPORTS = {
  anthropicUsage: (rows = sums('anthropic')) =>
    page(
      buckets('anthropic', rows, (sum) => ({
        uncached_input_tokens: sum.input_tokens,
        cache_creation: {
          ephemeral_1h_input_tokens: sum.cache_creation_1h_input_tokens,
          ephemeral_5m_input_tokens: sum.cache_creation_input_tokens - sum.cache_creation_1h_input_tokens,
        },
        cache_read_input_tokens: sum.cached_input_tokens,
        output_tokens: sum.output_tokens,
        server_tool_use: { web_search_requests: 0 },
        api_key_id: null,
        model: `${nameOf(sum.model)}-20250929`,
        service_tier: 'standard',
      })),
    ),
  // Cents, as decimal strings, in two parts.
  anthropicCost: (rows = sums('anthropic')) =>
    page(
      buckets('anthropic', rows, (sum) => ({
        currency: 'USD',
        amount: fromPusd((sum.cost - 1n) * 100n),
        description: 'Usage - Input Tokens',
        cost_type: 'tokens',
        model: nameOf(sum.model),
        token_type: 'uncached_input_tokens',
      })).map((bucket) => {
        const { results } = bucket as { results: { amount: string }[] };
        const rest = results.map((row) => ({ ...row, amount: '0.0000000001', token_type: 'output_tokens' }));
        return { ...bucket, results: [...results, ...rest] };
      }),
    ),
  anthropicUsageCsv: (rows = sums('anthropic')) =>
    csv(
      'usage_date_utc,model_version,api_key,workspace,usage_type,context_window,usage_input_tokens_no_cache,usage_input_tokens_cache_write_5m,usage_input_tokens_cache_write_1h,usage_input_tokens_cache_read,usage_output_tokens,web_search_count,inference_geo,speed',
      rows.map((sum) => [
        dayName(sum.day),
        `${nameOf(sum.model)}-20250929`,
        '"a key, with a comma"',
        '"Default ""A"""',
        'standard',
        '≤ 200k',
        sum.input_tokens,
        sum.cache_creation_input_tokens - sum.cache_creation_1h_input_tokens,
        sum.cache_creation_1h_input_tokens,
        sum.cached_input_tokens,
        sum.output_tokens,
        0,
        'global',
        '',
      ]),
    ),
  // The Console shows names, and dollars rounded to cents.
  anthropicCostCsv: (rows = sums('anthropic')) =>
    csv(
      'usage_date_utc,model,workspace,api_key,usage_type,context_window,token_type,cost_usd,list_price_usd,cost_type',
      rows.map((sum) => [
        dayName(sum.day),
        sum.model === HAIKU ? 'Claude Haiku 4.5' : 'Claude Sonnet 4.6',
        'Default',
        'key',
        'message',
        '≤ 200k',
        'input_no_cache',
        (Number(sum.cost) / 1e12).toFixed(2),
        '0.00',
        'token',
      ]),
    ),
  openaiUsage: (rows = sums('openai')) =>
    page(
      buckets('openai', rows, (sum) => ({
        object: 'organization.usage.completions.result',
        input_tokens: sum.input_tokens + sum.cached_input_tokens,
        output_tokens: sum.output_tokens,
        input_cached_tokens: sum.cached_input_tokens,
        num_model_requests: sum.calls,
        model: `${nameOf(sum.model)}-2025-08-07`,
      })),
    ),
  // Amounts are numbers, of which every digit counts.
  openaiCost: (rows = sums('openai')) =>
    page(
      buckets('openai', rows, (sum) => ({
        object: 'organization.costs.result',
        amount: { value: `#${fromPusd(sum.cost)}#`, currency: 'usd' },
        line_item: `${nameOf(sum.model)}-2025-08-07, cached input`,
      })),
    ).replaceAll(/"#(.*?)#"/g, '$1'),
  openaiUsageCsv: (rows = sums('openai')) =>
    csv(
      'start_time,end_time,start_time_iso,num_model_requests,model,batch,input_tokens,output_tokens,input_cached_tokens',
      [0, 1, 2, 3].flatMap((day) => {
        const start = Date.parse(dayName(day)) / 1000;
        const times = [start, start + DAY_MS / 1000, `${dayName(day)}T00:00:00+00:00`];
        const found = rows.filter((sum) => sum.day === day);
        if (found.length === 0) return [[...times, '', '', '', '', '', '']];
        return found.map((sum) => [
          ...times,
          sum.calls,
          nameOf(sum.model),
          'False',
          sum.input_tokens + sum.cached_input_tokens,
          sum.output_tokens,
          sum.cached_input_tokens,
        ]);
      }),
    ),
  openaiCostCsv: (rows = sums('openai')) =>
    csv(
      'start_time,end_time,amount_value,amount_currency,line_item,project_id',
      rows.map((sum) => {
        const start = Date.parse(dayName(sum.day)) / 1000;
        return [start, start + 86_400, `${fromPusd(sum.cost)}0000000000`, 'usd', '', ''];
      }),
    ),
  openrouter: (rows = sums('openrouter')) =>
    JSON.stringify({
      data: rows.map((sum) => ({
        date: dayName(sum.day),
        model: nameOf(sum.model),
        model_permaslug: `${nameOf(sum.model)}-2025-08-07`,
        provider_name: 'OpenAI',
        usage: Number(fromPusd(sum.cost)),
        byok_usage_inference: 0,
        requests: sum.calls,
        prompt_tokens: sum.input_tokens + sum.cached_input_tokens,
        completion_tokens: sum.output_tokens,
        reasoning_tokens: 0,
      })),
    }),
  openrouterCalls: (rows = sums('openrouter')) =>
    csv(
      'generation_id,created_at,cost_total,cost_cache,byok_usage_inference,tokens_prompt,tokens_completion,model_permaslug,app_name',
      rows.map((sum, i) => [
        `gen-${i}`,
        `${dayName(sum.day)} 23:59:59.999`,
        fromPusd(sum.cost),
        '-0.001',
        '',
        sum.input_tokens + sum.cached_input_tokens,
        sum.output_tokens,
        nameOf(sum.model),
        '"my\napp"',
      ]),
    ),
} as const satisfies Record<string, (rows?: Sum[]) => string>;

/** What a ledger that has all of these calls reports. */
export function ledgerDays(over: (sum: Sum) => Partial<LedgerDay> = () => ({})): LedgerDay[] {
  return ['anthropic', 'openai', 'openrouter'].flatMap((provider) =>
    sums(provider).map((sum) => ({
      day: dayName(sum.day),
      provider,
      model: sum.model,
      call_count: sum.calls,
      input_tokens: sum.input_tokens,
      cached_input_tokens: sum.cached_input_tokens,
      cache_creation_input_tokens: sum.cache_creation_input_tokens,
      cache_creation_1h_input_tokens: sum.cache_creation_1h_input_tokens,
      output_tokens: sum.output_tokens,
      tokens_usd: fromPusd(sum.cost),
      fees_usd: '0',
      unpriced_call_count: 0,
      usage_estimated_call_count: 0,
      fees_unpriced_call_count: 0,
      surcharge_unknown_call_count: 0,
      rounds_unknown_call_count: 0,
      ...over(sum),
    })),
  );
}
