// The most that a call can cost (14 §2).
import { requestPrompt, type SentParts } from '#core/policy/context/request-prompt.ts';
import { ceilingPrice, isAnsweredByOther, type PriceTable } from '#core/policy/pricing/price-table.ts';
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
import type { Pusd } from '#protocol/money.ts';
import { promptTokens, type Term, type Terms, type TokenUsage } from '#protocol/usage.ts';
import type { ModelCatalog } from '../state/engine.ts';
import { lookUpPrompt, type PromptTrace, rememberPrompt } from '../state/memory.ts';

// The most input tokens that a call is billed: known tokens of its prompt, and a bound of the new ones (14 §2).

export interface BoundPrompt {
  readonly tokens: number;
  readonly trace: PromptTrace;
  /** What the call is reserved with and stamped with, also where newer prices are taken meanwhile. */
  readonly prices: PriceTable;
}

/** Below this size, counting tokens costs more than it saves. */
const MIN_COUNTED_BYTES = 1024;
/** Overhead of each text and each part: roles, names, separators. */
const TEXT_FRAME_TOKENS = 4;
const PART_FRAME_TOKENS = 16;

/** The upper bound of the prompt's tokens. Never rejects for a parsed prompt. */
export async function boundPrompt(
  engine: ModelCatalog,
  session: SessionId,
  model: ModelEntry,
  prompt: Prompt,
): Promise<BoundPrompt> {
  const prices = engine.prices.now();
  const { known, trace } = lookUpPrompt(engine.prompts, session, model.id, prompt);
  const adapter = engine.registry.adapters.get(model.adapter);
  const overhead = adapter === undefined ? 0 : overheadTokens(adapter);
  const computeBound = (text: NewText) => computeTokenBound(text, model.capabilities, overhead);
  const candidates = [null, ...known].map((given: KnownPrompt | null) => selectNewText(prompt, given));
  const best = candidates.reduce((least, text) => (computeBound(text) < computeBound(least) ? text : least));
  return { tokens: computeBound(await countTokens(engine, model, best)), trace, prices };
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

/** The most that a call can cost: its request at the upper bound, its answer at `max_output_tokens` (14 §2). */
export async function computeCeiling(
  engine: ModelCatalog,
  session: SessionId,
  model: ModelEntry,
  request: PricedRequest,
): Promise<{ readonly price: Pusd; readonly prompt: BoundPrompt }> {
  const prompt = await boundPrompt(engine, session, model, requestPrompt(request));
  const adapter = engine.registry.adapters.get(model.adapter);
  const price = ceilingPrice(prompt.prices, resolvePricingId(engine, model.id), {
    prompt_tokens: prompt.tokens,
    output_tokens: request.max_output_tokens,
    cache: adapter === undefined ? 'none' : promptClass(adapter, request.cache_ttl),
    terms: readSentTerms(model),
  });
  return { price, prompt };
}

/** The terms that the registry asks for in every request to a model. */
function readSentTerms({ extra_body }: ModelEntry): Terms {
  const read = (term: Term) => {
    const value = extra_body?.[term];
    if (typeof value === 'string') return value;
    return null;
  };
  return { service_tier: read('service_tier'), speed: read('speed'), inference_geo: read('inference_geo') };
}

/** The price table row of a model. */
export function resolvePricingId(engine: Pick<ModelCatalog, 'registry'>, modelId: string): string {
  return engine.registry.get(modelId)?.pricing_id ?? modelId;
}
