// The most that a call can cost, and the price table it is billed by (14 §2).
import { requestPrompt, type SentParts } from '#core/policy/context/request-prompt.ts';
import { ceilingPrice, isAnsweredByOther, priceCall, resolveServedModelId } from '#core/policy/pricing/price-table.ts';
import {
  computeTokenBound,
  type KnownPrompt,
  type NewText,
  type Prompt,
  selectNewText,
} from '#core/policy/pricing/prompt-tokens.ts';
import { overheadTokens, promptClass } from '#core/policy/registry/adapter-config.ts';
import type { SessionId } from '#protocol/ids.ts';
import type { ModelEntry } from '#protocol/model.ts';
import type { CanonicalRequest } from '#protocol/model-call.ts';
import { fromPusd, type Pusd } from '#protocol/money.ts';
import { promptTokens, type TokenUsage, type Usage } from '#protocol/usage.ts';
import type { ModelCatalog, Runtime } from '../state/engine.ts';
import { lookUpPrompt, type PromptTrace, rememberPrompt } from '../state/memory.ts';

// The most input tokens that a call is billed: known tokens of its prompt, and a bound of the new ones (14 §2).

export interface BoundPrompt {
  readonly tokens: number;
  readonly trace: PromptTrace;
}

/** Below this size a count saves less than it costs. */
const MIN_COUNTED_BYTES = 1024;
/** Overhead of each text and each part: roles, names, separators. */
const TEXT_FRAME_TOKENS = 4;
const PART_FRAME_TOKENS = 16;

/** Never rejects for a prompt that was parsed. */
export async function boundPrompt(
  engine: ModelCatalog,
  session: SessionId,
  model: ModelEntry,
  prompt: Prompt,
): Promise<BoundPrompt> {
  const { known, trace } = lookUpPrompt(engine.prompts, session, model.id, prompt);
  const adapter = engine.registry.adapters.get(model.adapter);
  const overhead = adapter === undefined ? 0 : overheadTokens(adapter);
  const computeBound = (text: NewText) => computeTokenBound(text, model.capabilities, overhead);
  const candidates = [null, ...known].map((given: KnownPrompt | null) => selectNewText(prompt, given));
  const best = candidates.reduce((least, text) => (computeBound(text) < computeBound(least) ? text : least));
  return { tokens: computeBound(await countTokens(engine, model, best)), trace };
}

/** The bound with the tokens of the prompt's texts in place of their bytes, where the model's tokenizer is known. */
async function countTokens(
  { tokenizer }: Pick<ModelCatalog, 'tokenizer'>,
  model: ModelEntry,
  text: NewText,
): Promise<NewText> {
  if (model.tokenizer === null || tokenizer === null || text.unbounded) return text;
  const parts = text.parts.filter((part) => part.texts !== null);
  const bytes = parts.reduce((sum, part) => sum + part.bytes, 0);
  if (bytes < MIN_COUNTED_BYTES) return text;
  const texts = parts.flatMap((part) => part.texts!());
  const tokens = await tokenizer.count(model.tokenizer, texts);
  if (tokens === null) return text;
  const framed = tokens + texts.length * TEXT_FRAME_TOKENS + parts.length * PART_FRAME_TOKENS;
  return { ...text, bytes: text.bytes - bytes + Math.min(bytes, framed) };
}

/**
 * Stores the provider's count for a prompt. Another model that answered counts with another tokenizer.
 * @param served the model that answered; null = the requested one
 */
export function learnPrompt(
  engine: ModelCatalog,
  bound: BoundPrompt,
  call: { readonly model: ModelEntry; readonly usage: TokenUsage; readonly served: string | null },
): void {
  if (call.usage.usage_estimated || isAnsweredByOther(engine.prices, call.model, call.served)) return;
  const tokens = promptTokens(call.usage);
  if (tokens > 0) rememberPrompt(engine.prompts, bound.trace, tokens);
}

/** The parts of a request that its price depends on. */
type PricedRequest = SentParts & Pick<CanonicalRequest, 'max_output_tokens' | 'cache_ttl'>;

/** The most that a call can cost: its request at its bound, its answer at the cap (14 §2). */
export async function computeCeiling(
  engine: ModelCatalog,
  session: SessionId,
  model: ModelEntry,
  request: PricedRequest,
): Promise<{ readonly price: Pusd; readonly prompt: BoundPrompt }> {
  const prompt = await boundPrompt(engine, session, model, requestPrompt(request));
  const adapter = engine.registry.adapters.get(model.adapter);
  const price = ceilingPrice(engine.prices, resolvePricingId(engine, model.id), {
    prompt_tokens: prompt.tokens,
    output_tokens: request.max_output_tokens,
    cache: adapter === undefined ? 'none' : promptClass(adapter, request.cache_ttl),
  });
  return { price, prompt };
}

/** The price table row of a model. */
export function resolvePricingId(engine: Pick<ModelCatalog, 'registry'>, modelId: string): string {
  return engine.registry.get(modelId)?.pricing_id ?? modelId;
}

// The price of a call, computed once (08 §6).

/** A part of a call with its own price: its own model, its own long-context step. */
export interface Round {
  readonly model: ModelEntry;
  /** Name of the model that answered; null = the requested one. */
  readonly served: string | null;
  readonly usage: TokenUsage;
}

/** Clients and providers may name any model: beyond this many the oldest names are logged again. */
const MAX_UNPRICED = 1000;

/**
 * @param call `served` is the model that answered, null for the requested one; `where` goes into a warning; `rounds` add
 * up to `tokens`, absent = one round
 */
export function stampUsage(
  engine: Runtime & ModelCatalog,
  model: ModelEntry,
  tokens: TokenUsage,
  call: {
    readonly served: string | null;
    readonly latency: number;
    readonly where: object;
    readonly rounds?: readonly Round[];
  },
): { readonly usage: Usage; readonly cost: Pusd } {
  const rounds = call.rounds ?? [{ model, served: call.served, usage: tokens }];
  const prices = rounds.map((round) =>
    priceCall({
      table: engine.prices,
      servedModelId: resolveServedModelId(round.model, round.served),
      pricingId: round.model.pricing_id,
      modelId: round.model.id,
      usage: round.usage,
    }),
  );
  const cost_pusd = prices.reduce((sum, one) => sum + one.cost_pusd, 0n) as Pusd;
  const unpriced = rounds[prices.findIndex((one) => !one.priced)]?.model.id;
  if (unpriced !== undefined) warnOfUnpriced(engine, unpriced, call.where);
  return {
    usage: {
      input_tokens: tokens.input_tokens,
      cached_input_tokens: tokens.cached_input_tokens,
      cache_creation_input_tokens: tokens.cache_creation_input_tokens,
      cache_creation_1h_input_tokens: tokens.cache_creation_1h_input_tokens,
      output_tokens: tokens.output_tokens,
      reasoning_tokens: tokens.reasoning_tokens,
      usage_estimated: tokens.usage_estimated,
      cost_usd: fromPusd(cost_pusd),
      pricing_version: engine.prices.version,
      priced: unpriced === undefined,
      latency_ms: Math.round(call.latency),
    },
    cost: cost_pusd,
  };
}

/** Logs one line per model. */
function warnOfUnpriced({ unpriced, prices, log }: Runtime & ModelCatalog, model: string, where: object): void {
  if (unpriced.has(model)) return;
  unpriced.add(model);
  if (unpriced.size > MAX_UNPRICED) unpriced.delete(unpriced.values().next().value!);
  log.warn({ ...where, model, pricing_version: prices.version }, 'no price for this model');
}
