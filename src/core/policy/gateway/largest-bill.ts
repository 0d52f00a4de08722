// The largest bill of a call whose provider may ask other models too: advisors and fallbacks (19 §2.5).
import type { ModelEntry } from '#protocol/model.ts';
import type { Pusd } from '#protocol/money.ts';
import { ceilingPrice, type PriceTable } from '../pricing/price-table.ts';
import { computeTokenBound, type Prompt, selectNewText } from '../pricing/prompt-tokens.ts';
import { type AdapterConfig, overheadTokens } from '../registry/adapter-config.ts';
import { findEntryByName, type GatewayRegistry } from './model-names.ts';
import type { RequestFacts } from './request-facts.ts';
import type { OtherModel } from './request-parts.ts';

interface AskedModels {
  readonly prices: Pick<PriceTable, 'cost'>;
  readonly registry: GatewayRegistry;
  readonly model: ModelEntry;
  readonly facts: RequestFacts;
}

interface BillOptions extends AskedModels {
  readonly prompt: Prompt;
  /** Of the asked model. */
  readonly prompt_tokens: number;
}

/**
 * Each advice is an answer of the advisor, and one more of the model that asked for it. A summary is an answer of the
 * asked model that no bound of the request holds.
 */
export function largestBill(options: BillOptions, outputTokens: number): Pusd {
  const { prices, registry, model, facts, prompt } = options;
  const computePrice = ({ pricing_id }: ModelEntry, prompt_tokens: number, tokens: number) =>
    ceilingPrice(prices, pricing_id, {
      prompt_tokens,
      output_tokens: tokens * facts.output.copies,
      cache: facts.size.cache,
    });
  const own = computePrice(model, options.prompt_tokens, outputTokens);
  let [bill, rounds] = [0n, 1n];
  if (facts.compacted_from !== null && options.prompt_tokens >= facts.compacted_from)
    bill += computePrice(model, options.prompt_tokens, model.capabilities.max_output_tokens);
  for (const { name, role, uses, output_tokens } of facts.other_models) {
    const other = findEntryByName(registry, model, name);
    const most = output_tokens ?? (role === 'fallback' ? outputTokens : other.capabilities.max_output_tokens);
    const times = BigInt(uses ?? 1);
    bill += times * computePrice(other, boundOtherPrompt(registry, other, prompt), most);
    if (role === 'advisor') rounds += times;
  }
  return (bill + rounds * own) as Pusd;
}

/** Nothing is known of how another model counts the prompt. */
function boundOtherPrompt(
  { adapters }: GatewayRegistry,
  { adapter, capabilities }: ModelEntry,
  prompt: Prompt,
): number {
  const config = adapters.get(adapter);
  return computeTokenBound(
    selectNewText(prompt, null),
    capabilities,
    config === undefined ? 0 : overheadTokens(config),
  );
}

/** A model that the provider may ask, and that no limit can hold: it has no price, or may be asked without end. Null = none. */
export function findUnboundedOther({
  prices,
  registry,
  model,
  facts,
}: AskedModels & { readonly prices: { has(pricingId: string): boolean } }): OtherModel | null {
  const isPriced = (name: string) => prices.has(findEntryByName(registry, model, name).pricing_id);
  return facts.other_models.find(({ name, uses }) => uses === null || !isPriced(name)) ?? null;
}

// The most an answer of the gateway may have, and how far it is lowered to fit what is left (19 §2.5).

interface Answering {
  readonly capabilities: Pick<ModelEntry['capabilities'], 'max_output_tokens'>;
}
type Optioned = Pick<AdapterConfig, 'options'>;
type Asked = Pick<RequestFacts, 'wire' | 'output'>;

/** Tokens that the answer may have at most: what the client set in a field that the adapter knows, or the model's maximum. */
export function outputBound(facts: Asked, model: Answering, adapter: Optioned): number {
  const { key, tokens } = facts.output;
  return tokens === null || key !== boundKey(facts, adapter) ? model.capabilities.max_output_tokens : tokens;
}

/** The field that bounds the answer: the client's, unless the adapter is configured to accept only another one. */
export function boundKey({ wire, output }: Asked, { options }: Optioned): string {
  if (wire !== 'chat') return wire === 'messages' ? 'max_tokens' : 'max_output_tokens';
  return options.max_tokens_field === 'max_tokens' ? 'max_tokens' : (output.key ?? 'max_completion_tokens');
}

/**
 * The largest bound of the answer, from `floor` to what was asked, whose price is no more than `left`; null when not
 * even the floor fits.
 */
export function findAffordableOutput(
  computePrice: (outputTokens: number) => Pusd,
  { floor, asked, left }: { readonly floor: number; readonly asked: number; readonly left: Pusd },
): number | null {
  if (computePrice(floor) > left) return null;
  let [low, high] = [floor, asked];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (computePrice(middle) <= left) low = middle;
    else high = middle - 1;
  }
  return low;
}
